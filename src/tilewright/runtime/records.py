"""Programs that take and return values of data types: lists, options, trees.

    cell   = { i64 holders, i32 tag, i32 class, … }, as in backends/cpu/llvm/flow.py
    tensor = { …, ptr data, elements }
    record = { …, ptr field 0, ptr field 1, … }

The cells of an input are made here, with more holders than a run can release, so that native code never frees or
changes them. The cells of a result lie in chunks that the run leaves to the caller. They are read here into arrays and
`ADT`s, then the chunks are freed. Values that are shared are read once.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import NDArray, aligned_empty, as_numpy
from tilewright.base.types import DataType
from tilewright.runtime.benchmark import BenchmarkResult, measure
from tilewright.runtime.container import ADT
from tilewright.runtime.entry_layout import DATA, TENSOR, TUPLE, EntryLayout, Layout, leaves
from tilewright.runtime.executable import Executable, readable
from tilewright.runtime.program import TensorInfo

Array = np.ndarray[Any, Any]
_HELD: Final = 1 << 40
"""Number of holders of a cell that the caller owns."""
_HEAD: Final = 16
_LINE: Final = 64


class RecordExecutable(Executable):
    """A program with values of data types. An input is an `ADT`, or any value with a `tag` and `fields`; a result is an
    array, an `ADT` for a value of a data type, and an `ADT` with the tag 0 for a tuple."""

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run the program. Raises `InputError` for values of other types, and for `out`, which is not supported."""
        if out is not None:
            raise InputError(
                f"'{self.manifest.name}' takes or returns values of data types, but out= supports only tensors; omit "
                "it", code="TW0705")
        entry = self._entry()
        given = self._in_order(args, kwargs)
        kinds = [leaf for _, layout in entry.inputs for leaf in leaves(layout)]
        if len(given) != len(kinds):
            given = self._arrange(given, {})  # raises
        made = [
            _Cells(entry, info.name, kind, x) if kind[0] == DATA else x
            for x, kind, info in zip(given, kinds, self.inputs, strict=True)]
        arrays = self._readable([x.word if isinstance(x, _Cells) else x for x in made])
        results = super().__call__(*arrays)
        if not entry.is_boxed:
            return results
        root, chunks = results.tolist()
        try:
            return _read(entry, root)
        finally:
            _free(chunks)

    def _entry(self) -> EntryLayout:
        entry = self.manifest.entry
        assert entry is not None
        return entry

    def benchmark(
        self, *args: Any, repeat: int = 5, number: int = 5, min_repeat_ms: float = 0, end_to_end: bool = False,
        **kwargs: Any
    ) -> BenchmarkResult:
        """Time calls with these inputs, the conversion of their values included."""
        return measure(lambda: self(*args, **kwargs), repeat, number, min_repeat_ms)


def _free(chunk: int) -> None:
    """Free linked chunks; each begins with the address of the next."""
    library = ctypes.CDLL(None)
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    while chunk:
        following = _word(chunk)
        library.free(chunk)
        chunk = following


def _word(address: int) -> int:
    found: int = ctypes.c_uint64.from_address(address).value
    return found


def _read(entry: EntryLayout, root: int) -> Any:
    """Return the value of a cell. Inner values are read first, without recursion, because lists are deep."""
    done: dict[tuple[int, int], Any] = {}
    stack: list[tuple[int, Layout]] = [(root, entry.result)]
    while stack:
        cell, layout = stack[-1]
        key = (cell, id(layout))
        if key in done:
            stack.pop()
            continue
        if layout[0] == TENSOR:
            done[key] = _tensor(cell, layout)
            continue
        tag, fields = 0, layout[1]
        if layout[0] == DATA:
            tag = ctypes.c_int32.from_address(cell + 8).value
            fields = entry.types[layout[1]][tag][1]
        below = [(_word(cell + _HEAD + 8 * k), f) for k, f in enumerate(fields)]
        missing = [b for b in below if (b[0], id(b[1])) not in done]
        if missing:
            stack += reversed(missing)
        else:
            done[key] = ADT(tag, [done[c, id(f)] for c, f in below])
    return done[root, id(entry.result)]


def _tensor(cell: int, layout: Layout) -> Array:
    """Return a copy of the elements of a tensor."""
    made = np.empty(tuple(layout[2]), DataType(layout[1]).numpy())
    ctypes.memmove(made.ctypes.data, _word(cell + _HEAD), made.nbytes)
    return made


class _Cells:
    """The cells of one input. `word` is an array with the address of the first; all memory lives as long as the object.
    """

    def __init__(self, entry: EntryLayout, name: str, layout: Layout, value: Any) -> None:
        self.entry, self.name = entry, name
        self.known: dict[tuple[int, int], int] = {}
        self.held: list[Any] = []
        self.word = np.array([self._made(value, layout)], np.int64)

    def _made(self, root: Any, whole: Layout) -> int:
        """Return the address of the cell of a value, inner cells first."""
        stack = [(root, whole)]
        while stack:
            value, layout = stack[-1]
            key = (id(value), id(layout))
            if key in self.known:
                stack.pop()
            elif layout[0] == TENSOR:
                self.known[key] = self._tensor(value, layout)
            else:
                tag, given, kinds = self._fields(value, layout)
                below = list(zip(given, kinds, strict=True))
                missing = [(f, k) for f, k in below if (id(f), id(k)) not in self.known]
                if missing:
                    stack += reversed(missing)
                else:
                    self.known[key] = self._cell(tag, [self.known[id(f), id(k)] for f, k in below])
        return self.known[id(root), id(whole)]

    def _fields(self, value: Any, layout: Layout) -> tuple[int, Sequence[Any], Sequence[Layout]]:
        if layout[0] == TUPLE:
            if not isinstance(value, (tuple, list)) or len(value) != len(layout[1]):
                raise self._wrong(value, f"a tuple of {len(layout[1])} values")
            return 0, value, layout[1]
        tag = getattr(value, "tag", None)
        fields = value if isinstance(value, ADT) else getattr(value, "fields", None)
        constructors = self.entry.types[layout[1]]
        if not isinstance(tag, int) or fields is None:
            raise self._wrong(value, f"a value of {layout[1]}: tilewright.runtime.container.ADT(tag, fields)")
        if not 0 <= tag < len(constructors) or len(fields) != len(constructors[tag][1]):
            known = ", ".join(f"{k} ({n}, {len(f)} fields)" for k, (n, f) in enumerate(constructors))
            raise InputError(
                f"input '{self.name}' has a value with the tag {tag} and {len(fields)} fields, but the tags of "
                f"{layout[1]} are {known}", code="TW0703")
        self.held.append(fields)
        return tag, fields, constructors[tag][1]

    def _wrong(self, value: Any, expected: str) -> InputError:
        return InputError(
            f"input '{self.name}' has a {type(value).__name__} where the program takes {expected}", code="TW0703")

    def _tensor(self, value: Any, layout: Layout) -> int:
        dtype = DataType(layout[1])
        x = readable(TensorInfo(self.name, tuple(layout[2]), dtype), dtype.numpy(), value)
        self.held += [value, x]
        return self._cell(0, [x.ctypes.data])

    def _cell(self, tag: int, words: Sequence[int]) -> int:
        block = aligned_empty((max(_LINE, _HEAD + 8 * len(words)),))
        struct.pack_into(f"<qii{len(words)}Q", block.data, 0, _HELD, tag, 0, *words)
        self.held.append(block)
        address: int = block.ctypes.data
        return address


def flat_inputs(layouts: Sequence[tuple[str, Layout]], given: Sequence[Any]) -> list[Any]:
    """Return the inputs of a program from the arguments of its `main`: the fields of tuples instead of tuples.

    Raises `InputError` for a value that is not a tuple of the right length.
    """
    found: list[Any] = []

    def visit(name: str, layout: Layout, value: Any) -> None:
        if layout[0] != TUPLE:
            found.append(value)
            return
        if not isinstance(value, (tuple, list)) or len(value) != len(layout[1]):
            raise InputError(
                f"'{name}' is a tuple of {len(layout[1])} values, but a {type(value).__name__}"
                f"{f' of {len(value)}' if isinstance(value, (tuple, list)) else ''} is given", code="TW0701")
        for k, (field, v) in enumerate(zip(layout[1], value, strict=True)):
            visit(f"{name}.{k}", field, v)

    for (name, layout), value in zip(layouts, given, strict=True):
        visit(name, layout, value)
    return found


def nested_result(layout: Layout, results: Any, convert: Callable[[Any], NDArray]) -> Any:
    """Return the results of a program in the tuples of `layout`, with `convert` applied to each array."""
    if any(leaf[0] == DATA for leaf in leaves(layout)):
        return _converted(results, convert)
    flat = iter(results if isinstance(results, (tuple, list)) else (results,))

    def built(part: Layout) -> Any:
        return ADT(0, [built(f) for f in part[1]]) if part[0] == TUPLE else convert(next(flat))

    return built(layout)


def _converted(root: Any, convert: Callable[[Any], NDArray]) -> Any:
    done: dict[int, Any] = {}
    stack = [root]
    while stack:
        value = stack[-1]
        if id(value) in done:
            stack.pop()
        elif not isinstance(value, ADT):
            done[id(value)] = convert(as_numpy(value))
        elif missing := [f for f in value if id(f) not in done]:
            stack += reversed(missing)
        else:
            done[id(value)] = ADT(value.tag, [done[id(f)] for f in value])
    return done[id(root)]
