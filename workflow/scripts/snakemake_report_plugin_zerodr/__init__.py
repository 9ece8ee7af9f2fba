"""Write our report by Snakemake: `snakemake all --reporter zerodr`, as `zerodr report` does.

Snakemake imports its plugins before it reads the words of --config. So a word that it would refuse with a traceback is
answered here with a sentence.
"""

import sys

from snakemake_interface_report_plugins.reporter import ReporterBase


def check_words(argv: list[str]) -> None:
    """End the program where a key of `--config` has a dot, which Snakemake takes for no name."""
    named, dotted = False, list[str]()
    for word in argv:
        option, _, joined = word.partition("=")
        named = option in ("--config", "-C") or (named and not word.startswith("-"))
        value = joined if word.startswith("-") else word
        if named and "." in value.partition("=")[0]:
            dotted.append(value)
    if dotted:
        from zerodr.config.words import parse_words
        from zerodr.errors import ZerodrError

        try:
            parse_words(dotted)
        except ZerodrError as error:
            sys.exit(str(error))


class Reporter(ReporterBase):
    """The reporter `zerodr`."""

    def render(self) -> None:
        """Write results/report.html, where the main table is finished."""
        from snakemake.exceptions import WorkflowError

        from zerodr.errors import ZerodrError
        from zerodr.pages.report import write_report

        try:
            write_report(self.dag.workflow.globals["PLAN"])
        except ZerodrError as error:
            raise WorkflowError(str(error)) from None


check_words(sys.argv)
