"""TVM's graph tuner: chooses, for each convolution of a network, a record whose layout suits its neighbours.

    tuner = DPTuner(mod["main"], {"data": (1, 3, 224, 224)}, "records.log", [relay.op.get("nn.conv2d")], "llvm")
    tuner.benchmark_layout_transform(min_exec_num=2000)
    tuner.run()
    tuner.write_opt_sch2record_file("graph.log")
    with autotvm.apply_graph_best("graph.log"):
        lib = relay.build(mod, "llvm", params=params)

A record of TVM's template `conv2d_NCHWc` takes images of one layout, `NCHW8c`, and gives another, `NCHW16c`; between
two records there may be a transformation, which takes time. Records of this compiler's kernels have one plain layout,
so that the fastest record of each kernel is the best choice. """

from tilewright.search.autotvm.graph_tuner.base_graph_tuner import BaseGraphTuner
from tilewright.search.autotvm.graph_tuner.dynamic_programming_tuner import DPTuner
from tilewright.search.autotvm.graph_tuner.pbqp_tuner import PBQPTuner

__all__ = ["BaseGraphTuner", "DPTuner", "PBQPTuner"]
