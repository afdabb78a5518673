"""The conformance tests that come with ONNX, compiled and run through `tilewright.onnx_backend`.

`python tests/onnx_suite.py --write` makes docs/onnx_refused.md, the list of what is refused and why. With folders as
arguments, it runs the cases in these: each a folder with `model.onnx` and `test_data_set_*`, as older releases of ONNX
carry them. An archive of such folders will do, also a wheel of ONNX. What the answers are compared with is in
`onnx_verdict`.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import tilewright.compat.onnx_backend as backend
from onnx_verdict import Answer, as_declared, made_up, plain, redeclare, reference, verdict
from suites import unpack
from tilewright.base.errors import CompileError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
PAGE = Path(__file__).parent.parent / "docs" / "onnx_refused.md"
_HEAD = "| reason | cases |"
RTOL, ATOL = 1e-3, 1e-7
DataSets = Sequence[tuple[Sequence[Any], Sequence[Any]]]


@dataclass(frozen=True)
class Case:
    """One test: a model, and what comes out for what goes in."""

    name: str
    load: Callable[[], tuple[onnx.ModelProto, DataSets]]
    rtol: float = RTOL
    atol: float = ATOL


@dataclass(frozen=True)
class Outcome:
    """What became of a case: nothing is said of one that passes."""

    refused: str = ""
    """Our message, when the model was refused."""
    apart: str = ""
    """Why the suite's values say nothing of ours, which are right by other values or a check of their own
    (`onnx_verdict`)."""
    wrong: str = ""
    """What is wrong with the answer, or the error that is none of ours."""
    unknown: bool = False
    """Whether nobody knows the right answer: the case has no data, and ONNX's reference implementation cannot run
    it."""
    native: bool = False
    """Whether it passes and all of it ran compiled."""

    @property
    def passed(self) -> bool:
        return not (self.refused or self.apart or self.wrong or self.unknown)


@functools.cache
def cases() -> tuple[Case, ...]:
    """Every case of the installed release whose model is there, `kind/name` by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero and overflows on purpose
        found = [_wheel_case(kind, test) for kind in KINDS for test in load_model_tests(kind=kind)]
    return tuple(sorted(found, key=lambda c: c.name))


def folder_cases(folder: Path) -> Iterator[Case]:
    """The cases in the folders under `folder`; tolerances are in `meta.json` or `data.json` where there is one."""
    found = sorted(folder.rglob("model.onnx"))
    top = os.path.commonpath([path.parent.parent for path in found]) if found else folder
    for path in found:
        said: dict[str, Any] = {}
        for name in ("meta.json", "data.json"):
            if (path.parent / name).exists():
                said.update(json.loads((path.parent / name).read_text()))
        yield Case(
            str(path.parent.relative_to(top)), functools.partial(_load_folder, path.parent), said.get("rtol", RTOL),
            said.get("atol", ATOL)
        )


def unpacked(path: Path, into: Path) -> Path:
    """`path` where it is a folder; of an archive, the folder in `into` that it was unpacked to."""
    if path.is_dir():
        return path
    target = into / path.name
    if not target.exists():
        unpack(path, target)
    return target


def run(case: Case) -> Outcome:
    """Compile the model and compare its answers with those of the suite, within the suite's tolerances."""
    apart = ""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model, data_sets = case.load()
            prepared = backend.prepare(model)
            for inputs, outputs in data_sets:
                given, wanted = plain(inputs), plain(outputs)
                got = [*map(_as_arrays, prepared.run(given))]
                apart = verdict(Answer(case.name, model, given, wanted, got, case.rtol, case.atol)) or apart
        except CompileError as error:
            return Outcome(refused=error.message)
        except Exception as error:  # whatever it is, it is reported as this case's failure
            return Outcome(wrong=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    known = bool(data_sets)
    return Outcome(apart=apart, unknown=not known, native=known and not apart and not prepared.model.in_python)


def reasons(outcomes: Mapping[str, Outcome]) -> tuple[dict[str, str], dict[str, str]]:
    """Why cases are refused, and why others are not compared with the suite's values: what belongs on the page."""
    refused, apart = (
        {name: said for name, o in outcomes.items() if (said := _cell(getattr(o, what)))}
        for what in ("refused", "apart")
    )
    return refused, apart


def page(refused: dict[str, str], apart: dict[str, str]) -> str:
    """The lists of the refused cases and of those that are not compared with the suite's values, by reason."""
    lines = [
        "# Exceptions in ONNX's conformance suite", "",
        f"This page lists the cases of release {onnx.__version__} that Tilewright refuses, and those that are compared "
        "with other values than the suite's.",
        "All other cases pass. `python tests/onnx_suite.py --write` writes this page, and the tests compare it.", "",
        *(_table(refused) if refused else ["No case is refused."]), "", "Compared with other values than the suite's:",
        "", *_table(apart),
    ]
    return "\n".join(lines) + "\n"


def _table(reasons: dict[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = collections.defaultdict(list)
    for name, why in sorted(reasons.items()):
        by_reason[why].append(name)
    return [_HEAD, "| --- | --- |", *(f"| {why} | {' '.join(names)} |" for why, names in sorted(by_reason.items()))]


def listed() -> dict[str, str]:
    """Why each case is on the page, by its name."""
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
        and line not in (_HEAD, "| --- | --- |")
    ]
    return {
        name: why.strip() for _, why, names,
        _ in (re.split(r"(?<!\\)\|", row) for row in rows) for name in names.split()
    }


def _cell(why: str) -> str:
    return " ".join(why.split()).replace("|", "\\|")[:240]


def _wheel_case(kind: str, test: Any) -> Case:
    name = f"{kind}/{test.name}"
    if test.model is not None:
        return Case(name, lambda: (test.model, test.data_sets), test.rtol, test.atol)
    if test.model_dir is not None:
        return Case(name, functools.partial(_load_folder, Path(test.model_dir)), test.rtol, test.atol)
    return Case(
        name, functools.partial(_load_light, Path(onnx.__file__).parent.parent / test.url), test.rtol, test.atol
    )


def _load_folder(folder: Path) -> tuple[onnx.ModelProto, DataSets]:
    model = onnx.load(folder / "model.onnx")
    given = [i.type for i in model.graph.input]
    made = [o.type for o in model.graph.output]
    sets = [(_files(d, "input", given), _files(d, "output", made)) for d in sorted(folder.glob("test_data_set_*"))]
    if any(outputs for _, outputs in sets):
        redeclare(model, sets[0][0])
        return model, sets
    inputs = made_up(model)  # the one who made the suite had no answer
    answer = reference(model, inputs)
    return model, [] if answer is None else [(inputs, answer)]


def _files(folder: Path, what: str, types: Sequence[TypeProto]) -> list[Any]:
    paths = ((folder / f"{what}_{k}.pb", t) for k, t in enumerate(types))
    return [as_declared(_parsed(path.read_bytes(), kind), kind) for path, kind in paths if path.exists()]


def _load_light(path: Path) -> tuple[onnx.ModelProto, DataSets]:
    """A whole network without weights of its own, whose input the suite makes up."""
    model = onnx.load(path)
    stored = {t.name for t in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(i, name=path.stem) for i in model.graph.input if i.name not in stored]
    outputs = [
        _parsed((path.parent / f"{path.stem}_output_{k}.pb").read_bytes(), o.type) for k,
        o in enumerate(model.graph.output)
    ]
    return model, [(inputs, outputs)]


def _parsed(data: bytes, kind: TypeProto) -> Any:
    which = kind.WhichOneof("value")
    proto = (
        onnx.SequenceProto() if which == "sequence_type" else onnx.OptionalProto() if which == "optional_type"
        else onnx.TensorProto()
    )
    proto.ParseFromString(data)
    return plain(proto)


def _as_arrays(x: Any) -> Any:
    return [*map(_as_arrays, x)] if isinstance(x, (list, tuple)) else None if x is None else np.asarray(x)


def main(arguments: Sequence[str]) -> int:
    """Run the suite, or the cases in folders and archives; say what is not as it should be."""
    given = [Path(a) for a in arguments if not a.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        chosen = [c for path in given for c in folder_cases(unpacked(path, Path(folder)))] or cases()
        outcomes = {c.name: run(c) for c in chosen}
    for name, o in outcomes.items():
        if o.wrong or (given and not o.passed):
            print(
                f"{name}: {o.wrong or o.refused or o.apart or 'it has no values, and the reference implementation of ONNX has none either'}"  # noqa: E501
            )
    if "--write" in arguments:
        PAGE.write_text(page(*reasons(outcomes)), encoding="utf-8")
    counts = {
        what: sum(bool(getattr(o, what)) for o in outcomes.values())
        for what in ("passed", "native", "apart", "refused", "unknown", "wrong")
    }
    print(f"{len(outcomes)} cases: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache
        sys.exit(main(sys.argv[1:]))
