"""Reads PyTorch files without executing anything in them.

torch opens only a new archive, which `archive.py` wrote from checked parts.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from pathlib import Path
from typing import Any

from tilewright.base.errors import ModelError, PackageError
from tilewright.relay.frontend.pytorch.archive import checked_copy


def read_model(model: Any) -> tuple[Any, str]:
    """The module or exported program, and its file name; raises `ModelError` for anything else."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.exists():
            raise ModelError(f"file {path} does not exist; check the path", code="TW0101")
        if importlib.util.find_spec("torch") is None:
            what = (f"{path.name} is a PyTorch archive, and reading it needs the package torch; install it: pip "
                    "install torch")
            raise PackageError(f"{what}; or export the model to ONNX")
        return _load(path), str(path)
    if (hasattr(model, "graph_signature") or hasattr(model, "inlined_graph")
            or (hasattr(model, "graph") and type(model).__module__.startswith("torch.jit"))):
        return model, ""
    if type(model).__name__ == "ScriptFunction" or hasattr(model, "graph"):
        return model, ""
    raise ModelError(f"a {type(model).__name__} is not a TorchScript module, an exported program, or a path of one; "
                     "trace the module with torch.jit.trace, or export it with torch.export.export(module, "
                     "inputs)", code="TW0102")


def _load(path: Path) -> Any:
    import torch

    said = _Said()
    logger = logging.getLogger("torch.export")
    with checked_copy(path) as (kind, fresh):
        logger.addFilter(said)
        try:
            if kind == "torch.export":
                return torch.export.load(fresh)
            if kind == "TorchScript":
                with warnings.catch_warnings():
                    # TorchScript itself is deprecated; its files are still supported
                    warnings.simplefilter("ignore", DeprecationWarning)
                    return torch.jit.load(str(fresh), map_location="cpu")
        except Exception as error:  # any error of torch here is a fault of the file
            found = said.error or error
            text = " ".join(str(found).replace(str(fresh), str(path)).split())[:300]
            raise ModelError(f"{path} cannot be read: {type(found).__name__}: {text}", code="TW0102") from error
        finally:
            logger.removeFilter(said)
    raise ModelError(f"{path} contains only weights, without the program that uses them; save the module with "
                     "torch.jit.trace(...).save, or torch.export.save", code="TW0102")


class _Said(logging.Filter):
    """Keeps the first error that torch.export logs before it raises another, and suppresses the output."""

    error: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if self.error is None and record.exc_info:
            self.error = record.exc_info[1]
        return False
