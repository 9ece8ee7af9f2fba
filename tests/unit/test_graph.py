"""Walks over real records: up, down, stale edges, finding what a person names, trees."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tiny_bench import ARCHIVE, COLLECTION, MODEL, TABLE, make_bench, make_collection

from zerodr.artifacts.record import read_record, record_path
from zerodr.errors import ArtifactError
from zerodr.lineage.graph import Graph, render_tree, short_name
from zerodr.lineage.verify import verify
from zerodr.plan import paths
from zerodr.plan.rules import RULES

RUN = paths.run("dense", "toy", "standard")


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_bench(tmp_path)


def test_up_names_inputs_with_digests(plan):
    edges = Graph().up(RUN)
    assert [edge.name for edge in edges] == ["collection", "hits", "hits"]
    assert all(edge.recorded == read_record(edge.source)["digest"] and not edge.stale for edge in edges)


def test_down_names_every_user(plan):
    users = [edge.user for edge in Graph().down(RUN)]
    assert paths.summary("dense", "toy", "standard") in users
    assert paths.run("hybrid", "toy", "standard") in users
    assert Graph().down(TABLE) == []


def test_ancestors_come_sources_first_and_once(plan):
    order = Graph().ancestors(TABLE)
    assert order[-1] == TABLE
    assert len(order) == len(set(order))
    place = {artifact: number for number, artifact in enumerate(order)}
    for artifact in order:
        for given in read_record(artifact)["inputs"]:
            assert place[given["path"]] < place[artifact]
    assert {ARCHIVE, MODEL, COLLECTION} <= set(order)


def test_final_artifacts_are_those_that_nothing_was_built_from(plan):
    graph = Graph()
    assert TABLE in graph.final()
    assert RUN not in graph.final()


def test_a_remade_input_makes_its_users_edges_stale(plan):
    make_collection(plan, "another archive")
    graph = Graph()
    stale = [edge for edge in graph.down(COLLECTION) if edge.stale]
    assert len(stale) == len(graph.down(COLLECTION)) > 5
    assert stale[0].current == read_record(COLLECTION)["digest"]
    assert not any(edge.stale for edge in graph.up(COLLECTION))


def test_a_missing_or_damaged_input_has_no_digest(plan):
    Path(paths.shard_hits("dense", "toy", "standard", "shard-00000-of-00002")).unlink()
    Path("results/collections/toy/audit.json").write_text("{}")
    states = {edge.source: edge.current for edge in Graph().up(RUN)}
    assert states[paths.shard_hits("dense", "toy", "standard", "shard-00000-of-00002")] is None
    assert states[COLLECTION] is None


def test_find_takes_paths_folders_records_and_digests(plan, tmp_path):
    graph = Graph()
    digest = read_record(RUN)["digest"]
    for text in (RUN, f"./{RUN}", str(tmp_path / RUN), f"{RUN}.lineage.json", digest, digest[:9]):
        assert graph.find(text) == RUN
    for text in (MODEL, "results/models/dense/shared/imported", "results/models/dense/shared/imported/lineage.json"):
        assert graph.find(text) == MODEL


def test_find_tells_the_nearest_artifact(plan):
    with pytest.raises(ArtifactError, match="did you mean .*results/beir/all.tsv"):
        Graph().find("results/beir/al.tsv")
    with pytest.raises(ArtifactError, match="has no lineage record"):
        Graph().find("config/config.yaml")


def test_find_refuses_a_digest_of_several_artifacts(plan):
    twin = Path("results/twin.json")
    record = dict(read_record(TABLE), artifact=str(twin))
    twin.write_bytes(Path(TABLE).read_bytes())
    from zerodr.artifacts.record import record_path, write_json

    write_json(record_path(twin), record)
    with pytest.raises(ArtifactError, match="digest of 2 artifacts"):
        Graph().find(record["digest"][:12])


def test_nothing_was_made_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Graph().artifacts() == []
    with pytest.raises(ArtifactError, match="run: make mini"):
        Graph().find("results/beir/all.tsv")


def test_tree_shows_each_branch_once(plan):
    text = render_tree(Graph(), TABLE)
    assert text.splitlines()[0].startswith(f"{TABLE}  build_table v{RULES['build_table'].version}  ")
    archive = [line for line in text.splitlines() if ARCHIVE in line]
    assert len(archive) == 1
    assert "(see above)" in text
    assert len(render_tree(Graph(), TABLE, depth=1).splitlines()) == 1 + 3 + 3


def test_tree_down_reaches_the_table_and_tells_stale_edges(plan):
    assert TABLE in render_tree(Graph(), ARCHIVE, down=True)
    make_collection(plan, "another archive")
    assert f"{COLLECTION} is {read_record(COLLECTION)['digest'][:12]} now" in render_tree(Graph(), RUN)


def test_an_artifact_that_is_gone_with_its_record_is_not_one_that_no_stage_writes(plan):
    shutil.rmtree(Path(MODEL).parent)
    assert f"{MODEL}  (its record is gone)  GONE" in render_tree(Graph(), TABLE)
    assert [str(problem) for problem in verify(Graph(), [TABLE])] == [
        f"{MODEL}: is missing, and its record too: rebuild it: snakemake {MODEL}"
    ]


@pytest.mark.parametrize("artifact", [RUN, MODEL, TABLE])
@pytest.mark.parametrize("content", [b'{"artifact": "res', b"", b'{"a": "\xc3'])
def test_a_record_that_is_cut_short_is_one_problem(plan, artifact, content):
    record = record_path(artifact)
    record.write_bytes(content)
    graph = Graph(lenient=True)
    assert graph.find(artifact) == artifact and graph.is_damaged(artifact)
    lines = [line for line in render_tree(graph, TABLE).splitlines() if f"{artifact}  " in line]
    assert lines and all(line.endswith(f"{artifact}  (its record can't be read)") for line in lines)
    (problem,) = verify(Graph(lenient=True), Graph(lenient=True).artifacts())
    assert problem.artifact == artifact and str(record) in problem.problem
    assert problem.next_step == f"rebuild it: rm {artifact} {record} && snakemake {artifact}"
    with pytest.raises(ArtifactError, match="is no JSON .*delete it and run the target again"):
        Graph().require(artifact)  # as explain, diff, publish and each job that reads it do


def test_short_names():
    assert short_name(MODEL) == "models/dense/shared/imported"
    assert short_name(ARCHIVE) == "archives/toy.zip"


def test_temporary_rules_are_those_of_the_workflow(root):
    temporary = set()
    for path in (root / "workflow/rules").rglob("*.smk"):
        for rule in re.split(r"^rule ", path.read_text(), flags=re.M)[1:]:
            temporary |= {rule.partition(":")[0]} if "temp(" in rule else set()
    assert temporary == {name for name, facts in RULES.items() if facts.temporary}


def test_what_was_removed_after_its_use_is_no_problem(plan, monkeypatch):
    graph = Graph()
    run = Path(RUN)
    digest = graph.require(RUN)["digest"]
    run.unlink()
    assert [str(finding) for finding in verify(Graph(), [RUN])] == [f"{RUN}: is missing: rebuild it: snakemake {RUN}"]
    rule = graph.require(RUN)["rule"]
    monkeypatch.setitem(RULES, rule, RULES[rule]._replace(temporary=True))
    assert Graph().current_digest(RUN) == digest and not Graph().is_damaged(RUN)
    assert list(verify(Graph(), [RUN])) == []


def test_an_artifact_whose_job_was_stopped_is_not_one_that_nobody_made(plan, tmp_path):
    spec = {"rule": "finetune", "inputs": {}, "outputs": {"model": "results/models/late/shared/ep0/manifest.json"}}
    home = tmp_path / "results/.state/0123456789abcdef"
    (home / "work").mkdir(parents=True)
    whole = spec | {"version": 1, "params": {}, "seed": 13, "wildcards": {"model": "late"}}
    (home / "spec.json").write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(
        ArtifactError, match=r"begun and is not finished \(finetune late\): it runs now, or was stopped"
    ):
        Graph().find("results/models/late/shared/ep0")
    (home / "work").rmdir()
    with pytest.raises(ArtifactError, match="was not made here"):
        Graph().find("results/models/late/shared/ep0")
