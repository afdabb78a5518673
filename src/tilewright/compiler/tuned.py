"""Lowers kernels under the decisions of the current advisor, or of the analytical model by default."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any, Final

from tilewright.backends.decisions import Decisions
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError
from tilewright.compiler import kernel, tuning_advisor
from tilewright.compiler.kernel import Kernel
from tilewright.relay.expr import Function

log: Final = logging.getLogger(__name__)


def lower(function: Function, constants: Sequence[bool], target: Target, name: str, **options: Any) -> Kernel:
    """Lower a fused function as `kernel.lower` does, under the decisions of the current advisor, which are logged."""
    advisor = tuning_advisor.current()
    options["target"] = target
    if advisor is not None:
        options["seconds"] = functools.partial(advisor.seconds, target)
    if advisor is not None and not options.get("symbols"):
        options["found"] = advisor.arrangement(target)
    given = None if advisor is None or options.get("symbols") else advisor.decisions(function, constants, target)
    if given is None:
        if advisor is not None:
            log.info("%s: no record, the model decides", name)
        return kernel.lower(function, constants, target.machine, name, **options)
    decisions = Decisions(given)
    try:
        made = kernel.lower(function, constants, target.machine, name, decided=decisions, **options)
    except CompileError as error:
        log.warning("%s: the record %s cannot be applied (%s), the model decides", name, dict(given), error)
        return kernel.lower(function, constants, target.machine, name, **options)
    left = sorted({*decisions.refused, *decisions.unused})
    log.info("%s: tuned, %s%s", name, decisions.taken, f"; not applied here: {', '.join(left)}" if left else "")
    return made
