"""Excerpts of the mirror's collections, written back into their publishers' formats."""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from zerodr.collections.archives import open_archive
from zerodr.collections.readers import Reader, open_reader

Files = dict[str, str | bytes]


@dataclass
class Excerpt:
    """Some documents of a collection with their queries and judgements: the rows that a reader must give."""

    documents: list[tuple[str, str, str]]
    queries: list[tuple[str, str]]
    judgements: dict[str, list[tuple[str, str, int]]]

    def of(self, split: str) -> dict[str, list[tuple[str, str]]]:
        """The queries of each document in a split."""
        texts, found = dict(self.queries), defaultdict(list)
        for query, document, _ in self.judgements.get(split, ()):
            found[document].append((query, texts[query]))
        return found


def excerpt(reader: Reader, chosen: Callable[[str], bool], splits: list[str]) -> Excerpt:
    """Return the documents whose id is chosen, with the judgements and queries that need no other document."""
    documents = [(row.id, row.title, row.text) for row in reader.documents() if chosen(row.id)]
    ids = {key for key, *_ in documents}
    pairs = {split: [(row.query, row.document, row.grade) for row in reader.judgements(split)] for split in splits}
    far = {query for rows in pairs.values() for query, document, _ in rows if document not in ids}
    judged = {s: [row for row in rows if row[0] not in far and row[1] in ids] for s, rows in pairs.items()}
    asked = {query for rows in judged.values() for query, *_ in rows}
    return Excerpt(documents, [(row.id, row.text) for row in reader.queries() if row.id in asked], judged)


def rows_of(reader: Reader, splits: list[str]) -> Excerpt:
    """Everything that a reader gives."""
    return excerpt(reader, lambda key: True, splits)


def mirrored(mirror: Path, name: str) -> Reader:
    """The collection as the mirror has it."""
    return open_reader("beir", open_archive(mirror / f"{name}.zip"))


def squad(rows: Excerpt) -> Files:
    """Articles in reverse order; the ids say which paragraph belongs to which article."""
    files: Files = {}
    for split in ("train", "dev"):
        articles, asked = defaultdict(list), rows.of(split)
        for key, title, text in rows.documents:
            if f"-{split}-" in key:
                qas = [{"id": q, "question": f" {t} ", "answers": []} for q, t in asked[key]]
                articles[title.replace(" ", "_")].append({"context": text, "qas": qas})
        data = [{"title": title, "paragraphs": parts} for title, parts in reversed(articles.items())]
        files[f"{split}-v1.1.json"] = json.dumps({"data": data, "version": "1.1"})
    return files


def squadshifts(rows: Excerpt) -> Files:
    """One file; paragraphs without titles belong to one article."""
    name, articles, asked = rows.documents[0][0].split("-0000")[0], defaultdict(list), rows.of("test")
    for key, title, text in rows.documents:
        qas = [
            {"id": q, "question": t + " ", "answers": [{"text": text[:3], "answer_start": 0}]} for q, t in asked[key]
        ]
        articles[title.replace(" ", "_") or "All_Of_Them"].append({"context": text, "qas": qas})
    data = [{"title": title, "paragraphs": parts} for title, parts in articles.items()]
    stem = name.removeprefix("squadshifts-").replace("-", "_")
    return {f"{stem}_v1.0.json": json.dumps({"data": data})}


def cmrc(rows: Excerpt) -> Files:
    """One article a paragraph; the second file has none."""
    asked = rows.of("dev")
    data = [
        {"title": title, "paragraphs": [{"context": text, "qas": _qas(asked[key])}]}
        for key, title, text in rows.documents
    ]
    return {
        "cmrc2018_dev.json": json.dumps({"data": data}, ensure_ascii=False),
        "cmrc2018_trial.json": json.dumps({"data": []}),
    }


def _qas(questions: list[tuple[str, str]]) -> list[dict]:
    return [{"id": query, "question": text, "answers": []} for query, text in questions]


def mlquestions(rows: Excerpt) -> Files:
    """The number in a document's id is its row; rows between them repeat the passage before."""
    passages: list[str] = []
    for key, _, text in rows.documents:
        passages += passages[-1:] * (int(key.removeprefix("mlq-p")) - len(passages)) + [text]
    texts, questions = {key: text for key, _, text in rows.documents}, dict(rows.queries)
    files: Files = {"data/test_passages.tsv": _tsv(["input_text", "target_text"], [[t, "x"] for t in passages])}
    for split, pairs in rows.judgements.items():
        table = [[texts[document], questions[query], "0"] for query, document, _ in pairs]
        files[f"data/{split}.tsv"] = _tsv(["input_text", "target_text", "indexes"], table)
    return files | {"data/questions_unaligned.tsv": _tsv(["target_text"], [["What is XOR problem"]])}


def nq_pairs(rows: Excerpt) -> Files:
    """A question of `train` that QED has too is asked once."""
    train, dev = rows.of("train"), rows.of("dev")
    table = [[text, train[key][0][1], "x"] for key, _, text in rows.documents if "mcgill" in key]
    qed = [
        {"example_id": int(key.removeprefix("nq-qed-")), "title_text": title, "paragraph_text": text}
        | {"question_text": dev[key][0][1] if key in dev else table[0][1]}
        for key, title, text in rows.documents
        if "qed" in key
    ]
    lines = "".join(json.dumps(value) + "\n" for value in qed)
    return {"data/test_nq.tsv": _tsv(["input_text", "target_text", "prefix"], table), "qed-dev.jsonlines": lines}


def _tsv(header: list[str], table: list[list[str]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
    writer.writerow(["", *header])
    writer.writerows([number, *cells] for number, cells in enumerate(table))
    return stream.getvalue()


def medquad(rows: Excerpt) -> Files:
    """One file a document, in a folder of its source, with an empty answer that is left out."""
    asked: dict[str, list[str]] = defaultdict(list)
    for split in rows.judgements:
        for key, questions in rows.of(split).items():
            asked[key] += [text for _, text in questions]
    files: Files = {}
    for key, title, text in rows.documents:
        _, source, name = key.split("-", 2)
        pairs = "".join(
            f'<QAPair pid="1"><Question qid="{name}">{escape(q)}</Question><Answer>{escape(text)}\n </Answer></QAPair>'
            for q in asked[key]
        )
        empty = '<QAPair pid="9"><Question qid="no">Why?</Question><Answer/></QAPair>'
        body = f"<Focus>{escape(title)}</Focus><QAPairs>{empty}{pairs}</QAPairs>"
        files[f"MedQuAD-1/{source}_X_QA/{name}.xml"] = f'<?xml version="1.0"?>\n<Document>{body}</Document>'
    return files


def cranfield(rows: Excerpt) -> Files:
    """Texts start with the title; queries have odd numbers, judgements name their positions."""
    corpus = "".join(f".I {k}\n.T\n{t}\n.A\nx.\n.B\n1\n.W\n{t}\n {_wrap(x)}\n" for k, t, x in rows.documents)
    positions = {query: str(number) for number, (query, _) in enumerate(rows.queries, start=1)}
    queries = "".join(f".I {2 * int(key):03d}\n.W\n{_wrap(text)}\n" for key, text in rows.queries)
    judged = "".join(f"{positions[q]} {d} {3 if grade else -1} \n" for q, d, grade in rows.judgements["test"])
    return {"data/cran/cran.all.1400": corpus, "data/cran/cran.qry": queries, "data/cran/cranqrel": judged}


def cisi(rows: Excerpt) -> Files:
    """A query with many words is an article with a title."""
    corpus = "".join(f".I {k}\n.T \n{t}\n.A\nx\n.W\n  {_wrap(x)}\n.X\n1\t5\t1\n" for k, t, x in rows.documents)
    queries = ""
    for key, text in rows.queries:
        words = text.split()
        title = f".T\n{' '.join(words[:4])}\n.A\nx\n" if len(words) > 40 else ""
        queries += f".I {key}\n{title}.W\n{' '.join(words[4:] if title else words)}\n.B\n(x)\n"
    judged = "".join(f"     {q}     {d}\t0\t0.000000\n" for q, d, _ in rows.judgements["test"])
    return {"CISI.ALL": corpus, "CISI.QRY": queries, "CISI.REL": judged}


def _wrap(text: str) -> str:
    words = text.split()
    return "\n".join(" ".join(words[start : start + 9]) for start in range(0, len(words), 9))


def wordnet(rows: Excerpt) -> Files:
    """Lines of WordNet's data files; an adjective has the marker of its position."""
    files = {f"WordNet-3.0/dict/data.{part}": "  1 This software ...\n" for part in ("noun", "verb", "adj", "adv")}
    parts = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
    for key, title, text in rows.documents:
        _, letter, offset = key.split("-")
        words = title.replace(" ", "_").replace(",_", ", ").split(", ")
        cells = " ".join(f"{word}{'(ip)' if letter == 'a' else ''} 0" for word in words)
        line = f"{offset} 03 {letter} {len(words):02x} {cells} 000 | {text}  \n"
        files[f"WordNet-3.0/dict/data.{parts[letter]}"] += line
    return dict(files)


def summaries(rows: Excerpt) -> Files:
    """Titles in reverse order, with blanks of other kinds."""
    articles = {title: {"title": title, "extract": text.replace(" ", "\u00a0", 1)} for _, title, text in rows.documents}
    return {"x/data/summaries_en-us.json": json.dumps(dict(reversed(articles.items())))}


def mesh(rows: Excerpt) -> Files:
    """Terms and places that the texts were composed from; every path has a tree of its own."""
    terms, places = [], []
    for key, title, text in rows.documents:
        ui = key.removeprefix("mesh-")
        named, _, found = text.partition(" Found under ")
        also = named.partition(" Also called ")[2].removesuffix(".")
        terms += [(ui, title, term, "N") for term in [title, *(also.split("; ") if also else [])]]
        terms.append((ui, title, "permuted, term", "Y"))
        for path in found.removesuffix(".").split(" | ") if found else []:
            category, *steps = path.split(" > ")
            location = f"X{len(places):05d}"
            for depth, step in enumerate(steps):
                location += f".{depth:03d}"
                places.append((ui if depth == len(steps) - 1 else "D0", step, location, category))
    names = ("DescriptorUI", "DescriptorName", "TermName", "IsPermutedTermYN")
    trees = ("DescriptorUI", "DescriptorName", "tree_location", "cats")
    return {"data/data_mesh_thesaurus.rds": _rds(names, terms), "data/data_mesh_trees.rds": _rds(trees, places)}


def _rds(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> bytes:
    """A data frame as R saves it: string columns, the last one a factor."""

    def characters(text: str, kind: int = 9 | 1 << 15) -> bytes:
        return struct.pack(">ii", kind, len(text.encode())) + text.encode()

    def strings(texts: list[str]) -> bytes:
        return struct.pack(">ii", 16, len(texts)) + b"".join(map(characters, texts))

    def pair(tag: str, value: bytes) -> bytes:
        return struct.pack(">ii", 2 | 1 << 10, 1) + characters(tag) + value

    end = struct.pack(">i", 254)
    columns = [list(column) for column in zip(*rows, strict=True)]
    levels = sorted(set(columns[-1]))
    codes = [levels.index(text) + 1 for text in columns[-1]]
    factor = struct.pack(f">ii{len(codes)}i", 13 | 1 << 9, len(codes), *codes) + pair("levels", strings(levels)) + end
    head = b"X\n" + struct.pack(">iii", 3, 0x040000, 0x030500) + struct.pack(">i", 5) + b"UTF-8"
    frame = struct.pack(">ii", 19 | 1 << 9, len(names)) + b"".join(map(strings, columns[:-1])) + factor
    pointer = pair(".internal.selfref", struct.pack(">iii", 22, 254, 254))
    return gzip.compress(head + frame + pointer + pair("names", strings(list(names))) + end)
