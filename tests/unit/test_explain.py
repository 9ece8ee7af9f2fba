"""What made an artifact, and what of it is out of date."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_bench import (
    ARCHIVE,
    COLLECTION,
    MODEL,
    TABLE,
    concatenate,
    make_bench,
    make_bm25,
    make_collection,
    plan_of,
    run_stage,
)

from zerodr.artifacts.record import STATE, read_record, record_path, write_json
from zerodr.artifacts.stage import Stage
from zerodr.config.load import load_bench
from zerodr.errors import ArtifactError
from zerodr.lineage.explain import (
    WIDTH,
    Adapted,
    adapted_by,
    differences,
    explain,
    outdated,
    recorded_config,
    remedy,
    rerun_reasons,
    shown,
    stale_ancestors,
)
from zerodr.lineage.graph import Graph
from zerodr.pages.report import show_table
from zerodr.plan import Plan, paths
from zerodr.plan.rules import RULES, VERSIONS

RUN = paths.run("dense", "toy", "standard")
LEXICAL = paths.run("bm25-flat", "toy", "standard")


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_bench(tmp_path)


def telling(artifact: str, plan) -> list[str]:
    return [f"{d.what} {d.name}".strip() for d in differences(Graph(), artifact, plan) if d.matters]


def test_a_fresh_bench_is_current(plan):
    graph = Graph()
    for artifact in graph.artifacts():
        assert telling(artifact, plan) == []
    text = explain(graph, TABLE, plan)
    assert "Current:" in text
    assert "To update it" not in text


def test_what_a_recipe_no_longer_plans_is_told(plan):
    """A method of another kind, or a stage without units, has the name of one that ranked, or labelled, before."""
    wildcards = {"model": "dense", "scope": "shared", "collection": "toy", "split": "test", "depth": "200"}
    write_json(record_path(LEXICAL), read_record(LEXICAL) | {"rule": "rank_bm25", "wildcards": wildcards})
    assert telling(LEXICAL, plan) == ["rule rank_bm25"]
    text = explain(Graph(), LEXICAL, plan)
    assert "rule rank_bm25: planned then, dense has EncoderSettings now" in text and "To update it" in text


def test_one_screen_says_what_made_it(plan):
    text = explain(Graph(), LEXICAL, plan)
    record = read_record(LEXICAL)
    python, spec = record["environment"]["python"], record["spec_digest"][:16]
    for words in (
        record["digest"],
        "rule search_bm25 version 1",
        "seed 0",
        "k1=0.9",
        f"collection: {COLLECTION}",
        python,
        spec,
    ):
        assert words in text
    assert len(text.splitlines()) < 40
    assert "loss=0.333333" in explain(Graph(), MODEL, plan)


def test_a_changed_setting_is_named_with_both_values(plan, tmp_path):
    method = tmp_path / "config/methods/bm25-flat.yaml"
    method.write_text(method.read_text().replace("k1: 0.9", "k1: 1.2"))
    new = plan_of(tmp_path)
    assert telling(LEXICAL, new) == ["setting k1"]
    text = explain(Graph(), LEXICAL, new)
    assert "setting k1: 0.9 then, 1.2 now" in text
    assert f"To update it:\n  snakemake --profile config/profiles/mini {LEXICAL}" in text
    assert "If --config words were used to build it, repeat them here" in text


def test_other_files_of_an_input_make_it_out_of_date(plan, tmp_path):
    """The vectors of another model, as where a recipe's start or the encoder of `zero` changed, and more shards."""
    scales = tmp_path / "config/scales.yaml"
    scales.write_text(scales.read_text().replace("shard_documents: 6", "shard_documents: 4"))
    new = plan_of(tmp_path)
    assert telling(RUN, new) == ["inputs hits"]
    shards = [f"results/runs/dense/toy/standard/shard-{n:05d}-of-" for n in range(3)]
    line = f"inputs hits: {shards[0]}00002.parquet and 1 more then, {shards[0]}00003.parquet and 2 more now"
    text = " ".join(explain(Graph(), RUN, new).split())
    assert line in text and "Current:" not in text and "--forcerun" not in text
    assert rerun_reasons([RUN, LEXICAL], new) == [f"{RUN}: {line}"]


def test_a_plan_says_which_setting_makes_an_artifact_again(plan, tmp_path):
    method = tmp_path / "config/methods/bm25-flat.yaml"
    assert rerun_reasons([LEXICAL, TABLE, "results/absent.tsv"], plan) == []
    method.write_text(method.read_text().replace("k1: 0.9", "k1: 1.2"))
    new = plan_of(tmp_path)
    assert rerun_reasons([LEXICAL, TABLE, "results/absent.tsv"], new) == [f"{LEXICAL}: setting k1: 0.9 then, 1.2 now"]
    summary = paths.summary("bm25-flat", "toy", "standard")
    cells = [summary, paths.summary("dense", "toy", "standard")]
    assert outdated(cells, plan) == {}
    assert outdated(cells, new) == {summary: f"{LEXICAL}: setting k1: 0.9 then, 1.2 now"}
    Path(paths.beir("all.md")).write_text("the table")
    assert f"Outdated   1 of {len(new.evaluations('summary'))} cells" in show_table(new, [])
    assert "Outdated" not in show_table(plan, [])
    Path(paths.beir("all.md")).unlink()
    Path(cells[1]).unlink()
    with pytest.raises(ArtifactError, match=r"is missing, and 1 of \d+ cells are of other settings \(.* k1: 0.9 then"):
        show_table(new, [])
    several = rerun_reasons([LEXICAL] * 7, new)
    assert len(several) == 6 and several[-1] == "2 more; zerodr explain ARTIFACT says all of one"


def test_one_and_one_point_zero_are_different_settings(plan):
    record = read_record(LEXICAL)
    spec = record["spec"] | {"params": record["spec"]["params"] | {"depth": 1000.0}}
    write_json(Path(f"{LEXICAL}.lineage.json"), record | {"spec": spec})
    assert telling(LEXICAL, plan) == ["setting depth"]


def test_what_is_stale_above_is_told_below(plan, tmp_path):
    method = tmp_path / "config/methods/bm25-flat.yaml"
    method.write_text(method.read_text().replace("k1: 0.9", "k1: 1.2"))
    new = plan_of(tmp_path)
    assert telling(TABLE, new) == []
    assert list(stale_ancestors(Graph(), TABLE, new)) == [LEXICAL]
    text = explain(Graph(), TABLE, new)
    assert f"above, {LEXICAL}: setting k1" in text
    assert f"snakemake --profile config/profiles/mini {TABLE}" in text


def test_what_slurm_made_slurm_makes_again(plan, tmp_path):
    method = tmp_path / "config/methods/bm25-flat.yaml"
    method.write_text(method.read_text().replace("k1: 0.9", "k1: 1.2"))
    record = read_record(LEXICAL)
    write_json(
        Path(f"{LEXICAL}.lineage.json"),
        record | {"environment": record["environment"] | {"slurm_job": "17 on gpu1"}},
    )
    text = explain(Graph(), LEXICAL, plan_of(tmp_path))
    assert ", Slurm job 17 on gpu1" in " ".join(text.split())
    text = " ".join(explain(Graph(), TABLE, plan_of(tmp_path)).replace("\\\n", " ").split())
    assert text.endswith(f"snakemake --profile slurm {TABLE} --config scale=mini")  # the profile alone means paper


def test_a_stage_version_and_a_seed_matter(plan, tmp_path, monkeypatch):
    facts = RULES["evaluate_run"]
    monkeypatch.setitem(VERSIONS, facts.function, facts.version + 1)
    (tmp_path / "config/config.yaml").write_text("{scale: mini, seed: 8}\n")
    summary = paths.summary("dense", "toy", "standard")
    assert telling(summary, plan_of(tmp_path)) == ["stage version", "seed"]
    assert telling(RUN, plan_of(tmp_path)) == []  # merging makes no random choice


def test_a_changed_input_is_named_with_both_digests(plan):
    before = read_record(COLLECTION)["digest"][:12]
    make_collection(plan, "another archive")
    text = explain(Graph(), RUN, plan)
    assert f"input {COLLECTION}: {before} then, {read_record(COLLECTION)['digest'][:12]} now" in text
    assert "--forcerun" not in text


def test_a_changed_input_that_looks_old_needs_force_without_a_record(plan):
    make_collection(plan, "another archive")
    old = os.stat(RUN).st_mtime_ns - 10**9
    os.utime(COLLECTION, ns=(old, old))
    assert "--forcerun" not in explain(Graph(), RUN, plan)
    record_path(COLLECTION).unlink()
    stale = {RUN: [d for d in differences(Graph(), RUN, plan) if d.matters]}
    assert [shlex.join(command) for command in remedy(Graph(), RUN, stale, ["seed=7"], "mini")] == [
        f"snakemake --profile config/profiles/mini {RUN} --config seed=7 --forcerun merge_run"
    ]


def test_damage_is_removed_before_it_is_rerun_reasons(plan):
    Path(LEXICAL).write_text("damaged")
    text = explain(Graph(), LEXICAL, plan)
    assert f"rm {LEXICAL} && \\\n  snakemake --profile config/profiles/mini {LEXICAL}" in text
    (Path(MODEL).parent / "config.json").unlink()
    assert f"rm {MODEL} && \\\n  snakemake" in explain(Graph(), RUN, plan)


def test_a_missing_artifact_with_a_record_is_out_of_date(plan):
    Path(LEXICAL).unlink()
    text = explain(Graph(), LEXICAL, plan)
    assert "missing or damaged" in text
    assert "rm " not in text


def test_a_method_that_left_the_configuration(plan, tmp_path):
    (tmp_path / "config/scales.yaml").write_text(
        (tmp_path / "config/scales.yaml").read_text().replace("[bm25-flat, dense]", "[bm25-flat]")
    )
    (tmp_path / "config/methods/dense.yaml").unlink()
    (tmp_path / "config/methods/hybrid.yaml").unlink()
    text = explain(Graph(), MODEL, plan_of(tmp_path))
    assert "name dense: configured then, not in the configuration now" in text
    assert "This configuration can't build it: dense is not in it" in text
    assert "snakemake" not in text


def write_own(stage: Stage) -> None:
    (stage.output("section") / "corpus.parquet").write_bytes(stage.path("files").read_bytes())


def own_run(root: Path) -> str:
    """The run of a user's own collection, made with `--config byo=notes`."""
    (root / "notes").mkdir()
    (root / "notes/corpus.jsonl").write_text('{"_id": "1", "text": "a note"}\n')
    plan = Plan(load_bench(root, {"scale": "mini", "seed": 7, "byo": "notes"}))
    collection, run = paths.collection("notes"), paths.run("bm25-flat", "notes", "standard")
    run_stage(
        plan,
        "normalize_corpus",
        {"files": ["notes/corpus.jsonl"]},
        {"section": collection},
        write_own,
        collection="notes",
    )
    run_stage(
        plan,
        "search_bm25",
        {"collection": collection},
        {"run": run},
        concatenate,
        model="bm25-flat",
        collection="notes",
        protocol="standard",
    )
    return run


def test_the_words_of_an_own_collection_are_in_its_records(plan, tmp_path):
    run, graph = own_run(tmp_path), Graph()
    assert recorded_config(graph, run, []) == ["byo=notes"]
    assert recorded_config(graph, run, ["byo=other", "seed=1"]) == ["byo=other", "seed=1"]
    assert recorded_config(graph, LEXICAL, ["seed=1"]) == ["seed=1"]
    Path(run).unlink()
    text = explain(graph, run, Plan(load_bench(tmp_path, {"scale": "mini", "byo": "notes"})), ["byo=notes"])
    assert f"snakemake --profile config/profiles/mini {run} --config byo=notes" in text.replace("\\\n      ", "")


def test_an_own_collection_that_is_gone_is_named(plan, tmp_path):
    run = own_run(tmp_path)
    shutil.rmtree("notes")
    assert recorded_config(Graph(), run, []) == []
    text = explain(Graph(), run, plan_of(tmp_path))
    assert "name notes: configured then, not in the configuration now" in text
    assert "can't build it: notes is not in it" in text and "--config byo=FOLDER" in text
    assert "snakemake" not in text


WORDS = st.lists(st.text("ab/.=[] '&", min_size=1, max_size=60), min_size=1, max_size=30)


@given(WORDS)
def test_a_long_command_is_folded_and_means_the_same(words):
    text = shown(words)
    assert shlex.split(text.replace("\\\n", "")) == words
    assert all(len(line) <= WIDTH or len(line.split()) < 3 for line in text.splitlines() if "'" not in line)


def test_a_shell_reads_a_folded_command():
    words = ["printf", "%s|", *("x" * 50 for _ in range(4)), "a b", "[c]"]
    done = subprocess.run(["sh", "-c", shown(words)], capture_output=True, text=True, check=True)
    assert done.stdout.split("|")[:-1] == words[2:]


def test_long_lines_are_folded(plan, tmp_path):
    record = read_record(LEXICAL)
    given = record["inputs"][0] | {"name": "one", "path": "results/" + "x" * 90}
    write_json(Path(f"{LEXICAL}.lineage.json"), record | {"inputs": [given]})
    for path in (MODEL, RUN, LEXICAL, TABLE):
        text = explain(Graph(), path, plan)
        assert max(map(len, text.splitlines())) <= WIDTH


def test_settings_stand_in_one_column(plan):
    record = read_record(LEXICAL)
    params = {f"name{number:02d}": "x" * (number % 9) for number in range(60)}
    write_json(Path(f"{LEXICAL}.lineage.json"), record | {"spec": record["spec"] | {"params": params}})
    lines = explain(Graph(), LEXICAL, plan).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  settings"))
    block = [line for line in lines[first : first + 12] if "name" in line and "then" not in line]
    assert len(block) > 5 and all(line.index("name") == 15 for line in block)


def test_code_and_environment_alone_do_not_matter(plan):
    record = read_record(LEXICAL)
    code = {"commit": "0" * 40, "dirty_patch_sha256": None}
    environment = record["environment"] | {"python": "3.11.0"}
    write_json(Path(f"{LEXICAL}.lineage.json"), record | {"code": code, "environment": environment})
    assert telling(LEXICAL, plan) == []
    text = explain(Graph(), LEXICAL, plan)
    assert "Current:" in text
    assert "code commit: 000000000..." in text
    assert "environment python: 3.11.0 then" in text


def test_long_input_lists_are_cut(plan):
    record = read_record(TABLE)
    write_json(Path(f"{TABLE}.lineage.json"), record | {"inputs": record["inputs"] * 10})
    assert "and 22 more" in explain(Graph(), TABLE, plan)


def test_an_artifact_without_record_is_refused(plan):
    with pytest.raises(ArtifactError, match="has no lineage record"):
        explain(Graph(), "config/config.yaml", plan)


def test_following_the_command_makes_it_current(plan):
    make_collection(plan, "another archive")
    make_bm25(plan)
    graph = Graph()
    assert telling(LEXICAL, plan) == []
    assert stale_ancestors(graph, LEXICAL, plan) == {}
    assert read_record(ARCHIVE)["digest"] in {i["digest"] for i in read_record(COLLECTION)["inputs"]}


def test_an_answer_of_adapt_is_compared_with_the_settings_that_it_ran_with(plan):
    page, command = Path("results/adapted/toy/index.html"), ["zerodr", "adapt", "path/to/toy"]
    page.parent.mkdir(parents=True)
    page.write_text("an answer")
    record = read_record(TABLE)
    inputs = [{"name": "collection", "path": COLLECTION, "digest": read_record(COLLECTION)["digest"]}]
    spec = record["spec"] | {"params": {"command": shlex.join(command)}}
    write_json(record_path(page), record | {"artifact": str(page), "inputs": inputs, "spec": spec})
    others = [{"byo": ["path/to/other"]}, {"byo_name": "under-another-name"}]
    for seconds, values in enumerate([{"seed": 1}, {"seed": 2}, *others]):
        file = STATE / "adapt" / f"{seconds}.json"
        write_json(file, {"byo": ["path/to/toy"]} | values)
        os.utime(file, (seconds, seconds))
    expected = Adapted({"byo": ["path/to/toy"], "seed": 2}, command)
    assert adapted_by(Graph(), str(page)) == adapted_by(Graph(), COLLECTION) == expected
    assert adapted_by(Graph(), RUN) is None
    assert "zerodr adapt" not in explain(Graph(), COLLECTION, plan, command=command)
    Path(ARCHIVE).write_bytes(b"other")
    text = explain(Graph(), COLLECTION, plan, command=command)
    assert text.endswith("zerodr adapt path/to/toy") and "repeat them" not in text
