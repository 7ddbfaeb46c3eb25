"""Networks of one's own, and classifiers that are pickled, saved and loaded again."""

import errno
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from estimator_tools import QUICK, quick, tiny
from fault_tools import forge
from torch import nn

from splitpu import model as models
from splitpu.config.schema import Config
from splitpu.errors import DiskFull, InputError, ModelFileError
from splitpu.estimators.classifiers import SplitPUClassifier
from splitpu.utils import files

# --- networks of one's own ---


class ThreeOutputs(nn.Module):
    """Returns (low, high, logit) itself."""

    def __init__(self):
        super().__init__()
        self.low, self.high, self.head = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 1)

    def forward(self, batch):
        low = torch.relu(self.low(batch))
        high = torch.relu(self.high(low))
        return low, high, self.head(high)


def logit_alone():
    """A plain network that returns the logit."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))


@pytest.mark.parametrize("as_object", [True, False], ids=["object", "function"])
@pytest.mark.parametrize(("make", "layers"), [(ThreeOutputs, None), (logit_alone, ("1", "3"))], ids=["tuple", "logit"])
def test_own_network(vectors, tmp_path, make, layers, as_object):
    torch.manual_seed(1)
    backbone = make() if as_object else make
    X, s, truth = vectors
    # Without batch normalisation it takes longer.
    longer = QUICK | {"split": QUICK["split"] | {"max_epochs": 60}, "student": QUICK["student"] | {"epochs": 60}}
    fitted = quick(backbone=backbone, layers=layers, config=longer).fit(X, s)
    assert np.mean(fitted.predict(X) == truth) > 0.8
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path, backbone, layers=layers)
    assert np.array_equal(loaded.decision_function(X), fitted.decision_function(X))
    with pytest.raises(InputError, match="your own network"):
        SplitPUClassifier.load(tmp_path)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(X), fitted.decision_function(X))


def test_own_network_is_left_as_it_was(vectors):
    backbone = ThreeOutputs()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    tiny(backbone=backbone).fit(*vectors[:2])
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    assert all(parameter.requires_grad for parameter in backbone.parameters())


def test_loading_with_the_wrong_network_is_refused(fitted, tmp_path):
    fitted.save(tmp_path)
    with pytest.raises(ModelFileError, match="does not fit the network that was given: pass the one"):
        SplitPUClassifier.load(tmp_path, ThreeOutputs())


# --- keeping ---


def test_pickle_keeps_predictions(fitted, vectors):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(vectors[0]), fitted.predict_proba(vectors[0]))
    assert np.array_equal(again.base_.predict(vectors[0]), fitted.base_.predict(vectors[0]))


def test_save_and_load_give_identical_predictions(fitted, vectors, tmp_path):
    X = vectors[0]
    fitted.save(tmp_path / "deep" / "model")
    loaded = SplitPUClassifier.load(str(tmp_path / "deep" / "model"))
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert np.array_equal(loaded.base_.decision_function(X), fitted.base_.decision_function(X))
    assert loaded.classes_.tolist() == [0, 1] and loaded.n_features_in_ == 4 and loaded.prior_ == 0.5
    assert loaded.get_params()["rounds"] == 2 and isinstance(loaded.config, Config)
    assert sorted(path.name for path in (tmp_path / "deep" / "model").iterdir()) == ["model.json", "model.safetensors"]
    refitted = loaded.set_params(random_state=0).fit(*vectors[:2])
    assert np.array_equal(refitted.predict_proba(X), fitted.predict_proba(X))


def test_image_models_survive_saving_bit_for_bit(images, tmp_path):
    X, s = images
    fitted = tiny().fit(X, s)
    fitted.save(tmp_path)
    assert np.array_equal(SplitPUClassifier.load(tmp_path).decision_function(X), fitted.decision_function(X))


@pytest.mark.parametrize("values", [("known", "unknown"), (False, True), (-1, 1), (0.0, 1.0), ("1", "2")])
def test_classes_survive_saving(vectors, tmp_path, values):
    X, s, _ = vectors
    fitted = tiny(pos_label=values[1], rounds=0).fit(X, np.array(values)[s])
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path)
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert [type(value) for value in loaded.classes_.tolist()] == [type(value) for value in values]
    assert np.array_equal(loaded.predict(X), fitted.predict(X))


def test_a_positive_that_sorts_first_survives_saving(vectors, tmp_path):
    X, s, _ = vectors
    fitted = tiny(pos_label="known", rounds=0).fit(X, np.array(["unknown", "known"])[s])
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path)
    assert loaded.pos_label_ == loaded.pos_label == "known"
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_files_cut_short_or_missing_are_reported_as_such(fitted, tmp_path, name):
    fitted.save(tmp_path)
    content = (tmp_path / name).read_bytes()
    for length in (len(content) // 2, 3, 0):
        (tmp_path / name).write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=name):
            SplitPUClassifier.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        SplitPUClassifier.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"classes": [0, 1, 2]},
        {"classes": 1},
        {"calibration": [1.0, 0.0]},
        {"calibration": {"curve": 3}},
        {"threshold": {"final": "high", "base": 0.0}},
        {"threshold": [0.0, 0.0]},
        {"config": []},
        {"config": {"base.epochs": "many"}},
        {"preprocessing": None},
    ],
)
def test_a_garbled_description_is_reported_as_such(fitted, tmp_path, change):
    fitted.save(tmp_path)
    forge(tmp_path / "model.json", change)
    with pytest.raises(ModelFileError, match=r"model\.json cannot be read \(.*copy the run folder again, or train"):
        SplitPUClassifier.load(tmp_path)


def test_a_save_that_is_killed_leaves_no_weights_with_the_description_of_others(fitted, vectors, tmp_path, monkeypatch):
    fitted.save(tmp_path)
    other = tiny(prior=0.6, random_state=1).fit(*vectors[:2])
    described, weights = (tmp_path / "model.json").read_text(), (tmp_path / "model.safetensors").read_bytes()
    move = Path.replace

    def killed_before(name):
        def replace(source, target):
            if target.name == name:
                raise KeyboardInterrupt
            return move(source, target)

        monkeypatch.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            other.save(tmp_path)
        monkeypatch.undo()

    killed_before("model.json")
    with pytest.raises(ModelFileError, match=r"model\.safetensors .*is not what model\.json beside it was written"):
        SplitPUClassifier.load(tmp_path)
    (tmp_path / "model.json").rename(tmp_path / "elsewhere.json")
    (tmp_path / "model.json").symlink_to("elsewhere.json")
    fitted.save(tmp_path)
    assert (tmp_path / "model.json").is_symlink() and (tmp_path / "model.json").read_text() == described
    assert (tmp_path / "model.safetensors").read_bytes() == weights


def test_a_model_that_is_replaced_while_it_is_read_is_not_half_of_each(fitted, vectors, tmp_path, monkeypatch):
    fitted.save(tmp_path)
    other = tiny(prior=0.6, random_state=1).fit(*vectors[:2])
    read = models._whole

    def read_late(weights):
        monkeypatch.undo()
        other.save(tmp_path)
        return read(weights)

    monkeypatch.setattr(models, "_whole", read_late)
    found = SplitPUClassifier.load(tmp_path)
    assert np.array_equal(found.decision_function(vectors[0]), other.decision_function(vectors[0]))


def test_files_of_two_models_are_told_apart_where_their_networks_are_alike(fitted, vectors, tmp_path):
    fitted.save(tmp_path / "one")
    tiny(prior=0.6, random_state=1).fit(*vectors[:2]).save(tmp_path / "two")
    shutil.copy(tmp_path / "two" / "model.safetensors", tmp_path / "one")
    with pytest.raises(ModelFileError, match="one of the two belongs to another model"):
        SplitPUClassifier.load(tmp_path / "one")


def test_saving_without_room_keeps_the_earlier_model(fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path)

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    # On some drives the lack of room shows when a file is written through, the description's after the weights'.
    for module, name in ((models, "save_file"), (models, "write_through"), (files, "write_through")):
        with monkeypatch.context() as full:
            full.setattr(module, name, no_room)
            with pytest.raises(DiskFull, match=r"model\.(safetensors|json) could not be written"):
                fitted.save(tmp_path)
        SplitPUClassifier.load(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.json", "model.safetensors"}


def test_saving_onto_a_file_is_refused(fitted, tmp_path):
    (tmp_path / "taken").write_text("something")
    with pytest.raises(InputError, match="is a file"):
        fitted.save(tmp_path / "taken")
