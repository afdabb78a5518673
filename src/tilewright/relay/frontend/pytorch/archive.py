"""Checks archives of PyTorch, and writes fresh ones of what was checked: torch opens those alone, so nothing of a file is executed.

Refused are: archives that two readers may understand differently (`zip_reader.py`), pickles that name anything but tensors and plain containers,
TorchScript that does more while it is loaded than pack weights, and machine code. The texts of exported programs are written anew (`program_json.py`).
"""

from __future__ import annotations

import ast
import contextlib
import io
import pickletools
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from tilewright.errors import ModelError
from tilewright.relay.frontend.pytorch.program_json import checked_payloads, checked_program
from tilewright.relay.frontend.pytorch.zip_reader import (
    AmbiguousArchiveError,
    DamagedArchiveError,
    Entry,
    read_chunks,
    read_entries,
    read_entry,
)

_MAX_TEXT_BYTES: Final = 1 << 30
"""Bytes of one pickle, table or text of code: these are read whole."""
_MACHINE_CODE: Final = frozenset({".so", ".dll", ".dylib", ".o", ".a", ".cpp", ".cubin"})
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
_WORKING: Final = (ast.While, ast.For, ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp, ast.Import, ast.ImportFrom, ast.JoinedStr)
_PACKS: Final = re.compile(r"ops\.quantized\.[a-z0-9_]+_prepack|torch\.(eq|ne|__is__|__isnot__)|annotate|unchecked_cast")
"""What the `__setstate__` of a quantized layer may call."""
_CLASSES: Final = re.compile(r"__torch__\.torch\.classes\.(quantized|rnn)(\..*)?|__torch__(?!\.torch\.classes).*")
"""Modules of classes that TorchScript reads as data; those of torch in C++ are the packed weights of quantized and recurrent layers."""
_TOUCHES_FILES: Final = frozenset({"save", "load", "from_file", "load_tensor"})
_LEGACY: Final = "serialized_exported_program.json"
_TABLES: Final = (("weights", "model_weights_config.json", "serialized_state_dict.pt"), ("constants", "model_constants_config.json", "serialized_constants.pt"))


@contextlib.contextmanager
def checked_copy(path: Path) -> Iterator[tuple[str, Path]]:
    """Write what was checked of an archive into a private file, which is there inside the `with` block.

    Gives "torch.export", "TorchScript", or "" for neither, and the file. Raises `ModelError` where the archive is damaged or refused.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-torch-") as folder:
        try:
            with path.open("rb") as file:
                if file.read(1) in (b"\x80", b"("):
                    raise ModelError(f"{path} is a pickle, as torch.save wrote them before version 1.6; reading one runs code from it, so it is not read: save the module with "
                                     "torch.jit.trace(module, inputs).save(path), or torch.export.save", code="TW0104")
                kind = _write(path, file, Path(folder) / "model.pt2")
        except AmbiguousArchiveError as error:
            raise ModelError(f"{path} is refused: {error}; save the model again", code="TW0104") from error
        except (DamagedArchiveError, OSError) as error:
            raise ModelError(f"{path} cannot be read ({str(error)[:200]}); it is no archive that torch.jit.save or torch.export.save wrote", code="TW0102") from error
        yield kind, Path(folder) / "model.pt2"


def _write(path: Path, file: IO[bytes], fresh: Path) -> str:
    entries = _entries(path, "", file)
    for entry in entries.values():
        _check_entry(path, entry.name, file, entry)
    root = next(iter(entries), "").split("/")[0]
    names = {n.removeprefix(f"{root}/") for n in entries if n.startswith(f"{root}/")}
    if _LEGACY in entries:
        contents = _legacy_program(path, file, entries)
    elif "models/model.json" in names:
        contents = _exported_program(path, file, {n.removeprefix(f"{root}/"): e for n, e in entries.items()})
    elif "constants.pkl" in names or any(n.startswith("code/") for n in names):
        _check_root(path, entries, root)
        contents = ((n.removeprefix(f"{root}/"), read_chunks(file, e)) for n, e in entries.items())
    else:
        return ""
    is_script = "models/model.json" not in names and _LEGACY not in entries
    with zipfile.ZipFile(fresh, "x", zipfile.ZIP_STORED) as archive:
        for name, chunks in contents:
            with archive.open(zipfile.ZipInfo(f"model/{name}"), "w", force_zip64=True) as stream:
                for chunk in chunks:
                    stream.write(chunk)
    return "TorchScript" if is_script else "torch.export"


def _check_root(path: Path, entries: dict[str, Entry], root: str) -> None:
    """All is in one folder: torch reads only the one that it meets first."""
    other = next((n for n in entries if not n.startswith(f"{root}/")), None)
    if other is not None:
        raise ModelError(f"{path} is refused: its entry {other!r} is outside of the folder {root!r} of the archive", code="TW0104")


def _entries(path: Path, within: str, file: IO[bytes]) -> dict[str, Entry]:
    """The entries of an archive by name; `within` is the entry that the archive is in."""
    where = f" in {within}" if within else ""
    try:
        entries = read_entries(file)
    except AmbiguousArchiveError as error:
        raise ModelError(f"{path} is refused: {error}{where}; save the model again", code="TW0104") from error
    for entry in entries:
        parts = PurePosixPath(entry.name)
        if parts.suffix in _MACHINE_CODE or "aotinductor" in parts.parts:
            raise ModelError(f"{path} is refused: its entry {entry.name!r} is machine code; export the program without compiling it", code="TW0104")
    return {e.name: e for e in entries if not e.name.endswith("/")}


def _whole(path: Path, file: IO[bytes], entry: Entry) -> bytes:
    if entry.size > _MAX_TEXT_BYTES:
        raise ModelError(f"{path} is refused: its entry {entry.name!r} has {entry.size} bytes; the limit for pickles and texts is {_MAX_TEXT_BYTES}", code="TW0104")
    return read_entry(file, entry)


def _check_entry(path: Path, name: str, file: IO[bytes], entry: Entry) -> None:
    suffix = PurePosixPath(name.lower()).suffix
    if suffix in (".pkl", ".debug_pkl"):
        _check_pickle(path, name, _whole(path, file, entry))
    elif suffix == ".pt":
        _check_tensors(path, name, _whole(path, file, entry))
    elif suffix == ".py":
        _check_code(path, name, _whole(path, file, entry))


def _check_tensors(path: Path, name: str, data: bytes) -> None:
    """What torch.save wrote into an entry: an archive again. In its older form one pickle follows the other, and no tensors need it."""
    if data[:4] != b"PK\3\4":
        if data:
            raise ModelError(f"{path} is refused: {name} is no archive, and would be read as a pickle of the oldest form; export the program again", code="TW0104")
        return
    inner = io.BytesIO(data)
    for entry in _entries(path, name, inner).values():
        _check_entry(path, f"{name}/{entry.name}", inner, entry)


# Exported programs


def _exported_program(path: Path, file: IO[bytes], entries: dict[str, Entry]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The entries of a fresh archive, by name: the program, its tables, and the tensors that they name."""
    yield from _program(path, _whole(path, file, entries["models/model.json"]))
    for folder, table, _ in _TABLES:
        old = entries.get(f"data/{folder}/model.pt")
        if old is not None:
            yield f"data/{folder}/model.pt", iter([_tensors(path, old.name, _whole(path, file, old))])
            continue
        entry = entries.get(f"data/{folder}/{table}")
        if entry is None:
            raise ModelError(f"{path} is damaged: it has no entry data/{folder}/{table}", code="TW0103")
        prefix = f"data/{folder}/"
        sizes = {n.removeprefix(prefix): e.size for n, e in entries.items() if n.startswith(prefix)}
        text, named = checked_payloads(f"{path}: {table}", _whole(path, file, entry), sizes)
        yield f"{prefix}{table}", iter([text])
        for name in named:
            yield prefix + name, read_chunks(file, entries[prefix + name])


def _legacy_program(path: Path, file: IO[bytes], entries: dict[str, Entry]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The entries of a fresh archive for a program as PyTorch wrote it before version 2.8."""
    yield from _program(path, _whole(path, file, entries[_LEGACY]))
    for folder, _, old in _TABLES:
        if old not in entries:
            raise ModelError(f"{path} is damaged: it has no entry {old}", code="TW0103")
        yield f"data/{folder}/model.pt", iter([_tensors(path, old, _whole(path, file, entries[old]))])


def _program(path: Path, text: bytes) -> Iterator[tuple[str, Iterator[bytes]]]:
    """What each archive has. Inputs that the program was exported with are not needed."""
    fixed = {"models/model.json": checked_program(f"{path}: model.json", text), "archive_format": b"pt2", "archive_version": b"0", ".data/version": b"6\n",
             "data/sample_inputs/model.pt": b""}
    for name, data in fixed.items():
        yield name, iter([data])


def _tensors(path: Path, name: str, data: bytes) -> bytes:
    """Tensors by name, read by torch's reader of tensors alone and written again: torch.export reads a pickle of any kind where that one fails."""
    if not data:
        return b""
    import torch

    try:
        found = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception as error:  # whatever torch finds wrong with the entry
        raise ModelError(f"{path} is refused: {name} has more than tensors ({' '.join(str(error).split())[:200]}); export the program again", code="TW0104") from error
    made = io.BytesIO()
    torch.save(found, made)
    return made.getvalue()


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
    if _CLASSES.fullmatch(module):
        return
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
        if isinstance(node, ast.Attribute) and node.attr in _TOUCHES_FILES and ast.unparse(node.value).startswith(("torch", "ops")):
            raise ModelError(f"{path} is refused: {name} calls {ast.unparse(node)[:80]}, which reads or writes files; save the module without it", code="TW0104")
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
