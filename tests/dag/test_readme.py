"""The commands that README.md and docs/ show are commands: dry runs, arguments, targets of the Makefile, files."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.dag.conftest import clone
from tests.dag.test_dry_runs import ONE_SHARD

from zerodr.__main__ import app
from zerodr.checkout import split_config
from zerodr.config.files import read_yaml
from zerodr.config.load import load_bench
from zerodr.operations.sharing import read_tasks
from zerodr.operations.stand_ins.hub import Hub, Repository

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "config/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILLED = {
    "snakemake ...": "snakemake --profile config/profiles/mini",
    "<method>": "bm25-flat",
    "<collection>": "scifact",
    "<protocol>": "standard",
    "<name>": "train",
}
NEW = ("python", "-m", "zerodr", "new")
ALONE = "targets|show|verify|report|publish|settings|schema|doctor"  # commands that need no argument
STARTS = ("snakemake", "make", "python", "bash")
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")


def shown(pages: list[Path]) -> list[list[str]]:
    """Words of every command in a block or in backticks, each once. Placeholders are filled in, comments left out."""
    texts = []
    for page in pages:
        text = page.read_text()
        texts += [line for _, block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        texts += CODE.findall(BLOCK.sub("", text))
    commands = []
    for text in texts:
        text = re.sub(r"^([A-Z_]+=\S* +)+", "", text)
        text = re.sub(rf"^zerodr (?=\w+ [^-\s]|(?:{ALONE})\b)", "python -m zerodr ", text)
        if not text.startswith(tuple(f"{start} " for start in STARTS)):
            continue
        for placeholder, value in FILLED.items():
            text = text.replace(placeholder, value)
        words = shlex.split(text, comments=True)
        if words not in commands:
            commands.append(words)
    return commands


def commands(*start: str, pages: list[Path] = PAGES) -> list[list[str]]:
    """Commands that pages show and that start so."""
    return [words for words in shown(pages) if tuple(words[: len(start)]) == start]


def split_targets(words: list[str]) -> tuple[list[str], list[str]]:
    """Targets of a snakemake command, and its options with their values. `--config` takes all words that follow it."""
    targets, options = [], []
    waiting = 0.0
    for word in words:
        if word.startswith("-"):
            waiting = {"-n": 0, "--config": float("inf"), "--set-resources": float("inf")}.get(word, 1)
            options.append(word)
        elif waiting > 0:
            options.append(word)
            waiting -= 1
        else:
            targets.append(word)
    return targets, [option for option in options if option != "-n"]


def writes(page: Path) -> bool:
    """Test whether a page tells its reader to write files. Its commands are tried in a clone with these files alone."""
    return "```yaml" in page.read_text() or bool(commands(*NEW, pages=[page]))


OTHERS = tuple(page for page in PAGES if not writes(page))
GROUPS = [(page,) for page in PAGES if writes(page)] + [OTHERS]
Options = tuple[str, ...]
SLURM, TABLE = ("--profile", "slurm"), "results/beir/all.tsv"  # test_dry_runs.py plans it and counts its jobs


def plans() -> dict[tuple[int, Options], list[str]]:
    """Targets by group of pages and options: what one dry run can plan together. A page without files of its own
    comes first: a target that it shows with these options is planned there alone."""
    together: dict[tuple[int, Options], list[str]] = {}
    for number in sorted(range(len(GROUPS)), key=lambda number: GROUPS[number] is not OTHERS):
        for words in commands("snakemake", pages=list(GROUPS[number])):
            targets, found = split_targets(words[1:])
            options = tuple(found)
            before = together.get((GROUPS.index(OTHERS), options), [])
            if targets and set(targets) <= {*before, *([TABLE] if options == SLURM else [])}:
                continue
            together.setdefault((number, options), []).extend(targets)
    return together


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Clones with what a group of pages tells to write, beside documents, judgements and numbers of the reader's."""
    return cache(lambda number: follow(GROUPS[number], tmp_path_factory.mktemp("documented")))


def follow(pages: tuple[Path, ...], target: Path) -> Path:
    """Do what pages tell, in a clone: `zerodr new`, then files that they show."""
    folder = clone(ROOT, target)
    (folder / "path/to/folder").mkdir(parents=True)
    notes = folder / "path/to/notes"
    (notes / "qrels").mkdir(parents=True)
    (notes / "corpus.jsonl").write_text('{"_id": "1", "title": "", "text": "a note"}\n')
    (folder / "path/to/scifact.trec").write_text("q Q0 1 1 1.0 t\n")
    (folder / "groups.tsv").write_text("query\tgroup\nq\tlaw\n")
    (folder / "scores.parquet").touch()  # of negatives: a plan looks at its name
    (folder / "resources/negatives").mkdir(parents=True)
    for name in ("msmarco-hard-negatives.jsonl.gz", "msmarco-scores.parquet"):
        (folder / "resources/negatives" / name).touch()
    (folder / "path/to/scores.tsv").write_text("method\tcollection\tndcg_at_10\nours\tscifact\t0.7\n")
    (notes / "queries.jsonl").write_text('{"_id": "q", "text": "a note?"}\n')
    (notes / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    with zipfile.ZipFile(folder / "path/to/notes.zip", "w") as archive:
        for path in sorted(path for path in notes.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(notes))
    cached = folder / "ir_datasets/beir/scifact/source.zip"
    cached.parent.mkdir(parents=True)
    with zipfile.ZipFile(cached, "w") as archive:
        for path in sorted(path for path in notes.rglob("*") if path.is_file()):
            archive.write(path, "scifact" / path.relative_to(notes))
    environment = {name: value for name, value in os.environ.items() if name != "ZERODR_MY" and "OFFLINE" not in name}
    environment |= {
        "HF_HOME": str(folder / "hub"),
        "IR_DATASETS_HOME": str(folder / "ir_datasets"),
        "NO_PROXY": "127.0.0.1",
    }
    with Hub(data_sets(notes)) as hub:
        for words in commands(*NEW, pages=list(pages)):
            done = subprocess.run(
                [sys.executable, *words[1:]],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                env=environment | {"HF_ENDPOINT": hub.address},
            )
            assert done.returncode == 0 and "next: snakemake" in done.stdout, f"{words}\n{done.stderr}"
    for title, text in [block for page in pages for block in files_of(page)[0]]:
        path = folder / title
        path.parent.mkdir(exist_ok=True)
        path.write_text((path.read_text() if "variants" in yaml.safe_load(text) and path.exists() else "") + text)
    return folder


def data_sets(folder: Path) -> dict[str, Repository]:
    """Data sets of a hub on loopback: the reader's own, and those of MTEB's tasks at its commits."""
    tasks = {f"datasets/{task.dataset}": [task.revision] for task in read_tasks().values()}
    return {name: Repository(folder, commits=list(commits)) for name, commits in tasks.items()} | {
        "datasets/organisation/memos": Repository(folder)
    }


def files_of(page: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Blocks of YAML: files with their names (variants with that of the recipe above), and pieces of shipped files."""
    files, pieces, last = [], [], ""
    for info, text in BLOCK.findall(page.read_text()):
        if not info.startswith("yaml"):
            continue
        titles, keys = re.findall(r'title="(config/my/.*)"', info), yaml.safe_load(text)
        if titles or "kind" in keys or "like" in keys:
            last = titles[0] if titles else f"config/my/example{len(files)}.yaml"
            files.append((last, text))
        elif "variants" in keys:
            files.append((last, text))
        else:
            pieces.append(text)
    return files, pieces


def holds(whole: Any, piece: Any) -> bool:
    """Test whether settings have each value of some of them."""
    if isinstance(piece, dict):
        return isinstance(whole, dict) and all(key in whole and holds(whole[key], piece[key]) for key in piece)
    if isinstance(piece, list):
        return isinstance(whole, list) and all(any(holds(one, other) for one in whole) for other in piece)
    return whole == piece


PIECES = [(page, text) for page in PAGES for text in files_of(page)[1]]


@pytest.mark.parametrize(("page", "text"), PIECES, ids=[f"{page.stem}{n}" for n, (page, _) in enumerate(PIECES)])
def test_a_piece_of_a_file_is_in_it(documented, page, text):
    keys = yaml.safe_load(text)
    if "objective" in keys and "arguments" in keys["objective"]:  # of a loss that the page had written
        written = documented(GROUPS.index((page,))) / f"config/my/dpr-{keys['objective']['name']}.yaml"
        assert holds(read_yaml(written)["settings"]["chain"]["ep0"], keys)
    elif "objective" in keys or "main" in keys:
        assert text in (ROOT / f"docs/{page.name}").read_text()  # followed by tests/unit/test_docs.py
    elif "archive" in keys:
        rows = read_yaml(ROOT / "config/collections/small.yaml")["collections"]
        assert holds(rows[keys["archive"].removesuffix(".zip")], keys)
    else:
        before = page.read_text().partition(text)[0]
        recipe, _, variant = re.findall(r"[Tt]his is `([^`]+)`", before)[-1].partition("+")
        file = read_yaml(ROOT / f"config/methods/{recipe}.yaml")
        assert holds(file["variants"][variant] if variant else file, keys)


@pytest.mark.parametrize(
    ("number", "options"), plans(), ids=[f"{GROUPS[n][0].stem}-{shlex.join(options)}" for n, options in plans()]
)
def test_snakemake_commands_can_be_planned(snakemake, documented, number, options):
    targets = plans()[number, options]
    fewer = [ONE_SHARD] if "rehearse=true" in options else []  # test_dry_runs.py plans that table's shards
    done = snakemake("-n", *targets, *options, *fewer, "--quiet", "rules", cwd=documented(number))
    assert done.returncode == 0, f"{targets} {options}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("number", range(len(GROUPS)), ids=[pages[0].stem for pages in GROUPS])
def test_what_a_page_has_written_is_read(documented, monkeypatch, number):
    folder = documented(number)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ZERODR_MY", raising=False)  # which names a folder that exists
    bench = load_bench(folder)
    for page in GROUPS[number]:
        for title, text in files_of(page)[0]:
            keys, name = yaml.safe_load(text), Path(title).stem
            recipes = {name} if "kind" in keys or "like" in keys else set()
            recipes |= {f"{name}+{variant}" for variant in keys.get("variants", {})}
            assert recipes <= set(bench.methods) and set(keys.get("collections", {})) <= set(bench.collections)


@pytest.mark.parametrize("words", [w for w in commands("python", "-m", "zerodr") if w[3:]], ids=shlex.join)
def test_commands_of_the_library_take_their_arguments(words):
    name, arguments = words[3], words[4:]
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, split_config(arguments)).close()


@pytest.mark.parametrize("words", commands("make"), ids=shlex.join)
def test_targets_of_the_makefile_exist(root, words):
    done = subprocess.run([words[0], "-n", *words[1:]], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_scripts_and_modules_that_are_started_exist(root):
    for words in [*commands("python"), *commands("bash")]:
        if words[1] == "-m":
            assert importlib.util.find_spec(words[2]), words
        else:
            assert (root / words[1]).is_file(), words


def test_make_help_lists_every_target(root):
    targets = set(re.findall(r"(?m)^([a-z-]+):", (root / "Makefile").read_text()))
    listed = subprocess.run(["make", "-s", "help"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in listed.splitlines()} == targets


def test_the_gpu_check_names_tests_that_exist(root):
    named = re.search(r"addprefix (\S+?),\$\(addsuffix (\S+?),([\w ]+)\)\)", (root / "Makefile").read_text())
    assert named is not None
    files = [root / f"{named[1]}{name}{named[2]}" for name in named[3].split()]
    assert len(files) > 5 and [file.name for file in files if not file.is_file()] == []


def test_examples_of_every_kind_are_found():
    assert len(commands("snakemake")) >= 40
    assert len(commands("python", "-m", "zerodr")) >= 10
    assert ["make", "mini"] in commands("make")
    titles = {title for page in PAGES for title, _ in files_of(page)[0]}
    assert titles >= {"config/my/config.yaml", "config/my/my-dpr.yaml", "config/my/claims.yaml"} and len(PIECES) >= 5
