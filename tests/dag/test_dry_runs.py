"""Dry runs of every target: what is planned is compared with golden job counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.dag.conftest import clone

from zerodr.config.load import load_bench
from zerodr.plan.targets import TARGETS

GOLDEN = Path(__file__).parent / "golden"
MINI = ("--profile", "config/profiles/mini", "-n")
PUBLIC = ("msmarco-hard-negatives.jsonl.gz", "msmarco-scores.parquet")
ONE_SHARD = "shard_documents=1000000000"  # test_job_counts counts the shards of scale paper
ABLATIONS = ("no-memory", "mesh-only", "no-target", "no-learning", "no-distilling", "adist")


def job_counts(output: str) -> dict[str, int]:
    """Rule -> number of jobs, from Snakemake's job statistics."""
    block = output.split("Job stats:")[1].split("\n\n")[0]
    return {rule: int(count) for rule, count in re.findall(r"^(\w+)\s+(\d+)$", block, re.M)}


def golden(name: str) -> dict[str, int]:
    lines = (GOLDEN / f"{name}.tsv").read_text().split("\n")[1:]
    return {rule: int(count) for rule, count in (line.split("\t") for line in lines if line)}


def both(*targets: str) -> tuple[str, ...]:
    """Plan targets at scale mini for both of its collections, of which the main job has one."""
    return (*MINI, *targets, "--config", "collections=[mini]")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mini", (*MINI, "all")),
        ("mini-table", (*MINI, "results/beir/all.tsv")),
        ("mini-row", both("results/beir/all-minilm-l6-v2+hnsw.tsv")),
        ("mini-dpr", both("results/beir/dpr.tsv")),
        ("mini-ance", both("results/beir/ance.tsv", "results/exported/ance/shared/manifest.json")),
        ("mini-t5-ance", both("results/beir/t5-ance.tsv")),
        ("mini-moma-t5ance", both("results/beir/moma-t5ance.tsv")),
        ("mini-moma-ablations", both(*(f"results/beir/moma-t5ance+{name}.tsv" for name in ABLATIONS))),
        ("mini-moma-cocondenser", both("results/beir/moma-cocondenser.tsv")),
        ("mini-moma-items", both("results/moma/all.html")),
        ("paper-moma-t5ance", (*MINI, "results/beir/moma-t5ance.tsv", "--config", "scale=paper")),
        ("mini-kd", both("results/beir/kd.tsv")),
        ("mini-coco-dr", both("results/beir/coco-dr.tsv")),
        ("mini-coco-dr-items", both("results/coco-dr/all.html")),
        ("mini-modir-items", both("results/modir/all.html")),
        ("mini-berm-items", both("results/berm/all.html")),
        ("mini-ddr-items", both("results/ddr/all.html")),
        ("lab-modir-figure3", (*MINI, "results/modir/figure3.svg", "--config", "scale=lab", "collections=[scifact]")),
        ("mini-modir-dpr", both("results/beir/modir-dpr.tsv", "results/exported/modir-dpr/scifact/manifest.json")),
        ("mini-modir-ance-30k", both("results/beir/modir-ance+30k.tsv")),
        (
            "paper-modir-ance",
            (*MINI, "results/beir/modir-ance.tsv", "--config", "scale=paper", "collections=[modir15]"),
        ),
        ("mini-berm-ance", both("results/beir/berm-ance.tsv")),
        (
            "mini-ddr-contrast",
            both("results/beir/ddr-contrast.tsv", "results/exported/ddr-contrast/scifact/manifest.json"),
        ),
        ("mini-ddr-distill", both("results/beir/ddr-distill.tsv")),
        (
            "mini-ddr-contrast-fourth-target",
            (
                *MINI,
                "results/beir/ddr-contrast.tsv",
                "results/exported/ddr-contrast/scifact/manifest.json",
                "--config",
                "collections=[mini,medquad]",
            ),
        ),
        ("paper-ance", (*MINI, "results/beir/ance.tsv", "--config", "scale=paper")),
        ("lab", (*MINI, "results/beir/all.tsv", "--config", "scale=lab")),
        ("paper", ("--profile", "slurm", "results/beir/all.tsv", "-n")),
    ],
)
def test_job_counts(snakemake, name, words):
    done = snakemake(*words, "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    assert job_counts(done.stdout + done.stderr) == golden(name)


@pytest.mark.parametrize("paper", ["berm", "coco-dr", "ddr", "modir", "moma"])
def test_all_items_of_a_paper_can_be_planned_with_their_own_collections(snakemake, checkout, root, paper):
    items = load_bench(root, {"scale": "paper"}).papers[paper].items
    for name in PUBLIC:
        (checkout / "resources/negatives").mkdir(exist_ok=True)
        (checkout / "resources/negatives" / name).touch()
    pages = [f"results/{paper}/all.html", *(f"results/{paper}/{item}.html" for item in items)]
    done = snakemake("--profile", "slurm", *pages, "-n", "--quiet", "rules", "--config", ONE_SHARD)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("recipe", "name"), [("ddr-contrast", PUBLIC[0]), ("ddr-distill", PUBLIC[1])])
def test_public_negatives_of_ddr_that_are_absent_are_refused_by_a_sentence(snakemake, checkout, recipe, name):
    path, target = f"resources/negatives/{name}", f"results/exported/{recipe}+public/lotte-science-forum/manifest.json"
    words = ("--profile", "slurm", target, "-n", "--config", "collections=[lotte]")
    (checkout / path).unlink(missing_ok=True)
    done = snakemake(*words)
    assert done.returncode and "MissingInputException" not in done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ConfigError: ")]
    assert line.startswith(f"ConfigError: mine_negatives: reads {path}, which is no file and which no rule makes: ")
    assert f"{recipe}+public learns from {name}" in line and "https://huggingface.co/datasets/sentence-" in line
    (checkout / path).parent.mkdir(exist_ok=True)
    (checkout / path).touch()
    counts = job_counts_of(snakemake(*words))
    assert counts["mine_negatives"] == counts["finetune"] == counts["assemble"] == 1 and "score_pairs" not in counts


def test_rows_of_the_main_table_by_scale_and_family(root):
    benches = {scale: load_bench(root, {"scale": scale}) for scale in ("mini", "lab", "paper")}
    rows = [(s, family, row) for s, bench in benches.items() for row, family in bench.scale.families.items()]
    assert ["scale\tfamily\trow", *map("\t".join, rows)] == (GOLDEN / "rows.tsv").read_text().splitlines()


def test_a_fourth_target_trains_its_domain_module_and_nothing_else():
    three, four = golden("mini-ddr-contrast"), golden("mini-ddr-contrast-fourth-target")
    more = {rule: jobs - three.get(rule, 0) for rule, jobs in four.items() if jobs != three.get(rule, 0)}
    assert more["pretrain"] == more["assemble"] == 1
    assert "finetune" not in more and "mine_negatives" not in more


def test_slurm_means_paper_with_other_configuration_too(snakemake, checkout):
    (checkout / "own.yaml").write_text("seed: 2\n")
    others = ([], ["--config", "seed=1"], ["--configfile", "own.yaml"])
    words = ("--profile", "slurm", "results/beir/bm25-flat.tsv", "-n")
    plain, *changed = (job_counts_of(snakemake(*words, *more)) for more in others)
    assert changed == [plain, plain]
    assert plain["normalize_collection"] > 20  # all of BEIR


def test_a_named_scale_holds_on_slurm_too(snakemake):
    counts = job_counts_of(
        snakemake("--profile", "slurm", "results/beir/bm25-flat.tsv", "-n", "--config", "scale=mini")
    )
    assert counts["normalize_collection"] == 1


def test_every_listed_target_can_be_planned(snakemake):
    example = {
        "selection": "all",
        "method": "bm25-flat",
        "collection": "scifact",
        "judged": "scifact",
        "protocol": "standard",
        "trained": "dpr",
        "paper": "coco-dr",
        "item": "table2",
        "adapted": "modir-dpr",
        "learned": "modir-dpr",
        "target": "scifact",
        "annotated": "berm-dpr",
        "augmented": "moma-t5ance",
        "stage": "ep0",
    }
    done = snakemake(*MINI, *(target.path.format(**example) for target in TARGETS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint_is_clean(snakemake):
    done = snakemake("--lint")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("config", "telling"),
    [
        (["methods=[bm25-flatt]"], ["method 'bm25-flatt'", "did you mean bm25-flat"]),
        (["methods=[all-minilm-l6-v2+bf61]"], ["all-minilm-l6-v2+bf61", "all-minilm-l6-v2+bf16"]),
        (["collections=[scifakt]"], ["collection 'scifakt'", "did you mean scifact"]),
        (["protocol=standart"], ["protocol 'standart'", "did you mean standard"]),
        (["scale=minni"], ["scale 'minni'", "did you mean mini"]),
        (["sede=1"], ["unknown key 'sede'", "did you mean seed"]),
        (["seed=-1"], ["key 'seed'", "greater than or equal to 0", "-1"]),
        (["source=squad"], ["source 'squad'", "squad"]),
        (["byo=/no/such/folder"], ["byo=/no/such/folder", "does not exist"]),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_known_one(snakemake, config, telling):
    done = snakemake(*MINI, "--config", *config)
    assert done.returncode == 1
    for words in telling:
        assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_mistyped_target_is_answered_with_the_nearest_one(snakemake):
    done = snakemake(*MINI, "resutls/beir/all.tsv")
    assert done.returncode == 1 and "Exception" not in done.stdout + done.stderr
    assert (
        "ConfigError: resutls/beir/all.tsv: is no target: did you mean results/beir/all.tsv"
        in done.stdout + done.stderr
    )


def test_another_folder_is_one_sentence(snakemake, checkout, tmp_path):
    done = snakemake("-n", "--cores", "1", "-s", str(checkout / "Snakefile"), cwd=tmp_path)
    assert done.returncode == 1 and f"{tmp_path} has no config/config.yaml: cd {checkout}" in done.stdout + done.stderr


def test_a_checkout_may_lie_in_a_folder_with_braces(snakemake, root, tmp_path):
    folder = clone(root, tmp_path / "it's #1 {x}")
    done = snakemake("-n", "--cores", "1", "results/collections/scifact/manifest.json", cwd=folder)
    assert done.returncode == 0 and "normalize_collection" in done.stdout, done.stderr


def test_gpus_that_are_not_there_are_told_before_the_first_job(snakemake, monkeypatch):
    """The profile lets jobs count as one GPU; what the training would ask torch for decides."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ("--profile", "config/profiles/local", "results/models/dpr/shared/ep0/manifest.json")
    done = snakemake(*words, "--config", "scale=lab", "gpus=4")
    asks = "MachineError: finetune: asks for 4 GPUs (gpus, or the scale's), this machine shows 0: --config gpus=0"
    assert done.returncode == 1 and asks in done.stderr
    assert "localrule" not in done.stdout + done.stderr


def test_adding_an_episode_plans_only_the_new_links(snakemake):
    target = (*MINI, "results/models/t5-ance/shared/{}/manifest.json", "--config", "scale=lab")
    before, after = (job_counts_of(snakemake(*(word.format(stage) for word in target))) for stage in ("ep1", "ep2"))
    more = {rule: after[rule] - before.get(rule, 0) for rule in after if after[rule] != before.get(rule, 0)}
    assert more == {
        "embed_corpus": 1,
        "embed_queries": 1,
        "sample_queries": 1,
        "search_candidates": 1,
        "merge_candidates": 1,
        "mine_negatives": 1,
        "finetune": 1,
        "total": 7,
    }


def test_adding_a_method_plans_only_its_own_jobs(snakemake):
    before = job_counts_of(snakemake(*both("results/beir/mini.tsv"), "methods=[bm25-flat]"))
    after = job_counts_of(snakemake(*both("results/beir/mini.tsv"), "methods=[bm25-flat,bm25-multifield]"))
    more = {rule: after[rule] - before.get(rule, 0) for rule in after if after[rule] != before.get(rule, 0)}
    assert more == {"index_bm25": 2, "search_bm25": 2, "evaluate_run": 2, "total": 6}


def job_counts_of(done) -> dict[str, int]:
    assert done.returncode == 0, done.stdout + done.stderr
    return job_counts(done.stdout + done.stderr)


def test_index_variants_share_the_embeddings(snakemake):
    counts = job_counts_of(
        snakemake(*both("results/beir/mini.tsv"), "methods=[all-minilm-l6-v2,all-minilm-l6-v2+hnsw]")
    )
    assert counts["embed_corpus"] == 2
    assert counts["search_shard"] == 4


def test_shards_are_static_and_cover_the_collection(snakemake):
    counts = job_counts_of(
        snakemake(*both("results/beir/mini.tsv"), "methods=[all-minilm-l6-v2]", "shard_documents=1000")
    )
    assert counts["embed_corpus"] == counts["search_shard"] == 6 + 4
    assert counts["merge_run"] == 2


def test_a_folder_without_judgements_is_compared_on_known_items_that_no_stage_learns_from(snakemake, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "a text"}\n')
    words = (f"byo={folder}", "scale=lab", "gpus=0", "held_out=300")
    done = snakemake(*MINI, "results/adapted/notes/index.html", "--config", *words)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = job_counts(done.stdout + done.stderr)
    assert {rule: counts[rule] for rule in ("hold_out_items", "finetune", "evaluate_run", "judge_adaptation")} == {
        "hold_out_items": 1,
        "finetune": 2,
        "evaluate_run": 9,
        "judge_adaptation": 1,
    }
    reads = re.findall(r"^rule (\w+):\n    input: .*collections/notes/manifest.json", done.stdout + done.stderr, re.M)
    wanted = ["embed_corpus", "embed_corpus", "export_adapted", "hold_out_items", "index_bm25", "judge_adaptation"]
    assert sorted(reads) == wanted, "no training reads the whole documents; the judge shows texts of its examples"


def test_columns_in_another_order_are_the_same_table(snakemake):
    done = snakemake(*MINI, "results/beir/scifact+nfcorpus.tsv", "--config", "collections=nfcorpus,scifact")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results/beir/nfcorpus+scifact.tsv" in done.stdout + done.stderr
