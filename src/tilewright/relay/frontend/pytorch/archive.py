"""Checks PyTorch archives and rewrites the checked parts to a new archive, the only one that torch opens.

So nothing in a file is executed. Refused are archives that two readers may parse differently (`zip_reader.py`) and
machine code. Pickles may only name tensors and plain containers (`pickles.py`), and TorchScript may only compute
(`script_code.py`). The JSON texts of exported programs are rewritten (`program_json.py`).
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from tilewright.base.errors import ModelError
from tilewright.relay.frontend.pytorch.pickles import check_pickle
from tilewright.relay.frontend.pytorch.program_json import checked_payloads, checked_program
from tilewright.relay.frontend.pytorch.script_code import check_code
from tilewright.relay.frontend.pytorch.zip_reader import (
    AmbiguousArchiveError,
    DamagedArchiveError,
    Entry,
    read_chunks,
    read_entries,
    read_entry,
)

_MAX_TEXT_BYTES: Final = 64 << 20
"""Largest size of a pickle, table or code file, in bytes; these are read whole."""
_MAX_TENSORS_BYTES: Final = 8 << 30
"""Largest size of a nested archive, in bytes; older versions of torch.export wrote these."""
_MACHINE_CODE: Final = frozenset({".so", ".dll", ".dylib", ".o", ".a", ".cpp", ".cubin"})
_SCRIPT_ENTRIES: Final = re.compile(
    r"(data|constants)(\.pkl|/.*)|code/.*\.py|version|byteorder|\.format_version|\.storage_alignment|\.data/.*")
"""Entries of a TorchScript archive that torch needs; not example inputs, extra files or source positions."""
_LEGACY: Final = "serialized_exported_program.json"
_TABLES: Final = (("weights", "model_weights_config.json", "serialized_state_dict.pt"),
                  ("constants", "model_constants_config.json", "serialized_constants.pt"))


@contextlib.contextmanager
def checked_copy(path: Path) -> Iterator[tuple[str, Path]]:
    """Check an archive, and write it to a private file that exists inside the `with` block.

    Yields its kind ("torch.export", "TorchScript", or "") and the file. Raises `ModelError` for a damaged or refused
    archive.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-torch-") as folder:
        try:
            with path.open("rb") as file:
                if file.read(1) in (b"\x80", b"("):
                    raise ModelError(f"{path} is a pickle, the format of torch.save before version 1.6. Reading it "
                                     "could run code, so it is not read; save the module with torch.jit.trace(module, "
                                     "inputs).save(path), or torch.export.save", code="TW0104")
                kind = _write(path, file, Path(folder) / "model.pt2")
        except AmbiguousArchiveError as error:
            raise ModelError(f"{path} is refused: {error}; save the model again", code="TW0104") from error
        except (DamagedArchiveError, OSError) as error:
            raise ModelError(f"{path} cannot be read ({str(error)[:200]}); it is not an archive of torch.jit.save or "
                             "torch.export.save", code="TW0102") from error
        yield kind, Path(folder) / "model.pt2"


def _write(path: Path, file: IO[bytes], fresh: Path) -> str:
    entries = _entries(path, "", file)
    checked = {name: data for name, e in entries.items() if (data := _checked(path, name, file, e)) is not None}
    root = next(iter(entries), "").split("/")[0]
    names = {n.removeprefix(f"{root}/") for n in entries if n.startswith(f"{root}/")}
    if _LEGACY in entries:
        contents = _legacy_program(path, file, entries)
    elif "models/model.json" in names:
        contents = _exported_program(path, file, {n.removeprefix(f"{root}/"): e for n, e in entries.items()})
    elif "constants.pkl" in names or any(n.startswith("code/") for n in names):
        contents = _script(path, file, entries, root, checked)
    else:
        return ""
    is_script = "models/model.json" not in names and _LEGACY not in entries
    with zipfile.ZipFile(fresh, "x", zipfile.ZIP_STORED) as archive:
        for name, chunks in contents:
            with archive.open(zipfile.ZipInfo(f"model/{name}"), "w", force_zip64=True) as stream:
                for chunk in chunks:
                    stream.write(chunk)
    return "TorchScript" if is_script else "torch.export"


def _script(path: Path, file: IO[bytes], entries: dict[str, Entry], root: str,
            checked: dict[str, bytes]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """The entries of the new archive for TorchScript: pickles and code are exactly the checked bytes."""
    _check_root(path, entries, root)
    for name, entry in entries.items():
        plain = name.removeprefix(f"{root}/")
        if _SCRIPT_ENTRIES.fullmatch(plain):
            if plain.endswith(".pkl"):
                check_pickle(path, name, checked[name], _records(entries, name))
            yield plain, [checked[name]] if name in checked else read_chunks(file, entry)


def _records(entries: dict[str, Entry], pickle: str) -> dict[str, int]:
    """The sizes of the records that a pickle refers to, by its names for them: `data/0` of `data.pkl` is `0`."""
    folder = f"{pickle.removesuffix('.pkl')}/"
    return {n.removeprefix(folder): e.size for n, e in entries.items() if n.startswith(folder)}


def _check_root(path: Path, entries: dict[str, Entry], root: str) -> None:
    """Refuse entries outside the root folder, because torch reads only the first folder in the archive."""
    other = next((n for n in entries if not n.startswith(f"{root}/")), None)
    if other is not None:
        raise ModelError(f"{path} is refused: its entry {other!r} is outside the archive's folder {root!r}",
                         code="TW0104")


def _entries(path: Path, within: str, file: IO[bytes]) -> dict[str, Entry]:
    """The entries of an archive by name; `within` names the enclosing entry of a nested archive."""
    where = f" in {within}" if within else ""
    try:
        entries = read_entries(file)
    except AmbiguousArchiveError as error:
        raise ModelError(f"{path} is refused: {error}{where}; save the model again", code="TW0104") from error
    for entry in entries:
        parts = PurePosixPath(entry.name)
        if parts.suffix in _MACHINE_CODE or "aotinductor" in parts.parts:
            raise ModelError(f"{path} is refused: its entry {entry.name!r} is machine code; export the program without "
                             "compiling it", code="TW0104")
    return {e.name: e for e in entries if not e.name.endswith("/")}


def _whole(path: Path, file: IO[bytes], entry: Entry, limit: int = _MAX_TEXT_BYTES) -> bytes:
    if entry.size > limit:
        raise ModelError(f"{path} is refused: its entry {entry.name!r} has {entry.size} bytes; the limit for pickles "
                         f"and texts is {limit}", code="TW0104")
    return read_entry(file, entry)


def _checked(path: Path, name: str, file: IO[bytes], entry: Entry) -> bytes | None:
    """Check a pickle or code file, and return its bytes; None for entries that are read later or not at all."""
    suffix = PurePosixPath(name.lower()).suffix
    if suffix == ".pkl":
        check_pickle(path, name, data := _whole(path, file, entry))
        return data
    if suffix == ".py":
        check_code(path, name, data := _whole(path, file, entry))
        return data
    if suffix == ".pt":
        _check_tensors(path, name, _whole(path, file, entry, _MAX_TENSORS_BYTES))
    return None


def _check_tensors(path: Path, name: str, data: bytes) -> None:
    """Check an entry written by torch.save: an archive with one pickle, or a series of pickles in the older form."""
    if data[:4] != b"PK\3\4":
        if data:
            raise ModelError(f"{path} is refused: {name} is not an archive, and would be read as a legacy pickle; "
                             "export the program again", code="TW0104")
        return
    inner = io.BytesIO(data)
    entries = _entries(path, name, inner)
    for entry in entries.values():
        suffix = PurePosixPath(entry.name.lower()).suffix
        if entry.size != entry.packed or suffix in (".pt", ".py"):
            raise ModelError(f"{path} is refused: {name} has the entry {entry.name!r}, which is compressed, an archive "
                             "or code; torch.save writes no such entries: export the program again", code="TW0104")
        if suffix == ".pkl":
            check_pickle(path, f"{name}/{entry.name}", _whole(path, inner, entry), _records(entries, entry.name))


# Exported programs


def _exported_program(path: Path, file: IO[bytes], entries: dict[str, Entry]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Generate the entries of the new archive by name: the program, its tables, and the tensors that they name."""
    yield from _program(path, _whole(path, file, entries["models/model.json"]))
    for folder, table, _ in _TABLES:
        old = entries.get(f"data/{folder}/model.pt")
        if old is not None:
            yield f"data/{folder}/model.pt", [_tensors(path, old.name, _whole(path, file, old, _MAX_TENSORS_BYTES))]
            continue
        entry = entries.get(f"data/{folder}/{table}")
        if entry is None:
            raise ModelError(f"{path} is damaged: it has no entry data/{folder}/{table}", code="TW0103")
        prefix = f"data/{folder}/"
        sizes = {n.removeprefix(prefix): e.size for n, e in entries.items() if n.startswith(prefix)}
        text, named = checked_payloads(f"{path}: {table}", _whole(path, file, entry), sizes)
        yield f"{prefix}{table}", [text]
        for name in named:
            yield prefix + name, read_chunks(file, entries[prefix + name])


def _legacy_program(path: Path, file: IO[bytes], entries: dict[str, Entry]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Generate the entries of the new archive for a program written before PyTorch 2.8."""
    yield from _program(path, _whole(path, file, entries[_LEGACY]))
    for folder, _, old in _TABLES:
        if old not in entries:
            raise ModelError(f"{path} is damaged: it has no entry {old}", code="TW0103")
        yield f"data/{folder}/model.pt", [_tensors(path, old, _whole(path, file, entries[old], _MAX_TENSORS_BYTES))]


def _program(path: Path, text: bytes) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Generate the entries that all archives have. Example inputs are not needed."""
    fixed = {"models/model.json": checked_program(f"{path}: model.json", text), "archive_format": b"pt2",
             "archive_version": b"0", ".data/version": b"6\n",
             "data/sample_inputs/model.pt": b""}
    for name, data in fixed.items():
        yield name, [data]


def _tensors(path: Path, name: str, data: bytes) -> bytes:
    """Tensors by name, read by torch's weights-only reader and rewritten, since torch.export's own reader may unpickle.
    """
    if not data:
        return b""
    _check_tensors(path, name, data)
    import torch

    try:
        found = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception as error:  # any error of torch about the entry
        raise ModelError(f"{path} is refused: {name} contains objects other than tensors "
                         f"({' '.join(str(error).split())[:200]}); export the program again", code="TW0104") from error
    made = io.BytesIO()
    torch.save(found, made)
    return made.getvalue()
