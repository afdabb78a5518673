"""Sources of models: a model's name, its inputs, its program as Relay, and its identity in the cache."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import __version__
from tilewright.compiler.cache import Cache
from tilewright.compiler.digests import digest_external, digest_model
from tilewright.compiler.formats import RELAY, Format, Signature, format_of
from tilewright.compiler.report import BuildReport

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.relay.expr import Function


class ModelSource(ABC):
    """A model before it is compiled."""

    name: str
    signature: Signature
    """Names, dimensions and dtypes of the inputs."""
    content: str
    """Digest of the model, equal in every process; empty if the cache keeps no programs of it, because a digest
    would take as long as compiling."""

    @abstractmethod
    def read(self, shapes: Mapping[str, Any], report: BuildReport) -> IRModule:
        """Return the program for these shapes of its inputs. Raises the errors of its frontend."""

    @abstractmethod
    def module_of(self, function: Function) -> IRModule:
        """Return a module whose `main` is a part of the model."""


class FileSource(ModelSource):
    """A file, its bytes, or an object of its format's own package."""

    def __init__(self, model: Any, shapes: Mapping[str, Any], cache: Cache, report: BuildReport) -> None:
        """Read the signature, from the cache if possible. Raises `ModelError`."""
        self._model, self._shapes = model, shapes
        self.name = Path(model).stem if isinstance(model, (str, os.PathLike)) else "model"
        with report.phase("hash"):
            content = self._digest(cache)
        found = format_of(model)
        content += _identity(found)
        key = build_key("signature", content, json.dumps(shapes, default=str))
        stored = cache.get(key)
        if stored is None:
            with report.phase("import"):
                stored = json.dumps(found.survey(model, shapes)).encode()
            cache.put(key, stored)
        inputs, locations = json.loads(stored)
        self.signature = [(str(n), list(d), str(t)) for n, d, t in inputs]
        with report.phase("hash"):
            self.content = f"{content}|{digest_external(model, locations, cache)}"

    def read(self, shapes: Mapping[str, Any], report: BuildReport) -> IRModule:
        with report.phase("import"):
            return format_of(self._model).read(self._model, shapes)[0]

    def module_of(self, function: Function) -> IRModule:
        from tilewright.ir.module import IRModule

        return IRModule.from_expr(function)

    def _digest(self, cache: Cache) -> str:
        """Return the digest of the model itself, while a thread imports modules that are needed later."""
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(digest_model, self._model, cache)
            from tilewright.backends.cpu.llvm import jit  # noqa: F401
        try:
            return made.result()
        except (OSError, TypeError):
            # raises the ModelError that says what is wrong with something that has no content
            format_of(self._model).survey(self._model, self._shapes)
            raise


def build_key(kind: str, *parts: str) -> str:
    """Return a cache key for results of this build of the compiler."""
    return Cache.key(kind, __version__, compiler_fingerprint(), *parts)


def source_of(model: Any, shapes: Mapping[str, Any], cache: Cache, report: BuildReport) -> ModelSource:
    """Return the source of a model: a file, or a program in memory."""
    is_text = isinstance(model, (str, os.PathLike)) and format_of(model) is RELAY
    # tested by name, so that other objects import nothing
    if not is_text and not type(model).__module__.startswith("tilewright."):
        return FileSource(model, shapes, cache, report)
    from tilewright.compiler.relay_source import RelaySource

    return RelaySource(RELAY.read(model, shapes)[0] if is_text else model)


def _identity(form: Format) -> str:
    """Return a key for a frontend of another package; empty for built-in frontends."""
    spec = importlib.util.find_spec(form.package) if form.package else None
    return "" if spec is None or spec.origin is None else f"|{_fingerprint(Path(spec.origin).parent)}"


def compiler_fingerprint() -> str:
    """Return a key that changes whenever a file of the compiler changes."""
    return _fingerprint(Path(__file__).parent.parent)


@functools.cache
def _fingerprint(root: Path) -> str:
    stats = ((p, p.stat()) for p in sorted(root.rglob("*.py")))
    return hashlib.sha256(
        "|".join(f"{p.relative_to(root)}:{s.st_size}:{s.st_mtime_ns}" for p, s in stats).encode()
    ).hexdigest()
