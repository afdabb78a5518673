"""`InferenceSession`: a compiled model behind ONNX Runtime's interface.

Inputs are checked against the model's declarations before compilation for their shapes. A wrong name, a missing input,
or a wrong rank, size or element type raises an `InputError` that lists the expected inputs.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto

from tilewright.base.errors import InputError, OptionError, ProviderWarning, TargetError
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.base.nd import as_numpy
from tilewright.compat.onnx_session.options import RunOptions, SessionOptions, compile_options, dimension_overrides
from tilewright.compat.onnx_session.values import ModelMetadata, NodeArg, OrtValue, check_device, metadata, node_arg
from tilewright.compiler.model import compile
from tilewright.relay.frontend.onnx.reading import read_model

Array = np.ndarray[Any, Any]
_PROVIDER: Final = "CPUExecutionProvider"


class InferenceSession:
    """A model that is compiled once for all input shapes, or, if that is not possible, for each combination of them."""

    @no_garbage_collection()
    def __init__(
        self, path_or_bytes: Any, sess_options: Any = None, providers: Sequence[Any] | None = None,
        provider_options: Any = None, **kwargs: Any,
    ) -> None:
        """`path_or_bytes` is a path, the bytes of a file, or a `ModelProto`; `sess_options` is this package's or ONNX
        Runtime's.

        `providers` must include the CPU's; others are ignored with a warning. `kwargs` are arguments of
        `tilewright.compile` and override the options. Raises the errors of `tilewright.compile`, `TargetError`,
        `OptionError`.
        """
        begin = time.perf_counter_ns()
        _check_providers(providers)
        options = {**compile_options(sess_options), **kwargs}
        with read_model(path_or_bytes) as (proto, _):
            stored = {t.name for t in proto.graph.initializer}
            infos = [i for i in proto.graph.input if i.name not in stored]
            self._overridable = [node_arg(i) for i in proto.graph.input if i.name in stored]
            self._inputs = [node_arg(i) for i in infos]
            self._outputs = [node_arg(o) for o in proto.graph.output]
            self._lists_of_maps = {k for k, o in enumerate(self._outputs) if o.type.startswith("seq(map")}
            self._metadata = metadata(proto)
            shapes = {**_overridden(infos, *dimension_overrides(sess_options)), **options.pop("shapes", {})}
            self._elements = {i.name: _numpy_type(i.type) for i in infos}
        self._options = sess_options if sess_options is not None else SessionOptions()
        self._declared: dict[str, Sequence[Any] | None] = {
            i.name: shapes.get(i.name, a.shape) if _has_shape(i) else None
            for i, a in zip(infos, self._inputs, strict=True)}
        self._plain = [
            (e or np.dtype(object), -1 if d is None else len(d), _known(d))
            for e, d in zip(self._elements.values(), self._declared.values(), strict=True)]
        self.model = compile(path_or_bytes, shapes or None, **options)
        """The compiled model: see `tilewright.Model`."""
        self._began = begin
        self._profile: list[dict[str, Any]] | None = [] if getattr(self._options, "enable_profiling", False) else None
        self._note("model_loading", begin)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None,
        *, into: Mapping[str, Array] | None = None,
    ) -> list[Any]:
        """Return the outputs of these names (None: all), for inputs by name.

        `into` has arrays by the names of outputs, which are written instead of new ones where the program knows the
        shapes of its outputs. Raises `InputError` for an unknown name or a wrong input.
        """
        places = [_place(n, [o.name for o in self._outputs]) for n in output_names] if output_names else None
        begin = 0 if self._profile is None else time.perf_counter_ns()
        arrays = self._arrays(input_feed)
        if into and self.model.is_one_program:
            out = [into.get(o.name) for o in self._outputs]
            found = self.model(self._checked(input_feed), out=out)
        else:
            found = self.model(self._checked(input_feed)) if arrays is None else self.model.run_arrays(arrays)
        if begin:
            self._note("model_run", begin)
        results = list(found) if type(found) is tuple else [found]
        for k in self._lists_of_maps:
            results[k] = results[k].tolist()
        return results if places is None else [results[k] for k in places]

    def _arrays(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return the inputs in order if they have the dtypes, ranks and sizes of the model, else None."""
        if type(feed) is not dict or len(feed) != len(self._elements):
            return None
        given = [*map(feed.get, self._elements)]
        for x, (element, rank, known) in zip(given, self._plain):  # noqa: B905
            if type(x) is not np.ndarray or x.dtype != element or x.ndim != rank or not x.flags.c_contiguous:
                return None
            for axis, size in known:
                if x.shape[axis] != size:
                    return None
        return given  # type: ignore[return-value]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on `OrtValue`s; the outputs are `OrtValue`s."""
        return [OrtValue(y) for y in self.run(output_names, {n: v.numpy() for n, v in input_dict_ort_values.items()})]

    def io_binding(self) -> IOBinding:
        """Return a binding of inputs and outputs for repeated runs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on bound inputs; the results are in the binding."""
        iobinding.run()

    def get_inputs(self) -> list[NodeArg]:
        """Return the required inputs."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs that have a stored value, which cannot be replaced."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the model: producer, version, descriptions."""
        return self._metadata

    def get_providers(self) -> list[str]:
        """Return ONNX Runtime's name of the CPU provider."""
        return [_PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return empty options for the CPU provider."""
        return {_PROVIDER: {}}

    def set_providers(self, providers: Sequence[Any], provider_options: Any = None) -> None:
        """Check the providers; otherwise without effect."""
        _check_providers(providers)

    def get_session_options(self) -> Any:
        """Return the options that the session was created with."""
        return self._options

    def get_profiling_start_time_ns(self) -> int:
        """Return the time when loading began, in nanoseconds."""
        return self._began

    def end_profiling(self) -> str:
        """Write the recorded times (Chrome's trace format, microseconds) and return the file name.

        Raises `OptionError` when profiling was not enabled.
        """
        if self._profile is None:
            raise OptionError(
                "nothing was profiled: make the session with sess_options.enable_profiling = True", code="TW0708")
        path = Path(f"{self._options.profile_file_prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        path.write_text(json.dumps(self._profile, indent=1), encoding="utf-8")
        self._profile = None
        return str(path)

    def _note(self, what: str, begin: int) -> None:
        if self._profile is not None:
            now = time.perf_counter_ns()
            self._profile.append(
                {
                    "cat": "Session", "name": what, "ph": "X", "pid": 0, "tid": 0, "ts": (begin - self._began) // 1000,
                    "dur": (now - begin) // 1000
                })

    def _checked(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs as arrays; raises `InputError` for inputs that the model does not accept."""
        if not isinstance(feed, Mapping):
            raise InputError(
                f"input_feed must be a mapping of names to arrays, not a {type(feed).__name__}; {self._takes()}",
                code="TW0701")
        for name in feed:
            if name not in self._elements:
                stored = any(a.name == name for a in self._overridable)
                why = (
                    "is a weight that is stored in the model, and cannot be replaced" if stored
                    else "is not an input of the model"
                )
                raise InputError(f"'{name}' {why}; {self._takes()}", code="TW0701")
        missing = [n for n in self._elements if n not in feed]
        if missing:
            raise InputError(f"missing input {', '.join(map(repr, missing))}; {self._takes()}", code="TW0701")
        return {n: self._input(n, feed[n]) for n in self._elements}

    def _input(self, name: str, value: Any) -> Any:
        wanted, declared = self._elements[name], self._declared[name]
        if wanted is None:
            return value.numpy() if isinstance(value, OrtValue) else value
        x: Array = (
            value.numpy() if isinstance(value, OrtValue) else as_numpy(value) if hasattr(value, "dtype")
            else np.asarray(value, wanted)
        )
        if x.dtype != wanted:
            raise InputError(
                f"input '{name}' has the element type {x.dtype}, but the model takes {wanted}; convert it with "
                f".astype('{wanted}')",
                code="TW0703")
        if declared is not None:
            if not len(declared) and x.size == 1:
                return x.reshape(())
            if x.ndim != len(declared):
                raise InputError(
                    f"input '{name}' has {x.ndim} dimensions, {list(x.shape)}, but the model takes {len(declared)}: "
                    f"{list(declared)}",
                    code="TW0704")
            for axis, (size, known) in enumerate(zip(x.shape, declared, strict=True)):
                if isinstance(known, int) and known > 0 and size != known:
                    raise InputError(
                        f"input '{name}' has size {size} in dimension {axis} of {list(x.shape)}, but the model takes "
                        f"{list(declared)}",
                        code="TW0704")
        return x

    def _takes(self) -> str:
        return "the model takes " + (", ".join(f"{a.name}: {a.type}{a.shape}" for a in self._inputs) or "no inputs")


class IOBinding:
    """Inputs and outputs bound to a session; all are in host memory."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array to the input `name`."""
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value to the input `name`."""
        self._inputs[name] = ortvalue.numpy()

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0) -> None:
        """Request the output `name` in new memory."""
        check_device(device_type)
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Request the output `name`, written into `ortvalue`."""
        self._outputs[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Remove all bound inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Remove all bound outputs."""
        self._outputs.clear()

    def run(self) -> None:
        """Run the session on the bound inputs. Raises `InputError`."""
        if not self._outputs:
            raise InputError("no output is bound; call bind_output(name) for each output that you need", code="TW0708")
        bound = {n: v.numpy() for n, v in self._outputs.items() if v is not None}
        results = self._session.run(list(self._outputs), self._inputs, into=bound)
        self._results = []
        for y, value in zip(results, self._outputs.values(), strict=True):
            if value is not None and value.numpy() is not y:
                value.update_inplace(y)
            self._results.append(OrtValue(y) if value is None else value)

    def get_outputs(self) -> list[OrtValue]:
        """Return the results of the last run, in the order in which the outputs were bound."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the results of the last run as arrays."""
        return [y.numpy() for y in self._results]

    def synchronize_inputs(self) -> None:
        """Return at once: inputs are in host memory."""

    def synchronize_outputs(self) -> None:
        """Return at once: outputs are in host memory."""


def _check_providers(providers: Sequence[Any] | None) -> None:
    names = [p if isinstance(p, str) else p[0] for p in providers or ()]
    if names and _PROVIDER not in names:
        raise TargetError(
            f"none of the providers {', '.join(names)} is available; code is compiled for the CPU: "
            f"providers=['{_PROVIDER}']",
            code="TW0506")
    others = [n for n in names if n != _PROVIDER]
    if others:
        warnings.warn(
            f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} not available; the model runs on the CPU",
            ProviderWarning, stacklevel=3)


def _overridden(
    infos: Iterable[onnx.ValueInfoProto], names: Mapping[str, int], denotations: Mapping[str, int]
) -> dict[str, list[int]]:
    """Return the shapes of inputs that are fully known with the overrides. Raises `OptionError` for a name that no
    input has."""
    shapes: dict[str, list[int]] = {}
    used: set[str] = set()
    for info in infos:
        dims: list[int | None] = []
        found = False
        for d in info.type.tensor_type.shape.dim:
            size = names.get(d.dim_param) if d.dim_param else denotations.get(d.denotation) if d.denotation else None
            used.update((d.dim_param, d.denotation))
            found = found or size is not None
            dims.append(size if size is not None else d.dim_value if d.HasField("dim_value") else None)
        if found and None not in dims:
            shapes[info.name] = [int(d) for d in dims if d is not None]
    unknown = [n for n in (*names, *denotations) if n not in used]
    if unknown:
        raise OptionError(
            f"no input has the free dimension '{unknown[0]}'; the free dimensions are: "
            f"{', '.join(sorted(u for u in used if u)) or 'none'}",
            code="TW0214")
    return shapes


def _known(dims: Sequence[Any] | None) -> list[tuple[int, int]]:
    """Return the axes of known sizes, with their sizes."""
    return [(axis, d) for axis, d in enumerate(dims or ()) if isinstance(d, int) and d > 0]


def _has_shape(info: onnx.ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "tensor_type" and bool(info.type.tensor_type.HasField("shape"))


def _numpy_type(kind: onnx.TypeProto) -> np.dtype[Any] | None:
    """Return the dtype of a tensor's elements; None for sequences, optionals and strings, which are checked at use."""
    code = kind.tensor_type.elem_type
    if (
        kind.WhichOneof("value") != "tensor_type" or code in (TensorProto.STRING, TensorProto.UNDEFINED)
        or code not in TensorProto.DataType.values()
    ):
        return None
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))


def _place(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise InputError(f"'{name}' is not an output of the model; its outputs are: {', '.join(names)}", code="TW0707")
    return names.index(name)
