"""Find the training queries of a method that are next to a text: by common words, over all queries that were mined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zerodr.collections.access import read_qrels, split_queries
from zerodr.errors import ArtifactError
from zerodr.lexical.light import LightIndex
from zerodr.lineage.graph import Graph
from zerodr.lookup.documents import Documents
from zerodr.lookup.sources import FUSION, LEXICAL, Source
from zerodr.plan.rules import facts_of

MOST_QUERIES = 200_000
POSITIVES = 3  # titles of positives that are shown


class Neighbours:
    """The training queries of one method.

    Args:
        source: folder of the collection with supervision.
        split: of its queries.
        language: of its texts.
    """

    def __init__(self, source: Path, split: str, language: str = "en") -> None:
        queries = split_queries(source, split).head(MOST_QUERIES)
        self.ids, self.texts = queries["id"].tolist(), queries["text"].tolist()
        self.index = LightIndex.build(self.texts, language=language)
        self.how = f"{len(self.texts)} training queries of {source.name}/{split}, by common words"
        self._positives = _positives(source, split)
        self._documents = Documents(source)

    @classmethod
    def of(cls, source: Source, graph: Graph) -> Neighbours:
        """Return the training queries of the model of a source.

        Raises:
            ArtifactError: it was not trained in this checkout, or its queries are gone.
        """
        if source.kind == FUSION:
            raise ArtifactError(
                source.name, "joins two methods", f"choose {' or '.join(h.name for h in source.halves)}"
            )
        if source.kind == LEXICAL:
            raise ArtifactError(source.name, "is not trained", "choose a trained method")
        for artifact in reversed(graph.ancestors(*source.inputs["model"])):
            record = graph.record(artifact)
            if record and facts_of(record["rule"]).kind == "mine":
                params, inputs = record["spec"]["params"], {i["name"]: i["path"] for i in record["inputs"]}
                folder = Path(inputs["source"]).parent
                if (folder / "corpus.parquet").exists():
                    return cls(folder, params["split"])
        raise ArtifactError(source.name, "was not trained in this checkout", "choose a method that was")

    def near(self, text: str, count: int) -> list[dict[str, Any]]:
        """Return the nearest queries: `id`, `text`, `score`, `positives` (titles or first words)."""
        (hits,) = self.index.search_texts([text], count)
        rows = []
        for number, score in zip(hits.documents.tolist(), hits.scores.tolist(), strict=True):
            key = self.ids[number]
            positives = [title or body[:80] for title, body in self._documents.texts(self._positives.get(key, []))]
            rows.append({"id": key, "text": self.texts[number], "score": round(score, 3), "positives": positives})
        return rows


def _positives(source: Path, split: str) -> dict[str, list[str]]:
    """Map queries to their first positives."""
    qrels = read_qrels(source, split)
    positive = qrels[qrels["grade"] > 0]
    return {key: rows["document"].head(POSITIVES).tolist() for key, rows in positive.groupby("query", sort=False)}
