"""TVM's `tvm.transform`: the pass runner. The passes over graphs are in `tilewright.relay.transform`."""

from tilewright.ir.transform import (
    ApplyPassToFunction,
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    function_pass,
    module_pass,
)

__all__ = [
    "ApplyPassToFunction", "FunctionPass", "ModulePass", "Pass", "PassContext", "PassInfo", "PrintIR", "Sequential",
    "function_pass", "module_pass"
]
