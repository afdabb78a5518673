"""TVM's command line: `tvmc tune MODEL --target llvm -o records.json`, `tvmc compile MODEL --target llvm -o
module.tar`, `tvmc run module.tar`.

Exit codes: 0 for success, 1 without a command and for compiler faults, 2 for wrong usage, 4 for unsupported requests, 5
for a missing Python package. An error is one line on stderr after `Error:`; `-v` adds a traceback.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from tilewright.backends.targets.accelerators import parts
from tilewright.base.errors import OptionError, PackageError, TVMError
from tilewright.compiler.micro.project import GeneratedProject
from tilewright.driver import micro, options, tensors, tune
from tilewright.driver.application import (
    Config,
    Target,
    Verbose,
    Version,
    application,
    check_target_options,
    examples,
    run,
)
from tilewright.driver.measuring import MeasuringOptions, address
from tilewright.driver.tvmc import arguments as a
from tilewright.driver.tvmc import composition
from tilewright.driver.tvmc.autotuner import tasks_of, tune_model
from tilewright.driver.tvmc.compiler import compile_model
from tilewright.driver.tvmc.composition import HINTS, workspace_pool
from tilewright.driver.tvmc.model import load_model
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.driver.tvmc.runner import DEVICES, run_module
from tilewright.relay.backend.executors import Executor

NOTHING, REFUSED, PACKAGE_MISSING = 1, 4, 5
"""Exit codes without a command, for unsupported requests, and when a Python package is missing."""
_SUMMARY: Final = "TVM's command line: tune models, compile them to packages, and run the packages."

app = application("tvmc", _SUMMARY)
app.add_typer(micro.app)


@app.callback(invoke_without_command=True)
def common(context: typer.Context, verbose: Verbose = 0, version: Version = False, config: Config = "") -> None:
    """TVM's command line: tune models, compile them to packages, and run the packages."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(NOTHING)
    check_target_options(context)


@app.command("compile", epilog=examples(
    "tvmc compile mobilenet.tflite --target llvm -o module.tar",
    'tvmc compile model.onnx --target "llvm -mcpu=x86-64-v3" --input-shapes "x:[1,3,224,224]"',
    'tvmc compile model.onnx --target "bnns, llvm -device=arm_cpu -mtriple=aarch64-linux-gnu" \\',
    '    --cross-compiler aarch64-linux-gnu-gcc --cross-compiler-options "-O2 -shared"',
    "tvmc --config aarch64 compile model.onnx -f mlf -o library.tar"))
def compile_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The model file: ONNX, TFLite, PyTorch or Relay.")],
    target: Target,
    output: a.Output = "module.tar",
    output_format: a.OutputForm = a.OutputFormat.SO,
    model_format: a.Format = None,
    input_shapes: a.Shapes = "",
    module_name: a.ModuleName = "default",
    cross_compiler: a.CrossCompiler = "",
    cross_compiler_options: a.CrossOptions = "",
    dump_code: a.Dump = "",
    dump_offloads: a.Offloads = "",
    opt_level: a.Level = 3,
    pass_config: a.PassConfig = None,
    disabled_pass: a.Disabled = "",
    tuning_records: a.Records = "",
    desired_layout: a.Layout = None,
    desired_layout_ops: a.LayoutOps = None,
    mixed_precision: a.Mixed = False,
    mixed_precision_ops: a.MixedOps = None,
    mixed_precision_calculation_type: a.MixedType = a.Precision.FLOAT16,
    mixed_precision_acc_type: a.MixedSums = a.Precision.FLOAT32,
    executor: a.ExecutorName = None,
    executor_graph_link_params: a.GraphLink = "",
    executor_aot_link_params: a.AotLink = "",
    executor_aot_interface_api: a.AotInterface = "",
    executor_aot_unpacked_api: a.AotUnpacked = "",
    executor_aot_workspace_byte_alignment: a.AotWorkspace = "",
    executor_aot_constant_byte_alignment: a.AotConstants = "",
    runtime: a.RuntimeName = a.RuntimeKind.CPP,
    runtime_cpp_system_lib: a.CppSystem = "",
    runtime_crt_system_lib: a.CrtSystem = "",
    workspace_pools: a.Pools = "",
    workspace_pools_targets: a.PoolTargets = "",
    workspace_pools_size_hint_bytes: a.PoolSizes = "",
    workspace_pools_clock_frequency_hz: a.PoolClock = "",
    workspace_pools_read_bandwidth_bytes_per_cycle: a.PoolRead = "",
    workspace_pools_write_bandwidth_bytes_per_cycle: a.PoolWrite = "",
    workspace_pools_read_latency_cycles: a.PoolReadLatency = "",
    workspace_pools_write_latency_cycles: a.PoolWriteLatency = "",
    workspace_pools_burst_bytes: a.PoolBurst = "",
    verbose: Verbose = 0,
) -> None:
    """Compile the model FILE to a package."""
    given = context.params
    begin = time.perf_counter()
    kind = str(executor) if executor else ""
    hints = {h: str(given[f"workspace_pools_{h.replace('-', '_')}"]) for h in HINTS}
    pool = workspace_pool(
        workspace_pools, workspace_pools_targets, workspace_pools_size_hint_bytes, hints,
        tuple(p.split(" ")[0] for p in parts(target)))
    packed = _executor(kind, _of_kinds(given, "executor", ("graph", "aot")), str(output_format))
    runs = composition.runtime(
        str(runtime), _only_of(str(runtime), "runtime", _of_kinds(given, "runtime", ("cpp", "crt"))))
    if cross_compiler:
        options.linker(cross_compiler, cross_compiler_options)  # before slow compilation
    model = load_model(
        file, str(model_format) if model_format else None, options.input_shapes(input_shapes, below_one_is_open=True))
    package = compile_model(
        model, target, opt_level, packed, runs, tuning_records, output, cross_compiler, cross_compiler_options,
        str(output_format), dump_code, dump_offloads,
        disabled_pass=options.names("--disabled-pass", disabled_pass), pass_context_configs=pass_config or (),
        mod_name=module_name, workspace_pool=pool,
        desired_layout=desired_layout or (), desired_layout_ops=desired_layout_ops or (),
        mixed_precision=mixed_precision, mixed_precision_ops=mixed_precision_ops or (),
        mixed_precision_calculation_type=str(mixed_precision_calculation_type),
        mixed_precision_acc_type=str(mixed_precision_acc_type))
    for note in package.notes:
        typer.echo(note, err=True)
    typer.echo(
        f"Wrote {package.package_path} ({Path(package.package_path).stat().st_size / 1e6:.1f} MB) in "
        f"{time.perf_counter() - begin:.2f} s")


def _of_kinds(given: dict[str, object], word: str, kinds: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the given options `--executor-aot-…` by kind and name."""
    return {
        kind: {
            key.removeprefix(f"{word}_{kind}_").replace("_", "-"): v for key, v in given.items()
            if key.startswith(f"{word}_{kind}_") and v
        } for kind in kinds}


def _only_of(kind: str, word: str, by_kind: dict[str, dict[str, object]]) -> dict[str, object]:
    """Return the options of the chosen kind. Raises `OptionError` for those of another."""
    for other, found in by_kind.items():
        if other != kind and found:
            raise OptionError(
                f"--{word}-{other}-{next(iter(found))} is an option of the {word} {other}, but the {word} is {kind}; "
                f"give --{word} {other}, or omit the option",
                code="TW0204")
    return by_kind[kind]


def _executor(kind: str, by_kind: dict[str, dict[str, object]], output_format: str) -> Executor | None:
    """Return the executor; None selects the graph. With `-f mlf` the default is `aot`."""
    chosen = kind or ("aot" if output_format == "mlf" else "graph")
    given = _only_of(chosen, "executor", by_kind)
    return composition.executor(chosen, given) if kind or given or output_format == "mlf" else None


@app.command("run", epilog=examples(
    "tvmc run module.tar --inputs inputs.npz --outputs outputs.npz",
    "tvmc run module.tar --fill-mode ones --print-top 5",
    "tvmc run module.tar --print-time --repeat 10 --number 5 --end-to-end",
    "tvmc run module.tar --rpc-tracker tracker:9190 --rpc-key board --print-time",
    "tvmc run --device micro project --fill-mode random --outputs outputs.npz"))
def run_command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A package written by tvmc compile; with --device micro, the folder of a project."
        )
    ],
    device: Annotated[
        str, typer.Option(help=f"The device: {', '.join(DEVICES)}; only cpu and micro are supported.")
    ] = "cpu",
    fill_mode: Annotated[
        tensors.Fill, typer.Option(help="Values of inputs that are not in a file.")
    ] = tensors.Fill.RANDOM,
    inputs: Annotated[
        Path | None,
        typer.Option("-i", "--inputs", exists=True, dir_okay=False, metavar="FILE.npz", help="Inputs by name.")
    ] = None,
    input_shapes: a.RunShapes = "",
    outputs: Annotated[
        Path | None, typer.Option("-o", "--outputs", metavar="FILE.npz", help="A .npz file for the outputs.")
    ] = None,
    print_time: Annotated[bool, typer.Option("--print-time", help="Time the program and show a summary.")] = False,
    print_top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show the N largest elements of each output, with their indices.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show the time of each kernel.")] = False,
    end_to_end: Annotated[bool, typer.Option("--end-to-end", help="Include copying the tensors in and out.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Number of measurements.")] = 1,
    number: Annotated[int, typer.Option(min=1, help="Number of runs in one measurement.")] = 1,
    rpc_key: Annotated[
        str, typer.Option("--rpc-key", metavar="NAME", help="With --rpc-tracker: the key of the devices.")
    ] = "",
    rpc_tracker: Annotated[
        str, typer.Option("--rpc-tracker", metavar="HOST:PORT", help="Run on a device of this tracker.")
    ] = "",
    project_option: micro.Options = None,
    list_options: micro.ListOptions = False,
    verbose: Verbose = 0,
) -> None:
    """Run the package PATH, or the project of a board, once; show or write the outputs."""
    if outputs is not None and outputs.suffix != ".npz":
        raise OptionError(f"--outputs: '{outputs}' does not end in .npz", code="TW0206")
    on_board = device == "micro"
    for word, value in (("--project-option", project_option), ("--list-options", list_options)):
        if value and not on_board:
            raise OptionError(
                f"{word} is for --device micro, which runs the project of a board; omit the option", code="TW0204")
    if list_options:
        typer.echo(GeneratedProject.from_directory(path).template.listed())
        return
    if end_to_end and not print_time:
        raise OptionError("--end-to-end changes the times of --print-time; give both options", code="TW0204")
    result = run_module(
        GeneratedProject.from_directory(path) if on_board else TVMCPackage(path), device, rpc_tracker or None,
        rpc_key or None, inputs, str(fill_mode),
        print_time, repeat, number, profile, end_to_end, options=micro.named(project_option),
        input_shapes=options.input_shapes(input_shapes))
    if profile:
        typer.echo(result.profile, nl=False)
    if print_time:
        typer.echo(result.format_times())
    if print_top is not None:
        typer.echo("\n".join(tensors.largest(result.outputs, print_top)))
    if outputs is not None:
        result.save(outputs)
    if not (outputs or print_top or print_time or profile):
        typer.echo(str(result))


@app.command("tune", epilog=examples(
    "tvmc tune model.onnx --target llvm -o records.json --trials 500",
    "tvmc tune model.onnx --target llvm -o records.json --tasks list",
    "tvmc tune model.onnx --target llvm -o schedules.json --enable-autoscheduler --tasks 0,2-5",
    "tvmc compile model.onnx --target llvm --tuning-records records.json"))
def tune_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The model file: ONNX, TFLite, PyTorch or Relay.")],
    target: Target,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="The record file, to which results are appended.")
    ],
    model_format: a.Format = None,
    input_shapes: a.Shapes = "",
    tuning_records: Annotated[
        str, typer.Option("--tuning-records", metavar="FILE", help="Initial records, if FILE of -o does not exist.")
    ] = "",
    enable_autoscheduler: Annotated[
        bool, typer.Option("--enable-autoscheduler", help="Search schedules without templates.")
    ] = False,
    trials: Annotated[
        int, typer.Option(min=1, help="Maximum number of configurations to measure, for all tasks together.")
    ] = 1000,
    tuner: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Search strategy without --enable-autoscheduler: xgb, xgb_rank, ga, random, gridsearch, droplet …"
        )
    ] = "xgb",
    early_stopping: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End a task after N configurations without improvement.")
    ] = None,
    tasks: Annotated[
        str, typer.Option(metavar="all|list|N,N-N", help="The tasks to tune, or list to show them.")
    ] = "all",
    number: Annotated[int, typer.Option(min=1, help="Number of runs in one measurement.")] = 10,
    repeat: Annotated[int, typer.Option(min=1, help="Number of measurements.")] = 1,
    min_repeat_ms: Annotated[
        int | None,
        typer.Option(
            min=0, help="Minimum duration of a measurement in milliseconds. Default: 0 on x86, otherwise 1000."
        )
    ] = None,
    timeout: Annotated[
        int, typer.Option(min=1, help="Time limit for building or running a configuration, in seconds.")
    ] = 10,
    parallel: Annotated[int, typer.Option(min=1, help="Number of configurations built at once.")] = 4,
    rpc_tracker: Annotated[
        str, typer.Option("--rpc-tracker", metavar="HOST:PORT", help="Measure on devices of this tracker.")
    ] = "",
    rpc_key: Annotated[
        str, typer.Option("--rpc-key", metavar="NAME", help="With --rpc-tracker: the key of the devices.")
    ] = "",
    verbose: Verbose = 0,
) -> None:
    """Measure configurations of the kernels of the model FILE, and store the results as records."""
    place = MeasuringOptions(tracker=rpc_tracker, rpc_key=rpc_key)
    model = load_model(
        file, str(model_format) if model_format else None, options.input_shapes(input_shapes, below_one_is_open=True))
    if tasks == "list":
        found = tasks_of(model, tune.measurable(target, place), enable_autoscheduler)
        names = (task.desc if enable_autoscheduler else task.title for task, _ in found)
        typer.echo("\n".join(f"{k:3d}  {name}" for k, name in enumerate(names)))
        return
    path = Path(tune_model(
        model, target, output, tuning_records or None, enable_autoscheduler, trials, tuner, min_repeat_ms,
        early_stopping, timeout, repeat, number, parallel, tasks,
        rpc_key or None, *(address(rpc_tracker) if rpc_tracker else ())))
    typer.echo(f"{len(path.read_text(encoding='utf-8').splitlines()) if path.exists() else 0} records in {path}")


def _exit_code(error: TVMError) -> int:
    return PACKAGE_MISSING if isinstance(error, PackageError) else REFUSED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(app, "tvmc", arguments, _exit_code, a.MANY)


_main = main
"""TVM's name of `main`."""
