"""Stage `measure_units`: BERM's tables 5 and 6 for one model, over the units and labels of its training.

Balance, extractability, dispersion and orthogonality are pure functions of arrays: P pairs, U units at most, D
components; `valid` (P, U) says which units there are.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from pydantic import Field
from scipy.special import erf

from zerodr.artifacts.parquet import open_parquet
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids
from zerodr.config.base import validate
from zerodr.config.training import JoinedTexts
from zerodr.encoders.network.moving import features_on, on_device
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError
from zerodr.mining.positives import rows_among
from zerodr.papers.berm import unit_table
from zerodr.papers.berm.losses import pool_units
from zerodr.papers.berm.settings import UnitSpace
from zerodr.papers.berm.training import check_space
from zerodr.papers.berm.unit_scores import IGNORED
from zerodr.training.data.batches import length_groups
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.dev import embed_texts

SAMPLE, BATCH, WASTE = 5, 64, 512
BLOCK = 256  # pairs that are measured at once
Spans = list[np.ndarray]
Matching = Literal["raw", "scaled"]


def unit_dots(vectors: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Inner product of a vector with each unit. (P, D), (P, U, D) -> (P, U) float64."""
    return np.einsum("pd,pud->pu", vectors.astype(np.float64), units.astype(np.float64))


def balance_variance(scores: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Population variance over a passage's units of its raw similarity with them, (P,)  # table 5, Var."""
    counts = np.maximum(valid.sum(1), 1)
    means = np.where(valid, scores, 0.0).sum(1) / counts
    return np.where(valid, (scores - means[:, None]) ** 2, 0.0).sum(1) / counts


def relative_variance(scores: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Divide `balance_variance` by the mean square of the similarities: independent of vector lengths, (P,)."""
    squares = np.where(valid, scores**2, 0.0).sum(1) / np.maximum(valid.sum(1), 1)
    return balance_variance(scores, valid) / np.maximum(squares, np.finfo(np.float64).tiny)


def extracted(
    queries: np.ndarray,
    passages: np.ndarray,
    units: np.ndarray,
    valid: np.ndarray,
    labels: np.ndarray,
    matching: Matching = "raw",
) -> np.ndarray:
    """Test whether GELU(query * passage) is nearest to the essential unit, (P,) bool  # table 5, Acc."""
    queries, passages = queries.astype(np.float64), passages.astype(np.float64)
    if matching == "scaled":  # as R2 of such a model: vectors of length sqrt(D)
        lengths = [np.linalg.norm(rows, axis=1, keepdims=True) / rows.shape[1] ** 0.5 for rows in (queries, passages)]
        queries, passages = queries / lengths[0], passages / lengths[1]
    product = queries * passages
    vectors = product * 0.5 * (1.0 + erf(product / np.sqrt(2.0)))
    scores = np.where(valid, unit_dots(vectors, units), -np.inf)
    return scores.argmax(1) == labels


def random_guess(valid: np.ndarray) -> np.ndarray:
    """Probability that a unit drawn at random is the essential one, (P,)."""
    return 1.0 / np.maximum(valid.sum(1), 1)


def absolute_cosine(units: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Mean |cosine| of two different units of a passage, (P,); 0 means orthogonal; NaN for fewer than two units."""
    rows = units.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    rows = np.where(valid[..., None], rows / np.maximum(lengths, np.finfo(np.float64).tiny), 0.0)
    cosines = np.abs(np.einsum("pud,pvd->puv", rows, rows))
    diagonal = np.einsum("puu->p", cosines)
    counts = valid.sum(1)
    pairs = counts * (counts - 1)
    return np.where(pairs > 0, (cosines.sum((1, 2)) - diagonal) / np.maximum(pairs, 1), np.nan)


def two_axes(points: np.ndarray) -> np.ndarray:
    """The first two principal axes of points (N, D), (D, 2); signs are such that an axis's largest part is positive."""
    centred = points.astype(np.float64) - points.astype(np.float64).mean(0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :2]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    return axes * np.where(signs == 0, 1.0, signs)


def dispersion(units: np.ndarray, valid: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    """Variance of a passage's units along each of two principal axes of all units, (P, 2)  # table 6

    The paper's projection and unit are not known: compare models, not papers. `axes` (D, 2): None, those of `units`.
    """
    projected = units.astype(np.float64) @ (two_axes(units[valid]) if axes is None else axes)
    return np.stack([balance_variance(projected[..., axis], valid) for axis in (0, 1)], 1)


def mean_with_interval(values: np.ndarray) -> dict[str, float]:
    """Mean over passages that have a value, with a 95 % interval of the normal approximation."""
    known = values[np.isfinite(values)].astype(np.float64)
    mean = float(known.mean()) if len(known) else float("nan")
    wide = float(1.96 * known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("nan")
    return {"mean": mean, "low": mean - wide, "high": mean + wide, "count": len(known)}


class MeasureUnitsSettings(JoinedTexts):
    """Params of rule measure_units."""

    pairs: int = Field(10000, ge=1)
    """Pairs with an essential unit that are looked at (a seeded sample)."""
    matching: Matching = "raw"
    """Form of the matching vector: that of the model's R2."""
    unit_space: UnitSpace = "raw"
    """Space of the units: that of the model's losses."""


def measure_units(stage: Stage) -> None:
    """Inputs `model`, `source`, `units`, `labels`; output `measures`, a table (measure, mean, low, high, count).

    Raises:
        ArtifactError: units of other tokens than the model reads, or no pair with an essential unit.
        ModelError: a model without token states, or of another size than these, with units in raw space.
    """
    settings = validate(MeasureUnitsSettings, stage.params, stage.spec.name())
    torch.set_num_threads(max(1, stage.threads))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = BiEncoder.load(stage.path("model")).to(device)
    unit_table.check_tokens(stage.path("units"), stage.path("labels"), model, settings.title_join)
    check_space(model, settings.unit_space)
    head = settings.unit_space == "head"
    queries, documents, labels = sampled(stage, settings.pairs)
    asked = unit_table.query_texts(stage.path("source"), pa.array(queries))
    wanted = list(dict.fromkeys(documents))
    passages, units, valid = embedded(model, *passages_with_units(stage, wanted, settings.title_join), device, head)
    numbers = {key: row for row, key in enumerate(wanted)}
    rows = np.array([numbers[key] for key in documents], np.int64)
    asked_vectors = embed_texts(model, asked, "query", device, Group()).cpu().numpy()
    results = measures(asked_vectors, passages[rows], units[rows], valid[rows], labels, settings.matching)
    lines = ["measure\tmean\tlow\thigh\tcount"]
    for name, values in results.items():
        interval = mean_with_interval(values)
        stage.metric(name, interval["mean"])
        bounds = (f"{interval[key]:.6g}" for key in ("mean", "low", "high"))
        lines.append("\t".join([name, *bounds, str(interval["count"])]))
    stage.output("measures").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stage.note(pairs=len(labels), passages=len(wanted), device=device)


def measures(
    queries: np.ndarray,
    passages: np.ndarray,
    units: np.ndarray,
    valid: np.ndarray,
    labels: np.ndarray,
    matching: Matching = "raw",
) -> dict[str, np.ndarray]:
    """Every measure by pair, (P,) each; pairs of as many units together, as most passages have few of the most."""
    axes, order = two_axes(units[valid]), np.argsort(valid.sum(1), kind="stable")
    blocks = np.array_split(order, -(-len(order) // BLOCK))
    measured = [_of_block(queries, passages, units, valid, labels, matching, axes, rows) for rows in blocks]
    back = np.argsort(order)
    return {name: np.concatenate([block[name] for block in measured])[back] for name in measured[0]}


def _of_block(
    queries: np.ndarray,
    passages: np.ndarray,
    units: np.ndarray,
    valid: np.ndarray,
    labels: np.ndarray,
    matching: Matching,
    axes: np.ndarray,
    rows: np.ndarray,
) -> dict[str, np.ndarray]:
    """Measure the pairs `rows`, without the columns that none of them has a unit in."""
    most = 1 + int(np.flatnonzero(valid[rows].any(0)).max(initial=0))
    queries, passages, units, valid = queries[rows], passages[rows], units[rows, :most], valid[rows, :most]
    scores, spread = unit_dots(passages, units), dispersion(units, valid, axes)
    right = extracted(queries, passages, units, valid, labels[rows], matching)
    return {
        "balance_variance": balance_variance(scores, valid),
        "relative_balance_variance": relative_variance(scores, valid),
        "extractability_accuracy": right.astype(np.float64),
        "random_accuracy": random_guess(valid),
        "dispersion_x": spread[:, 0],
        "dispersion_y": spread[:, 1],
        "absolute_cosine": absolute_cosine(units, valid),
        "passage_norm": np.linalg.norm(passages.astype(np.float64), axis=1),
        "unit_norm": np.where(valid, np.linalg.norm(units.astype(np.float64), axis=2), 0).sum(1) / valid.sum(1),
    }


def sampled(stage: Stage, count: int) -> tuple[list[str], list[str], np.ndarray]:
    """Queries, documents and labels of a seeded sample of the pairs with a label."""
    with open_parquet(stage.path("labels") / unit_table.LABELS, unit_table.LABEL_SCHEMA) as file:
        table = file.read(columns=["query", "document", "label"])
    labels = table["label"].to_numpy()
    rows = np.flatnonzero(labels != IGNORED)
    if not len(rows):
        raise ArtifactError(stage.path("labels"), "has no pair with an essential unit", "label the units again")
    if len(rows) > count:
        rows = np.sort(np.random.default_rng([SAMPLE, stage.seed]).choice(rows, count, replace=False))
    chosen = table.take(pa.array(rows))
    return chosen["query"].to_pylist(), chosen["document"].to_pylist(), labels[rows].astype(np.int64)


def passages_with_units(stage: Stage, wanted: Sequence[str], title_join: str | None) -> tuple[list[str], Spans]:
    """Text of each document, and tokens [first, stop) of its units."""
    source = stage.path("source")
    rows = np.sort(rows_among(pa.array(wanted, pa.string()), corpus_ids(source)))
    texts, spans = (
        unit_table.passage_texts(source, rows, title_join),
        unit_table.read_unit_spans(stage.path("units"), "token"),
    )
    return [texts[key][0] for key in wanted], [spans[key] for key in wanted]


def embedded(
    model: BiEncoder, texts: Sequence[str], spans: Spans, device: str, head: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors (N, D), units (N, U, D) and which there are (N, U); `head`: layers after pooling read units, too."""
    tokens, most = model.tokenize(list(texts), "document"), max(len(passage_spans) for passage_spans in spans)
    tower = model.tower("document")
    size = model.contract.dimension if head else tower.transformer.config.hidden_size
    vectors = np.zeros((len(texts), model.contract.dimension), np.float32)
    units, valid = np.zeros((len(texts), most, size), np.float32), np.zeros((len(texts), most), bool)
    for batch in length_groups([len(ids) for ids in tokens], WASTE, BATCH):
        features = features_on(model.pad([tokens[index] for index in batch]), device)
        numbers = np.full(features["input_ids"].shape, -1, np.int64)
        for line, index in enumerate(batch):
            for number, (first, stop) in enumerate(spans[index]):
                numbers[line, first:stop] = number
        with torch.no_grad():
            encoded, states = model.encode_tokens(features, "document")
            pooled, there = pool_units(states, on_device(torch.from_numpy(numbers), device), most)
            for project in tower.projections if head else ():
                pooled = project(pooled)
        vectors[batch], units[batch], valid[batch] = (tensor.cpu().numpy() for tensor in (encoded, pooled, there))
    return vectors, units, valid
