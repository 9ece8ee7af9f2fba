"""Inject faults into the stages of a small whole DAG, let each stage run again, and compare with undisturbed runs.

`make drill`: 500 faults, then a table of stage, fault and outcome. A drill that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.drill import bench, schedulers
from tests.drill.disk import Disk
from tests.drill.faults import KINDS, Site, can_happen
from tests.drill.stages import (
    Forks,
    Reference,
    Result,
    differing,
    leftovers,
    planned,
    remove_outputs,
    unfinished,
    warm_up,
)
from tests.drill.table import render
from zerodr.artifacts.stage import StageSpec
from zerodr.errors import ZerodrError

ROOT = Path(__file__).resolve().parents[2]
SCHEDULER_EVERY = 100  # of so many faults, one hits Snakemake itself


@dataclass(frozen=True)
class Row:
    """A fault and what became of it.

    Attributes:
        number: position in the drill.
        rule: of the stage.
        stage: its name.
        kind: of the fault.
        outcome: how the disturbed run ended.
        lost: inputs that have other bytes than before.
        partial: outputs that were visible without being whole.
        unequal: outputs that differ from the undisturbed run's, after the stage ran again.
        left: temporary files and records that do not fit.
        seconds: of the fault and the second run.
        said: the last line that the disturbed run wrote.
    """

    number: int
    rule: str
    stage: str
    kind: str
    outcome: str
    lost: tuple[str, ...]
    partial: tuple[str, ...]
    unequal: tuple[str, ...]
    left: tuple[str, ...]
    seconds: float
    said: str

    @property
    def defects(self) -> int:
        """Number of things that must not be."""
        return len(self.lost) + len(self.partial) + len(self.unequal) + len(self.left)


class Drill:
    """A drill in a folder.

    Args:
        folder: gets the miniature, references and journal.
        seed: of the choice of faults.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder.resolve(), seed
        self.bench, self.journal = self.folder / "bench", self.folder / f"faults-{seed}.jsonl"
        (self.folder / "scratch").mkdir(parents=True, exist_ok=True)
        self.site = Site(Forks(self.folder / "scratch"), Disk(self.bench))
        self.specs: list[StageSpec] = []

    def prepare(self, rules: set[str] | None = None) -> None:
        """Write the miniature and run all stages undisturbed, unless that is done.

        Args:
            rules: run only stages of these, and those that they need; None: all.
        """
        if not (self.bench / "Snakefile").exists():
            bench.make_bench(ROOT, self.bench)
        self.specs = needed(self._plan(), rules)
        warm_up({spec.rule for spec in self.specs})
        os.chdir(self.bench)
        path = self.folder / "references.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        for spec in self.specs:
            if spec.name() in known:
                reference = Reference(**known[spec.name()])
                if differing(reference.digests):
                    remove_outputs(spec)
                    require_end(self.site.forks.run(spec), spec)
            else:
                reference = self.site.forks.measure(spec)
                known[spec.name()] = asdict(reference)
                path.write_text(json.dumps(known))
            self.site.references[spec.name()] = reference

    def _plan(self) -> list[StageSpec]:
        """Plan in a process of its own, because Snakemake leaves traces in its process."""
        path = self.folder / "specs.json"
        if not path.exists():
            child = os.fork()
            if not child:
                os.chdir(self.bench)
                path.write_text(json.dumps([asdict(spec) for spec in planned(self.bench, bench.targets())]))
                os._exit(0)
            os.waitpid(child, 0)
        return [StageSpec(**spec) for spec in json.loads(path.read_text())]

    def run(self, faults: int) -> list[Row]:
        """Inject the faults that the journal lacks; return all rows."""
        rows = [Row(**json.loads(line)) for line in self._lines()]
        for number, (spec, kind) in enumerate(self.choices(faults)):
            if number >= len(rows):
                row = self.inject(number, spec, kind)
                rows.append(row)
                with open(self.journal, "a") as stream:
                    stream.write(json.dumps(asdict(row)) + "\n")
                report(row, faults)
        return rows[:faults]

    def _lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def choices(self, faults: int) -> Iterator[tuple[StageSpec, str]]:
        """Choose stages and kinds: every pair of rule and kind once, in random order, then again."""
        draw = random.Random(self.seed)
        by_rule: dict[str, list[StageSpec]] = {}
        for spec in self.specs:
            by_rule.setdefault(spec.rule, []).append(spec)
        whole = [spec for spec in self.specs if schedulers.can_happen(spec)]
        count = 0
        while count < faults:
            pairs = [
                (draw.choice(specs), kind)
                for specs in by_rule.values()
                for kind in KINDS
                if can_happen(kind, specs[0], self.site.disk)
            ]
            draw.shuffle(pairs)
            for pair in pairs[: faults - count]:
                count += 1
                scheduled = whole and count % SCHEDULER_EVERY == 0
                yield (draw.choice(whole), draw.choice(list(schedulers.KINDS))) if scheduled else pair

    def inject(self, number: int, spec: StageSpec, kind: str) -> Row:
        """Disturb one stage, run it again, and compare."""
        started, draw, site = time.monotonic(), random.Random(self.seed * 1_000_003 + number), self.site
        specs = [spec]
        if kind in KINDS:
            remove_outputs(spec)
            results = KINDS[kind](site, spec, draw)
        else:
            specs = schedulers.chain(spec, self.specs)
            same_times(self.specs)
            for stage in specs:
                remove_outputs(stage)
            results = schedulers.KINDS[kind](spec, draw)
        cut = kind == "truncated output"
        partial = [] if cut else [path for stage in specs for path in unfinished(self._digests(stage))]
        lost = [path for path in spec.input_list() if specs == [spec] and path in self._damaged(path)]
        again = any(result.status for result in results) and specs == [spec]  # Snakemake runs what failed again
        for stage in specs:
            if again or differing(self._digests(stage)):
                if not cut:
                    remove_outputs(stage)
                require_end(site.forks.run(stage), stage)
        unequal = [path for stage in specs for path in differing(self._digests(stage))]
        left = [path for stage in specs for path in leftovers(stage)]
        outcome = " + ".join(sorted({outcome_of(result) for result in results}))
        said = last_line(next((result for result in results if result.status), results[0]).said)
        seconds = round(time.monotonic() - started, 2)
        found = map(tuple, (lost, partial, unequal, left))
        return Row(number, spec.rule, spec.name(), kind, outcome, *found, seconds, said)

    def _digests(self, spec: StageSpec) -> dict[str, str]:
        return self.site.references[spec.name()].digests

    def _damaged(self, path: str) -> list[str]:
        """Name the path when it is an artifact that differs from the undisturbed run's."""
        for spec in self.specs:
            if path in spec.outputs.values():
                return differing({path: self._digests(spec)[path]})
        return []

    def damaged(self) -> list[str]:
        """All artifacts that differ from those of the undisturbed run."""
        return [path for spec in self.specs for path in differing(self._digests(spec))]


def needed(specs: list[StageSpec], rules: set[str] | None) -> list[StageSpec]:
    """Cut a plan to the stages of some rules and those that they need, one stage of each rule."""
    if rules is None:
        return specs
    wanted: set[str] = set()
    missing, chosen = set(rules), []
    for spec in reversed(specs):
        if spec.rule in missing or wanted & set(spec.outputs.values()):
            missing.discard(spec.rule)
            wanted |= set(spec.input_list())
            chosen.append(spec)
    return chosen[::-1]


def same_times(specs: list[StageSpec]) -> None:
    """Give all outputs one time: what ran again after a fault must not be newer than its users."""
    now = time.time()
    for path in {path for spec in specs for path in spec.outputs.values()}:
        if Path(path).exists():
            os.utime(path, (now, now))


def require_end(result: Result, spec: StageSpec) -> None:
    """Check that a stage that runs again ends well.

    Raises:
        RuntimeError: it does not.
    """
    if result.status:
        raise RuntimeError(f"{spec.name()} does not run again after a fault: {result.said[-3000:]}")


def outcome_of(result: Result) -> str:
    """Name the end of a disturbed run."""
    if result.status < 0:
        return "killed"
    if result.traceback:
        return "traceback"
    if result.status:
        return "asked to run again" if result.status == 75 else "one sentence"
    return result.said if result.said == "found by verify" else "finished"


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def report(row: Row, faults: int) -> None:
    """Write one line about a fault."""
    bad = f"  DEFECT {row.lost} {row.partial} {row.unequal} {row.left}" if row.defects else ""
    sys.stdout.write(f"{row.number + 1}/{faults} {row.kind}: {row.stage}: {row.outcome}, {row.seconds} s{bad}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the drill of the command line; 1 when something was lost, partial or unequal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "drill")
    parser.add_argument("--rules", nargs="*", help="only stages of these rules and those that they need")
    parser.add_argument("--keep", action="store_true", help="keep the miniature mounted, for another drill")
    given = parser.parse_args()
    drill = Drill(given.folder, given.seed)
    try:
        drill.prepare(set(given.rules) if given.rules else None)
        rows = drill.run(given.faults)
        damaged = drill.damaged()
    except (ZerodrError, RuntimeError) as error:
        sys.stderr.write(f"{error}\nThe miniature stays in {drill.bench}; the same command goes on.\n")
        return 1
    sys.stdout.write(render(rows, damaged, dict(Counter(spec.rule for spec in drill.specs))))
    if not given.keep:
        os.chdir(ROOT)
        drill.site.disk.close()
    return int(bool(damaged) or any(row.defects for row in rows))


if __name__ == "__main__":
    sys.exit(main())
