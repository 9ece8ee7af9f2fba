"""The report: curves, drawn lineage, statistics, warnings, cost, in one file."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.page_helpers import make_pages

from zerodr.artifacts.provenance import Warnings
from zerodr.artifacts.record import record_path
from zerodr.errors import ArtifactError
from zerodr.pages import costs, drawing
from zerodr.pages.report import _figures, write_report
from zerodr.plan import paths


def record(rule: str, metrics: dict[str, list[float]] | None = None, **more: Any) -> dict[str, Any]:
    points = [{"name": k, "step": n, "value": v} for k, vs in (metrics or {}).items() for n, v in enumerate(vs)]
    facts = {
        "rule": rule,
        "wildcards": {"model": "m", "stage": "s"},
        "metrics": points,
        "notes": {},
        "seconds": 2.0,
        "spec": {"params": {}},
    }
    return facts | {"gpu_hours": 0.0, "energy_joules": None, "peak_memory_mib": 10.0} | more


def test_curves_leave_out_constants_settings_and_doubles():
    metrics = {"loss": [3, 2, 1], "info_nce": [3, 2, 1], "kept": [5, 5, 5], "learning_rate": [1, 2, 3], "once": [1]}
    metrics |= {
        "gradient_norm": [3, 2, 1],
        "vector_gradient.info_nce": [3, 2, 1],
        "vector_gradient_cosine.r1": [0, 1, 2],
    }
    metrics |= {"dev.mlm": [9, 8, 7], "dev.mlm.toy": [9, 8, 7], "dev.ndcg_cut_10": [0.1, 0.2, 0.3]}
    found = drawing.series(record("finetune", metrics))
    assert set(found) == {"loss", "info_nce", "dev.mlm", "dev.mlm.toy", "dev.ndcg_cut_10"}
    assert drawing.groups(found) == {"loss": ["loss"], "dev.mlm": ["dev.mlm"], "dev.ndcg_cut_10": ["dev.ndcg_cut_10"]}
    assert "<svg" in drawing.draw_curves(record("finetune", metrics))
    assert drawing.draw_curves(record("embed_corpus", {"seconds": [1.0]})) is None


def test_a_running_mean_keeps_the_mean_of_a_line():
    values = np.arange(100.0)
    assert drawing.running_mean(values)[10:90] == pytest.approx(values[10:90])
    assert drawing.running_mean(np.array([1.0, 5.0])).tolist() == [1.0, 5.0]


def test_what_was_left_out_and_warned_is_listed():
    pretrained = record("pretrain", notes={"left_out": {"toy": {"too_short": 3, "repeated": 0}}, "warnings": ["odd"]})
    evaluated = record("evaluate_run", {"n_without_results": [15.0], "n_without_text": [0.0]})
    jobs = [pretrained, evaluated, record("finetune", notes={"queries_without_negative": 2})]
    assert [row[2:] for row in costs.dropped(jobs)] == [
        ("documents of toy: too short", 3),
        ("queries without results", 15.0),
        ("queries without negatives", 2),
    ]
    assert costs.warnings(jobs) == [("pretrain", "m s", "odd")]
    (cost,) = costs.cost_by_rule([evaluated, evaluated | {"energy_joules": 5.0}]).values()
    assert (cost.jobs, cost.seconds, cost.joules, cost.memory) == (2, 4.0, 5.0, 10.0)


def test_mining_and_spans_have_a_row_a_job():
    mined = {"statistics": {"queries": {"mined": 7}, "negatives": {"kept": 35}}}
    (row,) = costs.rows_of([record("mine_negatives", notes=mined), record("finetune")], "mine", costs.MINED)
    assert (row["name"], row["queries"], row["negatives"], row["suspected positives"]) == ("m s", 7, 35, None)
    (row,) = costs.rows_of(
        [record("cut_spans", notes={"statistics": {"documents": 9, "drop_rate": 0.1}})], "cut", costs.SPANS
    )
    assert (row["documents"], row["dropped"]) == (9, 0.1)


def test_a_stages_warnings_are_collected_once():
    log = logging.getLogger("zerodr")
    with Warnings() as warned:
        for _ in range(2):
            log.warning("cut at %d", 512)
        log.info("fine")
    log.warning("later")
    assert warned.messages == ["cut at 512"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_report_is_one_file_without_addresses(folder):
    plan = make_pages(folder)
    text = write_report(plan).read_text()
    for heading in ("results", "figures", "training", "mining", "dropped", "warnings", "cost", "repeat"):
        assert f'<h2 id="{heading}">' in text
    assert "mailto:" not in text and not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", text)
    assert "No stage warned." in text and "evaluate_run" in text


def test_a_figure_of_another_scale_is_not_in_the_report(folder):
    paper = SimpleNamespace(label="P", items={name: SimpleNamespace(title=name) for name in ("one", "two")})
    plan = SimpleNamespace(config=SimpleNamespace(scale="mini"), bench=SimpleNamespace(papers={"p": paper}))
    for name, scale in (("one", "mini"), ("two", "lab")):
        path = Path(paths.item("p", name, "svg"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<svg></svg>")
        record_path(path).write_text(json.dumps({"spec": {"params": {"scale": scale}}}))
    assert [title for title, _ in _figures(plan)] == ["P, one: one"]


def test_a_report_without_a_table_says_what_to_run(folder):
    from tests.unit.page_helpers import make_evaluated

    plan = make_evaluated(folder)
    with pytest.raises(ArtifactError, match="needs a finished main table .*run: make mini"):
        write_report(plan)


def test_a_report_with_other_settings_than_the_tables_is_refused(folder):
    plan = make_pages(folder)
    record = record_path(paths.beir(f"{plan.selection}.tsv"))
    written = json.loads(record.read_text())
    written["spec"]["params"]["metric"] = "recall_100"
    record.write_text(json.dumps(written))
    with pytest.raises(ArtifactError, match=r"was made with other settings \(metric\): make it anew: snakemake .*html"):
        write_report(plan)
