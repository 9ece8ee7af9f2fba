"""Losses and objectives of the user's own that are written otherwise than the scaffolds of `zerodr new`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.unit.config_helpers import lab_plan, params, project
from tests.unit.memory_plan_helpers import EPISODE, add

from zerodr.config import custom
from zerodr.config.custom import code_digest
from zerodr.config.load import load_bench
from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ConfigError
from zerodr.operations.loading import load_plan
from zerodr.operations.scaffold import write_new
from zerodr.papers.moma.settings import AugmenterObjective
from zerodr.training.finetune import finetune
from zerodr.training.objectives.base import Encoded
from zerodr.training.objectives.ranking import make_objective

LOSSES = Path("config/my/losses.py")
HEAD = """from __future__ import annotations

from dataclasses import dataclass

import torch

from zerodr.training.objectives.base import Encoded, Objective
"""

__all__ = ["project"]


def batch() -> Encoded:
    queries = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    documents = torch.tensor([[[1.0, 0.0], [0.5, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    return Encoded(0, queries, documents, known=torch.tensor([[0, 0], [0, 2], [1, 2]]))


def write(code: str) -> None:
    LOSSES.parent.mkdir(exist_ok=True)
    LOSSES.write_text(f"{HEAD}\n\n{code}")


MEAN = """@dataclass
class Mean(Objective):
    temperature: float = 0.05

    def __call__(self, batch: Encoded) -> dict[str, torch.Tensor]:
        return {"mean": batch.queries.mean() / self.temperature}
"""


def test_code_that_is_no_python_stops_commands_and_jobs_that_use_it_alone(project, monkeypatch):
    """Who writes the next loss while a run goes on must not end its other jobs."""
    monkeypatch.setattr(custom, "LEFT_OUT", set())
    write_new("loss", "hinge")
    write_new("measure", "best_grade")
    for file in (LOSSES, LOSSES.with_name("measures.py")):
        file.write_text(f"{file.read_text()}\n\ndef next(\n")
    with pytest.raises(ConfigError, match="is no Python"):
        load_plan(project, {}, True, {})
    methods = load_plan(project, {}, False, {}).bench.methods
    assert "dpr" in methods and "dpr-hinge" not in methods


def test_a_record_holds_the_code_that_trained_where_the_file_changes_during_it(project, monkeypatch):
    write_new("loss", "hinge")
    settings = SimpleNamespace(training=SimpleNamespace(save_steps=()), objective=ObjectiveSettings(name="hinge"))
    schedule = SimpleNamespace(first_step=0)
    task = SimpleNamespace(additions=(), params=SimpleNamespace(settings=settings, schedule=schedule))
    steps = {"task_of": lambda stage: task, "run_work": lambda *_: LOSSES.write_text("def hinge(\n")}
    for name, step in {"warn_of_warm_up": lambda *_: None, "publish_steps": lambda *_: None, **steps}.items():
        monkeypatch.setattr(f"zerodr.training.finetune.{name}", step)
    notes = {}
    finetune(SimpleNamespace(note=lambda **facts: notes.update(facts)))
    assert "def hinge(scores: Tensor" in notes["custom_code"]


def test_a_loss_with_a_name_of_a_papers_objective_is_refused_or_is_the_one_that_trains(project):
    write("def spans(scores):\n    return scores.mean()\n")
    assert "dpr" in load_bench(project, {}).methods
    assert make_objective(ObjectiveSettings(name="spans"))(batch())["spans"].item() == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="the bench has a loss of that name"):
        write_new("loss", "adist")
    write("def adist(scores):\n    return scores.mean()\n")
    with pytest.raises(ConfigError, match="losses.py:.*: adist is a name of the bench"):
        load_bench(project, {})


def test_an_objective_may_be_a_dataclass_with_annotations_that_are_texts(project):
    write(MEAN)
    objective = make_objective(ObjectiveSettings(name="Mean", arguments={"temperature": 0.5}))
    assert objective(batch())["mean"].item() == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("outer", "inner", "shared"),
    [
        ("@dataclass", "", False),
        ("", "@property", False),
        ("", "@torch.no_grad()", False),
        ("@register", "", True),
        ("@dataclass(eq=register(None) is None)", "", True),
    ],
)
def test_a_decorated_class_next_to_a_loss_is_code_of_it_where_its_decorator_may_change_it(
    project, outer, inner, shared
):
    digests = set()
    for factor in (1, 2):
        write(
            "def register(kind):\n    return kind\n\n\ndef mine(scores):\n    return scores.mean()\n\n\n"
            f"{outer}\nclass Other(Objective):\n    {inner}\n    def scale(self):\n        return {factor}\n"
        )
        digests.add(code_digest("losses.py", "mine"))
    assert len(digests) == 1 + shared


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"temprature": 1.0}, "Mean of losses.py takes no 'temprature', did you mean temperature"),
        ({"temperature": "a"}, "is a float"),
    ],
)
def test_arguments_of_a_dataclass_are_checked_in_the_plan(project, arguments, what):
    write(MEAN)
    with pytest.raises(ValueError, match=what):
        ObjectiveSettings(name="Mean", arguments=arguments)
    write(MEAN.replace("(Objective)", "(Base)"))
    assert ObjectiveSettings(name="Mean", arguments=arguments).arguments == arguments


LEARNED = """class Learned(Objective):
    def __init__(self, start: float = 1.0):
        self.factor = {weights}

    def __call__(self, batch):
        return {{"l": batch.queries.mean() * 2}}
"""


@pytest.mark.parametrize("weights", ["torch.nn.Parameter(torch.tensor(start))", "torch.nn.Linear(2, 2)"])
def test_weights_of_an_objective_that_nothing_trains_are_refused(project, weights):
    write(LEARNED.format(weights=weights))
    with pytest.raises(
        ConfigError, match=r"objective Learned: has weights of its own \(factor\), which nothing trains"
    ):
        make_objective(ObjectiveSettings(name="Learned"))(batch())
    write(LEARNED.format(weights=weights) + "\n    def on_step(self, finished):\n        return {}\n")
    assert make_objective(ObjectiveSettings(name="Learned"))(batch())["l"].item() == pytest.approx(1.5)


def test_another_loss_in_a_variant_takes_of_the_arguments_below_those_that_it_has(project):
    write(
        "def hinge(scores, margin: float = 1.0, weight: float = 1.0):\n    return scores.mean()\n\n\n"
        "def soft(scores, temperature: float = 1.0, weight: float = 1.0):\n    return scores.mean()\n"
    )
    hinge = "{name: hinge, negatives_per_query: 1, arguments: {margin: 0.5, weight: 2.0}}"
    soft = "{name: soft, arguments: {temperature: 0.1}}"
    LOSSES.with_name("mine.yaml").write_text(
        f"like: dpr\nsettings: {{chain: {{ep0: {{objective: {hinge}}}}}}}\n"
        f"variants:\n  soft:\n    settings: {{chain: {{ep0: {{objective: {soft}}}}}}}\n"
    )
    methods = load_bench(project, {}).methods
    assert methods["mine+soft"].settings.chain["ep0"].objective.arguments == {"temperature": 0.1, "weight": 2.0}


def test_what_augments_queries_learns_by_the_loss_of_its_stage_or_one_of_its_own(project):
    write("def mine(scores, margin: float = 1.0):\n    return margin - scores.mean()\n")
    add(project, chain={"moma1": EPISODE | {"objective": {"name": "mine", "arguments": {"margin": 0.5}}}})
    given = EPISODE["augmenter"] | {"objective": {"name": "mine", "arguments": {"margin": 2.0}}}
    add(project, "other", chain={"moma1": EPISODE | {"augmenter": given}})
    planned, losses = lab_plan(project), []
    for model in ("mine", "other"):
        settings = params(planned, "train_augmenter", model=model, stage="moma1")["settings"]["settings"]
        losses.append(make_objective(AugmenterObjective(**settings["objective"]))(batch())["mine"].item())
    assert losses[1] - losses[0] == pytest.approx(1.5)
