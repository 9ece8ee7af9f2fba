"""Label augmentation documents: positives by labels and attention, negatives from the augmenter's own ranking.

D^{a+} = D^{s+} and the N documents with the most attention; D^{a-} from the ranking of the mixture, without D^{a+}
(MoMA eq. 10 and 12). Pure functions of one query's lists.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from zerodr.artifacts.trec import strings
from zerodr.collections.access import corpus_ids, read_qrels
from zerodr.collections.memories import COLON


def banned_documents(folder: Path, split: str, source: str) -> dict[str, set[str]]:
    """Namespaced documents of the corpus that are judged relevant, by query."""
    qrels = read_qrels(folder, split)
    judged = qrels[qrels["grade"] > 0]
    there = pc.is_in(strings(judged["document"]), value_set=corpus_ids(folder)).to_numpy(zero_copy_only=False)
    relevant: dict[str, set[str]] = {}
    for query, document in judged.loc[there, ["query", "document"]].itertuples(index=False):
        relevant.setdefault(query, set()).add(f"{source}{COLON}{document}")
    return relevant


def most_attended(documents: Sequence[str], attention: Sequence[float], count: int) -> list[str]:
    """The `count` documents with the most attention; of equal ones the earlier retrieved."""
    order = np.argsort(-np.asarray(attention, np.float64), kind="stable")
    return [documents[index] for index in order[:count]]


def positives_of(
    labelled: Sequence[str], documents: Sequence[str], attention: Sequence[float], selected: int
) -> list[str]:
    """D^{a+}: labelled documents, then the `selected` most attended ones, each once."""
    return list(dict.fromkeys([*labelled, *most_attended(documents, attention, selected)]))


def negative_ranks(ranking: Sequence[str], positives: Sequence[str], unselected: Sequence[str] = ()) -> np.ndarray:
    """Ranks (from 1) of a ranking's documents that may be negatives, int64.

    Args:
        unselected: documents that are kept out beside the positives.
    """
    out = {*positives, *unselected}
    return np.array([rank for rank, document in enumerate(ranking, 1) if document not in out], np.int64)
