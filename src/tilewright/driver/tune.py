"""`tilewright tune MODEL`: find faster kernels for a model by measuring, within minutes, and keep only what makes it faster.

    records.json             what `compile(…, records=)` takes: one record for each task, proven faster, or the model's own choice
    records.trials.json      every trial; calling the command again goes on from there
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer

from tilewright.base.errors import OptionError, TargetError
from tilewright.driver import options
from tilewright.driver.application import Target, Verbose, examples
from tilewright.driver.places import Place

if TYPE_CHECKING:
    from tilewright.backends.target import Target as Processor
    from tilewright.ir.module import IRModule
    from tilewright.search.autotvm.network import NetworkTuning, TaskState
    from tilewright.search.autotvm.verdict import Verdict

_FOR_PROOF: Final = 0.2
"""The part of the time that goes into proving what was found."""
_WORTH: Final = 0.002
"""A kernel that should save a smaller part of the network's time is left as it is."""
_ANY: Final = 1e9
"""Figures may be so far apart: they are compared in pairs."""
_SHOWN: Final = 12
_TOLERANCE: Final = 1e-3
"""Of the largest output, by how much the outputs of the tuned and the untuned model may differ: they round differently."""


EXAMPLES: Final = examples(
    "tilewright tune model.onnx --minutes 10 -o records.json",
    'tilewright tune model.onnx --input-shapes "x:[1,3,224,224]" --threads 4 --tuner ga',
    "tilewright tune model.onnx --cluster tcp://scheduler:8786 --worker-tag board",
    'tilewright tune model.onnx --ssh pi@192.168.1.17 --target "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"',
    "tilewright tune model.onnx --replay trials.json -o records.json",
)


def tune_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Output file of the best records.")] = Path("records.json"),
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="Total time.")] = 10.0,
    trials: Annotated[int | None, typer.Option("--trials", min=1, help="Maximum number of configurations to measure in this call.")] = None,
    tuner: Annotated[str, typer.Option("--tuner", help="Search strategy: auto, xgb_knob, ga, random, gridsearch, droplet …")] = "auto",
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Number of threads of the model. Default: all cores.")] = None,
    target: Target = "llvm",
    input_shapes: Annotated[str, typer.Option("--input-shapes", help='Sizes of inputs: "x:[1,3,224,224]".')] = "",
    tuning_records: Annotated[Path | None, typer.Option("--tuning-records", exists=True, dir_okay=False, help="Trials of an earlier call, used as a start.")] = None,
    cluster: Annotated[str, typer.Option("--cluster", metavar="tcp://HOST:PORT", help="Build and measure on the workers of this Dask scheduler.")] = "",
    worker_tag: Annotated[str, typer.Option("--worker-tag", metavar="NAME", help='With --cluster: measure on workers started with --resources "NAME=1".')] = "",
    tracker: Annotated[str, typer.Option("--tracker", metavar="HOST:PORT", help="Measure on devices of this tracker.")] = "",
    rpc_key: Annotated[str, typer.Option("--rpc-key", metavar="NAME", help="With --tracker: the key of the devices.")] = "",
    ssh: Annotated[str, typer.Option("--ssh", metavar="USER@HOST", help="Measure on this board, which needs no Python; ssh must work without a password.")] = "",
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", exists=True, dir_okay=False, help="With --ssh: a configuration file for ssh -F.")] = None,
    replay: Annotated[Path | None, typer.Option("--replay", exists=True, dir_okay=False, help="Measure nothing: use these records, and predict other kernels.")] = None,
    verbose: Verbose = 0,
) -> None:
    """Tune MODEL: measure its kernels and keep the fastest. Ctrl-C keeps the results so far; the same command continues."""
    from tilewright.search.autotvm.tuner.names import tuner_named

    tuner_named(tuner)  # a wrong name is told before anything takes time
    place = Place(cluster, worker_tag, tracker, rpc_key, ssh, ssh_config)
    shapes = options.input_shapes(input_shapes) or None
    if replay is not None:
        from tilewright.driver.replay import tune_by_replay

        if place.is_elsewhere:
            raise OptionError("--replay measures nothing, and --cluster, --tracker and --ssh say where to measure; give one of them", code="TW0204")
        tune_by_replay(network(model, shapes), output, replay, target)
        return
    chosen = measurable(target, place)
    place.reach()
    session = _Session(model, output, minutes * 60, threads, chosen, shapes, tuner, place)
    session.begin(tuning_records)
    interrupted = session.search(trials)
    session.prove(interrupted)


def measurable(wanted: str | Mapping[str, Any] | Processor, place: Place = Place()) -> Processor:
    """The target that is meant. Raises `TargetError` where its code does not run at the place, as far as is known here, or is not of the processor alone."""
    from tilewright.backends.target import Target as Processor

    target, here = Processor(wanted), Processor("llvm")
    if target.accelerators:
        raise TargetError(f"kernels of the processor are tuned, and '{wanted}' has accelerators before it; give the processor alone", code="TW1114")
    if not place.is_elsewhere and (target.family != here.family or not target.features <= here.features):
        raise TargetError(f"code for '{wanted}' does not run here, and tuning is measuring; measure where it does (--cluster, --tracker, --ssh), or replay records (--replay)", code="TW1114")
    return target


def network(model: Path, shapes: Mapping[str, tuple[Any, ...]] | None) -> IRModule:
    """The model as relay. Raises `OptionError` where a size of an input is open, since kernels are measured at known sizes."""
    from tilewright.compiler.formats import format_of

    form, given = format_of(model), shapes or {}
    for name, dims, _ in form.survey(model, given)[0]:
        shape = given.get(name, dims)
        if not all(isinstance(size, int) for size in shape):
            raise OptionError(
                f"{model.name}: input '{name}' has the open shape [{', '.join(map(str, shape))}], and kernels are measured at known sizes; "
                f"say which with --input-shapes \"{name}:[…]\"", code="TW0113",
            )
    return form.read(model, given)[0]


class _Session:
    """One call of the command."""

    def __init__(
        self, model: Path, output: Path, seconds: float, threads: int | None, target: Processor, shapes: dict[str, tuple[Any, ...]] | None, tuner: str,
        place: Place,
    ) -> None:
        self.place = place
        self.model, self.output, self.seconds, self.threads, self.target, self.shapes, self.tuner = model, output, seconds, threads, target, shapes, tuner
        self.start = time.perf_counter()
        self.trials_file = output.with_name(f"{output.stem}.trials{output.suffix}")
        self.tuning: NetworkTuning

    def begin(self, earlier: Path | None) -> None:
        """Extract the tasks, and read what is known of them."""
        from tilewright.search.autotvm.measure import measure_option
        from tilewright.search.autotvm.network import NetworkTuning
        from tilewright.search.autotvm.task.relay_integration import tasks_of
        from tilewright.search.records import Records

        if earlier is not None and not self.trials_file.exists():
            self.trials_file.write_bytes(earlier.read_bytes())
        tasks = tasks_of(network(self.model, self.shapes), None, self.target)
        option = measure_option(self.place.builder(), self.place.runner(number=2, repeat=3, min_repeat_ms=2, cooldown_interval=0, threads=self.threads, noise=0.3))
        self.tuning = NetworkTuning(tasks, option, Records(self.trials_file), self.tuner)
        known = self.tuning.trials
        typer.echo(f"{len(tasks)} tasks in {time.perf_counter() - self.start:.1f} s{f', {known} trials known' if known else ''}")

    @property
    def left(self) -> float:
        """Seconds until the command shall be done."""
        return max(0.0, self.seconds - (time.perf_counter() - self.start))

    def search(self, trials: int | None) -> bool:
        """Measure until it is time to prove what was found; returns whether it was interrupted."""
        from rich.console import Console
        from rich.live import Live

        begin, seconds = self.tuning.trials, max(0.0, self.left - _FOR_PROOF * self.seconds)
        console = Console(stderr=True)
        with Live(self._table(seconds), console=console, refresh_per_second=2, transient=not console.is_terminal) as live:
            end = time.perf_counter() + seconds

            def show(_: TaskState) -> None:
                live.update(self._table(max(0.0, end - time.perf_counter())))

            try:
                self.tuning.run(seconds, trials, show)
            except KeyboardInterrupt:
                console.print("interrupted: what was found so far is proven and kept; Ctrl-C again ends at once")
                return True
            finally:
                typer.echo(f"{self.tuning.trials - begin} trials, {sum(s.failed for s in self.tuning.states)} of all failed")
        return False

    def _table(self, seconds: float) -> Any:
        from rich.table import Table

        t = self.tuning
        gain = 1 - t.time / t.time_before if t.time_before else 0.0
        table = Table(title=f"{self.model.name}: {t.trials} trials, kernels {1e3 * t.time:.3f} ms ({100 * gain:.0f} % saved so far), {seconds:.0f} s left", title_justify="left")
        for name, justify in (("task", "left"), ("trials", "right"), ("best (us)", "right"), ("saved", "right"), ("of the time", "right"), ("to gain", "right")):
            table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        ranked = sorted(t.states, key=lambda s: -t.share(s))
        for s in ranked[:_SHOWN]:
            measured = s.best < float("inf")
            saved = f"{100 * (1 - s.best / s.default):.0f} %" if measured and s.default < float("inf") else ""
            table.add_row(
                f"{s.task.title[:56]}{f' x{s.calls}' if s.calls > 1 else ''}", str(s.trials), f"{1e6 * s.best:.1f}" if measured else "", saved,
                f"{100 * t.share(s):.1f} %" if measured else "", "done" if s.is_done else f"{100 * t.share(s) * s.gain:.1f} %",
            )
        if len(ranked) > _SHOWN:
            table.add_row(f"… and {len(ranked) - _SHOWN} more", str(sum(s.trials for s in ranked[_SHOWN:])), "", "", f"{100 * sum(map(t.share, ranked[_SHOWN:])):.1f} %", "")
        return table

    def prove(self, interrupted: bool) -> None:
        """Compare the best of each task, and then the model, with what the compiler does by itself; write what helps."""
        from tilewright.search.autotvm.measure import measure_option
        from tilewright.search.autotvm.verdict import judge, settle, unchanged, write

        begin, allowed = time.perf_counter(), (_FOR_PROOF if not interrupted else _FOR_PROOF / 4) * self.seconds
        option = measure_option(self.tuning.option["builder"], self.place.runner(number=1, repeat=2, min_repeat_ms=1, cooldown_interval=0, threads=self.threads, noise=_ANY))
        states = sorted((s for s in self.tuning.states if s.default < float("inf")), key=lambda s: -s.calls * (s.default - s.best))
        verdicts: list[Verdict] = []
        for s in states:
            if time.perf_counter() - begin > allowed / 2 or s.calls * (s.default - s.best) < _WORTH * self.tuning.time:
                break
            found = judge(s, option)
            if found is not None:
                verdicts.append(found)
        self.tuning.close()
        if hasattr(option["runner"], "close"):
            option["runner"].close()
        rest = [s for s in self.tuning.states if s.default < float("inf") and all(v.state is not s for v in verdicts)]
        if self.place.is_elsewhere:
            write(self.output, [*verdicts, *map(unchanged, rest)])
            faster = [v for v in verdicts if v.is_kept]
            saved = sum(v.saved for v in faster) / self.tuning.time_before if faster else 0.0
            typer.echo(
                f"Wrote {self.output}: {len(faster)} tuned kernels of {len(self.tuning.states)}, each surely faster where it was measured"
                + (f"; together they should save {100 * saved:.0f} % of the time of the kernels" if faster else "") + ". The model as a whole was not run there."
            )
            return
        try:
            found_in_all = settle(verdicts, self._compiled, max(2.0, allowed / 2), typer.echo)
        except KeyboardInterrupt:
            for v in verdicts:
                v.is_kept = False  # what is not proven is not kept
            found_in_all = None
        write(self.output, [*verdicts, *map(unchanged, rest)])
        kept = sum(v.is_kept for v in verdicts)
        typer.echo(f"Wrote {self.output}: {kept} tuned kernels of {len(self.tuning.states)}; " + (f"the tuned model takes {found_in_all}" if found_in_all else "none makes the model surely faster, so it stays as it is"))

    def _compiled(self, verdicts: Sequence[Verdict]) -> Callable[[], object]:
        """The model as a function of no arguments, with these kernels; its outputs are compared with those of the untuned one."""
        import tilewright
        from tilewright.compiler.model import compile as compile_model
        from tilewright.search.autotvm.measure import MeasureInput, result_of

        records = [(MeasureInput(v.state.task.target, v.state.task, v.config), result_of(v.measured)) for v in verdicts]
        made = compile_model(self.model, self.shapes, self.target, self.threads, records=records or None)
        if not hasattr(self, "_inputs"):
            from tilewright.driver import tensors

            self._inputs = tensors.feed(made.inputs, {}, tensors.Fill.RANDOM)
            self._wanted = _arrays(made(**self._inputs))
            return lambda: made(**self._inputs)
        for a, b in zip(_arrays(made(**self._inputs)), self._wanted, strict=True):
            scale = float(np.abs(b.astype(np.float64)).max(initial=0.0)) or 1.0
            off = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0.0))
            if not off <= _TOLERANCE * scale and np.isfinite(b.astype(np.float64)).all():
                raise tilewright.errors.InternalError(f"the tuned model differs from the untuned one by {off:.3g} where outputs reach {scale:.3g}; please report {self.trials_file}")
        return lambda: made(**self._inputs)


def _arrays(answer: Any) -> list[np.ndarray[Any, Any]]:
    from tilewright.compiler.grouping import flat

    return [np.asarray(a) for a in flat(answer if isinstance(answer, tuple) else (answer,))]


