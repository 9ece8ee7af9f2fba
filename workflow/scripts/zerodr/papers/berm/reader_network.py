"""The extractive reader: question and passage read together, a start and an end logit for every token of the passage.

A folder of one is an ordinary question-answering model for transformers, beside `zerodr_reader.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from zerodr.config.base import Settings, validate
from zerodr.encoders.cross_encoder.initial import FAMILIES
from zerodr.encoders.cross_encoder.pairs import PairTokens, pad_pairs, pair_lengths, pair_template
from zerodr.encoders.folder.checkpoint import check_files, check_weights, position_limit
from zerodr.encoders.folder.contract import read_json, write_model_json
from zerodr.encoders.folder.saving import ONE_FILE, save_tokenizer
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.encoders.network.loading import cut_layers, quiet, short
from zerodr.encoders.network.towers import DTYPES, Precision, check_precision, check_vocabulary
from zerodr.errors import ModelError

READER_CONTRACT = "zerodr_reader.json"
HEAD = "qa_outputs"
SPREAD = 0.02  # deviation of a fresh head's weights where the configuration states none


class InitReaderSettings(Settings):
    """Params of rule init_reader."""

    init: str
    """A folder, `organisation/name`, `package:<module>`; with an input `parent`, the name that lineage gives it."""
    revision: str | None = None
    """Hub revision."""
    layers: int | None = Field(None, ge=1)
    """Keep the first n layers of the checkpoint."""
    max_tokens: int = Field(ge=8)
    """Length of question and passage."""
    answer_tokens: int = Field(ge=1)
    """Longest answer that is predicted."""
    trained: bool
    """It comes trained: it must have a head for question answering. Else a missing head is made."""


class ReaderContract(Settings):
    """How a reader's predictions come about."""

    max_tokens: int = Field(ge=8)
    """Longest question with passage, special tokens included; the passage is cut."""
    answer_tokens: int = Field(ge=1)
    """Longest answer that is predicted."""
    trained: bool
    """Whether its head was trained: a fresh one gives arbitrary spans."""
    architecture: str
    """Class of the network, such as `BertForQuestionAnswering`."""
    source: str
    """Where the weights came from: a hub name, a package, a folder or a stage."""
    revision: str | None = None
    """Hub commit."""


@dataclass(frozen=True, slots=True)
class ReadTokens(PairTokens):
    """Token ids of a question and a passage, and the passage's characters that each of its kept tokens stands for."""

    offsets: list[tuple[int, int]]


class Reader(nn.Module):
    """(question, passage) -> token ids -> start and end logits. Weights are float32 always.

    Attributes:
        contract: lengths and origin.
        tokenizer: of transformers.
        network: a question-answering model.
        precision: arithmetic of the network.
    """

    def __init__(self, contract: ReaderContract, tokenizer: Any, network: Any, precision: Precision = "fp32") -> None:
        super().__init__()
        check_vocabulary(contract.source, tokenizer, network.config)
        check_precision(contract.source, network.config.model_type, precision, None)
        self.contract, self.tokenizer, self.precision = contract, tokenizer, precision
        self.template = pair_template(contract.source, tokenizer, getattr(network.config, "type_vocab_size", 1))
        self.network = network

    def tokenize(self, questions: Sequence[str], passages: Sequence[str]) -> list[ReadTokens]:
        """Ids of the pairs (questions[i], passages[i]), the passage cut where they are longer than max_tokens."""
        room, made = self.template.room(self.contract.max_tokens), []
        asked, read = self._bare(questions, False)["input_ids"], self._bare(passages, True)
        for question, passage, offsets in zip(asked, read["input_ids"], read["offset_mapping"], strict=True):
            pair = self.template.join(question, passage, self.contract.max_tokens)
            kept = pair_lengths(len(question), len(passage), room)[1]
            made.append(ReadTokens(pair.ids, pair.document, list(offsets[:kept])))
        return made

    def _bare(self, texts: Sequence[str], offsets: bool) -> Any:
        return self.tokenizer(
            list(texts),
            truncation=False,
            padding=False,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            return_offsets_mapping=offsets,
            verbose=False,
        )

    def pad(self, pairs: Sequence[PairTokens]) -> dict[str, Tensor]:
        """The network's input for B pairs, each tensor (B, longest) int64, on the CPU."""
        return pad_pairs(pairs, self.tokenizer.pad_token_id, self.template.typed)

    def logits(self, pairs: Sequence[ReadTokens], device: str) -> Tensor:
        """Start and end logits of passage tokens, (2, B, P) float32; -inf behind a passage's last token."""
        features = {key: value.to(device) for key, value in self.pad(pairs).items()}
        dtype = DTYPES[self.precision]
        with torch.autocast(torch.device(device).type, dtype, enabled=dtype != torch.float32):
            found = self.network(**features)
        both = torch.stack([found.start_logits, found.end_logits]).float()  # (2, B, L)
        most = max(1, max(len(pair.offsets) for pair in pairs))
        firsts = torch.tensor([pair.document for pair in pairs], device=device)
        sizes = torch.tensor([len(pair.offsets) for pair in pairs], device=device)
        inside = torch.arange(most, device=device) < sizes[:, None]
        places = torch.where(inside, firsts[:, None] + torch.arange(most, device=device), 0)
        return both.gather(2, places.expand(2, -1, -1)).masked_fill(~inside, -torch.inf)

    def save(self, folder: Path) -> None:
        """Write a folder for `load` and transformers. Equal weights give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        self.network.save_pretrained(folder, max_shard_size=ONE_FILE)
        save_tokenizer(self.tokenizer, folder)
        write_model_json(folder / READER_CONTRACT, self.contract.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32") -> Reader:
        """The reader of a folder, on the CPU, in evaluation mode.

        Raises:
            ModelError: the folder is no reader of this bench, or weights are missing.
        """
        path = folder / READER_CONTRACT
        if not path.exists():
            raise ModelError(
                folder, f"has no {READER_CONTRACT}, expected a reader of the bench", "make one with stage init_reader"
            )
        contract = validate(ReaderContract, read_json(path), str(path))
        network, missing = load_network(folder)
        if missing:
            raise ModelError(folder, f"lacks {len(missing)} weights, the first is {missing[0]}", "make it again")
        return cls(contract, load_tokenizer(folder), network, precision).eval()


def load_network(folder: Path, layers: int | None = None) -> tuple[Any, list[str]]:
    """The question-answering model of a folder, and the names of weights that the folder does not hold.

    Raises:
        ModelError: an unknown architecture, weights of another shape, or too few layers.
    """
    from transformers import AutoConfig, AutoModelForQuestionAnswering

    quiet()
    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        if config.model_type not in FAMILIES:
            raise ModelError(
                folder,
                f"is a {config.model_type}, which this bench does not make a reader of",
                f"choose one of {', '.join(FAMILIES)}",
            )
        cut_layers(folder, config, layers)
        config.num_labels, config.output_hidden_states = 2, False
        with torch.random.fork_rng(devices=[]):  # what is missing is drawn from the caller's random state otherwise
            network, report = AutoModelForQuestionAnswering.from_pretrained(
                str(folder),
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            folder,
            f"transformers can't load it for question answering ({short(error)})",
            "choose a BERT-like model that it knows",
        ) from None
    return network.eval(), sorted(report["missing_keys"])


def reader_from_checkpoint(
    settings: InitReaderSettings, folder: Path, revision: str | None, seed: int
) -> tuple[Reader, list[str]]:
    """A reader with the weights of a folder, and the names of weights that were drawn.

    Raises:
        ModelError: the folder does not fit, lacks more than a head, or was promised to be trained and is not.
    """
    check_files(folder)
    check_weights(folder)
    limit = position_limit(folder)
    if limit is not None and settings.max_tokens > limit:
        raise ModelError(
            folder,
            f"takes {limit} tokens, max_tokens asks for {settings.max_tokens}",
            f"set max_tokens to at most {limit}",
        )
    network, missing = load_network(folder, settings.layers)
    body = [name for name in missing if not name.startswith(HEAD)]
    if body:
        raise ModelError(
            folder,
            f"lacks {len(body)} weights of {type(network).__name__}, the first is {body[0]}",
            "choose a whole model",
        )
    if settings.trained and missing:
        raise ModelError(
            folder, "has no trained head for question answering", "name a reader, or train it (settings.training)"
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in missing:
            weight = network.get_parameter(name)
            spread = getattr(network.config, "initializer_range", SPREAD)
            weight.zero_() if weight.ndim < 2 else weight.normal_(0, spread, generator=generator)
    contract = ReaderContract(
        max_tokens=settings.max_tokens,
        answer_tokens=settings.answer_tokens,
        trained=not missing,
        architecture=type(network).__name__,
        source=settings.init,
        revision=revision,
    )
    return Reader(contract, load_tokenizer(folder), network).eval(), missing
