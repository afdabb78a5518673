/* A driver for tests: a module is a line `name kind scope alignment`, where kind is add, negate or fail, over float32. */
#include "tilewright_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char name[128], kind[16], scope[16]; unsigned alignment; long calls; } module;

static long live = 0, copied = 0;
static void *last_data[8];

long example_live(void) { return live; }
long example_copied(void) { return copied; }
void *example_data(int k) { return last_data[k]; }

static void *create(const void *blob, uint64_t size, char *message) {
  char text[256];
  module *m = calloc(1, sizeof(module));
  if (size >= sizeof text) size = sizeof text - 1;
  memcpy(text, blob, size);
  text[size] = 0;
  if (sscanf(text, "%127s %15s %15s %u", m->name, m->kind, m->scope, &m->alignment) != 4) {
    snprintf(message, TW_MESSAGE_BYTES, "'%.40s' is no module", text);
    free(m);
    return 0;
  }
  return m;
}

static int32_t get_function(void *handle, const char *name, tw_function *f) {
  module *m = handle;
  f->handle = m;
  f->inputs = strcmp(m->kind, "add") == 0 ? 2 : 1;
  f->outputs = 1;
  return strcmp(name, m->name);
}

static int32_t call(void *handle, const tw_function *f, const tw_tensor *t, char *message) {
  module *m = handle;
  const tw_tensor *out = &t[f->inputs];
  m->calls++;
  for (int32_t k = 0; k <= f->inputs; k++) last_data[k] = t[k].data;
  if (strcmp(m->kind, "fail") == 0) {
    snprintf(message, TW_MESSAGE_BYTES, "it is broken after %ld calls", m->calls);
    return 7;
  }
  if (out->code != TW_FLOAT || out->bits != 32 || out->lanes != 1 || strcmp(out->scope, m->scope) || (uintptr_t)out->data % m->alignment) {
    snprintf(message, TW_MESSAGE_BYTES, "an output of type %d, %d bits, in %s", out->code, out->bits, out->scope);
    return 1;
  }
  uint64_t n = 1;
  for (int32_t k = 0; k < out->ndim; k++) n *= (uint64_t)out->shape[k];
  if (n * 4 != out->nbytes) return 2;
  for (uint64_t k = 0; k < n; k++)
    ((float *)out->data)[k] = f->inputs == 2 ? ((float *)t[0].data)[k] + ((float *)t[1].data)[k] : -((float *)t[0].data)[k];
  return 0;
}

static void destroy(void *handle) { free(handle); }

static uint64_t save(void *handle, void *blob, uint64_t room) {
  module *m = handle;
  char text[256];
  uint64_t n = (uint64_t)snprintf(text, sizeof text, "%s %s %s %u", m->name, m->kind, m->scope, m->alignment);
  if (n <= room) memcpy(blob, text, n);
  return n;
}

static void describe(void *handle, const tw_function *f, int32_t k, tw_memory *memory) {
  module *m = handle;
  memory->scope = m->scope;
  memory->alignment = m->alignment;
}

static void *allocate(void *handle, const char *scope, uint64_t nbytes, uint64_t alignment) {
  if (nbytes > 1 << 20) return 0;
  live++;
  return aligned_alloc(alignment, nbytes);
}
static void release(void *handle, const char *scope, void *data) { live--; free(data); }
static int32_t copy_in(void *handle, void *device, const void *host, uint64_t n) { copied += (long)n; memcpy(device, host, n); return 0; }
static int32_t copy_out(void *handle, void *host, const void *device, uint64_t n) { copied += (long)n; memcpy(host, device, n); return 0; }

#ifndef VERSION
#define VERSION TW_DRIVER_VERSION
#endif
#ifndef CALL
#define CALL call
#endif
#ifndef COPY_OUT
#define COPY_OUT copy_out
#endif

static const tw_driver_table table = {
  VERSION, TW_ONE_CALL_AT_A_TIME, "example-driver", create, get_function, CALL, destroy, save, describe, allocate, release, copy_in, COPY_OUT,
};

const tw_driver_table *tw_driver(void) { return &table; }
