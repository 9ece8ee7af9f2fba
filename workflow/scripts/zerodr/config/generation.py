"""Settings of queries that are made from a target's documents, so that a stage learns without judgements."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.base import Settings

Form = Literal["sentences", "titles", "phrases", "questions"]


class WriterSettings(Settings):
    """The language model that writes questions (GenQ, GPL), and which of its questions are used."""

    later: ClassVar = ("each",)
    model: str
    """A folder, `organization/name`, or `package:<module>` of a package that holds a GGUF file. An encoder-decoder was
    trained to write questions; a decoder is shown three examples."""
    revision: str | None = None
    """Hub revision."""
    precision: Literal["fp32", "bf16"] = "bf16"
    """Arithmetic. A processor that is slower in bf16 takes fp32."""
    each: tuple[int, int] = (1, 1)
    """Fewest and most questions of a document: as many as give `count` questions of all documents, within these."""
    batch_passages: int = Field(16, ge=1)
    """Questions that are written together."""
    passage_tokens: int = Field(128, ge=8)
    """Tokens of a document that are read."""
    question_tokens: int = Field(32, ge=4)
    """Upper limit of a question."""
    temperature: float = Field(0.7, gt=0)
    """Divides the logits."""
    top_p: float = Field(0.9, gt=0, le=1)
    """Share of the likeliest tokens that are drawn from."""
    words: tuple[int, int] = (3, 24)
    """Fewest and most words of a question that is used."""
    round_trip: int | None = Field(None, ge=1)
    """Use a question where BM25 ranks its document among so many. None: use all."""

    @model_validator(mode="after")
    def _possible(self) -> WriterSettings:
        if not 1 <= self.words[0] <= self.words[1]:
            raise ValueError(f"words are the fewest and the most words, found {list(self.words)}")
        if not 1 <= self.each[0] <= self.each[1]:
            raise ValueError(f"each is the fewest and the most questions of a document, found {list(self.each)}")
        return self


class GenerateSettings(Settings):
    """Queries made from the target's documents; they take the place of the source's queries."""

    read_with: ClassVar = {
        "least_words": ("forms", ("sentences", "phrases")),
        "phrase_words": ("forms", ("phrases",)),
    }
    forms: tuple[Form, ...] = Field(("sentences",), min_length=1)
    """`sentences` of the texts, `titles`, `phrases`: some neighbouring words of a sentence, or `questions`, which a
    language model writes. Of several forms each gives an equal share, as far as there are enough."""
    count: int = Field(8000, ge=1)
    """Upper limit of queries, drawn evenly from the documents."""
    least_words: int = Field(5, ge=1)
    """Shorter sentences are left out."""
    phrase_words: tuple[int, int] = (2, 6)
    """Fewest and most words of a phrase."""
    writer: WriterSettings | None = None
    """For the form `questions`: a language model writes them, `each` for a document."""
    positives: Literal["origin", "ranked"] = "origin"
    """`origin`: the document that a query was made from is its positive. `ranked`: that document is left out, and the
    first of the ranking that negatives come from takes its place; the order then comes from a teacher."""

    @model_validator(mode="after")
    def _possible(self) -> GenerateSettings:
        if len(set(self.forms)) < len(self.forms):
            raise ValueError("forms names one twice")
        if ("questions" in self.forms) != (self.writer is not None):
            raise ValueError("the form questions and `writer` go together: give both or none")
        if not 1 <= self.phrase_words[0] <= self.phrase_words[1]:
            raise ValueError(f"phrase_words are the fewest and the most words, found {list(self.phrase_words)}")
        return self
