"""The last job of an adaptation: what fails there must not cost the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoder_helpers import import_spec, tiny_bert

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA
from zerodr.encoders.folder.retriever import RetrieverFacts, Way, read_index, read_retriever, shards_of
from zerodr.encoders.publishing import adapted
from zerodr.errors import ModelError
from zerodr.lookup.exporting import plain_card

ANSWER, MODEL = "results/adapted/notes/answer/manifest.json", "results/adapted/notes/model/manifest.json"
IMPORTED = "results/models/tiny/shared/imported/manifest.json"


def candidate(name: str, encoder: str) -> dict:
    facts = {"name": name, "label": name, "kind": "encoder", "adapted": False, "description": "", "remark": ""}
    ways = {name: {"kind": "dense" if encoder else "lexical", "members": [], "params": {}}}
    facts |= {"ways": ways, "licences": {}, "published_share": None}
    return facts | {"encoder": encoder, "scope": "shared"}


def test_other_vectors_in_sentence_transformers_are_said_and_the_export_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_spec(import_spec(str(tiny_bert(tmp_path / "source"))))
    home = Path(ANSWER).parent
    home.mkdir(parents=True)
    (home / "answer.json").write_text(json.dumps({"choice": "tiny", "kinds": {"titles": 9}, "verdict": "keep"}))
    table = "kind\tmethod\tvalue\tlow\thigh\tproxy\nmean\ttiny\t0.5\t0.4\t0.6\tTrue\nmean\twords\t0.4\t0.3\t0.5\tTrue\n"
    (home / "comparison.tsv").write_text(table)
    Path(ANSWER).write_text('{"files": []}')

    def differs(folder: Path) -> float:
        raise ModelError(folder, "sentence-transformers gives other vectors (cosine 0.9)", "compare its version")

    monkeypatch.setattr(adapted, "agreement", differs)
    methods = [candidate("tiny", "tiny"), candidate("words", "")]
    params = {"collection": "notes", "language": "en", "title_join": None, "encoders": ["tiny"], "methods": methods}
    params |= {"vectors": [0]}
    corpus, vectors = Path("results/collections/notes"), Path("vectors.npy")
    corpus.mkdir(parents=True)
    rows = [{"id": "a", "title": "", "text": "whole text"}]
    pq.write_table(pa.Table.from_pylist(rows, CORPUS_SCHEMA), corpus / "corpus.parquet")
    (corpus / "manifest.json").write_text('{"files": []}')
    np.save(vectors, np.ones((1, 4), np.float32))
    inputs = {"answer": ANSWER, "models": [IMPORTED], "vectors": [str(vectors)]}
    inputs |= {"collection": str(corpus / "manifest.json")}
    run_spec(StageSpec("export_adapted", 2, {}, inputs, {"model": MODEL}, params, 3), adapted.export_adapted)
    card = (Path(MODEL).parent / "README.md").read_text()
    assert "**Search with zerodr alone**: sentence-transformers gives other vectors (cosine 0.9)." in card
    assert card.index("Retriever.load(") < card.index("SentenceTransformer("), "what was measured comes first"
    assert card.index("## Measured on") < card.index("## The encoder\n\nA dense retriever")
    assert read_retriever(Path(MODEL).parent).encoder == "tiny"
    index = Path(MODEL).parent / "index"
    assert read_index(index)["documents"] == 1 and pq.read_table(index / "corpus.parquet").to_pylist() == rows
    assert [len(np.load(shard)) for shard in shards_of(index, "tiny")] == [1]


@pytest.mark.parametrize(("choice", "kind", "this"), [("fused", "fusion", False), ("tiny", "dense", True)])
def test_the_card_of_a_model_alone_claims_no_retriever(choice: str, kind: str, this: bool) -> None:
    table = pd.DataFrame([{"kind": "mean", "method": choice, "value": 0.5, "low": 0.4, "high": 0.6, "proxy": True}])
    chosen = adapted.Exported(
        **candidate(choice, "tiny") | {"ways": {choice: {"kind": kind, "members": [], "params": {}}}}
    )
    settings = adapted.ExportAdaptedSettings(
        collection="notes", language="en", title_join=None, encoders=("tiny",), methods=(chosen, chosen)
    )
    measured = adapted.measured_text(settings, {"kinds": {"titles": 9}, "verdict": "keep"}, table, chosen)
    whole = f"---\ntags: []\n---\n\n# {choice} for notes\n\n{adapted.SEARCHING}\n\n{measured}\n\n## The encoder\n"
    facts = RetrieverFacts(choice, "notes", "en", None, "tiny", {choice: Way(kind, [], {})})
    card = plain_card(whole, facts)
    assert "Retriever" in whole and "Retriever" not in card and "retriever.json" not in card
    assert "\n# tiny for notes\n" in card and card.endswith("## The encoder\n") and "| 0.5000 |" in card
    assert ("(this)" in card, "this folder holds" in card, "holds tiny alone" in card) == (this, this, not this)
