"""Files that accompany a model in C: a test with known values, an example program, and a Makefile.

    <name>.c <name>.h     the model
    <name>_test.c         runs it on inputs with known outputs, and prints the largest difference
    main.c                an example: reads raw inputs from files, writes raw outputs
    Makefile              make, make test
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.cpu.c.compile import EXACT, STANDARD
from tilewright.backends.cpu.c.model import CModel, listed
from tilewright.backends.cpu.c.text import c_type
from tilewright.runtime.program import TensorInfo

Array = np.ndarray[Any, Any]
TOLERANCE: Final = 1e-4
"""Tolerance of a float relative to the larger of 1 and its size, because processors and libraries round differently."""

_COMPARE: Final = """\
static int failures;

static void compare(const char *name, double found, double wanted, long at) {
  const double size = fabs(wanted) > 1.0 ? fabs(wanted) : 1.0;
  if (found == wanted || (found != found && wanted != wanted) || fabs(found - wanted) <= TOLERANCE * size) return;
  if (failures++ < 10) printf("%s[%ld] is %.9g, expected %.9g\\n", name, at, found, wanted);
}"""
_HALF: Final = """\
static double real(uint16_t x) {
  const int exponent = x >> 10 & 31, fraction = x & 1023;
  const double size = exponent == 0 ? ldexp(fraction, -24) : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY) : ldexp(fraction + 1024, exponent - 25);
  return x >> 15 ? -size : size;
}"""  # noqa: E501
_BRAIN: Final = """\
static double real(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}"""
_READ: Final = """\
static int read_file(const char *path, void *data, size_t size) {
  FILE *file = fopen(path, "rb");
  const size_t count = file ? fread(data, 1, size, file) : 0;
  if (file) fclose(file);
  if (count != size) fprintf(stderr, "%s: cannot read %lu bytes\\n", path, (unsigned long)size);
  return count == size;
}"""
_WRITE: Final = """\
static int write_file(const char *path, const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  size_t count = 0;
  if (file) {
    count = fwrite(data, 1, size, file);
    if (fclose(file) != 0) count = 0;
  }
  if (count != size) fprintf(stderr, "%s: cannot write %lu bytes\\n", path, (unsigned long)size);
  return count == size;
}"""


def files(model: CModel, inputs: Sequence[Array], outputs: Sequence[Array]) -> dict[str, str]:
    """Return the texts by file name; `outputs` are the expected results for `inputs`."""
    return {
        f"{model.name}.c": model.source, f"{model.name}.h": model.header,
        f"{model.name}_test.c": _test(model, inputs, outputs),
        "main.c": _example(model), "Makefile": _makefile(model.name),
    }


def _arrays(model: CModel) -> tuple[list[tuple[str, TensorInfo]], list[tuple[str, TensorInfo]]]:
    return [*zip(model.input_names, model.inputs, strict=True)], [*zip(model.output_names, model.outputs, strict=True)]


def _size(model: CModel, name: str) -> str:
    return f"{model.name.upper()}_{name.upper()}_SIZE"


def _storage(model: CModel, kind: str, name: str) -> str:
    return f"static {kind} {name}[{_size(model, name)} ? {_size(model, name)} : 1];"


def _test(model: CModel, inputs: Sequence[Array], outputs: Sequence[Array]) -> str:
    given, made = _arrays(model)
    lines = ["/* Compares the model with values that were computed when it was written: whole numbers have to be "
    "equal. */", "#include <math.h>",
             "#include <stdio.h>", "#include <string.h>", "", f'#include "{model.name}.h"', ""]
    is_real = [t.dtype.is_float for _, t in made]
    lines += [f"#define TOLERANCE {TOLERANCE if any(is_real) else 0.0}", ""]
    for (name, t), array in zip(given, inputs, strict=True):
        lines += [f"static const {c_type(t.dtype)} {name}[{max(1, array.size)}] = {{", listed(array, t.dtype), "};"]
    for (name, t), array in zip(made, outputs, strict=True):
        lines += [
            f"static const {c_type(t.dtype)} known_{name}[{max(1, array.size)}] = {{", listed(array, t.dtype), "};",
            _storage(model, c_type(t.dtype), name)
        ]
    short = {t.dtype.code for _, t in made if t.dtype.is_float and t.dtype.bits == 16}
    lines += ["", _COMPARE, *(["", _HALF if "float" in short else _BRAIN] if short else []), "", "int main(void) {"]
    lines.append(f"  {model.name}_run({', '.join(n for n, _ in (*given, *made))});")
    for name, t in made:
        value = "real({})" if t.dtype.is_float and t.dtype.bits == 16 else "(double){}"
        found, wanted = value.format(f"{name}[k]"), value.format(f"known_{name}[k]")
        compared = f'compare("{name}", {found}, {wanted}, k);'
        if not t.dtype.is_float:
            compared = f"if ({name}[k] != known_{name}[k]) {compared}"
        lines.append(f"  for (long k = 0; k < {_size(model, name)}; ++k) {compared}")
    lines += [
        '  if (failures) printf("FAILED: %d values differ\\n", failures);', '  else printf("OK\\n");',
        "  return failures != 0;", "}", ""
    ]
    return "\n".join(lines)


def _example(model: CModel) -> str:
    given, made = _arrays(model)
    words = " ".join([*(f"{n}.raw" for n, _ in given), *(f"{n}.raw" for n, _ in made)])
    lines = [
        f"/* Runs the model on raw arrays: ./main {words} */", "#include <stdio.h>", "", f'#include "{model.name}.h"',
        ""
    ]
    lines += [_storage(model, c_type(t.dtype), n) for n, t in (*given, *made)]
    lines += ["", *([_READ, ""] if given else []), _WRITE, "", "int main(int count, char **paths) {", "  if (count != "
    f"{len(given) + len(made) + 1}) {{",
              f'    fprintf(stderr, "usage: %s {words}\\n", paths[0]);', "    return 2;", "  }"]
    lines += [f"  if (!read_file(paths[{k + 1}], {n}, sizeof {n})) return 1;" for k, (n, _) in enumerate(given)]
    lines.append(f"  {model.name}_run({', '.join(n for n, _ in (*given, *made))});")
    lines += [
        f"  if (!write_file(paths[{len(given) + k + 1}], {n}, sizeof {n})) return 1;" for k, (n, _) in enumerate(made)]
    return "\n".join([*lines, "  return 0;", "}", ""])


def _makefile(name: str) -> str:
    return f"""\
# Products and sums round one by one: without -ffp-contract=off, floats differ in their last bits.
CC ?= cc
ARCH ?= -march=native
CFLAGS ?= {' '.join((*STANDARD, *EXACT))} $(ARCH)

main: main.o {name}.o
\t$(CC) $(CFLAGS) -o $@ $^ -lm

{name}_test: {name}_test.o {name}.o
\t$(CC) $(CFLAGS) -o $@ $^ -lm

test: {name}_test
\t./{name}_test

%.o: %.c {name}.h
\t$(CC) $(CFLAGS) -c -o $@ $<

clean:
\trm -f main {name}_test *.o

.PHONY: test clean
"""
