"""Functions that the dialects provide to modules, expressions and passes.

`ir` is below every dialect, so it declares these hooks. Relay and `serialization` provide the functions when they are
imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.base.plugins import Hook

_RELAY: Final = "tilewright.relay.dialect"

as_function: Final[Hook[[Any], Any]] = Hook(_RELAY)
"""Returns a function of the free variables of a bare expression; other values unchanged."""
global_var: Final[Hook[[str, Any], Any]] = Hook(_RELAY)
"""Returns a new `GlobalVar` for a function of a module, with the function's type if it is known."""
astext: Final[Hook[[Any, bool, Callable[[Any], str] | None, bool], str]] = Hook(_RELAY)
"""Returns the text of a module: `astext(module, show_meta_data, annotate, show_spans)`."""
parse: Final[Hook[[str, str, Any], Any]] = Hook(_RELAY)
"""Parses the text of a module: `parse(text, source_name, init_module)`."""
line_of: Final[Hook[[Any, Any], str | None]] = Hook("tilewright.relay.text_lines")
"""Returns the line of a program's text that computes a value: `line_of(program, value)`."""
checked_rewrite: Final[Hook[[Any, Any, str, bool, int], Any]] = Hook("tilewright.relay.check_rewrites")
"""Compares the module after a pass with the one before it and returns it: `checked_rewrite(before, after, pass_name,
skip, max_work)`."""
unknown_operator: Final[Hook[[str], str | None]] = Hook(_RELAY)
"""Returns a hint at the nearest operator if neither Relay nor TVM has an operator of that name, else None."""
pickled: Final[Hook[[Any], tuple[Any, ...]]] = Hook("tilewright.relay.serialization")
"""Returns the value of `__reduce__` of a module or expression, which is pickled as JSON."""
target: Final[Hook[[Any, Any], Any]] = Hook("tilewright.backends.targets.target")
"""Returns the target that a text or a dictionary describes, with a host or None: `target(text, host)`."""
