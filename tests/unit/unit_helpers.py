"""A collection of passages of several sentences with answers, and the stages that cut and label their units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.encoder_helpers import make_collection
from tests.unit.model_helpers import WORDS, tiny_settings
from tests.unit.training_helpers import seal

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.normalize import ANSWER_SCHEMA
from zerodr.encoders.start.initial import from_scratch
from zerodr.lexical.folder import TermIndexSettings
from zerodr.lexical.index import build_index

QUERIES, DOCUMENTS = 40, 48
NAMES = [f"{word}{letter}" for word in WORDS for letter in "abc"]


def sentences(number: int) -> list[str]:
    """Three sentences, one of them about a name that no other document has."""
    generator = np.random.default_rng(number)
    drawn = [" ".join(generator.choice(WORDS, 5)) for _ in range(3)]
    drawn[number % 3] = f"the {NAMES[number]} is {drawn[number % 3]}"
    return [f"{sentence.capitalize()}." for sentence in drawn]


def make_source(folder: Path) -> Path:
    """Query i asks for the sentence about name i of document i; the last document has one sentence."""
    documents = [(f"d{i}", f"Title {i}" if i % 2 else "", " ".join(sentences(i))) for i in range(DOCUMENTS)]
    documents[QUERIES - 1] = (f"d{QUERIES - 1}", "", sentences(QUERIES - 1)[0])
    make_collection(folder, documents, [(f"q{i}", f"what is the {NAMES[i]}") for i in range(QUERIES)])
    rows = "".join(f"q{i}\td{i}\t1\n" for i in range(QUERIES))
    (folder / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    answers = []
    for number in range(QUERIES):
        text = sentences(number)[number % 3].split(" is ")[1].removesuffix(".")
        start = documents[number][2].find(text)
        answers.append(
            {
                "query_id": f"q{number}",
                "corpus_id": f"d{number}",
                "split": "train",
                "answers": [{"text": text, "start": start, "occurrences": 1}],
            }
        )
    pq.write_table(pa.Table.from_pylist(answers, ANSWER_SCHEMA), folder / "answers.parquet")
    seal(folder)
    return folder


CHINESE = {
    "d0": ("", ["北京是中国的首都。", "它有许多博物馆！", "你去过吗？", "“那里的秋天最美。”他说"]),
    "d1": ("上海", ["上海在长江口，人口约2.4千万。", "外滩很有名！", "夜景更好看"]),
    "d2": ("", ["没有标点的一句话"]),
}
ASKED = {
    "q0": ("中国的首都是哪里", "d0"),
    "q1": ("哪里的秋天最美", "d0"),
    "q2": ("外滩有名吗", "d1"),
    "q3": ("一句话", "d2"),
    "q4": ("天气", "d1"),
}


def make_chinese(folder: Path) -> Path:
    """Three Chinese passages of 4, 3 and 1 sentences, and five queries."""
    documents = [(key, title, "".join(parts)) for key, (title, parts) in CHINESE.items()]
    make_collection(folder, documents, [(key, text) for key, (text, _) in ASKED.items()])
    rows = "".join(f"{key}\t{document}\t1\n" for key, (_, document) in ASKED.items())
    (folder / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    seal(folder)
    return folder


def lay_out(root: Path, tokens: int = 64, language: str = "en") -> Path:
    """A project folder with a model, a source and its index."""
    source = {"en": make_source, "zh": make_chinese}[language](root / "results/source")
    model, _ = from_scratch(tiny_settings(document_tokens=tokens, query_tokens=16), source, 3)
    model.save(root / "results/init")
    seal(root / "results/init")
    (root / "results/index").mkdir()
    (root / "scratch").mkdir()
    build_index(
        source,
        root / "results/index",
        root / "scratch",
        TermIndexSettings(backend="bm25s", fields="flat", language=language),
    )
    seal(root / "results/index")
    return root


def segment(place: str = "units", model: str = "init", **changes: Any) -> Path:
    """Run segment_units; `changes` are of `cut`, or split and title_join."""
    params: dict[str, Any] = {"split": "train", "title_join": " "}
    params |= {key: changes.pop(key) for key in ("split", "title_join") if key in changes}
    run_spec(
        StageSpec(
            "segment_units",
            1,
            {"model": "tiny"},
            {"source": "results/source/manifest.json", "model": f"results/{model}/manifest.json"},
            {"units": f"results/{place}/manifest.json"},
            params | {"cut": changes},
            13,
            1,
        )
    )
    return Path(f"results/{place}")


def label(place: str = "labels", read: str | None = None, title_join: str | None = " ", **changes: Any) -> Path:
    """Run label_units; `changes` are of `label`."""
    inputs = {
        "source": "results/source/manifest.json",
        "units": "results/units/manifest.json",
        "index": "results/index/manifest.json",
    }
    inputs |= {"read": f"results/{read}/manifest.json"} if read else {}
    params = {"split": "train", "title_join": title_join, "label": changes}
    run_spec(
        StageSpec(
            "label_units",
            1,
            {"model": "tiny"},
            inputs,
            {"labels": f"results/{place}/manifest.json"},
            params,
            13,
            1,
        )
    )
    return Path(f"results/{place}")
