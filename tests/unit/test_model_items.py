"""Items that look into models: the steps that they ask for, the numbers that they tell, and their figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from tests.unit.paper_helpers import drawn, scores, told

from zerodr.config.load import load_bench
from zerodr.config.papers import StatisticsItem, item_of
from zerodr.config.stages import FinetuneStage
from zerodr.errors import ArtifactError, ConfigError
from zerodr.papers.berm import report as berm_report
from zerodr.papers.berm.items import UnitsItem
from zerodr.papers.ddr import report as ddr_report
from zerodr.papers.ddr.items import AdaptationItem
from zerodr.papers.modir import report as item_domains
from zerodr.papers.modir.items import DomainsItem
from zerodr.papers.moma.settings import MemoryStage
from zerodr.plan import Plan, paths
from zerodr.plan.items import find_item, item_collections, join_remarks, read_item
from zerodr.plan.lines import Link
from zerodr.reporting import item_tables
from zerodr.reporting.item_inputs import METRIC

POINTS = {"ours": {"start": 0, "ours@s.2": 2, "ours": 4}, "single": {"start": 0, "single": 4}}
NDCG = {"start": [0.2, 0.4], "ours@s.2": [0.3, 0.4], "ours": [0.5, 0.4], "single": [0.2, 0.3]}
ACCURACY = {"start": 1.0, "ours@s.2": 0.8, "ours": 0.6, "single": 0.9}


@pytest.fixture(scope="module")
def lab(root):
    return Plan(load_bench(root, {"scale": "lab", "collections": ("scifact", "cqadupstack"), "source": "squad-v1.1"}))


# ---- what is planned -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
def test_every_item_plans_what_it_reads(root, scale):
    """With the tokens that its models read: units of other lengths are refused."""
    made = Plan(load_bench(root, {"scale": scale, "collections": ("scifact", "cqadupstack")}))
    for paper in ("modir", "berm", "ddr", "moma"):
        for name in made.bench.papers[paper].items:
            wanted = SimpleNamespace(paper=paper, item=name)
            item, told = find_item(made, paper, name), json.loads(made.settings("build_item")(wanted))["settings"]
            assert made.inputs("build_item")(wanted) and (told["methods"] or isinstance(item, StatisticsItem))
            for method in item.methods if isinstance(item, UnitsItem) else ():
                assert made.inputs("measure_units")(SimpleNamespace(units_of=item.units_of, model=method))


@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
def test_every_variant_plans_its_trainings(root, scale):
    made = Plan(load_bench(root, {"scale": scale, "collections": ("scifact", "nfcorpus")}))
    for name in made.chains.names():
        ranks = made.chains.trained(name).ranks
        link = made.chains.ranker(name, "scifact") if ranks else Link(name, made.chains.last(name))
        for stage in made.chains.line(link.method, link.stage):
            own = link._replace(stage=stage)
            kind = made.chains.find_stage(own)
            wanted = SimpleNamespace(
                model=own.method, scope="scifact" if made.chains.per_target(*own[:2]) else "shared", stage=stage
            )
            if isinstance(kind, FinetuneStage) and not isinstance(kind, MemoryStage):
                assert made.inputs("finetune")(wanted) and made.settings("finetune")(wanted)


def test_kept_steps_are_points_and_the_start_is_shared(lab):
    item = DomainsItem(kind="domains", title="x", methods=("modir-dpr", "modir-dpr+single"))
    points = read_item(lab, item, ["scifact"]).points
    training = lab.chains.trained("modir-dpr").chain["modir1"].training
    kept = {f"modir-dpr@modir1.{step}": step for step in training.save_steps}
    assert kept and points["modir-dpr"] == {"dpr@ep0": 0, **kept, "modir-dpr": training.steps}
    inputs = read_item(lab, item, ["scifact"]).files
    assert inputs["measures"].count(paths.domains("dpr@ep0", "scifact", "measures.tsv")) == 1
    assert inputs["models"][0] == paths.model("modir-dpr", "scifact", "modir1")


def test_repeated_stages_go_on_counting(lab):
    points = read_item(lab, DomainsItem(kind="domains", title="x", methods=("modir-ance+30k",)), ["scifact"]).points[
        "modir-ance+30k"
    ]
    once = lab.chains.trained("modir-ance").chain["modir1"].training.steps
    assert list(points.values()) == sorted(set(points.values())) and points["modir-ance+30k"] == 3 * once


def test_means_of_several_collections_are_no_single_target(lab):
    assert item_collections(lab, "modir", "figure3") == ["scifact"]
    assert len(item_collections(lab, "modir", "table1")) == 13


def test_a_method_without_an_adversary_has_no_steps_to_look_at(lab):
    with pytest.raises(ConfigError, match="method dpr: has no stage with an adversary"):
        read_item(lab, DomainsItem(kind="domains", title="x", methods=("dpr",)), ["scifact"])


def test_steps_on_the_target_are_those_of_its_language_model(lab):
    lines = {"DDR": ("ddr-distill+unadapted", "ddr-distill+half", "ddr-distill"), "BM25": ("bm25-flat",)}
    points = read_item(
        lab, AdaptationItem(kind="adaptation", title="x", lines=lines, references=("dr-distill",)), ["scifact"]
    ).points
    whole = lab.chains.trained("ddr-contrast").chain["target-dam"].training.steps
    assert list(points["DDR"].values()) == [0, whole // 2, whole]
    assert points["dr-distill"] == {"dr-distill": 0} and points["BM25"] == {"bm25-flat": 0}


def test_footnotes_name_the_methods_that_they_are_about(lab):
    said = join_remarks(lab, ["dpr", "modir-dpr", "modir-dpr+inductive"])
    (about,) = [remark for remark in said if "transductive" in remark]
    assert about.startswith("DPR+MoDIR: ")
    assert any(remark.startswith("starts from") for remark in said), "what is true of all needs no name"
    assert not any("no model is adapted to the source" in remark for remark in said)


def test_a_measure_of_an_item_is_a_known_one():
    item = {"kind": "methods", "title": "x", "methods": ["a"], "baseline": "a"}
    assert item_of(item | {"measure": "recall_10"}, "x").measure == "recall_10", "any cutoff will do"
    for wrong in ("recal_10", "recall_0"):
        with pytest.raises(ConfigError, match=f"'{wrong}' is no measure, did you mean recall_"):
            item_of(item | {"measure": wrong}, "x")


# ---- what is told --------------------------------------------------------------------------------------------------
def made(kind: str, maker, folder: Path, inputs: dict, item: dict, **more: object):
    stage, settings = told({"kind": kind} | item, inputs, folder, **more)
    return maker(stage, settings, item_of(settings.item, "x"))


def measures(folder: Path, model: str) -> Path:
    facts = {
        f"domain_accuracy_{who}_{kind}": ACCURACY[model]
        for who in ("released", "converged")
        for kind in ("queries", "documents")
    }
    facts |= {"domain_accuracy_converged_queries": 1.0, "knn_source_100": 0.25, "knn_source_base_rate": 0.5}
    path = folder / f"{model}.measures.tsv"
    pd.Series(facts, name="value").to_csv(path, sep="\t", index_label="metric")
    return path


def trained(folder: Path, name: str, local: dict[int, float]) -> Path:
    """A model's manifest with the record of its training."""
    place = folder / f"model.{name}"
    place.mkdir()
    curve = [{"name": item_domains.LOCAL, "step": step, "value": value} for step, value in local.items()]
    dev = [{"name": item_domains.SOURCE_DEV, "step": 4, "value": 0.7}]
    (place / "lineage.json").write_text(json.dumps({"metrics": curve + dev}))
    (place / "manifest.json").write_text("{}")
    return place / "manifest.json"


def domain_inputs(folder: Path) -> dict[str, list[Path]]:
    curves = {"ours": {1: 0.5, 2: 0.7, 3: 0.8, 4: 1.0}, "single": {1: 0.4, 4: 0.6}}
    return {
        "per_query": [scores(folder, name, "a", values) for name, values in NDCG.items()],
        "measures": [measures(folder, name) for name in NDCG],
        "models": [trained(folder, name, curve) for name, curve in curves.items()],
    }


DOMAINS = {"kind": "domains", "methods": ["ours", "single"]}
LINES = {"points": POINTS, "stages": {"ours": ("s",), "single": ("s",)}, "methods": (*NDCG,)}


def test_domains_are_told_by_steps(tmp_path):
    found = made("domains", item_domains.domains, tmp_path, domain_inputs(tmp_path), DOMAINS, **LINES)
    own = found.frame[found.frame["method"] == "ours"]
    assert own["steps"].tolist() == [0, 2, 4] and own["domain_accuracy"].tolist() == [1.0, 0.8, 0.6]
    assert own["local_accuracy"].tolist() == pytest.approx([0.5, 0.6, 0.9]), "the first batch, then means since"
    assert own["converged_accuracy"].tolist() == pytest.approx([1.0, 0.9, 0.8])
    assert own["gain"].tolist() == pytest.approx([0, 0.05, 0.15]) and own["source_dev"].tolist()[-1] == 0.7
    assert any("Single, step 0 to 4: Domain-Acc 1.000 to 0.900" in note for note in found.notes)
    assert any("A: Domain-Acc and nDCG@10: Spearman -0.80 over 4 models" in note for note in found.notes)
    assert found.shown[1][0][-4:] == ["25.0%", "50.0%", "-", "0.3000"]


def test_full_indexes_are_compared_and_samples_are_not(tmp_path):
    inputs = domain_inputs(tmp_path)
    inputs["indexes"] = []
    start, *_, last = POINTS["ours"]
    for model, values in {start: (0.05, 0.4), last: (0.17, 0.398)}.items():
        path = tmp_path / model / "a/standard.indexes.tsv"
        path.parent.mkdir(parents=True)
        facts = {"knn_source_100": values[0], "knn_source_base_rate": 0.98, item_domains.SOURCE_MRR: values[1]}
        pd.Series(facts, name="value").to_csv(path, sep="\t", index_label="metric")
        inputs["indexes"].append(path)
    found = made("domains", item_domains.domains, tmp_path, inputs, DOMAINS, **LINES)
    shares = {row: value for (row, _, metric), value in found.measured.items() if metric == "knn_source"}
    assert shares["ours, step 0"] == 0.05 and shares["ours, step 4"] == 0.17 and "ours, step 2" not in shares
    losses = [value for (row, _, metric), value in found.measured.items() if metric == "loss_of_accuracy"]
    assert losses[0] == pytest.approx(0.005), "of MRR@10 on the source"
    assert found.shown[1][2][-4:] == ["17.0%", "98.0%", "0.3980", "+0.50%"]
    assert found.shown[1][1][-4:] == ["-"] * 4
    plain = made(
        "domains", item_domains.domains, tmp_path, {k: v for k, v in inputs.items() if k != "indexes"}, DOMAINS, **LINES
    )
    assert not [key for key in plain.measured if key[2] == "knn_source"], "samples of 2,000"


def test_domains_are_drawn(tmp_path):
    drawn(tmp_path, domain_inputs(tmp_path), DOMAINS, **LINES)


def test_a_model_without_a_record_is_named(tmp_path):
    inputs = domain_inputs(tmp_path)
    (inputs["models"][1].parent / "lineage.json").unlink()
    with pytest.raises(ArtifactError, match=r"model\.single.*no lineage record"):
        made("domains", item_domains.domains, tmp_path, inputs, DOMAINS, **LINES)


def near(folder: Path, model: str, queries: list[str]) -> Path:
    rows = [(query, rank, f"{model} {query} {rank}") for query in queries for rank in (1, 2, 3)]
    path = folder / f"{model}.nearest.parquet"
    pq.write_table(
        pa.table(
            {
                "query": [r[0] for r in rows],
                "rank": pa.array([r[1] for r in rows], pa.int32()),
                "source": [r[2] for r in rows],
            }
        ),
        path,
    )
    return path


def test_nearest_queries_before_and_after(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    names = ["q0", "q1", "q2"]
    pq.write_table(pa.table({"id": [*names, "q3"], "text": ["x", "y", "z", "v"]}), folder / "queries.parquet")
    lines = [*(f"{q}\td\t1\n" for q in names), "q3\td\t0\n"]  # the last one is in no evaluation
    (folder / "qrels.test.tsv").write_text("query\tdocument\tgrade\n" + "".join(lines))
    inputs = {
        "per_query": [scores(tmp_path, "start", "a", [0.5, 0.5, 0.5]), scores(tmp_path, "ours", "a", [0.1, 0.9, 0.5])],
        "nearest": [near(tmp_path, "start", ["z", "y", "x", "v"]), near(tmp_path, "ours", ["x", "y", "v"])],
        "collections": [folder / "manifest.json"],
    }
    item = {"method": "ours", "examples": 1, "neighbours": 2, "cases": [["Y?", "of the paper"]]}
    found = made(
        "nearest_queries",
        item_domains.nearest_queries,
        tmp_path,
        inputs,
        item,
        points={"ours": {"start": 0, "ours": 4}},
        methods=("start", "ours"),
    )
    frame = found.frame
    assert found.measured == {("ours", "a", "ndcg_cut_10_gain_case1"): pytest.approx(0.4)}
    assert frame["query"].tolist() == ["y", "y", "x", "x"] and frame["gain"].tolist() == [0.4, 0.4, -0.4, -0.4]
    assert frame["source_before"].tolist()[:2] == ["start y 1", "start y 2"]
    assert frame["source_after"].tolist()[2:] == ["ours x 1", "ours x 2"]


def picture(folder: Path, model: str, shift: float) -> Path:
    places = np.random.default_rng(3).normal(size=(80, 2))
    places[40:, 0] += shift
    path = folder / f"{model}.tsne.parquet"
    pq.write_table(
        pa.table(
            {
                "domain": ["source"] * 40 + ["target"] * 40,
                "kind": ["queries", "documents"] * 40,
                "x": places[:, 0],
                "y": places[:, 1],
            }
        ),
        path,
    )
    return path


@pytest.mark.parametrize("points", [{"one": {"start": 0, "one": 4}}, {"start": {"start": 0}, "one": {"one": 0}}])
def test_pictures_say_how_mixed_they_are(tmp_path, points):
    inputs = {"projections": [picture(tmp_path, "start", 50), picture(tmp_path, "one", 0)]}
    item = {"kind": "projections", "methods": ["one"]}
    more = {"points": points, "methods": ("start", "one")}
    found = made("projections", item_domains.projections, tmp_path, inputs, item, **more)
    apart, mixed = found.shown[1]
    assert apart[2:] == ["0.0%", "0.0%"] and all(30 < float(cell[:-1]) < 70 for cell in mixed[2:])
    assert len(found.frame) == 160 and apart[1] != mixed[1]
    drawn(tmp_path, inputs, item, **more)


def test_pictures_of_few_target_queries_say_what_a_perfect_mixture_has(tmp_path):
    path = picture(tmp_path, "one", 0)
    table = pq.read_table(path)
    pq.write_table(table.take([*range(40), *range(40, 80, 8), *range(41, 80, 2)]), path)  # 5 of the target's 20 queries
    more = {"points": {"one": {"one": 0}}, "methods": ("one",)}
    item = {"kind": "projections", "methods": ["one"]}
    found = made("projections", item_domains.projections, tmp_path, {"projections": [path]}, item, **more)
    assert found.notes[1:] == ["A, queries: 20 of the source, 5 of the target, 83% in a perfect mixture"]


def unit_measures(folder: Path, name: str, value: float) -> Path:
    path = folder / f"{name}.tsv"
    row = [value, value - 0.1, value + 0.1, 9]
    pd.DataFrame(
        [["balance_variance", *row], ["random_accuracy", *row]], columns=["measure", "mean", "low", "high", "count"]
    ).to_csv(path, sep="\t", index=False)
    return path


def test_units_are_told_with_intervals(tmp_path):
    inputs = {"measures": [unit_measures(tmp_path, "ours", 0.5), unit_measures(tmp_path, "bm25", 0.7)]}
    item = {
        "kind": "units",
        "units_of": "ours",
        "methods": ["ours", "bm25"],
        "measures": ["balance_variance", "random_accuracy"],
    }
    found = made("units", berm_report.units, tmp_path, inputs, item)
    assert found.shown[1][1] == ["Bm25", "0.7 [0.6, 0.8]", "0.7 [0.6, 0.8]"]
    drawn(tmp_path, inputs, item)
    seeds = [{"seed": seed, "names": {}, "drawing": []} for seed in (13, 14)]
    again = [unit_measures(tmp_path, f"{name}-seed14", value) for name, value in (("ours", 0.2), ("bm25", 0.9))]
    both = {"measures": [*inputs["measures"], *again]}
    found = made("units", berm_report.units, tmp_path, both, item, values=seeds)
    assert found.shown[1][0][1] == "0.35 [0.2, 0.5]" and "largest mean of 2 seeds (13, 14)" in found.notes[0]
    drawn(tmp_path, both, item, values=seeds)
    with pytest.raises(ArtifactError, match="has no measure dispersion_x, only balance_variance, random_accuracy"):
        made("units", berm_report.units, tmp_path, inputs, item | {"measures": ["dispersion_x"]})


def test_adaptation_is_told_by_steps(tmp_path):
    files = [scores(tmp_path, name, "a", values) for name, values in {**NDCG, "bm25": [0.1, 0.1]}.items()]
    item = {"kind": "adaptation", "lines": {"DDR": ["start", "ours"]}, "references": ["bm25"]}
    more = {"points": {"DDR": {"start": 0, "ours": 4}, "bm25": {"bm25": 0}}, "methods": ("start", "ours", "bm25")}
    found = made("adaptation", ddr_report.adaptation, tmp_path, {"per_query": files}, item, **more)
    assert found.frame["gain"].tolist() == pytest.approx([0, 0.15, 0])
    assert [row[2] for row in found.shown[1]] == ["0", "4", "-"]
    drawn(tmp_path, {"per_query": files}, item, **more)


def modular(folder: Path, name: str, facts: dict, numbers: int) -> Path:
    place = folder / name
    place.mkdir()
    save_file({"a": torch.zeros(numbers - 10), "b": torch.zeros(2, 5)}, place / ddr_report.WEIGHTS)
    (place / "lineage.json").write_text(json.dumps({"notes": facts}))
    (place / "manifest.json").write_text("{}")
    return place / "manifest.json"


def test_parameters_are_counted_in_the_models(tmp_path):
    facts = {"rem": {"lora": 60, "parallel_adapter": 40, "backbone": 1000, "trained": 100, "trained_share": 0.1}}
    inputs = {"models": [modular(tmp_path, "ours", facts, 1040), modular(tmp_path, "bm25", {}, 1000)]}
    found = made("parameters", ddr_report.parameters, tmp_path, inputs, {"methods": ["ours", "bm25"]})
    assert found.shown[1][0] == ["Ours", "1,000", "60", "40", "100", "10.00%", "1,040", "+4.00%"]
    assert found.shown[1][1][4:] == ["1,000", "100.00%", "1,000", "+0.00%"]
    (tmp_path / "ours" / ddr_report.WEIGHTS).unlink()
    with pytest.raises(ArtifactError, match="assemble with fold: true"):
        made("parameters", ddr_report.parameters, tmp_path, inputs, {"methods": ["ours", "bm25"]})


def test_losses_of_pretraining_are_told_by_seed(tmp_path):
    losses = {"one": {"late_mlm": [4.0, 3.0], "late_mlm.a": [4.0, 3.0]}, "two": {"late_mlm.a": [5.0, 3.5]}}
    inputs = {"models": [modular(tmp_path, name, {"before_and_after": both}, 10) for name, both in losses.items()]}
    item, values = {"kind": "module_losses", "models": ["ours"]}, [{"seed": s, "model": "ours"} for s in (13, 14)]
    found = made("module_losses", ddr_report.module_losses, tmp_path, inputs, item, values=values)
    assert found.shown[0] == ["", "texts of", "before", "after", "fall", "seed 13", "seed 14"]
    assert found.shown[1] == [["Ours", "A", "4.500", "3.250", "+1.250", "+1.000", "+1.500"]]
    with pytest.raises(ArtifactError, match="has no head_mlm of held-out texts in its record"):
        made("module_losses", ddr_report.module_losses, tmp_path, inputs, item | {"measure": "head_mlm"}, values=values)


def test_other_measures_stand_beside_the_tested_one(tmp_path):
    holes = ("recall_1000", "hole_pair_10")
    files = [
        scores(tmp_path, name, "a", NDCG[other], more=holes)
        for name, other in {"ours": "ours", "bm25": "start"}.items()
    ]
    item = {"methods": ["bm25", "ours"], "baseline": "bm25", "measure": "recall_1000", "beside": ["hole_pair_10"]}
    found = made("methods", item_tables.methods, tmp_path, {"per_query": files}, item)
    assert "R@1000" in found.notes[0] and "without a judgement" in found.notes[-1]
    assert [row[0] for row in found.shown[1]] == ["Ours", "Bm25", "Hole@10 (pairs): Ours", "Hole@10 (pairs): Bm25"]
    assert METRIC not in found.frame and found.frame["hole_pair_10"].tolist() == pytest.approx([0.45, 0.3])
