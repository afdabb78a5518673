"""Conformance suites that are too large to come along: the models that Relay's tests built, and the node tests of older
releases of ONNX.

`suites.py` says where they are looked for; each is a folder or an archive of cases (`onnx_suite.folder_cases`):
`relay_onnx.tar.xz`, and ONNX's wheels (`pip download --no-deps onnx==1.16.2`, any platform).
"""

from __future__ import annotations

import pytest

import daily
from onnx_suite import Case, Outcome, folder_cases, run
from onnx_verdict import APART
from suites import suite_folder

pytestmark = pytest.mark.slow
PARTS = 20
GLOBS = {"relay": "relay_onnx*", "1.12.0": "onnx-1.12.0*", "1.16.2": "onnx-1.16.2*"}
REFUSED = {
    "relay": {
        "test_dft__1": "attribute 'axis' is not one of DFT at opset 21",
        "test_linear_regressor__5": "3 coefficients are given, but 1 outputs of 4 features need 4",
        "test_multinomial__1": "its input must be a matrix",
    },
    "1.12.0": {}, "1.16.2": {},
}
"""Models that contradict the specification, and why they are refused."""
UNKNOWN = {"test_onehot__1", "test_upsample3d_trilinear__1"}
"""Without data, and ONNX's reference implementation does not know the types or the operator."""
_MENDED = {"node/test_adam_multiple", *(
    f"node/test_qlinearmatmul_{n}D_int8_float{bits}" for n in (2, 3) for bits in (16, 32)
),
           "node/test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True"}
"""What newer releases of ONNX expect otherwise for the same inputs."""
APART_FROM_FILES = {f"test_random_bernoulli__{k}" for k in (3, 4, 5, 6)} | _MENDED
APART_FROM_FILES |= {
    name for name in APART if "bernoulli" in name or "dropout" in name or name.endswith("_align_corners")
}
"""Files that differ from ONNX's reference implementation: Bernoulli with the probabilities the wrong way round, and
what newer releases mended; and the cases of `onnx_verdict.APART`: numbers drawn of which a few are compared, and
resizes to a fractional length."""


def suite(name: str) -> list[Case]:
    """The cases; skips the test when they are not there."""
    return [c for c in folder_cases(suite_folder(GLOBS[name])) if "real/" not in c.name]


@pytest.mark.parametrize("part", daily.sample(range(PARTS), max(1, PARTS // 3), "older suites"))
@pytest.mark.parametrize("name", GLOBS)
def test_every_case_is_right_or_known_to_be_refused(name: str, part: int) -> None:
    outcomes: dict[str, Outcome] = {c.name: run(c) for c in suite(name)[part::PARTS]}
    assert not {
        case: o.wrong for case, o in outcomes.items() if o.wrong
    }, "wrong answers, or errors that are none of ours"
    refused = {case: o.refused for case, o in outcomes.items() if o.refused}
    known = {case: why for case, why in REFUSED[name].items() if case in outcomes}
    assert refused.keys() == known.keys(), refused
    assert all(why in refused[case] for case, why in known.items()), refused
    assert {case for case, o in outcomes.items() if o.unknown} == UNKNOWN & outcomes.keys()
    assert {case for case, o in outcomes.items() if o.apart} == APART_FROM_FILES & outcomes.keys()
