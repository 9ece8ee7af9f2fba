"""Define every error that a user can cause. One sentence each: what, where, expected, found, next step."""

import difflib
from collections.abc import Iterable


class ZerodrError(Exception):
    """Base of all errors that end as one clear message instead of a traceback.

    Args:
        where: the object at fault, as the user knows it (`arguana/test`, a path, a key).
        what: what is wrong, with expected and found values.
        next_step: what the user can do about it.
    """

    def __init__(self, where: object, what: str, next_step: str = "") -> None:
        self.where, self.what, self.next_step = str(where), what, next_step
        super().__init__(str(self))

    def __str__(self) -> str:
        tail = f": {self.next_step}" if self.next_step else ""
        return f"{type(self).__name__}: {self.where}: {self.what}{tail}"

    def __reduce__(self) -> tuple:
        return type(self), (self.where, self.what, self.next_step)


class ConfigError(ZerodrError):
    """A key, name or value in `config/` or on the command line."""


class CollectionError(ZerodrError):
    """A collection's content contradicts its registry row or its format."""


class DownloadError(ZerodrError):
    """An archive can't be fetched or fails its checksum."""


class ArtifactError(ZerodrError):
    """An artifact is missing, damaged or of another kind than expected."""


class ModelError(ZerodrError):
    """A model folder can't be used as an encoder."""


class NonFiniteEmbedding(ZerodrError):
    """An encoder produced NaN or infinity for a text."""


class NonFiniteScore(ZerodrError):
    """A cross-encoder produced NaN or infinity for a (query, document) pair."""


class NonFiniteLoss(ZerodrError):
    """A training step produced a loss or gradient that is NaN or infinite."""


class ClassifierDiverged(ZerodrError):
    """The domain classifier of an adversarial training has NaN, infinity or an absurd loss."""


class ProtocolError(ZerodrError):
    """Texts, runs or numbers of different protocols would be mixed."""


class MachineError(ZerodrError):
    """The machine lacks something that a stage needs (Java, disk, GPU, permissions)."""


SHOWN = 8


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest a next step for an unknown `name`: the closest known names; of few, all of them."""
    names = sorted(map(str, known))
    close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    if len(names) > SHOWN:
        return f"the nearest of {len(names)}: " + ", ".join(difflib.get_close_matches(str(name), names, 3, cutoff=0))
    return "known: " + ", ".join(names) if names else "none are known"
