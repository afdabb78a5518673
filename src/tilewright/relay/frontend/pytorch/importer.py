"""`Importer`: the state of one import, and the conversion of one call, for both TorchScript and torch.export.

Invariants: every call carries the model's node as its span; results of constants are folded immediately; a tensor that
the program may write into is a `Reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ModelError, OpNotImplemented, Origin
from tilewright.base.types import DataType, TensorType
from tilewright.relay.expr import Call, Constant, Expr, If, Tuple, TupleGetItem
from tilewright.relay.frontend.core.importer import Importer as CoreImporter
from tilewright.relay.frontend.core.origins import locate, makes_no_sense, naming
from tilewright.relay.frontend.core.registry import Converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch import complex_numbers, quantize
from tilewright.relay.frontend.pytorch.node import Array, Node
from tilewright.relay.frontend.pytorch.promotion import number_type, tensor
from tilewright.relay.frontend.pytorch.references import Reference, View, read, spread
from tilewright.relay.frontend.pytorch.registry import CONVERTERS, WRITERS, convert, find, unnamed
from tilewright.relay.frontend.pytorch.scalars import PYTHON, SCALARS, is_scalar
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.qnn.scaling import Quantize
from tilewright.relay.types_of import shape_of
from tilewright.scalar.expr import PrimExpr

VIEWS: Final = frozenset({
    "alias", "as_strided", "chunk", "contiguous", "detach", "diagonal", "expand", "expand_as", "flatten", "getitem",
    "lift_fresh", "movedim", "narrow", "numpy_T", "permute",
    "reshape", "reshape_as", "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "swapdims", "t",
    "tensor_split", "to", "transpose", "type_as",
    "unbind", "unflatten", "unsafe_chunk", "unsafe_split", "unsqueeze", "view", "view_as", "_unsafe_view",
    "_reshape_alias", "T", "mT", "unfold",
})
"""Operators whose results are views of their first argument."""
_NOTHING: Final = frozenset({
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size",
    "warn", "_check",
})
"""Operators that assert properties of values, and compute nothing."""
_TELLING: Final = frozenset({"size", "shape", "sym_size", "arange", "zeros", "ones", "full", "empty", "scalar_tensor",
                             "tensor", "eye", "linspace", "logspace"})

Custom = Mapping[str, Callable[..., Any]]


class Importer(CoreImporter):
    """The state of one import, shared by all calls."""

    runtime = "torch"
    stored_kind = "Parameter"

    def __init__(
        self, freeze: bool, default_dtype: str, custom: Custom | None, file: str, keep_quantized: bool = False,
        plain_names: bool = False,
    ) -> None:
        super().__init__(CONVERTERS, file, freeze=freeze)
        self.default_dtype = DataType(default_dtype)
        self.custom = dict(custom or {})
        self.keep_quantized, self.plain_names = keep_quantized, plain_names
        self.quantized: dict[Any, Any] = {}
        self._references: dict[int, tuple[Any, Reference]] = {}
        self._paths: dict[int, tuple[str, Any]] = {}
        self._stored: dict[tuple[int, str], Expr] = {}
        self._packed: list[Any] = []
        self._written: list[dict[Reference, Expr]] = []
        self.shows_writes = False
        """Whether to return new values of arguments whose mutation the schema does not declare."""

    def anew(self) -> Importer:
        """A new importer with the same options."""
        return Importer(self.freeze, str(self.default_dtype), self.custom, self.file, self.keep_quantized,
                        self.plain_names)

    # Stored tensors

    def tensor(self, name: str, value: Any) -> Reference:
        """The reference of a tensor of the model (a `torch.Tensor`); the same one at each call."""
        found = self._references.get(id(value))
        if found is not None:
            return found[1]
        array = array_of(value, name)
        made = self.parameter(name.replace(".", "_") if self.plain_names else name, array)
        if value.is_quantized:
            self.quantized[made] = quantize.parameters_in(value)
        reference = Reference(made)
        self._references[id(value)] = value, reference  # keeping the tensor keeps its id unique
        return reference

    def stored(
        self, packed: Any, what: str, real: Array, parameters: tuple[Constant, Constant], dtype: str,
        integers: Array | None, origin: Origin,
    ) -> Expr:
        """A tensor of a quantized layer: a float parameter that the graph quantizes, as in TVM.

        With `keep_quantized` it is an integer parameter, and with `freeze` a constant.
        """
        path = self._paths.get(id(packed), (origin.name, None))[0]
        name = f"{path.removesuffix('._packed_params')}_{what}"
        found = self._stored.get((id(packed), what))
        if found is None:
            self._packed.append(packed)
            found = self._stored[id(packed), what] = self._made(name.replace(".", "_") if self.plain_names else name,
                real, parameters, dtype, integers)
        return found

    def _made(self, name: str, real: Array, parameters: tuple[Constant, Constant], dtype: str,
              integers: Array | None) -> Expr:
        scale, zero = parameters
        span = Origin(name, "Parameter", self.file)
        if self.freeze and integers is not None:
            return Constant(integers, span)
        quantize_it = Quantize(DataType(dtype), axis=0)
        if self.keep_quantized and not self.freeze:
            whole = quantize_it.reference(real, scale.value, zero.value) if integers is None else integers
            return self.variable(name, whole)
        return Call(quantize_it, [self.parameter(name, real), scale, zero], span=span)

    def called(self, value: Any, path: str) -> None:
        """Record the path of an object of the module that is not a tensor."""
        self._paths[id(value)] = path, value

    def wrap(self, value: Any) -> Any:
        """Wrap new tensors of the program in references; keep Python values and lists."""
        if isinstance(value, Expr):
            return Reference(value)
        return [self.wrap(v) for v in value] if isinstance(value, (list, tuple)) else value

    # Calls

    def missing(self, name: str, overload: str) -> bool:
        """Whether an operator, `aten::add` or of another namespace, has no converter."""
        plain, in_place = _plain(name)
        if name in self.custom or plain in _NOTHING or plain in SCALARS or find(plain, overload) is not None:
            return False
        return not (in_place and find(plain[:-1], overload) is not None)

    def call(self, name: str, schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any], origin: Origin) -> Any:
        """The result of a call, with tensors as references. `schema` is a `torch.FunctionSchema` or None."""
        plain, in_place = _plain(name)
        with naming(origin, makes_no_sense("its arguments", self.runtime)):
            if name in self.custom:
                return self.wrap(self._settled(self._custom(name, args, kwargs), origin))
            if plain in _NOTHING:
                return None
            values = [*map(read, args)]
            named = {k: read(v) for k, v in kwargs.items()}
            if _is_python(plain, args, [*values, *named.values()]):
                return SCALARS[plain](*args, **_spoken(plain, named))
            if schema is None:
                plain = PYTHON.get(plain, plain)
            found = self._convert(plain, in_place, schema, args, _bound(schema, values, named), origin)
            if plain in WRITERS and self.shows_writes:
                self._write_beside(plain, _bound(schema, args, kwargs), origin)
            return found

    def _convert(self, plain: str, in_place: bool, schema: Any, args: Sequence[Any], arguments: dict[str, Any],
                 origin: Origin) -> Any:
        overload = schema.overload_name if schema is not None else ""
        converter = find(plain, overload)
        if in_place and converter is None:
            converter = find(plain[:-1], overload)
        if converter is None:
            raise OpNotImplemented(_no_converter([f"aten::{plain}"]), origin)
        node = Node(plain, origin, self.default_dtype, self.known, self.params, self.quantized, self, _defaults(schema))
        for argument in schema.arguments if schema is not None else ():
            if argument.name in arguments:
                arguments[argument.name] = _as_tensors(arguments[argument.name], str(argument.type), self.default_dtype)
        result = self._converted(converter, node, arguments)
        settled = self._settled(result, origin, plain in _TELLING or self._all_known(arguments))
        if in_place or plain in ("__iadd__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"):
            return self._write(args[0], settled, node)
        if plain in VIEWS and args and isinstance(args[0], Reference):
            return self._viewed(settled, args[0], converter, node, arguments)
        return self.wrap(settled)

    def _converted(self, converter: Converter, node: Node, arguments: dict[str, Any]) -> Any:
        """Convert a call. Quantized tensors are moved as integers, and computed with as floats."""
        if complex_numbers.involved(arguments):
            return complex_numbers.convert(converter, node, arguments)
        first = next(iter(arguments.values()), None)
        q = self.quantized.get(first) if isinstance(first, Expr) else None
        if not isinstance(first, Expr) or q is None or "quantize" in node.name or node.name in ("int_repr", "q_scale",
            "q_zero_point", "size", "dim", "numel"):
            return convert(converter, node, arguments)
        key = next(iter(arguments))
        plain = node.name[:-1] if node.name.endswith("_") else node.name
        if plain == "relu":
            least = Constant(np.asarray(int(q.zero_point), first.tensor_type.dtype.numpy()))
            return self._remember(op.maximum(first, least), q)
        if plain in quantize.KEPT:
            return self._remember(convert(converter, node, arguments), q)
        if plain in quantize.FIXED:
            scale, zero = quantize.FIXED[plain]
            found = convert(converter, node, {**arguments, key: quantize.real(first, q)})
            is_signed = first.tensor_type.dtype == "int8"
            return quantize.quantized_from(found, scale, zero - 128 * is_signed, first.tensor_type.dtype, node)
        if plain in ("avg_pool2d", "adaptive_avg_pool2d", "mean"):
            pool = quantize.average(convert(converter, node, {**arguments, key: quantize.real(first, q)}), first, q)
            if pool is not None:
                return self._remember(pool, q)
        return quantize.on_real(lambda x: convert(converter, node, {**arguments, key: x}), first, node)

    def _remember(self, result: Any, q: Any) -> Any:
        for r in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(r, Expr):
                self.quantized[r] = q
        return result

    def _write(self, target: Any, value: Any, node: Node) -> Any:
        if not isinstance(target, Reference):
            return self.wrap(value)
        before = target.value
        if self._written:
            self._written[-1].setdefault(target.root, target.root.value)
        new = spread(cast(value, before.tensor_type.dtype), shape_of(before)) if node.name not in ("resize_",
            "resize_as_", "set_", "squeeze_", "unsqueeze_", "t_", "transpose_") else value
        if new is not before:
            target.write(self._settled(new, node.origin), node)
        return target

    def _write_beside(self, plain: str, given: Mapping[str, Any], origin: Origin) -> None:
        """Write the new values of arguments that an operator modifies, as computed by `WRITERS`."""
        node = Node(plain, origin, self.default_dtype, self.known, self.params, self.quantized, self)
        for name, value in WRITERS[plain](node, **{k: read(v) for k, v in given.items()}).items():
            self._write(given[name], value, node)

    def _viewed(self, result: Any, base: Reference, converter: Converter, node: Node,
                arguments: Mapping[str, Any]) -> Any:
        if result is base.value:
            return base
        first = next(iter(arguments))

        def part(k: int | None) -> Callable[[Expr], Expr]:
            def reading(whole: Expr) -> Expr:
                found = convert(converter, node, {**arguments, first: whole})
                return self._settled(found if k is None else found[k], node.origin)  # type: ignore[no-any-return]

            return reading

        if isinstance(result, (list, tuple)):
            return [View(r, base, part(k)) if isinstance(r, Expr) else r for k, r in enumerate(result)]
        return View(result, base, part(None)) if isinstance(result, Expr) else result

    def _custom(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a user's converter, called as in TVM with the arguments and their types."""
        values = [*map(read, args), *map(read, kwargs.values())]
        types = [str(v.tensor_type.dtype) if isinstance(v, Expr) and isinstance(v.known_type(), TensorType)
                 else type(v).__name__ for v in values]
        return self.custom[name](values, types)

    def _settled(self, result: Any, origin: Origin, known: bool = True) -> Any:
        if isinstance(result, (list, tuple)):
            return [self._settled(r, origin, known) for r in result]
        if not isinstance(result, Expr):
            return result
        locate(result, origin)
        return self.known.settle_near(result) if known else result

    def _all_known(self, arguments: Mapping[str, Any]) -> bool:
        return all(self.known.of(e) is not None for v in arguments.values() for e in (v if isinstance(v, list) else [v])
                   if isinstance(e, Expr))

    # Branches

    def branch(self, run: Callable[[], list[Any]]) -> tuple[list[Any], dict[Reference, Expr]]:
        """The results of a branch, and the final values of the tensors it wrote into, whose values are restored."""
        self._written.append({})
        results = [self.as_expr(r) for r in run()]
        before = self._written.pop()
        after = {r: r.value for r in before}
        for reference, value in before.items():
            reference.restore(value)
        return results, after

    def choose(self, condition: Expr, first: tuple[list[Any], dict[Reference, Expr]],
               second: tuple[list[Any], dict[Reference, Expr]], origin: Origin) -> list[Any]:
        """The results of the branch that `condition` selects at run time."""
        written = list(dict.fromkeys((*first[1], *second[1])))
        if self._written:
            for reference in written:
                self._written[-1].setdefault(reference, reference.value)
        ours, theirs = ([*results, *(after.get(r, r.value) for r in written)] for results, after in (first, second))
        if not ours:
            return []
        whole = If(condition, Tuple(tuple(ours)), Tuple(tuple(theirs)), origin)
        chosen: list[Expr] = [TupleGetItem(whole, k) for k in range(len(ours))]
        for reference, value in zip(written, chosen[len(first[0]) :], strict=True):
            reference.restore(value)
        return [Reference(c) for c in chosen[: len(first[0])]]

    def as_expr(self, value: Any) -> Expr:
        """A value of the program as an expression: numbers become scalar tensors, lists become tuples."""
        value = read(value)
        if isinstance(value, (list, tuple)):
            return Tuple(tuple(map(self.as_expr, value)))
        if isinstance(value, Expr):
            return value
        if isinstance(value, (bool, int, float, np.generic, PrimExpr)):
            return tensor(value, number_type(value, self.default_dtype))
        raise ModelError(f"a value of type {type(value).__name__} is an output of the model; return only "
                         "tensors", code="TW0114")


def array_of(value: Any, name: str) -> Array:
    """The elements of a `torch.Tensor` as a numpy array."""
    import torch

    if value.layout is not torch.strided:
        raise ModelError(f"'{name}' is a sparse tensor, which is not supported; make it dense with to_dense()",
                         code="TW0114")
    plain = value.detach().cpu()
    if plain.dtype is torch.bfloat16:
        return np.asarray(plain.contiguous().view(torch.int16).numpy().view(DataType("bfloat16").numpy()))
    if plain.is_complex():
        raise ModelError(f"'{name}' has complex elements, which are not supported; use real tensors",
                         code="TW0114")
    if plain.is_quantized:
        plain = plain.int_repr()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float32, torch.float64):
        raise ModelError(f"'{name}' has elements of type {str(plain.dtype).removeprefix('torch.')}, which is not "
                         "supported; convert it to float16, bfloat16, float32 or float64", code="TW0114")
    array: Array = plain.contiguous().numpy()
    return array


def refuse_missing(names: Sequence[str]) -> None:
    """Raise `OpNotImplemented` for operators without a converter."""
    if names:
        raise OpNotImplemented(_no_converter(sorted(set(names))))


def _no_converter(names: Sequence[str]) -> str:
    return (f"no converter for {', '.join(names)}; pass custom_convert_map={{{names[0]!r}: function}}, where "
            "function(inputs, input_types) gives relay, or register one with relay.frontend.pytorch.register_converter")


def _plain(name: str) -> tuple[str, bool]:
    """The name without its namespace, and whether the operator writes into its first argument."""
    plain = name.removeprefix("aten::").removeprefix("prim::")
    return plain, plain.endswith("_") and not plain.endswith("__")


def _is_python(name: str, args: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether a call is a Python function on numbers or a list."""
    return name in SCALARS and (all(map(is_scalar, values)) or (bool(args) and isinstance(args[0], (list, dict, str))))


def _spoken(name: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """The named arguments that a Python function accepts."""
    taken = {"add": "alpha", "sub": "alpha", "div": "rounding_mode"}.get(name)
    return {k: v for k, v in named.items() if k == taken}


def _bound(schema: Any, values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the schema."""
    if schema is None:
        return {unnamed(k): v for k, v in enumerate(values)} | dict(named)
    return dict(zip((a.name for a in schema.arguments), values, strict=False)) | dict(named)


def _defaults(schema: Any) -> dict[str, Any]:
    return {} if schema is None else {a.name: a.default_value for a in schema.arguments if a.has_default_value()}


def _as_tensors(value: Any, kind: str, default: DataType) -> Any:
    """Convert Python numbers to tensors if the schema has tensors there."""
    if "Tensor" not in kind or value is None or isinstance(value, Expr):
        return value
    if isinstance(value, list):
        return [_as_tensors(v, kind, default) for v in value]
    return tensor(value, number_type(value, default)) if isinstance(value, (bool, int, float, PrimExpr)) else value
