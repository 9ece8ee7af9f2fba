"""Recipes at scale `paper` have the settings that the five papers print (docs/papers/items.md lists every one)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from zerodr.config.load import load_bench
from zerodr.config.methods import EncoderSettings, FusionSettings
from zerodr.papers.coco_dr.settings import GroupKeys
from zerodr.papers.modir.objective import Adversary
from zerodr.papers.modir.plan import saved_models
from zerodr.papers.modir.settings import adversary_of
from zerodr.papers.moma.fid_attention import CrossAttention, fid_attention
from zerodr.plan import Plan
from zerodr.plan.lines import Link

PICTURES = Path(__file__).parents[2] / "docs/pictures"
COLLECTIONS = ["beir18", "lotte", "ddr-zh", "trec-covid-v2", "trec-covid-v2@beir"]


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "paper", "collections": COLLECTIONS}))


# ---- COCO-DR ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def simulation():
    sys.path.insert(0, str(PICTURES))
    import idro_weights

    yield idro_weights
    sys.path.remove(str(PICTURES))


def stage_of(plan, method, name="ep1"):
    stage = plan.chains.trained(method).chain[name]
    return stage, GroupKeys.of(stage).groups


@pytest.mark.parametrize("method", ["coco-dr", "coco-dr+paper", "coco-dr+k10", "coco-dr+large"])
def test_gradients_act_at_the_end_of_an_episode(plan, simulation, method):
    """Weights of 60 to 80 % of the clusters after the recipe's own steps; T = 1,000 left 100.0 %, T = 1e6 too."""
    stage, groups = stage_of(plan, method)
    seen = simulation.simulate(groups, 40, stage.training.batch_queries, stage.training.steps)
    assert 0.6 <= seen.effective <= 0.8
    assert seen.spread > 2


def test_a_temperature_of_figure_3_acts(plan, simulation):
    effective = [
        simulation.simulate(stage_of(plan, f"coco-dr+effective-{share}")[1], 20, 512, 45_000).effective
        for share in (0.9, 0.5, 0.3)
    ]
    assert effective == pytest.approx([0.9, 0.5, 0.3], abs=1e-3)


def test_official_has_the_released_devices(plan, simulation):
    """64 triples a device, six of a query: 10 of 50 clusters, weights that differ 10 times. A global batch: 50, 1.3."""
    stage, groups = stage_of(plan, "coco-dr+official")
    rows, triples = stage.training.batch_queries, stage.training.consecutive_negatives
    assert (groups.devices, rows // groups.devices, triples) == (8, 64, 6)
    seen = simulation.simulate(groups, 60, rows, triples=triples)
    assert seen.present == pytest.approx(10, abs=0.2) and seen.spread == pytest.approx(10.5, abs=0.2)
    whole = simulation.simulate(groups.model_copy(update={"devices": 1}), 60, rows)
    assert whole.present == pytest.approx(50, abs=0.5) and whole.spread == pytest.approx(1.3, abs=0.05)
    equal = [
        simulation.simulate(groups.model_copy(update={"devices": count}), 200, rows, triples=per_query, sizes=torch.inf)
        for count, per_query in ((1, 1), (8, 6))
    ]
    assert [one.spread for one in equal] == pytest.approx([1.01, 9.5], rel=0.02), "gradients alone; and absent clusters"


def test_idro_as_published_takes_adamw_in_all_episodes(plan):
    """Appendix: AdamW, 5e-6, 64 on each of 8 GPUs."""
    chain = plan.chains.trained("coco-dr+paper").chain
    for name in ("ep0", "ep1", "ep2", "ep3"):
        training = chain[name].training
        assert (training.optimizer, training.learning_rate, training.batch_queries) == ("adamw", 5e-6, 512), name


@pytest.mark.parametrize("item", ["table2", "table7"])
def test_both_modes_of_idro_are_rows(plan, item):
    assert {"coco-dr", "coco-dr+paper"} <= set(plan.bench.papers["coco-dr"].items[item].methods)


def test_idro_as_published_stands_next_to_controls_of_its_optimiser(plan):
    for name in plan.bench.papers["coco-dr"].items["table7-paper"].methods:
        training = [plan.chains.trained(name).chain[stage].training for stage in ("ep0", "ep1", "ep2", "ep3")]
        assert {(one.optimizer, one.learning_rate, one.batch_queries) for one in training} == {("adamw", 5e-6, 512)}


def test_coco_reads_the_released_list_of_corpora(plan):
    """Climate-FEVER's documents are FEVER's, so the released list has one of them."""
    corpora = plan.chains.corpora(Link("coco-dr", "coco"))
    assert "climate-fever" in corpora and "fever" not in corpora and "msmarco" in corpora


def test_a_sequence_of_coco_has_128_tokens_at_most(plan):
    """Section 5.1 has 128 tokens; the released spans are sentences, merged up to 30."""
    for method in ("coco-dr", "coco-dr+paper", "coco-dr+no-coco", "coco-dr+large"):
        stage = plan.chains.trained(method).chain["coco"]
        assert (stage.objective.max_tokens, stage.cut.max_tokens) == (128, 30), method


def test_figure_5c_is_by_training_losses_of_the_clusters(plan):
    """Section 5.5: gains on the nearest clusters' training loss, and 12 of 18 that have one."""
    item = SimpleNamespace(paper="coco-dr", item="figure5c")
    losses = plan.inputs("build_item")(item)["losses"]
    assert [path.rsplit("/", 1)[1] for path in losses] == ["coco-dr.parquet", "coco-dr+no-idro.parquet"]
    for model in ("coco-dr", "coco-dr+no-idro"):
        wanted = SimpleNamespace(clusters_of="coco-dr@ep1", model=model)
        files = plan.inputs("measure_training")(wanted)
        assert files["clusters"] == "results/clusters/coco-dr/shared/ep1/manifest.json"
        assert files["queries"].endswith("/msmarco/standard/queries.train.npy")
        assert json.loads(plan.settings("measure_training")(wanted))["settings"]["split"] == "train"


def test_figure_6_has_the_episodes_of_six_collections(plan):
    item = plan.bench.papers["coco-dr"].items["figure6"]
    assert item.kind == "episodes" and {"fiqa", "scifact", "bioasq", "cqadupstack", "robust04"} < set(item.collections)
    assert item.methods == plan.bench.papers["coco-dr"].items["figure4"].methods


def test_groups_may_be_given(root):
    """Groups that are known take the place of k-means; the table is an input, so that a changed one makes all anew."""
    bench = load_bench(root, {"scale": "paper", "set": ["coco-dr.ep1.clusters.file=groups.tsv"]})
    plan, names = Plan(bench), ["coco-dr", *bench.overridden["coco-dr"]]
    plain, given = (SimpleNamespace(model=name, scope="shared", stage="ep1") for name in names)
    assert plan.inputs("cluster_queries")(given)["groups"] == "groups.tsv"
    assert json.loads(plan.settings("cluster_queries")(given))["settings"]["file"] == "groups.tsv"
    assert "groups" not in plan.inputs("cluster_queries")(plain)


def test_single_queries_of_the_tables_are_compared(plan):
    for paper, count in (("coco-dr", 5), ("modir", 2)):
        told = json.loads(plan.settings("build_item")(SimpleNamespace(paper=paper, item="table4")))["settings"]
        assert len(told["item"]["cases"]) == count, paper


def test_the_compared_methods_of_table_3_are_rows(plan):
    """Each is a recipe whose settings at `paper` are those of GPL's paper: 140,000 steps of 32, and so on."""
    items = plan.bench.papers["coco-dr"].items
    rows = items["table3"].rows | items["table3-generated"].rows
    named = ("SimCSE", "ICT", "MLM", "TSDAE", "UDALM", "QGen", "GPL w/ DistilBERT", "GPL w/ TSDAE")
    objectives = {}
    for row in named:
        chain = plan.chains.trained(rows[row]).chain
        objectives[row] = [stage.objective.name for stage in chain.values() if hasattr(stage, "objective")]
    assert objectives["SimCSE"][0] == "simcse" and objectives["TSDAE"][0] == "tsdae" and objectives["ICT"][0] == "ict"
    assert objectives["MLM"][0] == "mlm" and objectives["QGen"] == ["info_nce"]
    assert rows["GPL w/ DistilBERT"] == "genq+gpl-distilbert"
    assert objectives["GPL w/ DistilBERT"] == objectives["GPL w/ TSDAE"] == ["margin_mse"]
    assert plan.chains.encoder("genq+gpl-tsdae").init == "target-first+tsdae/ep0"
    training = plan.chains.trained("genq+gpl-tsdae").chain["questions"].training
    assert (training.steps, training.batch_queries) == (140_000, 32)
    assert {plan.chains.encoder(rows[row]).document_tokens for row in named if row != "UDALM"} == {350}


def test_genq_and_gpl_ask_and_mine_as_published(plan):
    """5 questions a passage for GenQ; GPL: 250,000 in all, 3 a passage at least, 50 negatives of each of two miners."""
    genq, gpl = (plan.chains.trained(name).chain["questions"] for name in ("genq", "genq+gpl"))
    assert (genq.generate.count, genq.generate.writer.each) == (500_000, (5, 5))
    assert (gpl.generate.count, gpl.generate.writer.each[0]) == (250_000, 3)
    assert gpl.generate.writer.each[1] * 3_600 > 250_000, "NFCorpus, BEIR's smallest"
    fused = plan.bench.settings(gpl.negatives.source, FusionSettings)
    assert [plan.bench.settings(run, EncoderSettings).model.partition("/")[2] for run in fused.runs] == [
        "msmarco-distilbert-base-v3",
        "msmarco-MiniLM-L-6-v3",
    ]
    assert (fused.entries, gpl.negatives.depth, gpl.negatives.count) == (50, 100, 100)
    starts = {name: plan.chains.encoder(name).init for name in ("genq", "genq+gpl", "genq+gpl-distilbert")}
    assert starts["genq"] == starts["genq+gpl"] == "sentence-transformers/msmarco-distilbert-base-tas-b"
    assert starts["genq+gpl-distilbert"] == "GPL/msmarco-distilbert-margin-mse"


def test_a_printed_mean_is_of_all_targets_of_its_table(plan):
    told = json.loads(plan.settings("build_item")(SimpleNamespace(paper="berm", item="table3-generated")))["settings"]
    assert "cqadupstack" not in told["item"]["collections"] and len(told["published"]["averages"]["avg"]) == 14
    assert "cqadupstack" in told["published"]["averages"]["avg"]


# ---- BERM ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["berm-dpr", "berm-kd", "berm-ance", "coco-berm"])
def test_published_is_the_papers_throughout(plan, method):
    """Eq. 4 to 6: KL, one cross entropy, and weights 0.1 and 1.0 in that order; the other is offered."""
    stage = list(plan.chains.trained(method).chain.values())[-1]
    berm, label = stage.find("berm"), stage.find("units").label
    assert (label.delta, label.aggregation) == (0.1, "sum")
    assert (berm.how.over_units, berm.how.softmaxes, berm.how.skips_last) == ("sum", 1, False)
    assert (berm.preset, berm.weights(0)) == ("paper", (0.1, 1.0))
    assert berm.model_copy(update={"heavier": "r1"}).weights(0) == (1.0, 0.1)


def test_the_grid_of_figure_4_has_both_orders(plan):
    rows = [name for name in plan.bench.papers["berm"].items["figure4"].methods if name != "berm-dpr+plain"]
    weights = {plan.chains.trained(name).chain["ep0"].find("berm").weights(0) for name in rows}
    assert weights == {(0.1, 1.0), (1.0, 0.1), (0.1, 0.1), (1.0, 1.0)}


@pytest.mark.parametrize("method", ["berm-dpr+released", "berm-dpr+schedule"])
def test_released_lowers_texts_and_labels_pairs_without_overlap(plan, method):
    assert plan.chains.encoder(method).lowercase is True
    assert plan.chains.trained(method).chain["ep0"].find("units").label.without_overlap == "first"
    assert plan.chains.encoder("berm-ance+released").lowercase is False, "ANCE's code keeps case"


def test_a_scaled_model_is_measured_by_its_own_matching_vector(plan):
    for model, form in (("berm-dpr", None), ("berm-dpr+scaled-matching", "scaled")):
        wanted = SimpleNamespace(units_of="berm-dpr+test-pairs", model=model)
        assert json.loads(plan.settings("measure_units")(wanted))["settings"].get("matching") == form


@pytest.mark.parametrize("base", ["berm-dpr", "berm-kd", "berm-ance"])
def test_table_5_is_of_test_pairs(plan, base):
    files = plan.inputs("measure_units")(SimpleNamespace(units_of=f"{base}+test-pairs", model=base))
    stage = files["labels"].split("/")[4]
    wanted = SimpleNamespace(model=f"{base}+test-pairs", scope="shared", stage=stage)
    told = json.loads(plan.settings("label_units")(wanted))["settings"]
    assert told["split"] == "dev" != plan.chains.trained(base).source_split
    assert all(f"{base}/shared/{stage}" not in path for path in (files["labels"], files["units"]))


def test_the_baselines_of_berm_s_table_3_are_rows(root):
    """All of its rows but one are models here; ColBERT is a row of published numbers."""
    bench = load_bench(root, {"scale": "paper", "methods": ("bm25-multifield", "colbert")})
    paper = bench.papers["berm"]
    items = [paper.items[name] for name in ("table3", "table3-generated", "table3-released")]
    ranked = {name for item in items for name in item.methods}
    rows = paper.rows | {row: name for item in items for row, name in item.rows.items()}
    for row in ("BM25", "MoDIR", "Contriever", "COCO-DR", "GenQ", "GPL", "BERM (ours)"):
        assert rows[row] in ranked, row
    assert bench.rows == ("bm25-multifield", "colbert") and not bench.methods["colbert"].ranks


# ---- MoMA ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["moma-t5ance", "moma-cocondenser"])
def test_negatives_are_of_the_index_alone(plan, method):
    """Eq. 3, 7 and 11; the start and the control without memory alike."""
    stage = plan.chains.trained(method).chain["moma1"]
    control = plan.chains.trained(f"{method}+no-memory").chain["ep1"]
    assert (stage.objective.in_batch, stage.objective.negatives_per_query) == (False, 7)
    assert stage.augmenter.objective is None, "the augmenter's loss is the stage's"
    assert control.objective == stage.objective
    start = plan.chains.trained("t5-ance" if method == "moma-t5ance" else method)
    assert start.chain["ep0"].objective == stage.objective
    assert plan.chains.trained(method).chain["moma1"].training.evaluate_steps == 502_939 // 256, "figure 4 is by epoch"


def test_t5_ance_has_the_settings_of_moma(plan):
    """Appendix A.4 gives it ANCE's; with MoMA's, memory is all that differs."""
    ours, theirs = (plan.chains.trained(name).chain["ep1"].training for name in ("t5-ance", "moma-t5ance+no-memory"))
    apart = {"evaluate_steps": theirs.evaluate_steps, "restart_schedule": theirs.restart_schedule}
    assert ours.model_copy(update=apart) == theirs
    assert ours.optimizer != plan.chains.trained("ance").chain["ep1"].training.optimizer


def test_adist_spreads_over_documents_at_the_size_of_t5_base(plan):
    """Sums of probabilities over 12 layers and heads at T = 1 leave little but one document of ten."""
    stage = plan.chains.trained("moma-t5ance+adist").chain["moma1"]
    assert stage.augmenter.objective == plan.chains.trained("moma-t5ance+adist-labels").chain[
        "moma1"
    ].augmenter.objective.model_copy(update={"labels": False})
    draw = torch.Generator().manual_seed(13)
    layers, heads, documents, tokens = 12, 12, 10, 128
    logits = torch.randn(layers, 4, heads, documents * tokens, generator=draw)
    logits += torch.randn(1, 4, 1, documents, generator=draw).repeat_interleave(tokens, -1)  # some matter more
    norms = 5 + 2 * torch.rand(layers, 4, heads, documents * tokens, generator=draw)  # of values of 64 components
    attention = CrossAttention(logits.softmax(-1), norms)
    segments = torch.arange(1, documents + 1).repeat_interleave(tokens).expand(4, -1)
    mask = torch.ones_like(segments)

    def effective(aggregation, temperature):
        scores = fid_attention(attention, segments, mask, documents, aggregation)[:, 1:]
        weights = (scores / temperature).softmax(-1)
        return (-(weights * weights.log()).sum(-1)).exp().mean().item()

    assert effective("prob_sum", 1.0) < 1.5
    assert effective(stage.memory.aggregation, stage.augmenter.objective.teacher_temperature) > 3


@pytest.mark.parametrize(
    ("rule", "collection", "part", "tokens"),
    [
        ("embed_memory", "scifact", {"shard": "00000-of-00001"}, (64, 512)),
        ("embed_memory", "robust04", {"shard": "00000-of-00001"}, (64, 768)),
        ("embed_memory", "memory-dpr-wikipedia", {"shard": "00000-of-00001"}, (None, None)),
        ("embed_memory_queries", "scifact", {"split": "test"}, (64, 512)),
        ("embed_memory_queries", "msmarco", {"split": "train"}, (None, None)),
    ],
)
def test_the_augmenter_reads_targets_with_the_papers_lengths(plan, rule, collection, part, tokens):
    wanted = SimpleNamespace(model="moma-t5ance", scope="shared", stage="moma3", collection=collection, **part)
    told = json.loads(plan.settings(rule)(wanted))["settings"]
    assert (told["query_tokens"], told["document_tokens"]) == tokens


# ---- MoDIR -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["modir-ance", "modir-dpr", "modir-ance+n100", "modir-ance+30k"])
def test_the_classifier_reads_all_of_its_queue_in_a_step(plan, method):
    """Eq. 6; 200 rows an update had been an eighth of it."""
    stage = plan.chains.trained(method).chain["modir1"]
    how, batch = adversary_of(stage), stage.training.batch_queries
    adversary = Adversary(method, how, batch, 2, [13], lambda step: 1.0)
    rows = how.queue_length * batch
    adversary.queue.rows = torch.arange(rows).view(-1, 1, 1).expand(-1, 4, 2).float().contiguous()
    adversary.queue.filled = how.queue_length
    read = torch.cat([part[:, 0, 0] for part in adversary._samples(0)])
    assert sorted(read.tolist()) == list(range(rows))


@pytest.mark.parametrize("method", ["modir-ance", "modir-dpr"])
def test_modir_has_table_5(plan, method):
    stage = plan.chains.trained(method).chain["modir1"]
    how = adversary_of(stage)
    assert (stage.training.batch_queries, stage.training.learning_rate, stage.training.steps) == (16, 1e-6, 10_000)
    assert (how.learning_rate, how.queue_length, how.weight, how.half_life_steps) == (5e-6, 1000, 1.0, 10_000)


def test_official_streams_all_negatives_of_a_query(plan):
    training = plan.chains.trained("modir-ance+official").chain["modir1"].training
    assert (training.batch_queries, training.accumulation, training.consecutive_negatives) == (32, 4, 20)


def test_cls_is_a_mode_without_projection(plan):
    for name in ("modir-dpr", "modir-ance"):
        assert plan.chains.encoder(f"{name}+cls").head == "none" != plan.chains.encoder(name).head


def test_knn_source_is_over_full_indexes_where_published_values_are(plan):
    """2,000 + 2,000 documents mix perfectly at 50 %, full indexes at 98 %: samples have no verdict."""
    files = plan.inputs("build_item")(SimpleNamespace(paper="modir", item="table3"))["indexes"]
    of_table = [path for path in files if "/trec-covid/" in path]
    assert len(of_table) == 7, "three kept steps of both lines, and their common start"
    wanted = SimpleNamespace(model="modir-ance+50k@modir3", target="trec-covid", protocol="modir-paper")
    corpora = plan.inputs("search_domains")(wanted)
    assert [len(corpora["source_corpus"]), len(corpora["target_corpora"])] == [5, 1]
    assert {path.split("/")[3] for path in corpora["source_corpus"]} == {"trec-covid"}, "the adapted model's vectors"
    steps = saved_models(plan, "modir-ance+50k").values()
    assert {0, 10_000, 30_000, 50_000} <= {step - min(steps) for step in steps}


def test_an_adapted_model_ranks_the_source_too(plan):
    """Section 4.5: its accuracy falls by .5 % at most."""
    files = plan.inputs("build_item")(SimpleNamespace(paper="modir", item="figure5"))["indexes"]
    assert "results/domains/modir-ance/trec-covid/modir-paper.indexes.tsv" in files
    wanted = SimpleNamespace(model="modir-ance", target="trec-covid", protocol="modir-paper")
    assert plan.inputs("search_domains")(wanted)["source_queries"].endswith(
        "/trec-covid/msmarco/modir-paper/queries.dev.npy"
    )


def test_table_4_searches_all_training_queries(plan):
    told = plan.settings("measure_domains")(SimpleNamespace(model="modir-ance@modir1", target="trec-covid"))
    assert json.loads(told)["settings"]["nearest_split"] == "train"


@pytest.mark.parametrize("item", ["figure3-50k", "figure4-50k", "figure5-50k"])
def test_figures_reach_50k_steps(plan, item):
    steps = {name.partition("@")[2]: count for name, count in saved_models(plan, "modir-ance+50k").items()}
    assert {10_000, 30_000, 50_000} <= {count - min(steps.values()) for count in steps.values()}
    assert "modir-ance+50k" in plan.bench.papers["modir"].items[item].methods
