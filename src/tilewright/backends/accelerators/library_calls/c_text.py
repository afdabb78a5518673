"""The calls of a part as a C file.

    int32_t tvmgen_default_bnns_main_0(const tw_tensor* args, void* const* constants, void* workspace);

`args` are the inputs, then the outputs. The function returns 0, or the status of the first failed call. `constants` are
those of the module, in order, and `workspace` is memory aligned to 64 bytes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.backends.accelerators.library_calls.module import LibraryModule, Tensor

HEAD: Final = """#include <stdint.h>

typedef struct { void* data; const int64_t* shape; int32_t ndim; const char* dtype; } tw_tensor;
"""


def c_text(module: LibraryModule) -> str:
    """Return the self-contained file, which is linked to a library with the declared functions."""
    inputs = sum(t.kind == "input" for t in module.tensors)
    lines = [
        f"/* Calls of {module.library} for {module.symbol}: {len(module.constants)} constants, {module.workspace} "
        "bytes of workspace. */",
        HEAD
    ]
    for name in dict.fromkeys(s.function for s in module.steps):
        lines.append(
            f"extern int32_t {name}(const tw_tensor* in, int32_t inputs, tw_tensor* out, int32_t outputs, const char* "
            "attributes);")
    lines += [
        "", f"int32_t {word(module.symbol)}(const tw_tensor* args, void* const* constants, void* workspace) {{",
        "  int32_t failed;"
    ]
    lines += [
        f"  static const int64_t shape_{i}[] = {{{', '.join(map(str, t.shape)) or '0'}}};"
        for i, t in enumerate(module.tensors)]
    lines += [
        f"  const tw_tensor v{i} = {{{_data(t, inputs)}, shape_{i}, {len(t.shape)}, {json.dumps(t.dtype)}}};"
        for i, t in enumerate(module.tensors)]
    for i, step in enumerate(module.steps):
        attributes = json.dumps(json.dumps(step.attributes, sort_keys=True))
        lines += [
            f"  const tw_tensor in_{i}[] = {{{', '.join(f'v{r}' for r in step.reads)}}};",
            f"  tw_tensor out_{i}[] = {{{', '.join(f'v{w}' for w in step.writes)}}};",
            f"  if ((failed = {step.function}(in_{i}, {len(step.reads)}, out_{i}, {len(step.writes)}, {attributes}))) "
            "return failed;",
        ]
    return "\n".join([*lines, "  return 0;", "}", ""])


def _data(t: Tensor, inputs: int) -> str:
    where = {
        "input": f"args[{t.place}].data", "output": f"args[{inputs + t.place}].data",
        "constant": f"constants[{t.place}]"
    }
    return where.get(t.kind, f"(char*)workspace + {t.place}")


def word(name: str) -> str:
    """Return a symbol as an identifier of C."""
    return re.sub(r"\W", "_", name)
