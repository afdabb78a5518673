"""TVM's `tvm.tir.tensor_intrin`: instructions for `Schedule.tensorize`, a module for each family of processors.

    from tvm.tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN
    sch.tensorize(loop, VNNI_DOT_16x4_INTRIN)

Importing a module registers its instructions.
"""
