"""The command line: `tilewright compile MODEL`, `tilewright run MODEL_OR_ARTIFACT`, `tilewright check MODEL`,
`tilewright quantize MODEL`, `tilewright offload MODEL`, `tilewright explain MODEL`, `tilewright tune MODEL`,
`tilewright profile MODEL`, `tilewright diagnose MODEL`, `tilewright explain-error CODE`, `tilewright migrate PATH`.

Exit codes: 0 for success, 1 when the model cannot be compiled or run, or a divergence was found, 2 for wrong usage.
Errors are printed on stderr after `Error:`, with a traceback only for `-v`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.base.errors import OptionError, TVMError
from tilewright.compiler.sequences import flat
from tilewright.driver import debug, diagnose, files, micro, offload, options, tensors
from tilewright.driver import profile as profiles
from tilewright.driver.application import (
    WRONG_USE,
    Accelerators,
    Config,
    Target,
    Verbose,
    Version,
    application,
    check_target_options,
    examples,
    run,
    with_fields,
)
from tilewright.driver.cache import EXAMPLES as CACHE_EXAMPLES
from tilewright.driver.cache import cache_command
from tilewright.driver.compilation import Compilation, Pipeline, Plugins, Shapes, Threads
from tilewright.driver.explain.command import report_path, write_report
from tilewright.driver.explain_error import EXPLAIN_EXAMPLES, explain_error_command
from tilewright.driver.migrate import MIGRATE_EXAMPLES, migrate_command
from tilewright.driver.tune import EXAMPLES, tune_command

app = application("tilewright", "Compile trained models to native programs, and run them.")
app.info.no_args_is_help = True
app.add_typer(micro.app)
app.add_typer(debug.app)

Required = Annotated[
    str,
    typer.Option(
        "--require-offload", metavar="SHARE",
        help="Fail if accelerators take less than this share of the multiply-accumulates, such as 95%.")
]
CrossCompiler = Annotated[
    str, typer.Option(metavar="PROGRAM", help="The compiler that links the library, such as aarch64-linux-gnu-gcc.")
]
CrossOptions = Annotated[
    str, typer.Option(metavar="TEXT", help="Options of the cross compiler, as one string: '-O2 -shared'.")
]
MaxArena = Annotated[
    str,
    typer.Option(
        "--max-arena", metavar="SIZE",
        help="Size limit of the memory for values between kernels, such as 256K. If a model needs more, the error "
        "lists the live values at its peak.")
]


@app.callback()
def common(context: typer.Context, verbose: Verbose = 0, version: Version = False, config: Config = "") -> None:
    """Compile trained models to native programs, and run them."""
    check_target_options(context)


@app.command("compile", epilog=examples(
    "tilewright compile mobilenet.tflite -o mobilenet.so",
    'tilewright compile model.onnx --input-shapes "x:[1,3,224,224]" --target "llvm -mcpu=x86-64-v3"',
    'tilewright compile model.onnx --target "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128" -o model.wasm',
    'tilewright compile model.onnx --target "npu, llvm" --require-offload 95%'))
@with_fields
def compile_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help=f"Output file: {', '.join(options.OUTPUTS)}, or .c for C text. Default: MODEL.tar."
        )
    ] = None,
    *,
    how: Compilation,
    dump_code: Annotated[
        str, typer.Option(help=f"Also write OUTPUT.STAGE for these stages: {','.join(options.STAGES)}.")
    ] = "",
    require_offload: Required = "",
    c_source: Annotated[
        Path | None,
        typer.Option(
            "--c-source", metavar="DIR", file_okay=False,
            help="Write the model as C, with a test, an example and a Makefile, into DIR."
        )
    ] = None,
    max_arena: MaxArena = "",
    cross_compiler: CrossCompiler = "",
    cross_compiler_options: CrossOptions = "",
    verbose: Verbose = 0,
) -> None:
    """Compile MODEL and write one file that runs without the compiler."""
    stages = options.names("--dump-code", dump_code, (*options.STAGES, options.C_STAGE))
    path = output or (None if c_source else Path(model.with_suffix(".tar").name))
    if path is not None and path.suffix not in (*options.OUTPUTS, options.C_SOURCE):
        raise OptionError(
            f"--output: '{path}' has none of the supported extensions: "
            f"{', '.join((*options.OUTPUTS, options.C_SOURCE))}", code="TW0206")
    begin = time.perf_counter()
    linker = options.linker(cross_compiler, cross_compiler_options)
    how.load_plugins()
    if require_offload:
        share = offload.share("--require-offload", require_offload)
        offload.explained(model, how.target, how.shapes or None).require(share)
    as_c = how.target if how.target.split()[:1] == ["c"] else "c"
    # the expected results of its test come from LLVM's code
    only_text = path is None or path.suffix == options.C_SOURCE
    compiled = how.compiled(model, target="llvm" if only_text else how.target, switches=options.max_arena(max_arena))
    written = [] if path is None else [compiled.save_c(path, as_c) if only_text else compiled.save(path, linker)]
    written += compiled.export_c(c_source, target=as_c) if c_source else []
    for stage in stages:
        files.write_text(written[0].with_name(f"{written[0].name}.{stage}"), compiled.dump(stage))
    for file in written:
        typer.echo(f"Wrote {file} ({file.stat().st_size / 1e6:.1f} MB) in {time.perf_counter() - begin:.2f} s")
    if verbose:
        _show_details(compiled)


@app.command("run", epilog=examples(
    "tilewright run mobilenet.so -i inputs.npz -o outputs.npz",
    "tilewright run model.onnx --print-top 5 --print-time"))
@with_fields
def run_command(
    model: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A compiled .so or .tar, or a model file.")
    ],
    inputs: Annotated[
        Path | None, typer.Option("-i", "--inputs", exists=True, dir_okay=False, help="A .npz of inputs by name.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option("-o", "--outputs", help="A .npz file for the outputs by name.")
    ] = None,
    fill_mode: Annotated[
        tensors.Fill, typer.Option(help="Values of inputs that are not in a file.")
    ] = tensors.Fill.RANDOM,
    print_top: Annotated[
        int | None, typer.Option(min=1, help="Show the N largest elements of each output.", metavar="N")
    ] = None,
    print_time: Annotated[bool, typer.Option("--print-time", help="Time the model and show a summary.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show the time of each kernel, and its distance from the machine's peak.")
    ] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Number of measurements.")] = 5,
    number: Annotated[int, typer.Option(min=1, help="Number of runs in one measurement.")] = 5,
    *,
    how: Compilation,
    verbose: Verbose = 0,
) -> None:
    """Run MODEL once, after compiling it if necessary; show or write the outputs."""
    if outputs is not None and outputs.suffix != ".npz":
        raise OptionError(f"--outputs: '{outputs}' does not end in .npz", code="TW0206")
    given = files.read_arrays(inputs) if inputs else {}
    compiled = how.loaded_or_compiled(model, given)
    fed = tensors.feed(compiled.inputs, given, fill_mode, how.shapes)
    answer = compiled(fed)
    answers = dict(
        zip((o.name for o in compiled.outputs), flat(answer if isinstance(answer, tuple) else (answer,)), strict=True))
    if outputs is not None:
        files.write_arrays(outputs, answers)
    if print_top is not None:
        typer.echo("\n".join(tensors.largest(answers, print_top)))
    if print_time:
        typer.echo(str(compiled.benchmark(fed, repeat=repeat, number=number)))
    if profile:
        typer.echo(profiles.reported(_executable(compiled), fed, repeat * number).table(aggregate=False), nl=False)
    if verbose:
        _show_details(compiled)
    if not (outputs or print_top or print_time or profile):
        typer.echo(
            "\n".join(f"{name}: {array.dtype}[{', '.join(map(str, array.shape))}]" for name, array in answers.items()))


@app.command("profile", epilog=examples(
    "tilewright profile mobilenet.tflite --threads 1",
    "tilewright profile model.onnx --trace run.pftrace --format json -o profile.json",
    "tilewright profile mobilenet.so --memory"))
@with_fields
def profile_command(
    model: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A compiled .so or .tar, or a model file.")
    ],
    inputs: Annotated[
        Path | None, typer.Option("-i", "--inputs", exists=True, dir_okay=False, help="A .npz of inputs by name.")
    ] = None,
    fill_mode: Annotated[
        tensors.Fill, typer.Option(help="Values of inputs that are not in a file.")
    ] = tensors.Fill.RANDOM,
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs; the faster half counts.")] = 50,
    form: Annotated[profiles.Form, typer.Option("--format", help="Format of the report.")] = profiles.Form.TABLE,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Output file of the report. Default: the terminal.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Also write a timeline of a run: .json (Chrome) or .pftrace (Perfetto)."
        )
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also show the memory of the model, and the live values at its peak.")
    ] = False,
    peaks: Annotated[
        bool, typer.Option("--peaks/--no-peaks", help="Compare with the peak of this machine, which is measured once.")
    ] = True,
    aggregate: Annotated[bool, typer.Option("--aggregate", help="One row for all steps of the same kernel.")] = False,
    *,
    how: Compilation,
    verbose: Verbose = 0,
) -> None:
    """Show the time of each step of MODEL, its limit, and an option to try."""
    given = files.read_arrays(inputs) if inputs else {}
    compiled = how.loaded_or_compiled(model, given)
    program = _executable(compiled)
    fed = tensors.feed(program.inputs, given, fill_mode, how.shapes)
    profiles.profile_to(program, fed, repeat, form, output, trace, memory, peaks, aggregate)
    if verbose:
        _show_details(compiled)


@app.command(
    "check",
    epilog=examples("tilewright check model.onnx", 'tilewright check model.onnx --input-shapes "x:[1,3,h,w]" --json'))
def check_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file.")],
    input_shapes: Shapes = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    verbose: Verbose = 0,
) -> None:
    """Show which operators of MODEL run natively, run in numpy, or are unknown, and whether one program serves all
    sizes."""
    from tilewright.compiler.check import check
    from tilewright.driver import report

    found = check(model, options.input_shapes(input_shapes) or None)
    (report.show_json if as_json else report.show)(found)
    if not found.ok:
        raise typer.Exit(1)


@app.command(
    "offload",
    epilog=examples(
        'tilewright offload model.tflite --target "npu, llvm" --why',
        'tilewright offload model.tflite --target npu -o partition.svg'))
def offload_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file.")],
    target: Accelerators,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="For every operator left on the CPU, show the reason and the smallest edit that would move it."
        )
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Draw the partition to a .svg or .html file.")
    ] = None,
    require_offload: Required = "",
    input_shapes: Shapes = "",
    plugin: Plugins = None,
    verbose: Verbose = 0,
) -> None:
    """Show which operators of MODEL accelerators take, and the reasons for all others."""
    offload.check_picture(output)
    share = offload.share("--require-offload", require_offload) if require_offload else 0.0
    offload.load_plugins(plugin or [])
    report = offload.explained(model, target, options.input_shapes(input_shapes) or None)
    typer.echo(report.to_json() if as_json else report.text() if why else report.summary() + "\n", nl=False)
    if output is not None:
        offload.write_picture(report, output)
    report.require(share)


@app.command(
    "diagnose",
    epilog=examples(
        "tilewright diagnose model.onnx -i inputs.npz -o repro",
        "tilewright diagnose model.onnx --reference onnxruntime --thorough"))
@with_fields
def diagnose_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", file_okay=False, metavar="FOLDER",
            help="Output folder for the reproducer. Default: MODEL.repro."
        )
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "-i", "--inputs", exists=True, dir_okay=False, help="A .npz of inputs by name. Default: random numbers."
        )
    ] = None,
    reference: Annotated[
        str, typer.Option(help="The reference: interpreter (numpy), onnxruntime, torch or tflite, if installed.")
    ] = diagnose.INTERPRETER,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Examine passes and kernels even if the outputs agree.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a compilation or a run counts as a hang.")
    ] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    *,
    how: Pipeline,
    verbose: Verbose = 0,
) -> None:
    """Find the pass, kernel or stage that makes MODEL wrong, and write the smallest program that shows it."""
    settings = diagnose.read_settings(how.target, how.opt_level, how.config, how.disabled, how.plugin or [])
    diagnose.check_reference(reference, model)
    case = diagnose.read_case(model, how.shapes, files.read_arrays(inputs) if inputs else {})
    folder = output or Path(f"{model.stem}.repro")
    found = diagnose.diagnose(model, case, settings, folder, timeout, reference, thorough=thorough)
    typer.echo(json.dumps(found.as_dict(), indent=1) if as_json else found.summary())
    if not found.found:
        return
    if not as_json:
        typer.echo(f"Wrote {folder}: {found.small_nodes} of {found.nodes} nodes; run {folder / 'repro.py'}")
    raise typer.Exit(1)


@app.command(
    "explain",
    epilog=examples(
        "tilewright explain resnet50.onnx -o report.html",
        'tilewright explain model.onnx --input-shapes "x:[1,3,224,224]" --target "npu, llvm"',
        "tilewright explain model.onnx --no-run --target c"))
@with_fields
def explain_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Output file: one self-contained .html. Default: MODEL.html.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Run the model on random inputs, for the timeline and the roofline.")
    ] = True,
    *,
    how: Compilation,
    verbose: Verbose = 0,
) -> None:
    """Write an HTML report: how MODEL was compiled, pass by pass and line by line, and how it runs."""
    path = report_path(model, output)
    how.load_plugins()
    write_report(how.compiled(model), model.name, path, run)


@app.command(
    "quantize",
    epilog=examples(
        "tilewright quantize model.onnx --data samples.npz -o model_int8.so",
        "tilewright quantize model.onnx --data samples.npz --max-error 0.02 --report errors.json"))
def quantize_command(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The model file, in float32.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data", exists=True, dir_okay=False, help="A .npz of inputs by name, with samples along the first axis."
        )
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Output file: .so or .tar. Default: MODEL_int8.tar.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write the errors of all layers and outputs as JSON.")
    ] = None,
    calibration: Annotated[str, typer.Option(help="Choice of ranges: minmax, percentile, kl or mse.")] = "minmax",
    percentile: Annotated[
        float, typer.Option(help="Fraction of all magnitudes that --calibration percentile keeps.")
    ] = 0.9999,
    per_tensor: Annotated[
        bool, typer.Option("--per-tensor", help="Use one scale for each weight instead of one for each output channel.")
    ] = False,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Use ranges that are symmetric around zero.")] = False,
    bias_correction: Annotated[
        bool, typer.Option("--bias-correction", help="Correct biases for the mean error of each channel.")
    ] = False,
    max_error: Annotated[
        float | None,
        typer.Option(help="Keep the worst layers in float until the relative error of the outputs is at most this.")
    ] = None,
    skip: Annotated[str, typer.Option(metavar="LAYERS", help="Layers to keep in float, separated by commas.")] = "",
    target: Target = "llvm",
    input_shapes: Shapes = "",
    threads: Threads = None,
    verbose: Verbose = 0,
) -> None:
    """Quantize a float MODEL to int8 with calibration data, compile it, and show the errors."""
    from tilewright.compiler.quantize import quantize
    from tilewright.driver import quantization

    path = output or Path(f"{model.stem}_int8.tar")
    if path.suffix not in options.FORMATS:
        raise OptionError(
            f"--output: '{path}' has none of the supported extensions: {', '.join(options.FORMATS)}", code="TW0206")
    begin = time.perf_counter()
    made = quantize(
        model, files.read_arrays(data), options.input_shapes(input_shapes) or None, calibration=calibration,
        percentile=percentile, per_channel=not per_tensor,
        symmetric=symmetric, bias_correction=bias_correction, max_error=max_error, skip=options.names("--skip", skip))
    compiled = made.compile(target, threads)
    compiled.save(path)
    if report is not None:
        files.write_text(report, json.dumps(made.report.as_dict(), indent=1) + "\n")
    quantization.show(made.report)
    typer.echo(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB) in {time.perf_counter() - begin:.2f} s")
    if verbose:
        _show_details(compiled)


app.command("tune", epilog=EXAMPLES)(tune_command)
app.command("explain-error", epilog=EXPLAIN_EXAMPLES)(explain_error_command)
app.command("migrate", epilog=MIGRATE_EXAMPLES)(migrate_command)
app.command("cache", epilog=CACHE_EXAMPLES)(cache_command)


def _executable(compiled: Any) -> Any:
    return getattr(compiled, "executable", compiled)


def _show_details(compiled: Any) -> None:
    """Print inputs, outputs, and if known the seconds of each phase of the compilation."""
    for word in ("inputs", "outputs"):
        for info in getattr(compiled, word):
            typer.echo(f"  {word[:-1]:7s} {info.name}: {info.dtype}[{', '.join(map(str, info.shape))}]")
    report = getattr(compiled, "report", None)  # a loaded file has none
    for phase, seconds in report.phases.items() if report else ():
        typer.echo(f"  {phase:24s} {seconds:8.3f} s")


def _exit_code(error: TVMError) -> int:
    return WRONG_USE if isinstance(error, OptionError) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(app, "tilewright", arguments, _exit_code, micro.MANY)
