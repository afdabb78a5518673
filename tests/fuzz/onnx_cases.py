"""Models of ONNX's node suite with one to three changes: attributes, sizes, element types, values, the opset, and what
is stored."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import NodeProto, defs, helper, numpy_helper

from fuzz import arrays
from fuzz.onnx_evaluate import IR_VERSION, REFERENCES, NoAnswer, type_of
from fuzz.outcomes import Draw
from tilewright.base.types import DataType

NUMBERS: Final = (-3, -2, -1, 0, 1, 2, 3, 5)
REALS: Final = (0.0, 1.0, -1.0, 0.5, 1e-3, 2.0, -0.25)
SKIPPED: Final = frozenset({"ImageDecoder", "ai.onnx.preview.training"})
"""An operator whose reference needs another package, and a domain of training."""
TRIES: Final = 4


@dataclass
class Seed:
    """One case of the suite: its name, its node, the opset, and the inputs in order (None for one that is left out)."""

    name: str
    node: NodeProto
    opsets: list[Any]
    inputs: dict[str, Any]


@functools.cache
def seeds() -> tuple[Seed, ...]:
    """The cases of one node whose inputs are tensors, sequences or optionals."""
    from onnx.backend.test.loader import load_model_tests

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero and overflows on purpose
        for case in load_model_tests(kind="node"):
            if case.model is None or len(case.model.graph.node) != 1 or case.model.graph.node[0].op_type in SKIPPED:
                continue
            if case.model.functions or SKIPPED.intersection(
                o.domain for o in case.model.opset_import
            ) or not case.data_sets:
                continue
            given = [numpy_array(x) for x in case.data_sets[0][0]]
            if any(x is None for x in given):
                continue
            names = [i.name for i in case.model.graph.input]
            found.append(
                Seed(
                    case.name, case.model.graph.node[0], [*case.model.opset_import],
                    dict(zip(names, given, strict=False))
                )
            )
    return tuple(found)


@functools.cache
def by_operator() -> tuple[tuple[Seed, ...], ...]:
    """The cases of each operator, so that operators with few cases come as often."""
    groups: dict[str, list[Seed]] = {}
    for s in seeds():
        groups.setdefault(s.node.op_type, []).append(s)
    return tuple(tuple(g) for g in groups.values())


def numpy_array(x: Any) -> Any:
    """The array or list of arrays that a data set holds; None for what has neither."""
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, (list, tuple)):
        return [numpy_array(v) for v in x]
    return x if isinstance(x, np.ndarray) else np.asarray(x) if isinstance(x, np.generic) else None


def drawn(draw: Draw) -> tuple[onnx.ModelProto, dict[str, Any], str]:
    """A changed model, its inputs, and the name of the case; one that a reference accepts, where a few tries find
    one."""
    for _ in range(TRIES):
        seed = draw.pick(draw.pick(by_operator()))
        model, feeds = changed(draw, seed)
        answer = answered(model, feeds)
        if answer is not None or draw.chance(0.05):
            break
    if answer is not None:
        for info, value in zip(model.graph.output, answer, strict=True):
            if value is not None:
                info.type.CopyFrom(type_of(value))
    return model, feeds, seed.name


def answered(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any] | None:
    """The outputs by the first reference that accepts the model."""
    for answer in reversed([*REFERENCES.values()]):
        try:
            outputs: list[Any] = answer(model, feeds)
        except NoAnswer:
            continue
        return outputs
    return None


def changed(draw: Draw, seed: Seed) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model of a case with some changes."""
    node = NodeProto()
    node.CopyFrom(seed.node)
    made = Seed(seed.name, node, [*seed.opsets], dict(seed.inputs))
    for _ in range(draw.pick((1, 1, 2, 2, 3))):
        draw.pick(CHANGES)(draw, made)
    return assembled(draw, made)


def _is_stored(value: np.ndarray[Any, Any]) -> bool:
    """Whether a file has such elements: of objects, texts alone."""
    return value.dtype.kind != "O" or all(isinstance(x, (str, bytes)) for x in value.flat)


def assembled(draw: Draw, made: Seed) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of the node; some of its inputs are stored."""
    stored = {
        n for n,
        v in made.inputs.items() if isinstance(v, np.ndarray) and draw.chance(0.4 if v.dtype.kind == "i" else 0.2)
        and _is_stored(v)
    }
    inputs = [helper.make_value_info(n, type_of(v)) for n, v in made.inputs.items() if n not in stored]
    inits = [
        numpy_helper.from_array(np.ascontiguousarray(v).reshape(v.shape), n) for n,
        v in made.inputs.items() if n in stored
    ]
    outputs = [onnx.ValueInfoProto(name=o) for o in made.node.output if o]
    graph = helper.make_graph([made.node], "g", inputs, outputs, inits)
    return helper.make_model(
        graph, opset_imports=made.opsets, ir_version=IR_VERSION
    ), {n: v for n, v in made.inputs.items() if n not in stored}


# Changes.


def schema_of(made: Seed) -> Any:
    """The schema of the operator in its opset; None where there is none."""
    version = next((o.version for o in made.opsets if o.domain == made.node.domain), 1)
    try:
        return defs.get_schema(made.node.op_type, version, made.node.domain)
    except defs.SchemaError:
        return None


def attribute(draw: Draw, made: Seed) -> None:
    """One attribute has another value, is added, or left out."""
    schema = schema_of(made)
    if schema is None or not schema.attributes:
        return revalue(draw, made)
    name = draw.pick(sorted(schema.attributes))
    present = next((a for a in made.node.attribute if a.name == name), None)
    old = helper.get_attribute_value(present) if present is not None else None
    value = new_value(draw, made, schema.attributes[name], old)
    if present is not None:
        made.node.attribute.remove(present)
    if value is not None and not draw.chance(0.1):
        made.node.attribute.append(helper.make_attribute(name, value))
    return None


def new_value(draw: Draw, made: Seed, declared: Any, old: Any) -> Any:
    """Another value for an attribute; None for one whose kind has no other."""
    kinds = defs.OpSchema.AttrType
    match declared.type:
        case kinds.INT:
            return (old + draw.pick((-1, 1))) if old is not None and draw.chance(0.4) else draw.pick(NUMBERS)
        case kinds.FLOAT:
            return draw.pick(REALS)
        case kinds.INTS:
            rank = max([np.ndim(v) for v in made.inputs.values() if isinstance(v, np.ndarray)] or [1])
            if old is not None and len(old) and draw.chance(0.7):
                changed_list = [*old]
                changed_list[draw.random.randrange(len(old))] = draw.pick(NUMBERS)
                return changed_list
            return [draw.pick(NUMBERS) for _ in range(draw.pick((0, 1, 2, rank)))] or None
        case kinds.STRING:
            known = [
                helper.get_attribute_value(a) for s in seeds() if s.node.op_type == made.node.op_type
                for a in s.node.attribute if a.name == declared.name
            ]
            return draw.pick(sorted({*known})) if known else old
        case kinds.FLOATS:
            return [draw.pick(REALS) for _ in old] if old is not None else None
        case _:
            return old


def resize(draw: Draw, made: Seed) -> None:
    """Every dimension of one size has another: 0, 1, one more or less."""
    sizes = sorted({d for v in made.inputs.values() if isinstance(v, np.ndarray) for d in v.shape})
    if not sizes:
        return revalue(draw, made)
    size = draw.pick(sizes)
    to = draw.pick((0, 1, 1, size + 1, max(0, size - 1), 2, 7))
    only = draw.pick([*made.inputs]) if draw.chance(0.3) else ""
    for n, v in made.inputs.items():
        if isinstance(v, np.ndarray) and (not only or n == only):
            made.inputs[n] = np.resize(v, tuple(to if d == size else d for d in v.shape))
    return None


def retype(draw: Draw, made: Seed) -> None:
    """The inputs of one type variable have another element type."""
    schema = schema_of(made)
    choices = [c for c in schema.type_constraints if len(c.allowed_type_strs) > 1] if schema is not None else []
    if not choices:
        return revalue(draw, made)
    constraint = draw.pick(choices)
    allowed = [
        t[7:-1] for t in constraint.allowed_type_strs if t.startswith("tensor(") and "complex" not in t
        and "string" not in t
    ]
    if not allowed:
        return None
    dtype = helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(draw.pick(allowed).upper())).name
    for k, n in enumerate(made.node.input):
        value = made.inputs.get(n)
        declared = schema.inputs[min(k, len(schema.inputs) - 1)]
        if isinstance(
            value, np.ndarray
        ) and declared.type_str == constraint.type_param_str and value.dtype.kind not in "OSU":
            numeric = value.astype(np.float64)
            kept = bool((np.abs(numeric[np.isfinite(numeric)]) < 100).all()) and draw.chance(0.6)
            made.inputs[n] = cast(value, dtype) if kept else arrays.values(draw, value.shape, dtype)
    return None


def cast(value: Any, dtype: str) -> Any:
    """The values in another element type."""
    with np.errstate(all="ignore"):
        plain = np.nan_to_num(value.astype(np.float32)) if value.dtype.kind not in "iub" else value
        return plain.astype(DataType(dtype).numpy())


def revalue(draw: Draw, made: Seed) -> None:
    """One input has other values."""
    names = [n for n, v in made.inputs.items() if isinstance(v, np.ndarray) and v.dtype.kind not in "OSU"]
    if names:
        n = draw.pick(names)
        value = made.inputs[n]
        mood = "special" if draw.chance(0.4) else ""
        if value.dtype.kind in "iu" and draw.chance(0.7):  # often an index or a size
            shifted = value.copy()
            if shifted.size:
                shifted.flat[draw.random.randrange(shifted.size)] = np.asarray(draw.pick(NUMBERS)).astype(value.dtype)
            made.inputs[n] = shifted
        else:
            made.inputs[n] = arrays.values(draw, value.shape, value.dtype.name, mood)


def reversion(draw: Draw, made: Seed) -> None:
    """Another version of the opset."""
    for o in made.opsets:
        if o.domain == made.node.domain:
            made.opsets = [p for p in made.opsets if p.domain != o.domain] + [
                helper.make_opsetid(
                    o.domain, max(1, draw.pick((11, 13, 14, 16, 18, 20, 21, 22, 23)) if not o.domain else o.version)
                )
            ]


def leave_out(draw: Draw, made: Seed) -> None:
    """An input is left out, or an output."""
    ports = made.node.input if draw.chance(0.6) else made.node.output
    if len(ports) > 1:
        k = draw.between(1, len(ports) - 1)
        if k == len(ports) - 1:
            del ports[k]
        else:
            ports[k] = ""
    made.inputs = {n: v for n, v in made.inputs.items() if n in made.node.input}


CHANGES: Final[Sequence[Callable[[Draw, Seed], None]]] = (
    attribute, attribute, attribute, resize, resize, retype, retype, revalue, revalue, reversion, leave_out
)

