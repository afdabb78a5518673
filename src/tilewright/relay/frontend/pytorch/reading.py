"""Reading files of PyTorch, from which nothing is executed.

An archive is looked through before torch opens it: names that point outside, sizes that do not fit the file, pickles that name
anything but tensors and plain containers, and symbolic sizes that are no arithmetic are refused.
"""

from __future__ import annotations

import ast
import io
import json
import os
import pickletools
import warnings
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from tilewright.errors import ModelError

_MOST_RATIO: Final = 200
_SMALL: Final = 16 << 20
_MODULES: Final = ("collections", "torch", "torch._utils", "torch._tensor", "torch.storage", "torch.nn.parameter", "torch.serialization", "torch.jit._pickle")
_SAFE: Final = frozenset({
    "OrderedDict", "_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter", "_rebuild_qtensor", "_rebuild_from_type_v2", "_rebuild_tensor_v3", "UntypedStorage",
    "TypedStorage", "Size", "Tensor", "device", "Parameter", "_get_layout", "dtype", "layout", "build_intlist", "build_tensorlist", "build_doublelist",
    "build_boollist", "build_tensor_from_id", "restore_type_tag", "per_tensor_affine", "per_channel_affine", "_rebuild_meta_tensor_no_storage",
})
_TORCH_KINDS: Final = ("Storage", "float", "int", "uint", "bfloat", "double", "half", "long", "short", "bool", "quint", "qint", "complex", "strided")
_NAMES: Final = frozenset({
    "Max", "Min", "Mod", "FloorDiv", "CeilDiv", "CleanDiv", "PythonMod", "ModularIndexing", "IntTrueDiv", "FloatTrueDiv", "TruncToInt", "ToFloat", "CeilToInt",
    "FloorToInt", "Where", "Pow", "PowByNatural", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Abs", "Add", "Mul", "Integer", "Symbol", "Float", "int_oo", "oo",
})


def read_model(model: Any) -> tuple[Any, str]:
    """The module or exported program, and the name of the file it came from; raises `ModelError` for what is neither."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.exists():
            raise ModelError(f"there is no file {path}")
        return _load(path), str(path)
    if hasattr(model, "graph_signature") or hasattr(model, "inlined_graph") or (hasattr(model, "graph") and type(model).__module__.startswith("torch.jit")):
        return model, ""
    if type(model).__name__ == "ScriptFunction" or hasattr(model, "graph"):
        return model, ""
    raise ModelError(f"a {type(model).__name__} is no TorchScript module, exported program, or path of one; trace the module with torch.jit.trace, or export it "
                     "with torch.export.export(module, inputs)")


def _load(path: Path) -> Any:
    import torch

    names = check_archive(path)
    try:
        if any(n.endswith(("models/model.json", "serialized_exported_program.json")) or "/models/" in n for n in names):
            return torch.export.load(path)
        if any("/code/" in n or n.endswith("constants.pkl") for n in names):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript itself, whose files are read for as long as there are any
                return torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever torch finds wrong with a file, it is the file
        raise ModelError(f"{path} cannot be read: {type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
    raise ModelError(f"{path} holds weights alone, without the program that uses them; save the module with torch.jit.trace(...).save, or torch.export.save")


def check_archive(path: Path) -> list[str]:
    """The names in an archive; raises `ModelError` where it is damaged, points outside, is a bomb or holds code in a pickle."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            for entry in entries:
                parts = PurePosixPath(entry.filename.replace("\\", "/"))
                if parts.is_absolute() or ".." in parts.parts:
                    raise ModelError(f"{path} is refused: its entry {entry.filename!r} points outside of the archive")
                if entry.file_size > _SMALL and entry.file_size > _MOST_RATIO * max(entry.compress_size, 1):
                    raise ModelError(f"{path} is refused: its entry {entry.filename!r} unpacks to {entry.file_size} bytes from {entry.compress_size}")
            for entry in entries:
                with archive.open(entry) as stream:
                    _check_entry(path, entry.filename, stream)
            return [e.filename for e in entries]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path} cannot be read ({type(error).__name__}: {str(error)[:200]}); it is no archive that torch.jit.save or torch.export.save wrote") from error


def _check_entry(path: Path, name: str, stream: IO[bytes]) -> None:
    if name.endswith((".pkl",)) and "/code/" not in name and not name.endswith(".debug_pkl"):
        _check_pickle(path, name, stream.read())
    elif name.endswith(".pt"):
        inner = io.BytesIO(stream.read())
        if zipfile.is_zipfile(inner):
            with zipfile.ZipFile(inner) as archive:
                for entry in archive.infolist():
                    if entry.filename.endswith(".pkl"):
                        _check_pickle(path, f"{name}/{entry.filename}", archive.read(entry))
        else:
            _check_pickle(path, name, inner.getvalue())
    elif name.endswith(".json") and "/models/" in name:
        for text in _expressions(json.loads(stream.read())):
            _check_expression(path, name, text)
    elif name.endswith((".so", ".dll", ".dylib")):
        raise ModelError(f"{path} is refused: its entry {name!r} is machine code; export the program without compiling it")


def _check_pickle(path: Path, name: str, data: bytes) -> None:
    """Only what tensors are made of: whatever else a pickle names would be called when it is read."""
    strings: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(data):
            if isinstance(argument, str) and "UNICODE" in code.name:
                strings.append(argument)
            elif code.name in ("GLOBAL", "INST"):
                _check_global(path, name, *str(argument).split(" ", 1))
            elif code.name == "STACK_GLOBAL":
                _check_global(path, name, *(strings[-2:] if len(strings) > 1 else ("?", "?")))
            elif code.name in ("EXT1", "EXT2", "EXT4"):
                _check_global(path, name, "copyreg", "extension")
    except (ValueError, IndexError) as error:
        raise ModelError(f"{path} is damaged: {name} is no pickle ({error})") from error


def _check_global(path: Path, name: str, module: str, found: str = "") -> None:
    if module.startswith("__torch__"):
        return  # a class of the module's own, which TorchScript reads as data
    if module in _MODULES and (found in _SAFE or (module == "torch" and found.endswith(_TORCH_KINDS)) or (module == "torch" and found.startswith(_TORCH_KINDS))):
        return
    raise ModelError(f"{path} is refused: {name} would call {module}.{found} when it is read, and files are read without running code from them; save the model "
                     "with torch.jit.save or torch.export.save")


def _expressions(value: Any) -> list[str]:
    """The texts of symbolic sizes anywhere in the program."""
    found, stack = [], [value]
    while stack:
        v = stack.pop()
        if isinstance(v, dict):
            found += [x for k, x in v.items() if k == "expr_str" and isinstance(x, str)]
            stack += v.values()
        elif isinstance(v, list):
            stack += v
    return found


def _check_expression(path: Path, name: str, text: str) -> None:
    """Arithmetic of symbols: torch evaluates it as Python."""
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: {name} has the size {text[:80]!r}") from error
    for node in nodes:
        calls = isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _NAMES)
        odd = isinstance(node, (ast.Attribute, ast.Subscript, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.JoinedStr))
        if calls or odd or (isinstance(node, ast.Name) and node.id.startswith("_")):
            raise ModelError(f"{path} is refused: {name} has the size {text[:80]!r}, which is no arithmetic")
