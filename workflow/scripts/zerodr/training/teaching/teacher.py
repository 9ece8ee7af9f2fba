"""Stage `score_pairs`: scores of mined pairs by a cross-encoder, for distillation."""

import os
import time
from typing import Literal

import pyarrow.parquet as pq
import torch
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.training import JoinedTexts
from zerodr.encoders.cross_encoder.network import CrossEncoder, Scorer
from zerodr.encoders.inference.processor import keep_freed_memory
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.errors import ArtifactError
from zerodr.training.data.examples import MINED, SCORED, load_examples
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.teaching.scoring import (
    ScoreStore,
    Scoring,
    pairs_of,
    score_all,
    score_statistics,
    warn_of_guessing,
)


class ScorePairsSettings(JoinedTexts):
    """Params of rule score_pairs."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the network; what comes out is float32."""
    batch_pairs: int = Field(64, ge=1)
    """Most pairs of a batch."""


def score_pairs(stage: Stage) -> None:
    """Stage: inputs `teacher`, `mined`, `source`; output `scored`: scored.parquet, the mined rows with `scores`.

    Raises:
        ModelError: the teacher was never trained.
        ArtifactError: the mined file is of another corpus, or has scores already.
        NonFiniteScore: names the first pair that has no finite score.
    """
    settings = validate(ScorePairsSettings, stage.params, stage.spec.name())
    os.environ.setdefault("RAYON_NUM_THREADS", str(stage.threads))  # threads of the tokenizer
    keep_freed_memory()
    model = CrossEncoder.load_trained(stage.path("teacher"), settings.precision)
    file = stage.path("mined") / MINED
    examples = load_examples(stage.path("mined"), stage.path("source"), settings.title_join)
    table, pairs = pq.read_table(file), pairs_of(examples)
    if "scores" in table.column_names:
        raise ArtifactError(file, "has a column scores already", "give the mining stage's own output")
    scorer = Scorer(model, "cuda" if torch.cuda.is_available() else "cpu")
    facts = {"device": scorer.device, "backend": scorer.backend}
    store = ScoreStore(stage.state, facts | {"torch": torch.__version__, "pairs": len(pairs.rows)})
    resumed, started = store.done, time.monotonic()
    how = Scoring(stage.spec.name(), settings.batch_pairs, stage.threads, SharedTokens(TOKENS))
    scores, waited = score_all(scorer, examples, pairs, store, how)
    slots = pairs.spread(scores)
    pq.write_table(table.append_column("scores", pairs.column(slots)), stage.output("scored") / SCORED)
    stage.metric("pairs_per_second", (len(scores) - resumed) / max(time.monotonic() - started, 1e-9))
    statistics = score_statistics(slots, pairs)
    for name, value in statistics.items():
        stage.metric(name, value)
    warn_of_guessing(stage.spec.name(), statistics)
    stage.note(
        **facts,
        precision=settings.precision,
        queries=len(examples),
        pairs=int(pairs.known.sum()),
        distinct_pairs=len(scores),
        queries_without_positive=int((examples.positives.sizes == 0).sum()),
        queries_without_negative=int((examples.negatives.sizes == 0).sum()),
        resumed_at=resumed,
        waited_for_data=round(waited, 4),
        **store.totals,
    )
