"""Gradients that are added up over processes during the backward pass give the bits of those added up after it."""

from __future__ import annotations

import pytest
import torch
from tests.unit import overlap_probe
from tests.unit.pretraining_helpers import lay_out as lay_out_spans
from tests.unit.pretraining_helpers import passages
from tests.unit.training_helpers import make_mined, make_source, run_two_processes, tiny_model


@pytest.fixture(scope="module")
def trained(tmp_path_factory, root):
    """What each of two processes has after some steps."""
    folder = tmp_path_factory.mktemp("overlap")
    lay_out_spans(folder)
    passages(folder)  # not by two processes at once
    make_source(folder / "source"), make_mined(folder / "mined")
    tiny_model(folder / "model"), tiny_model(folder / "separate", towers="separate")
    return run_two_processes(root, "overlap_probe", folder)


@pytest.mark.parametrize("name", overlap_probe.CASES)
def test_weights_have_the_same_bits(trained, name):
    for process in trained:
        during = {key: value for key, value in process.items() if key.startswith(f"{name}/during/")}
        assert len(during) > 20
        assert all(torch.equal(value, process[key.replace("/during/", "/after/")]) for key, value in during.items())
        assert all(torch.equal(value, trained[0][key]) for key, value in during.items())


@pytest.mark.parametrize("name", overlap_probe.CASES)
def test_buckets_travel_before_the_pass_ends_from_the_second_step_on(trained, name):
    for process in trained:
        sent = process[f"sent/{name}/during"].tolist()
        if name == "direct":
            assert sent == []  # a further pass follows
        else:
            assert sent[0] == 0 and len(sent) == overlap_probe.STEPS and min(sent[1:]) >= 3
        assert process[f"sent/{name}/after"].tolist() == []


def test_the_first_process_gives_the_numbers_of_all(trained):
    assert [process["from_first"].tolist() for process in trained] == [[1.5, 0.0]] * 2
