"""Settings of queries that are made from a target's documents, so that a stage learns without judgements."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from zerodr.config.base import Settings

Form = Literal["sentences", "titles", "phrases"]


class GenerateSettings(Settings):
    """Queries made from the target's documents; they take the place of the source's queries."""

    forms: tuple[Form, ...] = Field(("sentences",), min_length=1)
    """`sentences` of the texts, `titles`, or `phrases`: some neighbouring words of a sentence. Of several forms
    each gives an equal share, as far as there are enough."""
    count: int = Field(8000, ge=1)
    """Upper limit of queries, drawn evenly from the documents."""
    least_words: int = Field(5, ge=1)
    """Shorter sentences are left out."""
    phrase_words: tuple[int, int] = (2, 6)
    """Fewest and most words of a phrase."""
    positives: Literal["origin", "ranked"] = "origin"
    """`origin`: the document that a query was made from is its positive. `ranked`: that document is left out, and the
    first of the ranking that negatives come from takes its place; the order then comes from a teacher."""

    @model_validator(mode="after")
    def _possible(self) -> GenerateSettings:
        if len(set(self.forms)) < len(self.forms):
            raise ValueError("forms names one twice")
        if not 1 <= self.phrase_words[0] <= self.phrase_words[1]:
            raise ValueError(f"phrase_words are the fewest and the most words, found {list(self.phrase_words)}")
        return self
