"""Stand-ins of published models and archives: the real readers and importers take them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from encoder_helpers import import_settings

from zerodr.collections.archives import find, open_archive
from zerodr.collections.first_part import FirstPart
from zerodr.collections.readers import open_reader
from zerodr.config.load import load_bench
from zerodr.config.pins import named_models
from zerodr.config.rehearsal import Rehearsal
from zerodr.config.starts import PACKAGE
from zerodr.config.training import InitSettings
from zerodr.encoders.start.importing import copy_model
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.lexical.analysis import analyzer_of
from zerodr.operations.stand_ins.archives import ASKED, CHINESE, make_texts, write_archives
from zerodr.operations.stand_ins.models import FORMS, MEAN, _tokenizer, write_models

ROOT = Path(__file__).parents[2]
REGISTRY = load_bench(ROOT, {"scale": "paper"})
ROWS = list({row.format: row for row in REGISTRY.collections.values() if row.archive}.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.format)
def test_readers_of_publishers_read_them(row, tmp_path):
    write_archives([row], [], tmp_path)
    archive = open_archive(tmp_path / row.archive)
    packed = row.originals and find(archive, "corpus.jsonl", required=False)
    reader = open_reader("beir" if packed else row.format, archive, row.member)
    part = FirstPart(reader, list(row.splits), Rehearsal(documents=5), 3)
    documents = [document.id for document in part.documents()]
    assert len(documents) == len(set(documents)) >= 5
    for split in row.splits:
        assert len({judged.query for judged in reader.judgements(split)}) == ASKED
        judged = list(part.judgements(split))
        assert len({one.query for one in judged}) == 3 and {one.document for one in judged} <= set(documents)


def test_a_source_has_questions_for_a_batch(tmp_path):
    write_archives([REGISTRY.collections["msmarco"]], ["msmarco"], tmp_path)
    reader = open_reader("beir", open_archive(tmp_path / "msmarco.zip"), "")
    assert sum(1 for _ in reader.judgements("train")) == Rehearsal().training_questions


@pytest.mark.parametrize("language", ["en", CHINESE])
def test_a_question_shares_words_with_other_documents_so_that_there_are_negatives(language):
    texts, analyze = list(make_texts("x", 500, language)), analyzer_of(language)
    holders = Counter(word for one in texts for word in set(analyze(one.text)))
    assert all(sum(holders[word] - 1 for word in analyze(one.question)) >= 5 for one in texts)


def test_the_chinese_stand_in_reads_english_texts_as_the_published_model_does():
    """With unknown words alone no token is masked, and the pretraining on an English target teaches nothing."""
    texts = [one.text for one in make_texts("nfcorpus", 20, "en")]
    pieces = _tokenizer("bert", CHINESE).tokenize(" ".join(texts))
    assert pieces.count("[UNK]") < len(pieces) / 10


def test_every_model_of_the_hub_that_a_recipe_names_has_a_form():
    named = [
        name for name in named_models(REGISTRY.methods) if "/" in name and not name.startswith((PACKAGE, "resources/"))
    ]
    assert set(named) == FORMS.keys()


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.modules])
def test_modules_of_sentence_transformers_are_imported(name, tmp_path):
    write_models([name], tmp_path)
    (tmp_path / "imported").mkdir()
    contract, _ = copy_model(tmp_path / name, tmp_path / "imported", import_settings(name), None)
    assert contract.pooling == ("mean" if name in MEAN else "cls")
    assert len(contract.projections) == len(set(FORMS[name].modules) & {"Dense", "LayerNorm"})


@pytest.mark.parametrize("name", ["Luyu/condenser", "google-t5/t5-base", "google-bert/bert-base-chinese"])
def test_trainings_start_from_them(name, tmp_path):
    write_models([name], tmp_path)
    pooling = "decoder_first" if "t5" in name else "cls"
    model, _ = from_checkpoint(InitSettings(init=name, pooling=pooling), tmp_path / name, None, 7)
    assert model.contract.dimension == 32


def test_a_reader_has_answers_to_learn_from(tmp_path):
    write_archives([REGISTRY.collections["squad-v1.1"]], [], tmp_path)
    reader = open_reader("beir", open_archive(tmp_path / "squad-v1.1.zip"), "")
    texts = {document.id: document.text for document in reader.documents()}
    answers = list(FirstPart(reader, ["train"], Rehearsal(), 3).answers() or ())
    assert len(answers) == 3
    for answer in answers:
        (span,) = answer["answers"]
        assert texts[answer["corpus_id"]][span["start"] :].startswith(span["text"])
