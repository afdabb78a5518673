"""The order of the rooms: who may import whom, what stays out of `import tilewright`, and how long files may be."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.base.plugins import Hook

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tilewright"

# A module belongs to the longest prefix that fits it, and may import rooms of its own level and of the levels above.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("scalar",),
    ("ir",),
    ("te", "tir"),
    ("topi",),
    ("backends.cpu.strategies", "backends.decisions", "backends.kernel_options", "backends.machine"),
    ("relay",),
    ("relay.frontend", "relay.serialization"),
    ("backends", "runtime", "relay.op.strategy"),
    ("compiler", "relay.backend.te_compiler"),
    ("compiler.micro",),
    ("search",),
    ("search.autotvm", "search.auto_scheduler"),
    ("search.meta_schedule",),
    ("backends.accelerators", "compiler.torch_backend", "compiler.torch_fallback", "compiler.torch_parts",
     "compiler.torch_trace"),
    ("driver.diagnosis",),
    ("driver", "__main__"),
    ("compat",),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}

# What runs where the compiler is not installed, and what it may use.
STANDALONE = ("runtime", "compat.exec")
STANDALONE_USES = {"base", "runtime", "compat"}

# Imports against the order, inside functions, each with its reason. Where the other room is missing, only that function
# fails.
ALLOWED_LATE: dict[tuple[str, str], str] = {
    ("runtime", "ir.container"): "tvm.runtime.convert is the field's name for making containers of programs",
    ("runtime", "scalar.expr"): "and tvm.runtime.const for making a constant of a program",
    ("relay", "compiler.build"): "relay.build is the field's name for compiling a module",
    ("relay", "compiler.vm"): "and relay.vm for compiling one with control flow",
    (
        "relay.quantize", "compiler.calibration"
    ): "relay.quantize.quantize is the field's name for quantizing a network, which runs it on data, compiled",
    ("relay", "compiler.executor"): "relay.create_executor is the field's name for running one",
    (
        "relay.op.contrib.rules", "backends.accelerators.library_calls"
    ): "who partitions for a library of C functions has its code generator with that",
    (
        "compiler.micro", "search.micro"
    ): "micro.AutoTvmModuleLoader is the field's name for measuring with the machine of a project template",
    (
        "compiler.model", "search.autotvm.task.dispatcher"
    ): "compile(records=) takes what tuning found, as autotvm.apply_history_best does",
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package, named without `tilewright.`; the package itself is the empty name."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def room(module: str) -> str:
    """The room of a module: its longest prefix in `LEVELS`."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:length])) in LEVEL:
            return prefix
    raise AssertionError(f"tilewright.{module} belongs to no room: add it to LEVELS in {Path(__file__).name}")


def only_for_types(test: ast.expr) -> bool:
    """Whether `test` is the condition `TYPE_CHECKING`."""
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports(path: Path, package: str) -> Iterator[tuple[str, int, bool]]:
    """(module without `tilewright.`, line, whether inside a function) of what a file imports from the package when it
    runs."""
    work: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), False)]
    while work:
        here, late = work.pop()
        if isinstance(here, ast.If) and only_for_types(here.test):
            work += [(child, late) for child in here.orelse]
            continue
        if isinstance(here, ast.Import):
            for name in here.names:
                if name.name.startswith("tilewright."):
                    yield name.name.removeprefix("tilewright."), here.lineno, late
        elif isinstance(here, ast.ImportFrom):
            yield from ((name, here.lineno, late) for name in from_import(here, package))
        late = late or isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        work += [(child, late) for child in ast.iter_child_nodes(here)]


def from_import(statement: ast.ImportFrom, package: str) -> Iterator[str]:
    """The modules that `from … import …` names: a submodule where there is one, else the module itself."""
    base = statement.module or ""
    if statement.level:
        parents = package.split(".") if package else []
        kept = parents[: len(parents) - statement.level + 1]
        base = ".".join(["tilewright", *kept, *([base] if base else [])])
    if base != "tilewright" and not base.startswith("tilewright."):
        return
    inside = base.removeprefix("tilewright").removeprefix(".")
    for name in statement.names:
        candidate = f"{inside}.{name.name}" if inside else name.name
        if (
            SOURCE / Path(*candidate.split("."))
        ).is_dir() or (SOURCE / Path(*candidate.split("."))).with_suffix(".py").exists():
            yield candidate
        elif inside:
            yield inside


@functools.cache
def edges() -> tuple[tuple[str, str, str, bool], ...]:
    """(importing module, imported module, place in the source, whether inside a function), the package's own front left
    out."""
    found = []
    for module, path in modules():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        if module:
            for imported, line, late in imports(path, package):
                found.append((module, imported, f"{path.relative_to(ROOT)}:{line}", late))
    return tuple(found)


@pytest.mark.slow
def test_rooms_import_only_what_stands_before_them() -> None:
    wrong = [
        f"{place}: {room(module)} imports tilewright.{imported}, which stands after it"
        for module, imported, place, late in edges()
        if LEVEL[room(imported)] > LEVEL[room(module)] and not (late and (module, imported) in ALLOWED_LATE)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_rooms_of_one_level_do_not_import_each_other_both_ways() -> None:
    pairs = {(room(module), room(imported)) for module, imported, _, late in edges() if not late}
    both = sorted({tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1] and pair[::-1] in pairs})
    assert [pair for pair in both if pair != ("te", "tir")] == []


def test_definitions_import_nothing_of_back_ends() -> None:
    """Neither at any level of the file, nor for types: `topi` declares kinds of kernels, and back ends map them."""
    for path in (SOURCE / "topi").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                assert not any(n.startswith("tilewright.backends") for n in names), f"{path}:{node.lineno}"


def test_hooks_are_provided_by_later_layers() -> None:
    hooks = {
        (module, name, hook)
        for module in ("base.scriptable", "ir.dialects", "te.tensor", "topi.algorithms", "runtime.compiler_hooks")
        for name, hook in vars(importlib.import_module(f"tilewright.{module}")).items()
        if isinstance(hook, Hook)
    }
    assert len(hooks) > 10
    for module, name, hook in hooks:
        provider = hook.provider.removeprefix("tilewright.")
        assert LEVEL[room(provider)] >= LEVEL[room(module)], f"{module}.{name} is provided by the earlier {provider}"
        assert callable(hook.function())


def test_hook_without_a_provider_says_so() -> None:
    with pytest.raises(ImportError, match="tilewright_absent"):
        Hook[[], None]("tilewright_absent")()


def test_hook_calls_the_function_that_was_provided() -> None:
    hook: Hook[[int], int] = Hook("tilewright_absent")
    assert hook.provide(abs) is abs
    assert hook(-3) == 3


def test_exceptions_to_the_order_are_still_needed() -> None:
    assert len(ALLOWED_LATE) <= 10
    late = {(module, imported) for module, imported, _, inside in edges() if inside}
    assert set(ALLOWED_LATE) <= late


def test_runtime_imports_nothing_of_the_compiler() -> None:
    wrong = [
        f"{place}: {module} imports tilewright.{imported}"
        for module, imported, place, late in edges()
        if module.startswith(STANDALONE) and room(imported) not in STANDALONE_USES
        and not (late and (module, imported) in ALLOWED_LATE)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_import_stays_light() -> None:
    code = "import sys, tilewright; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"onnx", "llvmlite", "torch", "onnxruntime", "tflite", "xgboost", "rich", "typer", "PIL"}
    assert heavy.isdisjoint(name.partition(".")[0] for name in loaded)


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_files_are_short(folder: str) -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > 700} == {}


def test_every_module_says_what_it_is_for() -> None:
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules()}
    assert [name for name, text in texts.items() if text.strip() and not text.startswith(('"""', 'r"""'))] == []
