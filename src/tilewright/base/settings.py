"""Every configuration option of the compiler: name, type, default and documentation.

An option is set through `PassContext(config={name: value})` and read through `PassContext.current().get(name)`. Setting
an undeclared name raises `OptionError` with the nearest declared name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import OptionError


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration option."""

    name: str
    type: type
    default: Any
    doc: str
    choices: tuple[Any, ...] = ()
    """The allowed values; empty if the type alone restricts them."""

    def described(self) -> dict[str, Any]:
        """Return the option as a row of a table."""
        kind = " or ".join(
            sorted({type(c).__name__ for c in self.choices})
        ) if self.type is object else self.type.__name__
        row = {"type": kind, "default": self.default, "doc": self.doc}
        return {**row, "choices": self.choices} if self.choices else row


def _table(*settings: Setting) -> dict[str, Setting]:
    return {s.name: s for s in settings}


SETTINGS: Final = _table(
    Setting("relay.FuseOps.max_depth", int, 64, "maximum number of calls in one fused function"),
    Setting(
        "relay.FuseOps.link_params", bool, False,
        "whether a standalone FuseOps pass puts constants inside the fused functions"),
    Setting("relay.FoldConstant.max_bytes", int, 256 << 20, "size limit of a folded constant, in bytes"),
    Setting(
        "relay.FoldGate.enabled", bool, True,
        "scale the weights of a 1x1 convolution instead of the larger image that it reads"),
    Setting("relay.ConvertLayout.enabled", bool, True, "store images channels last throughout the graph"),
    Setting(
        "relay.frontend.fill_span", bool, True,
        "whether calls of an imported model have the names of its nodes as spans"),
    Setting(
        "relay.ToMixedPrecision.type", str, "",
        "compute products, and operators between them, in this type; inputs and outputs keep their types",
        ("", "float16", "bfloat16")),
    Setting(
        "relay.ToMixedPrecision.acc_type", str, "float32", "accumulation type of products in mixed precision",
        ("float32", "float16", "bfloat16")),
    Setting(
        "relay.ToMixedPrecision.keep_orig_output_dtype", bool, False,
        "whether the standalone pass converts results back to their original type"),
    Setting(
        "relay.qnn.numerics", str, "",
        "rounding behaviour of quantized operators; empty: that of the model's own runtime",
        ("", "tflite", "onnx", "torch", "torch-x86", "torch-onednn", "torch-fbgemm", "torch-qnnpack", "fast")),
    Setting(
        "relay.fallback_device_type", int, 0,
        "number of the kind of device for values that a program leaves open (tvm.target.make_compilation_config); 0: "
        "that of the only target, else the CPU"),
    Setting(
        "relay.collage.tvm_max_depth", int, 8,
        "CollagePartition with a configuration of targets: largest number of calls in a kernel of the processor"),
    Setting(
        "relay.collage.byoc_max_depth", int, 8,
        "CollagePartition with a configuration of targets: largest number of neighbouring parts of another target "
        "whose cost is estimated as that of one part"),
    Setting(
        "relay.library_calls.stand_in", bool, False,
        "replace calls of BNNS by Tilewright's own kernels, named after the calls"),
    Setting(
        "relay.SplitBatch.images", int, 0,
        "number of images of a batch that are computed at once; 0: chosen by the cache sizes, -1: all"),
    Setting(
        "relay.check_rewrites", object, False,
        "run the module before and after each pass on random inputs; a difference raises an error (True), or the pass "
        "is skipped with a warning (skip)",
        (False, True, "skip")),
    Setting(
        "relay.check_rewrites.max_work", int, 1 << 31,
        "multiplications and elements of the largest function that check_rewrites runs"),
    Setting(
        "relay.backend.max_arena", int, 0,
        "limit of the memory for values between kernels, in bytes; a program that needs more is refused. 0: no limit"),
    Setting(
        "relay.backend.max_memory", int, 0,
        "limit of the memory for the workspace and the outputs of a program, in bytes; a program that needs more is "
        "refused. 0: a quarter of the memory of this machine, or of the limit of the process"),
    Setting(
        "relay.backend.use_auto_scheduler", bool, False,
        "use the schedules of the auto_scheduler.ApplyHistoryBest around the build"),
    Setting(
        "relay.backend.use_meta_schedule", bool, False,
        "use the schedules of the meta_schedule database around the build"),
    Setting(
        "tir.instrument_bound_checkers", bool, False,
        "check every read and write against the extents of its buffer; a wrong access raises a MemoryFault"),
    Setting(
        "tir.instrument_uninitialized_reads", bool, False,
        "check that every element of an inner buffer was written before it is read"),
    Setting(
        "tir.instrument_overlapping_arguments", bool, False,
        "check that output arrays share no memory with other arguments, instead of copying them"),
    Setting(
        "tir.debug_info", str, "",
        "debug information of compiled code: its loops (tir), its Relay text (relay), or the names of the model's "
        "nodes (model); off: none; empty: loops for functions of tvm.build, none for models",
        ("", "off", "tir", "relay", "model")),
    Setting(
        "tir.add_lower_pass", list, [],
        "pairs (phase, pass) that tvm.lower and tvm.build run on loop programs: phases 0 and 1 before loops are split "
        "at conditions, 2 and 3 after"),
    Setting(
        "tir.disable_vectorize", bool, False, "make the vectorized loops of tvm.lower and tvm.build serial ones"),
    Setting(
        "tir.UnrollLoop", dict, {},
        "which serial loops tvm.lower and tvm.build unroll: auto_max_step, auto_max_depth, auto_max_extent"),
    Setting(
        "tir.Simplify", dict, {},
        "fields of the public pass Simplify: transitively_prove_inequalities adds known comparisons, "
        "apply_constraints_to_boolean_branches rewrites each operand of a condition under the other one, "
        "convert_boolean_to_and_of_ors writes conditions as conjunctions, and propagate_knowns_to_prove_conditional "
        "and propagate_knowns_to_simplify_expressions use known values of memory"),
    Setting(
        "tir.RemoveNoOp", dict, {},
        "fields of the public pass RemoveNoOp: use_dataflow_analysis also removes stores of known or unused values"),
    Setting(
        "tir.ReduceBranchingThroughOvercompute", dict, {},
        "fields of the public pass of that name: use_dataflow_analysis follows the values of memory"),
    Setting(
        "tir.HoistExpression", dict, {},
        "fields of the public pass HoistExpression: hoisted_conditionals and hoisted_let_bindings, the values of "
        "tir.transform.HoistedConditionals and HoistedLetBindings"),
    Setting(
        "tir.HoistIfThenElse", dict, {},
        "fields of the public pass HoistIfThenElse: support_block_scope_hosting also moves conditions on threads"),
    Setting(
        "tir.LoopPartition", dict, {},
        "fields of the public pass LoopPartition, without effect: loops of constant extents are always partitioned"),
    Setting(
        "tir.instrument_lwp", bool, False,
        "without effect: the calls of the pass InstrumentProfileIntrinsics have no meaning on a CPU"),
    Setting(
        "tir.lwp_disable_func_prof", bool, False, "leave the whole function out of InstrumentProfileIntrinsics"),
    Setting(
        "tir.lwp_min_height", int, 1,
        "smallest number of loops inside a loop that InstrumentProfileIntrinsics measures"),
    Setting(
        "tir.lwp_max_depth", int, 0,
        "number of levels of loops that InstrumentProfileIntrinsics measures without tir.instr_siblings"),
    Setting(
        "tir.instr_siblings", bool, True, "InstrumentProfileIntrinsics measures the loops that are beside others"),
    Setting(
        "tir.reset_start_id", bool, False,
        "without effect: the numbers of InstrumentProfileIntrinsics begin with 0 in each function"),
    Setting(
        "tir.noalias", bool, True, "arguments of functions share no memory; arrays that overlap are copied", (True,)),
    Setting(
        "tir.disable_storage_rewrite", bool, True,
        "without effect: memory of loop programs is shared only by registers and the stack"),
    Setting(
        "tir.disable_cse_tir", bool, True,
        "without effect: common expressions of loop programs are left to the code generator"),
    Setting(
        "tir.usmp.enable", bool, True,
        "without effect: the memory of a program is always planned as one workspace"),
    Setting(
        "tir.usmp.algorithm", str, "",
        "algorithm of tir.transform.UnifiedStaticMemoryPlanner (greedy_by_size, greedy_by_conflicts, hill_climb); "
        "without effect on compiled programs, whose workspace is planned by one algorithm"),
    Setting(
        "tir.usmp.custom_algorithm", str, "",
        "registered function 'tir.usmp.algo.NAME' that UnifiedStaticMemoryPlanner calls in place of its algorithm"),
    Setting(
        "tir.usmp.use_workspace_io", bool, False,
        "UnifiedStaticMemoryPlanner places inputs and outputs in pools, too; without effect on compiled programs"),
    Setting(
        "relay.ext.cmsisnn.options", dict, {},
        "processor of CMSIS-NN (mcpu, mattr, debug_last_error); the calls are the same for each"),
    Setting(
        "relay.ext.ethos-n.options", dict, {},
        "options of the driver of Ethos-N (variant, tops, ple_ratio, sram_size, …), which compiles the calls"),
    Setting(
        "relay.ext.ethos-u.options", dict, {},
        "options of Ethos-U: accelerator_config, for functions without a configuration of their own"),
    Setting(
        "relay.backend.winograd", str, "auto",
        "use Winograd's algorithm for 3x3 convolutions: where it is faster, at opt_level 3 (auto); never (off); in all "
        "possible cases, with tiles of 2x2 or 4x4",
        ("auto", "off", "2x2", "4x4")))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known name, or an empty text."""
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def setting(name: str) -> Setting:
    """Return the option of that name; raises `OptionError` with the nearest name."""
    found = SETTINGS.get(name)
    if found is None:
        hint = nearest(name, SETTINGS) or f"; the options are: {', '.join(sorted(SETTINGS))}"
        raise OptionError(f"there is no configuration option '{name}'{hint}", code="TW0207")
    return found


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` after checking its names and types; raises `OptionError`."""
    for name, value in config.items():
        declared = setting(name)
        wanted = declared.type
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise OptionError(
                f"configuration option '{name}' takes {wanted.__name__}, not {value!r} ({type(value).__name__})",
                code="TW0207")
        if declared.choices and value not in declared.choices:
            raise OptionError(
                f"configuration option '{name}' takes one of {', '.join(map(str, declared.choices))}, not "
                f"{value!r}", code="TW0207")
    return dict(config)
