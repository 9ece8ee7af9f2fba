"""Tiny random model folders and tiny normalised collections for the tests of encoders and embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from zerodr.artifacts.manifest import build_manifest
from zerodr.artifacts.stage import StageSpec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, ROW_GROUP
from zerodr.encoders.start.importing import ImportSettings

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "vocab_size": len(VOCABULARY),
}
UNCHANGED: dict[str, Any] = {
    "revision": None,
    "pooling": None,
    "normalize": None,
    "query_prefix": None,
    "document_prefix": None,
    "max_tokens": None,
    "offline": True,
}


def import_settings(model: Path | str, **changes: Any) -> ImportSettings:
    return ImportSettings(**({"model": str(model)} | UNCHANGED | changes))


def save_tokenizer(folder: Path, vocabulary: list[str] = VOCABULARY) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=raw,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    ).save_pretrained(folder)


def tiny_bert(folder: Path, seed: int = 0, tokenizer: bool = True, **config: Any) -> Path:
    """A random two-layer BERT with 32 components and 64 positions, as a plain transformers folder."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    BertModel(BertConfig(**(SIZES | {"initializer_range": 0.3} | config))).save_pretrained(folder)
    if tokenizer:
        save_tokenizer(folder)
    return folder


def make_collection(folder: Path, documents: list[tuple[str, str, str]], queries: list[tuple[str, str]] = ()) -> Path:
    """A normalised collection whose split `test` judges every query's first document. Returns its manifest."""
    folder.mkdir(parents=True)
    columns = list(zip(*documents, strict=True)) if documents else [[], [], []]
    corpus = pa.table([pa.array(column, pa.string()) for column in columns], schema=CORPUS_SCHEMA)
    pq.write_table(corpus, folder / "corpus.parquet", row_group_size=ROW_GROUP)
    columns = list(zip(*queries, strict=True)) if queries else [[], []]
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=QUERY_SCHEMA)
    pq.write_table(table, folder / "queries.parquet")
    lines = [f"{key}\t{documents[0][0]}\t1\n" for key, _ in queries]
    (folder / "qrels.test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(build_manifest(folder)))
    return manifest


def import_spec(model: str, name: str = "tiny", **changes: Any) -> StageSpec:
    return StageSpec(
        "import_model",
        1,
        {"model": name},
        {},
        {"model": f"results/models/{name}/shared/imported/manifest.json"},
        {"model": model} | UNCHANGED | changes,
        13,
        2,
    )


def embed_spec(collection: str, part: str = "corpus", model: str = "tiny", **changes: Any) -> StageSpec:
    """The spec of one embedding stage, run from the folder that holds `results/`."""
    params = {
        "collection": collection,
        "query_tokens": None,
        "document_tokens": None,
        "title_join": " ",
        "precision": "fp32",
        "batch_tokens": 256,
    }
    if part == "corpus":
        params |= {"shard": 0, "shards": 1}
    else:
        params |= {"split": "test"}
    params |= changes
    name = f"{part}-{params.get('shard', 0)}-{params.get('shards', 1)}"
    inputs = {
        "collection": f"results/collections/{collection}/manifest.json",
        "model": f"results/models/{model}/shared/imported/manifest.json",
    }
    function = "embed_corpus" if part == "corpus" else "embed_queries"
    return StageSpec(
        function,
        1,
        {"collection": collection},
        inputs,
        {"embeddings": f"results/embeddings/{model}/{collection}/{name}.npy"},
        params,
        13,
        1,
    )
