"""Write small archives in the layouts of the registry's publishers, so that the real readers read them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from zerodr.config.registry import Collection
from zerodr.config.rehearsal import Rehearsal

VOCABULARY, SENTENCES, WORDS = 2000, 3, 8
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
CHINESE = "zh"
IDEOGRAPHS = range(0x4E00, 0x4E00 + 2 * VOCABULARY, 2)  # the first ones of words of two


class InventedText(NamedTuple):
    """A made-up document and the question that it answers."""

    title: str
    text: str
    question: str


@cache
def vocabulary(language: str) -> list[str]:
    """List the words of a language. Those of Chinese have two ideographs: an analyser may index pairs of them."""
    if language == CHINESE:
        return [chr(code) + chr(code + 1) for code in IDEOGRAPHS]
    drawn = random.Random(language)
    return ["".join(drawn.choice(CONSONANTS) + drawn.choice(VOWELS) for _ in range(3)) for _ in range(VOCABULARY)]


def make_texts(name: str, count: int, language: str = "en") -> Iterator[InventedText]:
    """Make up the documents of a collection. The same name gives the same texts."""
    drawn, words = random.Random(name), vocabulary(language)
    blank, end = ("", "。") if language == CHINESE else (" ", ". ")
    for _ in range(count):
        sentences = [drawn.choices(words, k=WORDS) for _ in range(SENTENCES)]
        title, asked = blank.join(sentences[0][:2]), blank.join(drawn.sample(sum(sentences, []), 4))
        text = "".join(blank.join(sentence).capitalize() + end for sentence in sentences).strip()
        yield InventedText(title.capitalize(), text, asked if language == CHINESE else f"what is {asked}")


DOCUMENTS, ASKED = 1300, 24  # more than a batch of DDR's pretraining; judged questions of a split
SQUAD = "squad"  # its documents hold the answers to their questions
Files = dict[str, str]
Texts = list[InventedText]
Splits = dict[str, range]  # questions of each split by the number of their document


def write_archives(collections: Iterable[Collection], learned: Iterable[str], folder: Path) -> None:
    """Write each archive of the registry that is not in the folder yet.

    Args:
        collections: of the registry.
        learned: collections that methods learn from: they get enough training questions for a batch.
        folder: of the archives, used as a mirror.
    """
    users = defaultdict(list)
    for row in collections:
        if row.archive and row.has_archive:
            users[row.archive].append(row)
    many = set(learned)
    for archive, rows in users.items():
        if not (folder / archive).exists():
            files: Files = {}
            large = any(row.name in many for row in rows)
            for row in rows:
                files |= write_collection(row, large)
            pack(files, folder / archive)


def write_collection(row: Collection, large: bool) -> Files:
    """Write the files of a collection, in the format that the registry names."""
    splits, start = Splits(), 0
    for split in row.splits or {"train": None, "test": None}:
        count = Rehearsal().training_questions if large and split == "train" else ASKED
        splits[split] = range(start, start + count)
        start += count
    texts = list(make_texts(row.archive + row.member, max(DOCUMENTS, start), row.language))
    return FORMATS.get(row.format, beir)(row, texts, splits)


def pack(files: Files, path: Path) -> None:
    """Write an archive of the kind that its name says; a plain file has one member."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.making")
    if path.suffix == ".zip":
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, text in files.items():
                packed.writestr(name, text)
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(draft, "w:gz") as tar:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
    else:
        (text,) = files.values()
        draft.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    draft.replace(path)


def _lines(rows: Iterable[object]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _table(rows: Iterable[Iterable[object]], separator: str = "\t") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def _quoted(rows: Iterable[Iterable[object]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter="\t", lineterminator="\n").writerows(rows)
    return stream.getvalue()


def _answer(text: str, word: str) -> dict[str, object]:
    return {"text": word, "start": text.index(word), "occurrences": text.count(word)}


def beir(row: Collection, texts: Texts, splits: Splits) -> Files:
    """BEIR's layout, with answers where the publisher has some.

    A question of a collection that leaves out itself has the id of another document.
    """
    folder = row.member or row.archive.removesuffix(".zip")
    first = "d" if row.exclude_self else "q"
    asked = [n for numbers in splits.values() for n in numbers]
    files = {
        f"{folder}/corpus.jsonl": _lines(
            {"_id": f"d{n}", "title": one.title, "text": one.text, "metadata": {}} for n, one in enumerate(texts)
        ),
        f"{folder}/queries.jsonl": _lines(
            {"_id": f"{first}{n}", "text": texts[n].question, "metadata": {}} for n in asked
        ),
    }
    for split, numbers in splits.items():
        judged = [(f"{first}{n}", f"d{(n + 1) % len(texts) if row.exclude_self else n}", 1) for n in numbers]
        files[f"{folder}/qrels/{split}.tsv"] = _table([("query-id", "corpus-id", "score"), *judged])
    if row.originals and row.originals.format == SQUAD:
        words = [(split, n, texts[n].text.split()[0]) for split, numbers in splits.items() for n in numbers]
        files[f"{folder}/answers.jsonl"] = _lines(
            {"query_id": f"q{n}", "corpus_id": f"d{n}", "split": split, "answers": [_answer(texts[n].text, word)]}
            for split, n, word in words
        )
    return files


def lotte(row: Collection, texts: Texts, splits: Splits) -> Files:
    """LoTTE: `member` is the file of questions."""
    folder, _, name = row.member.rpartition("/")
    kind, (numbers,) = name.removeprefix("questions.").removesuffix(".tsv"), splits.values()
    return {
        f"{folder}/collection.tsv": _table((n, one.text) for n, one in enumerate(texts)),
        row.member: _table((n, texts[n].question) for n in numbers),
        f"{folder}/qas.{kind}.jsonl": _lines({"qid": n, "answer_pids": [n]} for n in numbers),
    }


def oag_qa(row: Collection, texts: Texts, splits: Splits) -> Files:
    """OAG-QA: papers and questions of a topic, answers by title."""
    (numbers,) = splits.values()
    papers = [("id", "abstract", "title"), *((f"p{n}", one.text, one.title) for n, one in enumerate(texts))]
    asked = [(texts[n].question, str([texts[n].title])) for n in numbers]
    return {
        f"oagqa/{row.member}-papers-10k.tsv": _quoted(papers),
        f"oagqa/{row.member}-questions.tsv": _quoted(asked),
    }


def wikipedia(row: Collection, texts: Texts, splits: Splits) -> Files:
    """DPR's passages of Wikipedia."""
    return {"": _quoted([("id", "text", "title"), *((n, one.text, one.title) for n, one in enumerate(texts, 1))])}


def mesh(row: Collection, texts: Texts, splits: Splits) -> Files:
    """MeSH's XML: a concept with a scope note in each record."""
    kind = "Qualifier" if row.archive.startswith("qual") else "Descriptor"
    records = "".join(
        f"<{kind}Record><ConceptList><Concept><ConceptUI>M{n:07d}</ConceptUI><ConceptName><String>{escape(one.title)}"
        f"</String></ConceptName><ScopeNote>{escape(one.text)}</ScopeNote></Concept></ConceptList></{kind}Record>"
        for n, one in enumerate(texts)
    )
    return {"": f'<?xml version="1.0"?>\n<{kind}RecordSet>{records}</{kind}RecordSet>\n'}


def cmedqa(row: Collection, texts: Texts, splits: Splits) -> Files:
    """cMedQA v2, files plain."""
    files = {
        "answer.csv": _table(
            [("ans_id", "question_id", "content"), *((n, n, one.text) for n, one in enumerate(texts))], ","
        ),
        "question.csv": _table(
            [("question_id", "content"), *((n, texts[n].question) for r in splits.values() for n in r)], ","
        ),
    }
    for split, numbers in splits.items():
        head, more = ("question_id", "pos_ans_id"), ("neg_ans_id",) if split == "train" else ("num", "label")
        rows = [(n, n, n + 1) if split == "train" else (n, n, 0, 1) for n in numbers]
        files[f"{split}_candidates.txt"] = _table([(*head, *more), *rows], ",")
    return {f"cMedQA2-master/{name}": text for name, text in files.items()}


def multi_cpr(row: Collection, texts: Texts, splits: Splits) -> Files:
    """Multi-CPR: a domain's folder of the repository."""
    folder = f"{row.archive.removesuffix('.zip')}/{row.member}"
    files = {f"{folder}/corpus.tsv": _table((n, one.text) for n, one in enumerate(texts))}
    for split, numbers in splits.items():
        files[f"{folder}/{split}.query.txt"] = _table((n, texts[n].question) for n in numbers)
        files[f"{folder}/qrels.{split}.tsv"] = _table((n, 0, n, 1) for n in numbers)
    return files


def dureader(row: Collection, texts: Texts, splits: Splits) -> Files:
    """DuReader 2.0, preprocessed: questions of two topics with their documents."""
    files = {}
    for split, numbers in splits.items():
        for number, topic in enumerate(("search", "zhidao")):
            rows = [
                {
                    "question": texts[n].question,
                    "answer_docs": [0],
                    "documents": [{"title": texts[n].title, "paragraphs": [texts[n].text], "most_related_para": 0}],
                }
                for n in islice(numbers, number, None, 2)
            ]
            files[f"preprocessed/{split}set/{topic}.{split}.json"] = _lines(rows)
    return files


def dureader_retrieval(row: Collection, texts: Texts, splits: Splits) -> Files:
    """DuReader retrieval: the baseline archive."""
    home, (numbers,) = "dureader-retrieval-baseline-dataset", splits.values()
    asked = [
        {"question_id": f"q{n}", "question": texts[n].question, "answer_paragraphs": [{"paragraph_id": f"p{n}"}]}
        for n in numbers
    ]
    return {
        f"{home}/passage-collection/part-00": _table(("-", "", one.text, 0) for one in texts),
        f"{home}/passage-collection/passage2id.map.json": json.dumps({str(n): f"p{n}" for n in range(len(texts))}),
        f"{home}/dev/dev.json": _lines(asked),
    }


FORMATS: dict[str, Callable[[Collection, Texts, Splits], Files]] = {
    "lotte": lotte,
    "oag-qa": oag_qa,
    "dpr-wikipedia": wikipedia,
    "mesh-xml": mesh,
    "cmedqav2": cmedqa,
    "multi-cpr": multi_cpr,
    "dureader": dureader,
    "dureader-retrieval": dureader_retrieval,
}
"""Writers by the registry's format; other collections are packed in BEIR's layout."""
