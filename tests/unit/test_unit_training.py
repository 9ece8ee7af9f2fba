"""BERM in training: the gradient, caching, processes, resume, composition with other methods, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from tests.unit.training_helpers import cut_and_resumed, make_mined, seal, tiny_settings, weights_in
from tests.unit.unit_helpers import DOCUMENTS, QUERIES, label, lay_out, segment
from tests.unit.weighting_helpers import weigh
from tests.unit.word_probe import make_target

from zerodr.artifacts.record import read_record, record_path
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, ConfigError, ModelError
from zerodr.papers.berm.losses import r1, r2
from zerodr.papers.berm.settings import BermSettings
from zerodr.papers.berm.training import BermTerms, UnitForward
from zerodr.papers.berm.unit_table import load_units
from zerodr.papers.coco_dr import training as coco_dr_training
from zerodr.training.data.batches import Stream
from zerodr.training.data.examples import load_examples
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import add_gradients, prepare
from zerodr.training.objectives.base import Stack
from zerodr.training.objectives.ranking import PairwiseNLL

UNITS = {"units": "results/units/manifest.json", "labels": "results/labels/manifest.json"}


def mined_rows() -> list[tuple]:
    generator = np.random.default_rng(1)
    return [
        (f"q{i}", [f"d{i}"], [f"d{j}" for j in generator.permutation(DOCUMENTS)[:5] if j != i]) for i in range(QUERIES)
    ]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    import os

    root = lay_out(tmp_path_factory.mktemp("unit-training"))
    make_mined(root / "results/mined", rows=mined_rows())
    before = Path.cwd()
    os.chdir(root)
    segment()
    label()
    os.chdir(before)
    return root


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> Path:
    shutil.copytree(built / "results", tmp_path / "results", ignore=shutil.ignore_patterns(".state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spec(
    place: str = "ep0",
    inputs: dict[str, str] | None = None,
    berm: dict | None = None,
    groups: Any = None,
    **changes: Any,
) -> StageSpec:
    named = (
        {
            "model": "results/init/manifest.json",
            "mined": "results/mined/manifest.json",
            "source": "results/source/manifest.json",
        }
        | UNITS
        | (inputs or {})
    )
    params = tiny_settings(**changes)
    params["settings"] |= {"groups": groups, "clusters": {}} if groups else {}
    params["settings"] |= {"berm": berm or {}, "units": {}} if named["units"] or named["labels"] else {}
    return StageSpec(
        "finetune",
        1,
        {"model": "tiny", "stage": place},
        {key: value for key, value in named.items() if value},
        {"model": f"results/{place}/manifest.json"},
        params,
        13,
        1,
    )


def curve(name: str, place: str = "ep0") -> list[float]:
    return [p["value"] for p in read_record(f"results/{place}/manifest.json")["metrics"] if p["name"] == name]


def parts(project: Path, chunk: int | None = None, head: bool = False) -> tuple[UnitForward, Stream]:
    model = BiEncoder.load(project / "results/init").eval()
    examples = load_examples(project / "results/mined", project / "results/source", " ")
    table = load_units(project / "results/units", project / "results/labels", examples, model, " ")
    forward = UnitForward(model, examples, "cpu", chunk, table=table, head=head)
    return forward, Stream(examples, np.arange(QUERIES), 8, 1, [3])


def gradients(forward: UnitForward, share: Any, settings: BermSettings) -> tuple[dict[str, float], torch.Tensor]:
    objective = Stack({"main": (1.0, PairwiseNLL()), "berm": (1.0, BermTerms(settings))})
    forward.model.zero_grad()
    terms = add_gradients(forward, objective, share, Group(), [1, 2])
    every = [p.grad.flatten() for p in forward.model.parameters() if p.grad is not None]
    return {name: float(value) for name, value in terms.items()}, torch.cat(every)


def by_hand(forward: UnitForward, batch: Any, settings: BermSettings) -> tuple[list[float], torch.Tensor]:
    """R1 and R2 one passage at a time from the module's own hidden states, and the gradient of the whole loss."""
    model, examples, table = forward.model, forward.examples, forward.table
    model.zero_grad()

    def one(text: str, side: str) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.tensor([model.tokenize([text], side)[0]])
        vector, states = model.encode_tokens({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, side)
        return vector[0], states[0]

    found1, found2, main = [], [], []
    for line, row in enumerate(batch.rows):
        q, _ = one(examples.texts_of_queries(np.array([row]))[0], "query")
        (p, states), (n, _) = (one(text, "document") for text in examples.texts_of_documents(batch.documents[line]))
        number = int(batch.documents[line, 0])
        e = torch.stack([states[a:b].mean(0) for a, b in zip(table.first[number], table.stop[number], strict=True)])
        valid, y = torch.ones(1, len(e), dtype=torch.bool), label_of(forward, int(row), number)
        main.append(torch.nn.functional.softplus(q @ n - q @ p))
        if len(e) > 1:
            found1.append(r1(p[None], e[None], valid))
            found2.append(r2(q[None], p[None], e[None], valid, y))
    w1, w2 = settings.weights(0)
    terms = [w1 * torch.stack(found1).mean(), w2 * torch.stack(found2).mean()]
    (torch.stack(main).mean() + sum(terms)).backward()
    every = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return [float(term.detach()) for term in terms], torch.cat(every)


def label_of(forward: UnitForward, row: int, document: int) -> torch.Tensor:
    return torch.from_numpy(forward.table.labels_of(forward.examples, np.array([row]), np.array([document])))


def test_labels_of_a_batch_are_those_of_its_pairs(project):
    forward, _ = parts(project)
    rows = np.random.default_rng(0).permutation(QUERIES - 1)
    documents = np.array([forward.examples.positives[int(row)][-1] for row in rows])
    found = forward.table.labels_of(forward.examples, rows, documents)
    pairs = zip(rows.tolist(), documents.tolist(), strict=True)
    assert found.tolist() == [int(label_of(forward, row, document)) for row, document in pairs]


@pytest.mark.parametrize("chunk", [None, 3])
def test_terms_and_gradient_are_those_of_a_loop(project, chunk):
    """With gradient caching, too; and the batch holds the passage of one unit."""
    forward, stream = parts(project, chunk)
    batch = stream.batch(next(step for step in range(5) if QUERIES - 1 in stream.batch(step).rows))
    batch = replace(batch, step=0)
    settings = BermSettings()
    terms, made = gradients(forward, prepare(forward, batch, Group()), settings)
    expected, hand = by_hand(forward, batch, settings)
    assert [terms["berm.r1"], terms["berm.r2"]] == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(made, hand, rtol=1e-3, atol=1e-5)


def test_labels_belong_to_pairs_and_units_to_passages(project):
    forward, stream = parts(project)
    examples, table = forward.examples, forward.table
    for row in range(QUERIES - 1):
        number = int(examples.positives[row][0])
        assert label_of(forward, row, number).tolist() == [int(examples.queries[row].as_py()[1:]) % 3]
        assert len(table.first[number]) == 3
    share = prepare(forward, stream.batch(0), Group())
    own = {len(share.texts.documents) + place for place in share.texts.documents[:, 0]}
    assert {place for place, units in enumerate(share.texts.unit_tokens) if len(units)} == own
    assert share.texts.size == len(share.texts.tokens) + sum(map(len, share.texts.unit_tokens))


def test_training_lowers_both_terms_and_finds_more_units(project):
    run_spec(spec(berm={"preset": "paper", "w_r2": 1.0}, steps=100, total_steps=100, learning_rate=2e-3, dropout=0.0))
    for name in ("berm.r1", "berm.r2"):
        values = curve(name)
        assert np.mean(values[-10:]) < 0.8 * np.mean(values[:10]), name
    accuracy = curve("berm.unit_accuracy")
    assert np.mean(accuracy[-10:]) > np.mean(accuracy[:10])
    notes = read_record("results/ep0/manifest.json")["notes"]
    assert notes["training_queries"] == QUERIES - 4
    trained, plain = ({p.name for p in Path(f"results/{place}").glob("[!.]*")} for place in ("ep0", "init"))
    assert trained == plain | {"lineage.json"}


@pytest.mark.parametrize(
    "changes",
    [
        {"berm": {"preset": "released_ance"}, "name": "pairwise_nll"},
        {"berm": {"preset": "released_dpr"}},
        {"berm": {"preset": "released_dpr_schedule"}, "accumulation": 2},
        {"cache_chunk": 3},
        {"precision": "bf16"},
        {"berm": {"w_r1": 0.0}},
        {"berm": {"unit_space": "head", "similarity": "cosine", "temperature": 0.05}},
    ],
    ids=str,
)
def test_every_setting_trains(project, changes):
    run_spec(spec(**changes))
    assert np.isfinite(curve("loss")).all() and weights_in(Path("results/ep0")) != weights_in(Path("results/init"))
    weights = BermSettings(**changes.get("berm", {})).weights(0)
    assert [bool(curve(f"berm.{name}")) for name in ("r1", "r2")] == [bool(weight) for weight in weights]


@pytest.mark.parametrize("name", ["margin_mse", "kl"])
def test_distillation_with_units(project, name):
    make_mined(project / "results/scored", scored=True, rows=mined_rows())
    run_spec(spec(inputs={"scored": "results/scored/manifest.json"}, name=name, negatives_per_query=2))
    assert curve(f"main.{name}") and curve("berm.r1")


@pytest.mark.parametrize("chunk", [None, 3])
def test_masked_words_of_a_target_join_units(project, chunk):
    """Units are pooled as without them, and the loss is the sum of all terms."""
    made = spec(
        cache_chunk=chunk, dropout=0.0, inputs={"corpora": f"{make_target(project / 'results/sea')}/manifest.json"}
    )
    made.params["settings"] |= {"scope": "target", "masked_words": {"max_tokens": 24, "weight": 0.25}}
    run_spec(made)
    run_spec(spec("plain", dropout=0.0))
    for name in ("main.info_nce", "berm.r1", "berm.r2"):
        assert curve(f"main.{name}")[0] == pytest.approx(0.75 * curve(name, "plain")[0], rel=1e-4), name
    terms = [curve(name) for name in ("main.main.info_nce", "main.berm.r1", "main.berm.r2", "masked_words")]
    assert np.allclose(curve("loss"), np.sum(terms, axis=0), rtol=1e-4)


@pytest.mark.parametrize("engine", ["segment", "jvp", "loop"])
def test_groups_weigh_the_loss_and_not_the_units(project, monkeypatch, engine):
    def force(name: str) -> None:
        monkeypatch.setattr(coco_dr_training, "weigh_clusters", partial(weigh, engine=name))

    folder = project / "results/clusters"
    folder.mkdir()
    clusters = pa.array([i % 4 for i in range(QUERIES)], pa.int32())
    columns = {"query": pa.array([f"q{i}" for i in range(QUERIES)]), "cluster": clusters}
    pq.write_table(pa.table(columns), folder / "clusters.parquet")
    seal(folder)
    groups = {"mode": "idro", "kappa": 1.0, "layers": 1, "similarity": "dot"}
    inputs = {"clusters": "results/clusters/manifest.json"}
    changes = {"name": "pairwise_nll", "groups": groups, "dropout": 0.0, "steps": 6, "total_steps": 6}
    force(engine)
    run_spec(spec(engine, inputs, **changes))
    force("loop")
    run_spec(spec("loop-again", inputs, **changes))
    assert curve("main.omega_max", engine) == pytest.approx(curve("main.omega_max", "loop-again"), rel=1e-3)
    assert curve("berm.r1", engine) == pytest.approx(curve("berm.r1", "loop-again"), rel=1e-3)


def test_in_a_relevance_module_the_units_teach_it_alone(project):
    """DDR's REM with BERM's terms: both are logged, the backbone keeps its bits, every module learns from units."""
    rem = {"rank": 3, "bottleneck": 5, "fold": False}
    run_spec(spec(rem=rem, dropout=0.0))
    run_spec(spec("without", inputs=dict.fromkeys(UNITS, ""), rem=rem, dropout=0.0))
    for name in ("berm.r1", "berm.r2", "main.info_nce"):
        assert len(curve(name)) == 12 and np.isfinite(curve(name)).all() and min(curve(name)) > 0, name
    before, after = (load_file(project / f"results/{place}/model.safetensors") for place in ("init", "ep0"))
    assert set(before) == set(after) and all(torch.equal(before[name], after[name]) for name in before)
    for name, weights in (("adapter_model", 8), ("pa", 8)):
        own, alone = (load_file(project / f"results/{place}/rem/{name}.safetensors") for place in ("ep0", "without"))
        assert len(own) == weights and all(bool(value.any()) for value in own.values())
        assert all(not torch.equal(own[key], alone[key]) for key in own)


@pytest.mark.slow
def test_two_processes_train_as_one(project):
    run_spec(spec("one", dropout=0.0, max_grad_norm=None))
    run_spec(spec("two", dropout=0.0, max_grad_norm=None, processes=2))
    for name in ("berm.r1", "berm.r2", "main.info_nce", "gradient_norm"):
        assert curve(name, "two") == pytest.approx(curve(name, "one"), rel=1e-3), name


def test_a_run_that_was_cut_off_ends_with_the_same_bits(project, monkeypatch):
    changes = {"steps": 12, "total_steps": 12, "checkpoint_steps": 4}
    cut_and_resumed(spec, monkeypatch, **changes)
    assert weights_in(project / "results/cut") == weights_in(project / "results/whole")
    assert curve("berm.r1", "cut") == curve("berm.r1", "whole")


def test_units_for_other_tokens_are_refused(project):
    path = project / "results/labels/statistics.json"
    facts = json.loads(path.read_text())
    facts["made_for"]["tokens"] = 12
    path.write_text(json.dumps(facts))
    record_path(path.parent).unlink(missing_ok=True)  # with its record, it would count as damaged
    seal(path.parent)
    with pytest.raises(ArtifactError, match="was made for tokens 12, this training has 64"):
        run_spec(spec())


def test_pairs_without_a_label_are_refused(project):
    path = project / "results/labels/labels.parquet"
    pq.write_table(pq.read_table(path).slice(3), path)
    record_path(path.parent).unlink(missing_ok=True)  # with its record, it would count as damaged
    seal(path.parent)
    with pytest.raises(ArtifactError, match="lacks 3 of the 40 pairs of this training, the first is q0"):
        run_spec(spec())


def test_units_and_berm_go_together(project):
    with pytest.raises(ConfigError, match="params.settings.berm and the inputs `units` and `labels` go together"):
        run_spec(spec(inputs={"labels": ""}))


def test_a_decoder_has_no_units(project):
    forward, _ = parts(project)
    forward.model.contract = forward.model.contract.model_copy(update={"pooling": "decoder_first"})
    with pytest.raises(ModelError, match="no unit can be pooled"):
        load_units(project / "results/units", project / "results/labels", forward.examples, forward.model, " ")
