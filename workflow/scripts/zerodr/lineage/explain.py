"""What made an artifact, whether it is what the checkout would make now, and the command that makes it so."""

from __future__ import annotations

import json
import textwrap
from datetime import datetime
from types import SimpleNamespace

from zerodr.artifacts import provenance
from zerodr.artifacts.record import Record
from zerodr.errors import ZerodrError
from zerodr.lineage.difference import Difference
from zerodr.lineage.flatten import flatten
from zerodr.lineage.graph import Graph
from zerodr.lineage.remedy import WIDTH, remedy, shown
from zerodr.plan import Plan
from zerodr.plan.rules import RULES

UNKNOWN = "name"


def differences(graph: Graph, artifact: str, plan: Plan) -> list[Difference]:
    """Everything in which the checkout differs from the artifact's record (the artifact itself, not its ancestors)."""
    record = graph.record(artifact)
    if record is None:
        return []
    found = []
    now = graph.current_digest(artifact)
    if now != record["digest"]:
        found.append(Difference("content", "", record["digest"][:12], _short(now)))
    for edge in graph.up(artifact):
        if edge.stale:
            found.append(Difference("input", edge.source, edge.recorded[:12], _short(edge.current)))
    return found + _settings(record, plan) + _surroundings(record)


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
    found = []
    for key, what in (("version", "stage version"), ("seed", "seed")):
        then, now = spec[key], planned[key]
        if then != now:
            found.append(Difference(what, "", str(then), str(now)))
    before, after = flatten(spec["params"]), flatten(planned["settings"])
    for name in sorted(before.keys() | after.keys()):
        then, now = (_brief(side.get(name, "absent")) for side in (before, after))
        if before.get(name) != after.get(name):
            found.append(Difference("setting", name, then, now))
    return found


def _surroundings(record: Record) -> list[Difference]:
    found = []
    code, environment = provenance.code(), provenance.environment()
    for name in ("commit", "dirty_patch_sha256"):
        then, now = record["code"].get(name), code[name]
        if then != now:
            found.append(Difference("code", name, _brief(then, 12), _brief(now, 12), matters=False))
    before = flatten({k: record["environment"].get(k) for k in ("lock_sha256", "python", "versions", "processor")})
    after = flatten({k: environment[k] for k in ("lock_sha256", "python", "versions", "processor")})
    for name in sorted(before.keys() | after.keys()):
        then, now = before.get(name, "absent"), after.get(name, "absent")
        if then != now:
            found.append(Difference("environment", name, _brief(then, 40), _brief(now, 40), matters=False))
    return found


def stale_ancestors(graph: Graph, artifact: str, plan: Plan) -> dict[str, list[Difference]]:
    """Artifacts above that are out of date themselves, with the reasons, sources first."""
    reasons = {}
    for above in graph.ancestors(artifact)[:-1]:
        telling = [d for d in differences(graph, above, plan) if d.matters]
        if telling:
            reasons[above] = telling
    return reasons


def explain(graph: Graph, artifact: str, plan: Plan, config: list[str] | None = None) -> str:
    """One screen about an artifact. `config` holds the command line's `key=value` words that `plan` was made with."""
    record = graph.require(artifact)
    own = differences(graph, artifact, plan)
    stale = stale_ancestors(graph, artifact, plan)
    telling = [d for d in own if d.matters]
    if telling:
        stale[artifact] = telling
    lines = [*_origin(record), "", *_state(artifact, stale), *_quiet(own), "", *_words_missing(stale)]
    text = [part for line in lines for part in _folded(line)]
    if stale and not _unknown(stale):
        commands = remedy(graph, artifact, stale, config or [])
        text += ["To make it current:", " && \\\n".join(shown(command) for command in commands)]
    return "\n".join(text).rstrip()


def _unknown(stale: dict[str, list[Difference]]) -> list[str]:
    """Names that the configuration lacks; without them nothing can be made."""
    return sorted({d.name for reasons in stale.values() for d in reasons if d.what == UNKNOWN})


def _words_missing(stale: dict[str, list[Difference]]) -> list[str]:
    """What records don't tell: which `--config` words the artifact was made with."""
    if names := _unknown(stale):
        return [
            f"This configuration can't make it, {', '.join(names)} is not in it: if it came from the command line, "
            "give the words here, too (--config byo=FOLDER); records hold settings, not words."
        ]
    if any(d.what in ("setting", "seed") for reasons in stale.values() for d in reasons):
        return ["If it was made with --config words, give them here, too: records hold settings, not words."]
    return []


def _folded(line: str) -> list[str]:
    hang = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, WIDTH, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False) or [""]


def _origin(record: Record) -> list[str]:
    spec, code, environment = record["spec"], record["code"], record["environment"]
    started = datetime.fromtimestamp(record["started_unix_s"]).astimezone().isoformat(" ", "seconds")
    patch = code["dirty_patch_sha256"]
    lines = [
        f"{record['artifact']}",
        f"  digest       {record['digest']}",
        f"  made by      rule {record['rule']}, {spec['function']} version {spec['version']}, seed {record['seed']}",
        f"  when         {started}, took {record['seconds']:.1f} s, peak {record['peak_memory_mib']:.0f} MiB",
        f"  code         {code['commit'] or 'no git commit'}{f' with changes {patch[:12]}' if patch else ''}",
        f"  environment  Python {environment['python']}, {environment['device']}, {environment['processor']}",
        f"  spec         results/.state/{record['spec_digest'][:16]}/spec.json  (python -m zerodr.run SPEC repeats it)",
    ]
    lines += _block("settings", [f"{k}={_brief(v, 60)}" for k, v in sorted(flatten(spec["params"]).items())])
    inputs = record["inputs"]
    lines += [f"  input        {i['name']}: {i['path']}  {i['digest'][:12]}" for i in inputs[:8]]
    lines += [f"  input        ... and {len(inputs) - 8} more"] if len(inputs) > 8 else []
    last = {m["name"]: m["value"] for m in record["metrics"]}
    return lines + _block("metrics", [f"{name}={value:.6g}" for name, value in sorted(last.items())])


def _block(title: str, words: list[str]) -> list[str]:
    if not words:
        return []
    text = textwrap.wrap("  ".join(words), 105, break_long_words=False, break_on_hyphens=False)
    return [f"  {title if n == 0 else '':<13}{line}" for n, line in enumerate(text)]


def _state(artifact: str, stale: dict[str, list[Difference]]) -> list[str]:
    if not stale:
        return ["Current: its inputs, settings and stage version are what the checkout has now."]
    lines = ["Out of date:"]
    for path, reasons in stale.items():
        lines += [f"  {'' if path == artifact else f'above, {path}: '}{reason}" for reason in reasons]
    return lines


def _quiet(own: list[Difference]) -> list[str]:
    quiet = [d for d in own if not d.matters]
    if not quiet:
        return []
    return ["Different, without effect as long as the stage version stays:", *[f"  {d}" for d in quiet]]


def _brief(value: str | None, width: int = 80) -> str:
    text = "none" if value is None else value
    return text if len(text) <= width else text[: width - 3] + "..."
