"""`tvmc compile`: compiles a loaded model to a package. Translates TVM's options to arguments of `tilewright.compile`.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tilewright
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InputError, OpenSizeWarning, OptionError
from tilewright.compiler.report import BuildReport
from tilewright.driver import files, offload, options
from tilewright.driver.compilation import asking
from tilewright.driver.targets import TargetOption, read_target
from tilewright.driver.tvmc.composition import WorkspacePool, check_executor, check_runtime, single_pool
from tilewright.driver.tvmc.model import TVMCModel
from tilewright.driver.tvmc.package import TVMCPackage, write_package
from tilewright.driver.tvmc.records import advised
from tilewright.driver.tvmc.transforms import MixedPrecision as OperatorTypes
from tilewright.driver.tvmc.transforms import with_layouts
from tilewright.ir.memory_pools import WorkspaceMemoryPools
from tilewright.relay.backend.executors import Executor, Runtime
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.program import kernel_symbols

if TYPE_CHECKING:
    from tilewright.backends.cpu.link import Linker
    from tilewright.compiler.model import Model
    from tilewright.ir.instrument import PassInstrument
    from tilewright.ir.module import IRModule
    from tilewright.runtime.artifact import Artifact

OUTPUT_FORMATS: Final = ("so", "tar", "mlf")
_IMPORTS: Final = {"tir": "# from tvm.script import tir as T\n\n"}
"""The first line of the file of a stage: the import with which the text is a module of Python."""
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
    desired_layout: str | Sequence[str] = (),
    desired_layout_ops: Sequence[str] = (),
    mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] = (),
    mixed_precision_calculation_type: str = "float16",
    mixed_precision_acc_type: str = "float32",
    workspace_pools: WorkspaceMemoryPools | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    instruments: Sequence[PassInstrument] | None = None,
) -> TVMCPackage:
    """Compile a model and write its package to `package_path` (default: a temporary file).

    `tuning_records` of `autotvm` or `auto_scheduler` choose the kernels. `output_format` is `so` or `tar` (a package
    with a linked library, or its objects), or `mlf`. `cross` is the compiler that links. `dump_code` are stages,
    written next to the package; `dump_offloads` is a file, or `-` for the standard output. `additional_target_options`
    are options by part of the target: `{"c": {"mcpu": "cortex-m55"}}`. `instruments` observe the passes. Calls of BNNS
    become native kernels (`<row>_stand_in`). Raises `OptionError` for unsupported options, and the errors of
    `tilewright.compile`. """
    chosen = _target(_with_options(target, additional_target_options), target_host)
    desired_layout = [desired_layout] if isinstance(desired_layout, str) else desired_layout
    if workspace_pools is not None:
        workspace_pool = single_pool(workspace_pools)
    package = Packaging.of(
        Path(package_path or tvmc_model.default_package_path()), output_format,
        _executor(executor, output_format, use_vm, chosen), Runtime(runtime) if isinstance(runtime, str) else runtime,
        options.linker(cross, cross_options), chosen, workspace_pool)
    stages = options.names("--dump-code", dump_code, options.STAGES) if isinstance(dump_code, str) else list(dump_code)
    mixed = MixedPrecision(
        mixed_precision, mixed_precision_ops, mixed_precision_calculation_type, mixed_precision_acc_type)
    switches = {
        **({_STAND_IN: True} if "bnns" in (a.name for a in chosen.accelerators) else {}),
        **({"relay.ConvertLayout.enabled": False} if desired_layout else {}),
        **options.pass_config([*pass_context_configs, *mixed.switches()])
    }
    tuned = advised(tuning_records)
    if desired_layout_ops and not desired_layout:
        raise OptionError(
            "--desired-layout-ops selects the operators for --desired-layout; give both options",
            code="TW0204")
    if desired_layout:
        tvmc_model = tvmc_model.with_mod(with_layouts(tvmc_model.mod, desired_layout, desired_layout_ops))
    if dump_offloads:
        report = offload.explained_module(tvmc_model.mod, tvmc_model.params, str(chosen)).text()
        print(report, end="") if dump_offloads == "-" else files.write_text(Path(dump_offloads), report)
    with mixed.operators_in(), tuned, warnings.catch_warnings():
        warnings.simplefilter("ignore", OpenSizeWarning)  # the error has the reason
        made = tilewright.compile(
            tvmc_model.source, tvmc_model.shapes or None, "llvm" if package.is_text else chosen, opt_level=opt_level,
            config=switches, disabled_pass=list(disabled_pass))
        artifact = _named(made, mod_name, instruments or ())
        for stage in stages:
            save_dumps(package.path.name, {stage: _IMPORTS.get(stage, "") + made.dump(stage)}, package.path.parent)
        package.write(made, artifact, tvmc_model)
    written = TVMCPackage(package.path)
    standing = [s for s in kernel_symbols(artifact.manifest.steps) if s.endswith("_stand_in")]
    if standing:
        written.notes = (
            f"bnns: {len(standing)} calls use stand-ins, kernels of this compiler named ..._stand_in: only Apple's "
            "systems have BNNS itself",)
    return written


@dataclass(frozen=True, slots=True)
class Packaging:
    """The form of a package, and the place that it is written to."""

    path: Path
    form: str
    """One of `OUTPUT_FORMATS`."""
    executor: Executor
    linker: Linker | None
    target: Target
    pool: WorkspacePool | None

    @classmethod
    def of(
        cls, path: Path, form: str, executor: Executor, runtime: Runtime, linker: Linker | None, target: Target,
        pool: WorkspacePool | None,
    ) -> Packaging:
        """Check that the options fit together. Raises `OptionError` if they do not."""
        if form not in OUTPUT_FORMATS:
            raise OptionError(
                f"--output-format: there is no format '{form}'; choose from {', '.join(OUTPUT_FORMATS)}", code="TW0203")
        check_executor(executor)
        check_runtime(runtime, form)
        if linker and form != "so":
            raise OptionError(
                f"--cross-compiler links a library, but -f {form} does not link its objects; omit one of "
                "them", code="TW0204")
        made = cls(path, form, executor, linker, target, pool)
        if made.is_text and pool is not None:
            raise OptionError(
                "--workspace-pools: the workspace of a model in C is an array in its text, and the linker places it; "
                "omit the option", code="TW0204")
        return made

    @property
    def is_text(self) -> bool:
        """Whether the package has the model as C text."""
        return self.form == "mlf" and "c" in self.target.processor.backend.stages

    def write(self, made: Model, artifact: Artifact, model: TVMCModel) -> None:
        """Write the package of a compiled model. Raises `ArtifactError`, and `OptionError` for a workspace that does
        not fit."""
        if self.pool is not None:
            self.pool.check(artifact)
        if self.form != "mlf":
            write_package(artifact, self.path, self.executor.name, self.form, self.linker)
            return
        with _replacing_tar(self.path) as scratch:
            if self.is_text:
                made.save_c_library(scratch, target=self.target, name=artifact.manifest.name, source=model.mod)
            else:
                from tilewright.compiler.model_library import export_model_library_format

                module = FactoryModule(artifact)
                module.executor = self.executor
                export_model_library_format(module, scratch, [model.mod])


@dataclass(frozen=True, slots=True)
class MixedPrecision:
    """Computation in 16-bit floats: of a whole network, and always of the named operators."""

    wanted: bool
    operators: Sequence[str]
    kind: str
    sums: str

    def switches(self) -> list[str]:
        """Return the switches of the passes. Raises `OptionError`."""
        if self.wanted:
            if self.kind == "float32":
                raise OptionError(
                    "--mixed-precision-calculation-type: float32 is the type without --mixed-precision; give float16 "
                    "or bfloat16", code="TW0204")
            return options.mixed_precision(self.kind, self.sums)
        if self.operators:
            raise OptionError(
                "--mixed-precision-ops selects the operators for --mixed-precision; give both options", code="TW0204")
        return []

    def operators_in(self) -> OperatorTypes:
        """Return the context in which the named operators are always computed in this type."""
        return OperatorTypes(self.operators, self.sums)


def save_dumps(
    module_name: str, dumps: Mapping[str, str], dump_root: str | os.PathLike[str] = "."
) -> None:
    """Write texts of a program to files `<module_name>.<format>` in a folder, by format."""
    for form, text in dumps.items():
        files.write_text(Path(dump_root) / f"{module_name}.{form}", text)


def export_factory(
    module: FactoryModule, path: Path, form: str, linker: Linker | None, sources: Sequence[IRModule]
) -> None:
    """Write the package of a module that `relay.build` returned, with the text of its network in the Model Library
    Format. Raises `ArtifactError`."""
    if form == "mlf":
        from tilewright.compiler.model_library import export_model_library_format

        with _replacing_tar(path) as scratch:
            export_model_library_format(module, scratch, sources)
        return
    kind = "graph" if module.executor is None else str(module.executor.name)
    write_package(module.artifact, path, kind, form, linker)


def _executor(executor: Executor | str | None, output_format: str, use_vm: bool, target: Target) -> Executor:
    """Return the executor; the default is `aot` for a model in C, else `graph`."""
    if use_vm:
        if executor is not None:
            raise OptionError(
                "use_vm and executor both choose the executor of the program; give one of them", code="TW0204")
        return Executor("vm")
    is_text = output_format == "mlf" and "c" in target.processor.compilable().backend.stages
    if executor is None:
        return Executor("aot" if is_text else "graph")
    found = Executor(executor) if isinstance(executor, str) else executor
    if is_text and found.name != "aot":
        raise OptionError(
            f"--executor {found.name} is not possible for the target c in the Model Library Format, whose programs are "
            "C functions; use --executor aot, or -f so",
            code="TW0204")
    return found


def _with_options(
    target: str | Mapping[str, Any] | Target, options_of: Mapping[str, Mapping[str, Any]] | None
) -> str | Mapping[str, Any] | Target:
    """Return the target with further options of its parts."""
    given = [
        TargetOption(f"{part}-{name}", str(value)) for part, by_name in (options_of or {}).items()
        for name, value in by_name.items()]
    return read_target(str(target), given) if given else target


def _target(target: str | Mapping[str, Any] | Target, host: str | None) -> Target:
    chosen = Target(target)
    if host and Target(host).processor != chosen.processor:
        raise OptionError(
            f"--target-host is '{host}', but code for '{chosen.processor}' runs on that processor itself; omit it",
            code="TW0204")
    return chosen


def _named(made: Model, name: str, instruments: Sequence[PassInstrument]) -> Artifact:
    """Return the program under the name of the module, which its C interface uses. The passes run again for
    `instruments`, which a program from the cache did not call."""
    try:
        artifact = made.build_again(BuildReport(), instruments) if instruments else made.artifact
    except InputError as error:
        raise OptionError(asking(made, error), code="TW0113") from None
    return replace(artifact, manifest=replace(artifact.manifest, name=name))


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
