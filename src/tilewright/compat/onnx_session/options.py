"""`SessionOptions` and `RunOptions` under ONNX Runtime's names.

Options that are meaningful for compiled code take effect. Options that request unsupported features raise an error.
Options of components that only ONNX Runtime has are accepted and ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from tilewright.base.errors import OptionError


class GraphOptimizationLevel(enum.IntEnum):
    """Levels of graph optimization; they set `opt_level` of `tilewright.compile` to 0, 1, 2, 3 and 3."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Order of execution, accepted and ignored: kernels run one after another, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


_HIGHEST_LEVEL: Final = 3


@dataclass(slots=True)
class SessionOptions:
    """Options of compilation and execution.

    These take effect: `intra_op_num_threads` (0: all cores), `graph_optimization_level`, `enable_profiling` with
    `profile_file_prefix`, and the overrides of free dimensions. The others are accepted and ignored: a compiled program
    has no arena, memory pattern, second thread pool or log of that kind, and its results are deterministic. Any other
    attribute raises `AttributeError`.
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
    """Refused when a session is created; save the compiled model with `session.model.save` instead."""
    dimensions: dict[str, int] = field(default_factory=dict)
    """Sizes of symbolic dimensions by name."""
    denotations: dict[str, int] = field(default_factory=dict)
    """Sizes of dimensions by their denotation in the model."""
    _entries: dict[str, str] = field(default_factory=dict)

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Fix the symbolic dimension `dim_name` of the inputs, so that the model is compiled at once."""
        self.dimensions[dim_name] = int(dim_value)

    def add_free_dimension_override_by_denotation(self, denotation: str, dim_value: int) -> None:
        """Fix the dimensions that have the denotation `denotation` in the model."""
        self.denotations[denotation] = int(dim_value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store an entry; entries have no effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Return a stored entry; raises `OptionError` for others."""
        if key not in self._entries:
            raise OptionError(
                f"there is no session configuration entry '{key}'; those added are: "
                f"{', '.join(self._entries) or 'none'}",
                code="TW0214")
        return self._entries[key]

    def add_initializer(self, name: str, ort_value: Any) -> NoReturn:
        """Raise `OptionError`: weights come from the model only."""
        raise OptionError(
            f"the weight '{name}' cannot be given from outside; store it in the model, or make it an input",
            code="TW0214")

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Raise `OptionError`: libraries of custom operators are not supported."""
        raise OptionError(f"'{path}' cannot be loaded: custom operators must be written in Python, "
                          "with @tilewright.relay.frontend.onnx.register_converter", code="TW0214")


@dataclass(slots=True)
class RunOptions:
    """Options of one run, accepted and ignored."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Accept an entry, which has no effect."""


def compile_options(options: Any) -> dict[str, Any]:
    """Translate session options, of this package or of ONNX Runtime, to arguments of `tilewright.compile`. Raises
    `OptionError` for unsupported options."""
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
    """Return the sizes of symbolic dimensions by name, and by denotation."""
    return getattr(options, "dimensions", {}), getattr(options, "denotations", {})
