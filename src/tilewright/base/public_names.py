"""The public names of modules, which are those of TVM and ONNX Runtime where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PUBLIC: Final[Mapping[str, str]] = {
    "_ffi": "compat._ffi",
    "arith": "scalar.arith",
    "as_tvm": "compat.as_tvm",
    "auto_scheduler": "search.auto_scheduler",
    "autotvm": "search.autotvm",
    "contrib": "compat.contrib",
    "contrib.accelerator": "backends.accelerators.declared",
    "contrib.debugger": "runtime.debugger",
    "contrib.dnnl": "backends.accelerators.dnnl",
    "contrib.graph_executor": "runtime.graph_executor",
    "contrib.library_calls": "backends.accelerators.library_calls",
    "contrib.npu": "backends.accelerators.npu",
    "contrib.torch_backend": "compiler.torch_backend",
    "error": "compat.error",
    "errors": "base.errors",
    "exec": "compat.exec",
    "expr": "scalar.expr",
    "instrument": "compat.instrument",
    "ir.supply": "relay.supply",
    "logs": "base.logs",
    "meta_schedule": "search.meta_schedule",
    "meta_schedule.testing.relay_workload": "compat.testing.relay_workload",
    "meta_schedule.testing.tlcbench": "compat.testing.tlcbench",
    "micro": "compiler.micro",
    "micro.model_library_format": "compiler.model_library",
    "micro.testing": "compat.testing.micro",
    "nd": "base.nd",
    "onnx_backend": "compat.onnx_backend",
    "onnx_session": "compat.onnx_session",
    "params": "base.params",
    "parser": "compat.parser",
    "registry": "compat.registry",
    "relay.backend.contrib.uma": "backends.accelerators.uma",
    "relay.backend.executor_factory": "compat.executor_factory",
    "relay.backend.vm": "compiler.vm",
    "relay.frontend.common": "relay.frontend.inference",
    "rpc": "runtime.rpc",
    "runtime.ndarray": "base.nd",
    "runtime.object_path": "base.object_path",
    "script": "tir.script",
    "serialization": "relay.serialization",
    "settings": "base.settings",
    "support": "compat.support",
    "target": "compat.target",
    "testing": "compat.testing",
    "transform": "compat.transform",
    "tir.schedule._type_checker": "compat.type_checked",
    "topi.arm_cpu.conv2d_int8": "compat.arm_int8",
    "topi.testing": "compat.testing.topi",
    "tvm": "compat.tvm",
    "utils": "compat.utils",
    "utils.roofline": "compat.roofline",
}
"""Public name -> module, both without `tilewright.`; a submodule is found through the name of its package."""
PACKAGES: Final = frozenset({
    "auto_scheduler.cost_model", "autotvm.measure", "contrib.torch", "relay.data_dep_optimization", "relay.op.memory",
    "relay.op.vm", "runtime.executor", "script.tir", "topi.sparse", "utils",
    *(f"meta_schedule.{n}" for n in (
        "cost_model", "database", "feature_extractor", "measure_callback", "mutator", "postproc", "schedule_rule",
        "search_strategy", "space_generator", "task_scheduler")),
})
"""Packages of TVM that are files here."""
FILES: Final[Mapping[str, str]] = {
    "autotvm.tuner": "droplet_turner index_based_tuner",
    "auto_scheduler.cost_model": "cost_model xgb_model",
    "autotvm.measure": "executor measure measure_methods",
    "ir": "adt base expr op tensor_type type type_relation",
    "meta_schedule": "extracted_task",
    "meta_schedule.builder": "builder local_builder",
    "meta_schedule.cost_model": "cost_model random_model xgb_model",
    "meta_schedule.database":
        "database json_database memory_database ordered_union_database schedule_fn_database union_database",
    "meta_schedule.feature_extractor": "feature_extractor per_store_feature random_feature_extractor",
    "meta_schedule.measure_callback": "add_to_database measure_callback remove_build_artifact update_cost_model",
    "meta_schedule.mutator":
        "mutate_compute_location mutate_parallel mutate_thread_binding mutate_tile_size mutate_unroll mutator",
    "meta_schedule.postproc":
        "disallow_dynamic_loop postproc rewrite_cooperative_fetch rewrite_layout rewrite_parallel_vectorize_unroll "
        "rewrite_reduction_block rewrite_unbound_block",
    "meta_schedule.schedule_rule":
        "add_rfactor apply_custom_rule auto_bind auto_inline cross_thread_reduction multi_level_tiling "
        "parallel_vectorize_unroll random_compute_location schedule_rule",
    "meta_schedule.search_strategy": "evolutionary_search replay_func replay_trace search_strategy",
    "meta_schedule.space_generator": "post_order_apply schedule_fn space_generator space_generator_union",
    "meta_schedule.task_scheduler": "gradient_based round_robin task_scheduler",
    "relay": "base",
    "relay.analysis": "analysis count_layers feature",
    "relay.backend": "executor runtime",
    "relay.collage": "collage",
    "relay.op": "algorithm op reduce tensor transform",
    "relay.op.annotation": "annotation",
    "relay.op.contrib": "register",
    "relay.op.image": "image",
    "relay.op.memory": "memory",
    "relay.op.nn": "nn",
    "relay.op.random": "kernel",
    "relay.op.vision": "multibox nms rcnn yolo",
    "relay.qnn.op": "canonicalizations legalizations op qnn",
    "relay.quantize": "_annotate",
    "relay.transform": "infer_layout_utils transform",
    "runtime": "params",
    "runtime.executor": "aot_executor",
    "target": "tag target",
    "te": "autodiff operation",
    "testing": "utils",
    "tir": "buffer expr function op",
    "tir.analysis": "analysis",
    "tir.schedule": "schedule",
    "tir.transform": "transform",
    "topi": "scan scatter scatter_elements searchsorted signal sort tensor transform unique einsum stft",
    "topi.arm_cpu": "injective pooling",
    "topi.generic": "conv2d default extern injective nn search sort vision",
    "topi.image": "dilation2d grid_sample resize",
    "topi.nn":
        "batch_matmul batch_norm batch_to_space_nd bitserial_conv2d bitserial_dense bnn conv1d conv1d_transpose "
        "conv2d conv2d_transpose conv3d conv3d_transpose correlation deformable_conv2d dense depth_to_space "
        "depthwise_conv2d dilate elemwise fifo_buffer flatten group_norm instance_norm layer_norm "
        "local_response_norm lstm mapping pad qnn softmax space_to_batch_nd space_to_depth upsampling",
    "topi.random": "kernel",
    "topi.vision": "nms rcnn reorg ssd",
    "topi.x86": "conv2d depthwise_conv2d injective nn pooling reduction",
}
"""Public package -> files of TVM whose names it has: `from tvm.relay.op.tensor import exp` finds them in `relay.op`."""
FORMER: Final[Mapping[str, str]] = {
    "contrib.gdb_printers": "driver.gdb_printers",
    "diagnosis": "driver.diagnosis",
    "forks": "base.forks",
    "global_functions": "base.global_functions",
    "intrinsics": "scalar.intrinsics",
    "limits": "base.limits",
    "node": "base.node",
    "plugins": "base.plugins",
    "relay.op.coupling": "relay.op.classic.coupling",
    "relay.op.dictionaries": "relay.op.classic.dictionaries",
    "relay.op.ensembles": "relay.op.classic.ensembles",
    "relay.op.native_texts": "relay.op.classic.native_texts",
    "relay.op.text": "relay.op.classic.text",
    "tuning": "search",
    "types": "base.types",
}
"""Names of earlier versions: they still work, with a `MovedModuleWarning`."""
PUBLIC_OF: Final[Mapping[str, str]] = {
    **{name: name for name in ("driver", "ir", "relay", "runtime", "te", "tir", "topi")},
    **{real: name for name, real in PUBLIC.items()},
}
"""Real name of each public module -> its public name."""


def real_name(name: str) -> str:
    """Return the real name of the module called `name`, both without `tilewright.`; `name` itself if it is not an
    alias."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        known = ".".join(parts[:count])
        if found := PUBLIC.get(known) or FORMER.get(known):
            return ".".join([found, *parts[count:]])
    return name


FILE_OF: Final[Mapping[str, str]] = {
    f"{real_name(package)}.{file}": package for package, files in FILES.items() for file in files.split()
}
"""Real name of a module named like a file of TVM -> the public package that has the names of that file."""
