"""Run one stage by hand: `python -m zerodr.run results/.state/<digest>/spec.json`."""

import sys
from pathlib import Path

from zerodr.artifacts.adapter import configure_logging, log, stay_offline
from zerodr.artifacts.stage import load_spec, run_spec
from zerodr.errors import ZerodrError


def main(arguments: list[str]) -> int:
    """Return exit status 0 when the stage's outputs are published, 1 after a user's mistake, 2 for a wrong call."""
    if len(arguments) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    try:
        spec = load_spec(Path(arguments[0]))
        stay_offline(spec.rule)
        configure_logging(spec.name())
        run_spec(spec)
    except ZerodrError as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
