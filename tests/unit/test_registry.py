from __future__ import annotations

import csv

import pytest

from zerodr.collections.readers import READERS
from zerodr.config.registry import FORMATS, Collection, read_registry
from zerodr.errors import ConfigError
from zerodr.plan import paths

FORUMS = [
    "android",
    "english",
    "gaming",
    "gis",
    "mathematica",
    "physics",
    "programmers",
    "stats",
    "tex",
    "unix",
    "webmasters",
    "wordpress",
]


@pytest.fixture(scope="module")
def rows(root) -> dict[str, Collection]:
    return read_registry(root / "config/collections")


def test_large_collections_of_an_unknown_number_are_planned_by_an_estimate(rows):
    planned = [rows[name].planned_documents for name in ("dureader-retrieval", "cpr-medical")]
    assert planned == [8_000_000, 960_000] and rows["dureader-retrieval"].documents is None


def test_groups_are_those_of_the_papers(rows):
    sizes = {"beir18": 18, "contriever14": 14, "cpt11": 11, "modir15": 15, "berm14": 14, "mini": 2}
    for group, size in sizes.items():
        assert len({row.column for row in rows.values() if group in row.groups}) == size, group


def test_everything_the_papers_use_is_there(rows):
    assert {f"cqadupstack-{forum}" for forum in FORUMS} == {n for n, r in rows.items() if r.aggregate == "cqadupstack"}
    assert sum(name.startswith("lotte-") for name in rows) == 5
    assert sum(name.startswith("oag-qa-") for name in rows) == 20
    wanted = {
        "msmarco",
        "webis-touche2020",
        "webis-touche2020@v1",
        "trec-covid-v2",
        "cmedqav2",
        "cpr-ecom",
        "cpr-video",
        "cpr-medical",
        "dureader",
        "dureader-retrieval",
        "memory-msmarco",
        "memory-dpr-wikipedia",
        "memory-mesh-descriptors",
        "memory-mesh-qualifiers",
    }
    assert wanted <= set(rows)
    assert {name for name, row in rows.items() if row.access == "gated"} == {
        "bioasq",
        "signal1m",
        "trec-news",
        "robust04",
    }


def test_rows_that_are_alike_never_share_a_column(rows):
    """CQADupStack is the one column of several collections; versions of Touche and TREC-COVID have their own."""
    columns: dict[str, list[str]] = {}
    for name, row in rows.items():
        columns.setdefault(row.column, []).append(name)
    shared = {column: sorted(names) for column, names in columns.items() if len(names) > 1}
    shared = {column: names for column, names in shared.items() if not column.startswith(("lotte", "oag-qa"))}
    assert shared == {"cqadupstack": sorted(f"cqadupstack-{forum}" for forum in FORUMS)}
    for family in ("webis-touche2020", "trec-covid"):
        versions = [row for name, row in rows.items() if name.startswith(family)]
        for values in (
            [row.column for row in versions],
            [row.label for row in versions],
            [paths.summary("m", row.name, "standard") for row in versions],
        ):
            assert len(set(values)) == len(versions) >= 2, values
    touche = [row for name, row in rows.items() if name.startswith("webis-touche2020")]
    assert len({row.archive for row in touche}) == len(touche)


def test_cqadupstack_sums_to_the_published_counts(rows):
    parts = [row for row in rows.values() if row.aggregate == "cqadupstack"]
    assert sum(row.documents for row in parts) == 457_199
    assert sum(row.queries for row in parts) == 13_145


def test_formats_have_readers_and_gated_rows_say_where(rows):
    assert set(FORMATS) == set(READERS)
    for row in rows.values():
        assert bool(row.archive) == (row.transform is None), row.name
        assert bool(row.registration) == (row.access == "gated"), row.name
        assert bool(row.evaluation_split) == (row.kind != "memory"), row.name


def test_subsets_and_pools_say_so(rows):
    for row in rows.values():
        if row.kind in ("subset", "pool"):
            assert row.remark.startswith(row.kind.upper()) and "not comparable" in row.remark, row.name
            assert not set(row.groups) - {"lab", "lab-mirror"}, row.name


def test_every_collection_of_the_mirror_is_pinned(rows, mirror):
    for entry in csv.DictReader(open(mirror / "index.tsv"), delimiter="\t"):
        users = [row for row in rows.values() if row.archive == f"{entry['collection']}.zip"]
        assert users, entry["collection"]
        for row in users:
            assert f"sha256:{entry['zip_sha256']}" in row.checksums
            assert row.documents == int(entry["documents"])


def test_beir_checksums_are_the_published_ones(rows, root):
    published = {}
    for entry in csv.DictReader(open(root / "resources/reference/beir_md5.tsv"), delimiter="\t"):
        published.setdefault(entry["archive"], set()).add(f"md5:{entry['md5']}")
    checked = [row for row in rows.values() if row.archive in published and "beir18" in row.groups]
    assert len({row.archive for row in checked}) == 14
    for row in checked:
        assert published[row.archive] & set(row.checksums), row.name


def test_self_exclusion_and_gaps(rows):
    assert {name for name, row in rows.items() if row.exclude_self} == {"arguana", "quora"}
    assert rows["arguana"].known_gaps == 5


FIRST = """
defaults: {kind: complete, groups: [g], licence: free}
collections:
  a: {label: A, archive: a.zip, urls: [http://x, http://y], splits: {train: null, test: 3}, evaluation_split: test}
  b: {like: a, label: B, member: b, groups: []}
"""


@pytest.fixture
def registry(tmp_path):
    """Writes files of a registry and reads it."""

    def read(**files: str) -> dict[str, Collection]:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return read_registry(tmp_path)

    return read


def test_defaults_and_like_fill_a_block(registry):
    rows = registry(first=FIRST)
    assert (rows["a"].kind, rows["a"].groups, rows["a"].urls) == ("complete", ("g",), ("http://x", "http://y"))
    assert rows["a"].splits == {"train": None, "test": 3}
    changed = {"name": "b", "label": "B", "member": "b", "groups": ()}
    assert rows["b"] == rows["a"].model_copy(update=changed)


def test_files_are_read_in_alphabetical_order(registry):
    rows = registry(z="collections: {c: {label: C, kind: memory}}", first=FIRST)
    assert list(rows) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("evaluation_split: test", "evaluation_split: dev", "first.yaml: a: .*evaluation_split 'dev'"),
        ("kind: complete", "kind: whole", "first.yaml: a: key 'kind': input should be .*found 'whole'"),
        ("licence: free", "licens: free", "first.yaml: defaults: key 'licens': is not known: did you mean licence"),
        ("member: b", "membre: b", "first.yaml: b: key 'membre': is not known: did you mean member"),
        ("member: b", "name: c", "first.yaml: b: key 'name': is not known"),
        ("like: a", "like: aa", r"first.yaml: b: like 'aa': is not known: did you mean a\?"),
        ("like: a", "like: b", "first.yaml: b: like 'b': is not known"),
        ("like: a", "like: [a]", "first.yaml: b: like .* is not known"),
        ("member: b", "urls: []", r"first.yaml: b: shares archive a.zip with a \(.*first.yaml\), but urls"),
        ("collections:", "colections:", "first.yaml: unknown key 'colections'.*: did you mean collections"),
        ("  b: {", "  a: {", "first.yaml:5: key 'a' occurs twice"),
        ("  b: {", "  B: {", "first.yaml: B: key 'name'"),
    ],
)
def test_mistakes_name_the_file_and_the_nearest_key(registry, old, new, message):
    assert old in FIRST
    with pytest.raises(ConfigError, match=message):
        registry(first=FIRST.replace(old, new))


def test_a_name_in_two_files_is_refused(registry):
    second = "collections: {b: {label: B, kind: memory}}"
    with pytest.raises(ConfigError, match=r"second.yaml: collection 'b' is in config/collections/first.yaml too"):
        registry(first=FIRST, second=second)


def test_files_with_another_ending_are_refused(registry, tmp_path):
    (tmp_path / "second.yml").write_text("")
    with pytest.raises(ConfigError, match="second.yml: is no family of collections.*: rename it to second.yaml"):
        registry(first=FIRST)
