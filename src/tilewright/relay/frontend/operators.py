"""Relay operators as functions of arguments and attributes: `op.add(x, y)`, `op.nn.conv2d(x, w, groups=2)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.relay.expr import Call
from tilewright.relay.op import registry


class Operators:
    """The operators whose names begin with `prefix`, each looked up at its first use."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Call]:
        build = registry.public_function(self._prefix + name, __name__)
        self.__dict__[name] = build
        return build


class AllOperators(Operators):
    """All operators; attributes such as `nn` and `linalg` give the families."""

    dyn: Final = Operators("dyn.")
    nn: Final = Operators("nn.")
    image: Final = Operators("image.")
    qnn: Final = Operators("qnn.")
    random: Final = Operators("random.")
    linalg: Final = Operators("linalg.")
    special: Final = Operators("special.")
    vision: Final = Operators("vision.")


op: Final = AllOperators("")
