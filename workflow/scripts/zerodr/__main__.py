"""`zerodr COMMAND`, or `python -m zerodr COMMAND`: an error that a user can mend ends as one line and exit status 1."""

import os
import sys

from zerodr.checkout import split_config
from zerodr.errors import ZerodrError
from zerodr.operations import lookup_commands as _lookup  # noqa: F401
from zerodr.operations.cli import COMPLETES
from zerodr.operations.setup_commands import app


def main() -> None:
    """Run the command line."""
    if COMPLETES in os.environ:  # a shell asks for words
        from typer.completion import completion_init

        completion_init()
    try:
        app(split_config(sys.argv[1:]))
    except ZerodrError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
