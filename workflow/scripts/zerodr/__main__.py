"""`zerodr COMMAND`, or `python -m zerodr COMMAND`: an error that a user can mend ends as one line and exit status 1."""

import sys

from zerodr.artifacts.machine import MachineErrors
from zerodr.checkout import OPTION, lost_values, split_config
from zerodr.errors import ZerodrError
from zerodr.operations import lookup_commands as _lookup  # noqa: F401
from zerodr.operations.setup_commands import app

USAGE = 2  # exit status of a command that was not understood


def main() -> None:
    """Run the command line."""
    try:
        with MachineErrors("zerodr"):
            app(split_config(sys.argv[1:]))
    except ZerodrError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    except SystemExit as end:
        if end.code == USAGE and (lost := lost_values(sys.argv[1:])):
            sys.stderr.write(f"values of the configuration follow {OPTION}: {OPTION} {' '.join(lost)}\n")
        raise


if __name__ == "__main__":
    main()
