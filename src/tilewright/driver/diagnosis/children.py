"""Probes in children of a worker process, used when probes end their process: a fork takes milliseconds, a new worker
seconds.

The worker itself only imports. It runs no compiled code, so it has no threads that a child would lack.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tilewright.driver.diagnosis import probes
from tilewright.runtime.wire import Message

_PAUSE: Final = 0.005
CRASHED, SILENT = "crashed", "silent"


def in_child(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Run the probe `message["probe"]` in a child, for at most `message["seconds"]`.

    Returns `{"answer": …}` and its pieces, `{"raised": [kind, text]}`, or how the child ended.
    """
    probes.begin(message)  # plugins run once, here
    folder = Path(message["keep"])
    (folder / "answer.json").unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _answer(message, pieces, folder)
    until = time.monotonic() + message["seconds"]
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {SILENT: True}, []
        time.sleep(_PAUSE)
    if status:
        return {CRASHED: _how(status)}, []
    told = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return told, [(folder / f"piece_{k}").read_bytes() for k in range(told["pieces"])]


def _answer(message: Message, pieces: Sequence[bytes], folder: Path) -> None:
    """Run the task of the child process, and exit."""
    status = 1
    try:
        try:
            answer, out = getattr(probes, message["probe"])(message, pieces)
            told = {"answer": answer, "pieces": len(out)}
        except Exception as error:  # an exception of a probe is an answer, too
            told, out = {"raised": [type(error).__name__, str(error)[-4000:]], "pieces": 0}, []
        for k, piece in enumerate(out):
            (folder / f"piece_{k}").write_bytes(piece)
        (folder / "answer.json").write_text(json.dumps(told), encoding="utf-8")
        status = 0
    finally:
        os._exit(status)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return (
        f"the process was ended by {signal.Signals(-code).name}" if code < 0
        else f"the process ended with status {code}"
    )
