"""Functions that the dialects provide to modules, expressions and passes.

`ir` is below every dialect, so it declares these hooks, and Relay and `serialization` provide the functions when they
are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.base.plugins import Hook

_RELAY: Final = "tilewright.relay.dialect"

as_function: Final[Hook[[Any], Any]] = Hook(_RELAY)
"""A function of the free variables of a bare expression; any other value is returned as it is."""
global_var: Final[Hook[[str, Any], Any]] = Hook(_RELAY)
"""A new `GlobalVar` for a function of a module, with the function's type where it is known."""
astext: Final[Hook[[Any, bool, Callable[[Any], str] | None, bool], str]] = Hook(_RELAY)
"""The text of a module: `astext(module, show_meta_data, annotate, show_spans)`."""
parse: Final[Hook[[str, str, Any], Any]] = Hook(_RELAY)
"""The module of a text: `parse(text, source_name, init_module)`."""
line_of: Final[Hook[[Any, Any], str | None]] = Hook("tilewright.relay.text_lines")
"""The line of a program's text that computes a value: `line_of(program, value)`."""
checked_rewrite: Final[Hook[[Any, Any, str, bool, int], Any]] = Hook("tilewright.relay.check_rewrites")
"""The module after a pass, compared with the module before it: `checked_rewrite(before, after, pass_name, skip,
max_work)`."""
unknown_operator: Final[Hook[[str], str | None]] = Hook(_RELAY)
"""A hint at the nearest operator where neither Relay nor TVM has an operator of that name; None where one of them has
it."""
pickled: Final[Hook[[Any], tuple[Any, ...]]] = Hook("tilewright.relay.serialization")
"""The value of `__reduce__` of a module or expression, which is pickled as JSON."""
