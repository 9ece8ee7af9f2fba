"""Shipped encoder recipes import folders laid out as the released models are: random weights, the same vectors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.unit.encoder_helpers import UNCHANGED, VOCABULARY, import_spec, save_tokenizer, tiny_bert
from tests.unit.layout_helpers import TRANSFORMER, cased, listed, states

from zerodr.artifacts.stage import run_spec
from zerodr.config.load import load_bench
from zerodr.config.methods import EncoderSettings
from zerodr.config.training import InitSettings
from zerodr.encoders.folder.contract import SIDES, Side, read_contract
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.inference.peer import load_peer
from zerodr.encoders.start.convert import convert_checkpoint
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.errors import ModelError
from zerodr.plan.dense import IMPORTED, PAIR

TEXTS = ["some words", "Upper Case", "z " * 30]
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 64}
SMALL |= {"vocab_size": len(VOCABULARY), "max_position_embeddings": 66, "initializer_range": 0.3}
Reference = Callable[[Side], np.ndarray]


def batch(prefix: str = "") -> dict[str, torch.Tensor]:
    from transformers import AutoTokenizer

    tokenizer, texts = AutoTokenizer.from_pretrained("tokenizer"), [prefix + text for text in TEXTS]
    return tokenizer(texts, padding=True, truncation=True, return_tensors="pt")


def pooled(model: Any, first: bool, prefix: str = "") -> Reference:
    """Vectors by transformers itself: the first token's, or the mean over tokens."""
    inputs = batch(prefix)
    with torch.no_grad():
        hidden = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    vectors = hidden[:, 0] if first else (hidden * mask).sum(1) / mask.sum(1)
    return lambda side: vectors.numpy()


def contriever(folder: Path) -> Reference:
    from transformers import AutoModel

    tiny_bert(folder)
    return pooled(AutoModel.from_pretrained(folder), first=False)


def tct_colbert(folder: Path) -> Reference:
    """A BERT that reads the side's mark before a text."""
    from transformers import AutoModel

    tiny_bert(folder)
    model = AutoModel.from_pretrained(folder)
    sides = {"query": pooled(model, False, "[Q] "), "document": pooled(model, False, "[D] ")}
    return lambda side: sides[side](side)


def condenser_style(folder: Path) -> Reference:
    """A BERT with its prediction layer, as pickled weights, converted."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(**SMALL)).eval()
    model.config.save_pretrained("pickled")
    torch.save(model.state_dict(), "pickled/pytorch_model.bin")
    save_tokenizer(Path("pickled"))
    convert_checkpoint(Path("pickled"), folder)
    return pooled(model.bert, first=True)


def modules(folder: Path, transformer: Any, pooling: str, *more: Any) -> Reference:
    """A folder that sentence-transformers saved, with pickled weights, converted."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    transformer.save_pretrained("transformer")
    save_tokenizer(Path("transformer"))
    model = SentenceTransformer(modules=[Transformer("transformer"), Pooling(32, pooling), *more], device="cpu")
    model.max_seq_length = 40
    model.save("saved")
    Path("saved/config_sentence_transformers.json").unlink()  # of versions after these models, which states cosine
    for path in list(Path("saved").rglob("*.safetensors")):
        torch.save(load_file(path), path.with_name("pytorch_model.bin"))
        path.unlink()
    convert_checkpoint(Path("saved"), folder)
    vectors = model.eval().encode(TEXTS)
    return lambda side: vectors


def tas_b(folder: Path) -> Reference:
    from transformers import DistilBertConfig, DistilBertModel

    sizes = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": len(VOCABULARY)}
    return modules(folder, DistilBertModel(DistilBertConfig(**sizes)), "cls")


def distilbert_v3(folder: Path) -> Reference:
    from sentence_transformers.models import Normalize
    from transformers import DistilBertConfig, DistilBertModel

    sizes = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": len(VOCABULARY)}
    return modules(folder, DistilBertModel(DistilBertConfig(**sizes)), "mean", Normalize())


def gtr(folder: Path) -> Reference:
    from sentence_transformers.models import Dense, Normalize
    from transformers import T5Config, T5EncoderModel

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": len(VOCABULARY)}
    dense = Dense(32, 24, bias=False, activation_function=torch.nn.Identity())
    return modules(folder, T5EncoderModel(T5Config(**sizes)), "mean", dense, Normalize())


def ance(folder: Path) -> Reference:
    from sentence_transformers.models import Dense, LayerNorm
    from transformers import RobertaConfig, RobertaModel

    dense = Dense(32, 32, activation_function=torch.nn.Identity())
    return modules(folder, RobertaModel(RobertaConfig(**SMALL, pad_token_id=0)), "cls", dense, LayerNorm(32))


def dpr(folder: Path) -> Reference:
    from transformers import DPRConfig, DPRContextEncoder, DPRQuestionEncoder

    vectors = {}
    for side, kind in (("query", DPRQuestionEncoder), ("document", DPRContextEncoder)):
        torch.manual_seed(len(side))
        model = kind(DPRConfig(**SMALL, projection_dim=0)).eval()
        model.save_pretrained(folder if side == "query" else f"{folder}-document")
        save_tokenizer(folder if side == "query" else Path(f"{folder}-document"))
        with torch.no_grad():
            inputs = batch()
            output = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        vectors[side] = output.pooler_output.numpy()
    return vectors.__getitem__


LAYOUTS = {
    "contriever": contriever,
    "contriever-msmarco": contriever,
    "tct-colbert-v2": tct_colbert,
    "tas-b": tas_b,
    "msmarco-v3": distilbert_v3,
    "gtr-base": gtr,
    "gtr-large": gtr,
    "ance-released": ance,
    "coco-dr-released": condenser_style,
    "cocondenser-released": condenser_style,
    "dpr-released": dpr,
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    save_tokenizer(Path("tokenizer"))
    return Path("released")


def shipped(root: Path, name: str) -> EncoderSettings:
    return load_bench(root, {"methods": ["bm25-flat"]}).settings(name, EncoderSettings)


def check_vectors(folder: Path, expected: Reference) -> None:
    """Compare an imported model's vectors of both sides."""
    for side in ("query", "document"):
        encoder = load_encoder(folder, device="cpu", side=side)
        tokens = encoder.tokenize(TEXTS, encoder.contract.prefix(side))
        vectors = encoder.encode_batch([tokens[row] for row in range(len(tokens))])
        np.testing.assert_allclose(vectors, expected(side), atol=3e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_released_layout_gives_the_vectors_of_its_own_library(root, folder, name):
    expected = LAYOUTS[name](folder)
    settings = shipped(root, name)
    changes = settings.model_dump(mode="json", include=IMPORTED - {"model", "revision"})
    changes["max_tokens"] = changes["max_tokens"] and 64
    if settings.document_model is not None:
        changes |= {"document_model": f"{folder}-document", "document_revision": None}
    spec = import_spec(str(folder), **UNCHANGED | changes)
    run_spec(spec)
    made = Path(spec.outputs["model"]).parent
    check_vectors(made, expected)
    contract = read_contract(made)
    assert contract.similarity == ("cosine" if LAYOUTS[name] in (gtr, distilbert_v3) else "dot")
    assert contract.towers == ("separate" if name == "dpr-released" else "tied")


def test_the_pair_loads_in_sentence_transformers(folder):
    from sentence_transformers import SentenceTransformer

    expected = dpr(folder)
    spec = import_spec(str(folder), pooling="cls", document_model=f"{folder}-document")
    run_spec(spec)
    model = SentenceTransformer(str(Path(spec.outputs["model"]).parent), device="cpu")
    np.testing.assert_allclose(model.encode_query(TEXTS), expected("query"), atol=3e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS), expected("document"), atol=3e-5)


def test_an_assumption_about_a_tower_names_its_own_model(folder, caplog):
    dpr(folder)
    caplog.set_level("INFO", "zerodr")
    run_spec(import_spec(str(folder), pooling="cls", document_model=f"{folder}-document"))
    said = [line.split(": ")[0] for line in caplog.messages if "does not state its similarity" in line]
    assert said == [str(folder), f"{folder}-document"]


@pytest.mark.parametrize("name", ["adore", "rocketqa"])
def test_two_folders_that_users_bring_are_one_retriever(root, folder, name):
    """Query and document encoders of DDR's table 3, each a folder as sentence-transformers saves it."""
    expected = {"query": ance(folder), "document": ance(Path(f"{folder}-document"))}
    settings = shipped(root, name)
    assert settings.model.startswith("resources/models/") and settings.document_model.startswith("resources/models/")
    changes = settings.model_dump(mode="json", include=IMPORTED - {"model", "revision"})
    changes |= {"document_model": f"{folder}-document", "document_revision": None}
    spec = import_spec(str(folder), **UNCHANGED | changes)
    run_spec(spec)
    check_vectors(Path(spec.outputs["model"]).parent, lambda side: expected[side](side))


def test_one_tower_of_dpr_alone_is_refused_with_a_sentence(folder):
    dpr(folder)
    with pytest.raises(ModelError, match="is one tower of a DPR pair.*document_model"):
        run_spec(import_spec(str(folder), pooling="cls"))
    with pytest.raises(ModelError, match="is one tower of a DPR pair"):
        from_checkpoint(InitSettings(init=str(folder), pooling="cls"), folder, None, 0)


def test_towers_in_the_wrong_place_and_of_other_models_are_refused(folder):
    dpr(folder)
    with pytest.raises(ModelError, match="holds no weights question_encoder.bert_model"):
        run_spec(import_spec(f"{folder}-document", pooling="cls", document_model=str(folder)))
    shutil.rmtree(folder)
    tiny_bert(folder, hidden_size=16)
    with pytest.raises(ModelError, match="dimension of queries is 16, of documents 32"):
        run_spec(import_spec(str(folder), pooling="cls", document_model=f"{folder}-document"))


def test_every_shipped_encoder_is_tried(root):
    bench = load_bench(root, {"methods": ["bm25-flat"]})
    named = {name for name, method in bench.methods.items() if method.kind == "encoder" and "+" not in name}
    brought = {name for name in named if bench.methods[name].settings.model.startswith("resources/")}
    assert named - brought - {"all-minilm-l6-v2"} == set(LAYOUTS)
    assert PAIR & set(EncoderSettings.model_fields) == PAIR


@pytest.mark.parametrize(
    ("query", "document", "lengths"),
    [
        ({"max_seq_length": 16}, {"max_seq_length": 64}, (16, 64)),
        ({"max_seq_length": 64, "query_length": 48}, {"max_seq_length": 32}, (48, 32)),
        ({"max_seq_length": 64}, {"max_seq_length": 64, "document_length": 8}, (64, 8)),
    ],
)
def test_each_side_of_a_pair_reads_as_much_as_its_model(folder, query, document, lengths):
    sides = dict(zip(SIDES, (pair_side(folder, 1, query), pair_side(Path("documents"), 2, document)), strict=True))
    spec = import_spec(str(sides["query"]), document_model=str(sides["document"]))
    run_spec(spec)
    model = Path(spec.outputs["model"]).parent
    contract = read_contract(model)
    assert (contract.tokens("query"), contract.tokens("document")) == lengths
    for side, source in sides.items():
        encoder, peer = load_encoder(model, device="cpu", side=side), load_peer(source)
        tokens = encoder.tokenize(TEXTS, "", contract.tokens(side))
        vectors = encoder.encode_batch([tokens[row] for row in range(len(tokens))])
        expected = (peer.encode_query if side == "query" else peer.encode_document)(TEXTS)
        np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=3e-5)


def test_a_pair_of_which_one_model_lowers_texts_is_refused(folder):
    pair_side(folder, 1, {"do_lower_case": True})
    pair_side(Path("documents"), 2, {"do_lower_case": False})
    with pytest.raises(ModelError, match="lowercase of queries is True, of documents False"):
        run_spec(import_spec(str(folder), document_model="documents"))


def permuted(folder: Path) -> None:
    save_tokenizer(folder, VOCABULARY[:5] + VOCABULARY[5:31][::-1] + VOCABULARY[31:])


@pytest.mark.parametrize("change", [permuted, cased])
def test_a_pair_with_two_tokenizers_starts_no_training(folder, change):
    pair_side(folder, 1, {})
    change(pair_side(Path("documents"), 2, {}))
    spec = import_spec(str(folder), document_model="documents")
    run_spec(spec)
    settings = InitSettings(init="pair", pooling="mean", towers="separate", query_tokens=32, document_tokens=32)
    with pytest.raises(ModelError, match="towers have different tokenizers"):
        from_checkpoint(settings, Path(spec.outputs["model"]).parent, None, 0)


def pair_side(folder: Path, seed: int, stated: dict[str, Any]) -> Path:
    """A model of sentence-transformers with lengths of its own."""
    listed(tiny_bert(folder, seed))
    states(TRANSFORMER, **stated)(folder)
    return folder
