"""Encoders that read a query and its documents as one text: vectors, lengths, training, search from Python, plan."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from model_helpers import tiny_collection, tiny_settings
from moma_helpers import DOCUMENTS, K, lay_out, measure, run, train_main
from retriever_helpers import EMBEDDING, JOIN, NAMES
from tests.unit.memory_plan_helpers import plan

from zerodr.artifacts.rankings import read_rankings
from zerodr.collections.access import MemoryTexts, split_queries
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.start.initial import from_scratch
from zerodr.errors import ModelError
from zerodr.lookup.sources import DENSE, Source
from zerodr.papers.moma.augmented_encoder import FusionContract, Grounded
from zerodr.papers.moma.folders import write_fusion
from zerodr.papers.moma.joined_encoder import JoinedEncoder, JoinedVectors
from zerodr.papers.moma.live_queries import AugmentedQueries
from zerodr.papers.moma.retriever import MoMA
from zerodr.papers.moma.settings import Augmentation
from zerodr.plan.dense import query_embeddings
from zerodr.plan.reporting import remark_of

TEXTS = {"a": "copper engine", "b": "a garden in winter with candles", "c": "market"}
LONGEST = 512


@pytest.fixture(scope="module", params=["bert", "roberta"])
def folder(request, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp(request.param)
    settings = tiny_settings(request.param, pooling="cls")
    from_scratch(settings, tiny_collection(made / "texts"), 7)[0].save(made / "model")
    return made / "model"


@pytest.fixture
def model(folder) -> JoinedEncoder:
    return JoinedEncoder.load(folder).augment_with(FusionContract(documents=3, document_tokens=40))


def ids(model: JoinedEncoder, query: str, keys: str) -> list[int]:
    """The text as its specification says: [CLS] query [SEP] document [SEP] ..."""
    tokenizer = model.tokenizer
    inner = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in [query, *(TEXTS[key] for key in keys)]]
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    return [first, *(token for tokens in inner for token in [*tokens, last])]


def test_a_query_and_its_documents_are_one_text(model, folder):
    asked, given = ["silver market", "winter", "paper"], ["abc", "", "b"]
    made = JoinedVectors(model).vectors(asked, given, lambda keys: [TEXTS[key] for key in keys])
    for query, keys, vector in zip(asked, given, made, strict=True):
        with torch.no_grad():
            whole = BiEncoder.load(folder).encode(BiEncoder.pad(model, [ids(model, query, keys)]), "query")
        np.testing.assert_allclose(vector, whole[0].numpy(), atol=1e-6)
    one_by_one = JoinedVectors(model, 1).vectors(asked, given, lambda keys: [TEXTS[key] for key in keys])
    np.testing.assert_allclose(one_by_one, made, atol=1e-6)
    turned = JoinedVectors(model).vectors(asked[:1], ["cba"], lambda keys: [TEXTS[key] for key in keys])
    assert np.abs(turned - made[0]).max() > 1e-4, "positions count"


def test_without_a_token_that_begins_texts_none_is_left_out(tmp_path):
    """A T5's texts have a token at their end alone: a document that begins as the query does stays whole."""
    from_scratch(tiny_settings("t5", pooling="mean"), tiny_collection(tmp_path / "texts"), 7)[0].save(tmp_path / "t5")
    model = JoinedEncoder.load(tmp_path / "t5").augment_with(FusionContract(documents=1, document_tokens=40))
    asked, given = model.tokenize(["copper market"], "query")[0], model.tokenize_augmentations(["copper engine"])
    padded = model.pad([Grounded(asked, given)])["input_ids"][0].tolist()
    assert asked[0] == given[0][0] and padded == [*asked, *given[0]]


def test_a_text_that_is_longer_than_the_network_reads_is_refused(model):
    query = model.contract.tokens("query")
    fits = (LONGEST - query) // 4 + 1
    row = Grounded(list(range(query)), [list(range(fits))] * 4)
    assert (
        model.augment_with(FusionContract(documents=4, document_tokens=fits)).pad([row])["input_ids"].shape[1]
        <= LONGEST
    )
    telling = f"reads {LONGEST} tokens, a query of {query} with 4 documents .*: set document_tokens to at most {fits}"
    with pytest.raises(ModelError, match=telling):
        model.augment_with(FusionContract(documents=4, document_tokens=fits + 1))


def test_a_longer_query_of_a_protocol_is_refused_where_its_documents_do_not_fit_behind_it(model):
    document = model.tokenize_augmentations(["copper engine " * 20])[0]
    fits = LONGEST - 3 * (len(document) - 1)
    rows = [Grounded(list(range(length)), [document] * 3) for length in (fits, fits + 1)]
    rows = [Grounded([document[0], *row.query[1:]], row.documents) for row in rows]
    assert model.pad(rows[:1])["input_ids"].shape == (1, LONGEST)
    with pytest.raises(ModelError, match=f"reads {LONGEST} tokens, a query with its documents has {LONGEST + 1}: take"):
        model.pad(rows)


def test_a_stage_trains_it_and_a_folder_keeps_what_it_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay_out("bert", "mean")
    trained = JoinedEncoder.load(train_main())
    assert trained.fusion == FusionContract(documents=K, document_tokens=16)
    record = json.loads(Path("main/lineage.json").read_text())
    assert {"dev.ndcg_cut_10", "loss"} <= {metric["name"] for metric in record["metrics"]}
    others = JoinedEncoder.load(train_main("unseen", memory={"exclude_positives": True}))
    assert any(not torch.equal(one, two) for one, two in zip(trained.parameters(), others.parameters(), strict=True))
    with pytest.raises(ModelError, match="has no decoder, whose attention to documents is measured"):
        measure()


def encoded(model: MoMA, query: str, texts: list[str]) -> np.ndarray:
    """The vector of one text, by the model's own network."""
    (asked,) = model.main.tokenize([query], "query")
    row = Grounded(asked, model.main.tokenize_augmentations(texts))
    with torch.no_grad():
        return model.main.encode(model.main.pad([row]), "query")[0].numpy()


def test_search_from_python_gives_the_stages_vectors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay_out("bert", "mean")
    used = Augmentation(memories=("source",), documents=K, document_tokens=16, exclude_self=True)
    write_fusion(Path("start"), used)
    with pytest.raises(ModelError, match=f"reads {LONGEST} tokens"):
        write_fusion(Path("start"), used.model_copy(update={"document_tokens": LONGEST}))
    inputs = {"collection": "source/manifest.json", "model": "start/manifest.json"}
    embedding = EMBEDDING | {"collection": "source"}
    shard = embedding | {"shard": 0, "shards": 1, "title_join": JOIN}
    run("retrieval.embed:embed_corpus", inputs, {"embeddings": "source.npy"}, shard)
    run(
        "papers.moma.retriever:export_memory",
        {"collection": "source/manifest.json", "embeddings": "source.npy", "model": "start/manifest.json"},
        {"memory": "exported/manifest.json"},
        {"memory": "source", "title_join": JOIN},
    )
    run(
        "papers.moma.embed_fused:embed_fused_queries",
        inputs | {"rankings": "rankings.parquet", "memories": [f"{name}/manifest.json" for name in NAMES]},
        {"embeddings": "fused.npy"},
        embedding | {"split": "train", "joins": dict.fromkeys(NAMES, " "), "documents": K, "document_limit": 16},
    )
    model = MoMA.load("start").plug("exported")
    first = read_rankings(Path("rankings.parquet")).documents.slice(0, K)
    texts = MemoryTexts({name: Path(name) for name in NAMES}, dict.fromkeys(NAMES, " ")).texts(first, Path())
    (question,) = split_queries(Path("source"), "train")["text"].tolist()[:1]
    np.testing.assert_allclose(np.load("fused.npy")[0], encoded(model, question, texts.to_pylist()), atol=1e-6)
    assert model.encode_documents(["market"] * DOCUMENTS).shape == (DOCUMENTS, 32)
    (read,) = model.augment(["copper engine"])
    (joined,) = model.encode_queries(["copper engine"])
    np.testing.assert_allclose(joined, encoded(model, "copper engine", model.texts_of(read)), atol=1e-6)
    shutil.copytree("exported", "results/exported-memories/m/shared/source")
    params = {"documents": K, "document_limit": 16, "query_tokens": None}
    function, inputs = "papers.moma.embed_fused:embed_fused_queries", {"model": ["start/manifest.json"]}
    shown, fields = AugmentedQueries(
        Source("m", "source/manifest.json", DENSE, ("x.npy",), params, function, inputs)
    ).encode("copper engine", {})
    np.testing.assert_allclose(shown, joined, atol=1e-6)
    assert [entry["id"] for entry in fields["read"]] == read and not fields["notice"]
    assert all("attention" not in entry for entry in fields["read"])
    (bare,) = model.unplug("source").encode_queries(["copper engine"])
    (plain,) = MoMA._plain(load_encoder(Path("start"), device="cpu"), ["copper engine"], "query")
    np.testing.assert_allclose(bare, plain, atol=1e-5)
    assert np.abs(bare - joined).max() > 1e-4


def test_an_unplugged_row_ranks_with_plain_queries_of_the_same_model():
    made = plan()
    rows = ["moma-dpr", "moma-dpr+no-target", "moma-dpr+unplugged"]
    links = [made.chains.ranker(row, "scifact") for row in rows]
    plugged, elsewhere, bare = (
        query_embeddings(made, row, link, "scifact", "standard", "test") for row, link in zip(rows, links, strict=True)
    )
    assert bare == "results/embeddings/moma-dpr@moma1/shared/scifact/standard/queries.test.npy"
    assert len({plugged, elsewhere, bare}) == 3
    assert {made.chains.model(link) for link in links} == {"results/models/moma-dpr/shared/moma1/manifest.json"}
    assert "ranks without" in remark_of(made, rows[2]) and "documents of: squad-v1.1" in remark_of(made, rows[1])
