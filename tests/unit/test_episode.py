"""One episode of MoMA by its stages: fused training, attention, labels and training of the augmenter, joined folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from moma_helpers import DOCUMENTS, MINING, QUERIES, K, lay_out, measure, mine, rankings, run, t5, train_main, training

from zerodr.collections.access import corpus_ids
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.errors import ArtifactError, ModelError
from zerodr.papers.moma.augmenter import most_attended, negative_ranks, positives_of
from zerodr.papers.moma.folders import AUGMENTER, augmenter_of
from zerodr.papers.moma.fusion_encoder import FusionEncoder
from zerodr.training.data.examples import load_examples
from zerodr.training.loop.dev import pool_of


@pytest.fixture(scope="module")
def episode(tmp_path_factory):
    """A folder in which main model, attention and labels were made."""
    folder = tmp_path_factory.mktemp("episode")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lay_out()
        train_main()
        measure()
        mine()
    return folder


@pytest.fixture
def here(episode, monkeypatch):
    monkeypatch.chdir(episode)
    return episode


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# ---- labels ----------------------------------------------------------------------------------------------------------
def test_labels_of_the_augmenter():
    """The labelled and the three most attended documents (MoMA eq. 10), and what remains as negatives (eq. 12)."""
    labelled, retrieved = ["m7", "m9"], ["m7", "w1", "w2", "m3", "x5", "w4"]
    attention = [0.9, 0.5, 0.5, 0.2, 0.1, 0.7]
    assert most_attended(retrieved, attention, 3) == ["m7", "w4", "w1"], "ties go to the earlier retrieved"
    positives = positives_of(labelled, retrieved, attention, 3)
    assert set(positives) == {"m7", "m9", "w1", "w4"} and len(positives) == 4
    ranking = ["w1", "m7", "w2", "x8", "m3", "x5", "w4", "m9", "x10", "x11"]
    pool = [ranking[rank - 1] for rank in negative_ranks(ranking, positives)]
    assert pool == ["w2", "x8", "m3", "x5", "x10", "x11"]


# ---- the main model --------------------------------------------------------------------------------------------------
def test_the_main_model_learns_with_documents(here):
    model = FusionEncoder.load(here / "main")
    assert model.fusion.documents == K and model.fusion.document_tokens == 16
    assert weights(here / "main") != weights(here / "start")
    record = json.loads((here / "main/lineage.json").read_text())
    assert {"dev.ndcg_cut_10", "loss"} <= {metric["name"] for metric in record["metrics"]}


def test_gradient_caching_changes_nothing(here, monkeypatch):
    alike = {"dropout": 0.0, "dev_queries": 0}
    plain, cached = (
        FusionEncoder.load(train_main(name, training=alike | more))
        for name, more in (("plain", {}), ("cached", {"cache_chunk": 8}))
    )
    for (name, one), other in zip(plain.named_parameters(), cached.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4, msg=name)


def test_other_documents_make_another_model(here):
    alike = {"dropout": 0.0, "dev_queries": 0}
    one = train_main("with-positives", training=alike)
    other = train_main("without-positives", training=alike, memory={"exclude_positives": True})
    assert weights(one) != weights(other)


def test_a_query_without_ranking_is_refused(here):
    table = pq.read_table("rankings.parquet").slice(1)
    pq.write_table(table, "short.parquet")
    with pytest.raises(ArtifactError, match="lacks 1 of 23 queries, the first is q0"):
        train_main("refused", rankings="short.parquet")


def test_fp16_is_refused(here):
    with pytest.raises(ModelError, match="fp16 is refused for T5"):
        train_main("half", training={"precision": "fp16"})


# ---- attention and what it teaches -----------------------------------------------------------------------------------
def test_attention_of_the_mined_queries(here):
    rows = pq.read_table("attention.parquet").to_pylist()
    assert [row["query"] for row in rows] == [f"q{n}" for n in range(QUERIES - 1)], "the last was not mined"
    for row in rows:
        assert len(row["documents"]) == len(row["attention"]) == len(row["tokens"]) == K
        assert row["attention"] == row["fid_attention"]
        assert row["query_attention"] + sum(row["attention"]) == pytest.approx(2 * 4, abs=1e-4)  # layers x heads
        assert row["documents"][2] == f"source:d{row['query'][1:]}"
    without = pq.read_table(measure("unseen.parquet", exclude_positives=True)).to_pylist()
    assert not any(f"source:d{row['query'][1:]}" in row["documents"] for row in without)
    assert all(len(row["documents"]) == K for row in without)


def test_shares_are_of_attention_however_it_is_counted(here):
    rows = pq.read_table(measure("weighted.parquet", aggregation="prob_valuenorm_sum")).to_pylist()
    for row, own in zip(rows, pq.read_table("attention.parquet").to_pylist(), strict=True):
        assert row["fid_attention"] == own["fid_attention"] and row["query_attention"] == own["query_attention"]
        assert row["attention"] != own["attention"]


def test_labels_stand_with_their_texts(here):
    rows = pq.read_table("learned/mined.parquet").to_pylist()
    attention = {row["query"]: row for row in pq.read_table("attention.parquet").to_pylist()}
    ids = set(corpus_ids(Path("learned")).to_pylist())
    for row in rows:
        own = attention[row["query"]]
        expected = positives_of([f"source:d{row['query'][1:]}"], own["documents"], own["attention"], 2)
        assert row["positives"] == expected
        assert len(row["negatives"]) == 4 and not {*row["negatives"]} & {*row["positives"]}
        assert {*row["positives"], *row["negatives"]} <= ids
    texts = dict(
        zip(*pq.read_table("learned/corpus.parquet", columns=["id", "text"]).to_pydict().values(), strict=True)
    )
    source = dict(
        zip(*pq.read_table("source/corpus.parquet", columns=["id", "text"]).to_pydict().values(), strict=True)
    )
    assert texts["source:d3"] == source["d3"] and any(key.startswith("other:") for key in texts)
    facts = json.loads(Path("learned/statistics.json").read_text())
    assert facts["queries"] == QUERIES - 1 and facts["queries_with_relevant_augmentation"] == 1.0
    assert sum(facts["selected_by_memory"].values()) == 2 * (QUERIES - 1)


def test_judged_documents_are_learned_from_where_the_source_is_no_memory(here):
    ranked = rankings("others.parquet", source=False)
    attention = measure("of-others.parquet", rankings=ranked, memories=("other",))
    place = mine("learned-of-others", str(attention), ranked, ("other",))
    corpus = dict(
        zip(*pq.read_table(place / "corpus.parquet", columns=["id", "text"]).to_pydict().values(), strict=True)
    )
    source = pq.read_table("source/corpus.parquet", columns=["id", "text"]).to_pydict()
    for row in pq.read_table(place / "mined.parquet").to_pylist():
        own = f"d{row['query'][1:]}"
        assert row["positives"][0] == f"source:{own}" and len(row["positives"]) == 3
        assert all(key.startswith("other:") for key in [*row["positives"][1:], *row["negatives"]])
        assert corpus[f"source:{own}"] == source["text"][source["id"].index(own)]


def test_only_judged_documents_are_relevant_to_held_out_queries(here):
    examples = load_examples(Path("learned"), Path("learned"), None)
    rows = np.arange(len(examples))
    pool, relevant = pool_of(examples, rows, 2)
    names = examples.documents.to_pylist()
    for row, columns in zip(rows, relevant, strict=True):
        judged = f"source:d{examples.queries[int(row)].as_py()[1:]}"
        assert [names[pool[column]] for column in columns] == [judged]
        assert set(examples.positives[int(row)]) <= set(pool), "what attention selects is ranked with the others"
    assert max(examples.positives.sizes) > 1, "D^{a+} is more than D^{s+}"
    distilled = mine("judged-distilled", distils=True)
    scored = load_examples(distilled, distilled, None, distilled / "scored.parquet")
    assert [list(scored.judged[row]) for row in rows] == [list(scored.positives[row]) for row in rows]


def test_attention_of_other_queries_is_refused(here):
    pq.write_table(pq.read_table("rankings.parquet").slice(2), "few.parquet")
    inputs = {
        "attention": "attention.parquet",
        "rankings": "few.parquet",
        "source": "source/manifest.json",
        "memories": ["source/manifest.json", "other/manifest.json"],
    }
    with pytest.raises(ArtifactError, match="lacks 2 queries of attention.parquet, the first is q0"):
        run("papers.moma.augmenter:mine_memories", inputs, {"learned": "never/manifest.json"}, MINING)


# ---- the augmenter ---------------------------------------------------------------------------------------------------
def augmenter(place: str, learned: str = "learned", model: str = "start", separate: bool = False, **more) -> Path:
    run(
        "papers.moma.augmenter:train_augmenter",
        {"model": f"{model}/manifest.json", "learned": f"{learned}/manifest.json"},
        {"model": f"{place}/manifest.json"},
        training(**more) | {"title_join": None, "parent_learned": separate},
    )
    return Path(place)


def join(place: str, separate: bool = False, **inputs: str) -> Path:
    run(
        "papers.moma.augmenter:join_components",
        {name: f"{path}/manifest.json" for name, path in inputs.items()},
        {"model": f"{place}/manifest.json"},
        {"parent_learned": separate},
    )
    return Path(place)


def test_an_episode_and_the_next(here):
    trained = augmenter("augmenter")
    assert weights(trained) not in (weights(here / "start"), weights(here / "main"))
    model = join("episode", main="main", augmenter="augmenter")
    assert weights(model) == weights(here / "main") and weights(model / AUGMENTER) == weights(trained)
    assert FusionEncoder.load(model).fusion.documents == K
    vectors = load_encoder(augmenter_of(model, True)).encode_batch([np.array([5, 1])])
    assert np.array_equal(vectors, load_encoder(trained).encode_batch([np.array([5, 1])]))
    train_main("main2", "episode/manifest.json")
    assert weights(augmenter("augmenter2", model="episode", separate=True)) != weights(trained)
    frozen = join("frozen", True, main="main2", parent="episode")
    assert weights(frozen / AUGMENTER) == weights(trained)
    t5("another", seed=8)
    given = join("given", main="main2", parent="another")
    assert weights(given) == weights(here / "main2") and weights(given / AUGMENTER) == weights(here / "another")
    own = join("own", main="main2")
    assert augmenter_of(own, False) == own and not (own / AUGMENTER).exists()
    with pytest.raises(ModelError, match="has no subfolder augmenter"):
        augmenter_of(own, True)


@pytest.mark.parametrize("labels", [False, True])
def test_an_augmenter_that_learns_attention_itself(here, labels):
    place = mine(f"distilled-{labels}", distils=True)
    rows = pq.read_table(place / "scored.parquet").to_pylist()
    attention = {row["query"]: row for row in pq.read_table("attention.parquet").to_pylist()}
    assert all(row["scores"][1:] == attention[row["query"]]["attention"] for row in rows)
    assert all(row["negatives"] == attention[row["query"]]["documents"] for row in rows)
    objective = {"name": "adist", "negatives_per_query": K, "labels": labels}
    made = augmenter(f"adist-{labels}", place.name, objective=objective)
    record = json.loads((made / "lineage.json").read_text())
    assert ({"adist", "info_nce"} if labels else {"adist"}) <= {metric["name"] for metric in record["metrics"]}
    assert DOCUMENTS > K
