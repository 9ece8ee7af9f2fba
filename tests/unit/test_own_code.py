"""Losses and objectives of the user's own folder, and the scaffolds of `zerodr new`."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.unit.config_helpers import project

from zerodr.config import custom
from zerodr.config.custom import code_digest, load_code, raised_by
from zerodr.config.load import load_bench
from zerodr.config.training import ObjectiveSettings
from zerodr.errors import CollectionError, ConfigError
from zerodr.operations.loading import load_plan
from zerodr.operations.scaffold import count_archive, write_new
from zerodr.plan import Plan
from zerodr.training.objectives.base import Encoded
from zerodr.training.objectives.ranking import ScoreLoss, make_objective

LOSSES = Path("config/my/losses.py")

__all__ = ["project"]


def planned(rule, **words) -> list[str]:
    plan = Plan(load_bench(Path("."), {}))
    names = {"stage": "ep0", "scope": "shared"} | words
    return [
        plan.settings(rule)(SimpleNamespace(model=model, **names))
        for model in ("dpr", "ance", "coco-dr")
        if names["stage"] in plan.chains.trained(model).chain
    ]


def batch() -> Encoded:
    queries = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    documents = torch.tensor([[[1.0, 0.0], [0.5, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    return Encoded(0, queries, documents, known=torch.tensor([[0, 0], [0, 2], [1, 2]]))


def test_a_loss_of_two_files_leaves_every_other_model_as_it_is(project):
    before = planned("finetune")
    files = write_new("loss", "hinge").files
    assert [str(path) for path in files] == ["config/my/losses.py", "config/my/dpr-hinge.yaml"]
    assert planned("finetune") == before
    plan = Plan(load_bench(project, {}))
    job = plan.settings("finetune")(SimpleNamespace(model="dpr-hinge", stage="ep0", scope="shared"))
    settings = json.loads(job)["settings"]["settings"]["objective"]
    assert settings["arguments"] == {"margin": 0.5} and settings["code"] == code_digest("losses.py", "hinge")
    made = make_objective(ObjectiveSettings(**settings))
    assert made(batch())["hinge"].item() == pytest.approx((0.0 + 0.0) / 2)  # 2 - 1 and 1 - 0 exceed the margin


def test_an_objective_sees_documents_of_other_queries_but_no_known_positives(project):
    write_new("objective", "Smooth")
    settings = ObjectiveSettings(name="Smooth", arguments={"temperature": 1.0, "smoothing": 0.0})
    assert not settings.compares
    scores = torch.tensor([[2.0, 1.0, -1e4, 2.0], [0.0, 1.0, 1.0, 0.0]])
    loss = make_objective(settings)(batch())["Smooth"]
    assert loss.item() == pytest.approx(torch.nn.functional.cross_entropy(scores, torch.tensor([0, 2])).item())
    smooth = ObjectiveSettings(name="Smooth", arguments={"temperature": 1.0, "smoothing": 0.2})
    each = [
        torch.nn.functional.cross_entropy(torch.tensor(row), torch.tensor(0), label_smoothing=0.2)
        for row in ([2.0, 1.0, 2.0], [1.0, 0.0, 1.0, 0.0])
    ]
    assert make_objective(smooth)(batch())["Smooth"].item() == pytest.approx(sum(each).item() / 2)


def test_code_is_known_by_what_it_uses(project):
    write_new("loss", "hinge")
    first = code_digest("losses.py", "hinge")
    write_new("objective", "Smooth")
    LOSSES.write_text(LOSSES.read_text() + "\n# a comment\n")
    assert code_digest("losses.py", "hinge") == first
    settings = ObjectiveSettings(name="hinge", arguments={"margin": 0.5})
    LOSSES.write_text(LOSSES.read_text().replace(".clamp(min=0)", ".clamp(min=0.0)"))
    assert code_digest("losses.py", "hinge") != first
    with pytest.raises(ConfigError, match="losses.py: hinge: has changed since this job was planned: run again"):
        make_objective(settings)


@pytest.mark.parametrize(
    "filled",
    [
        "for k in range(2):\n    WEIGHTS.append({})",
        "_ = WEIGHTS.append({})",
        "class Filled:\n    WEIGHTS.append({})",
        "WEIGHTS[:], scale = [{}], 2",
        "if True:\n    scale = WEIGHTS.append({})",
        "def filled(weight=WEIGHTS.append({})):\n    pass",
        "import tools\nWEIGHTS.append(tools.WEIGHT)",
        "from tools import WEIGHT\nWEIGHTS = [WEIGHT]",
        "from kit.deep.weights import WEIGHT\nWEIGHTS = [WEIGHT]",
    ],
)
def test_what_fills_a_name_in_passing_is_code_too(project, filled):
    (LOSSES.parent / "kit" / "deep").mkdir(parents=True)
    digests = set()
    for weight in (0.5, 0.6):
        for module in ("tools", "kit/deep/weights"):
            (LOSSES.parent / f"{module}.py").write_text(f"WEIGHT = {weight}  # a comment\n")
        first = "WEIGHTS = []\nOTHER = [1]\n"
        LOSSES.write_text(first + filled.format(weight) + "\n\n\ndef mine(scores):\n    return scores * WEIGHTS[0]\n")
        digests.add(code_digest("losses.py", "mine"))
    assert len(digests) == 2
    assert load_code("losses.py", "mine")(2) == pytest.approx(1.2)
    LOSSES.write_text(LOSSES.read_text().replace("OTHER = [1]", "OTHER = [2]"))
    assert code_digest("losses.py", "mine") in digests


def test_a_loss_that_nobody_defines_is_refused_with_the_nearest(project):
    write_new("loss", "hinge")
    with pytest.raises(ValueError, match="'hnge' is no loss, did you mean hinge"):
        ObjectiveSettings(name="hnge")
    LOSSES.write_text("def hinge(:\n")
    with pytest.raises(ConfigError, match="losses.py:1: is no Python"):
        load_bench(project, {})


def test_arguments_that_the_code_does_not_take_are_refused_in_the_plan(project):
    write_new("loss", "hinge")
    bench = load_bench(project, {"set": ["dpr-hinge.objective.arguments.margin=0.1", "0.2"], "methods": ["dpr-hinge"]})
    added = [name for name in bench.methods if name.startswith("dpr-hinge+objective.arguments.margin")]
    assert len({name.partition("@")[0] for name in added}) == 2
    with pytest.raises(ConfigError, match="takes no 'margn', did you mean margin"):
        load_bench(project, {"set": ["dpr-hinge.objective.arguments.margn=0.1"]})
    LOSSES.write_text("def bare(scores, teacher, scale, *, power=2):\n    return scores\n")
    with pytest.raises(ValueError, match="bare of losses.py needs scale"):
        ObjectiveSettings(name="bare", arguments={"power": 1})
    assert ObjectiveSettings(name="bare", arguments={"scale": 1, "power": 1}).arguments["power"] == 1


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("scores", r"returned numbers of shape \[2, 2\], expected one number with a gradient"),
        ("scores.detach().mean()", "returned a number without a gradient"),
        ("float(scores.mean())", "a float, expected"),
        ("torch.tensor(float(scores.mean()), requires_grad=True)", "returned what does not depend on the scores"),
    ],
)
def test_a_loss_of_ones_own_returns_one_number_with_a_gradient(project, returned, told):
    write_new("loss", "wrong")
    LOSSES.write_text(f"import torch\n\n\ndef wrong(scores):\n    return {returned}\n")
    objective = ScoreLoss("wrong", load_code("losses.py", "wrong"))
    with pytest.raises(ConfigError, match=f"loss wrong: .*{told}"):
        objective(batch())


def test_a_loss_of_ones_own_with_an_argument_teacher_needs_and_gets_one(project):
    write_new("loss", "distil")
    LOSSES.write_text("def distil(scores, teacher, weight: float = 1.0):\n    return (scores - teacher).mean()\n")
    Path("config/my/dpr-distil.yaml").unlink()
    recipe = Path("config/my/taught.yaml")
    loss = "objective: {name: distil, arguments: {weight: 2.0}, inverse_temperature: 1.0}"
    recipe.write_text(f"like: kd\nlabel: Taught\nsettings:\n  chain:\n    ep0:\n      {loss}\n")
    assert Plan(load_bench(project, {})).method("taught").settings.chain["ep0"].teacher == "cross-encoder"
    recipe.write_text(recipe.read_text().replace("      objective", "      teacher: null\n      objective"))
    with pytest.raises(ConfigError, match="objective distil follows a teacher's scores: name a `teacher`"):
        load_bench(project, {})
    LOSSES.write_text("def distil(scores, weight: float = 1.0):\n    return scores.mean()\n")
    recipe.write_text(recipe.read_text().replace("      teacher: null\n", ""))
    with pytest.raises(ConfigError, match="objective distil reads no teacher's scores: leave `teacher` out"):
        load_bench(project, {})


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("batch.queries.mean()", "returned a Tensor, expected the terms of the loss by name"),
        ('{"w": batch.queries}', r"returned numbers of shape"),
        ('{"w": batch.queries.detach().mean()}', "returned a number without a gradient"),
        ('{"w": torch.zeros((), requires_grad=True)}', "returned what does not depend on the scores or vectors"),
        ("{}", "returned what does not depend on the scores or vectors"),
    ],
)
def test_an_objective_of_ones_own_returns_terms_that_teach(project, returned, told):
    write_new("objective", "Wrong")
    head = "import torch\nfrom zerodr.training.objectives.base import Objective\n\n\n"
    LOSSES.write_text(f"{head}class Wrong(Objective):\n    def __call__(self, batch):\n        return {returned}\n")
    objective = make_objective(ObjectiveSettings(name="Wrong"))
    with pytest.raises(ConfigError, match=f"objective Wrong: {told}"):
        objective(batch())


def test_a_class_that_is_no_objective_and_a_keyword_are_refused(project):
    write_new("objective", "Wrong")
    LOSSES.write_text("class Wrong:\n    pass\n")
    with pytest.raises(ConfigError, match="objective Wrong: is no Objective"):
        make_objective(ObjectiveSettings(name="Wrong"))
    with pytest.raises(ConfigError, match="new loss class: can't be its name"):
        write_new("loss", "class")


def test_a_method_and_a_collection_plan_at_once(project):
    with zipfile.ZipFile("notes.zip", "w") as archive:
        archive.writestr("notes/corpus.jsonl", '{"_id": "1", "text": "a"}\n{"_id": "2", "text": "b"}\n')
        archive.writestr("notes/queries.jsonl", '{"_id": "q", "text": "a?"}\n{"_id": "r", "text": "b?"}\n')
        archive.writestr("notes/qrels/dev.tsv", "query-id\tcorpus-id\tscore\nq\t1\t1\nr\t1\t0\n")
        archive.writestr("notes/qrels/test.tsv", "query-id\tcorpus-id\tscore\n")  # hidden
    (project / "resources").unlink()
    written = write_new("collection", "notes", Path("notes.zip"))
    assert [str(path) for path in written.files] == ["config/my/notes.yaml", "resources/mirror/notes.zip"]
    write_new("method", "mine")
    bench = load_bench(project, {"mirrors": ["resources/mirror"]})
    row = bench.collections["notes"]
    assert (row.documents, row.queries, row.splits, row.evaluation_split) == (2, 2, {"dev": 1}, "dev")
    assert bench.methods["mine"].settings.chain["ep0"].training.learning_rate == 3e-5
    with pytest.raises(ConfigError, match="new method mine: mine is a recipe already"):
        write_new("method", "mine")
    Path("bad.zip").write_bytes(b"no zip")
    with pytest.raises(CollectionError, match="bad.zip: is no ZIP that can be read"):
        write_new("collection", "bad", Path("bad.zip"))


@pytest.mark.parametrize("head", ["query-id\tcorpus-id\tscore\n", ""])
def test_an_archive_is_counted_as_a_run_reads_it(tmp_path, head):
    """Lines of JSON end at a line feed alone, not at the other line ends of Unicode; a header may be absent."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("corpus.jsonl", '{"_id": "1", "text": "a\u2028b\u0085c"}\n{"_id": "2", "text": "b"}\n')
        archive.writestr("queries.jsonl", '{"_id": "q", "text": "a?"}\n')
        archive.writestr("qrels/test.tsv", f"{head}q\t1\t1\n")
        archive.writestr("qrels/dev.tsv", "q 0 1 1\n")
    with pytest.raises(CollectionError, match="qrels/dev.tsv:1: expected 3 cells"):
        count_archive(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, zipfile.ZipFile(tmp_path / "b.zip", "w") as right:
        for name in archive.namelist()[:-1]:
            right.writestr(name, archive.read(name))
    assert count_archive(tmp_path / "b.zip") == (2, 1, {"test": 1}, "en")
    with zipfile.ZipFile(tmp_path / "b.zip", "a") as archive:
        archive.writestr("other/corpus.jsonl", "")
    with pytest.raises(CollectionError, match="holds 2 files corpus.jsonl, expected one: write an entry for each"):
        count_archive(tmp_path / "b.zip")


def test_an_archive_has_the_language_of_its_documents(project):
    german = "Der Urlaub wird mit einem Antrag beantragt, und das Parkhaus schließt um zehn Uhr. " * 3
    with zipfile.ZipFile("briefe.zip", "w") as archive:
        archive.writestr("corpus.jsonl", json.dumps({"_id": "1", "text": german}) + "\n")
        archive.writestr("queries.jsonl", '{"_id": "q", "text": "Urlaub?"}\n')
        archive.writestr("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\t1\t1\n")
    (project / "resources").unlink()
    write_new("collection", "briefe", Path("briefe.zip"))
    assert load_bench(project, {"mirrors": ["resources/mirror"]}).collections["briefe"].language == "de"


@pytest.mark.parametrize(
    ("kind", "name", "what"),
    [
        ("method", "dpr", "dpr is a recipe already"),
        ("loss", "kl", "the bench has a loss of that name"),
        ("objective", "info_nce", "the bench has a objective of that name"),
        ("measure", "ndcg_cut_10_judged", "the bench has a measure of that name"),
        ("measure", "ndcg_cut", "the bench has a measure of that name"),
        ("collection", "scifact", "the bench has a collection of that name"),
    ],
)
def test_a_name_that_is_taken_is_refused_before_anything_is_written(project, kind, name, what):
    sources = [{"source": Path("notes.zip")}, {"hub": "org/notes"}] if kind == "collection" else [{}]
    for source in sources:
        with pytest.raises(ConfigError, match=f"new {kind} {name}: {what}: take another name"):
            write_new(kind, name, **source)
    assert not Path("config/my").exists()


@pytest.mark.parametrize(
    ("file", "name"), [("losses.py", "info_nce"), ("measures.py", "recall"), ("measures.py", "hole_corpus")]
)
def test_code_with_a_name_of_the_bench_is_refused_and_not_passed_over(project, file, name):
    path = LOSSES.with_name(file)
    path.parent.mkdir()
    path.write_text(f"X = 1\n\n\ndef {name}(scores, k=1):\n    return scores.mean()\n")
    with pytest.raises(ConfigError, match=rf"{path}:4: {name} is a name of the bench, .*: take another name"):
        load_bench(project, {})


@pytest.mark.parametrize(
    ("value", "fits"), [(0.5, True), (1, True), ("abc", False), (True, False), ([0.1], False), (float("nan"), False)]
)
def test_an_argument_is_what_its_annotation_asks_for(project, value, fits):
    LOSSES.parent.mkdir()
    LOSSES.write_text("def mine(scores, margin: float = 0.1):\n    return scores.mean() + margin\n")
    settings = {"name": "mine", "negatives_per_query": 1, "arguments": {"margin": value}}
    if fits:
        assert ObjectiveSettings.model_validate(settings).arguments == {"margin": value}
    else:
        with pytest.raises(ValueError, match="margin of mine is (a float, found|nan)"):
            ObjectiveSettings.model_validate(settings)


def test_an_error_names_the_line_of_ones_own_code_and_no_line_of_others(project):
    LOSSES.parent.mkdir()
    LOSSES.write_text("def mine(scores):\n    return scores - 'a'\n")
    with pytest.raises(TypeError) as error:
        ScoreLoss("mine", load_code("losses.py", "mine"))(batch())
    assert raised_by(error.value).startswith(f"{LOSSES}:2 in mine: TypeError: unsupported operand")
    with pytest.raises(ZeroDivisionError) as error:
        1 / 0  # noqa: B018
    assert raised_by(error.value) == ""


def test_code_beside_a_loss_does_not_change_it(project):
    LOSSES.parent.mkdir()
    loss = "def mine(scores):\n    return scale(scores) * LIMIT\n\n\ndef scale(scores):\n    return scores\n"
    LOSSES.write_text(f"import torch\nLIMIT = torch.pi\n{loss}")
    first = code_digest("losses.py", "mine")
    others = '"""Mine."""\nimport math\nimport torch, json\nOTHER = math.pi\nLIMIT = torch.pi\n'
    documented = loss.replace("(scores):\n", '(scores):\n    """Say what."""\n')
    LOSSES.write_text(f"{others}{documented}def other(scores):\n    return OTHER\n")
    assert code_digest("losses.py", "mine") == first
    for change in (loss.replace("return scores", "return -scores"), f"{loss}torch.manual_seed(1)\n"):
        LOSSES.write_text(f"import torch\nLIMIT = torch.pi\n{change}")
        assert code_digest("losses.py", "mine") != first
    LOSSES.write_text(f"import numpy as torch\nLIMIT = torch.pi\n{loss}")
    assert code_digest("losses.py", "mine") != first, "what a name is imported from"


def test_a_loss_in_place_of_a_recipes_own_leaves_that_ones_options(project):
    LOSSES.parent.mkdir()
    LOSSES.write_text("def bare(scores, power=2):\n    return scores.sum() ** power\n")
    before = planned("finetune")
    chain = "settings: {chain: {ep0: {objective: {name: %s, negatives_per_query: 1}}}}"
    for name in ("bare", "pairwise_nll"):
        Path(f"config/my/{name.replace('_', '-')}.yaml").write_text(f"like: dpr\n{chain % name}\n")
    for scale in ("mini", "lab", "paper"):
        methods = load_bench(project, {"scale": scale}).methods
        assert methods["bare"].settings.chain["ep0"].objective.name == "bare"
        assert methods["pairwise-nll"].settings.chain["ep0"].objective.inverse_temperature == 1.0
    assert planned("finetune") == before
    text = Path("config/my/bare.yaml").read_text()
    Path("config/my/bare.yaml").write_text(text.replace("name: bare", "name: bare, inverse_temperature: 2"))
    with pytest.raises(ConfigError, match="inverse_temperature is not for bare"):
        load_bench(project, {})


def test_likes_of_nothing_and_of_variants_name_what_is_near(project):
    Path("config/my").mkdir()
    mine = Path("config/my/mine.yaml")
    mine.write_text("like: nothing\n")
    with pytest.raises(ConfigError, match=r"like: recipe 'nothing': is not known: the nearest of \d+: "):
        load_bench(project, {})
    mine.write_text("like: dpr+official\n")
    with pytest.raises(ConfigError, match=r"dpr\+official is a variant, expected a recipe: write like: dpr"):
        load_bench(project, {})


def test_yaml_in_capitals_is_refused_and_equal_labels_are_told_apart(project):
    write_new("method", "mine")
    recipe = Path("config/my/mine.yaml")
    recipe.write_text(re.sub("(?m)^label:.*", "label: DPR", recipe.read_text()))
    plan = Plan(load_bench(project, {"methods": "dpr,mine,ance"}))
    assert [plan.label(name) for name in plan.methods] == ["DPR (dpr)", "DPR (mine)", "ANCE"]
    recipe.rename("config/my/mine.YAML")
    with pytest.raises(ConfigError, match="mine.YAML: is no file of yours, .*rename it to mine.yaml"):
        load_bench(project, {})


@pytest.mark.parametrize(
    ("draft", "what"),
    [
        ("like: dprr\n", "'dprr': is not known"),
        ("like: [dpr\n", "is no YAML"),
        ("like: dpr\nsettings: {encoder: {query_token: 8}}\n", "query_token"),
        ("label: Mine\n", "is no recipe"),
    ],
)
def test_a_draft_stops_commands_and_no_job_of_a_run_that_goes_on(project, caplog, monkeypatch, draft, what):
    monkeypatch.setattr(custom, "LEFT_OUT", set())
    (project / "config/my").mkdir()
    (project / "config/my/draft.yaml").write_text(draft)
    (project / "config/my/other.yaml").write_text("like: dpr\n")
    with pytest.raises(ConfigError, match=what):
        load_plan(project, {}, True, {})
    plan = load_plan(project, {}, False, {})
    assert "other" in plan.bench.methods and "draft" not in plan.bench.methods
    assert "left out of this job" in caplog.text and f"{project / 'config/my/draft.yaml'}" in caplog.text


def test_a_wrong_setting_stops_jobs_too(project, caplog):
    (project / "config/my").mkdir()
    (project / "config/my/config.yaml").write_text("seed: [\n")
    with pytest.raises(ConfigError, match="my/config.yaml"):
        load_plan(project, None, False, {})
    assert "left out" not in caplog.text


def test_a_draft_with_spaces_in_its_name_is_left_out_too(project, monkeypatch):
    monkeypatch.setattr(custom, "LEFT_OUT", set())
    (project / "config/my").mkdir()
    (project / "config/my/draft (2).yaml").write_text("like: [dpr\n")
    assert "dpr" in load_plan(project, {}, False, {}).bench.methods
