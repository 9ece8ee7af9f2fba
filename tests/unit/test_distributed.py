"""Several processes compute what one process computes on the whole batch."""

from __future__ import annotations

import pytest
import torch
from tests.unit import gradient_probe
from tests.unit.training_helpers import make_mined, make_source, run_two_processes, tiny_model

from zerodr.errors import MachineError
from zerodr.training.distributed.processes import Group, check_gpus
from zerodr.training.jobs import device_of

CLOSE = 1e-5


@pytest.fixture(scope="module")
def both(tmp_path_factory, root):
    """Gradients of one process, and of each of two."""
    folder = tmp_path_factory.mktemp("distributed")
    make_source(folder / "source"), make_mined(folder / "mined"), make_mined(folder / "scored", scored=True)
    tiny_model(folder / "model")
    return gradient_probe.gradients(folder), run_two_processes(root, "gradient_probe", folder)


def of(tensors: dict[str, torch.Tensor], run: str) -> dict[str, torch.Tensor]:
    return {key: value for key, value in tensors.items() if key.startswith(run)}


@pytest.mark.parametrize("name", [*gradient_probe.OBJECTIVES, "direct"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_two_processes_give_the_gradient_of_one(both, name, chunk):
    one, (two, _) = both[0], both[1]
    one, two = of(one, f"{name}/{chunk}/"), of(two, f"{name}/{chunk}/")
    assert set(one) == set(two) and len(one) > 20
    top = max(float(value.abs().max()) for value in one.values())
    for key, value in one.items():
        assert float((value - two[key]).abs().max()) < CLOSE * top, key
        if float(value.abs().max()) > 1e-4 * top:
            assert float((value - two[key]).abs().max() / value.abs().max()) < CLOSE, key


def test_processes_agree_bit_for_bit(both):
    first, second = both[1]
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_all_stop_after_the_step_in_which_one_is_asked(tmp_path, root):
    make_source(tmp_path / "source"), make_mined(tmp_path / "mined")
    tiny_model(tmp_path / "model")
    for process in run_two_processes(root, "stop_probe", tmp_path):
        assert process["stopped"] == 3 and process["saved"].tolist() == [3]


def test_one_process_needs_no_group():
    group, x = Group(), torch.ones(2, 3, requires_grad=True)
    assert group.world == 1 and group.gather(x) is x and group.any(True) and not group.any(False)
    assert group.flag(True, x) == 1 and group.flag(False, x) == 0


def test_missing_gpus_are_told():
    have = torch.cuda.device_count()
    check_gpus(0, "stage")
    with pytest.raises(MachineError, match=f"asks for {have + 1} GPUs, this machine shows {have}"):
        check_gpus(have + 1, "stage")


@pytest.mark.parametrize(
    "gpus, world, visible, device",
    [(0, 1, True, "cuda:0"), (0, 1, False, "cpu"), (0, 2, True, "cpu"), (2, 2, True, "cuda:0")],
)
def test_a_job_that_asks_for_no_gpu_takes_one_that_it_sees(monkeypatch, gpus, world, visible, device):
    """What README says of gpus=0; several processes without GPUs of their own stay on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_, **__: None)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    group = Group()
    group.world = world
    assert device_of(gpus, group) == device
