"""Small recurrent TFLite models: of floats, of floats with weights of integers, and of integers throughout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tflite_models import Op, T, model

Array = np.ndarray[Any, Any]
BATCH, SIZE, UNITS = 2, 4, 5


def _random(seed: int, shape: Sequence[int]) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.5).astype(np.float32)


def _whole(seed: int, shape: Sequence[int], most: int = 127, dtype: str = "int8") -> Array:
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(dtype)


class Parts:
    """The tensors of a model and the inputs of its operator while they are written. `weights` are "float32" or
    "int8"."""

    def __init__(self, x: T, weights: str = "float32") -> None:
        self.tensors, self.inputs, self.weights = [x], [0], weights

    def add(self, t: T | None) -> int:
        """Another input; None for one that is left out."""
        self.inputs.append(-1 if t is None else len(self.tensors))
        if t is not None:
            self.tensors.append(t)
        return self.inputs[-1]

    def weight(self, name: str, shape: Sequence[int], there: bool = True) -> None:
        """Weights of floats, or integers of a scale."""
        seed = len(self.tensors)
        if self.weights == "int8":
            self.add(T(name, shape, "int8", _whole(seed, shape), 0.01 + 0.001 * (seed % 5)) if there else None)
        else:
            self.add(T(name, shape, value=_random(seed, shape)) if there else None)

    def vector(self, name: str, shape: Sequence[int], there: bool = True) -> None:
        """Floats, whatever the weights are."""
        self.add(T(name, shape, value=_random(len(self.tensors), shape)) if there else None)

    def state(self, name: str, shape: Sequence[int]) -> None:
        self.add(T(name, shape, variable=True))

    def model(
        self, kind: str, results: Sequence[T], options: str, values: dict[str, Any], intermediates: Sequence[T] = (),
        given: Sequence[int] = (0,)
    ) -> bytes:
        first = len(self.tensors)
        outputs = list(range(first, first + len(results)))
        behind = list(range(first + len(results), first + len(results) + len(intermediates)))
        return model(
            [*self.tensors, *results, *intermediates],
            [Op(kind, self.inputs, outputs, options, values, intermediates=behind)], list(given), outputs[:1]
        )


def lstm(
    projection: int = 0, peepholes: bool = False, coupled: bool = False, norm: bool = False, steps: int = 6,
    weights: str = "float32", by_range: bool = False,
) -> bytes:
    """An LSTM over time; `coupled` has no gate for the input."""
    width = projection or UNITS
    p = Parts(T("x", (BATCH, steps, SIZE)), weights)
    for what, shape in (("i", (UNITS, SIZE)), ("r", (UNITS, width))):
        for k in range(4):
            p.weight(f"{what}{k}", shape, k > 0 or not coupled)
    for k in range(3):
        p.weight(f"p{k}", (UNITS,), peepholes and (k > 0 or not coupled))
    for k in range(4):
        p.vector(f"b{k}", (UNITS,), k > 0 or not coupled)
    p.weight("w", (projection, UNITS), bool(projection))
    p.vector("v", (projection,), bool(projection))
    p.state("h", (BATCH, width))
    p.state("c", (BATCH, UNITS))
    if norm:
        for k in range(4):
            p.vector(f"n{k}", (UNITS,), k > 0 or not coupled)
    options = {
        "FusedActivationFunction": 4, "CellClip": 0.4 if peepholes else 0.0, "AsymmetricQuantizeInputs": by_range
    }
    return p.model(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", [T("y", (BATCH, steps, width))], "UnidirectionalSequenceLSTMOptions", options
    )


def integer_lstm(
    projection: int = 0, peepholes: bool = False, coupled: bool = False, norm: bool = False, steps: int = 6,
    zero_point: int = 0, one: bool = False,
    units: int = UNITS, time_major: bool = False, cells: float = 2.0**-11, behind: int = 5, odd: int = 0,
    clip: float = 1.5, rows: int = BATCH, flat: bool = False,
) -> bytes:
    """An LSTM of int8 whose cells have 16 bits; `one` is one step of it. Those from `cells` on are for what is
    wrong."""
    width, lead = projection or units, (BATCH,) if one else (steps, BATCH) if time_major else (BATCH, steps)
    p = Parts(T("x", (*lead, SIZE), "int8", None, 0.02, 5), "int8")
    for what, shape in (("i", (units, SIZE)), ("r", (units, width))):
        for k in range(4):
            p.weight(f"{what}{k}", shape[:1] if flat and k == 3 else shape, k > 0 or not coupled)
    for k in range(3):
        p.add(
            T(f"p{k}", (units,), "int16", _whole(50 + k, (units,), 32767, "int16"), 3e-5) if peepholes
            and (k > 0 or not coupled) else None
        )
    for k in range(4):
        count = units - (odd == k + 3)
        p.add(
            T(f"b{k}", (count,), "int32", _whole(60 + k, (count,), 3000, "int32"), 0.0003) if k > 0 or not coupled
            else None
        )
    p.weight("w", (projection, units), bool(projection))
    p.add(T("v", (projection,), "int32", _whole(70, (projection,), 500, "int32"), 1e-4) if projection else None)
    of_output = (1 / 100, zero_point + 2) if projection else (1 / 128, zero_point)
    p.add(T("h", (BATCH, width), "int8", None, *of_output, variable=True))
    p.add(T("c", (rows, units), "int16", None, cells, variable=True))
    if norm:
        for k in range(4):
            p.add(
                T(f"n{k}", (units,), "int16", _whole(80 + k, (units,), 20000, "int16"), 4e-5) if k > 0 or not coupled
                else None
            )
    gates = [T(f"g{k}", (), "int16", None, 2.0**-12 * (0.9 + 0.05 * k)) for k in range(4)]
    kind, options = ("LSTM", "LSTMOptions") if one else (
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions"
    )
    clips = {
        "FusedActivationFunction": 4, "CellClip": clip if peepholes else 0.0, "ProjClip": 0.8 if projection else 0.0,
        **({} if one else {"TimeMajor": time_major})
    }
    return p.model(
        kind, [T("y", (*lead, width), "int8", None, *of_output)], options, clips,
        [*gates, T("hidden", (), "int8", None, 1 / 128, zero_point)][:behind]
    )


def basic_lstm(dtype: str, zero_point: int = 128) -> bytes:
    """One step of the basic kernel."""
    many = 4 * UNITS
    if dtype == "float32":
        p = Parts(T("x", (BATCH, SIZE)))
        p.add(T("h", (BATCH, UNITS)))
        p.add(T("w", (many, SIZE + UNITS), value=_random(2, (many, SIZE + UNITS))))
        p.add(T("b", (many,), value=_random(3, (many,))))
        p.add(T("c", (BATCH, UNITS)))
        results = [
            T("y", (BATCH, UNITS)), T("c2", (BATCH, UNITS)), T("rows", (BATCH, SIZE + UNITS)), T("sums", (BATCH, many))
        ]
    else:
        units = 8  # of bytes the kernel takes multiples of eight
        many = 4 * units
        scales = (1 / 128, zero_point)
        p = Parts(T("x", (BATCH, SIZE * 2), dtype, None, *scales))
        p.add(T("h", (BATCH, units), dtype, None, *scales))
        p.add(
            T(
                "w", (many, SIZE * 2 + units), "uint8", _whole(2, (many, SIZE * 2 + units), 127, "int16") + 128, 0.01,
                120
            )
        )
        p.add(T("b", (many,), "int32", _whole(3, (many,), 9000, "int32"), 0.01 / 128))
        p.add(T("c", (BATCH, units), "int16", None, 2.0**-11))
        results = [
            T("y", (BATCH, units), "uint8", None, *scales), T("c2", (BATCH, units), "int16", None, 2.0**-11),
            T("rows", (BATCH, SIZE * 2 + units), "uint8", None, *scales),
            T("sums", (BATCH, many), "int16", None, 2.0**-12),
        ]
    return p.model("LSTM", results, "LSTMOptions", {"FusedActivationFunction": 4, "KernelType": 1}, given=[0, 1, 4])


def bidirectional_lstm(weights: str = "float32", merge: bool = False, auxiliary: str = "") -> bytes:
    """Two LSTMs; `auxiliary` is "crossed" with weights of its own, or "parallel" as the input of the second."""
    p, time = Parts(T("x", (3, BATCH, SIZE)), weights), 3
    for way in "fb":
        for what, shape in (("i", (UNITS, SIZE)), ("r", (UNITS, UNITS))):
            for k in range(4):
                p.weight(f"{way}{what}{k}", shape)
        for _ in range(3):
            p.add(None)
        for k in range(4):
            p.vector(f"{way}b{k}", (UNITS,))
        p.add(None)
        p.add(None)
    for way in "fb":
        p.state(f"{way}h", (BATCH, UNITS))
        p.state(f"{way}c", (BATCH, UNITS))
    given = [0]
    if auxiliary:
        given.append(p.add(T("aux", (time, BATCH, SIZE))))
    else:
        p.add(None)
    for k in range(8):
        p.weight(f"a{k}", (UNITS, SIZE), auxiliary == "crossed")
    results = [T("y", (time, BATCH, 2 * UNITS))] if merge else [
        T("y", (time, BATCH, UNITS)), T("z", (time, BATCH, UNITS))
    ]
    return p.model(
        "BIDIRECTIONAL_SEQUENCE_LSTM", results, "BidirectionalSequenceLSTMOptions",
        {"FusedActivationFunction": 4, "MergeOutputs": merge, "TimeMajor": True}, given=given,
    )


def rnn(weights: str = "float32", by_range: bool = False) -> bytes:
    p = Parts(T("x", (BATCH, 6, SIZE)), weights)
    p.weight("w", (UNITS, SIZE))
    p.weight("r", (UNITS, UNITS))
    p.vector("b", (UNITS,))
    p.state("h", (BATCH, UNITS))
    values = {"FusedActivationFunction": 4, "AsymmetricQuantizeInputs": by_range}
    return p.model("UNIDIRECTIONAL_SEQUENCE_RNN", [T("y", (BATCH, 6, UNITS))], "SequenceRNNOptions", values)


def one_rnn(weights: str) -> bytes:
    p = Parts(T("x", (BATCH, SIZE)), weights)
    p.weight("w", (UNITS, SIZE))
    p.weight("r", (UNITS, UNITS))
    p.vector("b", (UNITS,))
    p.state("h", (BATCH, UNITS))
    return p.model("RNN", [T("y", (BATCH, UNITS))], "RNNOptions", {"FusedActivationFunction": 4})


def bidirectional_rnn(
    weights: str = "float32", merge: bool = False, auxiliary: str = "", time_major: bool = True
) -> bytes:
    lead = (3, BATCH) if time_major else (BATCH, 3)
    p = Parts(T("x", (*lead, SIZE)), weights)
    for way in "fb":
        p.weight(f"{way}w", (UNITS, SIZE))
        p.weight(f"{way}r", (UNITS, UNITS))
        p.vector(f"{way}b", (UNITS,))
        p.state(f"{way}h", (BATCH, UNITS))
    given = [0]
    if auxiliary:
        given.append(p.add(T("aux", (*lead, SIZE))))
    else:
        p.add(None)
    for k in range(2):
        p.weight(f"a{k}", (UNITS, SIZE), auxiliary == "crossed")
    results = [T("y", (*lead, 2 * UNITS))] if merge else [T("y", (*lead, UNITS)), T("z", (*lead, UNITS))]
    values = {"FusedActivationFunction": 4, "MergeOutputs": merge, "TimeMajor": time_major}
    return p.model("BIDIRECTIONAL_SEQUENCE_RNN", results, "BidirectionalSequenceRNNOptions", values, given=given)


def svdf(weights: str = "float32", by_range: bool = False) -> bytes:
    p = Parts(T("x", (BATCH, SIZE)), weights)
    p.weight("f", (6, SIZE))
    p.weight("t", (6, 4))
    p.vector("b", (3,))
    p.state("s", (BATCH, 24))
    return p.model(
        "SVDF", [T("y", (BATCH, 3))], "SVDFOptions",
        {"Rank": 2, "FusedActivationFunction": int(weights == "float32"), "AsymmetricQuantizeInputs": by_range}
    )


def integer_svdf(time: str = "int16") -> bytes:
    p = Parts(T("x", (BATCH, SIZE), "int8", None, 0.02, 7))
    p.add(T("f", (6, SIZE), "int8", _whole(1, (6, SIZE)), 0.01))
    p.add(T("t", (6, 4), time, _whole(2, (6, 4), 20000 if time == "int16" else 127, time), 2e-5))
    p.add(T("b", (3,), "int32", _whole(3, (3,), 90000, "int32"), 1e-8))
    p.add(T("s", (BATCH, 24), "int16", None, 0.0005, variable=True))
    return p.model(
        "SVDF", [T("y", (BATCH, 3), "int8", None, 0.01, -100)], "SVDFOptions", {"Rank": 2, "FusedActivationFunction": 1}
    )


MODELS: dict[str, Callable[[], bytes]] = {
    "lstm": lstm, "lstm_few_steps": lambda: lstm(steps=3), "lstm_projected": lambda: lstm(projection=3),
    "lstm_peepholes": lambda: lstm(peepholes=True),
    "lstm_coupled": lambda: lstm(coupled=True), "lstm_normalized": lambda: lstm(norm=True),
    "lstm_hybrid": lambda: lstm(weights="int8"),
    "lstm_hybrid_by_range": lambda: lstm(weights="int8", by_range=True),
    "lstm_hybrid_projected": lambda: lstm(weights="int8", projection=3, peepholes=True),
    "lstm_hybrid_coupled": lambda: lstm(weights="int8", coupled=True, norm=True),
    "lstm_int8": integer_lstm, "lstm_int8_few_steps": lambda: integer_lstm(steps=3),
    "lstm_int8_zero_point": lambda: integer_lstm(zero_point=-9),
    "lstm_int8_projected": lambda: integer_lstm(projection=3),
    "lstm_int8_projected_zero_point": lambda: integer_lstm(projection=3, zero_point=6),
    "lstm_int8_peepholes": lambda: integer_lstm(peepholes=True),
    "lstm_int8_coupled": lambda: integer_lstm(coupled=True),
    "lstm_int8_normalized": lambda: integer_lstm(norm=True), "lstm_int8_all": lambda: integer_lstm(3, True, True, True),
    "lstm_int8_all_time_first": lambda: integer_lstm(3, True, False, True, time_major=True),
    "lstm_int8_step": lambda: integer_lstm(one=True),
    "lstm_int8_wide": lambda: integer_lstm(norm=True, units=40),
    "lstm_basic": lambda: basic_lstm("float32"), "lstm_basic_uint8": lambda: basic_lstm("uint8"),
    "bidirectional_lstm": bidirectional_lstm, "bidirectional_lstm_merged": lambda: bidirectional_lstm(merge=True),
    "bidirectional_lstm_hybrid": lambda: bidirectional_lstm("int8", merge=True),
    "bidirectional_lstm_crossed": lambda: bidirectional_lstm(merge=True, auxiliary="crossed"),
    "bidirectional_lstm_crossed_hybrid": lambda: bidirectional_lstm("int8", True, "crossed"),
    "bidirectional_lstm_parallel": lambda: bidirectional_lstm(merge=True, auxiliary="parallel"),
    "rnn": rnn, "rnn_hybrid": lambda: rnn("int8"), "rnn_by_range": lambda: rnn("int8", True),
    "rnn_step": lambda: one_rnn("float32"), "rnn_step_hybrid": lambda: one_rnn("int8"),
    "bidirectional_rnn": lambda: bidirectional_rnn(merge=True),
    "bidirectional_rnn_hybrid": lambda: bidirectional_rnn("int8", True, time_major=False),
    "bidirectional_rnn_crossed": lambda: bidirectional_rnn(merge=True, auxiliary="crossed"),
    "bidirectional_rnn_crossed_hybrid": lambda: bidirectional_rnn("int8", True, "crossed", time_major=False),
    "bidirectional_rnn_parallel": lambda: bidirectional_rnn(auxiliary="parallel", merge=True),
    "svdf": svdf, "svdf_hybrid": lambda: svdf("int8"), "svdf_by_range": lambda: svdf("int8", True),
    "svdf_int8": integer_svdf,
}
