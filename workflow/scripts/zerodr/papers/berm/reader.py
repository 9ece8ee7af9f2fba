"""The extractive reader of question and passage, and stage `read_units`: its score of every unit (BERM eq. 2).

It gives a start and an end logit for every token of the passage. A folder of one is an ordinary question-answering
model for transformers, with `zerodr_reader.json` in it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field
from torch import Tensor

from zerodr.artifacts.parquet import list_array
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids
from zerodr.config.base import validate
from zerodr.config.params import SourceTexts
from zerodr.encoders.cross_encoder.pair_model import BARE_CALL, PairContract, PairModel, PairTokens, pair_lengths
from zerodr.encoders.inference.processor import keep_freed_memory
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.encoders.network.moving import Features, features_on
from zerodr.encoders.network.tokenizing import BARE, TOKENIZING
from zerodr.errors import ArtifactError, NonFiniteScore
from zerodr.papers.berm import unit_table
from zerodr.papers.berm.settings import Aggregation
from zerodr.papers.berm.unit_spans import first_letters
from zerodr.training.data.batches import WASTE, length_groups
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.loop.speed import speed_up
from zerodr.training.teaching.scoring import ScorePairsSettings, ScoreStore

BLOCK = 2048  # pairs between two records of progress


class ReaderContract(PairContract):
    """How a reader's predictions come about."""

    answer_tokens: int = Field(ge=1)
    """Longest answer that is predicted."""


@dataclass(frozen=True, slots=True)
class ReadTokens(PairTokens):
    """Token ids of a question and a passage; offsets (P, 2): characters [start, end) of each passage token."""

    offsets: np.ndarray


class AnswerReader(PairModel):
    """(question, passage) -> token ids -> start and end logits, by a question-answering model."""

    what, purpose = "reader", "for question answering"
    file, contract_type = "zerodr_reader.json", ReaderContract
    auto, labels = "AutoModelForQuestionAnswering", 2
    heads = ("qa_outputs",)

    @classmethod
    def contract_values(cls, settings: Any) -> dict[str, Any]:
        """Lengths of pairs and of answers."""
        return super().contract_values(settings) | {"answer_tokens": settings.answer_tokens}

    def tokenize(
        self, questions: Sequence[str], passages: Sequence[str], shared: SharedTokens | None = None
    ) -> list[ReadTokens]:
        """Ids of the pairs (questions[i], passages[i]), the passage cut where they are longer than max_tokens.

        Args:
            shared: tokens of texts that were asked for before.
        """
        shared, limit = shared or SharedTokens(), self.contract.max_tokens
        asked = shared.of(self.tokenizer, BARE_CALL, questions)
        given = shared.of(self.tokenizer, BARE_CALL, passages, self._with_offsets, 3)
        room, tokens = self.template.room(limit), []
        for question, passage in zip(asked, given, strict=True):
            pair = self.template.join(question, passage[:, 0], limit)
            read = pair_lengths(len(question), len(passage), room)[1]
            tokens.append(ReadTokens(pair.ids, pair.document, passage[:read, 1:]))
        return tokens

    def _with_offsets(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids and offsets of each text, (L, 3) int32."""
        with TOKENIZING:
            encoded = self.tokenizer(list(texts), **BARE, return_offsets_mapping=True)
        rows = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [np.c_[np.array(ids, np.int32), np.array(offsets, np.int32).reshape(-1, 2)] for ids, offsets in rows]

    def features(self, pairs: Sequence[ReadTokens]) -> Features:
        """Pad pairs as `pad` does, with `columns` (B, P): a passage's tokens, and `inside` (B, P): which it has."""
        sizes = torch.tensor([len(pair.offsets) for pair in pairs])
        firsts = torch.tensor([pair.document for pair in pairs])
        numbers = torch.arange(max(1, int(sizes.max())))
        inside = numbers < sizes[:, None]
        return self.pad(pairs) | {"columns": torch.where(inside, firsts[:, None] + numbers, 0), "inside": inside}

    def logits(self, features: Features) -> Tensor:
        """Start and end logits of passage tokens, (2, B, P) float32; -inf behind a passage's last token.

        Args:
            features: of `features`, on the device.
        """
        extra = ("columns", "inside")
        output = self.run({name: tensor for name, tensor in features.items() if name not in extra})
        both = torch.stack([output.start_logits, output.end_logits]).float()  # (2, B, L)
        columns, inside = (features[name] for name in extra)
        return both.gather(2, columns.expand(2, -1, -1)).masked_fill(~inside, -torch.inf)


class ReadUnitsSettings(ScorePairsSettings, SourceTexts):
    """Params of rule read_units."""

    aggregation: Aggregation = "sum"
    """A unit's score, of its tokens' start probabilities."""


@dataclass(frozen=True)
class ReadPairs:
    """(P,) questions, passages and their units' characters; offsets (P + 1,) of each pair's scores."""

    questions: list[str]
    passages: list[str]
    units: list[np.ndarray]
    names: list[tuple[str, str]]
    offsets: np.ndarray


def read_units(stage: Stage) -> None:
    """Inputs `reader`, `units`, `source`, optional `mined`; output `read`, in it reader_scores.parquet.

    Its columns are query, document, scores by unit. A score is made of P_start over the passage's tokens that the
    reader takes, so it is in [0, 1]. With `mined` only pairs of the queries that were mined are read.

    Raises:
        ModelError: the reader was never trained.
        ArtifactError: units of other passages.
        NonFiniteScore: names the first pair without finite scores.
    """
    settings = validate(ReadUnitsSettings, stage.params, stage.spec.name())
    os.environ.setdefault("RAYON_NUM_THREADS", str(stage.threads))  # threads of the tokenizer
    keep_freed_memory()
    torch.set_num_threads(max(1, stage.threads))
    reader = AnswerReader.load_trained(stage.path("reader"), settings.precision)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    reader.to(device)
    kernels = speed_up(reader, device, settings.precision)
    pairs, shared = load_pairs(stage, settings), SharedTokens(TOKENS)
    key = {"device": device, "torch": torch.__version__, "scores": int(pairs.offsets[-1])} | kernels.identity
    store = ScoreStore(stage.state, key)
    progress = Progress(stage.spec.name(), len(pairs.names), "pairs", int(np.searchsorted(pairs.offsets, store.done)))
    for first in range(0, len(pairs.names), BLOCK):
        rows = range(first, min(first + BLOCK, len(pairs.names)))
        if pairs.offsets[rows.stop] <= store.done:
            continue
        scores, counts = score_block(reader, pairs, rows, settings, device, shared)
        store.add(scores, counts)
        progress.add(len(rows))
    shared.close()
    progress.finish()
    lists = list_array(np.diff(pairs.offsets), pa.array(store.scores(), pa.float32()))
    queries, documents = zip(*pairs.names, strict=True)
    columns = [pa.array(queries, pa.string()), pa.array(documents, pa.string()), lists]
    pq.write_table(pa.table(columns, schema=unit_table.READ_SCHEMA), stage.output("read") / unit_table.READ)
    stage.note(
        device=device, kernels=kernels.words, pairs=len(pairs.names), units=int(pairs.offsets[-1]), **store.totals
    )


def load_pairs(stage: Stage, settings: ReadUnitsSettings) -> ReadPairs:
    """Pairs of the split with their units, in the order of its queries."""
    source, folder = stage.path("source"), stage.path("units")
    corpus = corpus_ids(source)
    mined = stage.path("mined") if "mined" in stage.spec.inputs else None
    known, units = unit_table.positives_of(source, settings.split, corpus, mined), unit_table.read_unit_spans(folder)
    texts = unit_table.passage_texts(source, np.unique(known.documents), settings.title_join)
    asked, ids = unit_table.query_texts(source, known.queries), known.queries.to_pylist()
    documents = corpus.take(pa.array(known.documents)).to_pylist()
    lacking = [key for key in documents if key not in units]
    if lacking:
        problem = f"lacks document {lacking[0]}, a positive of {source.name}"
        raise ArtifactError(folder, problem, "cut the units of this source and split")
    rows = np.repeat(np.arange(len(ids)), known.sizes).tolist()
    passage_units = [units[key] for key in documents]
    offsets = np.r_[0, np.cumsum([len(spans) for spans in passage_units])].astype(np.int64)
    return ReadPairs(
        [asked[row] for row in rows],
        [texts[key][0] for key in documents],
        passage_units,
        [(ids[row], key) for row, key in zip(rows, documents, strict=True)],
        offsets,
    )


def score_block(
    reader: AnswerReader, pairs: ReadPairs, rows: range, settings: ReadUnitsSettings, device: str, shared: SharedTokens
) -> tuple[np.ndarray, dict[str, int]]:
    """Scores of the units of some pairs, one below the other, and counts for lineage."""
    texts = [pairs.questions[row] for row in rows], [pairs.passages[row] for row in rows]
    tokens = reader.tokenize(*texts, shared)
    scores: list[np.ndarray] = [np.zeros(0, np.float32)] * len(rows)
    for group in length_groups([len(pair) for pair in tokens], WASTE[torch.device(device).type], settings.batch_pairs):
        with torch.inference_mode():
            features = reader.features([tokens[index] for index in group])
            logits = reader.logits(features_on(features, device))[0]
            starts = torch.softmax(logits, -1).cpu().numpy()
        for index, probabilities in zip(group, starts, strict=True):
            row = rows[index]
            if len(tokens[index].offsets) and not np.isfinite(probabilities).all():
                query, document = pairs.names[row]
                raise NonFiniteScore(
                    f"query {query}, document {document}",
                    "the reader gave no finite probabilities",
                    "use precision: fp32, or another reader",
                )
            scores[index] = unit_shares(
                probabilities, tokens[index], pairs.passages[row], pairs.units[row], settings.aggregation
            )
    cut = sum(
        bool(pairs.passages[row][pair.offsets[-1, 1] if len(pair.offsets) else 0 :].strip())
        for row, pair in zip(rows, tokens, strict=True)
    )
    return np.concatenate(scores).astype(np.float32), {"passages_cut": cut}


def unit_shares(
    probabilities: np.ndarray,
    pair: ReadTokens,
    text: str,
    units: np.ndarray,
    aggregation: Literal["sum", "max", "mean"] = "sum",
) -> np.ndarray:
    """Each unit's score, of the start probabilities of its tokens; 0 for a unit that the reader did not see.

    Args:
        probabilities: (P,) of the passage's tokens; later ones are ignored.
        pair: with offsets, the characters of each token.
        text: the passage.
        units: (U, 2) first and last-plus-one character of each.
    """
    letters: Sequence[int] = first_letters(text, pair.offsets.tolist())
    first = np.array(letters, np.int64)
    starts = probabilities[: len(first)]
    shares = np.zeros(len(units), np.float64)
    for number, (start, end) in enumerate(units):
        # float64: a sum of float32 probabilities depends on their order, a label on the last bit of a sum
        inside = starts[(first >= start) & (first < end)]
        if len(inside):
            shares[number] = getattr(inside.astype(np.float64), aggregation)()
    return shares
