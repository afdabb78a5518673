"""Reference results of a model from other runtimes: ONNX Runtime, PyTorch and TensorFlow Lite, if they are installed.

    compare_import("onnxruntime", path, case, bench)    the first node with another value in the imported program

If the interpreter agrees with the other runtime, the import is right, and the interpreter is the reference from then
on.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from tilewright.base.errors import InputError, OptionError, PackageError
from tilewright.compiler.formats import ONNX, PYTORCH, TFLITE, Format, format_of
from tilewright.driver.diagnosis.bench import Bench
from tilewright.driver.diagnosis.case import Array, Case, flattened
from tilewright.driver.diagnosis.find import IMPORT, Diagnosis
from tilewright.driver.diagnosis.ways import WHOLE, Verdict, Way, compared, tolerance_for
from tilewright.relay.expr import Expr

ONNXRUNTIME, TORCH, LITE = "onnxruntime", "torch", "tflite"
_PACKAGES: Final = {ONNXRUNTIME: ("onnxruntime", "onnx"), TORCH: ("torch",), LITE: ("ai_edge_litert",)}
_INSTALL: Final = {ONNXRUNTIME: "onnxruntime onnx", TORCH: "torch", LITE: "ai-edge-litert"}
_FORMATS: Final[Mapping[str, Format]] = {ONNXRUNTIME: ONNX, TORCH: PYTORCH, LITE: TFLITE}
NAMES: Final = tuple(_PACKAGES)
TIMES: Final = 10
"""Factor on the tolerance for another runtime, which sums in a different order."""


def check_reference(name: str, model: Path) -> None:
    """Raise `OptionError` for an unknown reference, or one that does not read such models, and `PackageError` if it is
    not installed."""
    if name not in _PACKAGES:
        raise OptionError(
            f"--reference: there is no '{name}'; choose from interpreter, {', '.join(NAMES)}", code="TW0203")
    if format_of(model) is not _FORMATS[name]:
        raise OptionError(
            f"--reference: {name} reads models of {_FORMATS[name].name}, and '{model}' is one of "
            f"{format_of(model).name}; use the interpreter",
            code="TW0204")
    missing = [p for p in _PACKAGES[name] if importlib.util.find_spec(p) is None]
    if missing:
        raise PackageError(
            f"--reference {name} needs the package {missing[0]}: pip install {_INSTALL[name]}; or use the interpreter")


def outputs_by(name: str, model: Path, case: Case) -> list[Array]:
    """Return the results of the model from another runtime, on the inputs of the case."""
    run: dict[str, Callable[[Path, Case], list[Array]]] = {
        ONNXRUNTIME: lambda m, c: _by_onnxruntime(m, c)[0], TORCH: _by_torch, LITE: _by_tflite
    }
    return run[name](model, case)


def compare_import(name: str, model: Path, case: Case, bench: Bench) -> tuple[Diagnosis | None, list[Array]]:
    """Return the diagnosis if the imported program disagrees with another runtime, and the results of that runtime;
    None if they agree."""
    values: dict[str, Array] = {}
    if name == ONNXRUNTIME:
        wanted, values = _by_onnxruntime(model, case)
    else:
        wanted = outputs_by(name, model, case)
    tolerance = TIMES * tolerance_for(case, bench.settings)
    verdict = _compared(wanted, bench.arrays("expected", case), tolerance, name)
    if verdict is None:
        return None, wanted
    made = Diagnosis(True, verdict, IMPORT, case=case, way=Way(WHOLE), nodes=case.nodes, probes=bench.probes)
    node = _at_node(made, model, case, values, tolerance) if values else None
    return node or (made, wanted)


def _compared(wanted: Sequence[Array], given: Sequence[Array], tolerance: float, name: str) -> Verdict | None:
    found = compared(wanted, given, tolerance)
    return (
        None if found is None
        else replace(
            found, text=found.text.replace("by the reference", f"by {name}").replace("compiled", "by the interpreter"))
    )


def _at_node(
    made: Diagnosis, model: Path, case: Case, values: Mapping[str, Array], tolerance: float
) -> tuple[Diagnosis, list[Array]] | None:
    """Return the first node of an ONNX model with a different value, as a separate program, and the right value."""
    onnx = importlib.import_module("onnx")
    known = case.known()
    ends: dict[str, Expr] = {e.span.name: e for e in known if e.span is not None}
    for k, node in enumerate(onnx.load(str(model), load_external_data=False).graph.node):
        e = ends.get(node.name or f"{node.op_type}_{k}")
        if e is None or node.output[0] not in values or known[e].shape != values[node.output[0]].shape:
            continue
        verdict = _compared([values[node.output[0]]], [known[e]], tolerance, ONNXRUNTIME)
        if verdict is not None:
            given = {o: known[o] for o in known if o.span != e.span}
            return (
                replace(made, verdict=verdict, operator=node.op_type, origin=str(e.span), case=case.cut(e, given)),
                [values[node.output[0]]]
            )
    return None


def _by_onnxruntime(model: Path, case: Case) -> tuple[list[Array], dict[str, Array]]:
    """Return the results, and the first value of every node by name."""
    onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    loaded = onnx.load(str(model))
    names = [o.name for o in loaded.graph.output]
    inner = [n.output[0] for n in loaded.graph.node if n.output and n.output[0] and n.output[0] not in names]
    loaded.graph.output.extend(onnx.ValueInfoProto(name=n) for n in inner)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(loaded.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run([*names, *inner], dict(zip(case.names, case.values, strict=True)))
    except Exception as error:  # the package's own exception class
        raise InputError(
            f"onnxruntime does not run the model: {error}; choose another --reference", code="TW0717"
        ) from error
    return (
        flattened(found[: len(names)]),
        {n: v for n, v in zip(inner, found[len(names) :], strict=True) if isinstance(v, np.ndarray)}
    )


def _by_torch(model: Path, case: Case) -> list[Array]:
    from tilewright.relay.frontend.pytorch.reading import read_model

    torch = importlib.import_module("torch")
    given = [torch.from_numpy(np.array(v)) for v in case.values]
    with torch.no_grad():
        read, _ = read_model(model)
        run = read.module() if hasattr(read, "graph_signature") else read
        found = run(*given)
    return [t.numpy() for t in (found if isinstance(found, (tuple, list)) else (found,))]


def _by_tflite(model: Path, case: Case) -> list[Array]:
    lite = importlib.import_module("ai_edge_litert.interpreter")
    plain = lite.OpResolverType.BUILTIN_REF  # the reference kernels; the fast ones round differently
    interpreter = lite.Interpreter(model_path=str(model), experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    for told, value in zip(interpreter.get_input_details(), case.values, strict=True):
        interpreter.set_tensor(told["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(told["index"]) for told in interpreter.get_output_details()]
