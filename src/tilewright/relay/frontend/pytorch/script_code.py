"""Checks the code of TorchScript archives: loading may only pack weights, and no operator may access files or programs.

Python's parser checks the code, and torch's parser compiles it. Only plain ASCII is allowed, so that both see the same
tokens: an encoding declaration or an unusual line ending could hide code from one of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tilewright.base.errors import ModelError

_ALLOWED: Final = re.compile(rb"[\t\n\x20-\x7e]*")
_WORKING: Final = (ast.While, ast.For, ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp,
                   ast.SetComp, ast.Import, ast.ImportFrom, ast.JoinedStr)
_PACKS: Final = re.compile(
    r"ops\.quantized\.[a-z0-9_]+_prepack|torch\.(eq|ne|__is__|__isnot__)|annotate|unchecked_cast")
"""Functions that the `__setstate__` of a quantized layer may call."""
_TOUCHES_FILES: Final = frozenset({"save", "load", "from_file", "load_tensor"})
_CLASS: Final = re.compile(r"__torch__\.torch\.classes\.(quantized|rnn)(\.\w+)*", re.ASCII)
_NAME: Final = re.compile(r"[\w.\-]+", re.ASCII)
UNSAFE_NAMESPACES: Final = frozenset({
    "debugprims", "c10d", "_c10d_functional", "_c10d_functional_autograd", "profiler", "aoti_custom_ops",
    "aot_inductor", "static_runtime", "inductor", "streams", "symm_mem", "rpc",
    "mobile", "load_library", "import_module", "loaded_libraries", "triton", "fsdp", "nccl",
})
"""Namespaces of operators with side effects, and attributes of `torch.ops` that are not namespaces."""


def check_code(path: object, name: str, data: bytes) -> None:
    """Raise `ModelError` for code that does more than compute, in `forward` or while it is loaded."""
    if not _ALLOWED.fullmatch(data):
        raise ModelError(f"{path} is refused: {name} has characters that are not ASCII; save the module again with "
                         "torch.jit.save", code="TW0104")
    try:
        tree = ast.parse(data.decode("ascii"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{path} is damaged: {name} is not valid TorchScript "
                         f"({str(error)[:200]})", code="TW0103") from error
    try:
        _check_loading(path, name, tree)
        _check_names(path, name, tree)
    except RecursionError as error:
        raise ModelError(f"{path} is damaged: {name} has expressions that are nested too deep",
                         code="TW0103") from error


def _check_names(path: object, name: str, tree: ast.Module) -> None:
    """Refuse operators that access files, including access through aliases of `torch` and through `getattr`."""
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            _check_attribute(path, name, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            wanted = node.args[1].value if len(node.args) == 2 and isinstance(node.args[1], ast.Constant) else None
            if (not isinstance(wanted, str) or not _NAME.fullmatch(wanted) or wanted in _TOUCHES_FILES
                    or _root(node.args[0]) in ("torch", "ops", "__torch__")):
                raise _touches(path, name, ast.unparse(node))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node.id == "self":
            raise ModelError(f"{path} is refused: {name} assigns a new value to self; save the module again with "
                             "torch.jit.save", code="TW0104")
        elif isinstance(node, ast.Name) and node.id == "ops" and id(node) not in bases:
            raise _touches(path, name, "ops")


def _check_attribute(path: object, name: str, node: ast.Attribute) -> None:
    is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
    if node.attr in _TOUCHES_FILES and not is_own:
        raise _touches(path, name, ast.unparse(node))
    if isinstance(node.value, ast.Name) and node.value.id == "ops" and node.attr in UNSAFE_NAMESPACES:
        raise _touches(path, name, ast.unparse(node))
    if node.attr == "classes" and not is_own and ast.unparse(node) != "__torch__.torch.classes":
        raise _touches(path, name, ast.unparse(node))
    if (isinstance(node.value, ast.Attribute) and node.value.attr == "classes" and _root(node) == "__torch__"
            and not _CLASS.fullmatch(ast.unparse(node))):
        raise _touches(path, name, ast.unparse(node))


def _root(node: ast.expr) -> str:
    """The first name of a chain of attributes."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _touches(path: object, name: str, what: str) -> ModelError:
    return ModelError(f"{path} is refused: {name} uses {what[:80]}, which reads or writes files, or runs other "
                      "programs; save the module without it", code="TW0104")


def _check_loading(path: object, name: str, tree: ast.Module) -> None:
    """Refuse code that runs while loading, except weight packing: other `__setstate__`s and calls in default values."""
    packing = {method for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for method in _packing(node)}
    for node in ast.walk(tree):
        at_once: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef):
            if node.name == "__setstate__" and node not in packing:
                raise ModelError(f"{path} is refused: {name} has a __setstate__ that does more than pack weights, and "
                                 "would run when the file is read; save the module without it", code="TW0104")
            at_once = [*node.args.defaults, *node.args.kw_defaults]
        elif isinstance(node, (ast.ClassDef, ast.Module)):
            at_once = [x.value for x in node.body if isinstance(x, (ast.Assign, ast.AnnAssign, ast.Expr))]
        if any(isinstance(x, ast.Call) and not _is_plain(x) for value in at_once if value is not None
               for x in ast.walk(value)):
            raise ModelError(f"{path} is refused: {name} has a call in a default value, which would run when the file "
                             "is read; use constants as defaults", code="TW0104")


def _packing(kind: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The `__setstate__` of a class, if it and the methods it calls only store values and pack weights."""
    methods = {m.name: m for m in kind.body if isinstance(m, ast.FunctionDef)}
    if len(methods) != sum(isinstance(m, ast.FunctionDef) for m in kind.body) or "__setstate__" not in methods:
        return
    work, seen = ["__setstate__"], {"__setstate__"}
    while work:
        method = methods[work.pop()]
        if not method.args.args or method.args.args[0].arg != "self":
            return
        for node in ast.walk(ast.Module(method.body, [])):
            if isinstance(node, _WORKING) or (isinstance(node, ast.Name) and node.id == "self"
                                              and not isinstance(node.ctx, ast.Load)):
                return
            if isinstance(node, ast.Call) and not _PACKS.fullmatch(ast.unparse(node.func)):
                called = (node.func.attr if isinstance(node.func, ast.Attribute)
                    and ast.unparse(node.func.value) == "self" else "")
                if called not in methods or called in seen:
                    return
                seen.add(called)
                work.append(called)
    yield methods["__setstate__"]


def _is_plain(call: ast.Call) -> bool:
    """Whether a call only creates a literal value."""
    return ast.unparse(call.func) in ("torch.device", "annotate", "uninitialized")
