"""The kinds of instructions of a trace, and their arguments, under TVM's names.

An instruction is a call of a schedule's method. Its *inputs* are references, sampled numbers and values that may be
sampled; its *attributes* are constants. Each row of `_TABLE` has the name of a kind, the method, and the arguments in
the order of their text. The marks of an argument:

    @loop        an input            @*factors    inputs given as one list      @*      inputs given one by one
    @[blocks     one input, a list   buffer#      two attributes: the index of a buffer, and 1 if it is written
    name=value   an argument with a default, which a method without this argument has implicitly
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import ScheduleError
from tilewright.base.settings import nearest

_TABLE: Final = """
SampleCategorical sample_categorical candidates probs
SamplePerfectTile sample_perfect_tile @loop n max_innermost_factor
SamplePartitionedTile sample_partitioned_tile @loop n partition_pos innerpart_factor
SampleComputeLocation sample_compute_location @block
GetBlock get_block name func_name
GetLoops get_loops @block
GetChildBlocks get_child_blocks @block_or_loop
GetProducers get_producers @block
GetConsumers get_consumers @block
GetOutputBlocks get_output_blocks @scope_block
Merge merge @*
Fuse fuse @* preserve_unit_iters=true
Split split @loop @*factors preserve_unit_iters=true
LoopPartition loop_partition @loop @*factors preserve_unit_iters=true
Reorder reorder @*
ReorderBlockIterVar reorder_block_iter_var @block @[new_order
AddUnitLoop add_unit_loop @block_or_loop
Parallel parallel @loop
Vectorize vectorize @loop
Bind bind @loop thread_axis
Unroll unroll @loop
CacheRead cache_read @block read_buffer_index storage_scope @[consumer_blocks=[]
CacheWrite cache_write @block write_buffer_index storage_scope @[consumer_blocks=[]
ReindexCacheRead reindex_cache_read @block read_buffer_index storage_scope index_map
ReindexCacheWrite reindex_cache_write @block write_buffer_index storage_scope index_map
CacheInplace cache_inplace @block read_buffer_index storage_scope
ReadAt read_at @loop @block read_buffer_index storage_scope
WriteAt write_at @loop @block write_buffer_index storage_scope
CacheIndex cache_index @block storage_scope cse_thresh=0
ReIndex reindex @block buffer#
ComputeAt compute_at @block @loop preserve_unit_loops=false index=-1
ReverseComputeAt reverse_compute_at @block @loop preserve_unit_loops=false index=-1
ComputeInline compute_inline @block
ReverseComputeInline reverse_compute_inline @block
DecomposeReduction decompose_reduction @block @loop
RFactor rfactor @loop factor_axis
StorageAlign storage_align @block buffer_index axis factor offset
SetScope set_scope @block buffer_index storage_scope
UnsafeSetDType unsafe_set_dtype @block buffer_index dtype
Blockize blockize @target preserve_unit_iters=true
Tensorize tensorize @block_or_loop tensor_intrin preserve_unit_iters=true
Annotate annotate @block_or_loop ann_key @ann_val
Unannotate unannotate @block_or_loop ann_key
TransformLayout transform_layout @block buffer# index_map pad_value=null assume_injective_transform=false
TransformBlockLayout transform_block_layout @block index_map
SetAxisSeparator set_axis_separator @block buffer# axis_separators
DecomposePadding decompose_padding @block @loop
PadEinsum pad_einsum @block padding
RollingBuffer rolling_buffer @block write_buffer_index=0
EnterPostproc enter_postproc
"""
_LISTS: Final = frozenset({
    "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers", "GetOutputBlocks", "Split", "LoopPartition",
    "SamplePerfectTile", "SamplePartitionedTile", "CacheIndex", "CacheInplace"})
"""Kinds whose result is a list."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a kind. `form` is "one", "list", "each" or "nested" for inputs, "one" or "buffer" for attributes.
    """

    name: str
    is_input: bool
    form: str = "one"
    default: Any = None
    has_default: bool = False

    @staticmethod
    def of(text: str) -> Argument:
        """Return the argument of a word of the table."""
        word, _, default = text.partition("=")
        name = word.lstrip("@*[").rstrip("#")
        form = ("buffer" if word.endswith("#") else "each" if word == "@*" else "list" if word.startswith("@*")
                else "nested" if word.startswith("@[") else "one")
        return Argument(name, word.startswith("@"), form, json.loads(default) if default else None, bool(default))


@dataclass(frozen=True, slots=True, eq=False)
class InstructionKind:
    """A kind of instruction; there is one object of each."""

    name: str
    method: str
    arguments: tuple[Argument, ...]

    @property
    def is_pure(self) -> bool:
        """Whether the instruction leaves the program as it is."""
        return self.name.startswith(("Sample", "Get"))

    @property
    def is_sampled(self) -> bool:
        """Whether the instruction has a decision."""
        return self.name.startswith("Sample")

    @property
    def gives_list(self) -> bool:
        """Whether the result is a list."""
        return self.name in _LISTS

    @staticmethod
    def get(name: str) -> InstructionKind:
        """Return the kind of that name. Raises `ScheduleError` for an unknown one."""
        if name not in KINDS:
            raise ScheduleError(f"there is no instruction '{name}'{nearest(name, KINDS)}")
        return KINDS[name]

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    def __repr__(self) -> str:
        return f"InstructionKind({self.name})"

    def packed(self, given: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """Return the inputs and the attributes for arguments by name; each of form "each" has the name ""."""
        inputs: list[Any] = []
        attrs: list[Any] = []
        for a in self.arguments:
            value = given.get(a.name, a.default)
            if a.form in ("list", "each"):
                inputs.extend(value)
            elif a.form == "buffer":
                attrs.extend((value[1], int(value[0] == "write")) if isinstance(value, tuple) else (value, 1))
            else:
                (inputs if a.is_input else attrs).append(list(value) if a.form == "nested" else value)
        return inputs, attrs

    def unpacked(self, inputs: list[Any], attrs: list[Any]) -> dict[str, Any]:
        """Return the arguments by name, in the order of their text. Raises `ScheduleError` for missing ones."""
        found: dict[str, Any] = {}
        left, constants = list(inputs), list(attrs)
        try:
            for a in self.arguments:
                if a.form in ("list", "each"):
                    found[a.name], left = left, []
                elif a.form == "buffer":
                    index, written = constants.pop(0), constants.pop(0)
                    found[a.name] = index if isinstance(index, str) else ("write" if written else "read", index)
                elif a.has_default and not (left if a.is_input else constants):
                    found[a.name] = a.default
                else:
                    found[a.name] = (left if a.is_input else constants).pop(0)
        except IndexError:
            raise ScheduleError(
                f"instruction '{self.name}' has {len(inputs)} inputs and {len(attrs)} attributes, which are too few",
               ) from None
        return found


def _kinds() -> dict[str, InstructionKind]:
    rows = [line.split() for line in _TABLE.strip().splitlines()]
    return {name: InstructionKind(name, method, tuple(map(Argument.of, words))) for name, method, *words in rows}


KINDS: Final = _kinds()
"""All kinds by name."""
BY_METHOD: Final = {kind.method: kind for kind in KINDS.values()}
