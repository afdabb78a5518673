"""Values of modules that functions write to: each is known here, with what keeps threads out of each other's way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tilewright"
WRITING = frozenset(
    {
        "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault",
        "update"
    }
)
"""Methods that change a container."""

REGISTERED = "filled where modules are imported and where users register something, never by a compile"
LOCKED = "written under a lock"
EQUAL = "each entry is one step for the interpreter, and whoever writes one writes the same value"
OF_THREAD = "each thread has its own"
OF_WORKER = "of a process that serves one request at a time"
KNOWN = {
    "search.auto_scheduler.workload_registry": {"WORKLOAD_FUNC_REGISTRY": REGISTERED},
    "search.auto_scheduler.search_task": {"TASK_INPUT_BUFFER_TABLE": REGISTERED},
    "backends.offload_kinds": {"_KINDS": REGISTERED},
    "backends.targets.tags": {"_REGISTERED": REGISTERED},
    "compat.contrib.random": {"_GENERATORS": OF_THREAD},
    "compat.target.codegen": {"_NAMES": "a name has the same number in every thread, and is only read by its number"},
    "compat.testing.popen_jobs": {"_STATE": OF_WORKER},
    "search.autotvm.task.task": {"TEMPLATES": REGISTERED},
    "backends.generic_func": {"_NATIVE": REGISTERED},
    "search.autotvm.task.topi_integration": {"_COMPUTES": REGISTERED},
    "compiler.cache": {
        "_WRITING": "an entry belongs to the thread that it names; whoever waits for one joins that thread"
    },
    "driver.diagnosis.probes": {"_RUN": OF_WORKER},
    "base.forks": {"_LOCKS": "a weak set of locks, entered when one is made", "_REENTRANT": "the same"},
    "base.global_functions": {"FUNCTIONS": REGISTERED},
    "base.interning": {
        "_SWEEP_AT": "a number that says when to look for garbage; a lost change moves the next look",
        "_INTERNED": LOCKED
    },
    "ir.op_attributes": {"OP_ATTRIBUTES": REGISTERED},
    "ir.structural": {"_FIELDS": EQUAL, "_LABELS": EQUAL},
    "ir.transform": {"PASSES": REGISTERED, "_DEFAULT": OF_THREAD},
    "base.plugins": {"_DECLARED": REGISTERED, "_OFFLOADS": REGISTERED},
    "relay.frontend.pytorch.complex_numbers": {"COMPUTING": REGISTERED},
    "relay.frontend.pytorch.registry": {"WRITERS": REGISTERED},
    "relay.onnx_export.writers": {"WRITERS": REGISTERED},
    "relay.op.contrib": {"_PARTITIONERS": REGISTERED, "_TABLES": REGISTERED, "_TAKEN": REGISTERED},
    "relay.op.deferred": {"RESOLVERS": REGISTERED},
    "relay.op.registry": {"OPS": REGISTERED},
    "relay.qnn.affine": {"RULES": REGISTERED},
    "runtime.rpc.functions": {"_RETURNED": OF_WORKER},
    "runtime.rpc.models": {"_MODELS": OF_WORKER},
    "runtime.rpc.service": {"_MODULES": OF_WORKER},
    "runtime.callbacks": {"_MADE": LOCKED, "_STATE": OF_THREAD},
    "runtime.driver": {"_DRIVERS": LOCKED},
    "runtime.fault_reports": {"_LAST": LOCKED},
    "runtime.scratch": {"_ROOM": OF_THREAD},
    "runtime.threads": {"POOLS": "changed while no program runs, by whoever asks for one thread", "_CALL": OF_THREAD},
    "runtime.trial": {"_PREPARED": OF_WORKER},
    "runtime.timing_lock": {"_HERE": OF_WORKER},
    "backends.cpu.llvm.perf": {"_dumps": LOCKED},
    "backends.cpu.llvm.text": {"_MEMORY": EQUAL, "_REGISTER": EQUAL},
    "tir.stmt_nodes": {"_ROOTS": "a weak dictionary; two threads that make the root block of a body have equal ones"},
    "base.types": {"_KNOWN": EQUAL, "_NUMPY": EQUAL, "_OF_NUMPY": EQUAL},
}


def written(text: str) -> set[str]:
    """The names of a module's own values that its functions write to: elements, attributes, and the names
    themselves."""
    tree = ast.parse(text)
    own = {t.id for s in tree.body for t in _targets(s) if isinstance(t, ast.Name)}
    return {
        name for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for name in _written_by(f)
    } & own


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) and statement.value is not None else []


def _written_by(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[str]:
    nodes = list(ast.walk(function))
    shared = {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    local = {
        n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    } | {n.arg for n in nodes if isinstance(n, ast.arg)}
    yield from shared
    for n in nodes:
        changed: ast.expr | None = None
        if isinstance(n, (ast.Subscript, ast.Attribute)) and isinstance(n.ctx, (ast.Store, ast.Del)):
            changed = n.value
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in WRITING:
            changed = n.func.value
        if isinstance(changed, ast.Name) and changed.id not in local - shared:
            yield changed.id


def test_what_is_found() -> None:
    text = "A, B, C, D, E = {}, [], set(), 0, {}\nF = {}\nG: dict = {}\n"
    text += "def f(F, x):\n    global D\n    D = 1\n    A[x] = 1\n    B.append(x)\n    F[x] = E[x]\n    C = set()\n    C.add(x)\ndef g():\n    del G[0]\n    G.colour = 1\n"  # noqa: E501
    assert written(
        text.replace("A, B, C, D, E = {}, [], set(), 0, {}", "A = B = C = D = E = None")
    ) == {"A", "B", "D", "G"}


@pytest.mark.slow
def test_every_value_that_functions_write_to_is_known() -> None:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        names = written(path.read_text(encoding="utf-8"))
        if names:
            parts = path.relative_to(SOURCE).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = names
    assert found == {
        module: set(names) for module, names in KNOWN.items()
    }, "a new one needs a lock or a reason: add it to KNOWN"
