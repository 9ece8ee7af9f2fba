"""Adapter of all rules: the rule's name says which library function runs (zerodr.plan.rules)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # this checkout's library, also in another's environment

from zerodr.artifacts.adapter import run_rule

run_rule(snakemake)
