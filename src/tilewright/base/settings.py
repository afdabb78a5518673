"""Every switch of the compiler: its name, its type, its default and what it does.

A switch is set through `PassContext(config={name: value})` and read through `PassContext.current().get(name)`. A name that
is not declared here does not exist: setting it is an `OptionError` that names the nearest one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import OptionError


@dataclass(frozen=True, slots=True)
class Setting:
    """One switch."""

    name: str
    type: type
    default: Any
    doc: str
    choices: tuple[Any, ...] = ()
    """The values there are, when they are few."""

    def described(self) -> dict[str, Any]:
        """The switch as a row of a table."""
        kind = " or ".join(sorted({type(c).__name__ for c in self.choices})) if self.type is object else self.type.__name__
        row = {"type": kind, "default": self.default, "doc": self.doc}
        return {**row, "choices": self.choices} if self.choices else row


def _table(*settings: Setting) -> dict[str, Setting]:
    return {s.name: s for s in settings}


SETTINGS: Final = _table(
    Setting("relay.FuseOps.max_depth", int, 64, "most calls in one fused function"),
    Setting("relay.FuseOps.link_params", bool, False, "whether FuseOps on its own puts constants inside of the functions that it makes"),
    Setting("relay.FoldConstant.max_bytes", int, 256 << 20, "largest constant that folding may make"),
    Setting("relay.FoldGate.enabled", bool, True, "scale the weights of a 1x1 convolution instead of the larger image that it reads"),
    Setting("relay.ConvertLayout.enabled", bool, True, "store images channels last throughout the graph"),
    Setting(
        "relay.ToMixedPrecision.type", str, "", "compute products, and what stands between them, in this type; inputs and outputs keep theirs",
        ("", "float16", "bfloat16"),
    ),
    Setting("relay.ToMixedPrecision.acc_type", str, "float32", "what the products of mixed precision are summed in", ("float32", "float16", "bfloat16")),
    Setting("relay.ToMixedPrecision.keep_orig_output_dtype", bool, False, "whether the pass on its own gives results their first type back"),
    Setting(
        "relay.qnn.numerics", str, "", "whose roundings quantized operators have; empty: those of the runtime that the model is from",
        ("", "tflite", "onnx", "torch", "torch-x86", "torch-onednn", "torch-fbgemm", "torch-qnnpack", "fast"),
    ),
    Setting("relay.library_calls.stand_in", bool, False, "kernels of ours, named after them, in the place of calls of BNNS"),
    Setting("relay.SplitBatch.images", int, 0, "how many images of a batch to compute at once; 0: as many as suit the caches, -1: all"),
    Setting(
        "relay.check_rewrites", object, False,
        "after each pass run the module before and after on random inputs: a difference is an error (True), or the pass is left out with a warning (skip)",
        (False, True, "skip"),
    ),
    Setting("relay.check_rewrites.max_work", int, 1 << 31, "multiplications and elements of the largest function that check_rewrites runs"),
    Setting("relay.backend.max_arena", int, 0, "the most bytes that values between kernels may take; a program that needs more is not compiled. 0: any number"),
    Setting(
        "relay.backend.max_memory", int, 0,
        "the most bytes that a program may take for the values that it makes: its workspace and its outputs; one that needs more is not compiled. "
        "0: a quarter of the memory of this machine, or of the process where the system limits it",
    ),
    Setting("relay.backend.use_auto_scheduler", bool, False, "whether kernels have the schedules of an auto_scheduler.ApplyHistoryBest around the build"),
    Setting(
        "tir.instrument_bound_checkers", bool, False, "check every read and write against the extents of its buffer before it is made; a wrong one is a MemoryFault"
    ),
    Setting("tir.instrument_uninitialized_reads", bool, False, "check that every element of an inner buffer has been written when it is read"),
    Setting("tir.instrument_overlapping_arguments", bool, False, "check that arrays that a function writes share no memory with its others, instead of copying them"),
    Setting(
        "tir.debug_info", str, "",
        "debug information of compiled code: lines and variables of its loops (tir), of Relay's text (relay), or the names of the model's nodes (model); "
        "empty: functions of tvm.build have lines of their loops, models have nothing; off: nothing",
        ("", "off", "tir", "relay", "model"),
    ),
    Setting(
        "relay.backend.winograd", str, "auto",
        "3x3 convolutions by Winograd's algorithm: where that is faster, at opt_level 3 (auto); never (off); wherever possible, with tiles of 2x2 or 4x4",
        ("auto", "off", "2x2", "4x4"),
    ),
)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the closest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def setting(name: str) -> Setting:
    """The switch of that name; raises `OptionError` naming the nearest."""
    found = SETTINGS.get(name)
    if found is None:
        hint = nearest(name, SETTINGS) or f"; the options are: {', '.join(sorted(SETTINGS))}"
        raise OptionError(f"there is no configuration option '{name}'{hint}", code="TW0207")
    return found


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with every name known and every value of its type; raises `OptionError`."""
    for name, value in config.items():
        declared = setting(name)
        wanted = declared.type
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise OptionError(f"configuration option '{name}' is {wanted.__name__}, and was given {value!r} ({type(value).__name__})", code="TW0207")
        if declared.choices and value not in declared.choices:
            raise OptionError(f"configuration option '{name}' is one of {', '.join(map(str, declared.choices))}, and was given {value!r}", code="TW0207")
    return dict(config)
