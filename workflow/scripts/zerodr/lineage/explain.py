"""Explain an artifact: its origin, whether the checkout would build the same now, and the command that updates it."""

import json
import os
import re
import shlex
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from zerodr.artifacts import provenance
from zerodr.artifacts.record import STATE, Record, read_record, read_state
from zerodr.errors import ZerodrError
from zerodr.lineage.graph import Graph, brief, flatten
from zerodr.plan import Plan
from zerodr.plan.rules import RULES, Rule, facts_of
from zerodr.plan.targets import PROFILE

UNKNOWN = "name"
WIDTH, COLUMN = 118, 15  # of a line; characters before the values of a block
NAMED = 5  # artifacts that a plan makes again
DIGITS, BEFORE = 12, 16  # of a digest; characters of two long values that are shown before they differ
Command = list[str]


@dataclass(frozen=True)
class Difference:
    """A difference between the checkout and the record of an artifact.

    Attributes:
        what: `input` (other content), `inputs` (other files), `setting`, `name` (one that the configuration lacks),
            `stage version`, `seed`, `rule`, `content`, `code` or `environment`.
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


class Adapted(NamedTuple):
    """The `zerodr adapt` that an artifact is of: the settings that it ran with, and its command."""

    values: dict[str, Any]
    command: Command


def explain(
    graph: Graph, artifact: str, plan: Plan, config: list[str] | None = None, command: Command | None = None
) -> str:
    """Describe an artifact on one screen.

    Args:
        graph: lineage of the checkout.
        artifact: its path.
        plan: what would be built now.
        config: the command line's `key=value` words of `plan`.
        command: what updates it in place of snakemake.
    """
    record = graph.require(artifact)
    changes = differences(graph, artifact, plan)
    stale = stale_ancestors(graph, artifact, plan)
    if reasons := [d for d in changes if d.matters]:
        stale[artifact] = reasons
    lines = [*_origin(record), "", *_state(artifact, stale), *_harmless(changes), ""]
    lines += [] if command else _missing_words(stale)
    text = [folded for line in lines for folded in _folded(line)]
    if stale and (command or not _unknown(stale)):
        commands = remedy(graph, artifact, stale, config or [], plan.config.scale)
        commands = [*commands[:-1], command or commands[-1]]
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
    if any(d.what in ("setting", "seed", "inputs") for reasons in stale.values() for d in reasons):
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
    no_commit = f"no git commit ({code.get('reason', 'no reason recorded')})"
    job = f", Slurm job {environment['slurm_job']}" if "slurm_job" in environment else ""
    lines = [
        f"{record['artifact']}",
        f"  digest       {record['digest']}",
        f"  produced by  rule {record['rule']} version {spec['version']}, seed {record['seed']}",
        f"  when         {started}, took {record['seconds']:.1f} s, peak {record['peak_memory_mib']:.0f} MiB, "
        f"energy {energy}",
        f"  code         {code['commit'] or no_commit}{f' with changes {patch[:12]}' if patch else ''}",
        f"  environment  Python {environment['python']}, {environment['device']}, {environment['processor']}{job}",
        f"  spec         results/.state/{record['spec_digest'][:16]}/spec.json  "
        "(file deleted, python -m zerodr.run SPEC repeats it)",
    ]
    lines += _block("origin", [f"{k}={v}" for k, v in flatten(record["notes"].get("origin", {})).items()])
    lines += _block("settings", [f"{k}={brief(v, 60)}" for k, v in sorted(flatten(spec["params"]).items())])
    inputs = record["inputs"]
    lines += [f"  input        {i['name']}: {i['path']}  {i['digest'][:12]}" for i in inputs[:8]]
    lines += [f"  input        ... and {len(inputs) - 8} more"] if len(inputs) > 8 else []
    last = {m["name"]: m["value"] for m in record["metrics"]}
    return lines + _block("metrics", [f"{name}={value:.6g}" for name, value in sorted(last.items())])


def _block(title: str, words: list[str]) -> list[str]:
    if not words:
        return []
    text = textwrap.wrap("  ".join(words), WIDTH - COLUMN, break_long_words=False, break_on_hyphens=False)
    return [f"{f'  {title}' if n == 0 else '':<{COLUMN}}{line}" for n, line in enumerate(text)]


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
    return changes + _planned(record, plan) + _surroundings(record)


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "missing or damaged"


def _planned(record: Record, plan: Plan) -> list[Difference]:
    """List what makes a plan do a job again: its settings, and which files it reads."""
    changes = _settings(record, plan)
    unplanned = any(d.what in (UNKNOWN, "rule") for d in changes)
    return changes if unplanned else changes + _inputs(record, plan)


def _settings(record: Record, plan: Plan) -> list[Difference]:
    rule = record["rule"]
    if rule not in RULES:
        return [Difference("rule", rule, "known", "unknown")]
    try:
        return changed_settings(record, plan.settings(rule)(SimpleNamespace(**record["wildcards"])))
    except KeyError as error:
        return [Difference(UNKNOWN, str(error.args[0]), "configured", "not in the configuration")]
    except ZerodrError as error:
        return [Difference(UNKNOWN, error.where, "configured", error.what)]
    except AssertionError as error:  # the plan has another stage, or another kind of method, under that name
        return [Difference("rule", rule, "planned", str(error) or "not planned")]


def _inputs(record: Record, plan: Plan) -> list[Difference]:
    """List inputs whose planned files are others than those that were read, as where a model takes another's place.

    The settings of a table or a page name all that it shows.
    """
    if record["rule"] not in RULES or facts_of(record["rule"]).kind == "report":
        return []
    try:
        planned = plan.inputs(record["rule"])(SimpleNamespace(**record["wildcards"]))
    except ZerodrError:  # of an archive that is nowhere any more: what was made of it stays
        return []
    changes = []
    for name, value in planned.items():
        now = dict.fromkeys([value] if isinstance(value, str) else value)
        then = dict.fromkeys(entry["path"] for entry in record["inputs"] if entry["name"] == name)
        if now.keys() != then.keys():
            gone, new = ([path for path in one if path not in other] for one, other in ((then, now), (now, then)))
            changes.append(Difference("inputs", name, _first(gone), _first(new)))
    return changes


def _first(files: list[str]) -> str:
    return f"{files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''}" if files else "no such file"


def rerun_reasons(outputs: Iterable[str], plan: Plan) -> list[str]:
    """Say which settings and inputs of finished artifacts changed: why a plan makes them again. Few are named.

    What follows from another changed artifact, and from a missing one, has no line, nor has a table or a page.
    """
    lines = []
    for output in outputs:
        record = read_record(output)
        if record is None or record["rule"] not in RULES or facts_of(record["rule"]).kind == "report":
            continue
        if changes := _planned(record, plan):
            more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
            lines.append(f"{output}: {changes[0]}{more}")
    rest = f"{len(lines) - NAMED} more; zerodr explain ARTIFACT says all of one"
    return lines[:NAMED] + ([rest] if len(lines) > NAMED else [])


def outdated(artifacts: Iterable[str], plan: Plan) -> dict[str, str]:
    """Say why a plan makes finished artifacts again: the first change of what is above them, or of them.

    Records are compared alone, so that the bytes of large artifacts are not read.
    """
    graph, changes, reasons = Graph(lenient=True), dict[str, list[str]](), dict[str, str]()
    for artifact in artifacts:
        above = graph.ancestors(artifact)
        for path in above:
            if path not in changes:
                changes[path] = [f"{path}: {change}" for change in _recorded_changes(graph, path, plan)]
        if listed := [change for path in above for change in changes[path]]:
            reasons[artifact] = listed[0]
    return reasons


def _recorded_changes(graph: Graph, artifact: str, plan: Plan) -> list[Difference]:
    if (record := graph.record(artifact)) is None:
        return []
    sources = [(entry["path"], entry["digest"], graph.record(entry["path"])) for entry in record["inputs"]]
    replaced = [(path, then, now["digest"]) for path, then, now in sources if now and now["digest"] != then]
    inputs = [Difference("input", path, then[:DIGITS], now[:DIGITS]) for path, then, now in replaced]
    return inputs + _planned(record, plan)


def changed_settings(record: Record, planned: str) -> list[Difference]:
    """List what a rule's settings, as the plan writes them, have otherwise than a record: what makes it out of date."""
    then, now = {"version": record["spec"]["version"], "seed": record["seed"]}, json.loads(planned)
    titles = {"version": "stage version", "seed": "seed"}
    changed = [key for key in titles if then[key] != now[key]]
    changes = [Difference(titles[key], "", str(then[key]), str(now[key])) for key in changed]
    before, after = record["spec"].get("rehearsal", {}), now.get("rehearsal", {})
    changes += _compared("rehearsal", flatten(before), flatten(after), 80)
    return changes + _compared("setting", flatten(record["spec"]["params"]), flatten(now["settings"]), 80)


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
            changes.append(Difference(what, name, *_apart(then, now, width), matters))
    return changes


def _apart(then: str | None, now: str | None, width: int) -> tuple[str, str]:
    """Cut two values to a width, long ones from shortly before where they differ; of digests the first digits do.

    >>> _apart("a" * 90 + "1, b", "a" * 90 + "2, b", 40)
    ('...aaaaaaaaaaaaaaaa1, b', '...aaaaaaaaaaaaaaaa2, b')
    """
    values = [value or "" for value in (then, now)]
    if all(re.fullmatch("[0-9a-f]{64}", value) for value in values):
        return values[0][:DIGITS], values[1][:DIGITS]
    start = len(os.path.commonprefix(values)) - BEFORE
    if max(map(len, values)) <= width or start <= 0:
        return brief(then, width), brief(now, width)
    return brief(f"...{values[0][start:]}", width), brief(f"...{values[1][start:]}", width)


def stale_ancestors(graph: Graph, artifact: str, plan: Plan) -> dict[str, list[Difference]]:
    """List the artifacts above that are out of date themselves, with the reasons, sources first."""
    reasons = {}
    for above in graph.ancestors(artifact)[:-1]:
        if changes := [d for d in differences(graph, above, plan) if d.matters]:
            reasons[above] = changes
    return reasons


def remedy(
    graph: Graph, artifact: str, stale: dict[str, list[Difference]], config: list[str], scale: str
) -> list[Command]:
    """Return the commands that update an artifact, given everything stale about it and above it.

    The profile slurm means scale `paper`, where no word names another: the `scale` of the comparison is written there.
    """
    damaged, unseen = [], set()
    for path, reasons in stale.items():
        kinds = {d.what for d in reasons}
        record = graph.require(path)
        if "content" in kinds and Path(path).exists():
            damaged.append(path)
        elif kinds <= {"input"} and not any(_is_seen(graph, d.name, path) for d in reasons):
            unseen.add(record["rule"])
    records = map(graph.record, graph.ancestors(artifact))
    by_slurm = any("slurm_job" in record["environment"] for record in records if record)
    words = ["snakemake", "--profile", "slurm" if by_slurm else PROFILE, artifact]
    named = [] if not by_slurm or any(word.startswith("scale=") for word in config) else [f"scale={scale}"]
    words += ["--config", *config, *named] if config or named else []
    words += ["--forcerun", *sorted(unseen)] if unseen else []
    return [["rm", *damaged], words] if damaged else [words]


def _is_seen(graph: Graph, source: str, user: str) -> bool:
    """Test whether Snakemake sees that an input changed: by its record, or by modification times."""
    if graph.record(source) is not None or not Path(user).exists() or not Path(source).exists():
        return True
    return Path(source).stat().st_mtime_ns > Path(user).stat().st_mtime_ns


def shown(command: Command, indent: str = "  ") -> str:
    """Format a command for a shell; a long one continues on further lines after a backslash."""
    lines, line = [], indent
    for word in map(shlex.quote, command):
        if line.strip() and len(line) + len(word) + 2 > WIDTH:
            lines.append(f"{line}\\")
            line = f"{indent}    "
        line += f"{word} "
    return "\n".join([*lines, line.rstrip()])


def recorded_config(graph: Graph, artifact: str, given: list[str]) -> list[str]:
    """Return the given `--config` words, and `byo=` when the records show a user's collection above the artifact.

    Records hold the settings that other words changed, but not the words. A folder that is gone
    is not named.
    """
    records = (graph.record(path) for path in graph.ancestors(artifact))
    rows = (record["spec"]["params"] for record in records if record and _reads_folder(facts_of(record["rule"])))
    folders = {row["archive"]: row["name"] for row in rows if Path(row["archive"]).is_dir()}
    if not folders or any(word.startswith("byo=") for word in given):
        return given
    alike = all(Path(path).resolve().name.lower().replace(" ", "-") == name for path, name in folders.items())
    named = [] if alike or len(folders) > 1 else [f"byo_name={name}" for name in folders.values()]
    return [f"byo={','.join(folders)}", *named, *given]


def adapted_by(graph: Graph, artifact: str) -> Adapted | None:
    """Return the `zerodr adapt` whose page an artifact is, or was used for; None without one.

    Its scale, candidates and known items are not those of config/config.yaml: the command writes them to a file.
    """
    for page in sorted(Path("results/adapted").glob("*/index.html")):
        record = graph.record(str(page))
        command = shlex.split(record["spec"]["params"]["command"]) if record else []
        if len(command) < 3 or artifact not in graph.ancestors(str(page)):
            continue
        files = [path for path in (STATE / "adapt").glob("*.json") if not path.name.endswith(".candidates.json")]
        named = command[command.index("--name") + 1] if "--name" in command else None
        for file in sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            values = read_state(file)
            if values and (values.get("byo"), values.get("byo_name")) == ([command[2]], named):
                return Adapted(values, command)
    return None


def _reads_folder(rule: Rule) -> bool:
    """True where a rule reads the documents of a user's folder."""
    return rule.kind == "import" and rule.writes == "collection"
