"""How passes run: what `compile` was asked for, as a value that is kept, compared and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.ir.instrument import PassInstrument


@dataclass(frozen=True)
class Options:
    """The arguments of a `PassContext`."""

    opt_level: int
    config: Mapping[str, Any]
    disabled_pass: tuple[str, ...]

    def context(self, instruments: Sequence[PassInstrument] = ()) -> Any:
        """The context, watched by `instruments`; raises `OptionError` for a pass that does not exist."""
        from tilewright.ir.transform import PassContext, named_pass

        for name in self.disabled_pass:
            named_pass(name)
        return PassContext(self.opt_level, disabled_pass=self.disabled_pass, instruments=instruments, config=self.config)

    def said(self) -> list[Any]:
        """The options as they are stored."""
        return [self.opt_level, dict(self.config), list(self.disabled_pass)]

    @staticmethod
    def of(said: list[Any]) -> Options:
        """What `said` gave."""
        level, config, disabled = said
        return Options(int(level), dict(config), tuple(map(str, disabled)))

    def key(self) -> str:
        """The same for equal options."""
        return json.dumps(self.said(), sort_keys=True, default=str)
