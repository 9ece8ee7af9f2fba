"""Read two texts together: the tokens of a pair, and the base of cross-encoders and readers.

A pair is one sequence; its document is cut where it is too long. A model's folder is an ordinary one for transformers,
with a contract that this module reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from zerodr.config.base import Settings, validate
from zerodr.config.training import PairSettings
from zerodr.encoders.folder.contract import CONTRACT, Precision, read_json, write_model_json
from zerodr.encoders.folder.layout import ONE_FILE, save_tokenizer
from zerodr.encoders.network.loading import load_config, load_network, short
from zerodr.encoders.network.moving import pad
from zerodr.encoders.network.tokenizing import Call, load_tokenizer
from zerodr.encoders.network.towers import DTYPES, check_precision, check_vocabulary
from zerodr.errors import ConfigError, ModelError

PROBE = ("a", "b")
BARE_CALL = Call()  # texts are cut as pairs, not alone
Ids = Sequence[int] | np.ndarray


@dataclass(frozen=True, slots=True)
class PairTokens:
    """Token ids of one pair, special tokens included, (L,) int32; the document begins at position `document`."""

    ids: np.ndarray
    document: int

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Template:
    """Special tokens before the query, between query and document, and behind the document.

    Attributes:
        typed: the document's tokens, and the special ones behind it, have token type 1.
    """

    before: np.ndarray
    between: np.ndarray
    behind: np.ndarray
    typed: bool

    def room(self, max_tokens: int) -> int:
        """Count the tokens that query and document share."""
        return max_tokens - len(self.before) - len(self.between) - len(self.behind)

    def join(self, query: Ids, document: Ids, max_tokens: int) -> PairTokens:
        """Join the pair, with at most `max_tokens` tokens."""
        first, second = pair_lengths(len(query), len(document), self.room(max_tokens))
        pieces = (self.before, query[:first], self.between, document[:second], self.behind)
        ids = np.concatenate([np.asarray(piece, np.int32) for piece in pieces])
        return PairTokens(ids, len(self.before) + first + len(self.between))


def pair_lengths(query: int, document: int, room: int) -> tuple[int, int]:
    """Return the numbers of tokens to use of a query and of a document.

    Only the document is cut, unless the query is longer than half the room: then the query is cut, too, down to that
    half. Transformers calls this `longest_first`.
    """
    if query + document <= room:
        return query, document
    shorter = min(query, document, room // 2)
    return (shorter, room - shorter) if query <= document else (room - shorter, shorter)


def pair_template(folder: Path | str, tokenizer: Any, types: int) -> Template:
    """Find out how a tokenizer joins two texts.

    Args:
        folder: for messages.
        tokenizer: of transformers.
        types: number of token types of the model.

    Raises:
        ModelError: it does not separate the texts of a pair, or marks them by other types than 0 and 1.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(folder, "its tokenizer does not separate the texts of a pair", "add a tokenizer.json")
    probe = tokenizer(*PROBE, truncation=False, padding=False, return_token_type_ids=True, return_attention_mask=False)
    owners, ids, kinds = probe.sequence_ids(0), probe["input_ids"], probe["token_type_ids"]
    first, second = ([position for position, owner in enumerate(owners) if owner == text] for text in (0, 1))
    if not first or not second or first[-1] > second[0]:
        raise ModelError(folder, "its tokenizer does not put a query before a document", "choose another model")
    typed = types > 1 and "token_type_ids" in tokenizer.model_input_names and any(kinds)
    if typed and kinds != [0] * second[0] + [1] * (len(ids) - second[0]):
        problem = f"its tokenizer gives a pair the token types {kinds}, expected 0 for the query and 1 for the document"
        raise ModelError(folder, problem, "choose another model")
    before, between, behind = ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :]
    return Template(np.array(before, np.int32), np.array(between, np.int32), np.array(behind, np.int32), typed)


def bare_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Tokenize texts without special tokens, uncut; equal texts are tokenised once."""
    distinct = list(dict.fromkeys(texts))
    by_text = dict(zip(distinct, BARE_CALL.ids(tokenizer, distinct), strict=True))
    return [by_text[text] for text in texts]


def pad_pairs(pairs: Sequence[PairTokens], padding: int, typed: bool) -> dict[str, Tensor]:
    """Pad to `input_ids`, `attention_mask` and, where typed, `token_type_ids`: (B, longest) int64, on the right."""
    ids, mask = pad([pair.ids for pair in pairs], padding)
    features = {"input_ids": ids, "attention_mask": mask}
    if typed:
        starts = torch.tensor([pair.document for pair in pairs])[:, None]
        features["token_type_ids"] = ((torch.arange(ids.shape[1]) >= starts) & (mask == 1)).long()
    return features


class PairContract(Settings):
    """Length and origin of a model that reads pairs."""

    max_tokens: int = Field(ge=8)
    """Longest pair, special tokens included; the second text is cut."""
    trained: bool
    """Whether its head was trained: a fresh one gives arbitrary outputs."""
    architecture: str
    """Class of the network, such as `BertForSequenceClassification`."""
    source: str
    """Origin of the weights: a hub name, a package, a folder or a stage."""
    revision: str | None = None
    """Hub commit."""


class PairModel(nn.Module):
    """Pairs of texts -> token ids -> logits. Weights are float32 always; `bf16` and `fp16` are autocast.

    Attributes:
        what: the type of model, for messages; purpose: of its head.
        file: name of the contract in a folder; contract_type: its class.
        auto: class of transformers that loads the network, with `labels` logits.
        heads: modules that a checkpoint may lack.
        contract: lengths and origin. Replace it to name another `source` before saving.
        tokenizer: of transformers.
        network: a model of transformers with a head.
        precision: arithmetic of the network.
    """

    what: ClassVar[str]
    purpose: ClassVar[str]
    file: ClassVar[str]
    contract_type: ClassVar[type[PairContract]] = PairContract
    auto: ClassVar[str]
    labels: ClassVar[int]
    heads: ClassVar[tuple[str, ...]]

    def __init__(self, contract: Any, tokenizer: Any, network: Any, precision: Precision = "fp32") -> None:
        super().__init__()
        check_vocabulary(contract.source, tokenizer, network.config)
        check_precision(contract.source, network.config.model_type, precision, None)
        self.contract, self.tokenizer, self.precision = contract, tokenizer, precision
        self.template = pair_template(contract.source, tokenizer, getattr(network.config, "type_vocab_size", 1))
        self.network = network

    @classmethod
    def contract_values(cls, settings: PairSettings) -> dict[str, Any]:
        """List what the contract of a new model takes from its settings."""
        return {"max_tokens": settings.max_tokens, "source": settings.init}

    def pad(self, pairs: Sequence[PairTokens]) -> dict[str, Tensor]:
        """Pad B pairs to the network's input, each tensor (B, longest) int64, on the CPU."""
        return pad_pairs(pairs, self.tokenizer.pad_token_id, self.template.typed)

    def run(self, features: dict[str, Tensor]) -> Any:
        """Compute the network's outputs for one batch from `pad`, on its device."""
        device, dtype = features["input_ids"].device.type, DTYPES[self.precision]
        check_precision(self.contract.source, self.network.config.model_type, self.precision, device)
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            return self.network(**features)

    def save(self, folder: Path) -> None:
        """Write a folder for `load` and transformers. Equal weights give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        self.network.save_pretrained(folder, max_shard_size=ONE_FILE)
        save_tokenizer(self.tokenizer, folder)
        write_model_json(folder / self.file, self.contract.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32") -> Self:
        """Load the model of a folder, on the CPU, in evaluation mode.

        Raises:
            ModelError: the folder holds no such model of this bench, or weights are missing.
        """
        contract = cls.read_contract(folder)
        network, missing = cls.load_network(folder)
        if missing:
            raise ModelError(folder, f"lacks {len(missing)} weights, the first is {missing[0]}", "train it again")
        return cls(contract, load_tokenizer(folder), network, precision).eval()

    @classmethod
    def load_to_train(cls, folder: Path, precision: Precision) -> Self:
        """Load a model that counts as trained from now on."""
        model = cls.load(folder, precision)
        model.contract = model.contract.model_copy(update={"trained": True})
        return model

    @classmethod
    def load_trained(cls, folder: Path, precision: Precision) -> Self:
        """Load a model for inference.

        Raises:
            ModelError: it was never trained.
        """
        model = cls.load(folder, precision)
        if not model.contract.trained:
            problem = "has a head that was never trained, its outputs would be arbitrary"
            raise ModelError(folder, problem, "name a stage that trains it")
        return model

    @classmethod
    def read_contract(cls, folder: Path) -> Any:
        """Read the contract of a folder.

        Raises:
            ModelError: there is none, or it is wrong.
        """
        path = folder / cls.file
        if not path.exists():
            kind = "is a bi-encoder's folder" if (folder / CONTRACT).exists() else f"has no {cls.file}"
            step = f"create one by a recipe with encoder.type: {cls.what.replace('-', '_')}"
            raise ModelError(folder, f"{kind}, expected a {cls.what} of the bench", step)
        try:
            return validate(cls.contract_type, read_json(path), str(path))
        except ConfigError as error:
            raise ModelError(error.where, error.what, "delete the folder and run its target again") from None

    @classmethod
    def load_network(cls, folder: Path, layers: int | None = None) -> tuple[Any, list[str]]:
        """Load the network of a folder; return the names of missing weights, too.

        Args:
            folder: files of transformers, with weights as safetensors.
            layers: number of first layers to use. None: all.

        Raises:
            ModelError: an unknown architecture, weights of another shape, or too few layers.
        """
        import transformers

        try:
            config = load_config(folder, layers)
            config.num_labels = cls.labels
            with torch.random.fork_rng(devices=[]):  # missing weights would use up the caller's random numbers
                network, missing = load_network(getattr(transformers, cls.auto), folder, config)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            problem = f"transformers can't load it as a {cls.what} ({short(error)})"
            raise ModelError(folder, problem, "choose a BERT-like model that it knows") from None
        return network.eval(), missing
