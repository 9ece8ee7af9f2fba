"""zerodr: one DAG for zero-shot dense retrieval. Targets and options: README.md and docs/."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.27")


CHECKOUT = Path(workflow.current_basedir.get_path_or_uri(secret_free=True))
sys.path.insert(0, str(CHECKOUT / "workflow" / "scripts"))

if not Path("config/config.yaml").exists():
    raise WorkflowError(f"{Path.cwd()} has no config/config.yaml: cd {CHECKOUT}")


configfile: "config/config.yaml"


if find_spec("pydantic") is None:
    raise WorkflowError(
        f"{sys.executable} lacks the packages of zerodr: set up the environment with `make mini`, "
        "then use .venv/bin/snakemake, or: source .venv/bin/activate"
    )

from zerodr.config.load import load_bench
from zerodr.errors import ZerodrError
from zerodr.operations.folders import examine, notices
from zerodr import papers
from zerodr.plan import Plan, paths
from zerodr.plan.user_folders import section_files as list_files
from zerodr.plan.patterns import Patterns
from zerodr.plan.targets import nearest_target
from zerodr.plan.pins import pin_refusal
from zerodr.plan.reporting import tables
from zerodr.artifacts.adapter import QUIET_STAGES
from zerodr.artifacts.guard import (
    advise_profile,
    ask_for_single_run,
    missing_gpus,
    refuse_run,
    repeat_errors,
    spare_tracebacks,
    withdraw_reports,
)
from zerodr.artifacts.stage import forget_published
from zerodr.operations.slurm.cluster import (
    request_of,
    ceilings,
    default_scale,
    submitting,
)
from zerodr.operations.estimate.costs import Estimates
from zerodr.operations.slurm.lingering import start_again, wait_for_jobs
from zerodr.operations.screen import expected_seconds, take_screen
from zerodr.operations.slurm.submission import refusal

SCREEN = take_screen(workflow.output_settings, workflow.is_main_process)
config.setdefault("scale", default_scale(workflow.resource_settings.default_resources))
try:
    PLAN = Plan(examine(load_bench(CHECKOUT, config)))
except ZerodrError as error:
    raise WorkflowError(str(error)) from None

PATTERNS = Patterns(PLAN)
ESTIMATES = Estimates(PLAN) if workflow.is_main_process else None
spare_tracebacks(lambda target: nearest_target(target, PLAN))
ENVIRONMENT = str(CHECKOUT / "envs" / "zerodr.yaml")


wildcard_constraints:
    archive=r"[^/]+",
    collection=PATTERNS.collections(),
    protocol=PATTERNS.protocols(),
    index=r"lucene-flat|lucene-multifield|bm25s-flat",
    scope=PATTERNS.scopes(),
    shard=r"\d{5}-of-\d{5}",
    split=PATTERNS.splits(),
    depth=r"\d+",


localrules:
    all,
    fetch_archive,
    import_model,
    init_model,
    take_step,
    build_table,
    build_query_page,
    build_leaderboard,
    build_row,
    plot_table,
    build_item,
    plot_item,
    build_paper,
    build_published,
    build_adapted_page,
    publish_lineage,


onstart:
    ask_for_single_run()
    for line in notices(PLAN.bench):
        sys.stderr.write(f"{line}\n")
    forget_published()
    refuse_run(
        pin_refusal(
            PLAN,
            (
                (job.rule.name, job.wildcards.get("model", ""))
                for job in workflow.dag.needrun_jobs()
            ),
        )
    )
    if workflow.executor_plugin.name == "slurm":
        jobs = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
        common = submitting(workflow.executor_settings)
        asks = [
            request_of(job.rule.name, dict(job.resources), job.threads, common)
            for job in jobs
        ]
        refuse_run(
            refusal(asks, Path.cwd(), workflow.executor_settings.status_command)
        )
        PLAN.machines.ceilings.update(ceilings(asks))
        if wait_for_jobs(Path.cwd()):
            start_again()
    else:
        advise_profile(workflow.rerun_triggers)
        if SCREEN is not None:
            os.environ[QUIET_STAGES] = "1"
        if workflow.executor_plugin.name == "local":
            rules = [job.rule.name for job in workflow.dag.needrun_jobs()]
            refuse_run(
                missing_gpus((rule, PLAN.machines.gpus(rule)) for rule in rules)
            )
    withdraw_reports(
        (job.rule.name, job.output) for job in workflow.dag.needrun_jobs()
    )
    if SCREEN is not None:
        here = workflow.executor_plugin.name == "local"
        SCREEN.expect(expected_seconds(workflow.dag, ESTIMATES, here), here)


onerror:
    repeat_errors()


rule all:
    default_target: True
    input:
        tables(PLAN),
        [paths.statistics(row.name) for row in PLAN.columns],
        paths.lineage("published.json"),


include: "workflow/rules/collections.smk"
include: "workflow/rules/user_folders.smk"
include: "workflow/rules/lexical.smk"
include: "workflow/rules/dense.smk"
include: "workflow/rules/feedback.smk"
include: "workflow/rules/generation.smk"
include: "workflow/rules/mining.smk"
include: "workflow/rules/pretraining.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/teachers.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/reporting.smk"
include: "workflow/rules/adaptation.smk"
include: "workflow/rules/pages.smk"
include: "workflow/rules/items.smk"


for paper in papers.NAMES:
    if (CHECKOUT / f"workflow/rules/papers/{paper}.smk").exists():  # some add no rule

        include: f"workflow/rules/papers/{paper}.smk"
