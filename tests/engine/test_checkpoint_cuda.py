"""A stopped run ends on a GPU as one that was not. Skipped where there is none."""

from pathlib import Path

import pytest
import torch
from stopping import StopAt
from test_training import PRIOR

from splitpu import load_named, make_pu, preset, train
from splitpu.config.parse import apply_overrides
from splitpu.errors import Interrupted
from splitpu.training import Runtime, TrainSpec

SHORT = apply_overrides(
    preset("default"), ["base.epochs=2", "split.max_epochs=2", "split.tau=0.5", "student.epochs=4", "rounds=1"]
)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_stopped_in_its_student_ends_on_a_gpu_as_one_that_was_not(tmp_path: Path) -> None:
    data = make_pu(load_named("digits"), 50, 0)[0]
    spec = TrainSpec(prior=PRIOR, config=SHORT, backbone="cnn-small")
    whole = train(data, spec, Runtime(device="cuda"))
    with pytest.raises(Interrupted):
        train(data, spec, Runtime(device="cuda", checkpoints=tmp_path, observer=StopAt(2)))
    resumed = train(data, spec, Runtime(device="cuda", checkpoints=tmp_path))
    assert torch.equal(resumed.result.base.logits, whole.result.base.logits)
    for name, weights in whole.model.final.network.state_dict().items():
        assert torch.equal(weights, resumed.model.final.network.state_dict()[name])
