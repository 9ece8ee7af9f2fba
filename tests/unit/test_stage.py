"""How stages run: spec digests, publication in one step, locks, leftovers, full disks, read-only folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.unit.stage_helpers import FILE, FOLDER, checkout, making, repeat, spec_of  # noqa: F401

from zerodr import run as by_hand
from zerodr.artifacts.record import STATE, artifact_digest, read_record, record_path
from zerodr.artifacts.stage import Stage, forget_published, load_spec, run_spec, temporary_output
from zerodr.errors import ArtifactError, ProtocolError, ZerodrError
from zerodr.plan.rules import RULES, Rule


# ---- specs ---------------------------------------------------------------------------------------------------------
def test_digest_covers_all_but_threads():
    inputs = {"results/in/a.txt": "1"}
    base = spec_of()
    for changed in (
        {"rule": "r"},
        {"version": 2},
        {"wildcards": {"name": "y"}},
        {"seed": 1},
        {"inputs": {"text": "b"}},
        {"outputs": {"out": "b"}},
        {"params": {"times": 3}},
    ):
        assert spec_of(**changed).digest(inputs) != base.digest(inputs)
    assert spec_of(threads=7).digest(inputs) == base.digest(inputs)
    assert base.digest({"results/in/a.txt": "2"}) != base.digest(inputs)


def test_spec_survives_its_file_and_runs_by_hand(caplog, monkeypatch):
    spec = spec_of(rule="finetunee")
    with pytest.raises(ZerodrError, match="finetunee.*unknown.*did you mean finetune"):
        run_spec(spec)
    monkeypatch.setitem(RULES, "write_text", Rule("artifacts.manifest:file_digest", "measure"))
    spec = spec_of(rule="write_text")
    with pytest.raises(TypeError, match="not Stage"):  # the rule's function is the one that runs
        run_spec(spec)
    (path,) = STATE.glob("*/spec.json")
    assert load_spec(path) == spec
    assert by_hand.main([]) == 2
    assert by_hand.main(["nothing.json"]) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rule": 1, "more": 2}'])
def test_other_files_are_no_spec(text):
    Path("spec.json").write_text(text)
    with pytest.raises(ZerodrError, match="is no stage spec"):
        load_spec(Path("spec.json"))


def test_paths_of_inputs():
    stage = Stage(spec_of(inputs={"one": "a/manifest.json", "many": ["b.npy", "c.npy"]}), Path("state"))
    assert stage.path("one") == Path("a")
    assert stage.paths("many") == [Path("b.npy"), Path("c.npy")]
    with pytest.raises(ValueError, match="too many values"):
        stage.path("many")
    assert stage.spec.input_list() == ["b.npy", "c.npy", "a/manifest.json"]


# ---- publication ---------------------------------------------------------------------------------------------------
def test_publishes_artifact_and_record():
    def work(stage: Stage) -> None:
        repeat(stage)
        stage.metric("loss", 0.5, step=3)
        stage.note(backend="plain", device="cpu")

    run_spec(spec_of(), work)
    assert Path(FILE).read_text() == "aa"
    record = read_record(FILE)
    assert record["digest"] == artifact_digest(FILE)
    assert record["spec"] == asdict(spec_of())
    assert record["inputs"][0] | {"digest": ""} == {
        "name": "text",
        "path": "results/in/a.txt",
        "digest": "",
        "record": None,
    }
    assert record["metrics"] == [{"name": "loss", "value": 0.5, "step": 3}]
    assert (record["notes"], record["gpu_hours"], record["bytes"]) == ({"backend": "plain", "device": "cpu"}, 0.0, 2)
    assert making() == []
    assert not list(STATE.glob("*/work"))


def test_record_names_the_records_of_inputs():
    run_spec(spec_of(), repeat)
    later = spec_of(inputs={"text": FILE}, outputs={"out": "results/out/y.txt"})
    run_spec(later, repeat)
    assert read_record("results/out/y.txt")["inputs"][0]["record"] == f"{FILE}.lineage.json"


def test_nothing_is_seen_before_the_end():
    def work(stage: Stage) -> None:
        stage.output("out").write_text("half")
        assert not Path(FILE).exists()
        assert stage.output("out") == temporary_output(FILE)

    run_spec(spec_of(), work)
    assert Path(FILE).read_text() == "half"


@pytest.mark.parametrize("declared", [FILE, FOLDER])
def test_an_error_leaves_nothing_but_the_state(declared):
    def fail(stage: Stage) -> None:
        place = stage.output("out")
        (place / "part" if place.is_dir() else place).write_text("half")
        (stage.state / "progress").write_text("1")
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        run_spec(spec_of(outputs={"out": declared}), fail)
    assert not Path(declared).exists() and read_record(declared) is None
    assert making() == []

    def resume(stage: Stage) -> None:
        assert (stage.state / "progress").read_text() == "1"
        place = stage.output("out")
        (place / "part" if place.is_dir() else place).write_text("whole")

    run_spec(spec_of(outputs={"out": declared}), resume)
    assert Path(declared).exists() and not list(STATE.glob("*/work"))


def test_state_belongs_to_one_spec():
    def leave(stage: Stage) -> None:
        (stage.state / "progress").write_text("1")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_spec(spec_of(), leave)

    def look(stage: Stage) -> None:
        assert not list(stage.state.iterdir())
        repeat(stage)

    run_spec(spec_of(params={"times": 3}), look)


@pytest.mark.parametrize("declared", [FILE, FOLDER])
def test_leftovers_of_a_killed_try_are_removed(declared):
    place = temporary_output(declared)
    place.parent.mkdir(parents=True)
    if declared == FOLDER:
        place.mkdir()
        (place / "old").write_text("old")
    else:
        place.write_text("old")

    def work(stage: Stage) -> None:
        place = stage.output("out")
        assert not (list(place.iterdir()) if declared == FOLDER else place.exists())
        (place / "new" if declared == FOLDER else place).write_text("new")

    run_spec(spec_of(outputs={"out": declared}), work)
    assert making() == []
    assert not (Path(declared).parent / "old").exists()


@pytest.mark.parametrize("declared", [FILE, FOLDER])
def test_an_output_that_was_not_written(declared):
    outputs = {"first": "results/out/first.txt", "out": declared}
    with pytest.raises(ArtifactError, match=rf"make x: output out \({declared}\) was not written"):
        run_spec(spec_of(outputs=outputs), lambda stage: stage.output("first").write_text("1") and None)
    assert not Path("results/out/first.txt").exists()


def test_missing_input():
    with pytest.raises(ArtifactError, match=r"results/in/b\.txt: is missing"):
        run_spec(spec_of(inputs={"text": "results/in/b.txt"}), repeat)


def test_an_input_that_was_changed_after_it_was_made_is_not_used():
    run_spec(spec_of(), repeat)
    later = spec_of(rule="again", inputs={"text": FILE}, outputs={"out": "results/out/later.txt"})
    text = Path(FILE).read_text()
    Path(FILE).write_text("?" * len(text))
    with pytest.raises(ArtifactError, match="has other content than its record holds .* run the target again"):
        run_spec(later, repeat)
    Path(FILE).write_text(text)  # as after a copy: the same bytes, another time
    run_spec(later, repeat)


def test_metric_names_that_mlflow_refuses():
    with pytest.raises(ValueError, match="'ndcg@10' holds '@'"):
        Stage(spec_of(), Path("state")).metric("ndcg@10", 1.0)


# ---- folder artifacts ----------------------------------------------------------------------------------------------
def write_folder(files: dict[str, str]):
    def work(stage: Stage) -> None:
        for name, text in files.items():
            path = stage.output("out") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return work


def test_republished_folder_has_no_files_of_before():
    spec = spec_of(outputs={"out": FOLDER})
    run_spec(spec, write_folder({"a": "1", "deep/b": "2", "other": "3"}))
    folder = Path(FOLDER).parent
    (folder / "statistics.json").write_text("of another rule")
    Path(FOLDER).unlink()  # as Snakemake does before it runs a job again
    run_spec(spec, write_folder({"a": "10", "deep": "a file where a folder was"}))
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.name.startswith(".")}
    assert names == {"a", "deep", "manifest.json", "lineage.json", "statistics.json"}
    assert read_record(FOLDER)["digest"] == artifact_digest(FOLDER)
    assert making() == []


def test_volatile_files_are_listed_without_digest():
    def work(stage: Stage) -> None:
        write_folder({"index.si": str(time.time_ns()), "index.dat": "same"})(stage)
        stage.volatile = ("*.si",)

    digests = set()
    for times in (1, 2):
        run_spec(spec_of(outputs={"out": FOLDER}, params={"times": times}), work)
        digests.add(artifact_digest(FOLDER))
    assert len(digests) == 1


def publish_in_a_job(monkeypatch, spec):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    run_spec(spec, write_folder({"model/a.txt": "a", "b.txt": "b"}))
    Path(FOLDER).unlink()  # as Snakemake does with the outputs of a job that failed


def test_what_a_failed_job_had_published_is_taken_back(monkeypatch, caplog):
    spec = spec_of(outputs={"out": FOLDER})
    publish_in_a_job(monkeypatch, spec)
    before = read_record(FOLDER)
    with caplog.at_level("INFO", "zerodr"):
        run_spec(spec, lambda stage: pytest.fail("made again"))
    assert "taken back" in caplog.text
    assert artifact_digest(FOLDER) == before["digest"] and read_record(FOLDER) == before


@pytest.mark.parametrize("why", ["new run", "other spec", "file gone", "file changed", "no job"])
def test_all_else_is_made_again(monkeypatch, why):
    spec = spec_of(outputs={"out": FOLDER})
    publish_in_a_job(monkeypatch, spec)
    folder = Path(FOLDER).parent
    if why == "new run":
        forget_published()
    elif why == "other spec":
        spec = replace(spec, seed=1)
    elif why == "file gone":
        (folder / "model/a.txt").unlink()
    elif why == "file changed":
        (folder / "b.txt").write_text("c")
    else:
        monkeypatch.delenv("SLURM_JOB_ID")
        run_spec(replace(spec, params={"times": 3}), write_folder({"x.txt": "x"}))
        Path(FOLDER).unlink()
        spec = replace(spec, params={"times": 3})
    calls = []
    run_spec(spec, lambda stage: (calls.append(1), write_folder({"new.txt": "new"})(stage)))
    assert calls and [entry["path"] for entry in json.loads(Path(FOLDER).read_text())["files"]] == ["new.txt"]


# ---- several processes ---------------------------------------------------------------------------------------------
def test_a_second_process_waits_and_finds_it_done(caplog):
    started, calls = threading.Event(), []

    def slow(stage: Stage) -> None:
        calls.append(1)
        started.set()
        time.sleep(0.3)
        repeat(stage)

    first = threading.Thread(target=run_spec, args=(spec_of(), slow))
    first.start()
    started.wait()
    with caplog.at_level("INFO", "zerodr"):
        run_spec(spec_of(), slow)
    first.join()
    assert len(calls) == 1 and f"delete {FILE} to run the stage again" in caplog.text
    assert Path(FILE).read_text() == "aa"


def test_other_settings_for_the_same_output_wait_too():
    """A process that outlived its killed scheduler must not publish the half-written file of its successor."""
    started, order = threading.Event(), []

    def old(stage: Stage) -> None:
        started.set()
        time.sleep(0.3)
        repeat(stage)
        order.append("old")

    def new(stage: Stage) -> None:
        order.append("new")
        repeat(stage)

    first = threading.Thread(target=run_spec, args=(spec_of(), old))
    first.start()
    started.wait()
    run_spec(spec_of(params={"times": 5}), new)
    first.join()
    assert order == ["old", "new"]
    assert Path(FILE).read_text() == "aaaaa"


@pytest.mark.parametrize("damage", ["file", "artifact", "record", "truncated record"])
def test_what_is_not_whole_is_made_again(damage):
    spec = spec_of(outputs={"out": FOLDER})
    run_spec(spec, write_folder({"a": "1"}))
    if damage == "truncated record":
        record_path(FOLDER).write_text("{")
    else:
        {"file": Path(FOLDER).with_name("a"), "artifact": Path(FOLDER), "record": record_path(FOLDER)}[damage].unlink()
    run_spec(spec, write_folder({"a": "2"}))
    assert Path(FOLDER).with_name("a").read_text() == "2"
    assert read_record(FOLDER)["digest"] == artifact_digest(FOLDER)


def test_kill_leaves_no_output_and_no_lock(root):
    program = (
        "import sys, time\n"
        "from zerodr.artifacts.stage import load_spec, run_spec\n"
        "def work(stage):\n"
        "    stage.output('out').write_text('half')\n"
        "    sys.stdout.write('started\\n'); sys.stdout.flush(); time.sleep(60)\n"
        "from pathlib import Path\n"
        "run_spec(load_spec(Path('spec.json')), work)\n"
    )
    Path("spec.json").write_text(json.dumps(asdict(spec_of())))
    environment = os.environ | {"PYTHONPATH": str(root / "workflow/scripts")}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout.readline() == b"started\n"
        child.send_signal(signal.SIGKILL)
    assert not Path(FILE).exists() and making()
    run_spec(spec_of(), repeat)
    assert Path(FILE).read_text() == "aa" and making() == []


@pytest.mark.parametrize("declared", [FILE, FOLDER])
def test_a_stopped_run_leaves_no_record_without_its_artifact(declared):
    def write(stage: Stage) -> None:
        place = stage.output("out")
        (place / "a" if place.is_dir() else place).write_text("whole")

    spec = spec_of(outputs={"out": declared})
    run_spec(spec, write)
    Path(declared).unlink()  # as Snakemake does before it runs a job again

    def stop(stage: Stage) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_spec(spec, stop)
    assert not record_path(declared).exists()


# ---- damaged inputs ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [ValueError("odd bytes"), ProtocolError("x", "odd bytes")])
@pytest.mark.parametrize("declared", [FILE, FOLDER])
def test_an_error_after_damage_names_the_damaged_input(declared, error):
    def write(stage: Stage) -> None:
        place = stage.output("out")
        (place / "a" if place.is_dir() else place).write_text("whole")

    run_spec(spec_of(outputs={"out": declared}), write)
    damaged = Path(declared).with_name("a") if declared == FOLDER else Path(declared)
    state = damaged.stat()
    damaged.write_text("whale")
    os.utime(damaged, ns=(state.st_atime_ns, state.st_mtime_ns))

    def read(stage: Stage) -> None:
        raise error

    later = spec_of(inputs={"text": declared}, outputs={"out": "results/out/y.txt"})
    with pytest.raises(ArtifactError, match=rf"{declared}: .*has other content .*: delete {declared} and run"):
        run_spec(later, read)
    damaged.write_text("whole")
    with pytest.raises(type(error), match="odd bytes"):
        run_spec(later, read)


def test_a_job_runs_the_library_of_its_checkout_in_the_environment_of_another(tmp_path, root):
    (tmp_path / "zerodr").mkdir()
    (tmp_path / "zerodr/__init__.py").write_text("raise SystemExit('the library of another checkout')")
    call = f"import runpy; runpy.run_path({str(root / 'workflow/scripts/run_stage.py')!r}, {{'snakemake': None}})"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", call], env=environment, capture_output=True, text=True, check=False)
    assert "run_rule(snakemake)" in done.stderr and "another checkout" not in done.stderr
