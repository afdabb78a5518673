"""The names of TVM that Python files use: found in their syntax trees, without running them.

    from tvm import relay as r          ->   tvm.relay
    r.nn.relu(x)                        ->   tvm.relay.nn.relu

A local variable hides an import of the same name, as in Python. Names that are put together while a program runs are
not found, and the bodies of TVMScript and hybrid functions, which are languages of their own, are not read.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.base.errors import OptionError

ROOTS: Final = ("tvm", "tilewright")
PASS_OPTION, GLOBAL_FUNCTION, TARGET = "PassContext option", "global function", "target"
_KIND_OF_TEXT: Final = {
    "tvm.get_global_func": GLOBAL_FUNCTION, "tvm._ffi.get_global_func": GLOBAL_FUNCTION, "tvm.target.Target": TARGET,
    "tvm.target.create": TARGET
}
_LANGUAGES: Final = (".prim_func", ".ir_module", ".hybrid.script")
"""The ends of names of decorators: what follows is not Python."""
_REGISTRATIONS: Final = frozenset({"register_func", "register_global_func"})
_FOLDERS_TO_SKIP: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True)
class Use:
    """One use: a full name, or a text of one of the kinds above, at a line. `keywords` and `positional` are those of a
    call; `positional` is -1 where there is no call, or one that unpacks its arguments."""

    name: str
    file: str
    line: int
    kind: str = "name"
    keywords: tuple[str, ...] = ()
    positional: int = -1


@dataclass(slots=True)
class Uses:
    """The uses of some files, and what these register themselves."""

    found: list[Use] = field(default_factory=list)
    files: int = 0
    registered: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)
    """Files that are not Python, each with the reason."""


def uses_below(path: Path) -> Uses:
    """Return the uses in a file, or in all Python files and notebooks below a folder. Raises `OptionError` where there
    is none."""
    uses = Uses()
    root = path if path.is_dir() else path.parent
    for file in [path] if path.is_file() else sorted(_files(path)):
        name = file.relative_to(root).as_posix()
        uses.files += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(_source(file))
        except (SyntaxError, ValueError, RecursionError) as error:
            uses.unread.append(f"{name}: {error}")
            continue
        _Reader(uses, name).visit(tree)
    if not uses.files:
        raise OptionError(f"there is no Python file below {path}; name a program or its folder", code="TW0205")
    return uses


def _files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        inner = file.relative_to(folder).parts[:-1]
        hidden = any(part.startswith(".") or part in _FOLDERS_TO_SKIP for part in inner)
        if file.suffix in (".py", ".ipynb") and not hidden and file.is_file():
            yield file


def _source(file: Path) -> str:
    """Return the text of a Python file, or that of the cells of a notebook without their magic lines."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    cells = [c for c in json.loads(text).get("cells", ()) if c.get("cell_type") == "code"]
    lines = "\n".join("".join(c.get("source", ())) for c in cells).splitlines()
    return "\n".join(re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in lines)


class _Reader(ast.NodeVisitor):
    """Reads one file in the order of its lines. A scope maps the names that are bound in it to names of TVM, or to
    None."""

    def __init__(self, uses: Uses, file: str) -> None:
        self._uses = uses
        self._file = file
        self._scopes: list[dict[str, str | None]] = [{}]

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            head, _, rest = alias.name.partition(".")
            if head not in ROOTS:
                self._scopes[-1][alias.asname or head] = None
                continue
            self._scopes[-1][alias.asname or head] = "tvm" + (f".{rest}" if rest and alias.asname else "")
            if rest and rest != "as_tvm":
                self._add(f"tvm.{rest}", node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        head, _, rest = (node.module or "").partition(".")
        module = ".".join(filter(None, ["tvm", rest]))
        for alias in node.names:
            name = alias.asname or alias.name
            if node.level or head not in ROOTS:
                self._scopes[-1][name] = None
            elif alias.name == "*":
                self._add(module, node)
            else:
                self._scopes[-1][name] = f"{module}.{alias.name}"
                self._add(f"{module}.{alias.name}", node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._read(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._scopes[-1][node.id] = None
        else:
            self._read(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._name(node.func)
        if name is None:
            self.visit(node.func)
        else:
            unpacks = any(isinstance(a, ast.Starred) for a in node.args)
            keywords = tuple(k.arg for k in node.keywords if k.arg is not None)
            self._add(name, node, keywords=keywords, positional=-1 if unpacks else len(node.args))
            self._read_texts(name, node)
        for argument in (*node.args, *node.keywords):
            self.visit(argument)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Read the value before its name is bound; a second name of something of TVM is followed."""
        self.visit(node.value)
        name = self._name(node.value)
        for target in node.targets:
            self.visit(target)
            if isinstance(target, ast.Name):
                self._scopes[-1][target.id] = name

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outer in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outer)
        self._scopes[-1][node.name] = None
        if not self._is_script(node):
            self._inside(node.args, node.body, node.returns)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for outer in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(outer)
        self._scopes[-1][node.name] = None
        self._scopes.append({})
        for statement in () if self._is_script(node) else node.body:
            self.visit(statement)
        self._scopes.pop()

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside(node.args, [node.body], None)

    def _is_script(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a decorator makes a function or class a program of TVMScript or a hybrid function."""
        calls = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
        return any((self._name(d) or "").endswith(_LANGUAGES) for d in calls)

    def _inside(self, arguments: ast.arguments, body: Sequence[ast.AST], returns: ast.expr | None) -> None:
        """Read a function in a scope of its own."""
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        given += filter(None, [arguments.vararg, arguments.kwarg])
        for annotation in filter(None, [returns, *(a.annotation for a in given)]):
            self.visit(annotation)
        self._scopes.append({a.arg: None for a in given})
        for statement in body:
            self.visit(statement)
        self._scopes.pop()

    def _read(self, node: ast.expr) -> None:
        """Add the name of an expression, or read what is inside it."""
        name = self._name(node)
        if name is not None:
            self._add(name, node)
        else:
            self.generic_visit(node)

    def _name(self, node: ast.AST) -> str | None:
        """Return the full name of a chain of attributes that begins with an import of TVM; None for others."""
        parts = list[str]()
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        base = next((scope[node.id] for scope in reversed(self._scopes) if node.id in scope), None)
        return None if base is None else ".".join([base, *reversed(parts)])

    def _read_texts(self, name: str, node: ast.Call) -> None:
        """Add the options, targets and registered functions that a call names by a text."""
        first = node.args[0] if node.args else None
        text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        if name.endswith(".PassContext") or name == "tvm.transform.PassContext":
            options = next((k.value for k in node.keywords if k.arg == "config"), None)
            for key in options.keys if isinstance(options, ast.Dict) else ():
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self._add(key.value, key, PASS_OPTION)
        elif text is not None and name.rpartition(".")[2] in _REGISTRATIONS:
            self._uses.registered.add(text)
        elif text is not None and name in _KIND_OF_TEXT:
            self._add(text, node, _KIND_OF_TEXT[name])

    def _add(
        self, name: str, node: ast.expr | ast.stmt, kind: str = "name", keywords: tuple[str, ...] = (),
        positional: int = -1
    ) -> None:
        self._uses.found.append(Use(name, self._file, node.lineno, kind, keywords, positional))
