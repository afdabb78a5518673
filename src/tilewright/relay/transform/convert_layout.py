"""Choose one layout for the whole graph: channels last, or the layouts requested for some operators.

    nn.conv2d(%x, w)
      -> transpose(nn.conv2d(transpose(%x, axes=[0, 2, 3, 1]), w', data_layout="NHWC", …), axes=[0, 3, 1, 2])

    nn.dense(transpose(%x, axes=[1, 0]), w) -> transpose(nn.matmul(w, %x), axes=[1, 0])

Transposes and reshapes of a permuted value are free if they do not move memory. Otherwise the fewest bytes are moved,
and an image is stored channels last again: a channel shuffle stays within each pixel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Function
from tilewright.relay.op.registry import get
from tilewright.relay.transform.canonicalize import expanded_bias
from tilewright.relay.transform.chosen_layouts import desired, with_layouts
from tilewright.relay.transform.layout_sweep import Sweep
from tilewright.relay.visitor import consumers, post_order, rewrite, with_operands


@dataclass(frozen=True)
class ConvertLayout(FunctionPass):
    """Store images channels last, or in `desired_layouts`. Needs known types. Inputs and results of the program keep
    their layouts.

    `desired_layouts` maps operators to the layouts of their data and kernel, or "default": `{"nn.conv2d": ["NHWC",
    "default"]}`; operators between adapt where possible. `LayoutConfig` excludes single layers. As in TVM,
    `nn.bias_add` becomes an addition; with `keep_bias` it gets another axis. Raises `OptionError` for an operator that
    is unknown or has no layout.
    """

    desired_layouts: Mapping[str, Sequence[str]] | None = None
    keep_bias: bool = False
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name, wanted in (self.desired_layouts or {}).items():
            get(name)
            if isinstance(wanted, str) or not wanted:
                raise OptionError(f"the desired layouts of {name} must be a list of two layouts, "
                                  f"for data and kernel, not {wanted!r}", code="TW0410")

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if self.desired_layouts is not None:
            plain = function if self.keep_bias else rewrite(function, expanded_bias)
            assert isinstance(plain, Function)
            return with_layouts(plain, desired(self.desired_layouts))
        if "Compiler" in function.attrs or not context.get("relay.ConvertLayout.enabled"):
            return function
        order = post_order(function.body, inside=False)
        sweep = Sweep(consumers(order))
        for e in order:
            sweep.visit(e)
        body = sweep.logical(function.body)
        return function if body is function.body else with_operands(function, [body])
