"""The conformance tests that come with ONNX, compiled and run through `tilewright.onnx_backend`.

`python tests/onnx_suite.py --write` makes docs/onnx_refused.md, the list of what is refused and why. With folders as arguments,
it runs the cases in these: each a folder with `model.onnx` and `test_data_set_*`, as older releases of ONNX carry them.
"""

from __future__ import annotations

import collections
import functools
import itertools
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import tilewright.onnx_backend as backend
from tilewright.errors import CompileError, NotNativeWarning

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
PAGE = Path(__file__).parent.parent / "docs" / "onnx_refused.md"
_HEAD = "| reason | cases |"
RTOL, ATOL = 1e-3, 1e-7
DataSets = Sequence[tuple[Sequence[Any], Sequence[Any]]]
Values = Sequence[Any]


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
    """Why the suite's values say nothing of ours, which are right by a check of their own (`APART`)."""
    wrong: str = ""
    """What is wrong with the answer, or the error that is none of ours."""
    native: bool = False
    """Whether it passes and all of it ran compiled."""

    @property
    def passed(self) -> bool:
        return not (self.refused or self.apart or self.wrong)


@functools.cache
def cases() -> tuple[Case, ...]:
    """Every case of the installed release whose model is there, `kind/name` by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero and overflows on purpose
        found = [_wheel_case(kind, test) for kind in KINDS for test in load_model_tests(kind=kind)]
    return tuple(sorted(found, key=lambda c: c.name))


def folder_cases(folder: Path) -> Iterator[Case]:
    """The cases in the folders under `folder`; tolerances are in `meta.json` or `data.json` where there is one."""
    for path in sorted(folder.rglob("model.onnx")):
        said: dict[str, Any] = {}
        for name in ("meta.json", "data.json"):
            if (path.parent / name).exists():
                said.update(json.loads((path.parent / name).read_text()))
        yield Case(str(path.parent.relative_to(folder)), functools.partial(_load_folder, path.parent), said.get("rtol", RTOL), said.get("atol", ATOL))


def run(case: Case) -> Outcome:
    """Compile the model and compare its answers with those of the suite, within the suite's tolerances."""
    apart = ""
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            model, data_sets = case.load()
            prepared = backend.prepare(model)
            for inputs, outputs in data_sets:
                given, wanted = [_value(x) for x in inputs], [_value(y) for y in outputs]
                got = [*map(_plain, prepared.run(given))]
                apart = compare(given, wanted, got, case) or apart
        except CompileError as error:
            return Outcome(refused=error.message)
        except Exception as error:  # whatever it is, it is reported as this case's failure
            return Outcome(wrong=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Outcome(apart=apart, native=not apart and not any(issubclass(w.category, NotNativeWarning) for w in said))


def compare(given: Values, wanted: Values, got: Values, case: Case) -> str:
    """Raise an `AssertionError` where an answer is wrong; why the suite's own values are not what it must be, where they are not."""
    try:
        similar(wanted, got, case)
    except AssertionError:
        if case.name not in APART:
            raise
        why, check = APART[case.name]
        check(given, wanted, got, case)
        return why
    return ""


def similar(wanted: Values, got: Values, case: Case) -> None:
    """As the suite compares, by its tolerances; a sequence element by element, since its runner takes an array in one for a list of numbers."""
    if len(wanted) != len(got):
        raise AssertionError(f"{len(wanted)} values were expected, and there are {len(got)}")
    for a, b in zip(wanted, got, strict=True):
        if isinstance(a, list) and isinstance(b, list):
            similar(a, b, case)
        else:
            Runner.assert_similar_outputs([a], [b], case.rtol, case.atol, case.name)


def zeros_and_ones(given: Values, wanted: Values, got: Values, case: Case) -> None:
    """`got` are arrays of the expected shapes and types, of zeros and ones."""
    for a, b in zip(wanted, got, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype) and set(np.unique(b)) <= {0, 1}, case.name


def exact_inverse(given: Values, wanted: Values, got: Values, case: Case) -> None:
    """`got` is the inverse Fourier transform of the first input along its second dimension, computed in double precision."""
    found = np.fft.ifft(given[0].astype(np.float64) @ np.array([1, 1j]), axis=1)
    similar([np.stack([found.real, found.imag], -1).astype(wanted[0].dtype)], got, case)


_OWN_NUMBERS = "ONNX leaves the numbers of a generator to the implementation, even with a seed; shape, type and that all are 0 or 1 are compared"
_IN_SINGLE = "the expected values were computed in single precision, with errors beyond the tolerance; an inverse transform in double precision is compared"
APART: dict[str, tuple[str, Callable[[Values, Values, Values, Case], None]]] = {
    **{f"node/test_bernoulli{kind}": (_OWN_NUMBERS, zeros_and_ones) for kind in itertools.chain(*((k, f"{k}_expanded") for k in ("", "_double", "_seed")))},
    **{f"node/test_dft_inverse{kind}": (_IN_SINGLE, exact_inverse) for kind in ("", "_opset19")},
}
"""Cases whose values are not what the specification says they must be: why, and what is compared in place of them."""


def reasons(outcomes: Mapping[str, Outcome]) -> tuple[dict[str, str], dict[str, str]]:
    """Why cases are refused, and why others are not compared with the suite's values: what belongs on the page."""
    refused, apart = ({name: said for name, o in outcomes.items() if (said := _cell(getattr(o, what)))} for what in ("refused", "apart"))
    return refused, apart


def page(refused: dict[str, str], apart: dict[str, str]) -> str:
    """The lists of the refused cases and of those that are not compared with the suite's values, by reason."""
    lines = [
        "# What is refused of ONNX's conformance suite", "",
        f"Release {onnx.__version__} of ONNX; every other case of it passes. `python tests/onnx_suite.py --write` makes this page, and the tests compare it.", "",
        *_table(refused), "", "Compared with other values than those of the suite:", "", *_table(apart),
    ]
    return "\n".join(lines) + "\n"


def _table(reasons: dict[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = collections.defaultdict(list)
    for name, why in sorted(reasons.items()):
        by_reason[why].append(name)
    return [_HEAD, "| --- | --- |", *(f"| {why} | {' '.join(names)} |" for why, names in sorted(by_reason.items()))]


def listed() -> dict[str, str]:
    """Why each case is on the page, by its name."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and line not in (_HEAD, "| --- | --- |")]
    return {name: why.strip() for _, why, names, _ in (re.split(r"(?<!\\)\|", row) for row in rows) for name in names.split()}


def _cell(why: str) -> str:
    return " ".join(why.split()).replace("|", "\\|")[:240]


def _wheel_case(kind: str, test: Any) -> Case:
    name = f"{kind}/{test.name}"
    if test.model is not None:
        return Case(name, lambda: (test.model, test.data_sets), test.rtol, test.atol)
    if test.model_dir is not None:
        return Case(name, functools.partial(_load_folder, Path(test.model_dir)), test.rtol, test.atol)
    return Case(name, functools.partial(_load_light, Path(onnx.__file__).parent.parent / test.url), test.rtol, test.atol)


def _load_folder(folder: Path) -> tuple[onnx.ModelProto, DataSets]:
    model = onnx.load(folder / "model.onnx")
    given = [i.type for i in model.graph.input]
    made = [o.type for o in model.graph.output]
    sets = [(_files(d, "input", given), _files(d, "output", made)) for d in sorted(folder.glob("test_data_set_*"))]
    return model, sets


def _files(folder: Path, what: str, types: Sequence[TypeProto]) -> list[Any]:
    paths = ((folder / f"{what}_{k}.pb", t) for k, t in enumerate(types))
    return [_parsed(path.read_bytes(), kind) for path, kind in paths if path.exists()]


def _load_light(path: Path) -> tuple[onnx.ModelProto, DataSets]:
    """A whole network without weights of its own, whose input the suite makes up."""
    model = onnx.load(path)
    stored = {t.name for t in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(i, name=path.stem) for i in model.graph.input if i.name not in stored]
    outputs = [_parsed((path.parent / f"{path.stem}_output_{k}.pb").read_bytes(), o.type) for k, o in enumerate(model.graph.output)]
    return model, [(inputs, outputs)]


def _parsed(data: bytes, kind: TypeProto) -> Any:
    which = kind.WhichOneof("value")
    proto = onnx.SequenceProto() if which == "sequence_type" else onnx.OptionalProto() if which == "optional_type" else onnx.TensorProto()
    proto.ParseFromString(data)
    return _value(proto)


def _value(x: Any) -> Any:
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    return [*map(_value, x)] if isinstance(x, (list, tuple)) else x


def _plain(x: Any) -> Any:
    return [*map(_plain, x)] if isinstance(x, (list, tuple)) else None if x is None else np.asarray(x)


def main(arguments: Sequence[str]) -> int:
    """Run the suite, or the cases in folders; say what is not as it should be."""
    folders: Iterable[str] = [a for a in arguments if not a.startswith("-")]
    chosen = [c for f in folders for c in folder_cases(Path(f))] or cases()
    outcomes = {c.name: run(c) for c in chosen}
    for name, o in outcomes.items():
        if o.wrong or (folders and o.refused):
            print(f"{name}: {o.wrong or o.refused}")
    if "--write" in arguments:
        PAGE.write_text(page(*reasons(outcomes)), encoding="utf-8")
    counts = {what: sum(bool(getattr(o, what)) for o in outcomes.values()) for what in ("passed", "native", "apart", "refused", "wrong")}
    print(f"{len(outcomes)} cases: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache
        sys.exit(main(sys.argv[1:]))
