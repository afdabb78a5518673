"""Compiled models as callables.

A call packs addresses (inputs, outputs, constants, workspace) into one block and jumps to the native entry function. A
block and its workspace form a frame. A call takes a free frame and returns it afterwards, so concurrent calls never
share one, and a single thread allocates nothing but its outputs.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import InputError, InternalError, RunError
from tilewright.base.forks import lazy_attribute
from tilewright.base.limits import machine_bytes, shown_bytes
from tilewright.base.mapped_memory import workspace_memory
from tilewright.base.nd import ALIGNMENT, NDArray, aligned_copy, aligned_empty, as_numpy
from tilewright.base.string_tensors import pack_texts
from tilewright.runtime.benchmark import BenchmarkResult, measure
from tilewright.runtime.call_inputs import in_order
from tilewright.runtime.callbacks import CALL_FAILED, DONE, call_function, raised, set_callback, signals_kept
from tilewright.runtime.fault_reports import last_reported
from tilewright.runtime.interrupts import PENDING_BYTES, Entry, entry_of, set_pending
from tilewright.runtime.manifest import FIRST_MESSAGE, MEMORY_FAULT, NO_MEMORY, NO_SCRATCH, NO_STACK, Manifest
from tilewright.runtime.modules import ModuleNode, function_of
from tilewright.runtime.output_memory import OutputMemory
from tilewright.runtime.program import (
    CONSTANT,
    INPUT,
    OBJECT,
    OUTPUT,
    WORKSPACE,
    Code,
    ExternalStep,
    HostStep,
    HostValue,
    KernelCall,
    OutsideStep,
    TensorInfo,
    entry_symbols,
    segments,
)
from tilewright.runtime.scratch import ALWAYS_THERE, check_stack
from tilewright.runtime.stepping import Subject
from tilewright.runtime.threads import POOLS, checked_threads, default_threads, set_threads_of_call

if TYPE_CHECKING:
    from tilewright.runtime.profile import Profile

Array = np.ndarray[Any, Any]
_KERNEL_ALIGNMENT: Final = 16
SURELY_THERE: Final = 1 << 28
"""Number of bytes up to which the memory of the machine is not checked."""
_MISALIGNED: Final = _KERNEL_ALIGNMENT - 1
_ARRAY: Final = np.ndarray
_bytes: Final = np.frombuffer
_BYTE: Final = np.dtype(np.uint8)
_STRING: Final = {str}


class Frame:
    """The state of one running call: the block of addresses, the workspace, Python objects by number, and fixed
    arguments of the steps that run in Python. Memory for signal checks follows the addresses in the block."""

    __slots__ = ("address", "block", "given", "is_roomy", "objects", "size", "table", "workspace")

    def __init__(self, size: int, constants: int, workspace_bytes: int, table: Array | None) -> None:
        self.size = size
        self.is_roomy = False
        """Whether the workspace is far larger than its last call needed."""
        self.objects: dict[int, Array] = {}
        self.given: dict[_Outside, list[Array]] = {}
        self.block = bytearray(8 * (size + 3) + PENDING_BYTES)
        set_pending(self.block, 8 * (size + 3))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.block))
        struct.pack_into("Q", self.block, 8 * size, constants)
        self.use(workspace_memory(workspace_bytes), table)

    def use(self, workspace: Array, table: Array | None) -> None:
        """Let the next run use this workspace and table of sizes."""
        self.workspace, self.table = workspace, table
        self.given.clear()
        struct.pack_into(
            "2Q", self.block, 8 * self.size + 8, address_of(workspace), 0 if table is None else address_of(table))


class _Outside:
    """A step that runs in Python. `is_fixed`: its arguments never change within a frame; `output`: the output that may
    hold its result."""

    __slots__ = ("is_fixed", "makes", "step")

    def __init__(self, step: OutsideStep) -> None:
        self.step = step
        self.is_fixed = all(v.place.kind in (CONSTANT, WORKSPACE) and not v.is_open for v in step.inputs)
        made = step.outputs[0] if isinstance(step, HostStep) and step.makes_new else None
        self.makes = (
            made.place.offset if made is not None and made.dtype.is_object and made.place.kind == OUTPUT else -1
        )


class Executable:
    """A program, its code in this process, and its constants.

    Call it with the inputs by position, by name, or as one mapping; an input is a numpy array, an `NDArray`, or
    anything with `__dlpack__`, of exactly the shape and dtype of the model (strides are free). The result is a new
    numpy array, or a tuple of them when the model has several outputs.
    """

    has_dynamic_shapes: ClassVar[bool] = False
    """Whether the code serves other sizes, too, although the manifest has those of one call."""

    def __init__(
        self, manifest: Manifest, code: Code, constants: Array, threads: int | None = None, table: Array | None = None,
        modules: Sequence[ModuleNode] = (),
    ) -> None:
        """`constants` is a uint8 array, copied only if it is not aligned to 64 bytes. `table` has the sizes of a
        program with dynamic shapes. `modules` have the functions that external steps call."""
        self.manifest = manifest
        self.modules = tuple(modules)
        self._functions = {
            s.symbol: function_of(modules, s.symbol) for s in (*manifest.steps, *manifest.calls)
            if isinstance(s, ExternalStep)}
        if manifest.calls:
            set_callback(code, manifest.calls, self._functions, DONE if manifest.interruptible else 0)
        self._table = table
        self._check_memory()
        self.code = code
        self._constants = aligned(constants)
        self._threads = checked_threads(threads) if threads is not None else manifest.threads or default_threads()
        self._takes = tuple((t.dtype.numpy(), t.shape) for t in manifest.inputs)
        native = {a.offset for s in manifest.steps if isinstance(s, KernelCall) for a in s.args if a.kind == INPUT}
        self._texts = tuple((k, k in native) for k, t in enumerate(manifest.inputs) if t.dtype == "string")
        """The inputs of strings, and whether kernels read them."""
        self._gives = tuple((t.dtype.numpy(), t.shape) for t in manifest.outputs)
        self._names = tuple(t.name for t in manifest.inputs)
        self._pack = struct.Struct(f"{len(self._takes) + len(self._gives)}Q").pack_into
        self._frames: list[Frame] = []
        self._generation = -1
        self._context = 0
        self._name, self._scratch = manifest.name, manifest.scratch
        self._takes_stack = manifest.scratch.stack > ALWAYS_THERE
        self._calls_modules = bool(manifest.calls)
        self._plan: list[Entry | _Outside] = self._bind()
        self._made = {p.makes for p in self._plan if isinstance(p, _Outside)}
        """The results that a step in Python creates."""
        self._output_memory = OutputMemory()
        self._new = self._makers()
        self._native = self._plan[0] if len(self._plan) == 1 and not isinstance(self._plan[0], _Outside) else None

    @lazy_attribute
    def _inputs(self) -> tuple[tuple[TensorInfo, np.dtype[Any], tuple[int, ...]], ...]:
        return tuple((t, t.dtype.numpy(), t.shape) for t in self.manifest.inputs)

    @lazy_attribute
    def _outputs(self) -> tuple[tuple[TensorInfo, np.dtype[Any], tuple[int, ...]], ...]:
        return tuple((t, t.dtype.numpy(), t.shape) for t in self.manifest.outputs)

    @lazy_attribute
    def _sizes(self) -> tuple[int, ...]:
        """Bytes of the inputs and outputs as numpy arrays."""
        return tuple(dtype.itemsize * math.prod(shape) for dtype, shape in (*self._takes, *self._gives))

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self.manifest.outputs

    @property
    def output_types(self) -> tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]:
        """The dtype and shape of each output."""
        return self._gives

    @property
    def threads(self) -> int:
        """Number of threads that share the work of a call."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = checked_threads(count)
        self._generation = -1

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run the program; `out` is an array, or one for each output (None: a new one), to write into."""
        given: Sequence[Any] = args
        places = None if kwargs else places_of(given, self._takes)
        if places is None:
            given = self._in_order(args, kwargs)
            places = places_of(given, self._takes)
        return self._answer(given, places, out)

    def _makers(self) -> tuple[tuple[np.dtype[Any], tuple[int, ...], Callable[..., Array] | None], ...]:
        """Return dtype, shape and maker of each result of a call, without maker if a step in Python creates it."""
        maker = self._output_memory.maker
        return tuple((d, s, None if k in self._made else maker(s, d)) for k, (d, s) in enumerate(self._gives))

    def _answer(self, given: Sequence[Any], places: list[int] | None, out: Any) -> Any:
        """Run on inputs in order; `places` are their addresses if the kernels can read them as they are."""
        if places is None:
            given = self._readable(given)
            places = [*map(address_of, given)]
        blocks = self._pack_texts(given, places) if self._texts else ()
        if out is not None:
            results = self._run_into(given, out, places)
        else:
            results = []
            try:
                for dtype, shape, make in self._new:
                    if make is None:
                        results.append(None)
                        places.append(0)
                        continue
                    new = make(shape, dtype)
                    results.append(new)
                    places.append(_slow_address(new) if _MEMORY is None else _MEMORY[(id(new) >> 3) + _FIELD])
            except MemoryError:
                raise self._no_memory() from None
            self._run(given, results, places, fresh=True)
            if self._output_memory.free:
                self._output_memory.end_call()
        del blocks  # the kernels have read them until here
        return results[0] if len(results) == 1 else tuple(results)

    def benchmark(
        self, *args: Any, repeat: int = 5, number: int = 5, min_repeat_ms: float = 0, end_to_end: bool = False,
        **kwargs: Any
    ) -> BenchmarkResult:
        """Time calls with these inputs (default: random ones).

        Takes `repeat` measurements of `number` calls each, more if a measurement takes less than `min_repeat_ms`.
        Arguments are checked and outputs allocated once, unless `end_to_end` is set.
        """
        given = args if args or kwargs else (self.example_inputs(),)
        if end_to_end:
            return measure(lambda: self(*given, **kwargs), repeat, number, min_repeat_ms)
        arrays = self._arrange(given, kwargs)
        results = [np.empty(shape, dtype) for dtype, shape in self._gives]
        places = [*map(address_of, arrays), *map(address_of, results)]
        blocks = self._pack_texts(arrays, places)
        if self._native is None:
            return measure(lambda: self._run(arrays, results, places), repeat, number, min_repeat_ms)
        self._run(arrays, results, places)
        frame, native, context = self._take_frame(), self._native, self._context
        try:
            self._pack(frame.block, 0, *places)
            return measure(lambda: native(context, frame.address), repeat, number, min_repeat_ms)
        finally:
            self._frames.append(frame)
            del blocks

    def profile(self, *args: Any, number: int = 10, timeline: bool = False, **kwargs: Any) -> Profile:
        """Time each step of the program in `number` runs with these inputs (default: random ones).

        With `timeline`, additional runs record the parts of each parallel loop by thread. Raises `RunError` for
        programs with control flow, dynamic shapes or strings, whose steps cannot be called separately.
        """
        from tilewright.runtime.profile import profile_program

        with self.stepwise(*args, **kwargs) as (subject, _):
            return profile_program(subject, number, timeline)

    @contextmanager
    def stepwise(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Subject, list[Array]]]:
        """Run the program once on these inputs; yield it ready to be run step by step on the same inputs, and its
        outputs.

        Raises `RunError` for programs with control flow, dynamic shapes or strings, and the errors of a call.
        """
        if not self.manifest.steps or self.manifest.symbols or self._texts or self.has_dynamic_shapes:
            raise RunError(
                f"the steps of '{self.manifest.name}' cannot be timed separately: it has control flow, dynamic shapes "
                "or strings; time it as a whole",
                code="TW0714")
        arrays = self._arrange(args or (self.example_inputs(),), kwargs)
        results = [np.empty(shape, dtype) for dtype, shape in self._gives]
        places = [[*map(address_of, arrays)], [*map(address_of, results)]]
        self._run(arrays, results, [*places[0], *places[1]])
        frame = self._take_frame()
        self._pack(frame.block, 0, *places[0], *places[1])
        memory = {
            INPUT: places[0], OUTPUT: places[1], CONSTANT: [address_of(self._constants)],
            WORKSPACE: [address_of(frame.workspace)]
        }

        def outside(step: OutsideStep) -> None:
            self._run_outside(_Outside(step), frame, arrays, results, False)

        yield (
            Subject(
                self.manifest, self.code, self._context, self._threads, frame.address, memory, outside,
                lambda status: failure(self.manifest, status)),
            results
        )

    def example_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return arrays that the model accepts: floats uniform in [0, 1), integers and booleans 0 or 1."""
        random = np.random.default_rng(seed)
        values = ((t, dtype, random.random(t.shape)) for t, dtype, _ in self._inputs)
        return {t.name: (v if t.dtype.is_float else v + 0.5).astype(dtype) for t, dtype, v in values}

    # Arguments

    def _arrange(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Array]:
        """Return the inputs in order, as arrays that a kernel can read."""
        return self._readable(self._in_order(args, kwargs))

    def _in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs in order, given by position, by name, or as a mapping."""
        if not args and tuple(kwargs) == self._names:
            return [*kwargs.values()]
        return in_order(self._names, args, kwargs, self._signature)

    def _readable(self, args: Sequence[Any]) -> list[Array]:
        return [readable(info, dtype, x) for (info, dtype, _), x in zip(self._inputs, args, strict=True)]

    def _pack_texts(self, given: Sequence[Array], places: list[int]) -> list[Array]:
        """Check the inputs of strings, set the addresses of the blocks that kernels read in `places`, and return the
        blocks, which the caller must keep."""
        blocks = []
        for k, is_native in self._texts:
            texts = given[k].ravel().tolist()
            if is_native:
                try:
                    block = _bytes(pack_texts(texts), _BYTE)
                except TypeError:
                    check_texts(self.manifest.inputs[k], texts)
                    raise
                place = address_of(block)
                if place & _MISALIGNED:
                    block = aligned_copy(block)
                    place = address_of(block)
                places[k] = place
                blocks.append(block)
            else:
                check_texts(self.manifest.inputs[k], texts)
        return blocks

    def _signature(self) -> str:
        return ", ".join(map(str, self.manifest.inputs))

    # Running

    def _bind(self) -> list[Entry | _Outside]:
        symbols = iter(entry_symbols(self.manifest.steps))
        pending = 8 * (len(self._takes) + len(self._gives) + 3)
        return [
            _Outside(part) if isinstance(part, OutsideStep)
            else entry_of(self.code, next(symbols), self.manifest.interruptible, pending)
            for part in segments(self.manifest.steps)]

    def _enter_pool(self) -> None:
        generation = POOLS.generation
        self._context = POOLS.context(self._threads, self.code)
        self._generation = generation

    def _take_frame(self) -> Frame:
        """Return a frame, which is appended to `_frames` after the run."""
        try:
            return self._frames.pop()
        except IndexError:
            pass
        try:
            return Frame(
                len(self._takes) + len(self._gives), address_of(self._constants), self.manifest.workspace_bytes,
                self._table)
        except MemoryError:
            raise self._no_memory() from None

    def _check_memory(self) -> None:
        """Raise `RunError` if the program needs more memory than this process may use."""
        needed = self.manifest.workspace_bytes + sum(t.nbytes for t in self.manifest.outputs)
        if needed > SURELY_THERE and needed > machine_bytes():
            raise self._no_memory()

    def _no_memory(self) -> RunError:
        manifest = self.manifest
        needed = manifest.workspace_bytes + sum(t.nbytes for t in manifest.outputs)
        return RunError(
            f"'{manifest.name}' needs {shown_bytes(needed)} of memory for its values and outputs, and less is "
            "available; use smaller inputs, or close other programs",
            code="TW0710")

    def _run(self, inputs: Sequence[Array], outputs: Any, places: Sequence[int], fresh: bool = False) -> None:
        """Run on arrays that kernels can access directly; `places` are their addresses. `fresh` outputs may be
        replaced."""
        if self._generation != POOLS.generation:
            self._enter_pool()
        if self._takes_stack:
            check_stack(self._name, self._scratch)
        frame = self._take_frame()
        try:
            self._pack(frame.block, 0, *places)
            native = self._native
            if native is not None:
                status = (
                    native(self._context, frame.address) if not self._calls_modules
                    else self._run_calling(native, frame)
                )
            else:
                status = self._run_parts(frame, inputs, outputs, fresh)
        finally:
            frame.objects.clear()
            self._frames.append(frame)
        if status:
            raise last_reported(self.code, self.manifest) if status == MEMORY_FAULT else failure(self.manifest, status)

    def _run_calling(self, native: Entry, frame: Frame) -> int:
        """Run code that calls functions of modules; raise the exceptions of these functions."""
        before = set_threads_of_call(self._threads)
        try:
            with signals_kept():
                status = native(self._context, frame.address)
        finally:
            set_threads_of_call(before)
        if status == CALL_FAILED:
            raise raised()
        return status

    def _run_parts(self, frame: Frame, inputs: Sequence[Array], outputs: Any, fresh: bool) -> int:
        for part in self._plan:
            if isinstance(part, _Outside):
                self._run_outside(part, frame, inputs, outputs, fresh)
            elif status := part(self._context, frame.address):
                return status
        return 0

    def _run_outside(self, host: _Outside, frame: Frame, inputs: Sequence[Array], outputs: Any, fresh: bool) -> None:
        given = frame.given.get(host)
        if given is None:
            given = [self._view(value, frame, inputs, outputs) for value in host.step.inputs]
            if host.is_fixed:
                frame.given[host] = given
        if isinstance(host.step, ExternalStep):
            self._call_external(
                host.step, given, [self._view(value, frame, inputs, outputs) for value in host.step.outputs])
            return
        made = host.step.run(*given)
        if fresh and host.makes >= 0:
            outputs[host.makes] = made
            return
        for value, result in zip(host.step.outputs, (made,) if isinstance(made, _ARRAY) else made, strict=True):
            if value.place.kind == OBJECT:
                frame.objects[value.place.offset] = result
            else:
                np.copyto(self._view(value, frame, inputs, outputs), result, casting="no")

    def _view(self, value: HostValue, frame: Frame, inputs: Sequence[Array], outputs: Sequence[Array]) -> Array:
        kind, offset = value.place.kind, value.place.offset
        if kind == OBJECT:
            return frame.objects[offset]
        if kind in (INPUT, OUTPUT):
            given = (inputs if kind == INPUT else outputs)[offset]
            if value.dtype.is_object:
                return given
            return value.view(given.reshape(-1).view(np.uint8)[value.place.skip :])
        return value.view((self._constants if kind == CONSTANT else frame.workspace)[offset:])

    def _call_external(self, step: ExternalStep, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        before = set_threads_of_call(self._threads)
        try:
            call_function(self._functions[step.symbol], inputs, outputs, step.origin)
        finally:
            set_threads_of_call(before)

    def _run_into(self, inputs: Sequence[Array], out: Any, places: Sequence[int]) -> list[Any]:
        """Write into the caller's arrays, through new arrays if a kernel cannot write into them directly."""
        given = [out] if len(self._gives) == 1 and not isinstance(out, (tuple, list)) else list(out)
        if len(given) == len(self._gives):
            given = [np.empty(shape, d) if o is None else o for o, (d, shape) in zip(given, self._gives, strict=True)]
        direct = places_of(given, self._gives, written=True)
        if direct is not None and _apart(places, direct, self._sizes):
            self._run(inputs, given, [*places, *direct])
            return given
        if len(given) != len(self._gives):
            raise InputError(f"out= has {len(given)} arrays, the model has {len(self._gives)} outputs", code="TW0705")
        targets = [_writable(info, dtype, o) for (info, dtype, _), o in zip(self._outputs, given, strict=True)]
        written: list[Array] = []
        for target in targets:
            usable = target.flags.c_contiguous and not address_of(target) & (_KERNEL_ALIGNMENT - 1)
            shared = usable and any(np.may_share_memory(target, other) for other in (*inputs, *written))
            written.append(target if usable and not shared else np.empty(target.shape, target.dtype))
        self._run(inputs, written, [*places, *map(address_of, written)])
        for target, result in zip(targets, written, strict=True):
            if target is not result:
                np.copyto(target, result)
        return given


def failure(manifest: Manifest, status: int) -> RunError | InternalError:
    """Return the error for a status other than 0."""
    if status == NO_MEMORY:
        return RunError(f"'{manifest.name}' needs more memory than is available", code="TW0710")
    if status == NO_SCRATCH:
        return manifest.scratch.lacking(manifest.name)
    if status == NO_STACK:
        return RunError(
            f"functions of '{manifest.name}' call each other too deeply for the stack; make the recursive call the "
            "last thing that the function does, or raise the limit (ulimit -s)", code="TW0711")
    if FIRST_MESSAGE <= status < FIRST_MESSAGE + len(manifest.failures):
        return RunError(manifest.failures[status - FIRST_MESSAGE], code="TW0713")
    return InternalError(f"the compiled model '{manifest.name}' failed with status {status}")


def _slow_address(x: Array) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


def _words() -> memoryview | None:
    """Return the memory of this process as words, from which array addresses are read in a tenth of the usual time.

    The address is the first field of numpy's array object after the object header, which is part of numpy's binary
    interface. Returns None if `id` is not the address of the object.
    """
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_size_t) != 8:
        return None
    probe = np.empty(1)
    if ctypes.c_uint64.from_address(id(probe) + 8 * _FIELD).value != _slow_address(probe):
        return None
    return memoryview((ctypes.c_uint64 * (1 << 59)).from_address(0)).cast("B").cast("Q")


_FIELD: Final = object.__basicsize__ // 8
_MEMORY: Final = _words()


def address_of(x: Array) -> int:
    """Return the address of the first element."""
    return _slow_address(x) if _MEMORY is None else _MEMORY[(id(x) >> 3) + _FIELD]


def places_of(
    given: Sequence[Any], wanted: Sequence[tuple[np.dtype[Any], tuple[int, ...]]], written: bool = False
) -> list[int] | None:
    """Return the addresses of arrays if all can be passed to the kernels unchanged, else None."""
    if len(given) != len(wanted):
        return None
    found = []
    for x, (dtype, shape) in zip(given, wanted):  # noqa: B905
        if type(x) is not _ARRAY or x.dtype is not dtype or x.shape != shape:
            return None
        flags = x.flags
        if not flags.c_contiguous or (written and not flags.writeable):
            return None
        place = _slow_address(x) if _MEMORY is None else _MEMORY[(id(x) >> 3) + _FIELD]  # `address_of`, inlined
        if place & _MISALIGNED:
            return None
        found.append(place)
    return found


def shapes_of(
    given: Sequence[Any], dtypes: Sequence[np.dtype[Any]]
) -> tuple[tuple[tuple[int, ...], ...], list[int] | None]:
    """Return the shapes of inputs, and their addresses if all have these dtypes and can be passed to the kernels
    unchanged."""
    shapes, places = [], []
    for x, dtype in zip(given, dtypes):  # noqa: B905
        if type(x) is not _ARRAY or x.dtype is not dtype or not x.flags.c_contiguous:
            break
        place = _slow_address(x) if _MEMORY is None else _MEMORY[(id(x) >> 3) + _FIELD]  # `address_of`, inlined
        if place & _MISALIGNED:
            break
        shapes.append(x.shape)
        places.append(place)
    if len(places) == len(given):
        return tuple(shapes), places
    return tuple(tuple(x.shape) if hasattr(x, "shape") else as_numpy(x).shape for x in given), None


def _apart(read: Sequence[int], written: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether no written memory overlaps any other; `sizes` are those of `read`, then of `written`."""
    before = [*read]
    for begin in written:
        end = begin + sizes[len(before)]
        for other, size in zip(before, sizes):  # noqa: B905
            if begin < other + size and other < end:
                return False
        before.append(begin)
    return True


def aligned(constants: Array) -> Array:
    """Return constants at an aligned address, copied if necessary."""
    if address_of(constants) % ALIGNMENT == 0:
        return constants
    return aligned_copy(constants)


def readable(info: TensorInfo, dtype: np.dtype[Any], value: Any) -> Array:
    """Return `value` as a contiguous, aligned array, copied if necessary; raises `InputError` for another shape or
    dtype.

    A scalar may be given as an array of one number.
    """
    x = as_numpy(value)
    if info.dtype.is_object:
        return _of_objects(info, x)
    if x.dtype != dtype:
        loses = x.dtype.kind == "f" and dtype.kind in "biu"
        if loses or isinstance(value, (np.ndarray, NDArray)) or hasattr(value, "__dlpack__"):
            raise InputError(
                f"input '{info.name}' has dtype {x.dtype}, expected {info}; convert it with .astype('{info.dtype}')",
                code="TW0703")
        x = x.astype(dtype)
    if x.shape != info.shape and not info.shape and x.size == 1:  # an array of one number, of any rank, for a scalar
        x = x.reshape(())
    if x.shape != info.shape:
        raise InputError(f"input '{info.name}' has shape {list(x.shape)}, expected {info}", code="TW0704")
    if x.flags.c_contiguous and not address_of(x) & (_KERNEL_ALIGNMENT - 1):
        return x
    copy = aligned_empty(x.shape, x.dtype)
    np.copyto(copy, x)
    return copy


def _of_objects(info: TensorInfo, x: Array) -> Array:
    """Return an input of strings (of any string dtype of numpy) or of other Python objects as an array of objects,
    unchecked."""
    found = x if x.dtype == object and x.flags.c_contiguous else np.ascontiguousarray(x.astype(object)).reshape(x.shape)
    if x.shape != info.shape:
        raise InputError(f"input '{info.name}' has shape {list(x.shape)}, expected {info}", code="TW0704")
    return found


def check_texts(info: TensorInfo, texts: Sequence[Any]) -> None:
    """Raise `InputError` if an element of an input of strings is not a string."""
    if {*map(type, texts)} <= _STRING:
        return
    wrong = next((type(v).__name__ for v in texts if not isinstance(v, str)), "")
    if wrong:
        raise InputError(
            f"input '{info.name}' has elements of type {wrong}, expected {info}; pass strings: np.array([\"a\", "
            "\"b\"], object)",
            code="TW0703")


def _writable(info: TensorInfo, dtype: np.dtype[Any], value: Any) -> Array:
    if not isinstance(value, (np.ndarray, NDArray)) and not hasattr(value, "__dlpack__"):
        raise InputError(
            f"out= for '{info.name}' is a {type(value).__name__}, expected an array: {info}", code="TW0705")
    x = as_numpy(value)
    if x.dtype != dtype or x.shape != info.shape:
        raise InputError(f"out= for '{info.name}' is {x.dtype}{list(x.shape)}, expected {info}", code="TW0705")
    if not x.flags.writeable:
        raise InputError(
            f"out= for '{info.name}' cannot be written to; pass an array that owns its memory", code="TW0705")
    return x
