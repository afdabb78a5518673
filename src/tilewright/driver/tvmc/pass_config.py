"""TVM's `tvmc.pass_config`: the options of a `PassContext` from the texts of `--pass-config`.

    parse_configs(["tir.UnrollLoop.auto_max_step=8", "tir.add_lower_pass=1,tir.transform.UnrollLoop"])
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.driver import options

_LOWER_PASS: Final = "tir.add_lower_pass"


def parse_configs(input_configs: Sequence[str] | None) -> dict[str, Any]:
    """Return options by name, each of its declared type. `tir.add_lower_pass=PHASE,PASS,…` may be given several times;
    its value lists all pairs. Raises `OptionError` for an unknown option or an unsuitable value."""
    found: dict[str, Any] = {}
    for text in input_configs or ():
        name, _, value = text.partition("=")
        if name == _LOWER_PASS:
            found.setdefault(name, []).extend(_lower_passes(value))
        else:
            found.update(options.pass_config([text]))
    return found


def _lower_passes(text: str) -> list[tuple[int, Any]]:
    """Read `1,tir.transform.UnrollLoop,2,mine.my_pass` as pairs of a phase and a pass."""
    words = [word.strip() for word in text.split(",")]
    if len(words) % 2 or not all(phase.isdecimal() for phase in words[::2]):
        raise OptionError(
            f"--pass-config: '{_LOWER_PASS}={text}' is not a list of pairs; write "
            f"{_LOWER_PASS}=1,tir.transform.UnrollLoop", code="TW0202")
    return [(int(phase), _lower_pass(name)) for phase, name in zip(words[::2], words[1::2], strict=True)]


def _lower_pass(name: str) -> Any:
    """Return the pass that `tir.transform.X`, or a function of another module by its full name, makes."""
    place, _, function = name.rpartition(".")
    if place in ("tir.transform", "tvm.tir.transform"):
        place = "tilewright.tir.transform"
    elif place == "tvm" or place.startswith("tvm."):
        place = f"tilewright{place.removeprefix('tvm')}"
    module = importlib.import_module(place) if place else None
    made = getattr(module, function, None)
    if made is None:
        raise OptionError(f"--pass-config: there is no pass '{name}' for {_LOWER_PASS}", code="TW0202")
    return made()
