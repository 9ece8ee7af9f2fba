"""Tables: protocols, aggregates, averages, marks, footnotes, and the three formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from zerodr.artifacts.stage import Stage, StageSpec, temporary_output
from zerodr.artifacts.trec import CUT
from zerodr.config.base import validate
from zerodr.config.measures import FIRST
from zerodr.errors import ArtifactError, CollectionError, ProtocolError
from zerodr.evaluation.compare import TEST_COLUMNS
from zerodr.evaluation.evaluate import COUNTS
from zerodr.evaluation.numbers import p_value
from zerodr.reporting import render
from zerodr.reporting.grid import TableSettings, check_summaries, fill, read_summaries
from zerodr.reporting.render import method_remarks
from zerodr.reporting.table import build_table, footnotes, protocol_card

VALUES = {
    "bm25": {"alpha": 0.5, "beta": 0.25, "part": 0.9, "dup-a": 0.2, "dup-b": 0.4},
    "dense": {"alpha": 0.4, "beta": 0.35, "part": 0.1, "dup-a": 0.1, "dup-b": 0.1},
}


def collection(name: str, kind: str = "complete", **changes: Any) -> dict[str, Any]:
    return {"name": name, "label": name.title(), "kind": kind, "evaluation_split": "test"} | changes


def params(**changes: Any) -> dict[str, Any]:
    dup = {"aggregate": "dup", "groups": ["all4"]}
    return {
        "methods": [
            {"name": "bm25", "label": "BM25"},
            {"name": "dense", "label": "Dense_1", "remark": "not zero-shot"},
        ],
        "collections": [
            collection("alpha", groups=["all4", "pair"], exclude_self=True),
            collection("beta", groups=["pair"]),
            collection("part", "subset", groups=["all4"], remark="13 of 57 documents"),
            collection("dup-a", **dup),
            collection("dup-b", **dup),
        ],
        "missing": [{"name": "secret", "reason": "gated: needs registration"}],
        "groups": {"all4": ["alpha", "part", "dup", "secret"], "pair": ["alpha", "beta"], "other": ["secret"]},
        "aggregates": {"dup": ["dup-a", "dup-b"]},
        "protocol": {"name": "standard", "description": "as usual", "depth": 10},
        "scale": "mini",
        "source": "beta",
    } | changes


def settings_of(**changes: Any) -> TableSettings:
    return validate(TableSettings, json.loads(json.dumps(params(**changes))), "table")


def write_summary(folder: Path, model: str, name: str, value: float, empty: int = 0, **card: Any) -> Path:
    identity = {
        "model": model,
        "collection": name,
        "split": "test",
        "protocol": "standard",
        "depth": 10,
        "exclude_self": name == "alpha",
    } | card
    rows = [
        identity | {"metric": m, "value": f"{value:.6f}", "low": "0.1", "high": "0.9", "queries": 30} for m in FIRST
    ]
    counts = dict.fromkeys(COUNTS, 0) | {"n_queries": 30, "n_without_results": empty}
    rows += [identity | {"metric": m, "value": str(counts[m]), "low": "", "high": "", "queries": 30} for m in COUNTS]
    path = folder / f"{model}.{name}.tsv"
    pd.DataFrame(rows).to_csv(path, sep="\t", index=False)
    return path


@pytest.fixture
def summaries(tmp_path: Path) -> list[Path]:
    return [
        write_summary(tmp_path, model, name, value, empty=2 if (model, name) == ("bm25", "beta") else 0)
        for model, row in VALUES.items()
        for name, value in row.items()
    ]


def test_aggregates_are_macro_means_and_averages_take_complete_columns_only(summaries):
    grid = fill(read_summaries(summaries), settings_of())
    headers = ["alpha", "beta", "part (subset)", "dup", "Avg all4 (2 of 4)", "Avg pair"]
    assert [column.header for column in grid.columns] == headers
    assert grid.values.loc["bm25"].tolist() == pytest.approx([0.5, 0.25, 0.9, 0.3, (0.5 + 0.3) / 2, 0.375])


def test_a_part_of_an_aggregate_is_marked_and_enters_no_average(summaries):
    settings = settings_of(aggregates={"dup": ["dup-a", "dup-b", "dup-c"]})
    grid = fill(read_summaries(summaries), settings)
    assert [column.header for column in grid.columns][3:] == ["dup (2 of 3)", "Avg all4 (1 of 4)", "Avg pair"]
    assert "dup (2 of 3): macro mean over a part" in "\n".join(footnotes(read_summaries(summaries), grid, settings))
    whole = pd.DataFrame([{"model": "bm25", "collection": "dup", "metric": "ndcg_cut_10", "value": 0.9}])
    numbers = [fill(whole, one).values.loc["bm25", "dup"] for one in (settings_of(), settings)]
    assert numbers == pytest.approx([0.9, float("nan")], nan_ok=True), "a number of all members is none of some"


def families(*names: str) -> dict[str, Any]:
    rows = zip(params()["methods"], names, strict=True)
    return {"methods": [row | {"family": family} for row, family in rows]}


def test_families_are_headings_in_printed_tables_alone(summaries):
    settings = settings_of(**families("lexical", "trained & tuned"))
    frame = read_summaries(summaries)
    grid = fill(frame, settings)
    rows = render.markdown(grid, [], settings, {}, []).splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:6]] == ["_lexical_", "BM25", "_trained & tuned_", "Dense_1 [a]"]
    assert rows[2].count("|") == rows[3].count("|")
    assert r"\multicolumn{7}{l}{\emph{trained \& tuned}} \\" in render.tex(grid, [], settings, {})
    assert "lexical" not in render.plain(grid)


def test_a_table_of_one_family_has_no_heading(summaries):
    settings = settings_of(**families("lexical", "lexical"))
    assert "lexical" not in render.markdown(fill(read_summaries(summaries), settings), [], settings, {}, [])


def test_printed_tables_drop_averages_that_repeat_a_number(summaries):
    settings = settings_of(groups={"some": ["alpha", "beta", "secret"], "pair": ["alpha", "beta"], "lone": ["alpha"]})
    grid = fill(read_summaries(summaries), settings)
    assert [column.header for column in grid.columns[-3:]] == ["Avg some (2 of 3)", "Avg pair", "Avg lone"]
    assert [column.header for column in grid.printed().columns[4:]] == ["Avg pair"]


@pytest.mark.parametrize(
    "card", [{"protocol": "modir-paper"}, {"split": "dev"}, {"depth": 100}, {"exclude_self": True}]
)
def test_numbers_of_another_protocol_are_refused(tmp_path, summaries, card):
    summaries[1] = write_summary(tmp_path, "bm25", "beta", 0.5, **card)
    with pytest.raises(ProtocolError, match=f"bm25/beta: {next(iter(card))} is .*, the table's is"):
        check_summaries(read_summaries(summaries), settings_of())


def test_missing_foreign_and_repeated_summaries_are_refused(tmp_path, summaries):
    check_summaries(read_summaries(summaries), settings_of())
    with pytest.raises(ArtifactError, match="bm25/alpha: 1 summaries are missing"):
        check_summaries(read_summaries(summaries[1:]), settings_of())
    with pytest.raises(ArtifactError, match="twice"):
        check_summaries(read_summaries([*summaries, summaries[0]]), settings_of())
    with pytest.raises(ArtifactError, match="other/alpha: is no cell of this table"):
        check_summaries(read_summaries([*summaries, write_summary(tmp_path, "other", "alpha", 0.1)]), settings_of())


def test_a_table_without_columns_is_one_clear_error():
    with pytest.raises(CollectionError, match="have no judged queries, so the table has no column: add qrels"):
        read_summaries([])


def test_footnotes_tell_what_a_reader_must_know(summaries):
    frame, settings = read_summaries(summaries), settings_of()
    text = "\n".join(footnotes(frame, fill(frame, settings), settings))
    for words in (
        "nDCG@10 (ndcg_cut_10)",
        "protocol standard: as usual",
        "lengths: the model's own",
        "depth 10",
        "own documents left out at search time in alpha",
        "ties: score descending, then document id descending",
        "alpha test (30 queries)",
        "part (subset): a subset of the published collection",
        "dup: macro mean over 2 collections",
        "Avg all4 (2 of 4): mean over alpha, dup",
        "missing: secret (gated: needs registration)",
        "queries without results, which score 0: beta bm25 2",
        "part: 13 of 57 documents",
        "[a] not zero-shot",
    ):
        assert words in text, words
    assert "licences" not in text


def test_doubts_about_imported_runs_are_footnotes(summaries):
    frame, settings = read_summaries(summaries), settings_of()
    plain = footnotes(frame, fill(frame, settings), settings)
    first = frame.iloc[:2].assign(metric=["n_rank_contradicts", "n_equal_scores"], value=["12", "3"], queries=20)
    doubtful = pd.concat([frame, first])
    notes = footnotes(doubtful, fill(doubtful, settings), settings)
    where = f"{first['collection'].iloc[0]} {first['model'].iloc[0]}"
    assert [note for note in notes if note not in plain] == [
        f"{where}: scores contradict the ranks in 12 of 20 queries, and scores decide: distances need a minus",
        f"{where}: all scores are equal in 3 of 20 queries, so that document ids decide their order",
    ]


def test_a_run_that_was_cut_above_a_measure_of_the_table_is_a_footnote(summaries):
    frame, settings = read_summaries(summaries), settings_of()
    cut = pd.concat([frame, frame.iloc[:1].assign(metric=CUT, value="10", queries=20)])
    assert not any("what the file leaves out" in note for note in footnotes(cut, fill(cut, settings), settings))
    settings = settings.model_copy(update={"further": ("recall_100", "recall_5")})
    where = f"{cut['collection'].iloc[0]} {cut['model'].iloc[0]}"
    words = "rankings end at rank 10 in 20 queries, and what the file leaves out counts as not found by R@100"
    assert f"{where}: {words}" in footnotes(cut, fill(cut, settings), settings)


def test_findings_of_the_audits_are_notes_with_both_counts(summaries):
    frame, settings = read_summaries(summaries), settings_of()
    some = frame[(frame["metric"] == "n_queries") & (frame["collection"] == "alpha")]
    more = [some.assign(metric=name, value=9, queries=12) for name in ("n_dropped_judgements", "n_equal_documents")]
    empty = frame["metric"].eq("n_without_positives") & frame["collection"].eq("alpha")
    frame = pd.concat([frame.assign(value=frame["value"].mask(empty, 9)), *more])
    notes = footnotes(frame, fill(frame, settings), settings)
    assert "judgements of absent documents or queries, which are dropped: alpha 9 of 12" in notes
    assert "documents whose text another one has too, so that ids decide their order: alpha 9 of 12" in notes
    assert "judged queries without a positive judgement, which are left out: alpha 9 of 39" in notes


def test_the_note_on_ties_is_true_of_bm25(summaries):
    settings = settings_of()
    assert "BM25, as Anserini: document id ascending" in protocol_card(settings)[1]
    own = [row.model_copy(update={"kind": "own"}) for row in settings.collections]
    assert protocol_card(settings.model_copy(update={"collections": tuple(own)}))[1].endswith("document id descending")


def test_licences_are_told_once_each(summaries):
    licences = {"alpha": "CC BY 4.0", "part": "terms of use", "dup-a": "CC BY 4.0"}
    frame, plain = read_summaries(summaries), settings_of()
    rows = [row.model_copy(update={"licence": licences.get(row.name, "")}) for row in plain.collections]
    settings = plain.model_copy(update={"collections": tuple(rows)})
    notes = footnotes(frame, fill(frame, settings), settings)
    assert "licences of the data: alpha, dup-a (CC BY 4.0), part (terms of use)" in notes


def test_lengths_and_overrides_of_the_protocol_are_told(summaries):
    overrides = {"alpha": {"document_tokens": 128}, "absent": {"query_tokens": 9}}
    changed = {"query_tokens": 64, "exclude_self": "never", "overrides": overrides}
    protocol = params()["protocol"] | changed
    text = "\n".join(
        footnotes(
            read_summaries(summaries), fill(read_summaries(summaries), settings_of()), settings_of(protocol=protocol)
        )
    )
    assert "lengths: query 64 tokens, document as the model says; alpha: query 64 tokens, document 128 tokens;" in text
    assert "title join: as the registry says; own documents are kept" in text


def test_equal_remarks_share_a_letter():
    methods = [{"name": str(i), "label": str(i), "remark": f"r{i % 30}"} for i in range(31)]
    letters = [letter for letter, _ in method_remarks(settings_of(methods=methods))]
    assert (letters[0], letters[25], letters[26], len(letters)) == ("a", "z", "aa", 30)


def significance(folder: Path) -> Path:
    rows = [
        dict.fromkeys(TEST_COLUMNS, 0.5)
        | {
            "collection": "alpha",
            "method": "dense",
            "baseline": "bm25",
            "metric": "ndcg_cut_10",
            "difference": -0.1,
            "p_t_holm": 0.01,
        },
        dict.fromkeys(TEST_COLUMNS, 0.5)
        | {
            "collection": "beta",
            "method": "dense",
            "baseline": "bm25",
            "metric": "ndcg_cut_10",
            "difference": 0.1,
            "p_t_holm": 0.06,
        },
    ]
    path = folder / "significance.tsv"
    path.write_text(pd.DataFrame(rows)[TEST_COLUMNS].to_csv(sep="\t", index=False) + "# a note\n")
    return path


def run_stage(folder: Path, inputs: dict[str, Any], names: tuple[str, ...], **changes: Any) -> dict[str, Path]:
    outputs = {name: str(folder / f"out.{name}") for name in names}
    spec = StageSpec("build_table", 1, {}, inputs, outputs, params(**changes), 13)
    build_table(Stage(spec, folder))
    return {name: temporary_output(path) for name, path in outputs.items()}


SCORES = """method\tcollection\tndcg_at_10\trecall_at_100
Learned\talpha\t0.6\t0.9
learned\tdup\t0.3\t
learned\tpart\t0.99\t
learned\tsomewhere\t0.7\t
"""


def with_scores(row: str = "learned") -> dict[str, Any]:
    scores = {"file": "scores.tsv", "row": row, "source": "a paper"}
    return {"methods": [*params()["methods"], {"name": "theirs", "label": "Theirs", "scores": scores}]}


def test_published_numbers_are_a_row_in_italics_that_wins_nothing(tmp_path, summaries):
    (tmp_path / "scores.tsv").write_text(SCORES)
    inputs = {"summaries": [str(path) for path in summaries], "scores": [str(tmp_path / "scores.tsv")]}
    made = run_stage(tmp_path, inputs, ("table", "markdown", "tex"), **with_scores())
    row = pd.read_table(made["table"]).set_index("model").loc["theirs"]
    assert row["alpha"] == 0.6 and row["dup"] == 0.3
    assert row[["beta", "part (subset)", "Avg pair"]].isna().all()  # unknown, not comparable, incomplete
    line = next(line for line in made["markdown"].read_text().splitlines() if "Theirs" in line)
    assert "_0.6000_" in line and "**" not in line
    assert "**0.5000**" in made["markdown"].read_text()
    assert r"\textit{0.6000} &  &" in made["tex"].read_text()


def test_a_row_without_a_number_here_is_left_out_and_an_unknown_system_named(tmp_path, summaries):
    (tmp_path / "scores.tsv").write_text(SCORES.replace("alpha", "elsewhere").replace("dup", "elsewhere2"))
    inputs = {"summaries": [str(path) for path in summaries], "scores": [str(tmp_path / "scores.tsv")]}
    made = run_stage(tmp_path, inputs, ("table",), **with_scores())
    assert pd.read_table(made["table"])["model"].tolist() == ["bm25", "dense"]
    with pytest.raises(ArtifactError, match="no numbers of 'leaned'.*did you mean learned"):
        run_stage(tmp_path, inputs, ("table",), **with_scores("leaned"))


def test_a_row_may_lack_collections_that_it_says(tmp_path, summaries):
    frame = read_summaries([path for path in summaries if path.name != "dense.beta.tsv"])
    rows = params()["methods"]
    settings = settings_of(methods=[rows[0], rows[1] | {"absent": ["beta"]}])
    check_summaries(frame, settings)
    grid = fill(frame, settings)
    assert grid.values.loc["dense", ["beta", "Avg pair"]].isna().all() and grid.values.loc["dense", "alpha"] == 0.4
    assert "nan" not in render.plain(grid) + render.markdown(grid, [], settings, {}, [])
    assert "Avg pair dense: no mean, because it has no ranking of beta" in footnotes(frame, grid, settings)
    alone = settings_of(methods=[rows[1] | {"absent": ["beta"]}])
    frame = frame[frame["model"] == "dense"]
    notes = "\n".join(footnotes(frame, fill(frame, alone), alone))
    assert "alpha test (30 queries)" in notes and "beta test" not in notes


def test_the_stage_writes_all_formats(tmp_path, summaries):
    inputs = {"summaries": [str(path) for path in summaries], "significance": str(significance(tmp_path))}
    made = run_stage(tmp_path, inputs, ("table", "csv", "markdown", "tex"))
    table = pd.read_table(made["table"])
    assert table.equals(pd.read_csv(made["csv"]))
    assert table["model"].tolist() == ["bm25", "dense"]
    assert table["alpha"].tolist() == [0.5, 0.4]
    assert table.notna().all().all()
    lines = made["table"].read_text().splitlines()
    assert all(line.startswith("# ") for line in lines[3:])
    assert "\t0.5000\t" in lines[1]
    text = made["markdown"].read_text()
    assert "**0.5000**" in text and "0.4000▼" in text and "Dense_1 [a]" in text
    assert "**0.3500**" in text and "0.3500**▲" not in text
    assert "## Differences from BM25" in text
    latex = made["tex"].read_text()
    assert r"\textbf{0.5000}" in latex and "0.4000$^{-}$" in latex and r"Dense\_1" in latex
    again = {name: path.read_bytes() for name, path in made.items()}
    made = run_stage(tmp_path, inputs, ("table", "csv", "markdown", "tex"))
    assert again == {name: path.read_bytes() for name, path in made.items()}


def test_further_measures_are_in_all_files_that_hold_numbers(tmp_path, summaries):
    inputs = {"summaries": [str(path) for path in summaries]}
    made = run_stage(tmp_path, inputs, ("table", "csv", "markdown"), further=["ndcg_cut_20", "recall_100"])
    table = pd.read_table(made["table"], index_col="model")
    assert table.equals(pd.read_csv(made["csv"], index_col="model"))
    columns = ["alpha", "beta", "part (subset)", "dup", "Avg pair", "Avg all4 (2 of 4)"]
    assert list(table)[6:] == [f"{measure} {name}" for measure in ("ndcg_cut_20", "recall_100") for name in columns]
    assert table["recall_100 dup"].tolist() == pytest.approx([0.3, 0.1])
    text = made["markdown"].read_text()
    assert "## nDCG@20" in text and "## R@100" in text
    small = params()["collections"][:2]
    of_two = [str(path) for path in summaries if path.name.split(".")[1] in ("alpha", "beta")]
    made = run_stage(tmp_path, {"summaries": of_two}, ("table", "markdown"), collections=small, further=["map"])
    assert made["markdown"].read_text().count("Avg") == 1 + 1 + 1, "one average a table, and its note"


def test_one_row_without_significance(tmp_path, summaries):
    inputs = {"summaries": [str(path) for path in summaries[:5]]}
    made = run_stage(tmp_path, inputs, ("table",), methods=params()["methods"][:1])
    assert pd.read_table(made["table"])["model"].tolist() == ["bm25"]


def test_ties_are_all_bold_and_a_single_row_is_not(summaries):
    grid = fill(read_summaries(summaries), settings_of())
    grid.values.loc["dense"] = grid.values.loc["bm25"] + 0.00001
    assert {cell[0] for row in render.cells(grid, {}, "*{}*", "{}") for cell in row} == {"*"}


def test_markdown_cells_are_padded_and_bars_are_escaped():
    text = render.markdown_table(["a", "b|c"], [["x", "1"], ["yyy", "22"]])
    assert text == "| a   | b\\|c |\n| --- | ---: |\n| x   |    1 |\n| yyy |   22 |\n"


def test_no_tests_are_told():
    notes, sections = render.significance_section(pd.DataFrame(columns=TEST_COLUMNS), settings_of())
    assert "no significance tests" in notes[0] and not sections


def test_a_tiny_p_value_is_no_zero():
    assert [p_value(value) for value in (0.04321, 1e-20, 0.0)] == ["0.043", "1e-20", "< 1e-99"]
