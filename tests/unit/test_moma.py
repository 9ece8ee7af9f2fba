"""Retriever of MoMA from Python: it gives what the stages give, memories are plugged in and out, it is exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moma_helpers import DOCUMENTS, K, run, sentence, written
from retriever_helpers import EMBEDDING, JOIN, embed, here, made

from zerodr.artifacts.rankings import read_rankings
from zerodr.collections.access import MemoryTexts, corpus_ids
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError, ModelError
from zerodr.papers.moma import retriever
from zerodr.papers.moma.augmented_encoder import FUSION
from zerodr.papers.moma.folders import AUGMENTER
from zerodr.papers.moma.retriever import MoMA

__all__ = ["here", "made"]


def asked() -> list[str]:
    return pq.read_table("source/queries.parquet")["text"].to_pylist()


def test_python_search_gives_what_the_stages_give(here):
    model = MoMA.load(here / "model").plug(here / "exported-source").plug(here / "exported-other")
    rankings = read_rankings(here / "rankings.parquet")
    assert sum(model.augment(asked()), []) == rankings.documents.to_pylist()
    np.testing.assert_allclose(model.encode_queries(asked()), np.load("fused.npy"), atol=1e-5)
    texts = pq.read_table("source/corpus.parquet")["text"].to_pylist()
    assert model.encode_documents(texts).shape == (DOCUMENTS, 32)


def test_plugging_out_is_never_having_plugged_in(here, caplog):
    model = MoMA.load(here / "model").plug(here / "exported-source").plug(here / "exported-other")
    before = sorted((path, path.stat().st_mtime_ns) for path in here.rglob("exported-*/*"))
    only = MoMA.load(here / "model").plug(here / "exported-other")
    np.testing.assert_array_equal(model.unplug("source").encode_queries(asked()[:4]), only.encode_queries(asked()[:4]))
    bare = only.unplug("other").encode_queries(asked()[:4])
    assert "no memory is plugged in" in caplog.text
    plain = MoMA._plain(load_encoder(here / "model", device="cpu"), asked()[:4], "query")
    np.testing.assert_allclose(bare, plain, atol=1e-5)
    assert before == sorted((path, path.stat().st_mtime_ns) for path in here.rglob("exported-*/*"))


def test_a_query_is_not_its_own_augmentation(here):
    model = MoMA.load(here / "model").plug(here / "exported-source")
    text = pq.read_table("source/corpus.parquet")["text"][4].as_py()
    (found,) = model.augment([text.upper()], DOCUMENTS)
    assert len(found) == DOCUMENTS - 1 and "source:d4" not in found


def test_the_query_itself_is_told_by_the_text_the_title_and_the_id_as_the_stages_do(here):
    random = np.random.default_rng(5)
    titles, texts = ["Soil", "", "Rock", "Soil"] * 2, [f"{sentence(random)} {row}" for row in range(7)]
    texts.append(texts[0])
    asked = {"q0": texts[0].upper(), "q1": f"rock.  {texts[2]}", "d3": "no text of a document", "q3": "Soil"}
    written("titled", titles, texts, asked)
    embed("titled")
    run(
        "papers.moma.embed_memory:embed_memory_queries",
        {"collection": "titled/manifest.json", "model": "model/manifest.json"},
        {"embeddings": "titled-queries.npy"},
        EMBEDDING | {"collection": "titled", "split": "train"},
    )
    run(
        "papers.moma.search_memory:search_memory",
        {
            "queries": "titled-queries.npy",
            "corpus": "titled.npy",
            "collection": "titled/manifest.json",
            "memory": "titled/manifest.json",
        },
        {"hits": "titled.parquet"},
        {
            "collection": "titled",
            "split": "train",
            "memory": "titled",
            "depth": 8,
            "title_join": JOIN,
            "exclude_self": True,
            "shard": 0,
            "shards": 1,
        },
    )
    run(
        "papers.moma.search_memory:merge_memories",
        {"hits": ["titled.parquet"], "collection": "titled/manifest.json", "memories": ["titled/manifest.json"]},
        {"rankings": "titled-rankings.parquet"},
        {"collection": "titled", "split": "train", "memories": ["titled"], "depth": 8, "needed": 1},
    )
    rankings = read_rankings(here / "titled-rankings.parquet")
    named = pq.read_table("titled/queries.parquet").to_pydict()
    model = MoMA.load(here / "model").plug(here / "exported-titled")
    found = model.augment(named["text"], 8, [f"titled:{key}" for key in named["id"]])
    staged = np.split(rankings.documents.to_numpy(False), np.cumsum(rankings.sizes)[:-1])
    assert [list(own) for own in staged] == found
    left = [sorted({f"titled:d{row}" for row in range(8)} - {*own}) for own in found]
    assert dict(zip(named["id"], left, strict=True)) == {
        "q0": ["titled:d0", "titled:d7"],
        "q1": ["titled:d2"],
        "d3": ["titled:d3"],
        "q3": [],
    }
    assert pq.read_table(here / "exported-titled/documents.parquet")["bare"].null_count == 2
    assert model.memories["titled"].facts.copies == 2
    model.main.fusion = model.main.fusion.model_copy(update={"exclude_self": False})
    everything = {f"titled:d{row}" for row in range(8)}
    assert [{*own} for own in model.augment(named["text"], 8)] == [everything] * 4
    assert [len(own) for own in model.augment(named["text"], 8, ["titled:d1"] * 4)] == [7] * 4


def test_documents_of_titles_alone_do_not_deepen_the_search(here):
    written("titles", [f"Title {row}" for row in range(6)], [""] * 6, {"q0": "title 0"})
    embed("titles")
    model = MoMA.load(here / "model").plug(here / "exported-titles")
    assert model.memories["titles"].facts.copies == 1
    left = {f"titles:d{row}" for row in range(1, 6)}
    assert {*model.augment(["title 0."], 6)[0]} == left and len(model.augment([" "], 6)[0]) == 6


def test_a_memory_that_holds_the_same_corpus_is_refused(here):
    shutil.copytree("other", "twin")
    embed("twin")
    with pytest.raises(ConfigError, match="memories other and twin: hold the same corpus"):
        MoMA.load(here / "model").plug(here / "exported-other").plug(here / "exported-twin")


def test_fewer_documents_than_a_query_is_augmented_with_are_refused(here):
    model = MoMA.load(here / "model").plug(here / "exported-other")
    with pytest.raises(CollectionError, match=f"mixture of other: holds {DOCUMENTS} .* least {DOCUMENTS + 1}"):
        model.encode_queries(["river"], documents=DOCUMENTS + 1)
    assert model.encode_queries(["river"], documents=DOCUMENTS).shape == (1, 32)
    with pytest.raises(CollectionError, match="holds 0 documents"):
        model.unplug("other").augment(["river"])


def test_wrong_calls_are_answered(here):
    model = MoMA.load(here / "model").plug(here / "exported-source")
    for call in (model.encode_queries, model.augment, model.encode_documents):
        with pytest.raises(ConfigError, match="is one text, expected a list of them"):
            call("what is soil?")
        with pytest.raises(ConfigError, match="is a dict, expected a list of them"):
            call({"q1": "what is soil?"})
        with pytest.raises(ConfigError, match="holds None, expected texts"):
            call(["soil", None])
    with pytest.raises(ConfigError, match="documents=-1: expected a number from 0"):
        model.encode_queries(["soil"], documents=-1)
    with pytest.raises(ConfigError, match="query_ids: are 1, expected one for each of 2 queries"):
        model.encode_queries(["soil", "rock"], query_ids=["source:d1"])
    assert model.encode_queries([]).shape == (0, 32)


def test_memories_of_another_augmenter_are_refused(here):
    other = MoMA.load(here / "main")
    with pytest.raises(ModelError, match="has vectors of a model with fingerprint"):
        other.plug(here / "exported-other")
    model = MoMA.load(here / "model").plug(here / "exported-other")
    with pytest.raises(ConfigError, match="memory other: is plugged in already"):
        model.plug(here / "exported-other")
    with pytest.raises(ConfigError, match="memory source: is not plugged in"):
        model.unplug("source")


def test_one_query_gets_what_it_gets_among_others_without_their_search(here, monkeypatch):
    model = MoMA.load(here / "model").plug(here / "exported-source").plug(here / "exported-other")
    asked = ["copper engine", "a garden in winter", "market"]
    together, texts = model.augment(asked), dict[str, str]()
    for name in ("source", "other"):
        keys = [f"{name}:{one}" for one in corpus_ids(Path(name)).to_pylist()]
        read = MemoryTexts({name: Path(name)}, {name: JOIN}).texts(pa.array(keys), "")
        texts |= dict(zip(keys, read.to_pylist(), strict=True))
    monkeypatch.setattr(retriever, "search_exact", None)
    monkeypatch.setattr(retriever.pc, "index_in", None)
    assert [model.augment([one])[0] for one in asked] == together
    assert model.texts_of(list(texts)) == list(texts.values())
    assert model.texts_of(["source:d", "source:zz", "nowhere:d1"]) == ["", "", ""]


def test_folders_that_are_no_whole_memory_are_refused(here):
    model = MoMA.load(here / "model")
    with pytest.raises(ModelError, match="other: is no exported memory, .*: make one: snakemake ... results/exported"):
        model.plug("other")
    vectors = np.load(here / "exported-other/vectors.npy")
    changes = {
        f"holds {DOCUMENTS} documents and {DOCUMENTS - 5} vectors of 32 numbers, expected {DOCUMENTS} of both": (
            lambda folder: np.save(folder / "vectors.npy", vectors[:-5])
        ),
        "is no whole memory .*No such file": lambda folder: (folder / "vectors.npy").unlink(),
        "is no whole memory .*Parquet": lambda folder: (folder / "documents.parquet").write_bytes(b"half"),
    }
    for number, (telling, change) in enumerate(changes.items()):
        folder = Path(shutil.copytree(here / "exported-other", here / f"damaged-{number}"))
        change(folder)
        with pytest.raises(ArtifactError, match=telling):
            model.plug(folder)
    assert not model.memories


def test_exported_with_its_augmenter(here):
    from zerodr.encoders.publishing.export import copy_plain_model
    from zerodr.papers.moma.folders import copy_augmenter

    copy_plain_model(here / "model", here / "plain")
    assert (here / "plain" / FUSION).exists() and not (here / "plain" / AUGMENTER).exists()
    copy_augmenter(here / "model", here / "plain")
    exported = MoMA.load(str(here / "plain")).plug(str(here / "exported-other"))
    assert exported.main.fusion.documents == K and exported.main.fusion.exclude_self


@pytest.mark.parametrize("exclude", [True, False])
def test_exported_as_targets_are_ranked(here, exclude):
    place, memories = f"exported-{exclude}", ["target", "other"]
    run(
        "encoders.publishing.export:export_model",
        {"model": "model/manifest.json"},
        {"exported": f"{place}/manifest.json"},
        {
            "model": "mine",
            "scope": "shared",
            "augmentation": {"memories": memories, "documents": K - 1, "document_tokens": 12, "exclude_self": exclude},
        },
    )
    used = {"documents": K - 1, "document_tokens": 12}
    assert json.loads((here / place / FUSION).read_text()) == used | ({} if exclude else {"exclude_self": False})
    model = MoMA.load(place).plug("exported-other").plug("exported-source")
    text = pq.read_table("source/corpus.parquet")["text"][4].as_py()
    (found,) = model.augment([text])
    assert len(found) == K - 1 and ("source:d4" in model.augment([text], DOCUMENTS * 2 - 1)[0]) is not exclude
    card = (here / place / "README.md").read_text()
    for line in (
        f"the {K - 1} documents of memories",
        "augmented with `target`, `other`, where `target` is",
        'model = MoMA.load("path/to/this/folder")',
        'model.plug("path/to/exported-memories/other")',
        "results/exported-memories/mine/shared/<memory>/manifest.json",
        "**does\nnot augment",
    ):
        assert line in card, line
    assert 'exported-memories/name-of-your-collection")' in card and "exported-memories/target" not in card
    assert card.index("MoMA.load") < card.index("## Use with sentence-transformers: queries without memories")
