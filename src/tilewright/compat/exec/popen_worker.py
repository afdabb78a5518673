"""The process of `tvm.contrib.popen_pool.PopenWorker`: it runs pickled calls that it reads from one pipe, and writes
their results to another.

    python -m tilewright.compat.exec.popen_worker READ_DESCRIPTOR WRITE_DESCRIPTOR
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

__all__ = ["main", "read_message", "write_message"]

_LENGTH: Final = 8


def write_message(stream: BinaryIO, content: bytes) -> None:
    """Write a message: its length in 8 bytes, then its bytes."""
    stream.write(len(content).to_bytes(_LENGTH, "little") + content)
    stream.flush()


def read_message(stream: BinaryIO) -> bytes:
    """Read a message. Raises `EOFError` where the other side has ended."""
    length = int.from_bytes(_exactly(stream, _LENGTH), "little")
    return _exactly(stream, length)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise EOFError("the other side of the pipe has ended")
    return found


def dumps(value: Any) -> bytes:
    """Return a value as bytes; with the package cloudpickle, also functions that no module has."""
    try:
        cloudpickle: Any = importlib.import_module("cloudpickle")
    except ImportError:
        return pickle.dumps(value)
    content: bytes = cloudpickle.dumps(value)
    return content


def main(arguments: Sequence[str]) -> None:
    """Run calls until the other side of the pipe ends."""
    source: BinaryIO = os.fdopen(int(arguments[0]), "rb")
    out: BinaryIO = os.fdopen(int(arguments[1]), "wb")
    while True:
        try:
            content = read_message(source)
        except EOFError:
            return
        try:
            function, args, kwargs = pickle.loads(content)
            answer = dumps((True, function(*args, **kwargs)))
        except Exception as error:
            try:
                answer = dumps((False, error))
            except Exception:
                answer = dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
        write_message(out, answer)


if __name__ == "__main__":
    main(sys.argv[1:])
