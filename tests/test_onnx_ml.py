"""The domain ai.onnx.ml compared with ONNX Runtime: trees, linear models, support vectors, encoders; and pipelines of
scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from forests import MODES, forest, single
from tilewright.base.errors import ModelError
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate

pytestmark = pytest.mark.filterwarnings("ignore::tilewright.base.errors.OpenSizeWarning")

runtime = pytest.importorskip("onnxruntime", reason="answers are compared with those of ONNX Runtime")
Array = np.ndarray[Any, Any]
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
X = np.random.default_rng(5).standard_normal((5, 4)).astype(np.float32)
ROWS = {"x": (FLOAT, ("rows", 4))}


def wanted(model: onnx.ModelProto, *inputs: Array) -> list[Array]:
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [
        np.asarray(a) for a in session.run(None, dict(zip([i.name for i in model.graph.input], inputs, strict=True)))
    ]


def interpreted(model: onnx.ModelProto, *inputs: Array) -> list[Array]:
    shapes = {i.name: x.shape for i, x in zip(model.graph.input, inputs, strict=True)}
    found = evaluate(from_onnx(model, shapes)[0]["main"], *inputs)
    return list(found) if isinstance(found, tuple) else [found]


def compiled(model: onnx.ModelProto, *inputs: Array) -> list[Array]:
    found = tilewright.compile(model)(*inputs)
    return [np.asarray(a) for a in (found if isinstance(found, (list, tuple)) else [found])]


def same(found: list[Array], answers: list[Array], close: float = 1e-5) -> None:
    for got, answer in zip(found, answers, strict=True):
        assert got.shape == answer.shape
        if answer.dtype.kind in "OU":
            assert got.tolist() == answer.tolist()
            continue
        assert got.dtype == answer.dtype
        np.testing.assert_allclose(got, answer, rtol=1e-4, atol=close)


def check(model: onnx.ModelProto, *inputs: Array, close: float = 1e-5) -> None:
    same(interpreted(model, *inputs), wanted(model, *inputs), close)


def halves(random: np.random.Generator, rows: int, missing: bool) -> Array:
    """Numbers that often equal a threshold."""
    x = (random.integers(-4, 5, (rows, 4)) / 2).astype(np.float32)
    if missing:
        x[random.random(x.shape) < 0.2] = np.nan
    return x


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("missing", [False, True])
def test_regressors_of_every_mode(aggregate: str, missing: bool) -> None:
    for seed, (trees, depth, targets) in enumerate(((1, 0, 1), (3, 2, 1), (9, 4, 2), (17, 3, 3))):
        random = np.random.default_rng(seed)
        model = forest(
            random, trees=trees, depth=depth, targets=range(targets), missing=missing, n_targets=targets,
            aggregate_function=aggregate,
                       base_values=[0.5] * targets if seed % 2 else None)
        check(model, halves(random, 11, missing))


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
def test_classifiers_of_three(post: str) -> None:
    random = np.random.default_rng(1)
    model = forest(
        random, "TreeEnsembleClassifier", trees=5, targets=(0, 1, 2), classlabels_int64s=[7, 9, 11],
        post_transform=post, base_values=[0.1, 0.2, 0.3]
    )
    check(model, halves(random, 7, False))


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
def test_classifiers_of_two_with_one_score(post: str, positive: bool) -> None:
    random = np.random.default_rng(2)
    for names in ({"classlabels_int64s": [3, 8]}, {"classlabels_strings": ["no", "yes"]}):
        check(
            forest(random, "TreeEnsembleClassifier", positive=positive, post_transform=post, **names),
            halves(random, 7, False)
        )


@pytest.mark.parametrize("rows", [1, 5, 64, 75])
def test_trees_native(rows: int) -> None:
    random = np.random.default_rng(rows)
    model = forest(random, trees=11, depth=5, targets=(0, 1), n_targets=3, missing=True)
    x = halves(random, rows, True)
    same(compiled(model, x), wanted(model, x))


def _ensemble(**changed: Any) -> onnx.ModelProto:
    """One tree: is feature 0 in {1, 2.5, 4}? Then weight 5 for target 0, else by feature 1 < 0 weight 7 for target 1 or
    9 for target 0."""
    kept = np.asarray([6, 1], np.uint8)
    attributes: dict[str, Any] = {
        "n_targets": 2, "tree_roots": [0], "nodes_featureids": [0, 1],
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, (2,), kept),
        "nodes_splits": helper.make_tensor("s", FLOAT, (2,), [0.0, 0.0]), "nodes_truenodeids": [0, 1],
        "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2], "nodes_falseleafs": [0, 1], "leaf_targetids": [0, 1, 0],
        "leaf_weights": helper.make_tensor("w", FLOAT, (3,), [5.0, 7.0, 9.0]),
        "membership_values": helper.make_tensor("v", FLOAT, (4,), [1.0, 2.5, 4.0, float("nan")])} | changed
    return single("TreeEnsemble", {"x": (FLOAT, ("rows", 2))}, {"y": FLOAT}, version=5, **attributes)


def test_set_membership() -> None:
    x = np.asarray([[1, 0], [2.5, -1], [4, 0], [3, -1], [0, 0], [5, -0.5], [2.4999, 1], [np.nan, -1]], np.float32)
    answers = [np.asarray([[5, 0], [5, 0], [5, 0], [0, 7], [9, 0], [0, 7], [9, 0], [0, 7]], np.float32)]
    same(interpreted(_ensemble(), x), answers)
    same(compiled(_ensemble(nodes_missing_value_tracks_true=[1, 0]), x[7:]), [np.asarray([[5, 0]], np.float32)])


@pytest.mark.parametrize(("changed", "words"), [
    ({"membership_values": None}, "1 of its nodes test membership in a set, but membership_values has 0 sets"),
    ({"nodes_featureids": [0, 2]}, "its trees use features 0 to 2, but its input has 2 features"),
    ({"nodes_falsenodeids": [1, 0], "nodes_falseleafs": [0, 0]}, "the nodes of a tree form a cycle"),
    ({"aggregate_function": 4}, "aggregate_function 4"),
    (
        {"nodes_falsenodeids": [-2, 2]},
        "nodes_falsenodeids has -2; it must be from 0 to 2 for a leaf, and to 1 for a node"
    ),
])
def test_refusals_of_trees(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match="TreeEnsemble 'it'") as caught:
        from_onnx(_ensemble(**changed))
    assert words in str(caught.value)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
def test_linear_models(post: str) -> None:
    weights = (np.random.default_rng(3).standard_normal(12) * 0.2).tolist()
    check(
        single(
            "LinearRegressor", ROWS, {"y": FLOAT}, coefficients=weights, intercepts=[0.4, 0.5, 0.6], targets=3,
            post_transform=post
        ), X
    )
    for names in ({"classlabels_ints": [3, 5, 8]}, {"classlabels_strings": ["p", "q", "r"]}):
        kind = STRING if "classlabels_strings" in names else INT64
        check(
            single(
                "LinearClassifier", ROWS, {"label": kind, "y": FLOAT}, coefficients=weights, intercepts=[0.4, 0.5, 0.6],
                post_transform=post, **names
            ), X
        )


def test_one_row_of_coefficients_for_two_classes() -> None:
    for post in ("NONE", "LOGISTIC"):
        check(
            single(
                "LinearClassifier", ROWS, {"label": INT64, "y": FLOAT}, coefficients=[0.3, -0.2, 0.5, 0.1],
                intercepts=[0.1], classlabels_ints=[4, 6], post_transform=post
            ), X
        )


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    random = np.random.default_rng(4)
    shared: dict[str, Any] = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 3.0]}
    for one_class in (0, 1):
        check(single(
            "SVMRegressor", ROWS, {"y": FLOAT}, coefficients=random.standard_normal(6).tolist(), rho=[0.3],
            n_supports=6, one_class=one_class,
                     support_vectors=random.standard_normal(24).tolist(), **shared), X)
    for classes in (2, 3, 4):
        per_class = [2, 3, 1, 2][:classes]
        count, pairs = sum(per_class), classes * (classes - 1) // 2
        for likely in (False, True):
            slopes = {
                "prob_a": random.uniform(-2, -0.5, pairs).tolist(), "prob_b": random.uniform(-0.2, 0.2, pairs).tolist()
            } if likely else {}
            check(single("SVMClassifier", ROWS, {
                "label": INT64, "y": FLOAT
            }, coefficients=random.standard_normal((classes - 1) * count).tolist(),
                         rho=random.standard_normal(pairs).tolist(),
                         support_vectors=random.standard_normal(count * 4).tolist(),
                         vectors_per_class=per_class, classlabels_ints=[5, 7, 9, 11][:classes], **slopes, **shared), X,
                         close=1e-3)


def test_preparation_of_features() -> None:
    y = {"y": FLOAT}
    check(single("Scaler", ROWS, y, offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5, 1.0, 2.0, 3.0]), X)
    check(single("Scaler", {"x": (INT64, ("rows", 4))}, y, offset=[1.0], scale=[2.0]), X.astype(np.int64))
    for norm in ("MAX", "L1", "L2"):
        zero = X.copy()
        zero[0] = 0
        check(single("Normalizer", ROWS, y, norm=norm), zero)
    check(single("Binarizer", ROWS, y, threshold=0.3), X)
    gaps = X.copy()
    gaps[1, 2], gaps[0] = np.nan, -1
    check(
        single("Imputer", ROWS, y, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan")), gaps
    )
    check(single("Imputer", ROWS, y, imputed_value_floats=[9.0], replaced_value_float=-1.0), gaps)
    check(
        single("Imputer", {"x": (INT64, ("rows", 4))}, {"y": INT64}, imputed_value_int64s=[9], replaced_value_int64=-1),
        np.asarray([[1, -1, 3, 4]])
    )
    check(single("OneHotEncoder", {"x": (INT64, ("rows", 2))}, y, cats_int64s=[1, 3, 5]), np.asarray([[1, 2], [5, 3]]))
    check(
        single("OneHotEncoder", {"x": (STRING, ("rows", 2))}, y, cats_strings=["a", "b"]),
        np.asarray([["a", "z"], ["b", "a"]], object)
    )
    check(single("ArrayFeatureExtractor", {**ROWS, "i": (INT64, (2,))}, y), X, np.asarray([2, 0]))
    check(
        single("FeatureVectorizer", {**ROWS, "b": (FLOAT, ("rows", 2))}, y, inputdimensions=[4, 2]), X, X[:, :2].copy()
    )


_KEYS: dict[str, tuple[int, list[Any], Array]] = {
    "keys_floats": (FLOAT, [1.0, 2.5, 0.0], np.asarray([[1, 2.5, 9], [3, -1, 0]], np.float32)),
    "keys_int64s": (INT64, [1, 7, 3], np.asarray([[1, 2, 7], [3, -1, 0]])),
    "keys_strings": (STRING, ["a", "c", "b"], np.asarray([["a", "b", "zz"], ["c", "a", ""]], object)),
}
_VALUES: dict[str, tuple[int, list[Any]]] = {
    "values_floats": (FLOAT, [0.5, 1.5, 2.5]), "values_int64s": (INT64, [4, 5, 6]),
    "values_strings": (STRING, ["x", "y", "z"])
}


@pytest.mark.parametrize("keys", _KEYS)
@pytest.mark.parametrize("values", _VALUES)
def test_label_encoders(keys: str, values: str) -> None:
    (kind, key, x), (result, value) = _KEYS[keys], _VALUES[values]
    table: dict[str, Any] = {keys: key, values: value}
    model = single(
        "LabelEncoder", {"x": (kind, ("rows", 3))}, {"y": result}, default_float=9.0, default_int64=77,
        default_string="none", **table
    )
    check(model, x)
    same(compiled(model, x), wanted(model, x))


def test_categories() -> None:
    names: dict[str, Any] = {"cats_int64s": [1, 2, 3], "cats_strings": ["a", "b", "c"]}
    check(single("CategoryMapper", {"x": (INT64, ("n",))}, {"y": STRING}, **names), np.asarray([1, 3, 9]))
    check(single("CategoryMapper", {"x": (STRING, ("n",))}, {"y": INT64}, **names), np.asarray(["a", "c", "z"], object))


def test_dictionaries() -> None:
    zipped = single("ZipMap", {"x": (FLOAT, ("rows", 2))}, {"y": FLOAT}, classlabels_strings=["p", "q"])
    found = compiled(zipped, np.asarray([[1, 2], [3, 4]], np.float32))[0]
    assert found.tolist() == [{"p": 1.0, "q": 2.0}, {"p": 3.0, "q": 4.0}]
    for op_type, key, value, given, answer, more in (
        ("DictVectorizer", STRING, FLOAT, {"a": 4.0, "c": 7.0}, [[4, 0, 7]], {"string_vocabulary": ["a", "b", "c"]}),
        ("CastMap", INT64, FLOAT, {1: 4.0, 3: 7.0}, [[0, 4, 0, 7]], {"map_form": "SPARSE", "max_map": 4}),
    ):
        model = single(op_type, {"x": (FLOAT, ())}, {"y": FLOAT}, **more)
        model.graph.input[0].CopyFrom(
            onnx.ValueInfoProto(
                name="x", type=helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, None))
            )
        )
        assert interpreted_map(model, given).tolist() == answer


def interpreted_map(model: onnx.ModelProto, given: dict[Any, Any]) -> Array:
    found = np.empty((), object)
    found[()] = given
    result: Array = evaluate(from_onnx(model)[0]["main"], found)
    return result


@pytest.mark.parametrize(("model", "words"), [
    (
        forest(np.random.default_rng(0), aggregate_function="MEDIAN"),
        "aggregate_function is 'MEDIAN'; it must be one of AVERAGE, SUM, MIN, MAX"
    ),
    (
        forest(np.random.default_rng(0), modes=("BRANCH_MAYBE",)),
        "nodes_modes has BRANCH_MAYBE; the modes are BRANCH_LEQ"
    ),
    (
        single("LinearRegressor", ROWS, {"y": FLOAT}, coefficients=[1.0] * 3),
        "3 coefficients are given, but 1 outputs of 4 features need 4"
    ),
    (
        single("LinearRegressor", ROWS, {"y": FLOAT}, coefficients=[1.0] * 4, post_transform="CUBE"),
        "post_transform is 'CUBE'"
    ),
    (
        single(
            "SVMRegressor", ROWS, {"y": FLOAT}, coefficients=[1.0], support_vectors=[1.0] * 4, n_supports=1, rho=[0.0],
            kernel_type="ODD"
        ), "kernel_type is 'ODD'"
    ),
    (single("Normalizer", ROWS, {"y": FLOAT}, norm="L3"), "norm is 'L3'; it must be MAX, L1 or L2"),
    (
        single("LabelEncoder", {"x": (INT64, (3,))}, {"y": INT64}, keys_int64s=[1], values_int64s=[1, 2]),
        "1 keys and 2 values are given"
    ),
    (single("LabelEncoder", {"x": (INT64, (3,))}, {"y": INT64}, keys_int64s=[1]), "0 of the attributes values_floats"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_refusals(model: onnx.ModelProto, words: str) -> None:
    with pytest.raises(ModelError, match="'it'") as caught:
        from_onnx(model)
    assert words in str(caught.value)


def test_modes_have_names() -> None:
    assert len(set(MODES)) == 6


def _pipelines() -> dict[str, Any]:
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import (
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import SVC, SVR

    encode = ColumnTransformer(
        [("number", StandardScaler(), [0, 1, 2]), ("kind", OneHotEncoder(handle_unknown="ignore"), [3])]
    )
    return {
        "forest": RandomForestClassifier(10, random_state=0),
        "boosting": GradientBoostingClassifier(n_estimators=5, random_state=0),
        "logistic": make_pipeline(encode, LogisticRegression()), "svm": SVC(probability=True, random_state=0),
        "svr": SVR(),
        "neighbours": KNeighborsClassifier(3), "forest_regressor": RandomForestRegressor(10, random_state=0),
        "boosting_regressor": GradientBoostingRegressor(n_estimators=5),
    }


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_neighbours_that_name_their_scores(classes: int) -> None:
    """A loop over the points that were learned, and dictionaries of scores behind it."""
    pytest.importorskip("sklearn", reason="pipelines of scikit-learn need it")
    skl2onnx = pytest.importorskip("skl2onnx", reason="pipelines of scikit-learn are exported by skl2onnx")
    from sklearn.neighbors import KNeighborsClassifier

    x = np.random.default_rng(classes).standard_normal((40, 4)).astype(np.float32)
    y = np.array(["a", "b", "c"])[np.arange(40) % classes]
    proto = skl2onnx.to_onnx(KNeighborsClassifier(3).fit(x, y), x[:1])
    model, session = tilewright.compile(proto), runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for rows in (5, 3):
        label, scores = model(x[:rows])
        labels, dictionaries = session.run(None, {"X": x[:rows]})
        assert label.tolist() == labels.tolist()
        assert scores.tolist() == [pytest.approx(d) for d in dictionaries]


# of classifiers with probabilities, which the exporter reads
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*prob.*deprecated:FutureWarning")
@pytest.mark.parametrize(
    "name", ["forest", "boosting", "logistic", "svm", "svr", "neighbours", "forest_regressor", "boosting_regressor"]
)
@pytest.mark.parametrize("classes", [2, 3])
def test_pipelines_of_scikit_learn(name: str, classes: int) -> None:
    pytest.importorskip("sklearn", reason="pipelines of scikit-learn need it")
    skl2onnx = pytest.importorskip("skl2onnx", reason="pipelines of scikit-learn are exported by skl2onnx")
    random = np.random.default_rng(classes)
    x = random.standard_normal((90, 4)).astype(np.float32)
    x[:, 3] = random.integers(0, 3, 90)
    y = (
        x[:, 0] + x[:, 3]
    ).astype(np.float32) if name.endswith("r") and name != "forest" else random.integers(0, classes, 90)
    model = _pipelines()[name].fit(x, y)
    options: dict[Any, Any] = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else {}
    if name == "neighbours":
        options[id(model)]["optim"] = "cdist"
    proto = skl2onnx.to_onnx(model, x[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3, "com.microsoft": 1})
    same(compiled(proto, x[:31]), wanted(proto, x[:31]), close=2e-3)
