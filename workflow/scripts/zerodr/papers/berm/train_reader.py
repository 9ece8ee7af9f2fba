"""Training of a reader: what it learns from, and how it is made, run and evaluated."""

from functools import partial
from typing import Any

import numpy as np

from zerodr.encoders.cross_encoder.initial import init_pair_model
from zerodr.papers.berm.reader_data import QuestionStream, ReadForward, evaluate_reader, load_questions
from zerodr.papers.berm.reader_network import Reader
from zerodr.papers.berm.settings import AnswerStage, ReaderSettings
from zerodr.training.finetune import Task
from zerodr.training.kinds import Kind, Lessons

HELD_OUT = 3  # first word of a seed: which dev questions are asked


def answers(task: Task, model: Any) -> Lessons:
    """Questions with answers of the source.

    Raises:
        CollectionError: a split has no answer that stands in its passage.
        ConfigError: fewer questions than a batch.
    """
    params, settings = task.params, task.params.settings
    assert isinstance(settings, AnswerStage), "only such stages train readers"
    training, seed = settings.training, task.stage.seed
    questions, displaced = load_questions(task.source, params.source_split, params.title_join)
    dev, rows = questions, np.zeros(0, np.int64)
    if training.dev_queries:
        dev, _ = load_questions(task.source, settings.dev_split, params.title_join)
        count = min(training.dev_queries, len(dev))
        rows = np.sort(np.random.default_rng([HELD_OUT, seed]).choice(len(dev), count, replace=False))
    facts = {"training_questions": len(questions), "displaced_answers": displaced, "dev_questions": len(rows)}
    stream = QuestionStream(len(questions), training.batch_queries, (seed, params.schedule.stage_index))
    return Lessons(questions, np.arange(len(questions)), dev, rows, stream, facts)


CREATE = partial(init_pair_model, model_type=Reader, settings_type=ReaderSettings)
READER = Kind(CREATE, Reader.load_to_train, ReadForward, evaluate_reader, answers)
