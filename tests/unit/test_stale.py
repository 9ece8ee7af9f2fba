"""Artifacts that other settings made are found by their records, whatever Snakemake remembers of them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from zerodr.artifacts.record import record_path
from zerodr.config.base import canonical_json
from zerodr.operations.stale import forced_words, outdated, sentence


class Params(dict):
    """Params of a Snakemake job: names as keys and as attributes."""

    def __getattr__(self, name):
        return self[name]


class Job:
    """A job of the graph, equal to itself alone."""

    def __init__(self, output, params):
        self.output, self.params = output, params


def planned(output, **changed):
    settings = {"version": 2, "seed": 13, "settings": {"learning_rate": 1e-5}} | changed
    return Job([str(output)], Params(settings=canonical_json(settings)))


def graph(*jobs, running=()):
    return SimpleNamespace(dag=SimpleNamespace(jobs=list(jobs), needrun_jobs=lambda exclude_finished: list(running)))


@pytest.fixture
def finished(tmp_path):
    """An artifact with a record of version 2, seed 13 and a learning rate of 1e-5."""
    path = tmp_path / "model" / "manifest.json"
    path.parent.mkdir()
    path.write_text("{}")
    spec = {"version": 2, "params": {"learning_rate": 1e-5}}
    record_path(path).write_text(json.dumps({"spec": spec, "seed": 13}))
    return path


def test_an_artifact_of_the_planned_settings_is_left_alone(finished):
    assert outdated(graph(planned(finished))) == []


@pytest.mark.parametrize("changed", [{"version": 3}, {"seed": 14}, {"settings": {"learning_rate": 3e-5}}])
def test_other_settings_versions_and_seeds_are_found(finished, changed):
    job = planned(finished, **changed)
    assert outdated(graph(job)) == [str(finished)]
    assert "1 finished artifact is of other settings than planned" in sentence([str(finished)])


def test_what_runs_anyway_and_what_has_no_record_is_not_told(finished, tmp_path):
    job = planned(finished, version=3)
    assert outdated(graph(job, running=[job])) == []
    assert outdated(graph(planned(tmp_path / "other"), Job(["x"], Params()))) == []
    record_path(finished).write_text("{ damaged")
    assert outdated(graph(planned(finished, version=3))) == []


def test_the_command_line_keeps_its_own_forced_targets():
    words = ["snakemake", "-R", "a", "b", "--cores", "1", "target"]
    assert forced_words(["b", "c"], words) == ["snakemake", "--cores", "1", "target", "--forcerun", "a", "b", "c"]
    assert forced_words(["c"], ["snakemake", "target"]) == ["snakemake", "target", "--forcerun", "c"]
