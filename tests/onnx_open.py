"""The conformance tests that come with ONNX, with every dimension of every input open, compiled as one program each.

    x: float32[2, 3], y: float32[3]  ->  x: float32[d2, d3], y: float32[d3]

Equal sizes of a case are one symbol, sizes of 0 and 1 stay. Inputs whose values decide sizes or axes (`DECIDING`)
become constants. The program is called with the inputs of the case, and with larger ones filled with the values
of the case; the answers for these come from ONNX Runtime, or from ONNX's reference implementation.

`python tests/onnx_open.py --part 3 --of 12` prints how many cases pass, and a table of the refusals by message;
`-k NAME` chooses cases by name, `-v` prints a line for each.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

import tilewright
from onnx_suite import Case, cases
from onnx_verdict import Answer, by_chance, drawn_outputs, plain, reference, verdict
from small_models import onnxruntime_answers
from tilewright.base.errors import CompileError, InputError, OpenSizeWarning, ShapeError

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]

DECIDING: Final[Mapping[str, tuple[int, ...]]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,),
    "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,),
    "MaxUnpool": (2,), "MelWeightMatrix": (0, 1, 2, 3, 4), "OneHot": (1,), "Pad": (1, 3), "Range": (0, 1, 2),
    "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceMax": (1,),
    "ReduceMean": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceSum": (1,), "ReduceSumSquare": (1,),
    "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 3), "Slice": (1, 2, 3, 4), "Split": (1,), "SplitToSequence": (1,),
    "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Unsqueeze": (1,), "Upsample": (1,),
}
"""Inputs of operators whose values decide sizes or axes, by position."""
NEEDS_NUMBER: Final[Mapping[str, str]] = {
    "averagepool_2d_ceil_last_window_starts_on_pad|maxpool_2d_ceil_output_size_reduce_by_one":
        "whether the last window begins in the padding depends on a remainder of the size",
    "averagepool_2d_precomputed_same_upper": "the padding before and after an image depends on a remainder of the size",
    "causal_conv_with_state_(b1_c1_degenerate|short_input_no_past_state|decode_step)_expanded|convinteger_with_padding":
        "the kernel's size and channels decide how a convolution is computed",
    "det_2d|det_nd": "the number of rows of a matrix",
    "flexattention_(diff_head_sizes|gqa).*|linear_attention_gated_per_head_decay.*":
        "the numbers of heads and their elements",
    "gathernd_example_(float32|int32)|scatternd_(max|min)_with_element_indices":
        "the number of coordinates of an index",
    "maxpool_with_argmax_2d_precomputed_.*": "the indices of all elements in each window are a table",
    "maxunpool_export_with_output_shape": "output_shape is a number, and must be as large as the size requires",
    "resize_(down|up)sample_sizes_nearest_not_(larger|smaller)": "the scale is the least or greatest quotient of sizes",
    "sequence_(insert|map)_.*": "the inputs are lists of tensors",
    "slice_(start|end)_out_of_bounds|slice_neg_steps": "whether a bound lies within the dimension",
    "split_to_sequence_.*|sequence_model[67]": "the number of tensors in a list",
    "stft_with_window": "the length of the window, which is at most that of the signal",
}
"""The cases that are refused, as regular expressions, with the number that their meaning needs."""
LARGER: Final[tuple[Callable[[int], int], ...]] = (lambda n: 2 * n, lambda n: 2 * n + 1, lambda n: n + 13)
"""Sizes of further calls, for each size of the case."""
MOST_ELEMENTS: Final = 1 << 20
"""Elements of inputs up to which a case is called at a larger size."""
MOST_INTERPRETED: Final = 1 << 12
"""Elements of inputs up to which ONNX's reference implementation is asked; it computes windows one by one."""
MOST_ARBITRATED: Final = 1 << 17
"""Elements of inputs up to which it is asked where ONNX Runtime has another answer."""
RTOL, ATOL = 1e-3, 1e-4


@dataclass(frozen=True)
class Outcome:
    """The result of a case; no field is set where it passes."""

    refused: str = ""
    """The reason for which there is no program for all sizes, or none that accepts the sizes of the case."""
    wrong: str = ""
    """A wrong answer, or an error other than a refusal."""
    closed: bool = False
    """Whether no input has a dimension above 1."""
    sizes: int = 0
    """Number of larger sizes whose answers were compared."""

    @property
    def passed(self) -> bool:
        return not (self.refused or self.wrong or self.closed)


@dataclass(frozen=True)
class Opened:
    """A model with open dimensions, the shapes of its inputs in symbols, and the sizes of the case."""

    model: onnx.ModelProto
    shapes: Mapping[str, tuple[int | str, ...]]
    sizes: Sizes
    given: Mapping[str, Any]
    """The inputs of the case by name, without those that became constants."""

    def inputs(self, sizes: Sizes) -> dict[str, Any]:
        """Return inputs of these sizes, filled with values of the inputs of the case."""
        rng = np.random.default_rng(sum(sizes.values()))
        return {name: self._resized(name, x, sizes, rng) for name, x in self.given.items()}

    def elements(self, sizes: Sizes) -> int:
        """Return the number of elements of all inputs of these sizes."""
        return sum(math.prod(d if isinstance(d, int) else sizes[d] for d in dims) for dims in self.shapes.values())

    def _resized(self, name: str, x: Any, sizes: Sizes, rng: np.random.Generator) -> Any:
        if name not in self.shapes or not x.size:
            return x
        shape = [d if isinstance(d, int) else sizes[d] for d in self.shapes[name]]
        return rng.choice(x.reshape(-1), shape).astype(x.dtype)


def opened(model: onnx.ModelProto, inputs: Sequence[Any]) -> Opened:
    """Return the model with every dimension above 1 of its inputs as a symbol, and deciding inputs as constants."""
    model = _copied(model)
    graph = model.graph
    stored, deciding = {t.name for t in graph.initializer}, deciding_names(model)
    wanted = [i for i in graph.input if i.name not in stored]
    given: dict[str, Any] = dict(zip((i.name for i in wanted), inputs, strict=False))
    shapes: dict[str, tuple[int | str, ...]] = {}
    sizes: dict[str, int] = {}
    for i in wanted:
        x = given.get(i.name)
        if not isinstance(x, (np.ndarray, np.generic)) or not i.type.HasField("tensor_type"):
            continue
        if i.name in deciding and x.dtype != object:
            graph.initializer.append(numpy_helper.from_array(np.asarray(x), i.name))
            graph.input.remove(i)
            del given[i.name]
            continue
        shapes[i.name] = tuple(f"d{d}" if d > 1 else d for d in x.shape)
        sizes.update({f"d{d}": d for d in x.shape if d > 1})
        i.CopyFrom(onnx.helper.make_tensor_value_info(i.name, i.type.tensor_type.elem_type, shapes[i.name]))
    _forget_shapes(graph, graph.output)
    return Opened(model, shapes, sizes, given)


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied


def _forget_shapes(graph: onnx.GraphProto, declared: Sequence[onnx.ValueInfoProto]) -> None:
    """Remove the declared shapes of values and of `declared`, and in inner graphs those of inputs and outputs."""
    del graph.value_info[:]
    for v in declared:
        if v.type.HasField("tensor_type"):
            v.type.tensor_type.ClearField("shape")
    for inner in (a.g for n in graph.node for a in n.attribute if a.HasField("g")):
        _forget_shapes(inner, [*inner.input, *inner.output])


def deciding_names(model: onnx.ModelProto) -> set[str]:
    """Return the names from which values that decide sizes or axes are computed; sizes of tensors are not values."""
    bodies = {f.name: f for f in model.functions}
    wanted: set[str] = set()
    for node in reversed(list(_nodes(model.graph.node))):
        if node.op_type in bodies:
            body = bodies[node.op_type]
            inner = _deciding(body.node, set())
            wanted.update(name for name, own in zip(node.input, body.input, strict=False) if own in inner)
            continue
        wanted = _deciding([node], wanted)
    return wanted - {""}


def _deciding(nodes: Sequence[onnx.NodeProto], wanted: set[str]) -> set[str]:
    while True:
        before = len(wanted)
        for node in reversed(list(_nodes(nodes))):
            wanted.update(node.input[k] for k in DECIDING.get(node.op_type, ()) if k < len(node.input))
            if wanted.intersection(node.output) and node.op_type not in ("Shape", "Size"):
                wanted.update(node.input)
                wanted.update(o.name for a in node.attribute if a.HasField("g") for o in a.g.output)
        if len(wanted) == before:
            return wanted


def _nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for a in node.attribute:
            if a.HasField("g"):
                yield from _nodes(a.g.node)


def run(case: Case) -> Outcome:
    """Compile a case for all sizes; compare its answers at the sizes of the case, and at larger ones."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", OpenSizeWarning)
        try:
            model, data_sets = case.load()
            return _checked(case, model, [(plain(i), plain(o)) for i, o in data_sets])
        except (CompileError, OpenSizeWarning) as error:
            return Outcome(refused=str(error))
        except Exception as error:  # whatever it is, it is reported as this case's failure
            return Outcome(wrong=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _checked(case: Case, model: onnx.ModelProto, data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Outcome:
    done = 0
    for inputs, wanted in data_sets:
        of = opened(model, inputs)
        if not of.sizes:
            return Outcome(closed=True)
        program = tilewright.compile(of.model, shapes=of.shapes, threads=1)
        try:
            got = _called(program, of.given)
        except InputError as error:
            return Outcome(refused=error.message)
        verdict(Answer(case.name, model, inputs, wanted, got, _rtol(case, got), case.atol))
        done += sum(_agrees(case, program, of, {d: larger(n) for d, n in of.sizes.items()}) for larger in LARGER)
    return Outcome(sizes=done)


def _called(program: tilewright.Model, given: Mapping[str, Any]) -> list[Any]:
    found = program(**given)
    return [np.asarray(y) for y in (found if isinstance(found, tuple) else (found,))]


def _agrees(case: Case, program: tilewright.Model, of: Opened, sizes: Sizes) -> bool:
    """Whether the answers for larger sizes agree with another implementation; False where none accepts them."""
    given = of.inputs(sizes) if of.elements(sizes) <= MOST_ELEMENTS else {}
    failure: AssertionError | None = None
    got: list[Any] | None = None
    for wanted in _answers(of.model, given):
        try:
            got = got or _called(program, given)
            answer = Answer(
                case.name, of.model, list(given.values()), wanted, got, _rtol(case, got), max(case.atol, ATOL))
            by_chance(answer, drawn_outputs(of.model))
        except InputError:
            return False
        except CompileError as error:
            if error.code != ShapeError.code:
                raise
            return False  # the sizes are wrong for a stage
        except AssertionError as error:
            failure = AssertionError(f"at {dict(sizes)}: {error}")
        else:
            return True
    if failure is not None:
        raise failure
    return False


def _rtol(case: Case, got: Sequence[Any]) -> float:
    """Return the relative tolerance of a case: at least two units in the last place of its results."""
    return max(case.rtol, RTOL, *(2 * float(np.finfo(y.dtype).eps) for y in got if y.dtype == np.float16))


def _answers(model: onnx.ModelProto, given: Mapping[str, Any]) -> Iterator[list[Any]]:
    elements = sum(x.size for x in given.values() if isinstance(x, np.ndarray))
    if not given:
        return
    most = MOST_INTERPRETED
    with contextlib.suppress(Exception):  # it refuses the model, its types or the sizes
        found = list(onnxruntime_answers(model, given))
        most = MOST_ARBITRATED
        yield found
    if elements <= most and (other := reference(model, list(given.values()))) is not None:
        yield [y.astype(object) if isinstance(y, np.ndarray) and y.dtype.kind == "U" else y for y in other]


def needed_number(name: str) -> str | None:
    """Return the number that a case needs, so that it is refused; None for other cases."""
    plain_name = re.sub("^(node|simple)/test_", "", name)
    return next((why for names, why in NEEDS_NUMBER.items() if re.fullmatch(names, plain_name)), None)


def cluster(message: str) -> str:
    """Return a refusal without the names and numbers of its case."""
    said = re.sub(r"^'[^']*' is compiled for each combination of its sizes: ", "", message)
    said = re.sub(r"^(\w+) '[^']*'( at [^ ]*)?: ", r"\1: ", said.splitlines()[0])
    return re.sub(r"\bd\d+(_\w+)?\b", "d", said)[:150]


def main(arguments: Sequence[str]) -> int:
    """Run the cases, or a part of them; print a table of the refusals, and all wrong answers."""
    options = argparse.ArgumentParser()
    options.add_argument("--part", type=int, default=0)
    options.add_argument("--of", type=int, default=1)
    options.add_argument("-k", default="", help="run the cases whose names match this regular expression")
    options.add_argument("-v", action="store_true", help="print a line for each case")
    chosen = options.parse_args(arguments)
    refused: dict[str, list[str]] = collections.defaultdict(list)
    counts: collections.Counter[str] = collections.Counter()
    for case in [c for c in cases() if re.search(chosen.k, c.name)][chosen.part::chosen.of]:
        outcome = run(case)
        what = "closed" if outcome.closed else "wrong" if outcome.wrong else "refused" if outcome.refused else "passed"
        counts[what] += 1
        counts["sizes"] += outcome.sizes
        if outcome.refused:
            refused[cluster(outcome.refused)].append(case.name)
        if outcome.wrong or chosen.v:
            print(f"{what:8}{case.name} {outcome.sizes} {outcome.wrong or outcome.refused}", flush=True)
    for why, names in sorted(refused.items(), key=lambda entry: -len(entry[1])):
        print(f"{len(names):4} {why}   {' '.join(names[:3])}")
    print(", ".join(f"{counts[what]} {what}" for what in ("passed", "refused", "closed", "wrong", "sizes")))
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache
        sys.exit(main(sys.argv[1:]))
