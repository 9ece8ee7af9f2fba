"""Measure what a model gains when the one direction that marks a target's texts is taken out of its vectors.

The direction is the difference of the mean vectors of the target's documents and of the source's, that of the questions
a second one: what a linear domain classifier sees first, and what MoDIR's adversary is to hide. It is computed without
judgements and taken out of documents and questions alike, whose vectors then have length 1 again; no model trains. So
this is what `results/lab/modir-boilerplate.html` could gain, and each number of boilerplate words shows how much of its
cost lies in that direction. Run from the project's root after DPR and the two collections exist, for example

    snakemake --profile config/profiles/mini results/evaluation/dpr/squadshifts-new-wiki/standard.summary.tsv \\
        --config scale=lab offline=true gpus=0
    python benchmarks/domain_direction.py results/models/dpr/shared/ep0

Prints nDCG@10 of 1,500 questions, with each setting of the boilerplate. `--plain` leaves boilerplate out and takes
several `--target`s: what the direction is worth on each, its length on both sides, and the cosine of the documents'
direction with the questions', which need no judgements.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytrec_eval

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
INDEPENDENT = [(longest, 1, False) for longest in (0, 1, 2, 3, 6, 12)]
OF_PAIRS = [(longest, 1, True) for longest in (3, 12)] + [(12, 200, True)]
DEPTH = 20


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, help="folders of models")
    parser.add_argument("--source", default="squad-v1.1")
    parser.add_argument("--target", nargs="+", default=["squadshifts-new-wiki"])
    parser.add_argument("--plain", action="store_true", help="no boilerplate")
    parser.add_argument("--questions", type=int, default=1500)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=13)
    return parser.parse_args()


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def without(vectors: np.ndarray, directions: list[np.ndarray]) -> np.ndarray:
    """Take directions out of vectors (N, D)."""
    basis, _ = np.linalg.qr(np.stack(directions, axis=1))
    return unit(vectors - vectors @ basis @ basis.T)


class Bench:
    """Texts of source and target, and the judgements."""

    def __init__(self, chosen: argparse.Namespace, target: str) -> None:
        from zerodr.collections.access import read_qrels
        from zerodr.collections.derived import Normalized

        random = np.random.default_rng(chosen.seed)
        source = Normalized(ROOT / "results/collections" / chosen.source)
        self.target = Normalized(ROOT / "results/collections" / target)
        rows = read_qrels(ROOT / "results/collections" / target, "test")
        self.qrels: dict[str, dict[str, int]] = {}
        for query, document, grade in rows.itertuples(index=False):
            self.qrels.setdefault(query, {})[document] = int(grade)
        judged = sorted(self.qrels)
        keep = random.permutation(len(judged))[: chosen.questions]
        self.asked = {judged[number] for number in keep}
        self.seed = chosen.seed
        passages = [f"{row.title} {row.text}".strip() for row in source.documents()]
        questions = [row.text for row in source.queries()]
        self.source = [self._some(texts, 2 * chosen.questions, random) for texts in (passages, questions)]

    @staticmethod
    def _some(texts: list[str], count: int, random: np.random.Generator) -> list[str]:
        return [texts[number] for number in random.permutation(len(texts))[:count]]

    def texts(self, longest: int, vocabulary: int, shared: bool) -> tuple[dict[str, str], dict[str, str]]:
        """Return documents and questions with boilerplate, by id."""
        from zerodr.collections.transform import WithBoilerplate

        changed = WithBoilerplate(self.target, longest, vocabulary, shared, self.seed) if longest else self.target
        documents = {row.id: f"{row.title} {row.text}".strip() for row in changed.documents()}
        return documents, {row.id: row.text for row in changed.queries() if row.id in self.asked}

    def ndcg(self, documents: dict[str, np.ndarray], queries: dict[str, np.ndarray]) -> float:
        """Rank exactly, and average nDCG@10."""
        ids, vectors = list(documents), np.stack(list(documents.values()))
        scores = np.stack(list(queries.values())) @ vectors.T
        run = {}
        for query, row in zip(queries, scores, strict=True):
            run[query] = {ids[n]: float(row[n]) for n in np.argpartition(-row, DEPTH)[:DEPTH]}
        evaluator = pytrec_eval.RelevanceEvaluator({q: self.qrels[q] for q in queries}, {"ndcg_cut.10"})
        return float(np.mean([found["ndcg_cut_10"] for found in evaluator.evaluate(run).values()]))


def lengths(directions: list[np.ndarray]) -> dict[str, float]:
    """Return lengths of the documents' direction and of the questions', and their cosine."""
    documents, questions = (float(np.linalg.norm(direction)) for direction in directions)
    cosine = float(directions[0] @ directions[1]) / (documents * questions)
    return {"of documents": round(documents, 3), "of questions": round(questions, 3), "cosine": round(cosine, 3)}


def measured(
    bench: Bench, folder: Path, tokens: int, settings: list[tuple[int, int, bool]]
) -> Iterator[dict[str, object]]:
    """Yield a row for each setting of the boilerplate."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = tokens

    def encode(texts: list[str]) -> np.ndarray:
        return model.encode(texts, batch_size=64, show_progress_bar=False)

    means = [encode(texts).mean(axis=0) for texts in bench.source]
    for longest, vocabulary, shared in settings:
        texts = bench.texts(longest, vocabulary, shared)
        vectors = [encode(list(side.values())) for side in texts]
        directions = [side.mean(axis=0) - mean for side, mean in zip(vectors, means, strict=True)]
        row: dict[str, object] = {
            "words": f"0 to {longest}, {'of pairs' if shared else 'independent'}" if longest else "none",
            "different": vocabulary if longest else 0,
        } | lengths(directions)
        for name, chosen in {"as it is": [], "documents' out": directions[:1], "both out": directions}.items():
            seen = [without(side, chosen) if chosen else side for side in vectors]
            row[name] = round(bench.ndcg(*(dict(zip(t, v, strict=True)) for t, v in zip(texts, seen, strict=True))), 4)
        yield row


def main() -> None:
    """Print a table for each model and target."""
    chosen = arguments()
    settings = INDEPENDENT[:1] if chosen.plain else INDEPENDENT + OF_PAIRS
    for target in chosen.target:
        bench = Bench(chosen, target)
        for folder in chosen.models:
            frame = pd.DataFrame(measured(bench, folder, chosen.tokens, settings))
            sys.stdout.write(f"{folder} on {target}\n{frame.to_string(index=False)}\n\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
