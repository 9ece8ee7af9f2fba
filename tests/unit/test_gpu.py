"""The check of a GPU, on the CPU with tiny models: same script, no figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("one step of queries", "one step of coco", "one step of mlm", "cut off and resumed", "exact search")


def test_the_check_of_a_gpu_runs_on_the_cpu(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks/gpu.py"), "--device", "cpu", "--tiny", "--json", "gpu.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "all results are right" in done.stdout
    rows = {row["what"]: row for row in json.loads((tmp_path / "gpu.json").read_text())["rows"]}
    assert all(rows[part]["right"] for part in (*PARTS, "encode, fp32", "encode, bf16"))
    assert all("waited_for_data" in row for what, row in rows.items() if what.startswith("train "))
