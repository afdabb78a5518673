"""Looks through an archive of PyTorch before torch opens it, so that nothing in it is executed.

Refused are: names that point outside or stand twice, bytes around the archive (torch might find another one there), sizes that do not fit the
file, pickles that name anything but tensors and plain containers, TorchScript that does more while it is loaded than pack weights, symbolic sizes that are
no arithmetic, and machine code. What torch would read as a pickle is looked into whatever its name is.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from tilewright.errors import ModelError

_MOST_RATIO: Final = 200
_SMALL: Final = 16 << 20
_END: Final = 22
"""Bytes of what an archive ends with, when it has no comment."""
_MODULES: Final = ("collections", "torch", "torch._utils", "torch._tensor", "torch.storage", "torch.nn.parameter", "torch.serialization", "torch.jit._pickle")
_SAFE: Final = frozenset({
    "OrderedDict", "_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter", "_rebuild_qtensor", "_rebuild_from_type_v2", "_rebuild_tensor_v3", "UntypedStorage",
    "TypedStorage", "Size", "Tensor", "device", "Parameter", "_get_layout", "dtype", "layout", "build_intlist", "build_tensorlist", "build_doublelist",
    "build_boollist", "build_tensor_from_id", "restore_type_tag", "per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams", "_rebuild_meta_tensor_no_storage",
})
_TORCH_KINDS: Final = re.compile(
    r"[A-Z][A-Za-z0-9]*Storage|(float|int|uint|bfloat|complex|quint|qint)[0-9]+(x[0-9])?(_e[0-9]m[0-9][a-z0-9]*)?|float|int|bool|half|double|long|short|strided",
)
"""Names of torch that are types of elements, storages or layouts."""
_NAMES: Final = frozenset({
    "Max", "Min", "Mod", "FloorDiv", "CeilDiv", "CleanDiv", "PythonMod", "ModularIndexing", "IntTrueDiv", "FloatTrueDiv", "TruncToInt", "ToFloat", "CeilToInt",
    "FloorToInt", "Where", "Pow", "PowByNatural", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Abs", "Add", "Mul", "Integer", "Symbol", "Float", "int_oo", "oo",
})
_WORKING: Final = (ast.While, ast.For, ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp, ast.Import, ast.ImportFrom, ast.JoinedStr)
_PACKS: Final = re.compile(r"ops\.quantized\.[a-z0-9_]+_prepack|torch\.(eq|ne|__is__|__isnot__)|annotate|unchecked_cast")
"""What the `__setstate__` of a quantized layer may call."""
_POWERS: Final = ("Pow", "PowByNatural")
_DAMAGED: Final = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, ValueError, OverflowError, zlib.error)


def check_archive(path: Path) -> list[str]:
    """The names in an archive; raises `ModelError` where it is damaged, points outside, is a bomb or holds what would be executed."""
    try:
        with path.open("rb") as file:
            if file.read(1) in (b"\x80", b"("):
                raise ModelError(f"{path} is a pickle, as torch.save wrote them before version 1.6; reading one runs code from it, so it is not read: save the module with "
                                 "torch.jit.trace(module, inputs).save(path), or torch.export.save", code="TW0104")
            return list(_names(path, "", file))
    except _DAMAGED as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path} cannot be read ({type(error).__name__}: {str(error)[:200]}); it is no archive that torch.jit.save or torch.export.save wrote", code="TW0102") from error


def _names(path: Path, within: str, file: IO[bytes]) -> Iterator[str]:
    """The names in an archive, each after what it names was looked through; `within` is the entry that the archive is in."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        _check_frame(path, within, file, archive)
        for entry in entries:
            parts = PurePosixPath(entry.filename.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts:
                raise ModelError(f"{path} is refused: its entry {entry.filename!r} points outside of the archive", code="TW0104")
            if entry.file_size > _SMALL and entry.file_size > _MOST_RATIO * max(entry.compress_size, 1):
                raise ModelError(f"{path} is refused: its entry {entry.filename!r} unpacks to {entry.file_size} bytes from {entry.compress_size}", code="TW0104")
            if parts.suffix in (".so", ".dll", ".dylib", ".o", ".a", ".cpp", ".cubin") or "aotinductor" in parts.parts:
                raise ModelError(f"{path} is refused: its entry {entry.filename!r} is machine code; export the program without compiling it", code="TW0104")
        pickled = {name for entry in entries if entry.filename.endswith(".json") for name in _check_json(path, entry.filename, archive.read(entry))}
        for entry in entries:
            name = f"{within}/{entry.filename}" if within else entry.filename
            with archive.open(entry) as stream:
                _check_entry(path, name, stream, PurePosixPath(entry.filename).name in pickled)
            yield entry.filename


def _check_frame(path: Path, within: str, file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """The archive is all of the file, and has each name once: readers of archives differ in which of two they take."""
    names = archive.namelist()
    twice = next((n for n, before in zip(sorted(names)[1:], sorted(names), strict=False) if n == before), None)
    if twice is not None:
        raise ModelError(f"{path} is refused: its entry {twice!r} is there twice", code="TW0104")
    file.seek(-_END, io.SEEK_END)
    last = file.read()
    file.seek(0)
    if not (last.startswith(b"PK\5\6") and file.read(4) == b"PK\3\4" and min((e.header_offset for e in archive.infolist()), default=0) == 0):
        raise ModelError(f"{path} is refused: something stands before or behind the archive{f' in {within}' * bool(within)}, which torch would read another way; save the model again", code="TW0104")


def _check_entry(path: Path, name: str, stream: IO[bytes], is_pickled: bool) -> None:
    if name.endswith(".pkl"):
        _check_pickle(path, name, stream.read())
    elif name.endswith(".pt") or is_pickled:
        _check_tensors(path, name, stream.read())
    elif name.endswith(".py"):
        _check_code(path, name, stream.read())
    else:
        while stream.read(1 << 20):  # reads all of it, and so the sum is checked
            pass


def _check_tensors(path: Path, name: str, data: bytes) -> None:
    """What torch.save wrote into an entry: an archive again. In its older form one pickle follows the other, and no tensors need it."""
    if data[:4] != b"PK\3\4":
        if data:
            raise ModelError(f"{path} is refused: {name} is no archive, and would be read as a pickle of the oldest form; export the program again", code="TW0104")
        return
    for _ in _names(path, name, io.BytesIO(data)):
        pass


# Pickles


def _check_pickle(path: Path, name: str, data: bytes) -> None:
    """Only what tensors are made of: whatever else a pickle names would be called when it is read."""
    strings: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name in ("GLOBAL", "INST"):
                _check_global(path, name, *str(argument).split(" ", 1))
            elif code.name == "STACK_GLOBAL":
                # The names have to stand right before it: what a memo holds is not followed.
                _check_global(path, name, *(strings if len(strings) == 2 else ("a name", "that is not written out")))
            elif code.name in ("EXT1", "EXT2", "EXT4"):
                _check_global(path, name, "copyreg", "extension")
            if isinstance(argument, str) and "UNICODE" in code.name:
                strings = [*strings, argument][-2:]
            elif code.name != "MEMOIZE" and not code.name.endswith("PUT"):
                strings = []
    except (ValueError, IndexError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path} is damaged: {name} is no pickle ({str(error)[:200]})", code="TW0103") from error


def _check_global(path: Path, name: str, module: str, found: str = "") -> None:
    if module.startswith("__torch__"):
        return  # a class of the module's own, which TorchScript reads as data, and Python does not find
    if module in _MODULES and (found in _SAFE or (module == "torch" and _TORCH_KINDS.fullmatch(found))):
        return
    raise ModelError(f"{path} is refused: {name} would call {module}.{found} when it is read, and files are read without running code from them; save the model "
                     "with torch.jit.save or torch.export.save", code="TW0104")


# TorchScript


def _check_code(path: Path, name: str, data: bytes) -> None:
    """Nothing in it runs while it is loaded but what packs weights: no other `__setstate__`, and no calls in defaults of arguments and attributes."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{path} is damaged: {name} is no TorchScript ({str(error)[:200]})", code="TW0103") from error
    packing = {method for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for method in _packing(node)}
    for node in ast.walk(tree):
        at_once: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef):
            if node.name == "__setstate__" and node not in packing:
                raise ModelError(f"{path} is refused: {name} has a __setstate__ that does more than pack weights, and runs when the file is read; save the module without it", code="TW0104")
            at_once = [*node.args.defaults, *node.args.kw_defaults]
        elif isinstance(node, (ast.ClassDef, ast.Module)):
            at_once = [x.value for x in node.body if isinstance(x, (ast.Assign, ast.AnnAssign, ast.Expr))]
        if any(isinstance(x, ast.Call) and not _is_plain(x) for value in at_once if value is not None for x in ast.walk(value)):
            raise ModelError(f"{path} is refused: {name} calls something in a default value, which runs when the file is read; save the module with constants there", code="TW0104")


def _packing(kind: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The `__setstate__` of a class, where it and the methods that it calls, each once, only store values and pack weights, as quantized layers do."""
    methods = {m.name: m for m in kind.body if isinstance(m, ast.FunctionDef)}
    if len(methods) != sum(isinstance(m, ast.FunctionDef) for m in kind.body) or "__setstate__" not in methods:
        return
    work, seen = ["__setstate__"], {"__setstate__"}
    while work:
        method = methods[work.pop()]
        if not method.args.args or method.args.args[0].arg != "self":
            return
        for node in ast.walk(ast.Module(method.body, [])):
            if isinstance(node, _WORKING) or (isinstance(node, ast.Name) and node.id == "self" and not isinstance(node.ctx, ast.Load)):
                return
            if isinstance(node, ast.Call) and not _PACKS.fullmatch(ast.unparse(node.func)):
                called = node.func.attr if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "self" else ""
                if called not in methods or called in seen:
                    return
                seen.add(called)
                work.append(called)
    yield methods["__setstate__"]


def _is_plain(call: ast.Call) -> bool:
    """Whether a call only makes a value that is written out."""
    return ast.unparse(call.func) in ("torch.device", "annotate", "uninitialized")


# Exported programs


def _check_json(path: Path, name: str, data: bytes) -> set[str]:
    """Sizes in it are arithmetic; the names of the entries that torch reads as pickles."""
    try:
        whole = json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: {name} is no JSON ({str(error)[:200]})", code="TW0103") from error
    pickled: set[str] = set()
    stack = [whole]
    while stack:
        v = stack.pop()
        if isinstance(v, dict):
            if isinstance(v.get("expr_str"), str):
                _check_expression(path, name, v["expr_str"])
            if v.get("use_pickle"):
                pickled.add(PurePosixPath(str(v.get("path_name"))).name)
            stack += v.values()
        elif isinstance(v, list):
            stack += v
    return pickled


def _check_expression(path: Path, name: str, text: str) -> None:
    """Arithmetic of symbols: torch evaluates it as Python."""
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{path} is damaged: {name} has the size {text[:80]!r}", code="TW0103") from error
    for node in nodes:
        calls = isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _NAMES)
        odd = isinstance(node, (ast.Attribute, ast.Subscript, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.JoinedStr))
        if calls or odd or _is_large_power(node) or (isinstance(node, ast.Name) and node.id.startswith("_")):
            raise ModelError(f"{path} is refused: {name} has the size {text[:80]!r}, which is no arithmetic of sizes", code="TW0104")


def _is_large_power(node: ast.AST) -> bool:
    """A number to the power of a number, or moved by bits: as large as the file likes."""
    is_power = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift))
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POWERS
    parts: list[Any] = [node.left] if isinstance(node, ast.BinOp) else list(node.args[:1]) if isinstance(node, ast.Call) else []
    return (is_power or is_call) and not any(isinstance(x, ast.Name) for p in parts for x in ast.walk(p))
