"""Jobs that are forked from a warm process: they are processes of their own, and outlive it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from snakemake.benchmark import BenchmarkRecord

from zerodr.operations.warm import LIBRARY, RULES, WarmProcess

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux alone")
FACTS = """
import json, os, sys, numpy, threadpoolctl
blas = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
loaded = [name for name in ("torch", "transformers", "mlflow", "faiss", "jnius") if name in sys.modules]
facts = {"pid": os.getpid(), "mark": os.environ.get("MARK"), "blas": blas, "loaded": loaded, "argv": sys.argv}
open("facts.json", "w").write(json.dumps(facts))
"""


@pytest.fixture
def warm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = WarmProcess()
    yield process
    process._requests.close()


def run(warm: WarmProcess, text: str, rule: str = "merge_run", record: BenchmarkRecord | None = None) -> int | None:
    script = Path("job.py")
    script.write_text(text)
    environment = dict(os.environ) | {"MARK": "one", "OMP_NUM_THREADS": "2"}
    return warm.run({"script": str(script), "rule": rule, "threads": 2, "environment": environment}, record)


def test_a_job_is_a_process_of_its_own_with_its_environment_and_threads(warm):
    record = BenchmarkRecord()
    assert run(warm, FACTS, record=record) == 0
    facts = json.loads(Path("facts.json").read_text())
    assert facts["pid"] != os.getpid() and facts["mark"] == "one" and facts["argv"] == ["job.py"]
    assert set(facts["blas"]) == {2} and record.running_time > 0
    assert record.max_rss > 50 and 0 < record.cpu_time < 30 and record.to_tsv(False).count("\t") == 9


def test_a_job_without_a_network_finds_none_of_the_large_libraries(warm):
    assert run(warm, FACTS) == 0
    assert json.loads(Path("facts.json").read_text())["loaded"] == []


@pytest.mark.parametrize("rule", ["embed_corpus", "embed_memory", "embed_memory_queries", "embed_queries"])
def test_embedding_imports_torch_only_where_it_computes_with_it(rule):
    module = RULES[rule].function.split(":")[0]
    told = f"import sys, zerodr.{module}; raise SystemExit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(LIBRARY.parent)}
    assert subprocess.run([sys.executable, "-c", told], env=environment, check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
        ("import atexit; atexit.register(lambda: open('ended', 'w').close())", 0),
    ],
)
def test_exit_codes_are_those_of_a_shell(warm, text, code):
    assert run(warm, text) == code
    assert code or Path("ended").exists()


def test_a_job_survives_the_warm_process_and_the_next_one_starts_it_again(warm):
    kill = "s = open(f'/proc/{os.getppid()}/stat').read().split(); os.kill(int(s[3]), 9)"
    assert run(warm, f"import os, time; {kill}; time.sleep(1); open('whole', 'w').close()") == 0
    assert Path("whole").exists()
    assert run(warm, FACTS) is None  # it starts as it would without
    assert run(warm, FACTS) == 0


def test_changed_code_starts_another_process(warm):
    assert run(warm, FACTS) == 0
    first = warm._edited
    warm._edited = 1
    assert run(warm, FACTS) == 0 and warm._edited == first


def test_ctrl_c_reaches_the_job_and_one_that_is_about_to_begin(tmp_path):
    """The job ends as at a terminal, its warm process does not, and Snakemake hears its exit code.

    Libraries of the first job are imported for seconds before it begins, and it must not train for minutes after that.
    """
    begun = "open('begun', 'w').close(); import time"
    (tmp_path / "1.py").write_text(f"{begun}\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(130)\n")
    (tmp_path / "2.py").write_text("open('late', 'w').close()")
    program = """
import os, signal
from zerodr.operations.warm import WarmProcess
signal.signal(signal.SIGINT, signal.SIG_IGN)
warm = WarmProcess()
for name in ("1.py", "2.py"):
    request = {"script": name, "rule": "merge_run", "threads": 1, "environment": dict(os.environ)}
    print(warm.run(request, None), flush=True)
"""
    job = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(LIBRARY.parent)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "begun").exists():
        assert job.poll() is None
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(job.pid, signal.SIGINT)
    assert job.communicate(timeout=120)[0].split() == ["130", "130"] and not (tmp_path / "late").exists()
