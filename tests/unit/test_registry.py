from __future__ import annotations

import csv

import pytest

from zerodr.collections.readers import READERS
from zerodr.config.registry import Collection, parse_registry, read_registry
from zerodr.errors import ConfigError

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
    return read_registry(root / "config/collections.tsv")


def test_groups_are_those_of_the_papers(rows):
    sizes = {"beir18": 18, "contriever14": 14, "cpt11": 11, "modir15": 15, "berm14": 14, "mini": 3}
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


def test_cqadupstack_sums_to_the_published_counts(rows):
    parts = [row for row in rows.values() if row.aggregate == "cqadupstack"]
    assert sum(row.documents for row in parts) == 457_199
    assert sum(row.queries for row in parts) == 13_145


def test_formats_have_readers_and_gated_rows_say_where(rows):
    for row in rows.values():
        assert row.format in READERS, row.name
        assert row.archive, row.name
        assert bool(row.registration) == (row.access == "gated"), row.name
        assert bool(row.evaluation_split) == (row.kind != "memory"), row.name


def test_subsets_and_pools_say_so(rows):
    for row in rows.values():
        if row.kind in ("subset", "pool"):
            assert row.remark.startswith(row.kind.upper()) and "not comparable" in row.remark, row.name
            assert not set(row.groups) - {"lab"}, row.name


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


HEADER = "name\tlabel\tkind\tarchive\turls\tsplits\tevaluation_split\ttitle_join\n"


def test_cells_become_values():
    text = HEADER + "a\tA\tcomplete\ta.zip\thttp://x http://y\ttrain test:3\ttest\t\\n\n"
    row = parse_registry(text, "r.tsv")["a"]
    assert row.urls == ("http://x", "http://y")
    assert row.splits == {"train": None, "test": 3}
    assert row.title_join == "\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\tA\tcomplete\n", "another number of cells"),
        ("a\tA\tcomplete\ta.zip\t\ttest:3\tdev\t\n", "evaluation_split 'dev'"),
        ("a\tA\twhole\ta.zip\t\ttest:3\ttest\t\n", "kind"),
        ("a\tA\tcomplete\ta.zip\t\t\t\t\na\tA\tcomplete\ta.zip\t\t\t\t\n", "stands twice"),
        ("a\tA\tcomplete\ta.zip\tu1\t\t\t\nb\tB\tcomplete\ta.zip\tu2\t\t\t\n", "share archive a.zip"),
    ],
)
def test_bad_rows_are_refused_with_their_line(line, message):
    with pytest.raises(ConfigError, match=message) as error:
        parse_registry(HEADER + line, "r.tsv")
    assert "r.tsv" in str(error.value)
