"""Settings of collections that are made of others by changing their texts: for ablations and positive controls."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.base import Settings


class Transform(Settings):
    """How a collection is made of others. What is drawn at random comes from the ids and the bench's seed."""

    later: ClassVar = ("groups", "vocabulary", "first", "second")
    read_with: ClassVar = {
        "words": ("kind", ("new_words",)),
        "share": ("kind", ("cipher",)),
        "groups": ("kind", ("cipher",)),
        "longest": ("kind", ("boilerplate",)),
        "vocabulary": ("kind", ("boilerplate",)),
        "shared": ("kind", ("boilerplate",)),
        "questions": ("kind", ("mix",)),
        "first": ("kind", ("join",)),
        "second": ("kind", ("join",)),
    }
    kind: Literal["new_words", "cipher", "boilerplate", "join", "mix"]
    """`new_words`: content words become invented ones, in documents and questions. `cipher`: all words of a share of
    the articles do, and of the questions about them. `boilerplate`: invented words are put before each text. `join`:
    two documents become one. `mix`: questions of several collections, with the documents of all."""
    sources: tuple[str, ...] = Field(min_length=1)
    """The collections that it is made of; one, but for `mix`."""
    words: int = Field(300, ge=1)
    """new_words: how many words are replaced, the most frequent of those in 0.2 % to 10 % of the documents."""
    share: float = Field(0.05, gt=0, le=1)
    """cipher: share of the articles, documents with the same title (those without one each for itself)."""
    groups: int = Field(7, ge=1)
    """cipher: into how many groups, by lot, the articles come that are not ciphered; the ciphered ones are another."""
    longest: int = Field(60, ge=1)
    """boilerplate: a text gets 0 to so many invented words, each number as often."""
    vocabulary: int = Field(200, ge=1)
    """boilerplate: different invented words. With few, all boilerplate points in one direction, and texts differ by
    its length."""
    shared: bool = False
    """boilerplate: a question and its relevant documents get the same words. Otherwise each text gets words
    of its own draw."""
    first: float = Field(1.0, ge=0, le=1)
    """join: share of the questions about first halves that is kept, in each split."""
    second: float = Field(1.0, ge=0, le=1)
    """join: the same of the questions about second halves."""
    questions: dict[str, Annotated[int, Field(ge=0)]] = {}
    """mix: how many questions of a split are drawn from each collection; all where one is not named."""

    @model_validator(mode="after")
    def _sources_fit(self) -> "Transform":
        if self.kind != "mix" and len(self.sources) > 1:
            raise ValueError(f"sources: {self.kind} is made of one collection, found {len(self.sources)}")
        if len({*self.sources}) < len(self.sources):
            raise ValueError(f"sources: a collection is there twice, found {list(self.sources)}")
        if unknown := sorted(self.questions.keys() - set(self.sources)):
            raise ValueError(f"questions: {', '.join(unknown)} is not among sources {list(self.sources)}")
        return self
