"""Layouts of published models, as changes to a folder that sentence-transformers would save of a tiny random BERT."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from encoder_helpers import VOCABULARY

Change = Callable[[Path], object]
ST = "sentence_transformers.models"
PROMPTS, TRANSFORMER = "config_sentence_transformers.json", "sentence_bert_config.json"


def listed(folder: Path, *kinds: str, poolings: str = "mean_tokens") -> None:
    """Write modules.json and the pooling's file: Transformer, Pooling, and `kinds`."""
    paths = ["", "1_Pooling", *(f"{2 + number}_{kind}" for number, kind in enumerate(kinds))]
    types = [f"{ST}.{kind}" for kind in ("Transformer", "Pooling", *kinds)]
    rows = [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(zip(paths, types, strict=True))]
    (folder / "modules.json").write_text(json.dumps(rows))
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)
    states = {"word_embedding_dimension": 32} | {f"pooling_mode_{poolings}": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(states))


def states(name: str, **values: Any) -> Change:
    """Change keys of a JSON file; write it where it is missing."""

    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        found = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(found | values))

    return change


def classes(*types: str) -> Change:
    """Name the classes of Transformer and Pooling."""

    def change(folder: Path) -> None:
        rows = json.loads((folder / "modules.json").read_text())
        for row, kind in zip(rows, types, strict=False):
            row["type"] = kind
        (folder / "modules.json").write_text(json.dumps(rows))

    return change


def pooled(poolings: str, *kinds: str) -> Change:
    return lambda folder: listed(folder, *kinds, poolings=poolings)


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def gone(name: str) -> Change:
    return lambda folder: shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()


def projected(folder: Path, activation: str = "torch.nn.modules.activation.Tanh", pickled: bool = False) -> None:
    """Add a dense layer of 12 components behind the pooling."""
    import torch
    from safetensors.torch import save_file

    listed(folder, "Dense", "Normalize")
    states("2_Dense/config.json", in_features=32, out_features=12, bias=True, activation_function=activation)(folder)
    generator = torch.Generator().manual_seed(5)
    sizes = {"linear.weight": (12, 32), "linear.bias": (12,)}
    weights = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    if pickled:
        torch.save(weights, folder / "2_Dense/pytorch_model.bin")
    else:
        save_file(weights, folder / "2_Dense/model.safetensors", metadata={"format": "pt"})


def cased(folder: Path) -> None:
    """A tokenizer that does not lower, with capital letters of its own."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["normalizer"] = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": False,
        "lowercase": False,
    }
    path.write_text(json.dumps(tokenizer))


def added(token: str, special: bool) -> Change:
    """A token more than the embedding table has rows."""

    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        row = {"id": len(VOCABULARY), "content": token, "special": special, "normalized": not special}
        tokenizer["added_tokens"].append(row | dict.fromkeys(("single_word", "lstrip", "rstrip"), False))
        path.write_text(json.dumps(tokenizer))

    return change


def weights(name: str | None = None, half: bool = False) -> Change:
    """Save the weights as bf16, or with a tensor more."""

    def change(folder: Path) -> None:
        import torch
        from safetensors.torch import load_file, save_file

        path = folder / "model.safetensors"
        tensors = load_file(path)
        if half:
            tensors = {key: value.bfloat16() for key, value in tensors.items()}
            states("config.json", dtype="bfloat16")(folder)
        if name is not None:
            tensors[name] = torch.zeros(16, 32)
        save_file(tensors, path, metadata={"format": "pt"})

    return change


OLD, NEW = f"{ST}.Transformer.Transformer", "sentence_transformers.base.modules.transformer.Transformer"
DOTTED = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
LATER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
    "processing_kwargs": {"text": {}},
}
EQUAL: dict[str, Change] = {
    "mean": pooled("mean_tokens"),
    "mean, Normalize": pooled("mean_tokens", "Normalize"),
    "cls": pooled("cls_token"),
    "max": pooled("max_tokens"),
    "last": pooled("lasttoken"),
    "a missing folder of Normalize": both(pooled("cls_token", "Normalize"), gone("2_Normalize")),
    "a dense layer": projected,
    "a dense layer with GELU": lambda folder: projected(folder, "torch.nn.modules.activation.GELU"),
    "classes of version 6": classes(NEW, DOTTED),
    "classes of version 6, short": classes(
        "sentence_transformers.base.modules.Transformer", "sentence_transformers.sentence_transformer.modules.Pooling"
    ),
    "a file of version 6": states(TRANSFORMER, **LATER),
    **{f"length for {name}": states(f"sentence_{name}_config.json", max_seq_length=9) for name in FAMILIES},
    "two files of lengths": both(
        states("sentence_roberta_config.json", max_seq_length=9),
        states("sentence_albert_config.json", max_seq_length=5),
    ),
    "length of the tokenizer": states(TRANSFORMER, max_seq_length=20, tokenizer_args={"model_max_length": 9}),
    "length of each side": states(TRANSFORMER, max_seq_length=20, query_length=8, document_length=12),
    "options without effect": states(TRANSFORMER, model_args={"torch_dtype": "float32"}, config_args={}),
    "do_lower_case of a tokenizer that lowers": states(TRANSFORMER, do_lower_case=True),
    "do_lower_case of one that does not": both(cased, states(TRANSFORMER, do_lower_case=True)),
    "a cased tokenizer": cased,
    "prompts": states(PROMPTS, prompts={"query": "query: ", "document": "passage: "}),
    "no prompts": states(PROMPTS, prompts={"query": None, "document": ""}),
    "prompts of other names": states(PROMPTS, prompts={"s2p_query": "find: "}),
    "default_prompt_name": states(PROMPTS, prompts={"web_search": "find: "}, default_prompt_name="web_search"),
    "default_prompt_name of a side": states(PROMPTS, prompts={"query": "find: "}, default_prompt_name="query"),
    "prompts that the pooling leaves out, and that are empty": states("1_Pooling/config.json", include_prompt=False),
    "similarity null": states(PROMPTS, similarity_fn_name=None),
    "similarity dot": states(PROMPTS, similarity_fn_name="dot"),
    "truncate_dim of all components": states(PROMPTS, truncate_dim=32),
    "model_type": states(PROMPTS, model_type="SentenceTransformer"),
    "weights of bf16": weights(half=True),
    "a special token without a row": added("<image_soft_token>", True),
    "an unknown key": states(PROMPTS, colour="red"),
}
"""Imported with vectors that equal those of sentence-transformers."""
STEP = {"path": "", "type": f"{ST}.Transformer"}
ADAPTER = states("adapter_config.json", peft_type="LORA", base_model_name_or_path="some/base")
REFUSED: dict[str, tuple[Change, str]] = {
    "no folder of the pooling": (gone("1_Pooling"), "1_Pooling/config.json: is missing.*download the whole folder"),
    "no folder of a dense layer": (both(projected, gone("2_Dense")), "2_Dense/config.json: is missing"),
    "no weights of a dense layer": (both(projected, gone("2_Dense/model.safetensors")), "2_Dense: has no model.safe"),
    "a pickled dense layer": (lambda folder: projected(folder, pickled=True), "has no model.safetensors: .*convert"),
    "an activation of its own": (lambda folder: projected(folder, "my.Tanh"), "activation my.Tanh is not supported"),
    "an adapter and weights": (ADAPTER, r"holds an adapter \(adapter_config.json\) of some/base.*merge it first"),
    "an adapter and config.json": (both(ADAPTER, gone("model.safetensors")), "holds an adapter.*merge it first"),
    "an adapter alone": (both(ADAPTER, gone("model.safetensors"), gone("config.json")), "holds an adapter"),
    "a transformer of its own": (classes("custom_st.Transformer"), "names the class custom_st.Transformer"),
    "a pooling of its own": (classes(OLD, "my_pooling.Pooling"), "names the class my_pooling.Pooling"),
    "SPLADE by modules": (
        classes(f"{ST}.Transformer", "sentence_transformers.sparse_encoder.models.SpladePooling"),
        "is a sparse encoder",
    ),
    "SPLADE by type": (states(PROMPTS, model_type="SparseEncoder"), "is a sparse encoder"),
    "SPLADE without modules": (
        both(gone("modules.json"), states("config.json", architectures=["BertForMaskedLM"])),
        "masked language model, or a sparse encoder.*state pooling",
    ),
    "a reranker without modules": (
        both(gone("modules.json"), states("config.json", architectures=["BertForSequenceClassification"])),
        "a classifier, or a cross-encoder",
    ),
    "ColBERT by architecture": (
        both(gone("modules.json"), states("config.json", architectures=["HF_ColBERT"])),
        "is a multi-vector model",
    ),
    "ColBERT by weights": (both(gone("modules.json"), weights("linear.weight")), "is a multi-vector model"),
    "ColBERT of PyLate": (classes(f"{ST}.Transformer", "pylate.models.Dense.Dense"), "is a multi-vector model"),
    "ColBERT by type": (states(PROMPTS, model_type="MultiVectorEncoder"), "is a multi-vector model"),
    "static vectors": (
        both(gone("config.json"), states("0_StaticEmbedding/x.json"), classes(f"{ST}.StaticEmbedding")),
        "is a model of static word vectors",
    ),
    "a transformer in a folder": (
        lambda folder: (folder / "modules.json").write_text(
            json.dumps([STEP | {"path": "0_Transformer"}, {"path": "1_Pooling", "type": f"{ST}.Pooling"}])
        ),
        "its transformer is in 0_Transformer",
    ),
    "a module outside": (
        lambda folder: (folder / "modules.json").write_text(json.dumps([STEP | {"path": "../x"}])),
        "names ../x, outside the folder",
    ),
    "code of its own": (
        states("config.json", model_type="strange", auto_map={"AutoModel": "modeling_strange.Strange"}),
        r"needs code of its own \(modeling_strange.Strange\)",
    ),
    "ONNX alone": (both(gone("model.safetensors"), states("onnx/model.onnx")), "has ONNX weights alone"),
    **{
        f"{key}, which changes vectors": (states(TRANSFORMER, **{key: {"a": 2}}), f'states {key} {{"a": 2}}')
        for key in ("model_args", "model_kwargs", "config_args", "config_kwargs", "tokenizer_args", "processor_kwargs")
    },
    "processing_kwargs": (
        states(TRANSFORMER, processing_kwargs={"text": {"add_special_tokens": False}}),
        "sentence_bert_config.json: states processing_kwargs",
    ),
    "options in a sibling": (
        states("sentence_roberta_config.json", config_kwargs={"num_hidden_layers": 1}),
        "sentence_roberta_config.json: states config_kwargs",
    ),
    "query_expansion": (states(TRANSFORMER, query_expansion={"length": 32}), "states query_expansion"),
    "another tokenizer": (states(TRANSFORMER, tokenizer_name_or_path="x"), "states tokenizer_name_or_path"),
    "another output": (states(TRANSFORMER, module_output_name="pooled"), "states module_output_name 'pooled'"),
    "fewer components": (states(PROMPTS, truncate_dim=16), "states truncate_dim 16: .*remove truncate_dim"),
    "Normalize of tokens": (
        both(
            pooled("mean_tokens", "Normalize"), states("2_Normalize/config.json", module_input_name="token_embeddings")
        ),
        "normalizes",
    ),
    "weights without their name": (
        lambda folder: (folder / "model.safetensors").rename(folder / "weights.safetensors"),
        "lacks model.safetensors, found weights.safetensors",
    ),
    "a part of the weights": (
        both(
            lambda folder: (folder / "model.safetensors").rename(folder / "model-1.safetensors"),
            states("model.safetensors.index.json", weight_map={"a": "model-1.safetensors", "b": "model-2.safetensors"}),
        ),
        "lacks model-2.safetensors, found model-1.safetensors",
    ),
    "a link to nothing": (
        both(gone("model.safetensors"), lambda folder: (folder / "model.safetensors").symlink_to("nowhere")),
        "lacks model.safetensors, found a link to nothing",
    ),
    "quantised": (states("config.json", quantization_config={"quant_method": "gptq"}), "states quantization_config"),
    "causal": (states("config.json", is_decoder=True), "states is_decoder true"),
    "relative positions": (
        states("config.json", position_embedding_type="relative_key"),
        'states position_embedding_type "relative_key"',
    ),
    **{
        f"length {length!r}": (
            states(TRANSFORMER, max_seq_length=length),
            f"states max_seq_length {json.dumps(length)}",
        )
        for length in ("64", 32.0, 0, -1, True)
    },
    "do_lower_case as text": (states(TRANSFORMER, do_lower_case="false"), 'states do_lower_case "false"'),
    "a list of similarities": (states(PROMPTS, similarity_fn_name=["cosine"]), r"similarity \['cosine'\]"),
    "prompts as a list": (states(PROMPTS, prompts=["query: "]), "prompts is no object of texts"),
    "a similarity of its own": (states(PROMPTS, similarity_fn_name="manhattan"), "similarity manhattan"),
    "nothing to pad with": (states("tokenizer_config.json", pad_token=None), "its tokenizer has no padding token"),
    "a word without a row": (added("basil", False), "token 'basil' has no row in the embedding table of 57"),
}
"""Refused, each by a sentence."""
