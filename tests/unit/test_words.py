"""Names and paths reach the plan as typed: by `zerodr adapt`, by words of `--config`, through the shell of a job."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snakemake.cli import parse_config

from zerodr.config.load import load_bench, read_config
from zerodr.config.user_folders import split_folders
from zerodr.config.words import is_unchanged, parse_texts, parse_words
from zerodr.errors import ConfigError
from zerodr.operations import adapt as module
from zerodr.operations.adapt import AdaptRequest, prepare, run
from zerodr.plan import Plan

ROOT = Path(__file__).parents[2]
ODD = [
    "notes #2",
    "no",
    "on",
    "2024_05",
    "007",
    "1e5",
    "a: b",
    "{x}",
    "{",
    "%2F",
    "-x",
    "it's",
    'a "b"',
    "ü ñ 字",
    "[a]",
    "~",
]
NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=20)


@settings(max_examples=200, deadline=None)
@given(NAMES | st.sampled_from(ODD))
def test_a_text_stays_as_it_was_typed(text):
    plain = text[:1] not in "['\"" and text not in ("", "~", "null", "Null", "NULL")
    if plain:
        assert parse_words([f"byo_name={text}"]) == {"byo_name": text}
    quoted = json.dumps(text, ensure_ascii=True) if text.isprintable() and text.isascii() else None
    if quoted:
        assert parse_words([f"byo_name={quoted}"]) == {"byo_name": text}


@settings(max_examples=60, deadline=None)
@given(NAMES | st.sampled_from(ODD))
def test_a_word_reaches_a_job_or_is_refused(text):
    word = f"byo_name={text}"
    if is_unchanged(word):
        shown = subprocess.run(["sh", "-c", f"printf '%s' {word!r}"], capture_output=True, check=True).stdout
        assert shown.decode() == word
    else:
        with pytest.raises(ConfigError, match="does not reach jobs as it is.*--configfile FILE"):
            parse_texts([word])


def test_texts_that_snakemake_reads_as_numbers_are_taken_back():
    words = ["collections=2024_05", "byo_language=no", "byo_name=007", "byo=notes #2", "seed=14"]
    snakemakes = parse_config(words)
    assert snakemakes["collections"] == 202405 and snakemakes["byo"] == "notes"
    texts = {"collections": "2024_05", "byo_language": "no", "byo_name": "007", "byo": "notes #2"}
    assert parse_texts(words) == texts and snakemakes | parse_texts(words) == {**texts, "seed": 14}


def test_lists_and_quotes_of_texts_are_read():
    assert parse_words(["methods=[a, 2024_05]", "collections='no'", "byo=null", "mirrors=a,b"]) == {
        "methods": ["a", "2024_05"],
        "collections": "no",
        "byo": None,
        "mirrors": "a,b",
    }


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "gpus_here", lambda: 0)
    monkeypatch.chdir(tmp_path)
    for name in [*ODD, "notes", "a", "b ", "c,d"]:
        Path(name).mkdir()
        Path(name, "corpus.jsonl").write_text('{"_id": "a", "text": "a text"}\n', encoding="utf-8")


@pytest.mark.parametrize("name", [*(name for name in ODD if "{" not in name), "b ", "c,d"])
def test_adapting_hands_a_folder_on_unchanged(folders, monkeypatch, name):
    def plan_of(values):
        return Plan(load_bench(ROOT, read_config(ROOT / "config") | values))

    values, collection = prepare(AdaptRequest(name, config={"byo_name": "kept", "byo_language": "no"}), plan_of)
    seen = []
    Path("snake.py").write_text("import pathlib, sys; pathlib.Path('seen').write_text(sys.argv[-1])", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", ".")
    assert run(["snake"], values, seen.append) == 0
    written = json.loads(Path(Path("seen").read_text(encoding="utf-8")).read_text(encoding="utf-8"))
    assert written == values and written["byo"] == [name] and written["byo_language"] == "no"
    assert plan_of(written).bench.folders[collection].path == name


@settings(max_examples=100, deadline=None)
@given(st.lists(NAMES.filter(lambda n: "," not in n and n.strip() == n and n not in (".", "..") and n[0] != "~")))
def test_folders_that_are_not_there_keep_their_names(names):
    assert split_folders(names) == tuple(dict.fromkeys(str(Path(name)) for name in names))


def test_yaml_that_reads_a_text_otherwise_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match="byo_language.*found False: put it in quotes, so that YAML reads text"):
        load_bench(ROOT, read_config(ROOT / "config") | {"byo_language": False})


def test_braces_in_a_path_are_refused_and_a_link_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("{collection}").mkdir()
    Path("{collection}/corpus.jsonl").write_text('{"_id": "a", "text": "a"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="has braces in its path, which Snakemake takes for wildcards"):
        load_bench(ROOT, read_config(ROOT / "config") | {"byo": ["{collection}"], "byo_name": "mine"})
    Path("notes").mkdir()
    Path("notes/{a}.txt").write_text("Pumps move fluid.", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"notes/\{a\}.txt: has braces .*: rename it$"):
        load_bench(ROOT, read_config(ROOT / "config") | {"byo": ["notes"]})
    Path("link").symlink_to("{collection}")
    bench = load_bench(ROOT, read_config(ROOT / "config") | {"byo": ["link"], "byo_name": "mine"})
    assert bench.folders["mine"].files["corpus"] == ("link/corpus.jsonl",)


@pytest.mark.parametrize(
    ("words", "change"),
    [
        (["--config", "seed=3", "training.steps=9", "scale=mini"], "--set dpr.training.steps=9"),
        (["-C", "dpr.training.steps=9"], "--set dpr.training.steps=9"),
        (["--config=training.steps=9"], "--set dpr.training.steps=9"),
        (["--config", "scale=mini", "-n", "results/a.b=c.tsv"], ""),
        (["results/a.b=c.tsv", "--config", "byo=a.b"], ""),
    ],
)
def test_snakemake_answers_a_key_with_a_dot_by_a_sentence(monkeypatch, words, change):
    """Its own answer is a traceback, before it reads the Snakefile."""
    monkeypatch.chdir(ROOT)
    plugin = importlib.import_module("snakemake_report_plugin_zerodr")
    if not change:
        return plugin.check_words(words)
    with pytest.raises(ValueError, match="must start with a valid identifier"):
        parse_config([words[-1].removeprefix("--config=") if len(words) < 3 else words[2]])
    with pytest.raises(SystemExit, match=change):
        plugin.check_words(words)


def test_snakemake_finds_our_reporter():
    said = subprocess.run(
        [sys.executable, "-m", "snakemake", "--config", "training.steps=9"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "workflow/scripts")},
        capture_output=True,
        text=True,
    )
    assert said.returncode and said.stderr.startswith("ConfigError: --config training.steps=9"), said.stderr
