"""`SessionOptions` and `RunOptions` under ONNX Runtime's names: what has a meaning for compiled code acts, what asks
for something that cannot be had is refused, and what steers parts that only ONNX Runtime has is taken and has no
effect.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from tilewright.base.errors import OptionError


class GraphOptimizationLevel(enum.IntEnum):
    """How much is done to the graph: the `opt_level` of `tilewright.compile` is 0, 1, 2, 3 and 3."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Kernels run one after another, each on all threads, whatever is chosen here."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


_HIGHEST_LEVEL: Final = 3


@dataclass(slots=True)
class SessionOptions:
    """How a model is compiled and run.

    These act: `intra_op_num_threads` (0: all cores), `graph_optimization_level`, `enable_profiling` with
    `profile_file_prefix`, and the overrides of free dimensions. The others are taken and have no effect, since there is
    no arena, no pattern of memory to find, no second pool of threads and no log of their kind in a compiled program;
    answers are always the same for the same inputs. Any other attribute is an `AttributeError`.
    """

    intra_op_num_threads: int = 0
    graph_optimization_level: Any = GraphOptimizationLevel.ORT_ENABLE_ALL
    enable_profiling: bool = False
    profile_file_prefix: str = "tilewright_profile"
    inter_op_num_threads: int = 0
    execution_mode: Any = ExecutionMode.ORT_SEQUENTIAL
    execution_order: Any = None
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    optimized_model_filepath: str = ""
    """Refused when a session is made with it: save what is compiled with `session.model.save` instead."""
    dimensions: dict[str, int] = field(default_factory=dict)
    """Sizes of symbolic dimensions by name."""
    denotations: dict[str, int] = field(default_factory=dict)
    """Sizes of dimensions by what the model says they denote."""
    _entries: dict[str, str] = field(default_factory=dict)

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Fix the symbolic dimension `dim_name` of the inputs, so that the model is compiled at once."""
        self.dimensions[dim_name] = int(dim_value)

    def add_free_dimension_override_by_denotation(self, denotation: str, dim_value: int) -> None:
        """Fix the dimensions that the model marks with `denotation`."""
        self.denotations[denotation] = int(dim_value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Remember an entry; none has an effect here."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added; raises `OptionError` for others."""
        if key not in self._entries:
            raise OptionError(
                f"there is no session configuration entry '{key}'; those added are: "
                f"{', '.join(self._entries) or 'none'}",
                code="TW0214")
        return self._entries[key]

    def add_initializer(self, name: str, ort_value: Any) -> NoReturn:
        """Refused: weights are the model's."""
        raise OptionError(
            f"the weight '{name}' cannot be given from outside; store it in the model, or make it an input",
            code="TW0214")

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Refused: nothing from a library runs here."""
        raise OptionError(f"'{path}' cannot be loaded: custom operators must be written in Python, "
                          "with @tilewright.relay.frontend.onnx.register_converter", code="TW0214")


@dataclass(slots=True)
class RunOptions:
    """Of one run; taken and without effect."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Taken; none has an effect here."""


def compile_options(options: Any) -> dict[str, Any]:
    """Translate session options, of this package or of ONNX Runtime, to arguments of `tilewright.compile`. Raises
    `OptionError`."""
    if options is None:
        return {}
    if getattr(options, "optimized_model_filepath", ""):
        raise OptionError(
            "optimized_model_filepath is not supported: there is no optimized ONNX file; write the compiled program "
            "with session.model.save('model.so')",
            code="TW0214")
    threads = int(getattr(options, "intra_op_num_threads", 0))
    if threads < 0:
        raise OptionError(
            f"intra_op_num_threads is {threads}; it is a number of threads, or 0 for all cores", code="TW0214")
    level = int(getattr(options, "graph_optimization_level", GraphOptimizationLevel.ORT_ENABLE_ALL))
    return {"threads": threads or None, "opt_level": max(0, min(level, _HIGHEST_LEVEL))}


def dimension_overrides(options: Any) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Sizes of symbolic dimensions by name, and by denotation."""
    return getattr(options, "dimensions", {}), getattr(options, "denotations", {})
