"""Conformance cases of PyTorch programs in folders: `model.pt` (TorchScript), often `model.pt2` (torch.export),
`data.pth`, `meta.json`.

`python tests/torch_suite.py FOLDER…` runs the cases in them and says what fails; `--only TEXT` chooses by name, `--door
script` or `--door export` one way of two.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from suite_outcome import Outcome
from tilewright.base.errors import CompileError, NotNativeWarning
from tilewright.relay.frontend.pytorch import from_pytorch

ARBITRARY = {"randn", "rand", "multinomial", "bernoulli", "empty", "empty_like", "new_empty"}
"""Operators whose values nobody can know: drawn at random, or never written. Shapes and types are compared."""
DOORS = {"script": "model.pt", "export": "model.pt2"}


@dataclass(frozen=True)
class Case:
    """One program by one door."""

    folder: Path
    door: str

    @property
    def name(self) -> str:
        return f"{self.folder.name}/{self.door}"

    @property
    def said(self) -> dict[str, Any]:
        return json.loads((self.folder / "meta.json").read_text())  # type: ignore[no-any-return]


def cases(folder: Path) -> Iterator[Case]:
    """The cases in the folders under `folder`."""
    for meta in sorted(folder.rglob("meta.json")):
        yield from (Case(meta.parent, door) for door, file in DOORS.items() if (meta.parent / file).exists())


def run(case: Case) -> Outcome:
    """Compile the model and compare its answers with those of torch, within the case's tolerances."""
    import torch

    data = torch.load(case.folder / "data.pth", weights_only=True)
    with warnings.catch_warnings(record=True) as seen, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            got = _answers(case, data["inputs"])
            _compare(got, flat(data["outputs"]), case.said)
        except CompileError as error:
            return Outcome(refused=str(error))
        except Exception as error:  # whatever it is, it is reported as this case's failure
            return Outcome(wrong=f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
    return Outcome(native=not any(issubclass(w.category, NotNativeWarning) for w in seen))


def _answers(case: Case, inputs: Sequence[Any]) -> list[Any]:
    import torch

    path = case.folder / DOORS[case.door]
    infos = [(f"input{k}", _info(x)) for k, x in enumerate(inputs)]
    module, _ = from_pytorch(path, infos if case.door == "script" else None, freeze_params=True)
    arrays = [np.asarray(x.detach()) if isinstance(x, torch.Tensor) else np.asarray(x) for x in flat(inputs)]
    found = tilewright.compile(module)(*arrays)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _info(x: Any) -> Any:
    import torch

    if isinstance(x, torch.Tensor):
        return (tuple(x.shape), str(x.dtype).removeprefix("torch."))
    return [_info(v) for v in x] if isinstance(x, (list, tuple)) else ((), "int64" if isinstance(x, int) else "float32")


def flat(values: Any) -> list[Any]:
    """The tensors in nested lists."""
    if isinstance(values, dict):
        return [v for x in values.values() for v in flat(x)]
    return [
        v for x in values for v in flat(x)
    ] if isinstance(values, (list, tuple)) else [] if values is None else [values]


def _compare(got: Sequence[Any], wanted: Sequence[Any], said: dict[str, Any]) -> None:
    assert len(got) == len(wanted), f"{len(got)} outputs, and torch gives {len(wanted)}"
    for k, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        theirs = theirs.detach() if hasattr(theirs, "detach") else theirs
        if getattr(theirs, "is_quantized", False):
            theirs = theirs.int_repr()
        expected = np.asarray(theirs)
        assert mine.shape == expected.shape, f"output {k} has the shape {mine.shape}, and torch's {expected.shape}"
        assert mine.dtype == expected.dtype, f"output {k} is {mine.dtype}, and torch's {expected.dtype}"
        if not ARBITRARY & {name.removeprefix("aten::") for name in said["ops"]}:
            np.testing.assert_allclose(mine, expected, rtol=said["rtol"], atol=said["atol"])


def main(arguments: Sequence[str]) -> int:
    """Run the cases of folders; say what is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--door", choices=tuple(DOORS))
    options = parser.parse_args(arguments)
    chosen = [c for f in options.folders for c in cases(f) if options.only in c.name and options.door in (None, c.door)]
    counts: collections.Counter[str] = collections.Counter()
    for case in chosen:
        outcome = run(case)
        state = "pass" if outcome.passed else "refused" if outcome.refused else "wrong"
        counts[f"{case.door} {state}"] += 1
        counts["native"] += outcome.native
        if not outcome.passed:
            print(f"{case.name}: {state}: {outcome.refused or outcome.wrong}", flush=True)
    print(f"{len(chosen)} cases: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
    return int(any(what.endswith("wrong") for what in counts))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache
        sys.exit(main(sys.argv[1:]))
