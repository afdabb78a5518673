/* Times one kernel on a board, beside nothing but a shell: the host writes KERNEL_PARAMS, PARAMS and CALL in front of this, and links the kernel behind it.

     bench DATA VALUES AT ANSWERS NUMBER REPEAT LEAST_MS THREADS SECONDS

   DATA has what parameters hold at first, one behind the other, VALUES from byte AT on the constants among them. The kernel is called once, what it wrote goes to ANSWERS;
   then REPEAT figures are taken, each in two halves, of NUMBER calls or of as many as take LEAST_MS. Standard output: "wrong TEXT", or lines "half SECONDS".
   SIGALRM ends it after SECONDS. The timing lock is that of runtime/timing_lock.py. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { GUARD = 4096, GUARD_BYTE = 0xA5, ALIGNMENT = 64, WAITS = 12000 };

extern void *tw_pool_create(int64_t threads);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const char *path) {
  fprintf(stderr, "%s %s\n", what, path);
  exit(3);
}

/* A locked file; nobody waits longer than a minute for it, since who holds it may be stopped. */
static int locked(const char *path) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  for (int k = 0; file >= 0 && k < WAITS && flock(file, LOCK_EX | LOCK_NB) != 0; k++) usleep(5000);
  return file;
}

static void read_into(FILE *file, void *data, size_t size, const char *path) {
  if (size && fread(data, 1, size, file) != size) fail("too short:", path);
}

static int broken(const unsigned char *block, size_t bytes) {
  for (size_t k = 0; k < GUARD; k++)
    if (block[k] != GUARD_BYTE || block[GUARD + bytes + k] != GUARD_BYTE) return 1;
  return 0;
}

static double timed(void *context, void **p, long calls) {
  const double start = now();
  for (long k = 0; k < calls; k++) CALL(context, p);
  return now() - start;
}

int main(int count, char **given) {
  if (count != 10) fail("usage: bench DATA VALUES AT ANSWERS NUMBER REPEAT LEAST_MS THREADS SECONDS, not", given[0]);
  const long repeat = atol(given[6]);
  const double least = 1e-3 * atof(given[7]);
  long number = atol(given[5]);
  FILE *data = fopen(given[1], "rb"), *values = fopen(given[2], "rb");
  if (!data || !values || fseek(values, atol(given[3]), SEEK_SET) != 0) fail("cannot read", data ? given[2] : given[1]);
  unsigned char *blocks[KERNEL_PARAMS], *first[KERNEL_PARAMS];
  void *p[KERNEL_PARAMS];
  for (int k = 0; k < KERNEL_PARAMS; k++) {
    const size_t size = (PARAMS[k].bytes + 2 * GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    blocks[k] = aligned_alloc(ALIGNMENT, size);
    first[k] = malloc(PARAMS[k].bytes + 1);
    if (!blocks[k] || !first[k]) fail("no memory for the arrays of", given[0]);
    memset(blocks[k], GUARD_BYTE, size);
    p[k] = blocks[k] + GUARD;
    read_into(PARAMS[k].constant ? values : data, p[k], PARAMS[k].bytes, given[PARAMS[k].constant ? 2 : 1]);
    memcpy(first[k], p[k], PARAMS[k].bytes);
  }
  const int queue = locked("/tmp/tilewright-timing.queue"), turn = locked("/tmp/tilewright-timing");
  if (queue >= 0) close(queue);
  alarm((unsigned)atoi(given[9]));
  void *context = tw_pool_create(atol(given[8]));
  if (!context) fail("no threads could be started by", given[0]);
  CALL(context, p);
  FILE *answers = fopen(given[4], "wb");
  for (int k = 0; k < KERNEL_PARAMS; k++) {
    if (broken(blocks[k], PARAMS[k].bytes)) { puts("wrong the code wrote outside of one of its arrays"); return 0; }
    if (!PARAMS[k].written && memcmp(first[k], p[k], PARAMS[k].bytes) != 0) { printf("wrong the code wrote into parameter %d, which it only reads\n", k); return 0; }
    if (PARAMS[k].written && (!answers || fwrite(p[k], 1, PARAMS[k].bytes, answers) != PARAMS[k].bytes)) fail("cannot write", given[4]);
  }
  if (answers && fclose(answers) != 0) fail("cannot write", given[4]);
  for (long r = 0; r < repeat; r++) {
    for (;;) {
      const long half = number > 1 ? number / 2 : 0;
      const double one = half ? timed(context, p, half) : 0.0, other = timed(context, p, number - half), all = one + other;
      if (all >= least) {
        if (half) printf("half %.9e %ld\n", one / (double)half, half);
        printf("half %.9e %ld\n", other / (double)(number - half), number - half);
        puts("figure");
        break;
      }
      const double wanted = 1.1 * (double)number * least / (all > 1e-9 ? all : 1e-9), most = 100.0 * (double)number;
      number = wanted < most ? (long)wanted + 1 : (long)most;
    }
  }
  if (turn >= 0) close(turn);
  return 0;
}
