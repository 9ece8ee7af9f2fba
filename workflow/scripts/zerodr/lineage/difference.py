"""Find the differences between an artifact's record and the checkout."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

from zerodr.artifacts import provenance
from zerodr.artifacts.record import Record
from zerodr.errors import ZerodrError
from zerodr.lineage.flatten import brief, flatten
from zerodr.lineage.graph import Graph
from zerodr.plan import Plan
from zerodr.plan.rules import RULES

UNKNOWN = "name"


@dataclass(frozen=True)
class Difference:
    """A difference between the checkout and the record of an artifact.

    Attributes:
        what: `input`, `setting`, `name` (one that the configuration lacks), `stage version`, `seed`,
            `rule`, `content`, `code` or `environment`.
        name: of the input, the setting, ...
        then: value at that time.
        now: value today.
        matters: whether it makes the artifact out of date. Code and environment alone do not: the stage version
            records changes of results.
    """

    what: str
    name: str
    then: str
    now: str
    matters: bool = True

    def __str__(self) -> str:
        return f"{f'{self.what} {self.name}'.strip()}: {self.then} then, {self.now} now"


def differences(graph: Graph, artifact: str, plan: Plan) -> list[Difference]:
    """List the differences between the checkout and the artifact's record (not those of its ancestors)."""
    record = graph.record(artifact)
    if record is None:
        return []
    changes = []
    now = graph.current_digest(artifact)
    if now != record["digest"]:
        changes.append(Difference("content", "", record["digest"][:12], _short(now)))
    for edge in graph.up(artifact):
        if edge.stale:
            changes.append(Difference("input", edge.source, edge.recorded[:12], _short(edge.current)))
    return changes + _settings(record, plan) + _surroundings(record)


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "missing or damaged"


def _settings(record: Record, plan: Plan) -> list[Difference]:
    rule, spec = record["rule"], record["spec"]
    if rule not in RULES:
        return [Difference("rule", rule, "known", "unknown")]
    try:
        planned = json.loads(plan.settings(rule)(SimpleNamespace(**record["wildcards"])))
    except KeyError as error:
        return [Difference(UNKNOWN, str(error.args[0]), "configured", "not in the configuration")]
    except ZerodrError as error:
        return [Difference(UNKNOWN, error.where, "configured", error.what)]
    keys = {"version": "stage version", "seed": "seed"}
    changed = [key for key in keys if spec[key] != planned[key]]
    changes = [Difference(keys[key], "", str(spec[key]), str(planned[key])) for key in changed]
    return changes + _compared("setting", flatten(spec["params"]), flatten(planned["settings"]), 80)


def _surroundings(record: Record) -> list[Difference]:
    names = ("lock_sha256", "python", "versions", "processor")
    environments = record["environment"], provenance.environment()
    before, after = ({name: facts.get(name) for name in names} for facts in environments)
    code = {name: record["code"].get(name) for name in ("commit", "dirty_patch_sha256")}
    changes = _compared("code", code, provenance.code(), 12, matters=False)
    return changes + _compared("environment", flatten(before), flatten(after), 40, matters=False)


def _compared(what: str, before: dict, after: dict, width: int, matters: bool = True) -> list[Difference]:
    changes = []
    for name in sorted(before.keys() | after.keys()):
        then, now = before.get(name, "absent"), after.get(name, "absent")
        if then != now:
            changes.append(Difference(what, name, brief(then, width), brief(now, width), matters))
    return changes


def stale_ancestors(graph: Graph, artifact: str, plan: Plan) -> dict[str, list[Difference]]:
    """List the artifacts above that are out of date themselves, with the reasons, sources first."""
    reasons = {}
    for above in graph.ancestors(artifact)[:-1]:
        if changes := [d for d in differences(graph, above, plan) if d.matters]:
            reasons[above] = changes
    return reasons
