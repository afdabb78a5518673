"""TVM's C interface of a model: one structure for the inputs, one for the outputs, and a function of both.

    struct tvmgen_net_inputs inputs = {.x = image};
    struct tvmgen_net_outputs outputs = {.y = scores};
    int32_t status = tvmgen_net_run(&inputs, &outputs);

It calls `net_run` of the model, whose arguments are the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.backends.cpu.c.model import CModel
from tilewright.backends.cpu.c.text import c_type
from tilewright.runtime.program import TensorInfo


@dataclass(frozen=True)
class Interface:
    """The texts of `<name>_lib0.c` and `tvmgen_<name>.h`, where `name` is the model's without an underscore that keeps
    it apart from a keyword of C."""

    name: str
    source: str
    header: str


def interface_of(model: CModel) -> Interface:
    """Return the interface of a model. Its workspace is static, so that none is passed."""
    name = model.name.rstrip("_") or model.name
    return Interface(name, _source(model, f"tvmgen_{name}"), _header(model, f"tvmgen_{name}"))


def _source(model: CModel, prefix: str) -> str:
    arguments = ", ".join([
        *(f"(const {c_type(t.dtype)} *)inputs->{n}" for n, t in zip(model.input_names, model.inputs, strict=True)),
        *(f"({c_type(t.dtype)} *)outputs->{n}" for n, t in zip(model.output_names, model.outputs, strict=True))])
    call = f"{model.name}_run({arguments});"
    body = [f"  return {call}"] if model.has_status else [f"  {call}", "  return 0;"]
    unused = [f"  (void){what};" for what, infos in (("inputs", model.inputs), ("outputs", model.outputs)) if not infos]
    return "\n".join([
        f'#include "{prefix}.h"', f'#include "{model.name}.h"', "",
        f"int32_t {prefix}_run(struct {prefix}_inputs *inputs, struct {prefix}_outputs *outputs) {{", *unused, *body,
        "}", ""])


def _header(model: CModel, prefix: str) -> str:
    upper = prefix.upper()
    sizes = [
        f"#define {upper}_{n.upper()}_SIZE {t.nbytes}" for n, t in zip(
            (*model.input_names, *model.output_names), (*model.inputs, *model.outputs), strict=True)]
    return "\n".join([
        f"#ifndef {upper}_H_", f"#define {upper}_H_", "", "#include <stdint.h>", "", "#ifdef __cplusplus",
        'extern "C" {', "#endif", "", "/* Bytes of the inputs and outputs. */", *sizes, "",
        "/* Bytes of a workspace that the caller gives: none, because it is static. */",
        f"#define {upper}_WORKSPACE_SIZE 0", "",
        *_structure(f"{prefix}_inputs", model.input_names, model.inputs),
        *_structure(f"{prefix}_outputs", model.output_names, model.outputs),
        "/* Runs the model. Returns 0, or another number where it cannot go on. */",
        f"int32_t {prefix}_run(struct {prefix}_inputs *inputs, struct {prefix}_outputs *outputs);", "",
        "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])


def _structure(name: str, names: Sequence[str], infos: Sequence[TensorInfo]) -> Iterator[str]:
    """Yield the lines of a structure of pointers; a structure of C has at least one member."""
    members = [f"  void *{n};  /* {c_type(t.dtype)}, {t.nbytes} bytes */" for n, t in zip(names, infos, strict=True)]
    yield from (f"struct {name} {{", *(members or ["  void *none;"]), "};", "")
