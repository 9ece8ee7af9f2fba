"""Layouts of published models: each is imported with the vectors of sentence-transformers, or refused by name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoder_helpers import import_settings, tiny_bert
from layout_helpers import EQUAL, LATER, PROMPTS, REFUSED, TRANSFORMER, cased, listed, projected, states, weights
from model_helpers import tiny_model

from zerodr.config.training import InitSettings
from zerodr.encoders.folder import statements
from zerodr.encoders.folder.contract import SIDES, EncoderContract
from zerodr.encoders.inference import peer
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.publishing.export import agreement
from zerodr.encoders.publishing.onnx import write_tokenizer
from zerodr.encoders.start.importing import copy_model
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.encoders.start.other import read_start
from zerodr.errors import ModelError

TEXTS = ["", "Upper Case [SEP] and [MASK] within", "some words " * 9, "naïve ÉTUDE 漢", "z " * 90]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_bert(tmp_path_factory.mktemp("models") / "plain")
    listed(folder)
    return folder


@pytest.fixture
def source(plain: Path, tmp_path: Path) -> Path:
    shutil.copytree(plain, tmp_path / "source")
    return tmp_path / "source"


def imported(source: Path, **changes: Any) -> tuple[Path, EncoderContract, list[str]]:
    target = source.parent / "made"
    target.mkdir()
    contract, assumed = copy_model(source, target, import_settings(**{"model": source} | changes), None)
    return target, contract, assumed


def cosines(folder: Path, *sources: Path) -> float:
    """The least cosine of a folder's vectors and those of sentence-transformers from each source."""
    from sentence_transformers import SentenceTransformer

    ours, vectors = load_encoder(folder, device="cpu"), {}
    for side in SIDES:
        tokens = ours.tokenize(TEXTS, ours.contract.prefix(side), ours.contract.tokens(side))
        vectors[side] = ours.encode_batch([tokens[row] for row in range(len(tokens))])
    found = []
    for theirs in (SentenceTransformer(str(source), device="cpu").float() for source in sources):
        for side, left in vectors.items():
            right = getattr(theirs, f"encode_{side}")(TEXTS)
            assert left.shape == right.shape
            found.append((left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1))
    return float(np.min(found))


@pytest.mark.parametrize("layout", EQUAL)
def test_vectors_are_those_of_sentence_transformers(source: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison at import is off, so that the reading itself is tested."""
    monkeypatch.setattr("zerodr.encoders.start.importing.compare_source", lambda *_: [])
    EQUAL[layout](source)
    folder, contract, _ = imported(source)
    assert cosines(folder, source, folder) > 0.99999
    assert contract.similarity == ("dot" if layout == "similarity dot" else "cosine")


@pytest.mark.parametrize("layout", REFUSED)
def test_a_layout_is_refused_by_name(source: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any weights of its transformer are read."""
    change, said = REFUSED[layout]
    change(source)
    monkeypatch.setattr("zerodr.encoders.folder.checkpoint.check_weights", lambda folder: pytest.fail("read"))
    with pytest.raises(ModelError, match=said) as error:
        imported(source)
    assert "\n" not in str(error.value) and str(source) in str(error.value)
    with pytest.raises(ModelError, match=said):
        read_start(str(source), True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (EQUAL["prompts of other names"], "prompts s2p_query, which encode_query"),
        (EQUAL["default_prompt_name"], "prompts web_search and default_prompt_name web_search, which"),
        (states(PROMPTS, prompts={"query": "q: ", "passage": "p: "}), "documents get the folder's prompt passage"),
        (states("1_Pooling/config.json", colour=1), "1_Pooling/config.json states colour, which is not read"),
        (states(TRANSFORMER, **LATER, colour=1), "sentence_bert_config.json states colour"),
        (EQUAL["an unknown key"], "config_sentence_transformers.json states colour"),
        (states("config.json", auto_map={"AutoModel": "m.M"}), r"names code of its own \(m.M\), which is not run"),
        (EQUAL["a special token without a row"], "special tokens have no row.*<image_soft_token>"),
        (states(PROMPTS, prompts={}), "E5 models were trained with 'query: ' before queries and 'passage: ' before"),
        (EQUAL["similarity null"], "does not state its similarity; assumed: cosine"),
    ],
)
def test_what_is_stated_and_not_used_is_listed(source: Path, change: Any, said: str) -> None:
    change(source)
    assumed = imported(source, model="organisation/e5-tiny" if "E5" in said else str(source))[2]
    assert [sentence for sentence in assumed if re.search(said, sentence)]


def test_a_layout_without_anything_odd_lists_nothing(source: Path) -> None:
    states(PROMPTS, similarity_fn_name="cosine", prompts={"query": "q: "}, default_prompt_name=None)(source)
    states(TRANSFORMER, max_seq_length=30, do_lower_case=False)(source)
    _, contract, assumed = imported(source)
    assert assumed == [] and contract.max_tokens == 30


def test_a_difference_that_no_table_knows_is_found_by_vectors(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states(TRANSFORMER, config_kwargs={"num_hidden_layers": 1})(source)
    monkeypatch.setattr(statements, "LOADING", (*statements.LOADING, "num_hidden_layers"))
    with pytest.raises(ModelError, match=r"other vectors here than in sentence-transformers \(cosine 0|-0"):
        imported(source)


def test_a_source_that_sentence_transformers_can_not_load_is_said(source: Path) -> None:
    states(PROMPTS, default_prompt_name="none")(source)
    assert any("not compared with those of the source" in sentence for sentence in imported(source)[2])


def test_a_language_model_is_taken_where_its_method_states_the_pooling(source: Path) -> None:
    (source / "modules.json").unlink()
    states("config.json", architectures=["BertForMaskedLM"])(source)
    assert imported(source, pooling="cls")[1].pooling == "cls"


def test_overrides_change_what_is_compared(source: Path) -> None:
    _, contract, _ = imported(source, query_prefix="q: ", max_tokens=9, normalize=True)
    assert (contract.query_prefix, contract.max_tokens) == ("q: ", 9)
    shutil.rmtree(source.parent / "made")
    assert imported(source, normalize=False)[1].similarity == "dot"


@pytest.mark.parametrize(
    "change",
    [
        states(TRANSFORMER, do_lower_case=True),
        lambda folder: [cased(folder), states(TRANSFORMER, do_lower_case=True)(folder)],
        weights(half=True),
        states(PROMPTS, prompts={"query": "q: ", "document": "d: "}),
    ],
    ids=["lowers", "lowers cased", "bf16", "prompts"],
)
def test_a_start_is_exported_with_equal_vectors(source: Path, change: Any) -> None:
    change(source)
    assert agreement(imported(source)[0]) > 0.99999, "kept"
    settings = InitSettings(init=str(source), pooling="mean", similarity="cosine", query_tokens=16, document_tokens=32)
    model, _ = from_checkpoint(settings, source, None, 0)
    model.save(source.parent / "trained")
    assert agreement(source.parent / "trained") > 0.99999


def test_a_start_keeps_the_length_that_its_folder_states(source: Path) -> None:
    assert read_start(str(source), True).stated_tokens is None
    states(TRANSFORMER, max_seq_length=40)(source)
    assert read_start(str(source), True).stated_tokens == 40
    settings = InitSettings(init=str(source), pooling="mean", query_tokens=16, document_tokens=32, max_tokens=40)
    assert from_checkpoint(settings, source, None, 0)[0].contract.max_tokens == 40
    unset = settings.model_copy(update={"max_tokens": None})
    assert "max_tokens" not in unset.model_dump()
    assert from_checkpoint(unset, source, None, 0)[0].contract.max_tokens == 64


def test_heads_behind_the_pooling_are_kept_where_they_are_asked_for(source: Path) -> None:
    projected(source)
    assert imported(source)[1].dimension == 12 and read_start(str(source), True).head
    settings = InitSettings(init=str(source), pooling="mean", query_tokens=16, document_tokens=32, towers="separate")
    with pytest.raises(ModelError, match=r"has a head \(2_Dense\) that head: none would lose: set head: kept"):
        from_checkpoint(settings, source, None, 0)
    model, _ = from_checkpoint(settings.model_copy(update={"head": "kept"}), source, None, 0)
    model.save(source.parent / "two")
    with pytest.raises(ModelError, match="two: has two towers, and recipes start from one network"):
        read_start(str(source.parent / "two"), True)
    heads = [model.tower(side).projections[0].linear.weight for side in SIDES]
    assert heads[0] is not heads[1] and torch.equal(*heads), "each tower has its own"


def test_a_start_pools_its_own_tokens(tmp_path: Path) -> None:
    tiny_model(tmp_path, "t5", pooling="decoder_first").save(tmp_path / "t5")
    with pytest.raises(ModelError, match="--start .*t5: takes vectors from T5's decoder.*choose another model"):
        read_start(str(tmp_path / "t5"), True)


def test_the_peer_computes_in_float32(source: Path) -> None:
    weights(half=True)(source)
    assert {weight.dtype for weight in peer.load_peer(source).parameters()} == {torch.float32}


def test_weights_that_hold_more_than_the_configuration_states(source: Path) -> None:
    states("config.json", num_hidden_layers=1)(source)
    _, _, assumed = imported(source)
    assert "config.json states 1 layers, the weights hold 2; the last ones are not read" in assumed


def test_whole_numbers_without_their_scale_are_no_weights(source: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = source / "model.safetensors"
    save_file({name: (10 * weight).to(torch.int8) for name, weight in load_file(path).items()}, path)
    with pytest.raises(ModelError, match=r"is quantised \(torch.int8\), and its scale is not read"):
        imported(source)


def test_the_tokenizer_next_to_an_onnx_graph_lowers_and_cuts_as_the_model_does(source: Path) -> None:
    """Its file says otherwise here, as all-MiniLM-L6-v2's does: 128 tokens, where the model reads 256."""
    from tokenizers import Tokenizer

    cased(source)
    states(TRANSFORMER, do_lower_case=True, max_seq_length=20)(source)
    padding = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    truncation = {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    states("tokenizer.json", truncation=truncation, padding=padding)(source)
    folder, contract, _ = imported(source)
    target = source.parent / "onnx"
    target.mkdir()
    write_tokenizer(folder, contract, target)
    alone, ours = (
        Tokenizer.from_file(str(target / "tokenizer.json")),
        load_encoder(folder, device="cpu").tokenize(TEXTS),
    )
    assert [alone.encode(text).ids for text in TEXTS] == [ours[row].tolist() for row in range(len(TEXTS))]
