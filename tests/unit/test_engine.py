"""The loop: steps, hooks, curves, accumulation, clipping, interruption; and dev evaluation."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.training_helpers import QUERIES, load_tiny, ragged, tiny_examples, tiny_model

from zerodr.config.training import TrainingSettings
from zerodr.errors import ConfigError, NonFiniteLoss
from zerodr.mining.sample import held_out
from zerodr.training.data.batches import Stream
from zerodr.training.data.examples import Examples
from zerodr.training.distributed.processes import Group, Preempted
from zerodr.training.loop.dev import evaluate_dev, pool_of, ranking_metrics
from zerodr.training.loop.engine import Engine, Run
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.base import Objective
from zerodr.training.objectives.ranking import InfoNCE, PairwiseNLL
from zerodr.training.optimizers import make_optimizer, schedule


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> tuple[Path, Examples]:
    root = tmp_path_factory.mktemp("engine")
    torch.set_num_threads(1)
    return tiny_model(root / "model"), tiny_examples(root)


def engine(
    world: tuple[Path, Examples],
    state: Path,
    objective: Objective | None = None,
    dropout: float = 0.2,
    run: dict | None = None,
    **changes,
) -> Engine:
    folder, examples = world
    chosen = TrainingSettings(
        **({"steps": 12, "batch_queries": 8, "learning_rate": 1e-3, "checkpoint_steps": 5, "warmup_steps": 3} | changes)
    )
    model = load_tiny(folder, dropout=dropout)
    stream = Stream(examples, np.arange(QUERIES), chosen.batch_queries, 1, [13, 0])
    facts = Run("test", state, "identity", [13, 0], **(run or {}))
    forward = Forward(model, examples, "cpu", chosen.cache_chunk)
    return Engine(
        forward,
        objective or InfoNCE(),
        stream,
        make_optimizer(model, chosen),
        schedule(chosen.schedule, chosen.warmup_steps, 12),
        chosen,
        facts,
    )


def weights(made: Engine) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in made.model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


class Remembering(Objective):
    """InfoNCE whose weight depends on everything that it has seen; with a random generator of its own."""

    def __init__(self) -> None:
        self.generator, self.memory, self.started = torch.Generator().manual_seed(5), torch.ones(1), 0

    def __call__(self, batch):
        return {"info_nce": InfoNCE()(batch)["info_nce"] * self.memory.item()}

    def on_start(self, model, device):
        self.started += 1

    def on_step(self, finished):
        self.memory = self.memory * (1 + 0.1 * torch.rand(1, generator=self.generator))
        return {"memory": self.memory.item()}

    def state_dict(self):
        return {"memory": self.memory, "generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.memory = state["memory"]
        self.generator.set_state(state["generator"])


class Broken(Exception):
    pass


@pytest.mark.parametrize(
    "changes", [{}, {"batch_queries": 4, "cache_chunk": 3}, {"accumulation": 4}, {"optimizer": "lamb"}], ids=str
)
def test_interrupted_at_any_step_ends_with_the_same_bits(world, tmp_path, changes):
    whole = engine(world, tmp_path / "whole", Remembering(), **changes)
    curves = whole.fit()
    assert whole.objective.started == 1
    for stop in (2, 5, 7, 11):
        state = tmp_path / str(stop)
        broken = engine(world, state, Remembering(), **changes)
        shares = broken._shares

        def failing(step: int, at: int = stop, shares=shares):
            if step == at:
                raise Broken
            return shares(step)

        broken._shares = failing
        with pytest.raises(Broken):
            broken.fit()
        torch.manual_seed(stop)
        rest = engine(world, state, Remembering(), **changes)
        assert rest.fit() == curves
        assert same(weights(rest), weights(whole))


def test_curves_hold_all_terms_and_the_schedule(world, tmp_path):
    curves = engine(world, tmp_path, Remembering(), run={"first_step": 100}).fit()
    names = {name for name, _, _ in curves}
    assert names == {"loss", "info_nce", "gradient_norm", "memory", "learning_rate"}
    assert sorted({step for _, _, step in curves}) == list(range(101, 113))
    assert [value for name, value, _ in curves if name == "learning_rate"] == [0.0] * 12  # past the schedule's end


def test_a_long_run_has_a_bounded_curve(world, tmp_path):
    made = engine(world, tmp_path, steps=12)
    made.point_every = 5
    points = [(step, value) for name, value, step in made.fit() if name == "loss"]
    every = [value for name, value, _ in engine(world, tmp_path / "x", steps=12).fit() if name == "loss"]
    assert [step for step, _ in points] == [5, 10, 12]
    np.testing.assert_allclose(
        [value for _, value in points], [np.mean(every[:5]), np.mean(every[5:10]), np.mean(every[10:])]
    )


def test_accumulation_is_the_mean_over_micro_batches(world, tmp_path):
    one = engine(world, tmp_path / "1", PairwiseNLL(), dropout=0.0, steps=1, warmup_steps=0)
    four = engine(world, tmp_path / "4", PairwiseNLL(), dropout=0.0, steps=1, warmup_steps=0, accumulation=4)
    curves = [dict((name, value) for name, value, _ in made.fit()) for made in (one, four)]
    assert curves[0]["loss"] == pytest.approx(curves[1]["loss"], rel=1e-5)
    assert curves[0]["gradient_norm"] == pytest.approx(curves[1]["gradient_norm"], rel=1e-4)


def test_clipping_bounds_the_update(world, tmp_path):
    made = engine(world, tmp_path, steps=1, warmup_steps=0, max_grad_norm=1e-3)
    norm = dict((name, value) for name, value, _ in made.fit())["gradient_norm"]
    left = torch.cat([p.grad.ravel() for p in made.weights if p.grad is not None]).norm().item()
    assert norm > 1e-2 and left == pytest.approx(1e-3, rel=1e-3)


def test_batches_must_share_out(world, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"batch_queries 8 can't be shared equally by 3 micro-batches"):
        engine(world, tmp_path, accumulation=3)
    monkeypatch.setattr("zerodr.training.loop.engine.Group", lambda: SimpleNamespace(rank=0, world=3))
    with pytest.raises(ConfigError, match="can't be shared equally by 2 micro-batches x 3 processes"):
        engine(world, tmp_path, accumulation=2)


def test_evaluation_and_kept_models_are_on_schedule(world, tmp_path):
    kept: list[int] = []
    run = {"evaluate": lambda: {"ndcg_cut_10": 0.5}, "keep": kept.append}
    curves = engine(world, tmp_path, run=run, evaluate_steps=5, save_steps=(3, 12)).fit()
    assert [step for name, _, step in curves if name == "dev.ndcg_cut_10"] == [5, 10, 12]
    assert kept == [3, 12]


def test_sigterm_keeps_a_checkpoint_and_the_rest_follows(world, tmp_path):
    whole = engine(world, tmp_path / "whole")
    whole.fit()

    class Kill(InfoNCE):
        def on_step(self, finished):
            if finished == 7:
                signal.raise_signal(signal.SIGTERM)
            return {}

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted) as stopped:
        engine(world, tmp_path / "cut", Kill()).fit()
    assert stopped.value.code == 75 and signal.getsignal(signal.SIGTERM) == before
    assert (tmp_path / "cut" / "checkpoint-00000007").exists()
    rest = engine(world, tmp_path / "cut")
    rest.fit()
    assert same(weights(rest), weights(whole))


@pytest.mark.parametrize("steps", [12, 4])
def test_a_loss_of_which_no_gradient_reaches_a_weight_is_refused(world, tmp_path, steps):
    class Still(InfoNCE):
        until = 99

        def __call__(self, batch):
            return {"info_nce": super().__call__(batch)["info_nce"] * float(batch.step >= self.until)}

    with pytest.raises(ConfigError, match=f"test: the gradient is 0 in each of the first {min(10, steps)} steps"):
        engine(world, tmp_path / "still", Still(), steps=steps).fit()
    late = Still()
    late.until = 3
    engine(world, tmp_path / "late", late, steps=steps).fit()


def test_a_loss_that_is_no_number_stops_with_step_and_queries(world, tmp_path):
    class Fails(InfoNCE):
        def __call__(self, batch):
            return {"info_nce": super().__call__(batch)["info_nce"] * (float("nan") if batch.step == 7 else 1.0)}

    made = engine(world, tmp_path, Fails())
    with pytest.raises(
        NonFiniteLoss, match=r"test, step 7: info_nce is nan; queries of the batch: q\d+, .*lower learn"
    ):
        made.fit()
    assert (tmp_path / "checkpoint-00000007").exists()
    good = engine(world, tmp_path / "good", steps=7)
    good.fit()
    assert same(weights(made), weights(good))


def test_a_gradient_that_is_no_number_at_any_scale_stops_half_precision(world, tmp_path):
    """The scaler of fp16 would skip every step, and the stage would publish the weights that it began with."""

    class Fails(InfoNCE):
        def __call__(self, batch):
            loss = super().__call__(batch)["info_nce"]
            return {"info_nce": loss + torch.sqrt(loss * 0)}

    made = engine(world, tmp_path, Fails(), steps=40, precision="fp16")
    with pytest.raises(NonFiniteLoss, match=r"test, step 17: the gradient's norm is nan; queries"):
        made.fit()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), queries=st.integers(1, 5), pool=st.integers(1, 30))
def test_dev_measures_are_trec_evals(seed, queries, pool):
    import pytrec_eval

    generator = np.random.default_rng(seed)
    scores = torch.tensor(generator.integers(0, 8, (queries, pool)).astype(np.float32))
    positives = [
        generator.choice(pool, generator.integers(1, min(pool, 14) + 1), replace=False) for _ in range(queries)
    ]
    names = [f"{i:03d}" for i in range(pool)]
    judged = {f"q{i}": {names[j]: 1 for j in row} for i, row in enumerate(positives)}
    run = {f"q{i}": dict(zip(names, map(float, scores[i]), strict=True)) for i in range(queries)}
    found = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "recip_rank"}).evaluate(run)
    ours = ranking_metrics(scores, [row.tolist() for row in positives])
    assert ours["ndcg_cut_10"] == pytest.approx(np.mean([row["ndcg_cut_10"] for row in found.values()]))
    cut = [row["recip_rank"] if row["recip_rank"] > 0.0999 else 0.0 for row in found.values()]
    assert ours["recip_rank_cut_10"] == pytest.approx(np.mean(cut))


def test_held_out_queries_depend_on_the_split_alone():
    names = [f"q{i}" for i in range(100)]
    chosen = held_out(names, 7, 13)
    assert len(chosen) == 7 and chosen == held_out(names[::-1] + names, 7, 13) != held_out(names, 7, 14)
    assert held_out(names, 3, 13) < chosen
    assert len(held_out(names, 50, 13)) == 10 and held_out(names[:9], 5, 13) == set()


def test_the_pool_holds_all_positives_and_some_negatives():
    import pyarrow as pa

    examples = Examples(*[pa.array(["a"])] * 4, ragged([[3, 1], [2], [9]]), ragged([[5, 6, 7], [1], [8]]))
    pool, positives = pool_of(examples, np.array([0, 1]), 2)
    assert pool.tolist() == [1, 2, 3, 5, 6] and positives == [[0, 2], [1]]
    some = replace(examples, judged=ragged([[3], [4], [9]]))
    pool, relevant = pool_of(some, np.array([0, 1]), 2)
    assert pool.tolist() == [1, 2, 3, 4, 5, 6] and relevant == [[2], [3]], "others that are learned from join the pool"


def test_dev_evaluation_tokenises_once_leaves_the_mode_and_ignores_dropout(world, monkeypatch):
    folder, examples = world
    model = load_tiny(folder, dropout=0.5)
    forward = Forward(model, examples, "cpu")
    measures = [evaluate_dev(forward, examples, np.arange(10), 3, Group())]
    monkeypatch.setattr(forward.model.tokenizer, "_encode_plus", None)  # all texts are known by now
    measures.append(evaluate_dev(forward, examples, np.arange(10), 3, Group()))
    assert measures[0] == measures[1] and model.training
    assert 0 < measures[0]["ndcg_cut_10"] <= 1
