"""Search tasks: a workload on a target, the processor's parameters, and the options of tuning."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from tilewright.backends.machine import Machine
from tilewright.backends.targets.described import is_described
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, TargetError
from tilewright.base.forks import lazy_attribute
from tilewright.base.settings import nearest
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.sketch_rules import Shape, cpu_shape, gpu_shape
from tilewright.search.auto_scheduler.workload_registry import (
    make_workload_key,
    register_workload_tensors,
    workload_key_to_tensors,
)
from tilewright.search.task import TuningTask
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.measure_record import RecordedState
    from tilewright.search.auto_scheduler.search_policy import SketchPolicy


@dataclass(frozen=True, slots=True, init=False)
class HardwareParams:
    """The processor as records describe it; parameters of GPUs are 0.

    With `target`, parameters that are not given are those of the target.
    """

    num_cores: int = 1
    vector_unit_bytes: int = 16
    cache_line_bytes: int = 64
    max_shared_memory_per_block: int = 0
    max_local_memory_per_block: int = 0
    max_threads_per_block: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0

    def __init__(self, *values: int | None, target: Target | str | None = None, **named: int | None) -> None:
        names = [f.name for f in fields(self)]
        unknown = next((n for n in named if n not in names), None)
        if unknown is not None or len(values) > len(names):
            raise OptionError(
                f"HardwareParams takes {', '.join(names)} and target, not {unknown or values!r}", code="TW1103")
        given = {**dict(zip(names, values, strict=False)), **named}
        known = dict.fromkeys(names, 0) | {"num_cores": 1, "vector_unit_bytes": 16, "cache_line_bytes": 64}
        if target is not None:
            known = dict(zip(names, astuple(HardwareParams.of(Target(target))), strict=True))
        for name in names:
            value = given.get(name)
            object.__setattr__(self, name, known[name] if value is None else value)

    @staticmethod
    def of(target: Target) -> HardwareParams:
        """Return the parameters of a target; of a GPU, those of its attributes, or of a common GPU."""
        if is_described(target.kind):
            warp = int(target.attrs.get("thread_warp_size", 0))
            limits = [int(target.attrs.get(name, known)) for name, known in _GPU_LIMITS] if warp else [0, 0, 0]
            return HardwareParams(1, 16, 64, *limits, warp // 4, warp)
        machine = target.machine
        return HardwareParams(machine.cores, machine.vector_bits // 8, 64)

    get_default_hardware_params = of

    def as_json(self) -> list[int]:
        """Return the parameters as records hold them."""
        return list(astuple(self))

    @staticmethod
    def from_json(data: Any) -> HardwareParams:
        """Return the parameters of a record. Raises `OptionError` unless they are eight numbers."""
        if not isinstance(data, list) or len(data) != 8 or not all(isinstance(n, int) for n in data):
            raise OptionError(
                f"hardware parameters of a record are eight numbers, not {data!r}", code="TW1101")
        return HardwareParams(*data)


_GPU_LIMITS: Final = (
    ("max_shared_memory_per_block", 48 << 10), ("max_local_memory_per_block", 0x7FFFFFFF),
    ("max_threads_per_block", 1024))
"""Attributes of targets that limit blocks of threads, with common values."""
TASK_INPUT_BUFFER_TABLE: Final[dict[str, dict[str, Any]]] = {}
"""Arrays that stand for inputs of programs when these are measured, by key of the workload and name of the tensor."""


def register_task_input_buffer(
    workload_key: str, input_name: str, input_data: Any, overwrite: bool = False, save_to_file: bool = False
) -> Any:
    """Use an array for the input of that name when programs of a workload are measured. Returns the array.

    Raises `OptionError` if there is another array of the name, unless `overwrite` is set; files are not written.
    """
    if save_to_file:
        raise OptionError(
            "save_to_file: arrays of task inputs are not kept in files; register them in each program", code="TW1108")
    known = TASK_INPUT_BUFFER_TABLE.setdefault(workload_key, {})
    if input_name in known and not overwrite:
        return known[input_name]
    known[input_name] = input_data
    return input_data


def get_task_input_buffer(workload_key: str, input_name: str) -> Any:
    """Return the registered array of an input. Raises `OptionError` if there is none."""
    known = TASK_INPUT_BUFFER_TABLE.get(workload_key, {})
    if input_name not in known:
        raise OptionError(
            f"there is no array of the input '{input_name}' of workload {workload_key}"
            f"{nearest(input_name, known)}; give it as task_inputs of the SearchTask", code="TW1108")
    return known[input_name]


class LayoutRewriteOption:
    """Whether layouts of inputs may change; only constants of networks are packed, by `relay.build`."""

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2


class SearchTask(TuningTask):
    """A computation and the target that it is tuned for.

        SearchTask(func=matmul, args=(512, 512, 512), target="llvm")
        SearchTask(workload_key=…, target=…)        SearchTask(compute_dag=…, target=…)

    For a task of a network, `own` is the loop program that the compiler makes without a search.
    """

    def __init__(
        self, func: str | Callable[..., Any] | None = None, args: Sequence[Any] | None = None,
        compute_dag: ComputeDAG | None = None, workload_key: str | None = None, target: Any = None,
        target_host: Any = None, hardware_params: HardwareParams | None = None,
        layout_rewrite_option: int | None = None,
        task_inputs: Mapping[str, Any] | Sequence[str] | None = None, task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False, desc: str = "", own: Any = None,
    ) -> None:
        if workload_key is None:
            if func is not None:
                workload_key = make_workload_key(func, args or ())
            elif compute_dag is not None:
                workload_key = compute_dag.hash_key()
            else:
                raise OptionError(
                    "a SearchTask takes func= and args=, a workload_key= or a compute_dag=", code="TW1108")
        if compute_dag is not None:
            register_workload_tensors(workload_key, compute_dag.tensors)
            self.__dict__["compute_dag"] = compute_dag
        self.workload_key, self.desc, self.own = workload_key, desc, own
        super().__init__(target if target is not None else Target.current(allow_none=True) or "llvm")
        if target_host is not None:
            check_host(self.target, target_host)
        self._hardware = hardware_params
        self.layout_rewrite_option = layout_rewrite_option or LayoutRewriteOption.NO_REWRITE
        if task_inputs is not None and not (
            isinstance(task_inputs, (Mapping, list, tuple)) and all(isinstance(n, str) for n in task_inputs)
        ):
            raise OptionError(
                f"task_inputs of a SearchTask are names, or arrays by name, not {task_inputs!r}", code="TW1108")
        self.task_input_names = list(task_inputs or ())
        for name, data in task_inputs.items() if isinstance(task_inputs, Mapping) else ():
            register_task_input_buffer(workload_key, name, data, task_inputs_overwrite, task_inputs_save_to_file)

    @lazy_attribute
    def compute_dag(self) -> ComputeDAG:
        """The computations of the workload. Raises `OptionError` when it is not registered."""
        return ComputeDAG(workload_key_to_tensors(self.workload_key))

    @property
    def key(self) -> str:
        return self.workload_key

    @property
    def title(self) -> str:
        return self.desc or self.workload_key

    @property
    def flop(self) -> float:
        return self.compute_dag.flop_ct

    @property
    def machine(self) -> Machine:
        """The processor as schedules see it; `hardware_params` override its cores and vectors."""
        m, h = super().machine, self._hardware
        if h is None:
            return m
        return replace(m, vector_bits=h.vector_unit_bytes * 8, cores=h.num_cores, pipe_bits=0)

    @property
    def shape(self) -> Shape:
        """The tiles of the target, for the rules of sketches."""
        h = self.hardware_params
        return gpu_shape(h.max_threads_per_block, h.warp_size) if h.warp_size else cpu_shape(h.num_cores)

    @property
    def hardware_params(self) -> HardwareParams:
        return self._hardware or HardwareParams.of(self.target)

    def tune(
        self, tuning_options: TuningOptions, search_policy: SketchPolicy | str | None = None,
        adaptive_training: bool = False,
    ) -> None:
        """Search and measure with `tuning_options`. Raises `OptionError` for an unknown policy."""
        from tilewright.search.auto_scheduler.search_policy import SketchPolicy
        from tilewright.search.auto_scheduler.task_scheduler import MODELS

        if isinstance(search_policy, str):
            if search_policy not in MODELS:
                raise OptionError(
                    f"there is no search policy '{search_policy}'{nearest(search_policy, MODELS)}", code="TW1103")
            search_policy = SketchPolicy(self, MODELS[search_policy]())
        (search_policy or SketchPolicy(self)).search(tuning_options)

    def apply_best(
        self, log_file: str, include_compatible: bool = False, layout_rewrite_option: int | None = None,
    ) -> tuple[Schedule, list[Tensor]]:
        """Return the schedule and the arguments of the best record. Raises `OptionError` when there is none."""
        return self.compute_dag.apply_steps_from_state(self._best(log_file, include_compatible), layout_rewrite_option)

    def print_best(self, log_file: str, print_mode: str = "schedule") -> str:
        """Return the best record as Python calls on a schedule `s`."""
        if print_mode != "schedule":
            raise OptionError(
                f"print_mode '{print_mode}' is for GPUs; the best schedule is printed with print_mode='schedule'",
                code="TW1103")
        return self.compute_dag.print_python_code_from_state(self._best(log_file, False))

    def _best(self, log_file: str, include_compatible: bool) -> RecordedState:
        from tilewright.search.auto_scheduler.measure_record import load_best_record

        found, _ = load_best_record(log_file, self.workload_key, self.target, include_compatible)
        if found is None:
            raise OptionError(
                f"'{log_file}' has no successful record of workload {self.workload_key} for target '{self.target}'; "
                "tune it first", code="TW1102")
        state: RecordedState = found.state
        return state

    @property
    def record_fields(self) -> str:
        """Fields of its records (`Record.ansor`): hardware parameters, layout rewriting and names of inputs."""
        return json.dumps([self.hardware_params.as_json(), self.layout_rewrite_option, self.task_input_names])

    def __repr__(self) -> str:
        return f"SearchTask({self.workload_key}, {self.target_text})"


def check_host(target: Target, target_host: Any) -> None:
    """Raise `TargetError` if `target_host` is not the target, because its code runs on the target itself."""
    if target_host is not None and str(Target(target_host)) != str(target):
        raise TargetError(
            f"target_host is '{target_host}', but code for '{target}' runs on that target itself; omit target_host",
            code="TW0505")


def create_task(
    func: Any, args: Any, target: Any, target_host: Any = None, hardware_params: HardwareParams | None = None,
) -> SearchTask:
    """Return a `SearchTask` of a registered workload."""
    return SearchTask(func=func, args=args, target=target, target_host=target_host, hardware_params=hardware_params)


@dataclass(slots=True)
class TuningOptions:
    """The budget of a search, its builder and runner, and its callbacks.

    `num_measure_trials` is the number of candidates to measure (0: the best by the model alone). `early_stopping` ends
    the search after this many trials in a row without a better one. `builder` and `runner` are "local" or objects of
    `auto_scheduler.measure`. Each of `measure_callbacks` is called as `callback(policy, inputs, results)`.
    """

    num_measure_trials: int = 0
    early_stopping: int | None = None
    num_measures_per_round: int = 64
    verbose: int = 1
    builder: Any = "local"
    runner: Any = "local"
    measure_callbacks: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        for name in ("builder", "runner"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "local":
                raise ValueError(
                    f"Invalid {name}: '{value}'; use 'local' or an object of auto_scheduler, such as LocalBuilder(), "
                    "LocalRunner()")
        if self.num_measure_trials < 0 or self.num_measures_per_round < 1:
            raise OptionError(
                f"num_measure_trials is {self.num_measure_trials} and num_measures_per_round "
                f"{self.num_measures_per_round}; they must be at least 0 and 1", code="TW1104")
