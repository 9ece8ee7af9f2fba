"""Say what a folder that changed keeps of its last answer: vectors, a trained model, the choice to be checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from zerodr.artifacts.manifest import LISTING, MANIFEST, link_or_copy, read_listing
from zerodr.artifacts.record import artifact_digest, read_record, read_state, record_path, write_json
from zerodr.config.quantities import counted
from zerodr.config.user_folders import ENDING
from zerodr.encoders.folder.retriever import ABOUT, INDEX
from zerodr.lineage.graph import Graph
from zerodr.plan import Plan, paths
from zerodr.plan.adaptation import AFRESH, encoder_of, is_trained
from zerodr.plan.lines import SCOPE


class Earlier(NamedTuple):
    """The last answer about a folder that changed since: its choice, and the files that changed."""

    choice: str
    files: list[str]


def read_earlier(name: str) -> Earlier | None:
    """Read the last answer; None where there is none, or where no file of the folder changed since."""
    from zerodr.lookup.terminal import changed_files

    index, choice = Path(paths.adapted_model(name)).parent / INDEX, read_choice(name)
    if not choice or not (index / ABOUT).exists():
        return None
    files = changed_files(index)
    return Earlier(choice, files) if files else None


def read_choice(name: str) -> str:
    """Read what the last answer chose; empty without one."""
    answer = read_state(Path(paths.adapted_answer(name)).parent / "answer.json")
    return answer["choice"] if answer else ""


def checked(plan: Plan, candidates: Sequence[str], choice: str) -> list[str]:
    """Leave out candidates that would be trained again and were not chosen, unless one would be left to compare."""
    stay = {choice, encoder_of(plan, choice)}
    left = [one for one in candidates if one in stay or not is_trained(plan, one)]
    return left if len(left) > 1 else list(candidates)


def keep(plan: Plan, name: str, changed: bool) -> dict[str, str]:
    """Keep the trained model that the last answer chose, with the known items that it has not read.

    Args:
        plan: without copies.
        name: of the collection.
        changed: whether documents changed since the answer, so that copies are made.

    Returns:
        copies by the paths whose place they take; none where nothing trained was chosen, or the model is gone.
    """
    choice = read_choice(name)
    encoder = encoder_of(plan, choice) if choice in plan.bench.methods else ""
    link = plan.chains.ranker(encoder, name) if encoder and is_trained(plan, encoder) else None
    if link is None or link.scope == SCOPE:
        return {}
    original, items = plan.chains.model(link), paths.collection(name + ENDING)
    copies = {original: paths.retained_model(name, link.method, link.stage)}
    copies |= {items: paths.retained_items(name)} if link.scope == name + ENDING else {}
    record = read_record(paths.adapted_model(name))
    used = {entry["path"]: entry["digest"] for entry in record["inputs"]} if record else dict.fromkeys(copies.values())
    if not _is_as_planned(plan, copies[original] if copies[original] in used else original):
        return {}
    if copies[original] in used and all(Path(copy).exists() for copy in copies.values()):
        return copies
    if not changed or not Path(original).exists() or used.get(original) != artifact_digest(original):
        return {}
    for path, copy in copies.items():
        copy_artifact(Path(path), Path(copy))
    return copies


def _is_as_planned(plan: Plan, model: str) -> bool:
    """True where a model was trained with the settings and the seed that its recipe has now."""
    if (record := read_record(model)) is None:
        return False
    now = json.loads(plan.settings(record["rule"])(SimpleNamespace(**record["wildcards"])))
    return (now["seed"], now["settings"]) == (record["seed"], record["spec"]["params"])


def copy_artifact(manifest: Path, target: Path) -> None:
    """Copy a folder artifact with its record, by hard links."""
    making = target.parent.with_name(f".{target.parent.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    for path in (*(entry["path"] for entry in read_listing(manifest)), LISTING, MANIFEST):
        (making / path).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(manifest.parent / path, making / path)
    if record := read_record(manifest):
        outputs = {name: str(target) for name, path in record["outputs"].items() if path == str(manifest)}
        write_json(record_path(making / MANIFEST), record | {"artifact": str(target), "outputs": outputs})
    shutil.rmtree(target.parent, ignore_errors=True)
    making.replace(target.parent)


def announced(earlier: Earlier, left_out: Sequence[str], retained: Mapping[str, str]) -> list[str]:
    """Say before a run what changed, and what is not done again."""
    files = f"{earlier.files[0]}{f' and {len(earlier.files) - 1} more' if len(earlier.files) > 1 else ''}"
    stayed = "texts that stayed keep their vectors (the time below counts all)"
    lines = [f"changed     {files} since the last answer: {stayed}"]
    stays = ["its model stays as it was trained"] if retained else []
    stays += [f"not trained again: {', '.join(left_out)}"] if left_out else []
    if stays:
        lines.append(f"checks      {earlier.choice}, which was chosen; {'; '.join(stays)}; {AFRESH} trains anew")
    return lines


def concluded(name: str, before: str, retained: Mapping[str, str]) -> list[str]:
    """Say after a run whether the choice held, and how many vectors were there."""
    now, graph = read_choice(name), Graph(lenient=True)
    outcome = f"{now}, as before" if now == before else f"{now}, where it was {before}"
    learned = f"; the model of {before} learned from the earlier ones" if retained else ""
    lines = [f"choice      checked on the changed documents: {outcome}{learned}"]
    records = [record for path in graph.ancestors(paths.adapted_model(name)) if (record := graph.record(path))]
    records = [one for one in records if one["wildcards"].get("collection") in (name, name + ENDING)]
    shards = [one for one in records if "shard" in one["wildcards"] and "texts" in one["notes"]]
    notes = [one["notes"] for one in shards if not any(edge.stale for edge in graph.up(one["artifact"]))]
    texts, reused = (sum(note.get(key, 0) for note in notes) for key in ("texts", "reused"))
    if texts:
        both = ", whole and shortened," if any(one["wildcards"]["collection"] != name for one in shards) else ""
        every = f"{counted(texts, 'text')}{both}"
        lines.append(f"vectors     {texts - reused:,} of {every} embedded; the others had theirs")
    return lines
