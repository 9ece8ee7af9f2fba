"""Read what the audits of a collection found that changes a measure, as counts for summaries and words for tables."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from zerodr.collections.access import JUDGEMENTS, QUERIES

WORDS = {  # by their names in a summary
    "n_dropped_judgements": "judgements of absent documents or queries, which are dropped",
    "n_lost_queries": "queries whose positive judgements were all dropped, which are left out",
    "n_conflicting_judgements": "judgements of a pair that had another grade before, of which the last counts",
    "n_repeated_judgements": "judgements that are there twice",
    "n_empty_documents": "documents without a text, which a bi-encoder can return",
    "n_repaired_texts": "texts with half a character, replaced by U+FFFD",
    "n_equal_documents": "documents whose text another one has too, so that ids decide their order",
    "n_equal_judged": "judged documents among them",
    "n_identical_documents": "queries that are documents (same id and text) and find themselves; leave these out by "
    "--config byo_exclude_self=true",
    "n_equal_queries": "queries whose text another one has, too; a table counts each, zerodr adapt their mean as one",
    "n_copied_queries": "queries whose text is that of a document with another id",
    "n_own_relevant": "relevant documents that have their query's id and are left out of its ranking, so that they "
    "count as not found: where the ids are equal by chance, leave byo_exclude_self out",
}


class Finding(NamedTuple):
    """A count of what was found, and of what was looked at."""

    cases: int
    total: int


def count_excluded(qrels: pd.DataFrame, exclude_self: bool) -> dict[str, Finding]:
    """Count the judgements that call a query's own document relevant where the search leaves it out."""
    relevant = qrels[qrels["grade"] > 0]
    count = int((relevant["query"] == relevant["document"]).sum()) if exclude_self else 0
    return {"n_own_relevant": Finding(count, len(relevant))} if count else {}


def read_findings(collection: Path, split: str, exclude_self: bool) -> dict[str, Finding]:
    """Read the findings of a collection and the judgements of a split; a name of WORDS is absent where there are none.

    Args:
        collection: folder of a normalised collection, or of a user's own.
        split: of the judgements.
        exclude_self: the search leaves out the document with the query's id.
    """
    facts: dict[str, Any] = {}
    for folder in (collection, collection / QUERIES, collection / JUDGEMENTS):
        if (folder / "audit.json").exists():
            facts |= json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    judged: dict[str, int] = facts.get("splits", {}).get(split, {})
    documents, asked, lost = facts.get("documents", 0), judged.get("queries", 0), judged.get("lost_queries", 0)
    stated, repeated = judged.get("judgements", 0) + judged.get("dropped", 0), judged.get("repeated", 0)
    conflicting = judged.get("conflicting", 0)
    counts = {
        "n_dropped_judgements": (judged.get("dropped", 0), stated),
        "n_lost_queries": (lost, judged.get("queries_with_positive", 0) + lost),
        "n_conflicting_judgements": (conflicting, stated + repeated),
        "n_repeated_judgements": (repeated - conflicting, stated + repeated),
        "n_empty_documents": (facts.get("empty_documents", {}).get("count", 0), documents),
        "n_repaired_texts": (
            facts.get("repaired_documents", 0) + facts.get("repaired_queries", 0),
            documents + facts.get("queries", 0),
        ),
        "n_equal_documents": (judged.get("equal_documents", 0), documents),
        "n_equal_judged": (judged.get("equal_judged", 0), judged.get("judged_documents", 0)),
        "n_identical_documents": (0 if exclude_self else judged.get("identical_documents", 0), asked),
        "n_equal_queries": (judged.get("equal_queries", 0), asked),
        "n_copied_queries": (judged.get("copied_queries", 0), asked),
    }
    return {name: Finding(*pair) for name, pair in counts.items() if pair[0]}
