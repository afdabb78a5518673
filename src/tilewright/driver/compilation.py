"""The options of compilation, declared once for the commands that share them.

    @app.command("run")
    @with_fields
    def run_command(model: Path, *, how: Compilation) -> None:
        how.loaded_or_compiled(model, {})
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.base.errors import InputError, OpenSizeWarning, OptionError
from tilewright.driver import offload, options
from tilewright.driver.application import Target

Shapes = Annotated[
    str,
    typer.Option(
        "--input-shapes",
        help='Sizes of inputs: "x:[1,3,224,224] y:[1,10]"; dynamic ones by name or range: "x:[1..64,3,h,w]".')
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Number of threads. Default: all cores.")]
Level = Annotated[int, typer.Option("--opt-level", min=0, max=4, help="Skip passes above this level.")]
Disabled = Annotated[str, typer.Option("--disabled-pass", metavar="NAMES", help="Passes to skip, separated by commas.")]
Switches = Annotated[
    list[str] | None,
    typer.Option("--pass-config", metavar="NAME=VALUE", help="Set one option of the passes. May be repeated.")
]
Mixed = Annotated[
    str,
    typer.Option(
        "--mixed-precision", "--mixed-precision-calculation-type", metavar="TYPE",
        help="Compute products, and operators between them, in bfloat16 or float16."),
]
Sums = Annotated[
    str,
    typer.Option("--mixed-precision-acc-type", metavar="TYPE", help="Accumulation type of products in mixed precision.")
]
Numerics = Annotated[
    str,
    typer.Option(
        "--numerics", metavar="RUNTIME",
        help="Rounding of quantized networks: tflite, onnx, torch or fast. Default: that of the model's framework."),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", metavar="FILE",
        help="A Python file, or the name of a module, that registers accelerators; it is executed. May be repeated.")
]
Records = Annotated[
    Path | None,
    typer.Option(
        "--tuning-records", exists=True, dir_okay=False, metavar="FILE",
        help="Records written by tilewright tune; kernels use the best measured configurations.")
]


def asking(model: Any, error: InputError) -> str:
    """Return the message that asks for the sizes that a model does not know."""
    shapes = " ".join(f"{name}:[{','.join(map(str, dims))}]" for name, dims in model.open_dimensions.items())
    if not shapes:
        return f'{error}. On the command line that is --input-shapes "NAME:[1,3,224,224]"'
    return (
        f"no program serves all sizes of the model: {model.why_not_symbolic}. Give numbers for the names in "
        f'--input-shapes "{shapes}"')


@dataclass(frozen=True)
class Pipeline:
    """The options of a compilation: target, input shapes, passes."""

    target: Target = "llvm"
    input_shapes: Shapes = ""
    opt_level: Level = 3
    pass_config: Switches = None
    disabled_pass: Disabled = ""
    mixed_precision: Mixed = ""
    mixed_precision_acc_type: Sums = "float32"
    numerics: Numerics = ""
    plugin: Plugins = None

    @property
    def shapes(self) -> dict[str, tuple[Any, ...]]:
        """The given shapes of inputs."""
        return options.input_shapes(self.input_shapes)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of passes: explicit options, and those implied by other options."""
        return options.pass_config([
            *(self.pass_config or []), *options.mixed_precision(self.mixed_precision, self.mixed_precision_acc_type),
            *options.numerics(self.numerics),
        ])

    @property
    def disabled(self) -> list[str]:
        """The disabled passes."""
        return options.names("--disabled-pass", self.disabled_pass)

    def load_plugins(self) -> None:
        """Register the accelerators of the plugins."""
        offload.load_plugins(self.plugin or [])


@dataclass(frozen=True)
class Compilation(Pipeline):
    """A model to be compiled and then run or written."""

    threads: Threads = None
    tuning_records: Records = None

    def compiled(
        self, model: Path, sizes: Mapping[str, tuple[Any, ...]] | None = None, target: str | None = None,
        switches: Sequence[str] = ()
    ) -> Any:
        """Compile the model with the input shapes of the options, else of `sizes`.

        `target` overrides the target of the options; `switches` (`NAME=VALUE`) are added to the configuration. Raises
        `OptionError` for a missing size.
        """
        import tilewright

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OpenSizeWarning)  # the error has the reason
            made = tilewright.compile(
                model, self.shapes or dict(sizes or {}) or None, target or self.target, self.threads,
                opt_level=self.opt_level, config={**self.config, **options.pass_config(switches)},
                disabled_pass=self.disabled, records=self.tuning_records)
        try:
            _ = made.inputs
        except InputError as error:
            raise OptionError(asking(made, error), code="TW0113") from None
        return made

    def loaded_or_compiled(self, model: Path, given: Mapping[str, Any]) -> Any:
        """Load a compiled file, or compile a model; the inputs in `given` determine its symbolic sizes."""
        self.load_plugins()
        if model.suffix in (*options.FORMATS, ".wasm"):
            import tilewright

            return tilewright.load(model, self.threads)
        return self.compiled(model, {name: array.shape for name, array in given.items()})
