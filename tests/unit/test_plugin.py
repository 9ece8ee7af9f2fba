"""Workarounds for the Slurm plugin: each names an issue, and a test fails once a newer plugin may make it needless."""

from __future__ import annotations

import inspect

import pytest
import snakemake_executor_plugin_slurm as plugin
from snakemake.cli import get_argument_parser
from snakemake_executor_plugin_slurm import accounts, submit_string

from zerodr.operations.slurm import cluster, submission

NEWER = "a newer version does this itself: read the issue, then delete the workaround and this line"
WORKAROUNDS = {
    cluster.check_fit: "issue 320",
    submission.check_permission: "issues 320 and 341",
    submission.check_memory_of_jobs: "pull request 339",
    submission.check_shared: "No issue known",
    submission.wait_for_jobs: "issue 4084",
    submission.start_again: "issue 4084",
}


@pytest.mark.parametrize("function", WORKAROUNDS, ids=lambda function: function.__name__)
def test_a_workaround_names_its_issue(function):
    assert WORKAROUNDS[function] in (inspect.getcomments(function) or "")


def test_a_refused_submission_still_ends_the_run():
    """Workarounds: check_fit, check_permission."""
    assert "SLURM sbatch failed" in inspect.getsource(plugin.Executor), NEWER


def test_submission_is_still_not_tried_before():
    """Workaround: check_permission."""
    sources = [inspect.getsource(module) for module in (plugin, accounts, submit_string)]
    assert not any("test-only" in source or "test_only" in source for source in sources), NEWER


def test_a_controller_that_forgets_early_still_counts_as_fit():
    """Workaround: check_memory_of_jobs. The plugin's threshold is below its longest wait."""
    source = inspect.getsource(plugin.Executor.check_active_jobs)
    assert f"max_sleep_time = {submission.LONGEST_POLL_S}" in source, NEWER
    assert "dynamic_check_threshold = 3 * initial_interval" in source and "40," in source, NEWER


def test_snakemake_still_attaches_to_no_job():
    """Workarounds: wait_for_jobs, start_again."""
    options = {option for action in get_argument_parser()._actions for option in action.option_strings}
    assert not {"--attach", "--reattach", "--detach"} & options, NEWER


def test_jobs_still_have_the_comment_by_which_they_are_found():
    source = inspect.getsource(plugin) + inspect.getsource(submit_string)
    assert 'comment_str = f"rule_' in source and submission.OF_SNAKEMAKE == "rule_"
