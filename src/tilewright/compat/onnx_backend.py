"""ONNX's runtime interface `onnx.backend.base`, which its conformance suite and older tools use.

    import tilewright.onnx_backend as backend
    rep = backend.prepare(model)
    y, = rep.run([x])

A sequence is a list of arrays, an optional without a value is None, as in the suite.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import TypeProto, ValueInfoProto, defs, helper
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep as OnnxBackendRep
from onnx.backend.base import namedtupledict

from tilewright.base.errors import InputError, OptionError, TargetError
from tilewright.compiler.model import compile
from tilewright.relay.frontend.onnx import unknown_operators

if TYPE_CHECKING:
    from tilewright.compiler.model import Model

_DEVICE: Final = "CPU"
_OPTIONS: Final = tuple(n for n in inspect.signature(compile).parameters if n != "model")


class TilewrightRep(OnnxBackendRep):
    """A compiled model."""

    def __init__(self, proto: onnx.ModelProto, model: Model) -> None:
        """Wrap `model`, compiled from `proto`, whose graph names the inputs and outputs."""
        stored = {t.name for t in proto.graph.initializer} | {t.values.name for t in proto.graph.sparse_initializer}
        self.model = model
        self._stored = stored
        self._inputs = [i.name for i in proto.graph.input]
        self._outputs = namedtupledict("Outputs", [o.name for o in proto.graph.output])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs in the model's order; they are also available by name: `rep.run(x)["y"]`.

        `inputs` are a mapping by name, a sequence in the order of the model, or one array for a model of one input. The
        sequence holds all inputs, or only those without a default value. Raises `InputError`.
        """
        if kwargs:
            raise OptionError(
                f"run takes inputs only, but was given {', '.join(kwargs)}; give options of the compiler to prepare()",
                code="TW0214")
        found = self.model(self._by_name(inputs))
        return self._outputs(*(found if isinstance(found, tuple) else (found,)))

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return {n: v for n, v in inputs.items() if n not in self._stored}
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        needed = [n for n in self._inputs if n not in self._stored]
        if (
            len(needed) == 1 and isinstance(inputs, (list, tuple)) and len(given) != 1
            and len(given) != len(self._inputs)
        ):
            given = [inputs]  # the single input is a sequence
        names = self._inputs if len(given) == len(self._inputs) else needed
        if len(given) != len(names):
            raise InputError(
                f"the model takes {len(needed)} inputs ({', '.join(needed) or 'none'}), but {len(given)} were given",
                code="TW0701")
        return {n: v for n, v in zip(names, given, strict=True) if n not in self._stored}


class TilewrightBackend(OnnxBackend):
    """Compiles for this machine's CPU; options of `prepare` and `run_model` are those of `tilewright.compile`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = _DEVICE, **kwargs: Any) -> bool:
        """Whether all operators of the model are supported."""
        return cls.supports_device(device) and not unknown_operators(model)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = _DEVICE, **kwargs: Any) -> TilewrightRep:
        """Compile a model. Raises the errors of `tilewright.compile`, `TargetError` for another device, `OptionError`
        for unknown options."""
        _check_device(device)
        unknown = [n for n in kwargs if n not in _OPTIONS]
        if unknown:
            raise OptionError(
                f"prepare has no option '{unknown[0]}'; its options are those of tilewright.compile: "
                f"{', '.join(_OPTIONS)}",
                code="TW0214")
        return TilewrightRep(model, compile(model, **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = _DEVICE, **kwargs: Any) -> tuple[Any, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = _DEVICE,
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None, **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Compile and run one node. `inputs` is an array for each named input of the node, or a mapping.

        `opset_version` is the version of the node's domain (default: the newest). `outputs_info` is ignored.
        """
        version = kwargs.pop("opset_version", None)
        names = [n for n in dict.fromkeys(node.input) if n]
        given = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        if list(given) != names and set(given) != set(names):
            raise InputError(
                f"{node.op_type} takes {len(names)} inputs ({', '.join(names)}), but {len(given)} were given",
                code="TW0701")
        graph = helper.make_graph(
            [node], node.op_type, [_value_info(n, given[n]) for n in names],
            [ValueInfoProto(name=n) for n in node.output if n])
        domain = "" if node.domain == "ai.onnx" else node.domain
        imports = {"": defs.onnx_opset_version(), **({domain: version or _newest(domain)} if domain or version else {})}
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in imports.items()])
        return cls.prepare(model, device, **kwargs).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU (`CPU`, `CPU:0`)."""
        return device.partition(":")[0].upper() == _DEVICE


def _check_device(device: str) -> None:
    if not TilewrightBackend.supports_device(device):
        raise TargetError(
            f"there is no device '{device}' to run on; code is compiled for the CPU: device='CPU'", code="TW0506")


def _newest(domain: str) -> int:
    return max((s.since_version for s in defs.get_all_schemas_with_history() if s.domain == domain), default=1)


def _value_info(name: str, value: Any) -> ValueInfoProto:
    return ValueInfoProto(name=name, type=_type_of(value, name))


def _type_of(value: Any, name: str) -> TypeProto:
    """Return the ONNX type of an array or of a list of arrays; only the type of an array has dimensions."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, np.ndarray) for v in value):
        return helper.make_sequence_type_proto(
            helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value[0].dtype), None))
    if value is None:
        raise InputError(
            f"input '{name}' is None, so its type is unknown; run a model that declares it instead", code="TW0701")
    x = np.asarray(value)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device

__all__ = ["TilewrightBackend", "TilewrightRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]
