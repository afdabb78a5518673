"""TorchScript: converts the graph of a traced or scripted module.

Branches, loops (which are unrolled) and sizes are resolved during the import where they are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tilewright.base.errors import ModelError, Origin
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.pytorch.importer import Importer, array_of, refuse_missing
from tilewright.relay.frontend.pytorch.promotion import DTYPES
from tilewright.relay.frontend.pytorch.references import Reference, read
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.loops import Loop, Turn
from tilewright.relay.types_of import dtype_of

_MOST_TURNS: Final = 10_000
_FOREVER: Final = 2**63 - 1


class ScriptWalk:
    """The values of one graph, by their names in TorchScript."""

    def __init__(self, importer: Importer, module: Any) -> None:
        self.importer = importer
        self.values: dict[str, Any] = {}
        self.paths: dict[str, str] = {}
        self.module = module

    def run(self, graph: Any, inputs: Sequence[Any]) -> list[Any]:
        """Convert a graph, whose first input may be the module; return its outputs."""
        refuse_missing([kind for kind, overload, _ in operators(graph) if self.importer.missing(kind, overload)])
        names = [i.debugName() for i in graph.inputs()]
        if len(names) == len(inputs) + 1:
            self.values[names[0]], self.paths[names[0]] = self.module, ""
            names = names[1:]
        self.values.update(zip(names, inputs, strict=True))
        return self._block(graph)

    def _block(self, block: Any) -> list[Any]:
        for node in block.nodes():
            self._node(node)
        return [self.values[o.debugName()] for o in block.outputs()]

    def _node(self, node: Any) -> None:
        kind = node.kind()
        inputs = [self.values[i.debugName()] for i in node.inputs()]
        origin = Origin(next((o.debugName() for o in node.outputs()), ""), kind, self.importer.file)
        special = _SPECIAL.get(kind)
        if special is not None:
            results = special(self, node, inputs, origin)
        else:
            found = self.importer.call(kind, _schema(node), inputs, {}, origin)
            results = list(found) if node.outputsSize() > 1 and isinstance(found, (list, tuple)) else [found]
        for output, result in zip(node.outputs(), results, strict=False):
            self.values[output.debugName()] = result

    # prim

    def constant(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        import torch

        value = node.outputsAt(0).toIValue()
        if isinstance(value, torch.Tensor):
            # A traced number is a scalar tensor here; type promotion treats it as the Python number it was.
            if value.dim() == 0 and value.dtype in (torch.float64, torch.int64):
                return [value.item()]
            # A scalar of another type keeps it, and is not a weight: sizes may be computed from it.
            return [self.importer.tensor(f"constant_{origin.name}", value) if value.dim()
                    else Reference(Constant(array_of(value, origin.name), origin))]
        return [_held(self.importer, value, origin.name)]

    def attribute(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        import torch

        name, owner = node.s("name"), next(iter(node.inputs())).debugName()
        path = f"{self.paths.get(owner, '')}.{name}".lstrip(".")
        value = getattr(inputs[0], name)
        self.paths[origin.name] = path
        return [self.importer.tensor(path, value) if isinstance(value, torch.Tensor)
                else _held(self.importer, value, path)]

    def construct(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        return [list(inputs)]

    def construct_dict(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        return [dict(zip(inputs[::2], inputs[1::2], strict=True))]

    def unpack(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        if len(inputs[0]) != node.outputsSize():
            raise ModelError(f"{len(inputs[0])} values are unpacked into {node.outputsSize()}; give the shapes that "
                             "the model was traced with", origin, code="TW0118")
        return list(inputs[0])

    def index(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        return [inputs[0][inputs[1]]]

    def same(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        return [inputs[0] if inputs else None]

    def dtype(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        return [DTYPES.index(str(dtype_of(read(inputs[0]))))]

    def nothing(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        return [None] * node.outputsSize()

    def no(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        return [False]

    def fail(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        raise ModelError(f"the model raises an error for inputs of these shapes: {inputs[0]}; give shapes that it "
                         "accepts", origin, code="TW0118")

    def branch(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        blocks = list(node.blocks())
        condition = self._decided(inputs[0])
        if not isinstance(condition, Expr):
            return self._block(blocks[0] if condition else blocks[1])
        first, second = (self.importer.branch(functools.partial(self._block, b)) for b in blocks)
        return self.importer.choose(condition, first, second, origin)

    def loop(self, node: Any, inputs: Sequence[Any], origin: Origin) -> list[Any]:
        most, going, *states = inputs
        (block,) = node.blocks()
        names = [i.debugName() for i in block.inputs()]
        going, turn, count = self._decided(going), 0, self._decided(most)
        if isinstance(going, Expr) or isinstance(count, Expr):
            return self._looped(block, names, count, going, states, origin)
        while going and turn < count:
            if turn == _MOST_TURNS:
                raise ModelError(f"the loop has more than {_MOST_TURNS} iterations, the limit for unrolling; make it "
                                 "shorter", origin, code="TW0118")
            self.values.update(zip(names, [turn, *states], strict=True))
            following, *states = self._block(block)
            going, turn = self._decided(following), turn + 1
            if isinstance(going, Expr):
                return self._looped(block, names, count if count == _FOREVER else count - turn, going, states, origin)
        return states

    def _looped(self, block: Any, names: Sequence[str], count: Any, going: Any, states: Sequence[Any],
                origin: Origin) -> list[Any]:
        """Convert a loop whose trip count is known only at run time."""
        loop = Loop()
        first = [self.importer.as_expr(s) for s in states]
        outer = dict(self.values)

        def turn(number: Expr, before: Sequence[Expr]) -> Turn:
            self.values.update({n: _outside(v, loop) for n, v in outer.items()})
            self.values.update(zip(names, [Reference(number), *map(Reference, before)], strict=True))
            following, *after = self._block(block)
            condition = self._decided(following)
            made = [cast(self.importer.as_expr(a), dtype_of(b)) for a, b in zip(after, before, strict=True)]
            return Turn(made, going=condition if isinstance(condition, Expr)
                        else self.importer.as_expr(bool(condition)))

        limit = None if not isinstance(count, Expr) and count >= _FOREVER else count
        _, found, _ = loop.run(limit, first, turn, going=going if isinstance(going, Expr)
                               else self.importer.as_expr(bool(going)))
        self.values.update(outer)
        return [Reference(f) for f in found]

    def _decided(self, condition: Any) -> Any:
        """A condition as a Python value if it is known."""
        value = read(condition)
        if not isinstance(value, Expr):
            return value
        known = self.importer.known.of(self.importer.known.settle_near(value))
        return value if known is None else known.reshape(-1)[0].item()


def _outside(value: Any, loop: Loop) -> Any:
    """An outer value in the form that an iteration of the loop can use."""
    if isinstance(value, Reference):
        return Reference(loop.outside(value.value))
    return [_outside(v, loop) for v in value] if isinstance(value, list) else value


def _held(importer: Importer, value: Any, path: str) -> Any:
    """A constant of the module, with tensors as references."""
    import torch

    if isinstance(value, torch.Tensor):
        return importer.tensor(path, value)
    if isinstance(value, (list, tuple)):
        return [_held(importer, v, f"{path}.{k}") for k, v in enumerate(value)]
    if isinstance(value, dict):
        return {k: _held(importer, v, f"{path}.{k}") for k, v in value.items()}
    if hasattr(value, "_type"):  # an object of a torch class, such as the parameters of a quantized layer
        importer.called(value, path)
    return value


@functools.lru_cache(4096)
def _parsed(text: str) -> Any:
    import torch

    return torch._C.parse_schema(text)


def _schema(node: Any) -> Any:
    text = node.schema()
    return None if text.startswith("(no schema") else _parsed(text)


def operators(block: Any) -> Iterator[tuple[str, str, str]]:
    """Kind, overload and first result of the operators in a block and its inner blocks, except TorchScript's own."""
    for node in block.nodes():
        if node.kind() not in _SPECIAL:
            schema = _schema(node)
            yield node.kind(), schema.overload_name if schema is not None else "", next((o.debugName()
                for o in node.outputs()), "")
        for inner in node.blocks():
            yield from operators(inner)


_SPECIAL: Final[Mapping[str, Callable[..., list[Any]]]] = {
    "prim::Constant": ScriptWalk.constant, "prim::GetAttr": ScriptWalk.attribute,
    "prim::ListConstruct": ScriptWalk.construct,
    "prim::TupleConstruct": ScriptWalk.construct, "prim::DictConstruct": ScriptWalk.construct_dict,
    "prim::ListUnpack": ScriptWalk.unpack,
    "prim::TupleUnpack": ScriptWalk.unpack, "prim::TupleIndex": ScriptWalk.index, "prim::NumToTensor": ScriptWalk.same,
    "prim::unchecked_cast": ScriptWalk.same, "prim::unchecked_unwrap_optional": ScriptWalk.same,
    "aten::_unwrap_optional": ScriptWalk.same, "prim::data": ScriptWalk.same,
    "prim::Uninitialized": ScriptWalk.nothing, "prim::device": ScriptWalk.nothing, "prim::layout": ScriptWalk.nothing,
    "prim::dtype": ScriptWalk.dtype,
    "prim::is_cuda": ScriptWalk.no, "prim::is_quantized": ScriptWalk.no, "prim::is_sparse": ScriptWalk.no,
    "prim::is_mkldnn": ScriptWalk.no,
    "prim::requires_grad": ScriptWalk.no, "prim::RaiseException": ScriptWalk.fail, "prim::If": ScriptWalk.branch,
    "prim::Loop": ScriptWalk.loop,
    "prim::Print": ScriptWalk.nothing,
}
