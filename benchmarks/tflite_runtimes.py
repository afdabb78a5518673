"""What other runtimes of TFLite models answer: LiteRT by its reference kernels or by those that it chooses itself, and
`tflite-micro`; in the Python that has them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LITERT: Final = """
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
content, given, made, count = open(sys.argv[1], "rb").read(), np.load(sys.argv[2]), {}, int(sys.argv[4])
for k in range(count):  # anew for each, as variables keep what a call leaves in them
    net = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.KERNELS)
    for n, detail in enumerate(net.get_input_details()):
        net.resize_tensor_input(detail["index"], given[f"{k}_{n}"].shape)
    net.allocate_tensors()
    for n, detail in enumerate(net.get_input_details()):
        net.set_tensor(detail["index"], given[f"{k}_{n}"])
    net.invoke()
    made.update({f"{k}_{n}": net.get_tensor(d["index"]) for n, d in enumerate(net.get_output_details())})
np.savez(sys.argv[3], **made)
"""
REFERENCE: Final = _LITERT.replace("KERNELS", "BUILTIN_REF")
"""LiteRT by its reference kernels."""
DEFAULT: Final = _LITERT.replace("KERNELS", "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
"""LiteRT by its own optimized kernels, without those of XNNPACK."""
MICRO: Final = """
import sys, numpy as np
from tflite_micro.python.tflite_micro import runtime
given, made, count = np.load(sys.argv[2]), {}, int(sys.argv[4])
net = runtime.Interpreter.from_file(sys.argv[1])
inputs, outputs = (len({name.partition("_")[2] for name in given.files}), int(sys.argv[5]))
for k in range(count):
    for n in range(inputs):
        net.set_input(given[f"{k}_{n}"], n)
    net.invoke()
    made.update({f"{k}_{n}": net.get_output(n) for n in range(outputs)})
np.savez(sys.argv[3], **made)
"""


class RefusedError(Exception):
    """A runtime does not take the file; its last words."""


def answers(script: str, python: str, path: Path, inputs: Sequence[Sequence[Array]], outputs: int) -> list[list[Array]]:
    """What a runtime, one of the scripts above, in another Python answers to each of the inputs. Raises
    `RefusedError`."""
    with tempfile.TemporaryDirectory() as scratch:
        given, made = Path(scratch, "inputs.npz"), Path(scratch, "outputs.npz")
        named: dict[str, Any] = {f"{k}_{n}": x for k, several in enumerate(inputs) for n, x in enumerate(several)}
        np.savez(given, **named)
        command = [python, "-c", script, str(path), str(given), str(made), str(len(inputs)), str(outputs)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RefusedError((ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1][:160])
        with np.load(made) as found:
            return [[found[f"{k}_{n}"] for n in range(outputs)] for k in range(len(inputs))]
