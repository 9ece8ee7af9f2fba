"""Layouts of the most downloaded public text-retrieval models: their files, with tiny networks of random weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layout_helpers import PROMPTS, ST, TRANSFORMER
from tiny_networks import WIDTH, network, tokenizer

ARCTIC = "Represent this sentence for searching relevant passages: "
GEMMA = {"query": "task: search result | query: ", "document": "title: none | text: ", "STS": "task: similarity | "}
QWEN = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
NORMALIZED = ("Pooling", "Normalize")


@dataclass(frozen=True)
class Layout:
    """A published model's files.

    Attributes:
        network: family in NETWORKS.
        tokens: tokenizer in TOKENIZERS.
        pooling: mode of its Pooling.
        modules: behind the transformer; () for a folder without modules.json.
        prompts: of config_sentence_transformers.json.
        similarity: likewise; None: not stated.
        transformer: content of sentence_bert_config.json.
        config: changes to config.json after saving.
        dtype: of the weights.
        dense: size, activation and bias of each Dense.
        refused: as a start and as a row, by this sentence.
        convert: there are pickled weights and no others, so that `zerodr convert` comes first.
        code: module of its transformer's class in modules.json.
        large: the published model has more weights than are trained one by one.
    """

    network: str = "bert"
    tokens: str = "bert"
    pooling: str = "mean"
    modules: tuple[str, ...] = NORMALIZED
    prompts: dict[str, str] = field(default_factory=dict)
    similarity: str | None = None
    transformer: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    dense: tuple[tuple[int, str, bool], ...] = ()
    refused: str = ""
    convert: bool = False
    code: str = ST
    large: bool = False


def long(tokens: int, lower: bool = False) -> dict[str, Any]:
    return {"max_seq_length": tokens, "do_lower_case": lower}


BGE = Layout(pooling="cls", transformer=long(200, True))
E5 = Layout(transformer=long(200))
XLMR = Layout("xlm-roberta", "xlm-roberta", transformer=long(200))
TANH, IDENTITY = "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity"
CODE = {"AutoModel": "modeling_own.OwnModel", "AutoConfig": "configuration_own.OwnConfig"}
LAYOUTS: dict[str, Layout] = {
    "sentence-transformers/all-MiniLM-L6-v2": Layout(transformer=long(100)),
    "sentence-transformers/all-MiniLM-L12-v2": Layout(transformer=long(50)),
    "sentence-transformers/all-mpnet-base-v2": Layout("mpnet", "mpnet", transformer=long(150)),
    "sentence-transformers/multi-qa-mpnet-base-dot-v1": Layout(
        "mpnet", "mpnet", "cls", ("Pooling",), similarity="dot", transformer=long(200)
    ),
    "sentence-transformers/multi-qa-MiniLM-L6-cos-v1": Layout(transformer=long(200)),
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": Layout(
        "bert", "xlm-roberta", "mean", ("Pooling",), transformer=long(50)
    ),
    "BAAI/bge-small-en-v1.5": BGE,
    "BAAI/bge-base-en-v1.5": BGE,
    "BAAI/bge-large-en-v1.5": replace(BGE, large=True),
    "BAAI/bge-m3": Layout("xlm-roberta", "xlm-roberta", "cls", transformer=long(200), convert=True, large=True),
    "intfloat/e5-base-v2": E5,
    "intfloat/e5-large-v2": replace(E5, large=True),
    "intfloat/multilingual-e5-small": Layout("bert", "xlm-roberta", transformer=long(200)),
    "intfloat/multilingual-e5-base": XLMR,
    "intfloat/multilingual-e5-large": replace(XLMR, large=True),
    "thenlper/gte-base": Layout(transformer=long(200)),
    "Alibaba-NLP/gte-modernbert-base": Layout(
        "modernbert", "modernbert", "cls", ("Pooling",), similarity="cosine", transformer=long(200)
    ),
    "nomic-ai/modernbert-embed-base": Layout(
        "modernbert",
        "modernbert",
        prompts={"query": "search_query: ", "document": "search_document: "},
        transformer=long(200),
    ),
    "nomic-ai/nomic-embed-text-v1.5": Layout(
        "nomic_bert", "bert", "mean", ("Pooling",), transformer=long(200), config={"auto_map": CODE, "n_embd": WIDTH}
    ),
    "Snowflake/snowflake-arctic-embed-m": Layout(pooling="cls", prompts={"query": ARCTIC}, transformer=long(200)),
    "Snowflake/snowflake-arctic-embed-l-v2.0": Layout(
        "xlm-roberta",
        "xlm-roberta",
        "cls",
        prompts={"query": "query: "},
        transformer=long(200),
        large=True,
    ),
    "Snowflake/snowflake-arctic-embed-m-v2.0": Layout(
        "gte",
        "xlm-roberta",
        "cls",
        prompts={"query": "query: "},
        transformer=long(200),
        config={"auto_map": CODE},
        large=True,
    ),
    "mixedbread-ai/mxbai-embed-large-v1": Layout(
        "bert",
        "bert",
        "cls",
        ("Pooling",),
        {"query": ARCTIC, "passage": ""},
        transformer=long(200),
        large=True,
    ),
    "Qwen/Qwen3-Embedding-0.6B": Layout(
        "qwen3",
        "qwen3",
        "lasttoken",
        NORMALIZED,
        {"query": QWEN, "document": ""},
        "cosine",
        dtype="bfloat16",
        large=True,
    ),
    "google/embeddinggemma-300m": Layout(
        "gemma3_text",
        "gemma3",
        "mean",
        ("Pooling", "Dense", "Dense", "Normalize"),
        GEMMA,
        "cosine",
        {"max_seq_length": 200},
        dense=((48, IDENTITY, False), (WIDTH, IDENTITY, False)),
        large=True,
    ),
    "sentence-transformers/LaBSE": Layout(
        pooling="cls",
        modules=("Pooling", "Dense", "Normalize"),
        transformer=long(100),
        dense=((WIDTH, TANH, True),),
        large=True,
    ),
    "sentence-transformers/gtr-t5-base": Layout(
        "t5", "t5", modules=("Pooling", "Dense", "Normalize"), transformer=long(200), dense=((24, IDENTITY, False),)
    ),
    "sentence-transformers/msmarco-distilbert-base-tas-b": Layout(
        "distilbert", "bert", "cls", ("Pooling",), similarity="dot", transformer=long(200)
    ),
    "facebook/contriever": Layout(modules=()),
    "sentence-transformers/all-distilroberta-v1": Layout("roberta", "roberta", transformer=long(200)),
    "ibm-granite/granite-embedding-english-r2": Layout("modernbert", "modernbert", "cls", dtype="bfloat16"),
    "Alibaba-NLP/gte-multilingual-base": Layout(
        "gte",
        "xlm-roberta",
        "cls",
        transformer=long(200),
        config={"model_type": "new", "auto_map": CODE, "architectures": ["NewModel"]},
        refused="needs code of its own",
    ),
    "jinaai/jina-embeddings-v3": Layout(
        "xlm-roberta",
        "xlm-roberta",
        modules=("Pooling", "Normalize"),
        config={"auto_map": CODE},
        code="custom_st",
        refused="custom_st.Transformer",
    ),
    "jinaai/jina-embeddings-v2-base-en": Layout(
        modules=("Pooling",),
        config={"auto_map": CODE, "architectures": ["JinaBertForMaskedLM"]},
        refused="needs code of its own",
    ),
}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def publish(name: str, folder: Path) -> Path:
    """Write the files of a model as its authors published them, small and with random weights."""
    import torch
    from safetensors.torch import load_file

    layout = LAYOUTS[name]
    tokens = tokenizer(layout.tokens, 200)
    with_pictures = layout.network == "gemma3_text"
    rows = len(tokens) if with_pictures else 64 * (1 + len(tokens) // 64)
    net = network(layout.network, rows, tokens.pad_token_id)
    net.to(getattr(torch, layout.dtype)).save_pretrained(folder)
    if with_pictures:  # a token without a row
        tokens.add_special_tokens({"additional_special_tokens": ["<image_soft_token>"]})
    tokens.save_pretrained(folder)
    stated = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", stated | layout.config)
    if layout.network == "t5":
        write(folder / "config.json", stated | {"architectures": ["T5ForConditionalGeneration"]})
    if layout.convert:
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
        for part in ("colbert", "sparse"):
            torch.save({"weight": torch.zeros(2, WIDTH)}, folder / f"{part}_linear.pt")
    if layout.modules:
        write_modules(folder, layout)
    return folder


def write_modules(folder: Path, layout: Layout) -> None:
    """Write the files of sentence-transformers."""
    import torch
    from safetensors.torch import save_file

    kinds = ("Transformer", *layout.modules)
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    types = [f"{layout.code}.Transformer", *(f"{ST}.{kind}" for kind in layout.modules)]
    rows = [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(zip(paths, types, strict=True))]
    write(folder / "modules.json", rows)
    modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    chosen = {"cls": "cls_token", "mean": "mean_tokens"}.get(layout.pooling, layout.pooling)
    states = {f"pooling_mode_{mode}": mode == chosen for mode in modes}
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": WIDTH} | states)
    if layout.transformer:
        write(folder / TRANSFORMER, layout.transformer)
    stated: dict[str, Any] = {
        "__version__": {"sentence_transformers": "3.0.0"},
        "similarity_fn_name": layout.similarity,
    }
    write(folder / PROMPTS, stated | ({"prompts": layout.prompts} if layout.prompts else {}))
    inputs, generator = WIDTH, torch.Generator().manual_seed(3)
    dense = [path for path in paths if path.endswith("Dense")]
    for path, (outputs, activation, bias) in zip(dense, layout.dense, strict=True):
        sizes = {"in_features": inputs, "out_features": outputs, "bias": bias}
        write(folder / path / "config.json", sizes | {"activation_function": activation})
        weights = {"linear.weight": torch.randn(outputs, inputs, generator=generator)}
        weights |= {"linear.bias": torch.randn(outputs, generator=generator)} if bias else {}
        save_file(weights, folder / path / "model.safetensors", metadata={"format": "pt"})
        inputs = outputs


OTHERS = {
    "naver/splade-v3": ("SPLADE without modules", "is a masked language model, or a sparse encoder (as SPLADE)"),
    "colbert-ir/colbertv2.0": ("ColBERT by architecture", "is a multi-vector model (as ColBERT)"),
    "minishlab/potion-retrieval-32M": ("static vectors", "is a model of static word vectors"),
    "cross-encoder/ms-marco-MiniLM-L6-v2": ("a reranker without modules", "is a classifier, or a cross-encoder"),
    "a LoRA adapter": (
        "an adapter alone",
        "holds an adapter (adapter_config.json) of some/base, which is not read: merge it first",
    ),
    "ONNX weights alone": ("ONNX alone", "has ONNX weights alone, expected safetensors"),
}
"""Other kinds of models: a layout of layout_helpers.REFUSED, and what is said of it."""
POOLINGS = {"lasttoken": "last"}
BACKBONES = {
    "MPNet": "sentence-transformers/all-mpnet-base-v2",
    "XLM-R": "intfloat/multilingual-e5-base",
    "ModernBERT": "Alibaba-NLP/gte-modernbert-base",
    "Nomic": "nomic-ai/nomic-embed-text-v1.5",
    "Qwen3": "Qwen/Qwen3-Embedding-0.6B",
    "Gemma 3": "google/embeddinggemma-300m",
    "T5's encoder": "sentence-transformers/gtr-t5-base",
    "BERT with a head": "sentence-transformers/LaBSE",
}
"""A model of each family."""
METHODS = (
    "a contrastive loss or distillation: `dpr`, `ance`, `kd`, `adapt`, `adapt-query`",
    "MoDIR's adversary",
    "BERM's units",
    "iDRO's groups",
    "COCO with Condenser's head",
    "COCO without head (`head_layers: 0`)",
    "masked words: DDR's DAM, `udalm`",
    "DDR's relevance module",
)
CONDENSER, COCO, WORDS, REM = METHODS[4:]
LAYERS = "a head of further layers is known for bert, roberta, xlm-roberta, camembert, distilbert"
FIRST = "Condenser's head teaches [CLS] alone"
MASK, ENDS = (
    f"its tokenizer has no {token}, which masked language modelling needs" for token in ("mask_token", "cls_token")
)
T5 = "is of family t5, whose encoder predicts no masked words"
KNOWN = "a relevance module, which is known for bert, roberta, xlm-roberta, camembert, electra, mpnet, distilbert, t5"
HEAD = "a relevance module is for one network without a head"
CANNOT = {
    **{(name, CONDENSER): LAYERS for name in ("MPNet", "ModernBERT", "Nomic", "Gemma 3")},
    **{(name, CONDENSER): FIRST for name in ("Qwen3", "T5's encoder")},
    **{("Qwen3", method): MASK for method in (COCO, WORDS)},
    **{("Gemma 3", method): ENDS for method in (COCO, WORDS)},
    **{("T5's encoder", method): T5 for method in (COCO, WORDS)},
    **{(name, REM): KNOWN for name in ("ModernBERT", "Nomic", "Qwen3")},
    **{(name, REM): HEAD for name in ("Gemma 3", "T5's encoder", "BERT with a head")},
}
"""What a stage says of a backbone that it can't train."""


def table_of_models() -> list[str]:
    """Lines of the page Models: each published model, its vectors, and what is done with it."""
    lines = ["| model | its vectors | as a row | as `--start` | remark |", "|---|---|---|---|---|"]
    for name, layout in LAYOUTS.items():
        layers = f" + {len(layout.dense)} dense" if layout.dense else ""
        compared = layout.similarity or ("cosine" if layout.modules else "dot")
        vectors = f"{POOLINGS.get(layout.pooling, layout.pooling)}{layers}, {compared}"
        takes = "no" if layout.refused else "yes"
        remarks = [f"says: {layout.refused}"] if layout.refused else []
        remarks += ["comes as `.bin`: `zerodr convert` first"] if layout.convert else []
        remarks += ["query prompt"] if layout.prompts.get("query") else []
        remarks += ["no prompts in its files: see below"] if "e5" in name else []
        remarks += ["LoRA"] if layout.large else []
        lines.append(f"| {name} | {vectors} | {takes} | {takes} | {'; '.join(remarks)} |")
    return [*lines, *(f"| {name} | | no | no | says: {said} |" for name, (_, said) in OTHERS.items())]


def table_of_methods() -> list[str]:
    """Lines of the page Models: each method's stages by family of the backbone."""
    lines = [f"| stage | {' | '.join(BACKBONES)} |", f"|---|{'---|' * len(BACKBONES)}"]
    reasons = list(dict.fromkeys(CANNOT.values()))
    for method in METHODS:
        cells = [
            f"no ({1 + reasons.index(CANNOT[name, method])})" if (name, method) in CANNOT else "yes"
            for name in BACKBONES
        ]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]
