"""Compute jobs never touch the network: they ask no hub, and run where there is no network at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from encoder_helpers import embed_spec, import_spec, make_collection, tiny_bert

from zerodr.artifacts.stage import run_spec
from zerodr.plan.rules import RULES

ASK = """
import sys
if sys.argv[2] == "early":
    import huggingface_hub.constants
from zerodr.artifacts.adapter import stay_offline
stay_offline(sys.argv[1])
from huggingface_hub import is_offline_mode
sys.exit(not is_offline_mode())
"""


def library() -> dict[str, str]:
    """The environment of a process that finds the library and says nothing about being offline."""
    kept = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
    return kept | {"PYTHONPATH": str(Path(__file__).parents[2] / "workflow/scripts")}


@pytest.mark.parametrize(
    "rule, when, offline",
    [("embed_corpus", "late", True), ("embed_corpus", "early", True), ("init_model", "late", False)],
)
def test_only_downloads_may_ask_the_hub(rule, when, offline):
    done = subprocess.run([sys.executable, "-c", ASK, rule, when], env=library(), check=False)
    assert (done.returncode == 0) == offline


def test_downloads_run_where_snakemake_runs():
    downloads = [facts for facts in RULES.values() if facts.downloads]
    assert downloads and all(facts.local for facts in downloads)


def test_a_stage_runs_without_any_network(tmp_path, monkeypatch):
    alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    try:
        refused = subprocess.run([*alone, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if refused.returncode:
        pytest.skip(f"network namespaces are not allowed here ({refused.stderr.strip()})")
    monkeypatch.chdir(tmp_path)
    run_spec(import_spec(str(tiny_bert(tmp_path / "source")), normalize=True))
    make_collection(Path("results/collections/small"), [("d1", "", "some words"), ("d2", "", "a text")], [("q1", "x")])
    spec = embed_spec("small")
    Path("spec.json").write_text(json.dumps(asdict(spec)))
    done = subprocess.run(
        [*alone, sys.executable, "-m", "zerodr.run", "spec.json"],
        env=library(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert np.load(spec.outputs["embeddings"]).shape[0] == 2
