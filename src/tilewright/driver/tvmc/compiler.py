"""`tvmc compile`: compiles a loaded model to a package. Translates TVM's options to arguments of `tilewright.compile`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tilewright
from tilewright.backends.target import Target
from tilewright.base.errors import InputError, OptionError
from tilewright.driver import files, offload, options
from tilewright.driver.tvmc.composition import Executor, Runtime, WorkspacePool
from tilewright.driver.tvmc.model import TVMCModel
from tilewright.driver.tvmc.package import TVMCPackage, write_package
from tilewright.driver.tvmc.records import advised
from tilewright.driver.tvmc.transforms import computed_in, with_layouts
from tilewright.runtime.program import kernel_symbols

if TYPE_CHECKING:
    from tilewright.compiler.model import Model
    from tilewright.runtime.artifact import Artifact

OUTPUT_FORMATS: Final = ("so", "tar", "mlf")
_STAND_IN: Final = "relay.library_calls.stand_in"


def compile_model(
    tvmc_model: TVMCModel,
    target: str | Mapping[str, Any] | Target,
    opt_level: int = 3,
    executor: Executor | str | None = None,
    runtime: Runtime | str = "cpp",
    tuning_records: str | os.PathLike[str] | None = None,
    package_path: str | os.PathLike[str] | None = None,
    cross: str = "",
    cross_options: str = "",
    output_format: str = "so",
    dump_code: str | Sequence[str] = (),
    dump_offloads: str = "",
    target_host: str | None = None,
    disabled_pass: Sequence[str] = (),
    pass_context_configs: Sequence[str] = (),
    use_vm: bool = False,
    mod_name: str = "default",
    workspace_pool: WorkspacePool | None = None,
    desired_layout: Sequence[str] = (),
    desired_layout_ops: Sequence[str] = (),
    mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] = (),
    mixed_precision_calculation_type: str = "float16",
    mixed_precision_acc_type: str = "float32",
) -> TVMCPackage:
    """Compile a model and write its package to `package_path` (default: a temporary file).

    `tuning_records` of `autotvm` or `auto_scheduler` choose the kernels. `output_format` is `so` or `tar` (a package
    with a linked library, or its objects), or `mlf`. `cross` is the compiler that links. `dump_code` are stages,
    written next to the package; `dump_offloads` is a file, or `-` for the standard output. Calls of BNNS become native
    kernels (`<row>_stand_in`). Raises `OptionError` for unsupported options, and the errors of `tilewright.compile`.
    """
    path = Path(package_path or tvmc_model.default_package_path())
    packed = _executor(executor, output_format, use_vm)
    runs = Runtime(runtime) if isinstance(runtime, str) else runtime
    if output_format not in OUTPUT_FORMATS:
        raise OptionError(
            f"--output-format: there is no format '{output_format}'; choose from {', '.join(OUTPUT_FORMATS)}",
            code="TW0203"
        )
    runs.check_format(output_format)
    linker = options.linker(cross, cross_options)
    if linker and output_format != "so":
        raise OptionError(
            f"--cross-compiler links a library, and -f {output_format} has objects that are not linked; leave one of "
            "them out",
            code="TW0204"
        )
    chosen = _target(target, target_host)
    stages = options.names("--dump-code", dump_code, options.STAGES) if isinstance(dump_code, str) else list(dump_code)
    config = [
        *pass_context_configs,
        *_mixed(mixed_precision, mixed_precision_ops, mixed_precision_calculation_type, mixed_precision_acc_type)
    ]
    tuned = advised(tuning_records)
    switches = {
        **({_STAND_IN: True} if "bnns" in (a.name for a in chosen.accelerators) else {}),
        **({"relay.ConvertLayout.enabled": False} if desired_layout else {}), **options.pass_config(config)
    }
    if desired_layout_ops and not desired_layout:
        raise OptionError(
            "--desired-layout-ops says which operators get the layout of --desired-layout; give that, too",
            code="TW0204"
        )
    if desired_layout:
        tvmc_model = tvmc_model.with_mod(with_layouts(tvmc_model.mod, desired_layout, desired_layout_ops))
    elif mixed_precision_ops:
        _ = tvmc_model.mod  # these operator attributes are not part of the cache key
    if dump_offloads:
        report = offload.explained_module(tvmc_model.mod, tvmc_model.params, str(chosen)).text()
        print(report, end="") if dump_offloads == "-" else files.write_text(Path(dump_offloads), report)
    ops = (
        computed_in(mixed_precision_ops, mixed_precision_calculation_type, mixed_precision_acc_type)
        if mixed_precision_ops else contextlib.nullcontext()
    )
    as_text = output_format == "mlf" and "c" in chosen.processor.backend.stages
    if as_text and workspace_pool is not None:
        raise OptionError(
            "--workspace-pools: the workspace of a model in C is an array in its text, and the linker says where it "
            "is; leave the option out",
            code="TW0204"
        )
    with ops, tuned:
        made = tilewright.compile(
            tvmc_model.source, tvmc_model.shapes or None, "llvm" if as_text else chosen, opt_level=opt_level,
            config=switches, disabled_pass=list(disabled_pass)
        )
        artifact = _named(made, mod_name)
        for stage in stages:
            files.write_text(path.with_name(f"{path.name}.{stage}"), made.dump(stage))
        if as_text:
            with _replacing_tar(path) as scratch:
                made.save_c_library(scratch, target=chosen, name=mod_name, source=tvmc_model.mod)
    if workspace_pool is not None:
        workspace_pool.check(artifact)
    if output_format == "mlf" and not as_text:
        _write_library(artifact, path, tvmc_model)
    elif not as_text:
        write_package(artifact, path, packed.kind, output_format, linker)
    package = TVMCPackage(path)
    standing = [s for s in kernel_symbols(artifact.manifest.steps) if s.endswith("_stand_in")]
    package.notes = (
        (
            f"bnns: {len(standing)} calls are of stand-ins, kernels of this compiler named ..._stand_in: BNNS itself "
            "is in systems of Apple's alone",
        ) if standing else ()
    )
    return package


def _executor(executor: Executor | str | None, output_format: str, use_vm: bool) -> Executor:
    """Return the executor; the default is `aot` for the Model Library Format, else `graph`."""
    if use_vm:
        if executor is not None:
            raise OptionError(
                "use_vm and executor both choose the executor of the program; give one of them", code="TW0204"
            )
        return Executor("vm")
    if executor is None:
        return Executor("aot" if output_format == "mlf" else "graph")
    found = Executor(executor) if isinstance(executor, str) else executor
    if output_format == "mlf" and found.kind != "aot":
        raise OptionError(
            f"--executor {found.kind} cannot be in the Model Library Format, which has programs as C functions; use "
            "--executor aot, or -f so",
            code="TW0204"
        )
    return found


def _target(target: str | Mapping[str, Any] | Target, host: str | None) -> Target:
    chosen = Target(target)
    if host and Target(host).processor != chosen.processor:
        raise OptionError(
            f"--target-host is '{host}', and code for '{chosen.processor}' runs on that itself; leave it out",
            code="TW0204"
        )
    return chosen


def _mixed(wanted: bool, operators: Sequence[str], kind: str, sums: str) -> list[str]:
    if wanted:
        if kind == "float32":
            raise OptionError(
                "--mixed-precision-calculation-type: float32 is what is computed in without --mixed-precision; say "
                "float16 or bfloat16",
                code="TW0204"
            )
        return options.mixed_precision(kind, sums)
    if operators:
        raise OptionError(
            "--mixed-precision-ops says which operators --mixed-precision is about; give that, too", code="TW0204"
        )
    return []


def _named(made: Model, name: str) -> Artifact:
    """Return the program under the name of the module, which its C interface uses."""
    try:
        artifact = made.artifact
    except InputError as error:
        raise OptionError(
            f'{error}. On the command line that is --input-shapes "NAME:[1,3,224,224]"', code="TW0113"
        ) from None
    return replace(artifact, manifest=replace(artifact.manifest, name=name))


def _write_library(artifact: Artifact, path: Path, model: TVMCModel) -> None:
    from tilewright.compiler.model_library import export_model_library_format
    from tilewright.runtime.module import FactoryModule

    with _replacing_tar(path) as scratch:
        export_model_library_format(FactoryModule(artifact), scratch, [model.mod])


@contextlib.contextmanager
def _replacing_tar(path: Path) -> Iterator[Path]:
    """Yield a temporary file with the extension `.tar` that replaces `path`, whose extension may differ."""
    with files.replacing(path) as scratch:
        made = scratch.with_name(f"{scratch.name}.tar")
        try:
            yield made
            made.replace(scratch)
        finally:
            made.unlink(missing_ok=True)
