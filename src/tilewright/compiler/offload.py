"""What the accelerators of a target take of a network, before anything else is done with it: `tilewright.compile(model, target="npu, llvm")`.

One accelerator after another, in the order of the target's text, so that the first has the first choice.
"""

from __future__ import annotations

from tilewright.backends.accelerator_targets import Accelerator
from tilewright.backends.target import Target
from tilewright.base.errors import CompileError, TargetError
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.op.contrib import partition_for


def offload(mod: IRModule, target: Target) -> IRModule:
    """`mod` with what the accelerators of `target` take as functions for them.

    What was partitioned for one before is left as it is. Raises `OptionError` for an accelerator that nothing is known of, `TargetError` for options that it has not.
    """
    for accelerator in target.accelerators:
        if not any(isinstance(f, Function) and f.attrs.get("Compiler") == accelerator.name for _, f in mod.items()):
            mod = _partitioned(accelerator, mod)
    return mod


def _partitioned(accelerator: Accelerator, mod: IRModule) -> IRModule:
    options = {k.replace("-", "_"): v for k, v in accelerator.options}
    try:
        made = partition_for(accelerator.name, mod, {}, **options)
    except TypeError as error:
        if not options:
            raise
        raise TargetError(
            f"the accelerator {accelerator.name} does not take the options {', '.join(f'-{k}' for k, _ in accelerator.options)}: {error}", code="TW0902"
        ) from error
    if not isinstance(made, IRModule):
        raise CompileError(
            f"the accelerator {accelerator.name} made a {type(made).__name__} of a network; partition_for(mod, params) returns a module", code="TW0911"
        )
    return made
