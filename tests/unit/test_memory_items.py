"""Items about memories: what they plan, the numbers that they tell, and their figures."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.paper_helpers import drawn, told

from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.errors import ArtifactError, ConfigError
from zerodr.papers.moma import report as item_memories
from zerodr.papers.moma import report_costs
from zerodr.papers.moma.items import ComponentsItem, SharesItem
from zerodr.papers.moma.measure_attention import CASE_COLUMNS, COLUMNS
from zerodr.plan import Plan, paths
from zerodr.plan.items import read_item

SHARES = {"kind": "shares", "method": "ours"}
COMPONENTS = {"kind": "components", "methods": ["ours", "own"]}
STAGES = {"ours": ("m1", "m2"), "own": ("m1",)}


@pytest.fixture(scope="module")
def mini(root):
    return Plan(load_bench(root, {"collections": ("scifact", "nfcorpus"), "source": "squad-v1.1"}))


def test_every_episode_of_training_and_targets_is_asked_for(mini):
    found = read_item(mini, SharesItem(kind="shares", title="x", method="moma-t5ance"), ["scifact", "nfcorpus"]).files
    words = [("moma-t5ance", "shared", stage) for stage in ("moma1", "moma2")]
    assert found["learning"] == [paths.shares(*w, "learning", "squad-v1.1", "dev", "shares.tsv") for w in words]
    assert found["search"] == [
        paths.shares(*w, "search", name, "test", "shares.tsv") for w in words for name in ("scifact", "nfcorpus")
    ]


def test_what_trains_no_augmenter_has_none_to_look_at(mini):
    names = ("moma-t5ance", "moma-t5ance+no-learning", "moma-t5ance+no-distilling")
    found = read_item(mini, ComponentsItem(kind="components", title="x", methods=names), ["scifact"]).files
    assert len(found["main"]) == 6 and len(found["augmenter"]) == 2
    assert all("/moma-t5ance/" in path for path in found["augmenter"])


def test_what_only_search_changes_is_trained_once(mini):
    found = read_item(mini, ComponentsItem(kind="components", title="x", methods=("moma-t5ance+no-target",)), []).files
    assert all("/moma-t5ance/" in path for path in [*found["main"], *found["augmenter"]])
    shares = read_item(mini, SharesItem(kind="shares", title="x", method="moma-t5ance+no-target"), ["scifact"]).files
    assert all("/moma-t5ance/" in path for path in shares["learning"])
    assert all("/moma-t5ance+no-target/" in path for path in shares["search"])


def test_a_method_without_memories_is_refused(mini):
    with pytest.raises(ConfigError, match="method dpr: has no stage of kind moma"):
        read_item(mini, SharesItem(kind="shares", title="x", method="dpr"), ["scifact"])


def recorded(path: Path, **metrics: float) -> Path:
    """A file or a manifest with its record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.with_name("lineage.json" if path.name == "manifest.json" else f"{path.name}.lineage.json")
    told_of = [{"name": name, "step": 0, "value": value} for name, value in metrics.items()]
    place.write_text(json.dumps({"metrics": told_of}))
    if path.name == "manifest.json":
        path.write_text("{}")
    return path


def share_inputs(folder: Path) -> dict[str, list[Path]]:
    def file(name: str, attention: float) -> Path:
        rows = [
            ["s", 3, 0.75, attention, attention / 0.75, 9.0],
            ["wiki", 1, 0.25, 1 - attention, 4 - 4 * attention, 5.0],
        ]
        path = recorded(folder / f"{name}.shares.tsv", queries_with_relevant_document=attention / 2)
        pd.DataFrame(rows, columns=COLUMNS).to_csv(path, sep="\t", index=False)
        return path

    return {"learning": [file("l1", 0.6), file("l2", 0.9)], "search": [file(f"s{n}", n / 10) for n in range(4)]}


def test_shares_by_episode_and_queries(tmp_path):
    stage, settings = told(SHARES, share_inputs(tmp_path), tmp_path, collections=("a", "b"), stages=STAGES)
    found = item_memories.shares(stage, settings, item_of(settings.item, "x"))
    own = found.frame[found.frame["memory"] == "s"].set_index(["queries", "episode"])["attention_share"]
    assert own.to_dict() == {("s", 1): 0.6, ("s", 2): 0.9, ("a", 1): 0, ("b", 1): 0.1, ("a", 2): 0.2, ("b", 2): 0.3}
    assert found.shown[1][0] == ["s, training", "1", "s", "75.0%", "60.0%", "0.80", "9", "30.0%"]
    assert found.shown[1][-1][0] == "B"


def test_cases_of_documents_without_a_text(tmp_path):
    """Texts that pandas would read as missing: none at all, and the words null and NA."""
    lines = [["q1", "null", 1, "s", "s:d1", 0.5, 1, False, ""], ["NA", "who", 1, "s", "s:d2", 0.4, 2, True, "NA"]]
    for name in ("learning", "search"):
        pd.DataFrame(lines, columns=CASE_COLUMNS).to_csv(tmp_path / f"{name}.tsv", sep="\t", index=False)
    inputs = {name: [tmp_path / f"{name}.tsv"] for name in ("learning", "search")}
    stage, settings = told({"kind": "cases", "method": "ours"}, inputs, tmp_path, collections=("a",), stages=STAGES)
    found = item_memories.cases(stage, settings, item_of(settings.item, "x"))
    assert found.frame["query"].tolist() == ["q1", "NA"] * 2 and found.frame["text"].tolist() == ["null", "who"] * 2
    assert [row[-1] for row in found.shown[1]] == ["", "NA"] * 2


def component_inputs(folder: Path) -> dict[str, list[Path]]:
    def made(method: str, stage: str, which: str, mrr: float) -> Path:
        return recorded(folder / method / "shared" / stage / which / "manifest.json", **{item_memories.MRR: mrr})

    return {
        "main": [made("ours", "m1", "main", 0.1), made("ours", "m2", "main", 0.2), made("own", "m1", "main", 0.3)],
        "augmenter": [made("ours", "m1", "augmenter", 0.4), made("ours", "m2", "augmenter", 0.5)],
    }


def test_components_by_episode(tmp_path):
    stage, settings = told(COMPONENTS, component_inputs(tmp_path), tmp_path, methods=("ours", "own"), stages=STAGES)
    frame = item_memories.components(stage, settings, item_of(settings.item, "x")).frame
    found = {(row.method, row.episode, row.component): row.mrr for row in frame.itertuples()}
    assert found == {
        ("ours", 1, "main model"): 0.1,
        ("ours", 1, "augmenter"): 0.4,
        ("ours", 2, "main model"): 0.2,
        ("ours", 2, "augmenter"): 0.5,
        ("own", 1, "main model"): 0.3,
    }


def test_components_at_each_evaluation(tmp_path):
    """MoMA figure 4: by epoch, which is an evaluation at scale paper."""
    inputs = component_inputs(tmp_path)
    points = [{"name": item_memories.MRR, "step": 10 * n, "value": n / 10} for n in (4, 5, 6)]
    (inputs["main"][1].with_name("lineage.json")).write_text(json.dumps({"metrics": points}))
    stage, settings = told(COMPONENTS, inputs, tmp_path, methods=("ours", "own"), stages=STAGES)
    frame = item_memories.components(stage, settings, item_of(settings.item, "x")).frame
    main = frame[(frame["method"] == "ours") & (frame["component"] == "main model")]
    assert main["episode"].tolist() == pytest.approx([1, 4 / 3, 5 / 3, 2])
    assert main["mrr"].tolist() == [0.1, 0.4, 0.5, 0.6]
    item_memories.draw_components(frame, settings)


def test_a_component_without_the_measure_is_named(tmp_path):
    inputs = component_inputs(tmp_path)
    recorded(inputs["main"][1], loss=1.0)
    stage, settings = told(COMPONENTS, inputs, tmp_path, methods=("ours", "own"), stages=STAGES)
    with pytest.raises(ArtifactError, match=r"m2.main.*has no dev\.recip_rank_cut_10"):
        item_memories.components(stage, settings, item_of(settings.item, "x"))


@pytest.mark.parametrize(
    ("item", "inputs", "more"),
    [(SHARES, share_inputs, {"collections": ("a", "b")}), (COMPONENTS, component_inputs, {"methods": ("ours", "own")})],
)
def test_both_are_drawn_twice_the_same(tmp_path, item, inputs, more):
    drawn(tmp_path, inputs(tmp_path), item, stages=STAGES, **more)


# ---- costs -----------------------------------------------------------------------------------------------------
def timed(path: Path, seconds: float, gpu_hours: float = 0.0) -> Path:
    recorded(path)
    place = path.with_name("lineage.json" if path.name == "manifest.json" else f"{path.name}.lineage.json")
    place.write_text(json.dumps({"metrics": [], "seconds": seconds, "gpu_hours": gpu_hours}))
    return path


def test_hours_of_training_come_from_records(tmp_path):
    """MoMA table 11: components by episode, and a refresh of both indexes, shards in sum."""

    def trained(stage: str, which: str, hours: float) -> Path:
        return timed(tmp_path / f"ours/shared/{stage}/{which}/manifest.json", 3600 * hours, 8 * hours)

    inputs = {
        "main": [trained("m1", "main", 1.5), trained("m2", "main", 1.25)],
        "augmenter": [trained("m1", "augmenter", 0.75), trained("m2", "augmenter", 0.5)],
        "index": [timed(tmp_path / f"index.{n}.npy", 900) for n in range(4)],
        "memory_index": [timed(tmp_path / f"memory.{n}.npy", 1800, 0.5) for n in range(4)],
    }
    stage, settings = told({"kind": "hours", "method": "ours"}, inputs, tmp_path, stages={"ours": ("m1", "m2")})
    made = report_costs.hours(stage, settings, item_of(settings.item, "x"))
    assert made.measured == {
        ("End Retriever", "epi-1", "hours"): 1.5,
        ("End Retriever", "epi-2", "hours"): 1.25,
        ("End Retriever", "index-refresh", "hours"): 0.5,
        ("End Retriever", "refresh-number", "count"): 2.0,
        ("Augmentation Component", "epi-1", "hours"): 0.75,
        ("Augmentation Component", "epi-2", "hours"): 0.5,
        ("Augmentation Component", "index-refresh", "hours"): 1.0,
        ("Augmentation Component", "refresh-number", "count"): 2.0,
    }
    assert made.frame["gpu_hours"].tolist() == [12.0, 10.0, 0.0, 6.0, 4.0, 2.0]
    (inputs["index"][0].with_name("index.0.npy.lineage.json")).write_text("{}")
    with pytest.raises(ArtifactError, match=r"index\.0\.npy.*has no time in its lineage record"):
        report_costs.hours(stage, settings, item_of(settings.item, "x"))


def test_sizes_of_memories_are_compared_by_the_papers_names(tmp_path):
    """MoMA table 9: MeSH's two files are one memory there."""
    inputs: dict[str, list[Path]] = {"statistics": [], "collections": []}
    for name, count, words in (("mesh-a", 3, 10.0), ("mesh-b", 1, 30.0), ("wiki", 5, 100.0)):
        (tmp_path / name).mkdir()
        rows = {"id": [str(n) for n in range(count)], "title": [""] * count, "text": ["x"] * count}
        pq.write_table(pa.table(rows), tmp_path / name / "corpus.parquet")
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"collection": name, "documents": {"count": count, "mean": words}}))
        inputs["statistics"].append(path)
        inputs["collections"].append(tmp_path / name / "manifest.json")
    item = {"kind": "memories", "methods": ["ours"], "members": {"mesh": ["mesh-a", "mesh-b"], "absent": ["other"]}}
    stage, settings = told(item, inputs, tmp_path)
    made = report_costs.memories(stage, settings, item_of(settings.item, "x"))
    assert made.measured["", "mesh", "documents"] == 4 and made.measured["", "mesh", "document_words"] == 15
    assert made.measured["", "wiki", "documents"] == 5 and ("", "absent", "documents") not in made.measured
    assert made.shown[1][2] == ["wiki", "5", "100.0"]


def test_hours_of_whole_corpora_stand_next_to_milliseconds(tmp_path):
    """MoMA table 3: BM25's index and the corpus, from the records of their jobs."""
    names = ("bm25", "augmenter_query", "query", "memory_search", "search", "document")
    facts = {"device": "cpu", "threads": 1, "queries": 2, "milliseconds": dict.fromkeys(names, 1.0)}
    (tmp_path / "latency.json").write_text(json.dumps(facts))
    inputs = {
        "latency": [tmp_path / "latency.json"],
        "lexical": [timed(tmp_path / "index/manifest.json", 6480)],
        "corpus": [timed(tmp_path / f"{n}.npy", 2700) for n in range(2)],
    }
    stage, settings = told({"kind": "latency", "method": "ours"}, inputs, tmp_path)
    measured = report_costs.latency(stage, settings, item_of(settings.item, "x")).measured
    assert measured["BM25 Index Build", "", "hours"] == 1.8
    assert measured["MoMA Inference: Encoding of Corpus", "", "hours"] == 1.5
    assert measured["MoMA Inference: Dense Retrieval Total", "", "milliseconds"] == 4.0


def test_the_share_of_mesh_is_compared(tmp_path):
    """MoMA figure 2: about 60 % of the documents of training queries, where the augmenter learns attention itself."""
    inputs = share_inputs(tmp_path)
    path = inputs["learning"][0]
    table = pd.read_csv(path, sep="\t")
    table["memory"] = ["memory-mesh-descriptors", "memory-mesh-qualifiers"][: len(table)]
    table.to_csv(path, sep="\t", index=False)
    stage, settings = told(SHARES, inputs, tmp_path, stages=STAGES, collections=("a", "b"))
    measured = item_memories.shares(stage, settings, item_of(settings.item, "x")).measured
    shares = {key: value for key, value in measured.items() if key[2] == "augmenting_documents_from_mesh"}
    assert shares == {("ours, episode 1", "s", "augmenting_documents_from_mesh"): 1.0}
