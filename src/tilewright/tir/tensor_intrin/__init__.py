"""Dot products of processors as tensor intrinsics, registered under TVM's names: `tvm.tir.tensor_intrin`.

    from tilewright.tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN
    sch.tensorize(loop, VNNI_DOT_16x4_INTRIN)

Each module registers its intrinsics when it is imported; `TensorIntrin.get` returns them. A description is a loop
nest, so a program that fits it can be tensorized for any target. An implementation runs on every target too: the back
end chooses the instructions of the target's processor.
"""

from tilewright.tir.tensor_intrin import arm_cpu, dot_product_common, hexagon, rocm, x86

__all__ = ["arm_cpu", "dot_product_common", "hexagon", "rocm", "x86"]
