"""Learners as networks say what scikit-learn says, and refuse what no learner could have written."""

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy import sparse
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from splitpu.errors import InputError, ModelFileError
from splitpu.learners.catalogue import Bagging, Boosting, Forest, Kernel, Logistic, NaiveBayes
from splitpu.learners.learner_networks import (
    TINIEST_SHARE,
    AverageNetwork,
    LinearNetwork,
    TreeNetwork,
    from_spec,
    network_of,
)
from splitpu.utils.arrays import log_odds


def some_rows(missing: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, 5)) * [1, 10, 0.1, 1, 1]
    label = (rows[:, 0] + rows[:, 1] / 10 + rng.normal(size=300) * 0.5) > 0.5
    if missing:
        rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows, label


def said(network: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return np.asarray(network(torch.from_numpy(np.ascontiguousarray(rows))))


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        (RandomForestClassifier(20, random_state=0), True),
        (ExtraTreesClassifier(20, random_state=0), True),
        (HistGradientBoostingClassifier(max_iter=20), True),
        (GradientBoostingClassifier(n_estimators=20, random_state=0), False),
        (LogisticRegression(), False),
    ],
)
def test_networks_of_scikit_learn_agree_with_it(model: Any, missing: bool) -> None:
    rows, label = some_rows(missing)
    model.fit(rows[:200], label[:200])
    network = network_of(model)
    expected = log_odds(model.predict_proba(rows)[:, 1], TINIEST_SHARE)
    kept = np.abs(expected) < 10  # beyond, the share itself is cut off
    np.testing.assert_allclose(said(network, rows)[kept], expected[kept], atol=1e-5)
    narrow = rows.astype(np.float32)
    np.testing.assert_allclose(
        said(network, narrow)[kept], log_odds(model.predict_proba(narrow)[:, 1], TINIEST_SHARE)[kept], atol=1e-5
    )


@pytest.mark.parametrize("learner", [Logistic(), Kernel(landmarks=40), Bagging(trees=20), Forest(trees=20), Boosting()])
def test_networks_of_learners_agree_and_survive_a_file(learner: Any) -> None:
    rows, label = some_rows()
    fitted = learner.fit(rows[:200], label[:200], seed=1)
    network = fitted.as_network()
    np.testing.assert_allclose(said(network, rows), fitted.scores(rows), atol=1e-5)
    again = from_spec(network.to_spec(), load(save(network.state_dict())))
    np.testing.assert_array_equal(said(again, rows), said(network, rows))


def test_sparse_learners_give_networks_for_dense_rows() -> None:
    rows = sparse.random(80, 30, 0.2, format="csr", random_state=0)
    label = np.arange(80) < 20
    for learner in (Logistic(), NaiveBayes()):
        fitted = learner.fit(rows, label)
        np.testing.assert_allclose(said(fitted.as_network(), rows.toarray()), fitted.scores(rows), atol=1e-8)


def an_average() -> tuple[AverageNetwork, np.ndarray, np.ndarray]:
    """A mean of two learners, some rows, and what it should say of them."""
    rows, label = some_rows()
    line, trees = Logistic().fit(rows, label), Bagging(trees=3, leaf=6).fit(rows, label)
    mean = AverageNetwork([line.as_network(), trees.as_network()])
    narrow = rows.astype(np.float32)
    expected = 0.5 * (line.scores(narrow) + 0.5) + 0.5 * 2 * trees.scores(narrow)
    return mean.filled(slope=[1.0, 2.0], offset=[0.5, 0.0], share=[0.5, 0.5]), narrow, expected


def test_an_average_is_a_network_of_networks() -> None:
    network, rows, expected = an_average()
    np.testing.assert_allclose(said(network, rows), expected, atol=1e-6)
    np.testing.assert_allclose(network.scores(rows), expected, atol=1e-6)
    again = from_spec(network.to_spec(), network.state_dict())
    np.testing.assert_array_equal(said(again, rows), said(network, rows))


def test_export_to_onnx(tmp_path: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network, rows, expected = an_average()
    path = tmp_path / "model.onnx"
    example = torch.from_numpy(rows[:4])
    batch = torch.export.Dim("batch", min=1)
    torch.onnx.export(network.eval(), (example,), path, dynamo=True, dynamic_shapes=({0: batch},), verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: rows})[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"kind": "pickle"},
        {"kind": "linear", "columns": 0},
        {"kind": "linear", "columns": True},
        {"kind": "linear", "columns": 10**12},
        {"kind": "trees", "columns": 2, "nodes": 3, "trees": 1, "depth": 10**6, "shares": True, "rounded": True},
        {"kind": "trees", "columns": 2, "nodes": 3, "trees": 1, "depth": 1, "shares": 1, "rounded": True},
        {"kind": "average", "members": []},
        {"kind": "average", "members": [1]},
        {"kind": "average", "members": [{"kind": "linear", "columns": 1}] * 65},
    ],
)
def test_hostile_specs_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError):
        from_spec(spec)


def test_specs_nested_without_end_are_refused() -> None:
    spec: dict[str, Any] = {"kind": "linear", "columns": 1}
    for _ in range(5000):
        spec = {"kind": "average", "members": [spec]}
    with pytest.raises(ModelFileError):
        from_spec(spec)


def test_sizes_are_compared_before_anything_is_allocated() -> None:
    spec = {"kind": "kernel", "columns": 10_000_000, "landmarks": 100_000_000}
    with pytest.raises(ModelFileError, match="missing"):
        from_spec(spec, {})
    small = LinearNetwork(2)
    with pytest.raises(ModelFileError, match="shape"):
        from_spec({"kind": "linear", "columns": 3}, small.state_dict())
    with pytest.raises(ModelFileError, match="belong"):
        from_spec(small.to_spec(), {**small.state_dict(), "more": torch.zeros(1)})
    with pytest.raises(ModelFileError, match="float64"):
        from_spec(small.to_spec(), {name: one.to(torch.float32) for name, one in small.state_dict().items()})


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 0), ("right", 10**9), ("left", -1), ("feature", 5), ("feature", -1), ("roots", -1), ("value", np.nan)],
)
def test_trees_that_lead_nowhere_are_refused(name: str, value: float) -> None:
    rows, label = some_rows()
    network = Bagging(trees=3).fit(rows, label).as_network()
    tensors = {key: one.clone() for key, one in network.state_dict().items()}
    place = 1 if name in ("left", "right") else 0
    if name in ("left", "right"):  # of a branch, not of a leaf
        place = int(torch.nonzero(tensors["left"] != torch.arange(len(tensors["left"])))[1, 0])
    tensors[name][place] = value
    with pytest.raises(ModelFileError):
        from_spec(network.to_spec(), tensors)


def test_infinite_weights_and_scales_of_nought_are_refused() -> None:
    rows, label = some_rows()
    network = Kernel(landmarks=10).fit(rows, label).as_network()
    for name, value in (("weight", np.inf), ("scale", 0.0)):
        tensors = {key: one.clone() for key, one in network.state_dict().items()}
        tensors[name][0] = value
        with pytest.raises(ModelFileError):
            from_spec(network.to_spec(), tensors)


def test_what_cannot_be_written_is_said() -> None:
    rows, label = some_rows(missing=False)
    with pytest.raises(InputError, match="GaussianNB cannot be saved"):
        network_of(GaussianNB().fit(rows, label)).to_spec()
    assert isinstance(network_of(RandomForestClassifier(2).fit(rows, label)), TreeNetwork)


def test_linearnetwork_in_short() -> None:
    network = LinearNetwork(2)
    network.weight += torch.tensor([1.0, -1.0])
    assert network(torch.tensor([[3.0, 1.0], [torch.nan, 1.0]])).tolist() == [2.0, -1.0]


def test_from_spec_in_short() -> None:
    network = LinearNetwork(3)
    assert from_spec(network.to_spec(), network.state_dict()).to_spec() == {"kind": "linear", "columns": 3}
