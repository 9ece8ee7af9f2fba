"""Build the main table: a row a model, a column a collection, averages of groups, footnotes, published numbers."""

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.errors import ArtifactError
from zerodr.reporting import render
from zerodr.reporting.footnotes import footnotes
from zerodr.reporting.grid import check_summaries, fill, read_summaries
from zerodr.reporting.published import (
    REFERENCE,
    compare,
    published_section,
    published_tsv,
    read_papers,
    read_reference,
)
from zerodr.reporting.scores import published_rows, without_empty
from zerodr.reporting.settings import TableSettings


def build_table(stage: Stage) -> None:
    """Read inputs `summaries` and, when the rule has them, `significance`, `references`, `papers`.

    Write output `table` (tsv) and, when the rule declares them, `csv`, `notes`, `markdown`, `tex`, `published` (tsv).
    """
    settings = validate(TableSettings, stage.params, stage.spec.rule)
    frame = read_summaries(stage.paths("summaries"))
    check_summaries(frame, settings)
    scores = published_rows(stage, settings)
    settings, left_out = without_empty(settings, scores)
    grid = fill(pd.concat([frame, scores]) if len(scores) else frame, settings)
    notes, marks = [*footnotes(frame, grid, settings), *left_out], {}
    sections: list[str] = []
    if "significance" in stage.spec.inputs:
        tests = pd.read_csv(stage.path("significance"), sep="\t", comment="#")
        marks = render.significance_marks(tests)
        about, sections = render.significance_section(tests, settings)
        notes += about
    if "published" in stage.spec.outputs:
        comparison = compare(frame, _references(stage, settings), settings)
        printed = read_papers(stage.paths("papers") if "papers" in stage.spec.inputs else [], settings)
        comparison = pd.concat([table for table in (comparison, printed) if len(table)] or [comparison])
        stage.output("published").write_text(published_tsv(comparison, settings), encoding="utf-8")
        stage.note(published={str(k): int(v) for k, v in comparison["verdict"].value_counts().items()})
        sections += published_section(comparison, settings)
    stage.output("table").write_text(render.plain(grid.printed()), encoding="utf-8")
    markdown = render.markdown(grid.printed(), notes, settings, marks, sections)
    texts = {"markdown": markdown, "notes": "".join(f"- {note}\n" for note in notes)}
    texts["csv"] = render.plain(grid.printed(), ",")
    texts["tex"] = render.tex(grid.printed(), notes, settings, marks)
    for name in texts.keys() & stage.spec.outputs.keys():
        stage.output(name).write_text(texts[name], encoding="utf-8")


def _references(stage: Stage, settings: TableSettings) -> pd.DataFrame:
    paths = stage.paths("references") if "references" in stage.spec.inputs else []
    if len(paths) != len(settings.references):
        problem = f"expected {len(settings.references)} references, found {len(paths)}"
        raise ArtifactError(stage.spec.rule, problem, "declare the files of config.references as the rule's input")
    frames = [read_reference(path, reference) for path, reference in zip(paths, settings.references, strict=True)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=REFERENCE)
