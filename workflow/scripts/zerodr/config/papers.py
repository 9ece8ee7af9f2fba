"""Tables and figures of the papers: `config/papers/<paper>.yaml`, an item of a known kind each."""

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, model_validator

from zerodr.config.base import Settings, mapping, validate
from zerodr.config.custom import custom_files
from zerodr.config.files import known, read_yaml, yaml_files
from zerodr.config.item import Item, TextItem
from zerodr.config.measures import MeasureName
from zerodr.errors import ConfigError
from zerodr.papers import modules

LAB = "lab"  # results/lab: claims of the bench itself
PAGES = ("all", "published")  # results/<paper>/all.html
TAKEN = {
    "beir",
    "bm25",
    "candidates",
    "clusters",
    "collections",
    "embeddings",
    "evaluation",
    "exported",
    "lineage",
    "logs",
    "benchmarks",
    "exported-memories",
    "memory",
    "mined",
    "models",
    "runs",
    "scored",
    "spaces",
    "spans",
    "analysis",
    "domains",
    "units",
}  # folders of results


def _compares(name: str) -> str:
    """Refuse to compare by a measure of which more is not better."""
    if name.startswith("hole_"):
        raise ValueError(f"{name} compares no methods: more documents without a judgement are not better")
    return name


ComparedMeasure = Annotated[MeasureName, AfterValidator(_compares)]


class MethodsItem(Item):
    """Methods by collection, with tests against a baseline."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Rows."""
    baseline: str
    """The row that the others are tested against; it is a row itself."""
    measure: ComparedMeasure = "ndcg_cut_10"
    """Measure that is compared, by its name in `zerodr.config.measures`."""
    beside: tuple[MeasureName, ...] = ()
    """Measures next to it, without tests, such as hole rates."""


class ClaimItem(Item):
    """What methods gain over their control: the mean over seeds, by collection and over all of them."""

    later: ClassVar = ("controls", "pooled")

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with the ingredient."""
    baseline: str
    """Their control, which lacks it."""
    controls: dict[str, str] = {}
    """Methods whose control is another one."""
    measure: ComparedMeasure = "ndcg_cut_10"
    """Measure that is compared, by its name in `zerodr.config.measures`."""
    pooled: bool = False
    """Compare the mean of the methods with the control, too."""

    @model_validator(mode="after")
    def _known(self) -> "ClaimItem":
        if unknown := sorted(self.controls.keys() - set(self.methods)):
            raise ValueError(f"controls: {', '.join(unknown)} is not among methods")
        if itself := next((name for name in self.methods if self.control(name) == name), ""):
            raise ValueError(
                f"methods: {itself} is the control, next to which each method is shown: leave it out of methods"
            )
        if self.pooled and self.controls:
            raise ValueError("pooled compares the mean of the methods with one control: leave controls or pooled out")
        return self

    def control(self, method: str) -> str:
        """Name a method's control."""
        return self.controls.get(method, self.baseline)


class SimilarityItem(Item):
    """Similarity of a collection to the source, next to the gains of methods over a baseline there."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods whose gains are shown."""
    baseline: str
    """The method that they are compared with."""


class EpisodesItem(Item):
    """Methods after each of some stages."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods."""
    stages: tuple[str, ...] | None = Field(None, min_length=1)
    """Stages of their chains, in order. None: every fine-tuning stage of the first method."""
    measure: MeasureName = "ndcg_cut_10"
    """Measure that is shown, by its name in `zerodr.config.measures`."""


class SettingsItem(TextItem):
    """Settings of a recipe next to those that a paper lists."""

    method: str
    """The recipe."""
    values: dict[str, str | dict[str, str]]
    """Row of the paper's table -> dotted path in the recipe's settings, or a path for each measure of the row."""


class StatisticsItem(TextItem):
    """Sizes of collections and lengths of their texts."""


class SizesItem(Item):
    """A mean over collections against the number of parameters."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods."""


class Doubt(Settings):
    """A column or measure of a paper's tables whose meaning the paper leaves open."""

    read_as: tuple[str, ...] = Field(min_length=1)
    """Collections or measures here that it may mean: each is shown, none gets the verdict OK or DRIFT."""
    remark: str
    """The open question, in a sentence."""


class Paper(Settings):
    """A paper and its items."""

    label: str
    """Name of the paper."""
    reference: str | None = None
    """File with the values that the paper prints (resources/reference/papers/README.md). None: none."""
    protocol: str | None = None
    """Protocol that the paper ranks with. None: the configuration's."""
    rows: dict[str, str] = {}
    """Row of its tables -> our method. A row that is not named here has no method here."""
    averages: dict[str, str] = {}
    """Column of its tables -> column group that it is the mean of. `avg` is the mean of the table's targets."""
    doubts: dict[str, Doubt] = {}
    """Columns or measures of its tables whose meaning is open."""
    items: dict[str, Item]
    """Item -> what it is; the name is that of its files: `results/<paper>/<item>.tsv`."""


KINDS: dict[str, type[Item]] = {
    "methods": MethodsItem,
    "claim": ClaimItem,
    "similarity": SimilarityItem,
    "episodes": EpisodesItem,
    "settings": SettingsItem,
    "statistics": StatisticsItem,
    "sizes": SizesItem,
    **{kind: item for paper in modules("items") for kind, item in paper.ITEMS.items()},
}


def load_papers(folder: Path) -> dict[str, Paper]:
    """All papers of a folder with one YAML file each; the user's own items are among those of LAB.

    Raises:
        ConfigError: names file, item, key and the nearest known name.
    """
    papers = {path.stem: read_paper(path) for path in yaml_files(folder, "config/papers", "paper")}
    for where, written in custom_files(folder.parent, "items").items():
        lab, items = papers[LAB], mapping(written["items"], f"{where}: items")
        if taken := lab.items.keys() & items.keys():
            raise ConfigError(where, f"results/{LAB} has an item {min(taken)} already", "rename it")
        if pages := [name for name in items if name in PAGES or "." in name]:
            problem = f"an item can't be {pages[0]!r}: pages are {' and '.join(PAGES)}, and a dot begins an ending"
            raise ConfigError(where, problem, "rename it")
        own = {name: item_of(value, f"{where}: {name}") for name, value in items.items()}
        papers[LAB] = lab.model_copy(update={"items": lab.items | own})
    return papers


def read_paper(path: Path) -> Paper:
    """The paper of a file."""
    where = f"config/papers/{path.name}"
    written = mapping(read_yaml(path), where)
    items = mapping(written.get("items"), f"{where}: items")
    if path.stem in TAKEN or items.keys() & set(PAGES):
        names = f"a paper can't be one of {', '.join(sorted(TAKEN))}, an item can't be {' or '.join(map(repr, PAGES))}"
        raise ConfigError(where, names, "rename it")
    paper = validate(Paper, {**written, "items": {}}, where)
    made = {name: item_of(value, f"{where}: {name}") for name, value in items.items()}
    if paper.reference and not any(item.published and item.cells is None for item in made.values()):
        raise ConfigError(where, "no item shows values of its reference file", "give one the key `published`")
    return paper.model_copy(update={"items": made})


def item_of(value: Any, where: str) -> Item:
    """An item of a known kind."""
    kind = known(f"{where}: kind", str(mapping(value, where).get("kind")), KINDS)
    return validate(kind, value, where)
