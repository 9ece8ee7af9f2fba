"""Values that `plan_once` computes once equal those that Snakemake computes for each job."""

from types import SimpleNamespace

import pytest
import smart_open
import snakemake.api
from snakemake import io
from snakemake.common import FUNC_OVERWRITE_PARAMS_ATTR
from snakemake.exceptions import WildcardError
from snakemake.resources import Resource, Resources

from zerodr.operations import planning

PROCESSOR = snakemake.dag.ScriptProcessor
FILLED = io.apply_wildcards


@pytest.mark.parametrize("pattern", ["a/b.tsv", "{model}", "{model,[^/]+}/x-{shard}.{model}", "{shard}{shard}", ""])
def test_patterns_are_filled_in_as_by_snakemake(pattern):
    values = {"model": "dpr+bf16", "shard": 3}
    assert planning._fill(pattern, values) == FILLED(pattern, values)


@pytest.mark.parametrize("path", ["logs/a/1.log", "results/a/1.log", "logs/A/1.log", "logs/a/1.log.gz", "logs/b", ""])
@pytest.mark.parametrize("pattern", ["logs/{model,[a-z]+}/{shard}.log", "{model,[a-z]+}/a/1.log", "logs/b"])
def test_patterns_match_as_those_of_snakemake(pattern, path):
    ours, theirs = planning._match(io.IOFile(pattern), path), io.IOFile(pattern).match(path)
    assert (ours and ours.groupdict()) == (theirs and theirs.groupdict())


def test_a_pattern_is_compiled_for_a_path_that_begins_like_it():
    pattern = io.IOFile("logs/{model}.log")
    assert planning._match(pattern, "results/a.log") is None and pattern._regex is None
    assert planning._match(pattern, "logs/a.log")["model"] == "a" and pattern._regex is not None


def test_missing_wildcard_is_the_same_error():
    with pytest.raises(WildcardError) as ours:
        planning._fill("{model}/{other}", {"model": "dpr"})
    with pytest.raises(WildcardError) as theirs:
        FILLED("{model}/{other}", {"model": "dpr"})
    assert str(ours.value) == str(theirs.value)


@pytest.fixture
def planned(monkeypatch):
    """Default resources of a workflow after `plan_once`, and the rules whose scripts were looked for."""
    looked_for = []
    for owner, name in ((io, "apply_wildcards"), (io._IOFile, "match"), (smart_open, "parse_uri")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(PROCESSOR, "process_job", lambda self, job: looked_for.append(job.rule))
    monkeypatch.setattr(Resource.evaluate, FUNC_OVERWRITE_PARAMS_ATTR, {}, raising=False)
    words = ["slurm_extra='--mail-type=END'", "runtime=30", "disk_mb=attempt * 500", "nice='$HOME'"]
    defaults = Resources.parse(words, allow_expressions=True, defaults="bare")
    asked = SimpleNamespace(default_resources=defaults)
    planning.plan_once(SimpleNamespace(resource_settings=asked, output_settings=SimpleNamespace(dryrun=False)))
    return defaults, looked_for


def test_constant_resources_are_evaluated_once(planned):
    defaults, _ = planned
    assert defaults["slurm_extra"].value == "--mail-type=END"
    assert defaults["slurm_extra"].raw == "'--mail-type=END'"
    evaluated = {name for name, resource in defaults.items() if resource.is_evaluable()}
    assert evaluated == {"tmpdir", "disk_mb", "nice"}
    given = {"wildcards": {}, "input": [], "attempt": 3, "rulename": "x", "async_run": None, "threads": 1}
    assert defaults["disk_mb"].evaluate(**given).value == 1500


def test_script_is_looked_for_once_a_rule(planned):
    for rule in ("mine", "mine", "finetune", "mine"):
        PROCESSOR.process_job(object(), SimpleNamespace(rule=rule))
    assert planned[1] == ["mine", "finetune"]
