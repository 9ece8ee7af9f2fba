"""Name samples of training queries. A ranking of a sample has the sample's name where one of all has its split's.

The name holds all that decides the draw. So stages with the same draw share one ranking, in whichever recipe they are.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from zerodr.plan import paths

SUFFIX = r"\.sample\d+-stage\d+-dev\d+-seed\d+"
NAME = re.compile(r"(.+)\.sample(\d+)-stage(\d+)-dev(\d+)-seed(\d+)")


class Sample(NamedTuple):
    """A draw of training queries.

    Attributes:
        split: of the queries.
        queries: how many are drawn.
        stage_index: position in its chain of the stage that mines them; each draws others.
        dev_queries: queries that training holds out, which are ranked too.
        seed: of the draw.
    """

    split: str
    queries: int
    stage_index: int
    dev_queries: int
    seed: int

    @property
    def name(self) -> str:
        """The name in paths of rankings."""
        return paths.sampled(*self)


def read_name(name: str) -> Sample | None:
    """Read the name of a sample; None for that of a split."""
    if (match := NAME.fullmatch(name)) is None:
        return None
    split, *numbers = match.groups()
    return Sample(split, *map(int, numbers))


def split_of(name: str) -> str:
    """Find the split of a sample's name; a split's is itself."""
    sample = read_name(name)
    return name if sample is None else sample.split


def ranked_share(name: str, splits: Mapping[str, int | None]) -> float:
    """Estimate which share of a split's queries a ranking has, 1 where the split's size is unknown.

    Args:
        name: of a sample or a split.
        splits: number of queries by split.
    """
    sample = read_name(name)
    total = 0 if sample is None else splits.get(sample.split) or 0
    return min(1.0, (sample.queries + sample.dev_queries) / total) if sample and total else 1.0
