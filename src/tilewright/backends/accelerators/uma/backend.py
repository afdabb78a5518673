"""The base class of an accelerator under TVM's UMA interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.backends.accelerators.uma.api.codegen import UMACodegen
from tilewright.backends.accelerators.uma.api.lower import Strategy, UMALower
from tilewright.backends.accelerators.uma.api.partitioner import UMAPartitioner
from tilewright.backends.accelerators.uma.api.utils import PassPhase, register_target
from tilewright.backends.offload_kinds import is_offload_kind
from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass

__all__ = ["UMABackend"]


class UMABackend(ABC):
    """An accelerator: a subclass sets `target_name`, and registers patterns, passes and code in its constructor."""

    def __init__(self, merge_compiler_regions: bool = True) -> None:
        self._target_attrs: dict[str, Any] = {}
        self._relay_to_relay = UMAPartitioner(self.target_name, merge_compiler_regions)
        self._relay_to_tir = UMALower(self.target_name)
        self._tir_to_runtime = UMACodegen(self.target_name)

    @property
    @abstractmethod
    def target_name(self) -> str:
        """The name of the target."""

    def _register_target_attr(self, name: str, default: str | int | bool | None = "") -> None:
        """Add an attribute of the target, with its default."""
        self._target_attrs[name] = default

    def _register_relay_pass(self, phase: PassPhase, relay_pass: Pass) -> None:
        """Add a pass over graphs, before or after partitioning."""
        self._relay_to_relay._relay_passes.append((phase, relay_pass))

    def _register_pattern(self, name: str, pattern: Any, predicate: Callable[[Any], Any] | None = None) -> None:
        """Add a pattern that the target computes; `predicate` decides about a match."""
        self._relay_to_relay.add_pattern(name, pattern, predicate)

    def _register_operator_strategy(self, op: str, strategy: Strategy, plevel: int | None = 11) -> None:
        """Compute an operator by a strategy `(attrs, inputs, out_type, target) -> OpStrategy`; the highest level
        counts."""
        self._relay_to_tir._operator_strategies.append((op, strategy, 11 if plevel is None else plevel))

    def _register_tir_pass(self, phase: PassPhase, tir_pass: Pass) -> None:
        """Add a pass over loop programs."""
        self._relay_to_tir._tir_passes.append((phase, tir_pass))

    def _register_codegen(self, fmt: str = "c", **kwargs: Any) -> None:
        """Set the code generator; see `UMACodegen`."""
        self._tir_to_runtime._register_codegen(fmt, **kwargs)

    def register(self) -> None:
        """Register the target, once. Raises `OptionError`, also a `ValueError`, for an attribute without a default."""
        for name, value in self._target_attrs.items():
            if value is None:
                raise OptionError(
                    f"Target attribute None is not supported. Give the attribute '{name}' a default", code="TW0215")
        if not is_offload_kind(self.target_name):
            register_target(self.target_name, self._target_attrs)
            self._relay_to_relay.register()
            self._relay_to_tir.register()
            self._tir_to_runtime.register()

    def partition(self, mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
        """Return a module with the parts of the target as functions."""
        return self._relay_to_relay.partition(mod, params)
