"""Stage `segment_units`: the passages that are some query's positive, cut into units  # BERM eq. 1

Units are kept as characters of the passage and as tokens of the model that will train on it. What decides the tokens
(tokenizer, length, prefix, title join) is in statistics.json, and training refuses units made for other tokens.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.parquet import GroupWriter
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids
from zerodr.config.base import validate
from zerodr.config.params import SourceTexts
from zerodr.encoders.folder.contract import SIDES, EncoderContract, read_contract
from zerodr.encoders.network.tokenizing import load_tokenizer, lower_within
from zerodr.errors import CollectionError, ModelError
from zerodr.mining.positives import known_positives
from zerodr.papers.berm.settings import CutSettings, TextCut
from zerodr.papers.berm.unit_spans import Token, Unit, by_count, by_full_stop, by_spans, merged, rule_spans
from zerodr.papers.berm.unit_table import SPAN_COLUMNS, STATISTICS, UNIT_SCHEMA, UNITS, joined, passages_of, token_facts

log = logging.getLogger("zerodr")
ROW_GROUP = 4096
FULL_STOP = "."
MANY = 10  # histogram: this many units or more


class SegmentSettings(SourceTexts):
    """Params of rule segment_units."""

    cut: CutSettings
    """Cutting of passages."""


@dataclass
class CutTally:
    """Counts of passages and their units."""

    counts: Counter[int] = field(default_factory=Counter)
    tokens: int = 0
    truncated: int = 0
    one_sentence: int = 0
    lost: int = 0
    merged: int = 0

    def facts(self) -> dict[str, Any]:
        """Return counts, means and a histogram of units of a passage, as JSON values."""
        passages, units = sum(self.counts.values()), sum(n * times for n, times in self.counts.items())
        shown = {str(n): self.counts[n] for n in range(MANY)}
        shown[f"{MANY} or more"] = sum(times for n, times in self.counts.items() if n >= MANY)
        return {
            "passages": passages,
            "units": units,
            "units_per_passage": units / max(passages, 1),
            "tokens_per_unit": self.tokens / max(units, 1),
            "histogram_units": shown,
            "without_unit": self.counts[0],
            "with_one_unit": self.counts[1],
            "with_units": sum(times for n, times in self.counts.items() if n > 1),
            "without_boundary": self.one_sentence,
            "truncated": self.truncated,
            "units_lost_by_truncation": self.lost,
            "merged_into_last": self.merged,
        }


def segment_units(stage: Stage) -> None:
    """Inputs `source`, `model` (whose tokens count); output `units`: units.parquet and statistics.json.

    Raises:
        CollectionError: no passage has two units, so that nothing can be learned from them.
        ModelError: the tokenizer can't tell characters, or knows no full stop that full_stop could look for.
    """
    settings = validate(SegmentSettings, stage.params, stage.spec.name())
    source, folder = stage.path("source"), stage.output("units")
    cutter = UnitCutter.load(stage.path("model"), settings.cut, settings.title_join)
    corpus = corpus_ids(source)
    wanted = np.unique(known_positives(source, settings.split, corpus).documents)
    progress = Progress(f"units of {source.name}/{settings.split}", len(wanted), "passages")
    with GroupWriter(folder / UNITS, UNIT_SCHEMA, ROW_GROUP, []) as writer:
        for ids, titles, texts in passages_of(source, wanted):
            writer.write(_table(ids, cutter.cut(titles, texts)))
            progress.add(len(ids))
    progress.finish()
    facts = cutter.tally.facts()
    if not facts["with_units"]:
        raise CollectionError(
            f"{source.name}/{settings.split}",
            f"none of its {facts['passages']} positives has two "
            f"units ({facts['without_unit']} have none) with segmenter {settings.cut.segmenter}",
            "take another segmenter (fixed_tokens), or longer passages",
        )
    about = {"collection": source.name, "split": settings.split, "made_for": cutter.token_facts}
    write_json(folder / STATISTICS, about | facts)
    stage.note(statistics=facts, made_for=cutter.token_facts)
    stage.numbers(facts)
    if facts["without_unit"]:
        without = f"{facts['without_unit']} of {facts['passages']} passages have no unit"
        log.warning("%s: %s (no sentence boundary that the segmenter sees)", source.name, without)
    if facts["units_lost_by_truncation"]:
        lost = f"{facts['units_lost_by_truncation']} units are lost, they lie behind the first"
        cuts = f"({facts['truncated']} of {facts['passages']} passages are truncated)"
        log.warning("%s: %s %d tokens of a passage %s", source.name, lost, cutter.token_facts["tokens"], cuts)


@dataclass
class UnitCutter:
    """Cuts passages into units."""

    tokenizer: Any
    contract: EncoderContract
    settings: CutSettings
    title_join: str | None
    tally: CutTally = field(default_factory=CutTally)

    @classmethod
    def load(cls, model: Path, settings: CutSettings, title_join: str | None) -> UnitCutter:
        """With the tokenizer of a model folder.

        Raises:
            ModelError: see `segment_units`.
        """
        contract = read_contract(model)
        tokenizer = load_tokenizer(model if contract.towers == "tied" else model / SIDES[1])
        check_tokenizer(model, tokenizer, settings)
        return cls(tokenizer, contract, settings, title_join)

    @property
    def token_facts(self) -> dict[str, Any]:
        """Facts that decide the tokens."""
        return token_facts(self.contract, self.tokenizer, self.title_join)

    def cut(self, titles: Sequence[str], texts: Sequence[str]) -> list[list[Unit]]:
        """Units of each passage."""
        whole = [joined(title, text, self.title_join) for title, text in zip(titles, texts, strict=True)]
        tokens = self._tokens([text for text, _ in whole])
        return [self._units(*text, text_tokens) for text, text_tokens in zip(whole, tokens, strict=True)]

    def _tokens(self, texts: Sequence[str]) -> list[list[Token]]:
        """Tokenise texts, cut at the model's limit; special tokens, which have no characters, are left out."""
        prefix, limit = self.contract.prefix("document"), self.contract.tokens("document")
        if self.contract.lowercase:
            lower_within(self.tokenizer)  # as training does: special tokens in a text stay as they are
        encoded = self.tokenizer(
            [prefix + text for text in texts],
            truncation=True,
            max_length=limit,
            padding=False,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        rows = zip(texts, encoded["input_ids"], encoded["offset_mapping"], encoded["special_tokens_mask"], strict=True)
        return [self._of_text(text, *row) for text, *row in rows]

    def _of_text(self, text: str, ids: list[int], offsets: list[tuple[int, int]], special: list[int]) -> list[Token]:
        """Tokens with offsets in the text as it was before prefix and lower case."""
        shift, tokens = len(self.contract.prefix("document")), []
        for index, (number, (start, end), skipped) in enumerate(zip(ids, offsets, special, strict=True)):
            start, end = max(start - shift, 0), end - shift
            if not skipped and end > start:
                tokens.append(Token(index, number, start, end))
        return tokens

    def _units(self, text: str, begin: int, tokens: list[Token]) -> list[Unit]:
        settings, tally = self.settings, self.tally
        read = tokens[-1].end if tokens else 0
        tally.truncated += bool(text[read:].strip())
        if settings.segmenter == "rule":
            spans = rule_spans(text, begin)
            units = by_spans(tokens, spans, text)
            there = sum(bool(text[start:end].strip()) for start, end in spans)
            tally.lost += there - len(units)
            tally.one_sentence += there == 1
        else:
            body = [token for token in tokens if token.start >= begin]
            units = by_tokens(body, settings, self.tokenizer)
            tally.one_sentence += len(units) < 2
        long = [unit for unit in units if unit.stop - unit.first >= settings.min_tokens]
        limited = merged(long, settings.max_units)
        tally.merged += len(long) - len(limited)
        tally.counts[len(limited)] += 1
        tally.tokens += sum(unit.stop - unit.first for unit in limited)
        return limited


def check_tokenizer(where: object, tokenizer: Any, settings: TextCut) -> None:
    """Check that a tokenizer's tokens can be assigned to units.

    Raises:
        ModelError: it can't tell characters, or knows no full stop that full_stop could look for.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(where, "its tokenizer can't tell the characters of a token", "add a tokenizer.json")
    if settings.segmenter == "full_stop" and FULL_STOP not in tokenizer.get_vocab():
        raise ModelError(
            where, "its tokenizer has no token for a full stop, which full_stop looks for", "take segmenter: rule"
        )


def text_units(text: str, tokens: list[Token], settings: TextCut, tokenizer: Any) -> list[Unit]:
    """Units of a text whose tokens are `tokens`."""
    rule = settings.segmenter == "rule"
    units = by_spans(tokens, rule_spans(text), text) if rule else by_tokens(tokens, settings, tokenizer)
    return merged([unit for unit in units if unit.stop - unit.first >= settings.min_tokens], settings.max_units)


def by_tokens(tokens: list[Token], settings: TextCut, tokenizer: Any) -> list[Unit]:
    """Units by the segmenters that look at tokens alone."""
    if settings.segmenter == "full_stop":
        return by_full_stop(tokens, tokenizer.convert_tokens_to_ids(FULL_STOP))
    assert settings.tokens_per_unit is not None, "checked by TextCut"
    return by_count(tokens, settings.tokens_per_unit)


def lowered_offsets(text: str) -> list[int]:
    """Offset in the text of each character of its lower-cased form (which may be longer)."""
    return [index for index, letter in enumerate(text) for _ in letter.lower()]


def _table(ids: list[str], units: list[list[Unit]]) -> pa.Table:
    columns = {
        name: pa.array([[unit[at] for unit in passage_units] for passage_units in units], UNIT_SCHEMA.field(name).type)
        for at, name in enumerate(SPAN_COLUMNS)
    }
    return pa.table({"document": pa.array(ids, pa.string())} | columns, schema=UNIT_SCHEMA)
