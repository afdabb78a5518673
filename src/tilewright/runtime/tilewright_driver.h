/* An accelerator's driver in C: what a shared library exports so that compiled programs can call it.
 *
 * The library has one function, tw_driver(), which returns a table of functions. `tilewright.runtime.load_driver(path)` reads it, and
 * from then on modules of the table's `kind` can be made, called, saved with a program, and loaded again. Nothing of Tilewright is
 * linked; this header needs the C library alone.
 *
 * One module is what a code generator made of one function of a network: `create` gets its bytes, `call` the tensors.
 */
#ifndef TILEWRIGHT_DRIVER_H
#define TILEWRIGHT_DRIVER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_DRIVER_VERSION 1
#define TW_MESSAGE_BYTES 512
#define TW_HOST_SCOPE "global"

/* Element types, numbered as DLPack does; 10 to 17 are its floats of a byte and less. A bool is a TW_UINT of 1 bit. */
enum { TW_INT = 0, TW_UINT = 1, TW_FLOAT = 2, TW_BFLOAT = 4, TW_COMPLEX = 5 };

/* Flags of a driver. */
enum { TW_ONE_CALL_AT_A_TIME = 1 };

typedef struct tw_tensor {
  void *data;            /* the first element, in the memory that `scope` names; rows without gaps */
  const int64_t *shape;  /* `ndim` sizes */
  uint64_t nbytes;
  int32_t ndim;
  uint8_t code;          /* TW_INT, … */
  uint8_t bits;          /* of one element; elements of fewer than 8 take a byte each */
  uint16_t lanes;        /* 1 */
  const char *scope;     /* "global" is the host's memory */
} tw_tensor;

/* What a tensor of a function has to be in. The host's memory is shared where it is aligned as asked, else copied. */
typedef struct tw_memory {
  const char *scope;
  uint64_t alignment;    /* a power of two */
} tw_memory;

typedef struct tw_function {
  void *handle;          /* whatever the driver likes; lives as long as the module */
  int32_t inputs;
  int32_t outputs;
} tw_function;

/* Functions that fail write why into `message`, of TW_MESSAGE_BYTES bytes, and return null or something other than 0. */
typedef struct tw_driver_table {
  uint32_t version;      /* TW_DRIVER_VERSION */
  uint32_t flags;
  const char *kind;      /* a name of letters, digits, '-' and '_', which files carry */

  /* A module of these bytes, which are gone after the call. */
  void *(*create)(const void *blob, uint64_t size, char *message);
  /* Fill in the function of that name and return 0; something else where the module has none. */
  int32_t (*get_function)(void *module, const char *name, tw_function *function);
  /* Call it: `tensors` are the inputs, then the outputs. */
  int32_t (*call)(void *module, const tw_function *function, const tw_tensor *tensors, char *message);
  void (*destroy)(void *module);

  /* Null, or: write the module into `blob` where `room` is enough; returns how many bytes it takes. Null saves what it was created from. */
  uint64_t (*save)(void *module, void *blob, uint64_t room);
  /* Null, or: what tensor `k` of a function, inputs before outputs, has to be in. Null is the host's memory, wherever it is. */
  void (*describe)(void *module, const tw_function *function, int32_t k, tw_memory *memory);

  /* For scopes other than the host's, all four or none; `copy_in` and `copy_out` return 0. */
  void *(*allocate)(void *module, const char *scope, uint64_t nbytes, uint64_t alignment);
  void (*release)(void *module, const char *scope, void *data);
  int32_t (*copy_in)(void *module, void *device, const void *host, uint64_t nbytes);
  int32_t (*copy_out)(void *module, void *host, const void *device, uint64_t nbytes);
} tw_driver_table;

/* The table of this library; it lives as long as the library. */
const tw_driver_table *tw_driver(void);

#ifdef __cplusplus
}
#endif

#endif /* TILEWRIGHT_DRIVER_H */
