"""A sample of the drill of faults: nothing lost, nothing partial, bit-equal at the end. All of it: `make drill`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.drill.disk import Disk

pytestmark = pytest.mark.slow
RULES = ["pretrain", "finetune", "merge_run", "import_run", "evaluate_run"]


def test_faults_change_nothing(root, tmp_path):
    command = [sys.executable, "-m", "tests.drill.drill", "--faults", "40", "--seed", "2", "--folder", str(tmp_path)]
    try:
        done = subprocess.run(
            [*command, "--rules", *RULES], cwd=root, capture_output=True, text=True, check=False, timeout=1800
        )
    finally:
        Disk(Path(tmp_path, "bench")).close()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(
        r"40 faults in \d+ rules .*: 0 lost, 0 partial, 0 not bit-equal at the end, 0 left over", done.stdout
    )
