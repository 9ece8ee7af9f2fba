"""`zerodr COMMAND`, or `python -m zerodr COMMAND`: an error that a user can mend ends as one line and exit status 1."""

import signal
import sys

from zerodr.artifacts.machine import MachineErrors
from zerodr.checkout import OPTION, lost_values, split_config
from zerodr.errors import MachineError, ZerodrError
from zerodr.operations import lookup_commands as _lookup  # noqa: F401
from zerodr.operations.setup_commands import app

USAGE = 2  # exit status of a command that was not understood
EXTRAS = {"starlette": "serve", "uvicorn": "serve", "torch": "torch", "transformers": "torch"}  # of pyproject.toml


def main() -> None:
    """Run the command line."""
    try:
        with MachineErrors("zerodr"):
            app(split_config(sys.argv[1:]))
    except ZerodrError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (package := (error.name or "zerodr").partition(".")[0]) == "zerodr":
            raise
        sys.stderr.write(f"{absent(package)}\n")
        sys.exit(1)
    except KeyboardInterrupt:  # before or after what typer guards
        sys.exit(128 + signal.SIGINT)
    except SystemExit as end:
        if end.code == USAGE and (lost := lost_values(sys.argv[1:])):
            sys.stderr.write(f"values of the configuration follow {OPTION}: {OPTION} {' '.join(lost)}\n")
        raise


def absent(package: str) -> MachineError:
    """Say how to install a package that a command needs: a plain `pip install` brings those of `search` alone."""
    whole = "in the checkout: bash envs/create.sh, then source .venv/bin/activate"
    alone = f"run: pip install 'path/to/zerodr[{EXTRAS[package]}]', or, " if package in EXTRAS else ""
    return MachineError(f"package {package}", "is not installed, and this command needs it", alone + whole)


if __name__ == "__main__":
    main()
