/* Generates tokens with a saved decoder, for benchmarks/decoder.py.
 *
 * Each request is a line of numbers: the count of prompt tokens, the count of steps, the tokens. The answer is a line:
 * the nanoseconds of the prompt and of each step, then the tokens. The caches are two sets of buffers in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "decoder.h"

enum { CACHES = DECODER_NUM_INPUTS - 3 };

static float* caches[2][CACHES];

/* Memory that is kept between requests, and grows. */
struct buffer {
  void* data;
  size_t bytes;
};

static struct buffer kept_caches[2][CACHES], kept_logits;

static void* grown(struct buffer* buffer, size_t bytes) {
  if (bytes > buffer->bytes) {
    free(buffer->data);
    buffer->bytes = (bytes + 127) / 64 * 64;
    buffer->data = aligned_alloc(64, buffer->bytes);
    if (!buffer->data) exit(3);
  }
  return buffer->data;
}

static void* reserve(size_t bytes) {
  void* memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!memory) exit(3);
  return memory;
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Runs the decoder on new tokens after a past, and returns the most likely next token. */
static int64_t call(const int64_t* tokens, int64_t count, int64_t past, int from, float* logits, int64_t* nanoseconds) {
  int64_t total = past + count;
  int64_t *mask = reserve(8 * total), *positions = reserve(8 * count);
  for (int64_t k = 0; k < total; ++k) mask[k] = 1;
  for (int64_t k = 0; k < count; ++k) positions[k] = past + k;
  int64_t of_tokens[2] = {1, count}, of_mask[2] = {1, total}, of_cache[4] = {1, KV_HEADS, past, HEAD_DIM};
  const int64_t* shapes[DECODER_NUM_INPUTS] = {of_tokens, of_mask, of_tokens};
  const void* inputs[DECODER_NUM_INPUTS] = {tokens, mask, positions};
  void* outputs[DECODER_NUM_OUTPUTS] = {logits};
  for (int k = 0; k < CACHES; ++k) {
    shapes[3 + k] = of_cache;
    inputs[3 + k] = caches[from][k];
    outputs[1 + k] = caches[!from][k];
  }
  int64_t start = now();
  int32_t status = decoder_run(shapes, inputs, outputs);
  *nanoseconds = now() - start;
  if (status) {
    fprintf(stderr, "%s\n", decoder_message(status));
    exit(1);
  }
  free(mask);
  free(positions);
  const float* last = logits + (count - 1) * VOCABULARY;
  int64_t best = 0;
  for (int64_t k = 1; k < VOCABULARY; ++k) best = last[k] > last[best] ? k : best;
  return best;
}

int main(void) {
  int64_t count, steps;
  while (scanf("%ld %ld", &count, &steps) == 2) {
    int64_t *prompt = reserve(8 * count), *tokens = reserve(8 * (steps + 1)), *times = reserve(8 * (steps + 1));
    for (int64_t k = 0; k < count; ++k)
      if (scanf("%ld", &prompt[k]) != 1) return 2;
    for (int k = 0; k < 2 * CACHES; ++k)
      caches[k / CACHES][k % CACHES] =
          grown(&kept_caches[k / CACHES][k % CACHES], 4 * KV_HEADS * HEAD_DIM * (count + steps));
    float* logits = grown(&kept_logits, 4 * VOCABULARY * count);
    tokens[0] = call(prompt, count, 0, 0, logits, &times[0]);
    for (int64_t k = 0; k < steps; ++k)
      tokens[k + 1] = call(&tokens[k], 1, count + k, (k + 1) % 2, logits, &times[k + 1]);
    for (int64_t k = 0; k <= steps; ++k) printf("%ld ", times[k]);
    for (int64_t k = 0; k <= steps; ++k) printf("%ld ", tokens[k]);
    printf("\n");
    fflush(stdout);
    free(prompt), free(tokens), free(times);
  }
  decoder_close();
  return 0;
}
