"""What follows from a stage with memories: mixtures, edges of an episode, what variants share."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import yaml
from tests.unit.memory_plan_helpers import EPISODE, add, plan, root, wc

from zerodr.errors import ConfigError
from zerodr.papers.moma.plan.memories import LEARNING, SEARCH, augmentation, has_augmenter
from zerodr.papers.moma.settings import inference_of
from zerodr.plan import Plan, paths
from zerodr.plan.lines import Link
from zerodr.plan.reporting import remark_of

__all__ = ["root"]
HERE = "results/memory/moma-t5ance/shared"


def mixture(made: Plan, link: Link, use: str, collection: str, split: str) -> list[str]:
    return augmentation(made, link, use, collection, split).memories


def searched(model: str) -> SimpleNamespace:
    return SimpleNamespace(model=model, collection="scifact", protocol="standard", shard="00000-of-00001")


def test_an_episode_follows_from_the_one_before():
    made = plan()
    main = made.inputs("train_main")(wc())
    assert main["model"] == "results/models/moma-t5ance/shared/moma1/manifest.json"
    assert main["rankings"] == f"{HERE}/moma2/learning/squad-v1.1/train.parquet"
    found = made.inputs("merge_memories")(wc(use=LEARNING, collection="squad-v1.1", split="train"))
    assert all(hit.startswith(f"{HERE}/moma1/hits/squad-v1.1/train.top200/") for hit in found["hits"])
    first = made.inputs("merge_memories")(wc("moma1", use=LEARNING, collection="squad-v1.1", split="train"))
    assert all("/memory/t5-ance/shared/ep0/hits/" in hit for hit in first["hits"])
    asked = wc("ep0", "t5-ance", collection="squad-v1.1", split="train", memory="memory-mesh", shard="00000-of-00001")
    asked.kind = "hits"
    searched = made.inputs("search_memory")(asked)
    assert searched["corpus"] == "results/embeddings/t5-ance@ep0/shared/memory-mesh/standard/corpus-00000-of-00001.npy"
    asked.model, asked.stage = "moma-t5ance", "moma1"
    assert made.inputs("search_memory")(asked)["corpus"].startswith(f"{HERE}/moma1/embeddings/memory-mesh/")
    assert made.inputs("train_augmenter")(wc())["model"] == main["model"], (
        "the augmenter goes on from the episode before"
    )
    assert made.inputs("measure_attention")(wc(use=LEARNING, collection="squad-v1.1", split="train"))["model"] == (
        f"{HERE}/moma2/main/manifest.json"
    )


def test_the_target_is_plugged_in_and_the_source_out():
    made = plan()
    link = Link("moma-t5ance", "moma2")
    assert mixture(made, link, SEARCH, "scifact", "test") == ["scifact", "memory-wikipedia-vital", "memory-mesh"]
    training = ["squad-v1.1", "memory-wikipedia-vital", "memory-mesh"]
    assert mixture(made, link, SEARCH, "squad-v1.1", "train") == training
    assert mixture(made, link, SEARCH, "squad-v1.1", "dev") == training, "the source as target, once"
    without = Link("moma-t5ance+no-target", "moma2")
    assert mixture(made, without, SEARCH, "scifact", "test") == training
    assert mixture(made, Link("moma-t5ance+target-only", "moma2"), SEARCH, "scifact", "test") == ["scifact"]
    depth = json.loads(made.settings("merge_memories")(wc("moma2", use=SEARCH, collection="scifact", split="test")))
    assert depth["settings"]["depth"] == depth["settings"]["needed"] == 10


def test_shares_of_evaluated_queries_name_their_collection_target():
    made = plan()
    for use, collection, split in ((LEARNING, "squad-v1.1", "train"), (SEARCH, "scifact", "test")):
        asked = wc(use=use, collection=collection, split=split)
        assert json.loads(made.settings("measure_shares")(asked))["settings"]["evaluated"] == (use == SEARCH)


def test_variants_of_inference_share_the_model_and_not_the_queries():
    made = plan()
    assert made.chains.link("moma-t5ance+no-target") == Link("moma-t5ance", "moma2")
    paths = {
        name: made.inputs("search_shard")(searched(name))["queries"]
        for name in (
            "moma-t5ance",
            "moma-t5ance+no-target",
            "moma-t5ance+adist",
            "moma-t5ance+no-memory",
            "moma-t5ance@moma2",
            "moma-t5ance@moma1",
            "moma-t5ance@init",
        )
    }
    assert paths["moma-t5ance"] == f"{HERE}/moma2/queries/scifact/standard/test.npy" == paths["moma-t5ance@moma2"]
    assert paths["moma-t5ance+no-target"] == (
        "results/memory/moma-t5ance+no-target/shared/moma2/queries/scifact/standard/test.npy"
    )
    assert paths["moma-t5ance@moma1"] == f"{HERE}/moma1/queries/scifact/standard/test.npy"
    assert paths["moma-t5ance+no-memory"].startswith("results/embeddings/moma-t5ance+no-memory@ep2/")
    assert paths["moma-t5ance@init"].startswith("results/embeddings/t5-ance@ep0/")
    assert len(set(paths.values())) == len(paths) - 1


def test_a_variant_that_shares_its_model_has_no_protocol_of_its_own_for_memories(root):
    add(root, inference={"documents": 7})
    recipe = root / "config/methods/mine.yaml"
    written = yaml.safe_load(recipe.read_text())
    own = {"label": "long", "settings": {"inference": {"protocol": "moma-paper"}}}
    recipe.write_text(yaml.safe_dump(written | {"variants": {"long": own}}, sort_keys=False))
    words = SimpleNamespace(model="mine+long", collection="scifact", protocol="standard", shard="00000-of-00001")
    with pytest.raises(
        ConfigError, match=r"mine\+long: inference.protocol: memories are embedded for mine, .*like: mine"
    ):
        plan(root).inputs("search_shard")(words)


def test_negatives_are_mined_with_augmented_queries_from_the_second_episode_on():
    made = plan()
    train = {"scope": "shared", "collection": "squad-v1.1", "split": "train", "shard": "00000-of-00001"}
    second = made.inputs("search_candidates")(SimpleNamespace(model="moma-t5ance@moma1", **train))
    assert second["queries"] == f"{HERE}/moma1/queries/squad-v1.1/standard/train.npy"
    assert "embeddings/moma-t5ance@moma1" in second["corpus"]
    first = made.inputs("search_candidates")(SimpleNamespace(model="t5-ance@ep0", **train))
    assert first["queries"].startswith("results/embeddings/t5-ance@ep0/")


def test_rows_that_rank_without_memories_mine_with_augmented_queries_all_the_same(root):
    add(root, chain={"moma1": EPISODE | {"repeat": 2}}, inference={"documents": 0})
    made, words = plan(root), {"scope": "shared", "shard": "00000-of-00001"}
    ranked = SimpleNamespace(model="mine@moma1", collection="squad-v1.1", split="train", **words)
    learned = "results/memory/mine/shared/moma1/queries/squad-v1.1/standard/train.npy"
    assert made.inputs("search_candidates")(ranked)["queries"] == learned
    plain = "results/embeddings/mine@moma2/shared/scifact/standard/queries.test.npy"
    assert made.inputs("search_shard")(searched("mine"))["queries"] == plain


def test_who_augments():
    made = plan()
    own, frozen = Link("moma-t5ance+no-learning", "moma2"), Link("moma-t5ance+no-distilling", "moma2")
    assert not has_augmenter(made, own) and has_augmenter(made, frozen)
    asked = wc("moma1", own.method, collection="scifact", split="test", memory="memory-mesh", shard="00000-of-00001")
    asked.kind = "hits"
    assert made.inputs("search_memory")(asked)["queries"] == (
        "results/embeddings/moma-t5ance+no-learning@moma1/shared/scifact/standard/queries.test.npy"
    ), "plain queries: the main model retrieves without augmentation"
    assert set(made.inputs("join_components")(wc(model=own.method))) == {"main"}
    assert set(made.inputs("join_components")(wc(model=frozen.method))) == {"main", "parent"}
    assert set(made.inputs("join_components")(wc())) == {"main", "augmenter"}


@pytest.mark.parametrize(("scale", "last"), [("mini", "ep1"), ("lab", "ep2"), ("paper", "ep3")])
def test_a_frozen_augmenter_is_the_trained_t5_ance(scale, last):
    made, method = plan(scale=scale), "moma-t5ance+no-distilling"
    given = f"results/models/t5-ance/shared/{last}/manifest.json"
    source, split = made.chains.source_of(method), "train"
    for stage in ("moma1", "moma2"):
        assert made.inputs("join_components")(wc(stage, method))["parent"] == given
        assert not json.loads(made.settings("join_components")(wc(stage, method)))["settings"]["parent_learned"]
        for use in (LEARNING, SEARCH):
            found = made.inputs("merge_memories")(wc(stage, method, use=use, collection=source, split=split))
            assert all(hit.startswith(f"results/memory/t5-ance/shared/{last}/hits/") for hit in found["hits"])
    exported = made.inputs("export_memory")(wc(model=method, memory="memory-mesh"))
    assert exported["embeddings"][0].startswith(f"results/embeddings/t5-ance@{last}/shared/memory-mesh/")


@pytest.mark.parametrize("method", ["moma-t5ance+no-learning", "moma-t5ance+no-distilling"])
def test_an_augmenter_that_is_no_own_network_reads_targets_as_inference_says(method):
    """As the learned one does: targets and their queries under inference.protocol, memories of training as trained."""
    made, memory = plan(scale="paper"), "memory-mesh-descriptors"
    asked = wc("moma2", method, use=SEARCH, collection="scifact", split="test")
    hits = made.inputs("merge_memories")(asked)["hits"]
    assert all("/hits.moma-paper/scifact/" in hit for hit in hits)
    model, _, stage = hits[0].split("/")[2:5]
    where = {"collection": "scifact", "split": "test", "shard": "00000-of-00001", "kind": "hits.moma-paper"}
    for name, protocol in (("scifact", "moma-paper"), (memory, "standard")):
        files = made.inputs("search_memory")(wc(stage, model, memory=name, **where))
        assert "/scifact/moma-paper/queries.test" in files["queries"]
        assert f"/{name}/{protocol}/corpus-" in files["corpus"]
    for use, collection, split in ((LEARNING, "msmarco", "train"), (SEARCH, "msmarco", "train")):
        found = made.inputs("merge_memories")(wc("moma2", method, use=use, collection=collection, split=split))
        assert all("/hits/" in hit for hit in found["hits"])


def test_a_memory_from_the_archive_of_the_source_has_its_documents():
    """Else a relevant passage, known by another name as a document of the memory, would be a negative."""
    made, method, judged = plan(scale="paper"), "moma-t5ance+marco-subset", "memory-msmarco-judged"
    asked = wc("moma1", method, use=LEARNING, collection="msmarco", split="train")
    merged = json.loads(made.settings("merge_memories")(asked))["settings"]["memories"]
    assert merged[0] == "msmarco" and judged not in merged
    files = made.inputs("merge_memories")(asked)
    assert any(f"/{judged}/" in hit for hit in files["hits"]), "the part alone is searched"
    assert paths.collection("msmarco") in files["memories"]
    assert set(json.loads(made.settings("mine_memories")(wc("moma1", method)))["settings"]["joins"]) == {*merged}
    for collection, name in (("msmarco", "msmarco"), ("scifact", judged)):
        hits = wc("moma1", method, collection=collection, split="train", memory=judged, kind="hits", depth="10")
        hits.shard = "00000-of-00002"
        assert json.loads(made.settings("search_memory")(hits))["settings"]["memory"] == name


def test_a_frozen_augmenter_without_init_is_the_one_before(root):
    frozen = EPISODE | {"augmenter": {"mode": "frozen"}}
    given = EPISODE | {"augmenter": {"mode": "frozen", "init": "t5-ance/ep2"}}
    learned = EPISODE | {"augmenter": {"selected": 2}}
    add(root, chain={"moma1": frozen})
    add(root, "other", chain={"moma1": given, "moma2": learned})
    made = plan(root)
    assert (
        made.inputs("join_components")(wc("moma1", "mine"))["parent"]
        == "results/models/t5-ance/shared/ep0/manifest.json"
    )
    found = made.inputs("merge_memories")(wc("moma2", "other", use=LEARNING, collection="squad-v1.1", split="train"))
    assert all("/memory/t5-ance/shared/ep2/hits/" in hit for hit in found["hits"])
    settings = json.loads(made.settings("train_augmenter")(wc("moma2", "other")))["settings"]
    assert settings["parent_learned"], "the augmenter goes on from the one that was given"


def test_the_remark_names_memories():
    memories = "queries are augmented with 10 documents of: target, memory-wikipedia-vital, memory-mesh"
    assert memories in remark_of(plan(), "moma-t5ance")
    assert "augmented" not in remark_of(plan(), "t5-ance")


def test_an_exported_model_says_how_its_queries_are_augmented(root):
    def exported(made: Plan, model: str) -> dict:
        return json.loads(made.settings("export_model")(wc(model=model)))["settings"]

    small = ["memory-wikipedia-vital", "memory-mesh"]
    assert exported(plan(), "moma-t5ance")["augmentation"] == {
        "memories": ["target", *small],
        "documents": 10,
        "document_tokens": 64,
        "exclude_self": True,
    }
    assert exported(plan(), "moma-t5ance+no-target")["augmentation"]["memories"] == ["squad-v1.1", *small]
    assert "augmentation" not in exported(plan(), "moma-t5ance+no-memory")
    own = EPISODE["memory"] | {"exclude_self": False}
    add(
        root,
        chain={"moma1": EPISODE | {"memory": own}},
        inference={"documents": 7, "memories": ["memory-mesh"], "document_tokens": 48},
    )
    assert exported(plan(root), "mine")["augmentation"] == {
        "memories": ["memory-mesh"],
        "documents": 7,
        "document_tokens": 48,
        "exclude_self": False,
    }


def test_inference_changes_targets_and_no_training_query(root):
    add(root, inference={"documents": 7, "document_tokens": 48})
    made = plan(root)
    for asked, expected in (
        ({"collection": "scifact", "split": "test"}, (7, 48)),
        ({"collection": "squad-v1.1", "split": "train"}, (4, 128)),
    ):
        words = wc("moma1", "mine", protocol="standard", use=SEARCH, **asked)
        fused = json.loads(made.settings("embed_fused_queries")(words))["settings"]
        seen = json.loads(made.settings("measure_attention")(words))["settings"]
        assert (fused["documents"], fused["document_limit"]) == expected
        assert (seen["documents"], seen["document_tokens"]) == expected


def test_a_distilling_augmenter_reads_all_documents():
    settings = json.loads(plan().settings("train_augmenter")(wc("moma1", "moma-t5ance+adist")))["settings"]
    stage = settings["settings"]
    assert stage["objective"]["negatives_per_query"] == 10 and stage["objective"]["name"] == "adist"
    assert stage["training"]["steps"] == 80 and not settings["parent_learned"]


def test_a_schedule_that_begins_anew_does_so_for_the_augmenter_too(root):
    linear = {"steps": 80, "schedule": "linear"}
    chain = {name: EPISODE | {"training": dict(linear)} for name in ("moma1", "moma2", "moma3")}
    chain["moma2"]["training"]["restart_schedule"] = True
    add(root, chain=chain)
    made, found = plan(root), []
    for stage in chain:
        one = json.loads(made.settings("train_augmenter")(wc(stage, "mine")))["settings"]["schedule"]
        assert one == made.chains.schedule(Link("mine", stage))
        found.append((one["first_step"], one["total_steps"]))
    assert found == [(0, 80), (0, 160), (80, 160)]


@pytest.mark.parametrize("recipe", ["moma-t5ance", "moma-cocondenser"])
@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
def test_without_memory_there_are_as_many_steps_of_the_same_schedule(recipe, scale):
    made = plan(scale=scale).chains

    def steps(method: str, stem: str) -> list[tuple]:
        chain = made.trained(method).chain
        schedules = [made.schedule(Link(method, name)) for name in chain if name.startswith(stem) and name != "ep0"]
        stages = [chain[one["stage"]] for one in schedules]
        return [
            (
                one["first_step"],
                one["total_steps"],
                own.objective,
                own.negatives,
                own.training.model_copy(update={"restart_schedule": False}),
            )
            for one, own in zip(schedules, stages, strict=True)
        ]

    episodes = steps(recipe, "moma")
    assert len(episodes) == (3 if scale == "paper" else 2)
    assert steps(f"{recipe}+no-memory", "ep") == episodes


@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
def test_both_bases_of_table_4_leave_out_the_same(scale):
    made = plan(scale=scale)
    items = made.bench.papers["moma"].items
    names = [{name.partition("+")[2] for name in items[item].methods} for item in ("table4", "table4-t5ance")]
    assert names[0] == names[1] and len(names[0]) == 8
    for variant in sorted(names[0] - {"no-memory"}):
        found = []
        for recipe in ("moma-t5ance", "moma-cocondenser"):
            own = made.chains.trained(f"{recipe}+{variant}".rstrip("+"))
            stages = {name: stage for name, stage in own.chain.items() if name.startswith("moma")}
            found.append((inference_of(own), stages))
        assert found[0] == found[1], variant


@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
def test_augmenters_scale_scores_alike(scale):
    made = plan(scale=scale)

    def objective(method: str) -> dict:
        return json.loads(made.settings("train_augmenter")(wc("moma1", method)))["settings"]["settings"]["objective"]

    factor = objective("moma-t5ance")["inverse_temperature"]
    assert factor == (0.1 if scale == "lab" else 1.0)
    student = 0.01 * 768**0.5 if scale == "paper" else 1 / factor  # as published: .01 of scores over the root of D
    assert objective("moma-t5ance+adist")["student_temperature"] == pytest.approx(student, rel=1e-3)
    both = objective("moma-t5ance+adist-labels")
    assert both["inverse_temperature"] == factor and both["student_temperature"] == pytest.approx(student, rel=1e-3)


def test_a_memory_that_is_the_target_under_another_name_is_refused(root):
    add(root, inference={"memories": ["target", "memory-msmarco"]})
    with pytest.raises(ConfigError, match="memories of msmarco/dev: msmarco and memory-msmarco are the same corpus"):
        mixture(plan(root), Link("mine", "moma1"), SEARCH, "msmarco", "dev")


def test_memories_are_searched_by_the_index_of_the_stage_that_made_the_augmenter():
    """The first stage's augmenter is another recipe's model, searched exactly; models from before are the same."""
    made, model = plan(), "moma-t5ance+approximate"
    asked = {"collection": "scifact", "split": "test", "memory": "memory-mesh", "depth": "10", "kind": "hits"}
    numbers = {"shard": "00000-of-00001"}

    def params(**where: str) -> dict:
        return json.loads(made.settings("search_memory")(wc(**where, **asked, **numbers)))["settings"]

    assert params(model=model, stage="moma1")["index"] == "hnsw"
    assert "index" not in params(model="moma-t5ance", stage="moma1")
    assert "index" not in params(model="t5-ance", stage="ep0")
    merging = wc("moma2", model, use=SEARCH, collection="scifact", split="test")
    assert made.inputs("merge_memories")(merging)["hits"][0].startswith(f"results/memory/{model}/shared/moma2/hits/")
    main = json.loads(made.settings("train_main")(wc("moma1", "moma-t5ance")))["settings"]
    assert "search" not in main["settings"]["memory"]
