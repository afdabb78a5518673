"""Tensors and arrays in gdb, and commands for compiled models.

Load it inside gdb, which has its own Python: `source <this file>`.

    (gdb) print data                  float32[2, 3] at 0x7f…: [[0, 1, 2], [3, 4, 5]]
    (gdb) tensor data --from 1,0      the elements from there on
    (gdb) remember                    from here on, steps can be taken back: next, next, reverse-next
    (gdb) nodes conv                  the compiled functions with `conv` in their name

The printer formats variables of compiled code (built with `tir.debug_info`) with a type name of the form `tensor
<dtype> <shape>`. It needs nothing but gdb: neither this package nor numpy.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

try:
    import gdb
except ImportError:  # outside gdb nothing can be registered; tests use the functions below
    gdb = None

MOST = 200
"""Number of elements shown if gdb has no limit (`set print elements`); the others are counted."""
_CODES = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b",
    "uint64": "Q", "uint32": "I", "uint16": "H", "uint8": "B", "bool": "?",
}


def decoded(data: bytes, dtype: str) -> list[Any]:
    """Return the numbers in memory. bfloat16 is widened; other types unknown to Python are shown as their bytes."""
    if dtype == "bfloat16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in halves]
    code = _CODES.get(dtype, "B")
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def size_of(dtype: str) -> int:
    """Return the bytes of an element."""
    return 2 if dtype == "bfloat16" else struct.calcsize(_CODES.get(dtype, "B"))


def shown(values: Sequence[Any], shape: Sequence[int]) -> str:
    """Format numbers in nested lists: `[[0, 1, 2], [3, 4, 5]]`; elements missing from `values` are counted."""
    count = 1
    for d in shape:
        count *= d
    text = _rows([f"{v:.6g}" if isinstance(v, float) else str(v) for v in values], list(shape))
    return text + (f" … {count - len(values)} more" if count > len(values) else "")


def _rows(values: list[str], shape: list[int]) -> str:
    if len(shape) <= 1:
        return f"[{', '.join(values)}]" if shape else ", ".join(values)
    inner = 1
    for d in shape[1:]:
        inner *= d
    rows = [values[k : k + inner] for k in range(0, len(values), max(1, inner))]
    return f"[{', '.join(_rows(row, shape[1:]) for row in rows)}]"


def parsed(name: str) -> tuple[str, list[int] | None] | None:
    """Return the dtype and the shape that a type name contains; the shape is None if it is dynamic. None for other
    types."""
    found = re.fullmatch(r"tensor (\w+) ?(.*)", name)
    if found is None:
        return None
    sizes = [s.strip() for s in found[2].split(",") if s.strip()]
    return found[1], [int(s) for s in sizes] if all(s.isdigit() for s in sizes) else None


def _memory(address: int, count: int) -> bytes:
    return bytes(gdb.selected_inferior().read_memory(address, count))


def text_of(address: int, dtype: str, shape: list[int] | None, begin: Sequence[int] = ()) -> str:
    """Return the text of a tensor at an address, from element `begin` on."""
    if shape is None:
        return (
            f"{dtype}[dynamic shape] at {address:#x}: "
            f"{shown(decoded(_memory(address, 16 * size_of(dtype)), dtype), [16])} …"
        )
    count, first = 1, 0
    for d in shape:
        count *= d
    for d, i in zip(shape, begin):  # noqa: B905
        first = first * d + i
    for d in shape[len(begin) :]:
        first *= d
    limit = gdb.parameter("print elements")
    some = count - first if limit is None else min(count - first, limit or MOST)
    values = decoded(_memory(address + first * size_of(dtype), some * size_of(dtype)), dtype)
    head = f"{dtype}[{', '.join(map(str, shape))}] at {address:#x}"
    return f"{head}: {shown(values, shape)}" if not begin else f"{head} from {list(begin)}: {shown(values, [some])}"


if gdb is not None:

    class TensorPrinter:
        """A buffer of compiled code."""

        def __init__(self, value: Any, dtype: str, shape: list[int] | None) -> None:
            self.value, self.dtype, self.shape = value, dtype, shape

        def to_string(self) -> str:
            return text_of(int(self.value), self.dtype, self.shape)

    def find_printer(value: Any) -> Any:
        found = parsed(value.type.name or "") if value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR else None
        return None if found is None else TensorPrinter(value, *found)

    class TensorCommand(gdb.Command):  # type: ignore[misc]
        """tensor NAME [--from I,J,…]: the elements of a buffer, from one of them on."""

        def __init__(self) -> None:
            super().__init__("tensor", gdb.COMMAND_DATA, gdb.COMPLETE_SYMBOL)

        def invoke(self, argument: str, from_tty: bool) -> None:
            name, _, begin = argument.partition("--from")
            value = gdb.parse_and_eval(name.strip())
            found = parsed(value.type.name or "")
            if found is None:
                raise gdb.GdbError(
                    f"'{name.strip()}' is a {value.type}, not a buffer of compiled code; `info locals` and `info args` "
                    "list the buffers")
            print(text_of(int(value), *found, begin=[int(i) for i in begin.split(",") if i.strip()]))

    class NodesCommand(gdb.Command):  # type: ignore[misc]
        """nodes [PATTERN]: the functions of compiled code that is loaded whose name has PATTERN in it: names of the
        nodes of the model where it was compiled with tir.debug_info="model". `break -function NAME` stops in one, also
        before it is loaded."""

        def __init__(self) -> None:
            super().__init__("nodes", gdb.COMMAND_BREAKPOINTS)

        def invoke(self, argument: str, from_tty: bool) -> None:
            places = functions(argument.strip())
            for file, line, name in places:
                print(f"{name}    {file}:{line}")
            if not places:
                print(f"no function of compiled code that is loaded has '{argument}' in its name")

    class RememberCommand(gdb.Command):  # type: ignore[misc]
        """remember: record what this thread does, so that `reverse-next`, `reverse-step` and `reverse-continue` go
        back. The other threads wait meanwhile; gdb cannot record several at once. `record stop` and `set
        scheduler-locking off` end it. gdb 13 records no AVX: compile with -mcpu=x86-64."""

        def __init__(self) -> None:
            super().__init__("remember", gdb.COMMAND_RUNNING)

        def invoke(self, argument: str, from_tty: bool) -> None:
            gdb.execute("set scheduler-locking on")
            gdb.execute("record full")

    def functions(pattern: str) -> list[tuple[str, int, str]]:
        """Return the file, the line and the name of each compiled function whose name contains `pattern`."""
        found, file = [], ""
        for text in gdb.execute(f"info functions -n -q {re.escape(pattern)}", False, True).splitlines():
            if text.startswith("File "):
                file = text[5:].rstrip(":")
            entry = re.match(r"(\d+):\s+(?:static )?void (.*?)\(.*\);$", text)
            if entry is not None and re.search(r"\.(tir\.py|relay|nodes\.txt)$", file):
                found.append((file, int(entry[1]), entry[2]))
        return found

    gdb.pretty_printers.append(find_printer)
    TensorCommand()
    NodesCommand()
    RememberCommand()
