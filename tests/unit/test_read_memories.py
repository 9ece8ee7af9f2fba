"""A mixture over vectors that stay: the formula, the plain start, what each kind of label teaches, refusals."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from search_helpers import make_collection
from tests.unit.config_helpers import copy_config, lab_plan
from tests.unit.paper_helpers import told

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.papers.moma import learn_mixture as learn_mixture_module
from zerodr.papers.moma.learn_mixture import FACTS, learn_mixture
from zerodr.papers.moma.mixture import Ranked, Reader
from zerodr.papers.moma.read_memories import read_memories
from zerodr.papers.moma.report import mixtures
from zerodr.plan.plan import PARAMS

SIZE, COUNT = 24, 60
DOCUMENTS, QUERIES = [f"d{i:02}" for i in range(COUNT)], [f"q{i:02}" for i in range(COUNT)]
TRAINING = {"width": 4, "steps": 60, "batch_queries": 16, "dev_queries": 20, "first": 5, "learning_rate": 0.05}
AUGMENTER = {"selected": 1, "depth": 20, "negatives_per_query": 3, "learning_rate": 0.01}


def _unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """Questions whose documents lie elsewhere; a memory with a note for each question that leads there."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(3)
    queries, corpus = (_unit(draw.normal(size=(COUNT, SIZE))) for _ in range(2))
    for name, vectors in {"queries": queries, "c": corpus, "m": _unit(queries + 1.2 * corpus)}.items():
        np.save(f"{name}.npy", vectors)
    for name in ("c", "m"):
        make_collection(Path(name), DOCUMENTS, QUERIES)
    for split, rows in {"train": range(40), "dev": range(40, COUNT)}.items():
        lines = [f"{QUERIES[row]}\t{DOCUMENTS[row]}\t1" for row in rows]
        Path(f"c/qrels.{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
        np.save(f"{split}.npy", queries[list(rows)])
    return tmp_path


def learn(
    out: str = "learned",
    memories: tuple[str, ...] = ("source", "m"),
    labels: str = "attention",
    more: dict[str, object] | None = None,
    **changed,
) -> Reader:
    """Run the stage."""
    names = list(dict.fromkeys("c" if name == "source" else name for name in memories))
    inputs = {
        "queries": "train.npy",
        "held_out": "dev.npy",
        "corpus": ["c.npy"],
        "collection": "c/manifest.json",
        "memories": [f"{name}.npy" for name in names],
        "collections": [f"{name}/manifest.json" for name in names],
    }
    read = {"selected", "negatives_per_query", "learning_rate"} - {
        "adist": {"selected", "negatives_per_query"},
        "frozen": {"selected", "negatives_per_query", "learning_rate"},
        "judged": {"selected"},
    }.get(labels, set())
    augmenter = {key: value for key, value in AUGMENTER.items() if key in read | {"depth"}} | {"labels": labels}
    params = {"collection": "c", "held_out_split": "dev", "memories": memories, "documents": 4, "episodes": 2}
    params |= {"inverse_temperature": 1.0, "attention": TRAINING | changed, "augmenter": augmenter} | (more or {})
    spec = StageSpec("learn_mixture", 1, {}, inputs, {"attention": f"{out}/manifest.json"}, params, 7)
    run_spec(spec, learn_mixture)
    return Reader.load(Path(out))


def read(memories: tuple[str, ...] = ("c", "m"), exclude_self: bool = False, out: str = "out.npy") -> np.ndarray:
    inputs = {"queries": "queries.npy", "collection": "c/manifest.json", "attention": "learned/manifest.json"}
    inputs |= {"memories": [f"{name}.npy" for name in memories]}
    inputs |= {"collections": [f"{name}/manifest.json" for name in memories]}
    params = {"memories": memories, "documents": 4, "collection": "c", "split": "test", "exclude_self": exclude_self}
    run_spec(StageSpec("read_memories", 1, {}, inputs, {"embeddings": out}, params), read_memories)
    return np.load(out)


def gain(before: np.ndarray, after: np.ndarray) -> float:
    """Mean difference of the cosine with the document that a held-out question asks for."""
    corpus = np.load("c.npy")
    return float(((_unit(after) - _unit(before)) * corpus)[40:].sum(1).mean())


def test_what_is_read_is_the_formula():
    torch.manual_seed(0)
    network, draw = Reader(3, 2, 1.5, 0.3), np.random.default_rng(0)
    with torch.no_grad():
        network.values += torch.from_numpy(draw.normal(size=(3, 3)).astype(np.float32))
    query, documents, scores = (draw.normal(size=shape).astype(np.float32) for shape in ((3,), (4, 3), (4,)))
    retrieved, shares = network(*(torch.from_numpy(one[None]) for one in (query, documents, scores)))
    a, b, v = (one.detach().numpy() for one in (network.queries, network.documents, network.values))
    logits = np.array([1.5 * s + (a @ query) @ (b @ d) for s, d in zip(scores, documents, strict=True)])
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(shares[0].detach(), expected, rtol=1e-5)
    vector = query + 0.3 * v @ (expected @ documents)
    np.testing.assert_allclose(retrieved[0].detach(), vector / np.linalg.norm(vector), rtol=1e-5)


def test_no_step_is_the_plain_model(source):
    learn(steps=0)
    np.testing.assert_allclose(read(), np.load("queries.npy"), atol=1e-6)


def test_notes_that_lead_to_documents_are_read(source):
    network = learn()
    assert network.weight.item() > 0.3
    assert gain(np.load("queries.npy"), read()) > 0.1
    facts = pd.read_csv(f"learned/{FACTS}", sep="\t")
    assert set(facts["episode"]) == {0, 1, 2} and set(facts["questions"]) == {20}
    np.testing.assert_allclose(facts.groupby("episode")[["documents", "attention"]].sum(), 1.0, rtol=1e-5)
    last = facts[facts["episode"] == 2].set_index("memory")
    assert last.loc["m", "attention"] > last.loc["c", "attention"]


def test_documents_of_other_questions_are_not_read(source):
    np.save("m.npy", _unit(np.random.default_rng(5).normal(size=(COUNT, SIZE))))
    assert learn().weight.item() < 0.2


@pytest.mark.parametrize("labels", ["attention", "attention_alone", "judged", "adist", "frozen"])
def test_labels_move_the_augmenter_unless_it_is_frozen(source, labels):
    moved = (learn(labels=labels).augmenter - torch.eye(SIZE)).abs().max().item()
    assert (moved > 0.01) == (labels != "frozen")


def test_judged_documents_teach_although_they_are_in_no_memory(source):
    network = learn(memories=("m",), labels="judged")
    asked = network.asked(torch.from_numpy(np.load("train.npy"))).detach().numpy()
    assert (asked * np.load("c.npy")[:40]).sum(1).mean() > (np.load("train.npy") * np.load("c.npy")[:40]).sum(1).mean()


def test_banned_documents_are_left_out_in_order():
    retrieved = Ranked(np.array([[5, 3, 8, 1]]), np.array([[4.0, 3.0, 2.0, 1.0]], np.float32))
    left = retrieved.without([np.array([3])], 2)
    assert (left.rows.tolist(), left.scores.tolist()) == ([[5, 8]], [[4.0, 2.0]])


def test_where_judged_documents_come_first_others_are_read_and_are_negatives(source, monkeypatch):
    """A question of which all 20 ranks are judged: it reads the 4 behind these, and negatives are any others."""
    nearest = np.argsort(-(np.load("c.npy") @ np.load("train.npy")[0]))[:30]
    judged = "".join(f"{QUERIES[0]}\t{DOCUMENTS[row]}\t1\n" for row in nearest if row)
    with Path("c/qrels.train.tsv").open("a") as stream:
        stream.write(judged)
    given, plain = list[np.ndarray](), learn_mixture_module._drawn
    monkeypatch.setattr(learn_mixture_module, "_drawn", lambda rows, *how: given.append(rows) or plain(rows, *how))
    assert learn(memories=("source",), more={"exclude_positives": True}).weight.isfinite()
    far = [rows for rows in given if len(rows) > AUGMENTER["depth"]]
    assert far and not any(np.isin(nearest, rows).any() for rows in far)
    with pytest.raises(CollectionError, match="holds 60 documents .c: 60., expected at least 7"):
        learn("none", ("source",), more={"exclude_positives": True, "documents": 40})


def test_a_query_does_not_read_itself(source):
    make_collection(Path("self"), QUERIES, QUERIES)
    learn()
    np.save("self.npy", np.load("queries.npy"))
    params = {"memories": ("self", "m"), "documents": 1, "collection": "self", "split": "test", "exclude_self": True}
    inputs = {"queries": "queries.npy", "collection": "self/manifest.json", "attention": "learned/manifest.json"}
    inputs |= {"memories": ["self.npy", "m.npy"], "collections": ["self/manifest.json", "m/manifest.json"]}
    facts = {}
    for number, own in enumerate((True, False)):
        spec = StageSpec(
            "read_memories", 1, {}, inputs, {"embeddings": f"{number}.npy"}, params | {"exclude_self": own}
        )
        run_spec(spec, read_memories)
        facts[own] = np.load(f"{number}.npy")
    assert np.abs(facts[True] - facts[False]).max() > 0.01


def test_a_question_that_is_a_document_is_neither_read_nor_its_own_negative(source, monkeypatch):
    make_collection(Path("c"), QUERIES, QUERIES)
    np.save("c.npy", np.load("queries.npy"))
    for split, rows in {"train": range(40), "dev": range(40, COUNT)}.items():
        lines = [f"{QUERIES[row]}\t{QUERIES[(row + 7) % COUNT]}\t1" for row in rows]
        Path(f"c/qrels.{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    search, rankings = learn_mixture_module.Mixture.search, list[np.ndarray]()

    def listed(self, stage, queries, depth, skip=None) -> Ranked:
        rankings.append(search(self, stage, queries, depth, skip).rows)
        return Ranked(rankings[-1], search(self, stage, queries, depth, skip).scores)

    monkeypatch.setattr(learn_mixture_module.Mixture, "search", listed)
    for alone in (False, True):
        rankings.clear()
        learn(f"alone-{alone}", ("source",), more={"exclude_self": alone})
        asked = [np.arange(40) if len(rows) == 40 else np.arange(40, COUNT) for rows in rankings]
        first = [(rows[:, 0] == itself).all() for rows, itself in zip(rankings[:2], asked, strict=False)]
        assert first == [not alone] * 2  # of both splits, before anything was learned
        pairs = zip(rankings, asked, strict=True)
        assert not alone or not any((rows == itself[:, None]).any() for rows, itself in pairs)


def test_a_source_whose_questions_are_documents_says_so_to_the_stage(monkeypatch):
    made, job = lab_plan(Path(__file__).parents[2]), SimpleNamespace(model="moma-mixture")
    assert "exclude_self" not in PARAMS["learn_mixture"](made, job)
    row = made.collection(made.source).model_copy(update={"exclude_self": True})
    monkeypatch.setitem(made.bench.collections, made.source, row)
    assert PARAMS["learn_mixture"](made, job)["exclude_self"] is True


def test_questions_that_show_what_an_episode_changed_do_not_teach():
    job = SimpleNamespace(model="moma-mixture+attention.source_split-dev")
    made = lab_plan(Path(__file__).parents[2], set=["moma-mixture.attention.source_split=dev"])
    telling = r": attention.source_split of squad-v1.1: dev is also the split .*: take train$"
    for words in (PARAMS["learn_mixture"], lambda made, job: made.inputs("learn_mixture")(job)):
        with pytest.raises(ConfigError, match=telling):
            words(made, job)


def test_vectors_of_another_corpus_are_refused(source):
    learn()
    np.save("m.npy", np.load("m.npy")[:-1])
    with pytest.raises(ArtifactError, match="expected 120 documents of c, m, found 119"):
        read()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "bm25-flat"}, "method bad: model: bm25-flat is no bi-encoder"),
        ({"memories": ["source", "source"]}, "method bad: memories: names one twice"),
        ({"memories": ["memory-wordnets"]}, "memory-wordnet"),
        ({"augmenter": {"labels": "adist", "selected": 3}}, "selected has no effect with labels: adist"),
        ({"attention": {"source_split": "trian"}}, "has no judgements for split 'trian'"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path, settings, said):
    copy_config(tmp_path)
    recipe = {
        "kind": "mixture",
        "label": "bad",
        "description": "none",
        "settings": {"model": "all-minilm-l6-v2"} | settings,
    }
    (tmp_path / "config/methods/bad.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(ConfigError, match=said):
        load_bench(tmp_path, {"scale": "lab"})


def test_a_target_or_source_that_is_also_named_is_read_once(source):
    copy_config(source)
    named = {"model": "all-minilm-l6-v2", "memories": ["source", "nfcorpus", "squad-v1.1"]}
    recipe = {"kind": "mixture", "label": "named", "description": "none", "settings": named}
    (source / "config/methods/named.yaml").write_text(yaml.safe_dump(recipe))
    plan = lab_plan(source, collections=["nfcorpus", "scifact"])
    files = {name: f"results/collections/{name}/manifest.json" for name in ("nfcorpus", "scifact", "squad-v1.1")}
    for target, names in {"nfcorpus": ["nfcorpus"], "scifact": ["scifact", "nfcorpus"]}.items():
        job = SimpleNamespace(model="named", collection=target, protocol="standard")
        names = [*names, "squad-v1.1"]
        assert PARAMS["read_memories"](plan, job)["memories"] == names
        assert plan.inputs("read_memories")(job)["collections"] == [files[name] for name in names]
    learned = plan.inputs("learn_mixture")(SimpleNamespace(model="named"))
    assert learned["collections"] == [files["squad-v1.1"], files["nfcorpus"]]
    assert torch.equal(learn("once", ("source",)).augmenter, learn("twice", ("source", "c")).augmenter)


def test_the_page_averages_what_episodes_changed(source):
    for seed, relevant in ((13, 0.5), (14, 0.7)):
        rows = [(0, 0.4, "c", 0.6), (0, 0.4, "m", 0.4), (1, relevant, "c", 0.8), (1, relevant, "m", 0.2)]
        facts = pd.DataFrame(rows, columns=["episode", "relevant", "memory", "documents"])
        Path(f"{seed}").mkdir()
        facts.assign(questions=20, attention=facts["documents"]).to_csv(f"{seed}/{FACTS}", sep="\t", index=False)
    files = {"learned": [Path("13/manifest.json"), Path("14/manifest.json")]}
    values = [{"seed": seed} for seed in (13, 14)]
    stage, settings = told({"kind": "mixtures", "methods": ["ours"]}, files, source, methods=["ours"], values=values)
    header, shown = mixtures(stage, settings, item_of(settings.item, "x")).shown
    assert header[-2:] == ["c", "m"]
    assert shown == [
        ["Ours", "0", "40.0%", "", "60.0% / 60.0%", "40.0% / 40.0%"],
        ["Ours", "1", "60.0%", "+0.2000 [+0.1000, +0.3000]", "80.0% / 80.0%", "20.0% / 20.0%"],
    ]
