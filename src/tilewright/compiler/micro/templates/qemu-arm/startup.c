/* What stands between reset and main on a Cortex-M: the table of vectors, memory as C wants it, and the words of the command line.

   Files, the console and the end of the program are asked of the emulator, or of a debugger, by semihosting. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern uint32_t data_source[], data_start[], data_end[], bss_start[], bss_end[], stack_top[];

int main(int count, char **words);
void initialise_monitor_handles(void);
void reset(void);
void fault(void);

typedef void (*vector)(void);

__attribute__((section(".vectors"), used)) static const struct {
  uint32_t *stack;
  vector entries[15];
} vectors = {stack_top, {reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault}};

enum { WRITE_TEXT = 0x04, COMMAND_LINE = 0x15, EXIT = 0x18, MOST_WORDS = 16 };

static uint32_t host_call(uint32_t operation, const void *argument) {
  register uint32_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

/* An access to no memory, an instruction that is none, an interrupt that nobody asked for: said, and the end. */
void fault(void) {
  host_call(WRITE_TEXT, "fault: the processor stopped the program (memory that is not there, or a stack that is used up)\n");
  host_call(EXIT, (const void *)0x20023); /* a run-time error */
  for (;;) {}
}

static int split(char *line, char **words) {
  int count = 0;
  for (char *word = strtok(line, " "); word && count < MOST_WORDS; word = strtok(NULL, " ")) words[count++] = word;
  return count;
}

void reset(void) {
  static char line[1024], *words[MOST_WORDS + 1];
  struct {
    char *text;
    uint32_t size;
  } block = {line, sizeof line - 1};
  volatile uint32_t *const access = (volatile uint32_t *)0xE000ED88; /* CPACR: the floating-point unit, where there is one */
  const uint32_t *from = data_source;
  for (uint32_t *to = data_start; to < data_end; ++to) *to = *from++;
  for (uint32_t *to = bss_start; to < bss_end; ++to) *to = 0;
  *access |= 0xFu << 20;
  __asm__ volatile("dsb\n\tisb");
  initialise_monitor_handles();
  if (host_call(COMMAND_LINE, &block) != 0) line[0] = 0;
  exit(main(split(line, words), words));
}
