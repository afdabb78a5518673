"""`from_pytorch`: converts a TorchScript module or an exported program to an `IRModule`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, ModelError
from tilewright.base.model_formats import Contents, Signature
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr, Var
from tilewright.relay.frontend.pytorch import exported, script
from tilewright.relay.frontend.pytorch.decompose import decompositions, holds_for_the_sample_alone, with_decompositions
from tilewright.relay.frontend.pytorch.exported import GraphWalk, symbolic_dim
from tilewright.relay.frontend.pytorch.importer import Importer
from tilewright.relay.frontend.pytorch.reading import read_model
from tilewright.relay.frontend.pytorch.references import Reference
from tilewright.relay.frontend.pytorch.registry import CONVERTERS
from tilewright.relay.frontend.pytorch.script import ScriptWalk
from tilewright.relay.qnn.settle_numerics import with_numerics
from tilewright.relay.sequence_values import with_outputs
from tilewright.scalar import expr as scalar
from tilewright.scalar.expr import PrimExpr

Array = np.ndarray[Any, Any]
Infos = Sequence[tuple[str, Any]]
_EMBEDDINGS: Final = ("aten::embedding", "quantized::embedding_byte", "quantized::embedding_4bit")


def from_pytorch(
    script_module: Any, input_infos: Infos | None = None,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None, default_dtype: str = "float32",
    use_parser_friendly_name: bool = False, keep_quantized_weight: bool = False, freeze_params: bool = False,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a PyTorch model as an `IRModule` whose `main` has the model's inputs as parameters, then its weights.

    `script_module` is a TorchScript module (traced or scripted), an `ExportedProgram` of torch.export, or a path to a
    file of either. No code in a file is executed. `input_infos` gives the name and shape of each input: `("x", (1, 3,
    224, 224))` or `("x", ((1, 8), "int64"))`, and a list of these for a list of tensors. Exported programs declare
    their inputs, and their dynamic dimensions stay symbolic. `custom_convert_map` maps operators (`"aten::relu"`) to
    functions of `(inputs, input_types)`; they override the table. `default_dtype` is the type of inputs without a type,
    and of Python floats. `use_parser_friendly_name` replaces the dots in names of weights by `_`. Weights and biases of
    quantized layers are floats in the second result, which the program quantizes; with `keep_quantized_weight` they are
    integers. With `freeze_params` weights are constants and the second result is empty.

    Raises `ModelError` for a model that cannot be read, `OpNotImplemented` listing all operators without a converter,
    and `ShapeError` for invalid arguments of an operator; all name the node.
    """
    model, file = read_model(script_module)
    return _imported(model, input_infos, Importer(freeze_params, default_dtype, custom_convert_map, file,
                                                  keep_quantized_weight, use_parser_friendly_name))


def _imported(model: Any, input_infos: Infos | None, importer: Importer) -> tuple[IRModule, dict[str, Array]]:
    """Import a model; decompose operators of an exported program that cannot be converted."""
    if not _is_exported(model):
        return _converted(model, input_infos, importer)
    holds_for_the_sample_alone(model)

    def again(refused: set[str]) -> tuple[IRModule, dict[str, Array]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own warnings about decompositions
            simpler = model.run_decompositions(decompositions(lambda name, overload: name in refused
                or importer.missing(name, overload)))
        if holds_for_the_sample_alone(simpler):
            raise ModelError("torch's decomposition holds only for sizes like those of the sample", code="TW0107")
        return _converted(simpler, input_infos, importer.anew())

    found: tuple[IRModule, dict[str, Array]] = with_decompositions(lambda: _converted(model, input_infos, importer),
        again)
    return found


def _converted(model: Any, input_infos: Infos | None, importer: Importer) -> tuple[IRModule, dict[str, Array]]:
    variables, names, found = (_exported(model, input_infos, importer) if _is_exported(model)
        else _scripted(model, input_infos, importer))
    outputs: list[Expr] = []
    kept: list[str] = []
    for k, value in enumerate(_flat(found)):
        if value is not None:
            kept.append(names[k] if k < len(names) and names[k] else f"output{k}")
            outputs.append(importer.as_expr(value))
    if not outputs:
        raise ModelError("the model returns no tensor; return at least one", code="TW0118")
    used = importer.used_params(outputs)
    main = with_outputs((*variables, *used), kept, outputs, [True] * len(outputs))
    if importer.quantized:
        import torch

        main = with_numerics(main, f"torch-{torch.backends.quantized.engine}")
    return IRModule.from_expr(main), {v.name_hint: a for v, a in used.items()}


def signature(model: Any, shapes: Mapping[str, Any] | None = None) -> Signature:
    """`(name, dimensions, dtype)` of each input; symbolic dimensions are names. TorchScript needs `shapes` by name."""
    module, _ = read_model(model)
    return [(name, [d if isinstance(d, int) else str(d) for d in shape], dtype)
            for name, (shape, dtype) in _infos(module, shapes or {})]


def from_shapes(model: Any, shapes: Mapping[str, Any]) -> IRModule:
    """`from_pytorch` with constant weights, and input shapes by name."""
    module, file = read_model(model)
    return _imported(module, _infos(module, shapes), Importer(True, "float32", None, file))[0]


def survey(model: Any, shapes: Mapping[str, Any]) -> tuple[Signature, list[str]]:
    """The signature, and an empty list: no other files hold tensors."""
    return signature(model, shapes), []


def read(model: Any, shapes: Mapping[str, Any] | None) -> tuple[IRModule, dict[str, Any]]:
    """The module of `from_shapes`, and no parameters."""
    return from_shapes(model, shapes or {}), {}


def contents(model: Any, shapes: Mapping[str, Any] | None) -> Contents:
    """The operators of a model, and its inputs if it and `shapes` define them."""
    kind, names, unknown = operators(model)
    inputs: list[tuple[str, tuple[int | str, ...], str]] = []
    if not unknown:
        with contextlib.suppress(CompileError):  # the import reports the error
            inputs = [(n, tuple(s), t) for n, s, t in signature(model, shapes)]
    nodes, missing = {("", name): nodes for name, nodes in names.items()}, {("", name) for name in unknown}
    return Contents({kind: 1}, "PyTorch", inputs, [], nodes, missing, CONVERTERS.advice,
                    lambda: from_shapes(model, shapes or {}))


def operators(model: Any) -> tuple[str, dict[str, list[str]], set[str]]:
    """The kind of the model, the names of its nodes by operator, and the operators without a converter."""
    module, file = read_model(model)
    importer = Importer(True, "float32", None, file)
    is_exported = _is_exported(module)
    names: dict[str, list[str]] = {}
    unknown: set[str] = set()
    for kind, overload, name in exported.operators(
        module.graph_module) if is_exported else script.operators(_graph(module)):
        names.setdefault(kind, []).append(name)
        if importer.missing(kind, overload):
            unknown.add(kind)
    return "torch.export" if is_exported else "TorchScript", names, unknown


def _graph(module: Any) -> Any:
    """The graph of a TorchScript module or function, with submodules inlined."""
    try:
        return module.inlined_graph if hasattr(module, "inlined_graph") else module.graph
    except RuntimeError as error:  # a module without `forward`, or with an invalid one
        raise ModelError(f"the module has no code ({' '.join(str(error).split())[:200]}); save a module that has a "
                         "forward method", code="TW0102") from error


def _infos(module: Any, shapes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name, shape and type of each input; `shapes` override declared ones."""
    if _is_exported(module):
        own = exported_infos(module)
        return [(n, (tuple(shapes.get(n, s)), t)) for n, (s, t) in own]
    graph = _graph(module)
    names = _input_names(graph)
    if any(n not in shapes for n in names):
        return _traced_infos(module)
    indices = _index_names(graph)
    return [(n, (tuple(shapes[n]), "int64" if n in indices else "float32")) for n in names]


def _index_names(graph: Any) -> set[str]:
    """Inputs that are indices of an embedding, so integers; TorchScript does not declare it."""
    return {list(n.inputs())[1].debugName().split(".")[0] for kind in _EMBEDDINGS for n in graph.findAllNodes(kind)}


@dataclass(frozen=True)
class Output:
    """Output `number` of an imported graph."""

    number: int


@dataclass(frozen=True)
class Input:
    """Input tensor `number`, after all writes into it."""

    number: int


@dataclass(frozen=True)
class ImportedGraph:
    """A graph as a module, None if it computes nothing. `written` has the new values of inputs by number."""

    module: IRModule | None
    results: Sequence[Any]
    written: Mapping[int, Output]


def from_graph(module: Any, inputs: Sequence[Any]) -> ImportedGraph:
    """Import a graph of torch.fx over aten operators; weights are constants.

    `inputs` describes its placeholders: `(name, shape, dtype)` for an input tensor, a constant tensor, or a number.
    """
    import torch

    importer = Importer(True, "float32", None, "")
    importer.shows_writes = True
    variables: list[Var] = []
    values: list[Any] = []
    for k, given in enumerate(inputs):
        if isinstance(given, tuple):
            name, shape, dtype = given
            variables.append(Var(name, TensorType(shape, DataType(dtype))))
            values.append(Reference(variables[-1]))
        else:
            values.append(importer.tensor(f"p{k}", given) if isinstance(given, torch.Tensor) else given)
    types = [importer.as_expr(v).checked_type if isinstance(v, Reference) else None for v in values]
    found = GraphWalk(importer, module).run(values)
    outputs: list[Expr] = []

    def output(value: Reference) -> Output:
        outputs.append(importer.as_expr(value))
        return Output(len(outputs) - 1)

    own = {id(v): k for k, v in enumerate(values) if isinstance(v, Reference)}
    results = [Input(own[id(v)]) if id(v) in own else output(v) if isinstance(v, Reference) else v
               for v in _flat(found)]
    written = {k: output(v) for k, v in enumerate(values) if isinstance(v, Reference) and v.version}
    for k, place in written.items():
        if outputs[place.number].checked_type != types[k]:
            raise ModelError(f"the graph changes the shape of its input {k} in place, which is not supported; return a "
                             "new tensor instead", code="TW0118")
    if not outputs:
        return ImportedGraph(None, results, written)
    names = [f"output{k}" for k in range(len(outputs))]
    return ImportedGraph(IRModule.from_expr(with_outputs(variables, names, outputs, [True] * len(outputs))), results,
                         written)


def _is_exported(model: Any) -> bool:
    return hasattr(model, "graph_signature")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [v for x in value.values() for v in _flat(x)]
    return [v for x in value for v in _flat(x)] if isinstance(value, (list, tuple)) else [value]


def _variables(infos: Infos, default: str, symbols: Mapping[str, Any]) -> tuple[list[Var], list[Any]]:
    """The variables of the inputs, and each input as a reference or a list of references."""
    variables: list[Var] = []

    def made(name: str, info: Any) -> Any:
        if _is_shape(info):
            return one(name, info, default)
        if len(info) == 2 and isinstance(info[1], (str, DataType)):
            return one(name, info[0], info[1])
        return [made(f"{name}.{k}", part) for k, part in enumerate(info)]

    def one(name: str, shape: Sequence[Any], dtype: str) -> Reference:
        if not _is_shape(shape):
            raise ModelError(f"the shape of input '{name}' is given as {shape!r}; write for example ({name!r}, (1, 3, "
                             "224, 224))", code="TW0112")
        variables.append(Var(name, TensorType([symbols.get(str(d), d) if isinstance(d, str) else d for d in shape],
                                              DataType(dtype))))
        return Reference(variables[-1])

    return variables, [made(name, info) for name, info in infos]


def _is_shape(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and all(isinstance(d, (int, np.integer, PrimExpr)) for d in given)


# TorchScript


def _scripted(module: Any, infos: Infos | None, importer: Importer) -> tuple[list[Var], list[str], Any]:
    graph = _graph(module)
    names = _input_names(graph)
    given = list(infos) if infos is not None else _traced_infos(module)
    if len(given) != len(names):
        raise ModelError(f"the model takes {len(names)} inputs ({', '.join(names)}), but input_infos has {len(given)} "
                         f"entries; give the name and shape of each: input_infos=[({names[0] if names else 'x'!r}, (1, "
                         "3, 224, 224)), …]", code="TW0112")
    variables, inputs = _variables(given, importer.default_dtype, {})
    return variables, [], ScriptWalk(importer, module).run(graph, inputs)


def _input_names(graph: Any) -> list[str]:
    inputs = list(graph.inputs())
    plain = inputs[1:] if inputs and inputs[0].type().kind() == "ClassType" else inputs
    return [i.debugName().split(".")[0] for i in plain]


def _traced_infos(module: Any) -> list[tuple[str, Any]]:
    """Shapes and types of the inputs that the trace recorded in the graph or the file."""
    graph = _graph(module)
    names = _input_names(graph)
    kinds = [i.type() for i in list(graph.inputs())[-len(names) :]] if names else []
    if all(hasattr(t, "sizes") and t.sizes() is not None and t.dtype() is not None for t in kinds):
        return [(n, (tuple(t.sizes()), str(t.dtype()).removeprefix("torch.")))
                for n, t in zip(names, kinds, strict=True)]
    raise ModelError(f"the file does not contain the shapes of its inputs ({', '.join(names)}); give them: "
                     f"input_infos=[({names[0]!r}, (1, 3, 224, 224))] to from_pytorch, shapes={{{names[0]!r}: (1, 3, "
                     f"224, 224)}} to compile", code="TW0113")


# torch.export


def exported_infos(program: Any) -> list[tuple[str, Any]]:
    """Name, shape and type of each tensor input of an exported program; dynamic dimensions are variables."""
    symbols: dict[str, scalar.Var] = {}
    wanted = {s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"}
    infos = []
    for node in program.graph.nodes:
        value: Any = node.meta.get("val") if node.op == "placeholder" and node.name in wanted else None
        if hasattr(value, "dtype"):
            infos.append((node.name, (tuple(symbolic_dim(d, symbols) for d in value.shape),
                                      str(value.dtype).removeprefix("torch."))))
    return infos


def _exported(program: Any, infos: Infos | None, importer: Importer) -> tuple[list[Var], list[str], Any]:
    own = exported_infos(program)
    if infos is not None and len(infos) != len(own):
        raise ModelError(f"the model takes {len(own)} tensors ({', '.join(n for n, _ in own)}), but input_infos has "
                         f"{len(infos)} entries", code="TW0112")
    given = ([(n, s if not _is_shape(s) else (s, known[1])) for (n, s), (_, known) in zip(infos, own, strict=True)]
             if infos is not None else own)
    variables, values = _variables(given, importer.default_dtype, {})
    by_name = dict(zip((n for n, _ in own), values, strict=True))
    stored = {**program.state_dict, **program.constants}
    inputs: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            inputs.append(by_name[spec.arg.name] if spec.arg.name in by_name else getattr(spec.arg, "value", None))
        elif spec.target in stored:
            inputs.append(_stored(importer, spec.target, stored[spec.target]))
        else:
            inputs.append(None)
    names = [s.arg.name for s in program.graph_signature.output_specs]
    walk = GraphWalk(importer, program.graph_module)
    found = walk.run(inputs)
    kept = [k for k, s in enumerate(program.graph_signature.output_specs) if s.kind.name == "USER_OUTPUT"]
    return variables, [names[k] for k in kept], [found[k] for k in kept]


def _stored(importer: Importer, name: str, value: Any) -> Any:
    import torch

    return importer.tensor(name, value) if isinstance(value, torch.Tensor) else value

