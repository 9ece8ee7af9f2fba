"""Explain an artifact: its origin, whether the checkout would build the same now, and the command that updates it."""

import textwrap
from datetime import datetime

from zerodr.artifacts.record import Record
from zerodr.lineage.difference import UNKNOWN, Difference, differences, stale_ancestors
from zerodr.lineage.flatten import brief, flatten
from zerodr.lineage.graph import Graph
from zerodr.lineage.remedy import WIDTH, remedy, shown
from zerodr.plan import Plan


def explain(graph: Graph, artifact: str, plan: Plan, config: list[str] | None = None) -> str:
    """Describe an artifact on one screen. `config` holds the command line's `key=value` words of `plan`."""
    record = graph.require(artifact)
    changes = differences(graph, artifact, plan)
    stale = stale_ancestors(graph, artifact, plan)
    if reasons := [d for d in changes if d.matters]:
        stale[artifact] = reasons
    lines = [*_origin(record), "", *_state(artifact, stale), *_harmless(changes), "", *_missing_words(stale)]
    text = [folded for line in lines for folded in _folded(line)]
    if stale and not _unknown(stale):
        commands = remedy(graph, artifact, stale, config or [])
        text += ["To update it:", " && \\\n".join(shown(command) for command in commands)]
    return "\n".join(text).rstrip()


def _unknown(stale: dict[str, list[Difference]]) -> list[str]:
    """List names that the configuration lacks; without them the artifact can't be built."""
    return sorted({d.name for reasons in stale.values() for d in reasons if d.what == UNKNOWN})


def _missing_words(stale: dict[str, list[Difference]]) -> list[str]:
    """Ask for the `--config` words of the artifact, which records do not hold."""
    if names := _unknown(stale):
        return [
            f"This configuration can't build it: {', '.join(names)} is not in it. If it came from the command line, "
            "repeat the words here (--config byo=FOLDER): records hold settings, not words."
        ]
    if any(d.what in ("setting", "seed") for reasons in stale.values() for d in reasons):
        return ["If --config words were used to build it, repeat them here: records hold settings, not words."]
    return []


def _folded(line: str) -> list[str]:
    hang = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, WIDTH, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False) or [""]


def _origin(record: Record) -> list[str]:
    spec, code, environment = record["spec"], record["code"], record["environment"]
    started = datetime.fromtimestamp(record["started_unix_s"]).astimezone().isoformat(" ", "seconds")
    patch, joules = code["dirty_patch_sha256"], record["energy_joules"]
    energy = "not measured" if joules is None else f"{joules:g} J by {record['energy_source']}"
    lines = [
        f"{record['artifact']}",
        f"  digest       {record['digest']}",
        f"  produced by  rule {record['rule']} version {spec['version']}, seed {record['seed']}",
        f"  when         {started}, took {record['seconds']:.1f} s, peak {record['peak_memory_mib']:.0f} MiB, "
        f"energy {energy}",
        f"  code         {code['commit'] or 'no git commit'}{f' with changes {patch[:12]}' if patch else ''}",
        f"  environment  Python {environment['python']}, {environment['device']}, {environment['processor']}",
        f"  spec         results/.state/{record['spec_digest'][:16]}/spec.json  (python -m zerodr.run SPEC repeats it)",
    ]
    lines += _block("settings", [f"{k}={brief(v, 60)}" for k, v in sorted(flatten(spec["params"]).items())])
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
        return ["Current: its inputs, settings and stage version are those of the checkout."]
    lines = ["Out of date:"]
    for path, reasons in stale.items():
        lines += [f"  {'' if path == artifact else f'above, {path}: '}{reason}" for reason in reasons]
    return lines


def _harmless(changes: list[Difference]) -> list[str]:
    lines = [f"  {d}" for d in changes if not d.matters]
    return ["Different, without effect while the stage version is the same:", *lines] if lines else []
