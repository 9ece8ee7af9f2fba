"""Adapt to a folder of documents: choose candidates within a budget, run the workflow, show its answer."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zerodr.artifacts.machine import die_with_parent
from zerodr.artifacts.manifest import object_digest
from zerodr.artifacts.record import STATE, read_record, read_state, write_json
from zerodr.config.counterparts import USUAL, OtherStart, renamed
from zerodr.config.files import known
from zerodr.config.quantities import MEBI, counted, duration
from zerodr.config.recipes import INIT
from zerodr.config.registry import UNKNOWN, WITHOUT_JAVA, name_language
from zerodr.config.starts import PACKAGE
from zerodr.config.user_folders import ADAPTING, ENDING
from zerodr.errors import ConfigError, MachineError, nearest
from zerodr.operations.changed import announced, checked, concluded, keep, read_earlier
from zerodr.operations.estimate.costs import START_HERE_S, START_S, costs, estimates_of, slowdown
from zerodr.operations.estimate.jobs import Job, planned_jobs
from zerodr.operations.estimate.sizes import known_network, sizes_of
from zerodr.plan import Plan, paths
from zerodr.plan.adaptation import FEW, is_adapted, is_trained, whole_vectors
from zerodr.plan.lines import SCOPE
from zerodr.plan.memory import FLOAT_BYTES, Network

HELD_OUT, QUESTIONS = 300, 100
ENGLISH = "en"  # the language of the examples that the writer of questions is shown
TO_JUDGE = "to_judge.tsv"
BUSY = 1.5  # times slower by other work, which is told
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
FOREIGN = "give a model that reads the language by --start, such as a multilingual one"
MINILM = Network(384, 6, 12, 30522)  # USUAL's, for models whose folder is not here yet
Report = Callable[[str], None]
Values = dict[str, Any]


@dataclass(frozen=True)
class AdaptRequest:
    """A user's wish.

    Attributes:
        folder: with the documents, from the checkout's root.
        method: `auto`, or the one adapted candidate.
        budget: time in seconds that `auto` may plan.
        profile: of snakemake.
        proxies: hold known items out although there are judgements.
        start: a bi-encoder in place of all-MiniLM-L6-v2: a folder, a hub name or a package.
        config: further settings.
        afresh: compare and train as the first time, where documents changed since.
        root: the checkout, where the command was given outside of it; in front of paths that the user sees.
    """

    folder: str
    method: str = "auto"
    budget: float = 600.0
    profile: str = ""
    proxies: bool = False
    start: str = USUAL
    config: Values = field(default_factory=dict)
    root: str = ""
    afresh: bool = False


@dataclass(frozen=True)
class Candidates:
    """Candidates with the estimated seconds of what is still to do for them, in all and for each left out.

    Attributes:
        by_rates: seconds of those jobs whose like has not run here.
    """

    candidates: list[str]
    seconds: float
    by_rates: float
    left_out: dict[str, float]
    jobs: list[Job]
    unknown: int


def seconds_of(text: str, option: str = "--budget") -> float:
    """Read a time such as 90s, 20m or 1.5h; a number alone is minutes.

    Raises:
        ConfigError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
    if match is None or not float(match[1]):
        raise ConfigError(f"{option} {text}", "is no time", "for example: 90s, 20m, 1.5h")
    return float(match[1]) * UNITS[match[2] or "m"]


def adapt(request: AdaptRequest, plan_of: Callable[[Values], Plan], report: Report) -> int:
    """Plan, tell what will be done, run it, and show the answer; return the exit status.

    Args:
        request: the user's wish.
        plan_of: loads the plan of settings over those of config/config.yaml.
        report: prints a line.

    Raises:
        ConfigError: the folder, a method or the configuration is wrong.
        CollectionError: the folder's documents or judgements can't be used.
    """
    values, name = prepare(request, plan_of)
    plan = plan_of(values)
    plan.bench.folders[name].check()  # results of a usable state would let Snakemake find nothing to do
    target = paths.adapted_page(name)
    wish = {key: value for key, value in asdict(request).items() if key not in ("root", "afresh")}
    remembered = STATE / "adapt" / f"{object_digest([name, wish])[:16]}.candidates.json"
    before: list[str] | None = None
    earlier, retained, left_out = read_earlier(name), dict[str, str](), list[str]()
    if not request.afresh and (before := read_state(remembered)) is not None:
        retained = keep(plan, name, earlier is not None)
    if earlier and before:
        before = checked(plan, was := before, earlier.choice)
        left_out = [one for one in was if one not in before]
    if retained:
        values["retained"] = retained
        plan = plan_of(values)
    notes = announced(earlier, left_out, retained) if earlier else []
    choice = choose(request, plan, target, values, name, before)
    write_json(remembered, choice.candidates)
    values["candidates"] = choice.candidates
    for line in notes + announce(plan_of(values), name, choice, request):
        report(line)
    status = run(["snakemake", target, paths.adapted_model(name), "--profile", request.profile], values, report)
    if status == 0:
        for line in results(name, request.root) + (concluded(name, earlier.choice, retained) if earlier else []):
            report(line)
    return status


def prepare(request: AdaptRequest, plan_of: Callable[[Values], Plan]) -> tuple[Values, str]:
    """Return the settings of the run, and the name of the folder's collection."""
    values: Values = {"byo": [request.folder], "scale": ADAPTING} | request.config
    if request.start != USUAL:
        from zerodr.encoders.start.other import read_start

        plan = plan_of(values)
        start = read_start(request.start, plan.config.offline, plan.bench.recipes)
        values["start"] = distinct(start).model_dump(mode="json", exclude_none=True)
    if "slurm" not in request.profile and "gpus" not in values and not gpus_here():
        values["gpus"] = 0
    row = next(row for row in plan_of(values).bench.collections.values() if row.kind == "own")
    refuse_other_folder(row.name, row.archive)
    values.setdefault("byo_language", row.language)  # reported already
    check_analyzer(row.language)
    if request.proxies or not row.evaluation_split:
        values["held_out"] = values.get("held_out") or HELD_OUT
        if row.language == ENGLISH and can_write(plan_of(values)):
            values.setdefault("held_out_questions", QUESTIONS)
    from zerodr.evaluation.grades import read_rows

    judged = Path("results/adapted", row.name, TO_JUDGE)
    if judged.exists() and read_rows(judged):
        values["judged"] = str(judged)
    return values, row.name


def refuse_other_folder(name: str, folder: str) -> None:
    """Refuse a name under which results are of another folder that is still there: they and its grades would be lost.

    Raises:
        ConfigError: names a file of that one.
    """
    record, home = read_record(paths.collection(name)), Path(folder).resolve()
    files = [Path(entry["path"]) for entry in record["inputs"] if entry["name"] == "files"] if record else []
    others = [path for path in files if path.exists() and not path.resolve().is_relative_to(home)]
    if others:
        problem = f"results named {name} are of other documents, {others[0]} among them"
        raise ConfigError(folder, problem, f"give --name another than {name}")


def distinct(start: OtherStart) -> OtherStart:
    """Give a start a longer name where the results under its name come from another model."""
    longer = f"{start.name}-{object_digest(start.model)[:6]}"
    models = {name: _imported(name) for name in (start.name, longer)}
    if models[start.name] in (None, start.model) and models[longer] is None:
        return start
    return start.model_copy(update={"name": longer})


def _imported(name: str) -> str | None:
    """Return the model that results hold under a name; None without any."""
    record = read_record(paths.model(name, SCOPE, "imported"))
    return str(record["spec"]["params"]["model"]) if record else None


def check_analyzer(language: str) -> None:
    """Raise MachineError where BM25 needs one of Lucene's analyzers, which run in Java, and Java is missing."""
    if language in WITHOUT_JAVA:
        return
    from zerodr.lexical.jvm import java_status

    try:
        java_status()
    except MachineError as error:
        problem = f"BM25 needs Lucene's analyzer: {error.where}: {error.what}"
        step = f"run: bash envs/create.sh, or give --language {UNKNOWN}, which compares words as they are written"
        raise MachineError(f"--language {language}", problem, step) from error


def can_write(plan: Plan) -> bool:
    """True when the language model that writes questions is a folder, or a package that is installed."""
    if (writer := plan.config.question_writer) is None:
        return False
    if not writer.model.startswith(PACKAGE):
        return Path(writer.model).is_dir()
    return all(find_spec(module) for module in (writer.model.removeprefix(PACKAGE), "gguf"))


def gpus_here() -> int:
    """Count the GPUs of this machine."""
    from zerodr.artifacts.guard import count_gpus

    return count_gpus()


# ---- candidates within a budget --------------------------------------------------------------------------------
def choose(
    request: AdaptRequest, plan: Plan, target: str, values: Values, name: str, before: Sequence[str] | None = None
) -> Candidates:
    """Choose candidates: all that learn nothing, then those that learn, in their order, while the budget lasts.

    Args:
        before: those that the same command compared. They stay: the budget counts work that is still to do.

    Raises:
        ConfigError: the method is not known, or learns nothing from documents.
    """
    every = list(plan.config.candidates)
    if request.method != "auto":
        every = named(request.method, plan)
    new = [one for one in every if is_adapted(plan, one)]
    chosen = [one for one in every if one not in new]
    few = request.method == "auto" and plan.collection(name).planned_documents < FEW
    new = [one for one in new if not (few and is_trained(plan, one) and one not in (before or ()))]
    every = [*chosen, *new]
    jobs = planned_jobs(target, values | {"candidates": every}, plan)
    estimates = costs(jobs, estimates_of(plan), START_S if "slurm" in request.profile else START_HERE_S)
    needs = {one: needed(jobs, measures(plan, one, name)) for one in every}
    common = set(range(len(jobs))).difference(*needs.values())  # jobs of all candidates, after their measures
    done = common.union(*(needs[one] for one in chosen))

    def total(numbers: set[int]) -> float:
        return sum(estimates.seconds[n] for n in numbers)

    left_out: dict[str, float] = {}
    for one in new:
        too_long = total(done | needs[one]) > request.budget if before is None else one not in before
        if request.method == "auto" and too_long:
            left_out[one] = total(done | needs[one]) - total(done)
            continue
        chosen.append(one)
        done |= needs[one]
    rated, unknown = total(done.intersection(estimates.reckoned)), len(done.intersection(estimates.unknown))
    return Candidates(chosen, total(done), rated, left_out, [jobs[n] for n in sorted(done)], unknown)


def named(method: str, plan: Plan) -> list[str]:
    """List candidates for one adapted method: those that learn nothing, the method, and its fusion, if any.

    Raises:
        ConfigError: the method is not known, or learns nothing from documents.
    """
    start, fused = plan.config.start, f"hybrid+{method}"
    if start is not None:
        method, fused = renamed(method, start), renamed(fused, start)
    known("--method", method, {**plan.bench.methods, "auto": None})
    if not is_adapted(plan, method):
        names = [name for name in plan.bench.methods if "@" not in name and is_adapted(plan, name)]
        raise ConfigError(f"--method {method}", "learns nothing from a folder's documents", nearest(method, names))
    others = [one for one in plan.config.candidates if not is_adapted(plan, one)]
    return [*others, method, *([fused] if fused in plan.bench.methods else [])]


def measures(plan: Plan, method: str, name: str) -> list[str]:
    """Files by which a candidate is compared, and its vectors of the whole documents."""
    rows = [row.name for row in plan.bench.collections.values() if row.name in (name, name + ENDING)]
    protocol = plan.config.protocol
    ranked = [paths.run(method, row, protocol) for row in rows]
    ranked += whole_vectors(plan, method, name)
    return [*ranked, *(paths.per_query(method, row, protocol) for row in rows)]


def needed(jobs: Sequence[Job], files: Sequence[str]) -> set[int]:
    """Find the planned jobs that files need, by number."""
    makers = {path: number for number, job in enumerate(jobs) for path in job.outputs}
    waiting, numbers = [makers[path] for path in files if path in makers], set[int]()
    while waiting:
        number = waiting.pop()
        if number not in numbers:
            numbers.add(number)
            waiting += [makers[path] for path in jobs[number].inputs if path in makers]
    return numbers


# ---- what the user sees ----------------------------------------------------------------------------------------
def announce(plan: Plan, name: str, choice: Candidates, request: AdaptRequest) -> list[str]:
    """Report what will be done, how long it is estimated to take, and what it writes."""
    row, labels = plan.collection(name), {one: plan.method(one).label for one in choice.candidates}
    judge = f"judgements of split {row.evaluation_split}" if row.evaluation_split else ""
    if plan.config.held_out:
        proxy = f"a proxy: up to {plan.config.held_out} titles and as many sentences, held out of the documents"
        if plan.config.held_out_questions:
            proxy += f", and {plan.config.held_out_questions} questions that a language model writes"
        judge = f"{judge}; next to it {proxy}" if judge else proxy
    if plan.config.judged:
        judge += f", and your grades in {plan.config.judged}"
    needs = sizes_of(choice.jobs, plan)
    disk = sum(needs.embedding_bytes.values()) + needs.text_bytes + sum(model_bytes(job, plan) for job in choice.jobs)
    lines = [
        f"{name}: about {row.planned_documents:,} documents from {request.folder}",
        f"judge       {judge}",
        f"compares    {', '.join(labels.values())}",
    ]
    if row.language != ENGLISH and plan.config.start is None:
        language = name_language(row.language)
        lines.append(f"note        {USUAL} was trained on English, the texts are in {language}: {FOREIGN}")
    if row.planned_documents < FEW and not any(is_trained(plan, one) for one in choice.candidates):
        lines.append(
            f"note        fewer than {FEW} documents: nothing is trained; --method adapt-query trains all the same"
        )
    if choice.left_out:
        more = ", ".join(f"{one} (about {duration(seconds)} more)" for one, seconds in choice.left_out.items())
        lines.append(f"left out    {more}: give another --budget, the same one keeps these candidates")
    if not choice.jobs:
        return [*lines, "time        nothing is left to do"]
    unknown = f", and {counted(choice.unknown, 'job')} of unknown time" if choice.unknown else ""
    jobs = counted(len(choice.jobs), "job")
    times, guess = estimates_of(plan).speeds.limits.times_reckoned, ""
    slower = 1.0 if "slurm" in request.profile else slowdown()
    seconds = choice.seconds + (slower - 1) * choice.by_rates
    if 2 * choice.by_rates > choice.seconds:
        most = duration(seconds + (times - 1) * slower * choice.by_rates)
        guess = f" (up to {most} on a slow or busy processor: most of it never ran here)"
    if slower > BUSY and choice.by_rates:
        guess += f", next to other work on this machine (alone about {duration(choice.seconds)})"
    lines.append(f"time        about {duration(seconds)}{unknown}, estimated{guess}; {jobs}")
    lines.append(f"disk        about {disk / MEBI:.0f} MiB")
    return [*lines, "Ctrl-C stops it; the same command resumes.", ""]


def model_bytes(job: Job, plan: Plan) -> int:
    """Estimate the bytes of a model that a job writes."""
    if job.facts.writes != "model":
        return 0
    model, scope = job.wildcards.get("model", ""), job.wildcards.get("scope", SCOPE)
    if job.facts.kind == "init":
        model += f"@{INIT}"
    return FLOAT_BYTES * ((known_network(plan, model, scope) if model else None) or MINILM).parameters


def run(command: Sequence[str], values: Values, report: Report) -> int:
    """Run snakemake, which ends with this process; after Ctrl-C wait for it, and say that the same command resumes.

    Settings go through a file, because words of `--config` are read as YAML, and by a shell in each job.
    """
    settings = STATE / "adapt" / f"{object_digest(values)[:16]}.json"
    write_json(settings, values)
    whole = [sys.executable, "-m", *command, "--configfile", str(settings)]
    with subprocess.Popen(whole, preexec_fn=die_with_parent) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            report(f"Stopped. The same command resumes: {shlex.join(['zerodr', *sys.argv[1:]])}")
            return 128 + signal.SIGINT


def results(name: str, root: str = "") -> list[str]:
    """Report the answer of a finished run, and where everything is; offer the pairs to judge."""
    at = Path(root)
    home = Path(paths.adapted_answer(name)).parent
    answer = json.loads((home / "answer.json").read_text(encoding="utf-8"))
    lines = ["", answer["advice"], *answer["sentences"], ""]
    lines.append(f"page        {at / paths.adapted_page(name)}")
    lines.append(f"model       {at / Path(paths.adapted_model(name)).parent} (card: README.md)")
    if (home / TO_JUDGE).exists():
        from zerodr.evaluation.grades import offer

        table = Path("results/adapted", name, TO_JUDGE)
        if offer(home / TO_JUDGE, table):
            lines.append(f"to judge    {at / table}: fill in the column grade, give the same command")
    return lines
