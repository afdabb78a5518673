"""`tilewright tune MODEL`: finds faster kernels for a model by measuring, and keeps those that make it faster.

The record file has every trial, so that another run of the command continues. For each task it has a record marked as
selected: the configuration that was proven to be faster, or the compiler's own choice. `compile(…, records=)` reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer

from tilewright.base.errors import InternalError, OptionError, TargetError
from tilewright.driver import options
from tilewright.driver.application import Target, Verbose, examples
from tilewright.driver.measuring import MeasuringOptions

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target as Processor
    from tilewright.ir.module import IRModule
    from tilewright.search.autotvm.network import NetworkTuning, TaskState
    from tilewright.search.autotvm.selection import Selection

_FOR_PROOF: Final = 0.2
"""Fraction of the time for proving the results."""
_MIN_SAVED: Final = 0.002
"""Smallest saved fraction of the network's time for which a kernel is changed."""
_ANY_NOISE: Final = 1e9
"""Accepted spread of costs, effectively unlimited, because costs are compared in pairs."""
_SHOWN: Final = 12
_TOLERANCE: Final = 1e-3
"""Largest difference between outputs of the tuned and the untuned model, relative to the largest output."""
_COLUMNS: Final = ("task", "trials", "best (us)", "saved", "of the time", "to gain")

EXAMPLES: Final = examples(
    "tilewright tune model.onnx --minutes 10 -o records.json",
    'tilewright tune model.onnx --input-shapes "x:[1,3,224,224]" --threads 4 --tuner ga',
    "tilewright tune model.onnx --cluster tcp://scheduler:8786 --worker-tag board",
    'tilewright tune model.onnx --ssh pi@192.168.1.17 --target "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"',
    "tilewright tune model.onnx --replay trials.json -o records.json")


def tune_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Output file: all trials, and the selected records.")
    ] = Path("records.json"),
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="Total time.")] = 10.0,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Maximum number of configurations to measure in this call.")
    ] = None,
    tuner: Annotated[
        str, typer.Option("--tuner", help="Search strategy: auto, xgb_knob, ga, random, gridsearch, droplet …")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Number of threads of the model. Default: all cores.")
    ] = None,
    target: Target = "llvm",
    input_shapes: Annotated[str, typer.Option("--input-shapes", help='Sizes of inputs: "x:[1,3,224,224]".')] = "",
    tuning_records: Annotated[Path | None, typer.Option(
        "--tuning-records", exists=True, dir_okay=False, help="Trials of an earlier call, used as a start.")] = None,
    cluster: Annotated[str, typer.Option(
        "--cluster", metavar="tcp://HOST:PORT", help="Build and measure on the workers of this Dask scheduler.")] = "",
    worker_tag: Annotated[str, typer.Option(
        "--worker-tag", metavar="NAME",
        help='With --cluster: measure on workers started with --resources "NAME=1".')] = "",
    tracker: Annotated[str, typer.Option(
        "--tracker", metavar="HOST:PORT", help="Measure on devices of this tracker.")] = "",
    rpc_key: Annotated[
        str, typer.Option("--rpc-key", metavar="NAME", help="With --tracker: the key of the devices.")
    ] = "",
    ssh: Annotated[str, typer.Option(
        "--ssh", metavar="USER@HOST",
        help="Measure on this board, which needs no Python; ssh must work without a password.")] = "",
    ssh_config: Annotated[Path | None, typer.Option(
        "--ssh-config", exists=True, dir_okay=False, help="With --ssh: a configuration file for ssh -F.")] = None,
    replay: Annotated[Path | None, typer.Option(
        "--replay", exists=True, dir_okay=False,
        help="Measure nothing: use these records, and predict other kernels.")] = None,
    verbose: Verbose = 0,
) -> None:
    """Tune MODEL: measure its kernels and keep the fastest. Ctrl-C keeps the results so far; the same command
    continues."""
    from tilewright.search.autotvm.tuner import tuner_named

    tuner_named(tuner)  # report an unknown name before slow steps
    place = MeasuringOptions(cluster, worker_tag, tracker, rpc_key, ssh, ssh_config)
    shapes = options.input_shapes(input_shapes) or None
    if replay is not None:
        from tilewright.driver.replay import tune_by_replay

        if place.is_elsewhere:
            raise OptionError(
                "--replay measures nothing, so it cannot be combined with --cluster, --tracker or --ssh; give one of "
                "them",
                code="TW0204")
        tune_by_replay(network(model, shapes), output, replay, target)
        return
    chosen = measurable(target, place)
    place.reach()
    session = _Session(model, output, minutes * 60, threads, chosen, shapes, place)
    session.begin(tuner, tuning_records)
    interrupted = session.search(trials)
    session.prove(interrupted)


def measurable(wanted: str | Mapping[str, Any] | Processor, place: MeasuringOptions = MeasuringOptions()) -> Processor:
    """Return the target. Raises `TargetError` if its code does not run at the place, or for a target with accelerators.
    """
    from tilewright.backends.targets.target import Target as Processor

    target, here = Processor(wanted), Processor("llvm")
    if target.accelerators:
        raise TargetError(
            f"only kernels of the processor are tuned, but '{wanted}' has accelerators; give only the processor",
            code="TW1114")
    if not place.is_elsewhere and (target.family != here.family or not target.features <= here.features):
        raise TargetError(
            f"code for '{wanted}' does not run on this machine, so it cannot be measured here; measure elsewhere "
            "(--cluster, --tracker, --ssh), or replay records (--replay)", code="TW1114")
    return target


def network(model: Path, shapes: Mapping[str, tuple[Any, ...]] | None) -> IRModule:
    """Return the model as Relay. Raises `OptionError` for an input of dynamic size, because kernels are measured at
    known sizes."""
    from tilewright.compiler.formats import format_of

    form, given = format_of(model), shapes or {}
    for name, dims, _ in form.survey(model, given)[0]:
        shape = given.get(name, dims)
        if not all(isinstance(size, int) for size in shape):
            raise OptionError(
                f"{model.name}: input '{name}' has the dynamic shape [{', '.join(map(str, shape))}], but kernels are "
                f"measured at known sizes; give them with --input-shapes \"{name}:[…]\"", code="TW0113")
    return form.read(model, given)[0]


class _Session:
    """One run of the command."""

    def __init__(
        self, model: Path, output: Path, seconds: float, threads: int | None, target: Processor,
        shapes: dict[str, tuple[Any, ...]] | None, place: MeasuringOptions,
    ) -> None:
        self.model, self.output, self.seconds, self.threads = model, output, seconds, threads
        self.target, self.shapes, self.place = target, shapes, place
        self.start = time.perf_counter()
        self.tuning: NetworkTuning

    def begin(self, tuner: str, earlier: Path | None) -> None:
        """Extract the tasks, and read their records."""
        from tilewright.search.autotvm.measure import measure_option
        from tilewright.search.autotvm.network import NetworkTuning
        from tilewright.search.autotvm.task.relay_integration import tasks_of
        from tilewright.search.records import Records

        if earlier is not None and not self.output.exists():
            self.output.write_bytes(earlier.read_bytes())
        tasks = tasks_of(network(self.model, self.shapes), None, self.target)
        runner = self.place.runner(
            number=2, repeat=3, min_repeat_ms=2, cooldown_interval=0, threads=self.threads, noise=0.3)
        option = measure_option(self.place.builder(), runner)
        self.tuning = NetworkTuning(tasks, option, Records(self.output), tuner)
        known = self.tuning.trials
        typer.echo(
            f"{len(tasks)} tasks in {time.perf_counter() - self.start:.1f} "
            f"s{f', {known} trials known' if known else ''}")

    @property
    def left(self) -> float:
        """Seconds until the command should end."""
        return max(0.0, self.seconds - (time.perf_counter() - self.start))

    def search(self, trials: int | None) -> bool:
        """Measure until the time for proof begins; return whether an interrupt ended it."""
        from rich.console import Console
        from rich.live import Live

        begin, seconds = self.tuning.trials, max(0.0, self.left - _FOR_PROOF * self.seconds)
        console = Console(stderr=True)
        with Live(
            self._table(seconds), console=console, refresh_per_second=2, transient=not console.is_terminal
        ) as live:
            end = time.perf_counter() + seconds

            def show(_: TaskState) -> None:
                live.update(self._table(max(0.0, end - time.perf_counter())))

            try:
                self.tuning.run(seconds, trials, show)
            except KeyboardInterrupt:
                console.print(
                    "interrupted: the results so far are verified and kept; press Ctrl-C again to end at once")
                return True
            finally:
                failed = sum(s.failed for s in self.tuning.states)
                typer.echo(f"{self.tuning.trials - begin} trials, {failed} of all failed")
        return False

    def _table(self, seconds: float) -> Any:
        from rich.table import Table

        t = self.tuning
        gain = 1 - t.time / t.time_before if t.time_before else 0.0
        table = Table(
            title=f"{self.model.name}: {t.trials} trials, kernels {1e3 * t.time:.3f} ms ({100 * gain:.0f} % saved so "
            f"far), {seconds:.0f} s left", title_justify="left")
        for name in _COLUMNS:
            table.add_column(name, justify="left" if name == "task" else "right", no_wrap=True)
        ranked = sorted(t.states, key=lambda s: -t.share(s))
        for s in ranked[:_SHOWN]:
            measured = s.best < float("inf")
            saved = f"{100 * (1 - s.best / s.default):.0f} %" if measured and s.default < float("inf") else ""
            table.add_row(
                f"{s.task.title[:56]}{f' x{s.calls}' if s.calls > 1 else ''}", str(s.trials),
                f"{1e6 * s.best:.1f}" if measured else "", saved, f"{100 * t.share(s):.1f} %" if measured else "",
                "done" if s.is_done else f"{100 * t.share(s) * s.gain:.1f} %")
        rest = ranked[_SHOWN:]
        if rest:
            share = f"{100 * sum(map(t.share, rest)):.1f} %"
            table.add_row(f"… and {len(rest)} more", str(sum(s.trials for s in rest)), "", "", share, "")
        return table

    def prove(self, interrupted: bool) -> None:
        """Compare the best of each task, and then the model, with the compiler's own choices; record the selected ones.
        """
        from tilewright.search.autotvm.measure import measure_option
        from tilewright.search.autotvm.selection import prove, select, unchanged, write

        t = self.tuning
        begin, allowed = time.perf_counter(), (_FOR_PROOF if not interrupted else _FOR_PROOF / 4) * self.seconds
        runner = self.place.runner(
            number=1, repeat=2, min_repeat_ms=1, cooldown_interval=0, threads=self.threads, noise=_ANY_NOISE)
        option = measure_option(t.option["builder"], runner)
        known = [s for s in t.states if s.default < float("inf")]
        found: list[Selection] = []
        for s in sorted(known, key=lambda s: -s.calls * (s.default - s.best)):
            if time.perf_counter() - begin > allowed / 2 or s.calls * (s.default - s.best) < _MIN_SAVED * t.time:
                break
            selection = select(s, option)
            if selection is not None:
                found.append(selection)
        t.close()
        if hasattr(runner, "close"):
            runner.close()
        in_all = None
        if not self.place.is_elsewhere:
            try:
                in_all = prove(found, self._compiled, max(2.0, allowed / 2), typer.echo)
            except KeyboardInterrupt:
                for selection in found:
                    selection.is_kept = False  # only proven configurations are kept
        rest = [unchanged(s) for s in known if all(v.state is not s for v in found)]
        write(t.records, [*found, *rest])
        kept = [v for v in found if v.is_kept]
        if self.place.is_elsewhere:
            saved = sum(v.saved for v in kept) / t.time_before if kept else 0.0
            gain = f"; together they should save {100 * saved:.0f} % of the time of the kernels" if kept else ""
            said = f", each surely faster where it was measured{gain}. The model as a whole was not run there."
        else:
            said = (
                f"; the tuned model takes {in_all}" if in_all
                else "; none makes the model surely faster, so it stays as it is")
        typer.echo(f"Wrote {self.output}: {len(kept)} tuned kernels of {len(t.states)}{said}")

    def _compiled(self, selections: Sequence[Selection]) -> Callable[[], object]:
        """Return the model with these kernels as a function without arguments, after checking its outputs."""
        from tilewright.compiler.model import compile as compile_model
        from tilewright.driver import tensors
        from tilewright.search.autotvm.measure import MeasureInput

        records = [(MeasureInput(v.state.task.target, v.state.task, v.config), v.measured) for v in selections]
        made = compile_model(self.model, self.shapes, self.target, self.threads, records=records or None)
        if not hasattr(self, "_inputs"):  # the untuned model comes first
            self._inputs = tensors.feed(made.inputs, {}, tensors.Fill.RANDOM)
            self._wanted = _arrays(made(**self._inputs))
        for a, b in zip(_arrays(made(**self._inputs)), self._wanted, strict=True):
            scale = float(np.abs(b).max(initial=0.0)) or 1.0
            off = float(np.abs(a - b).max(initial=0.0))
            if not off <= _TOLERANCE * scale and np.isfinite(b).all():
                raise InternalError(
                    f"the tuned model differs from the untuned one by {off:.3g} where outputs reach {scale:.3g}; "
                    f"please report {self.output}")
        return lambda: made(**self._inputs)


def _arrays(answer: Any) -> list[np.ndarray[Any, Any]]:
    from tilewright.compiler.sequences import flat

    return [np.asarray(a).astype(np.float64) for a in flat(answer if isinstance(answer, tuple) else (answer,))]
