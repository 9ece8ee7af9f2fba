"""zerodr: one DAG for zero-shot dense retrieval. Targets and options: README.md and docs/."""

import atexit
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.27")


MY = Path(os.environ.get("ZERODR_MY", "config/my"))
CHECKOUT = Path(workflow.current_basedir.get_path_or_uri(secret_free=True))
sys.path.insert(0, str(CHECKOUT / "workflow" / "scripts"))

if not Path("config/config.yaml").exists():
    raise WorkflowError(f"{Path.cwd()} has no config/config.yaml: cd {CHECKOUT}")


configfile: "config/config.yaml"


if (MY / "config.yaml").is_file():  # yours, over it

    configfile: str(MY / "config.yaml")


if find_spec("pydantic") is None:
    raise WorkflowError(
        f"{sys.executable} lacks the packages of zerodr: set up the environment with `make mini`, "
        "then use .venv/bin/snakemake, or: source .venv/bin/activate"
    )

from zerodr import papers
from zerodr.artifacts.guard import repeat_errors, require_defaults, spare_tracebacks
from zerodr.checkout import provide_caches
from zerodr.config.words import parse_texts
from zerodr.errors import ZerodrError
from zerodr.operations import loading
from zerodr.operations.loading import default_scale, finish_run, load_plan, take_screen
from zerodr.plan import paths
from zerodr.plan.collections import section_files as list_files
from zerodr.plan.patterns import complete_rules
from zerodr.plan.patterns import Patterns
from zerodr.plan.reporting import tables
from zerodr.plan.targets import nearest_target, other_names

provide_caches()
if workflow.is_main_process:
    loading.enter_rehearsal(CHECKOUT, config)
SCREEN = take_screen(workflow.output_settings, workflow.is_main_process)
CEILINGS = {}  # filled in before the first job is submitted
STARTED = []
try:
    if "scale" not in config:
        config["scale"] = default_scale(workflow.resource_settings.default_resources)
        require_defaults(config["scale"])
    loading.require_scheduler(workflow)
    config |= parse_texts(workflow.config_settings.config_args or ())
    OPTIONS = loading.options_of_jobs(workflow)
    PLAN = load_plan(CHECKOUT, config, workflow.is_main_process, CEILINGS, OPTIONS)
except ZerodrError as error:
    raise WorkflowError(str(error)) from None

if workflow.is_main_process:
    from zerodr.operations.planning import plan_once
    from zerodr.operations.trust import trust_records

    trust_records()
    plan_once(workflow)
PATTERNS = Patterns(PLAN)
spare_tracebacks(lambda target: nearest_target(target, PLAN), lambda model: PLAN.method(model).remark)
ENVIRONMENT = (
    str(CHECKOUT / "envs" / "zerodr.yaml").replace("{", "{{").replace("}", "}}")
)  # a pattern for Snakemake


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


onstart:
    from zerodr.operations.starting import start_run

    STARTED.append(True)
    start_run(workflow, PLAN, CEILINGS, SCREEN)


onerror:
    repeat_errors()


# Snakemake calls onstart neither in a dry run nor when nothing is to be done.
if workflow.is_main_process:
    atexit.register(finish_run, workflow, STARTED, PLAN)


rule all:
    default_target: True
    input:
        tables(PLAN),
        [paths.statistics(row.name) for row in PLAN.columns],
        paths.lineage("published.json"),


# A rule without output has the asked name as its own: Snakemake then builds the table that is meant.
for asked, meant in other_names(sys.argv[1:], PLAN).items():

    rule:
        name:
            asked
        input:
            meant,
        localrule: True


# log, benchmark, conda, threads, resources, params: rule files say what differs
complete_rules(workflow, PLAN, ENVIRONMENT)


include: "workflow/rules/collections.smk"
include: "workflow/rules/lexical.smk"
include: "workflow/rules/dense.smk"
include: "workflow/rules/feedback.smk"
include: "workflow/rules/mining.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/reporting.smk"
include: "workflow/rules/adaptation.smk"
include: "workflow/rules/items.smk"


for paper in papers.NAMES:
    if (CHECKOUT / f"workflow/rules/papers/{paper}.smk").exists():  # some add no rule

        include: f"workflow/rules/papers/{paper}.smk"
