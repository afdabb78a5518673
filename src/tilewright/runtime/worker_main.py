"""The main function of a worker process (`runtime/worker.py`): reads calls from one pipe and writes answers to another,
until a third pipe closes."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import resource
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final

from tilewright.runtime.wire import Channel, Message

_LARGEST_FILE: Final = 2 << 30


def main() -> None:
    """Serve calls. Arguments: a folder, and the descriptors for calls, answers, and the parent's lifetime."""
    calls, answers, life = map(int, sys.argv[2:5])
    end_with(life)
    channel = Channel(calls, answers)
    try:
        start, _ = channel.receive()
        sys.path[:] = start["path"]
        limit_resources(start["memory_limit"])
        import_modules(start, ())
        channel.send({"ready": os.getpid()})
        while True:
            serve_one(channel)
    except ConnectionError:
        sys.exit(0)


def import_modules(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Import `message["modules"]` now, so that no call waits for it. A failed import is reported by the call that
    needs the module."""
    for module in message["modules"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    return {}, []


def serve_one(channel: Channel) -> None:
    """Answer one call; an exception of the function is an answer, too."""
    request, pieces = channel.receive()
    module, _, name = request["call"].partition(":")
    try:
        gives, out = getattr(importlib.import_module(module), name)(request["with"], pieces)
        answer = {"gives": gives}
    except Exception as error:
        answer, out = {"raised": type(error).__name__, "text": str(error)[-4000:]}, ()
    channel.send(answer, out)


def end_with(life: int) -> None:
    """Have this process and its children killed when the other end of the pipe `life` closes; nothing is ever written
    to it.

    The kernel sends the signal itself, so code that never releases the interpreter ends, too.
    """
    own, setsig = -os.getpgrp(), getattr(fcntl, "F_SETSIG", 10)
    fcntl.fcntl(life, fcntl.F_SETOWN, own)
    if sys.platform == "linux":
        fcntl.fcntl(life, setsig, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(life, select.POLLIN)
    if poll.poll(0):  # it closed before the signal was requested
        os.killpg(os.getpgrp(), signal.SIGKILL)


def limit_resources(memory: int) -> None:
    """Limit the address space to `memory` bytes, forbid core files, and bound the size of written files.

    When the system runs out of memory, it kills this process first. Exits if the interpreter already exceeds `memory`.
    """
    if (used := _address_space()) >= memory:
        sys.exit(f"its memory limit is {memory >> 20} MiB, and the interpreter alone takes {used >> 20} MiB")
    for kind, limit in (
        (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, _LARGEST_FILE)
    ):
        hard = resource.getrlimit(kind)[1]
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (most, most))
    if sys.platform == "linux":
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write("1000")


def _address_space() -> int:
    """Return the address space of this process in bytes; 0 if it is unknown."""
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
