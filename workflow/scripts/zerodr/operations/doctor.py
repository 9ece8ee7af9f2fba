"""List what this machine lacks (`make doctor`). Python 3.11 is enough; with all packages it checks more."""

import sys
from pathlib import Path

from zerodr.operations import doctor_machine


def main() -> int:
    """Print the findings; return 1 when something is missing."""
    if doctor_machine.packages().state == "missing":
        findings = doctor_machine.examine()
    else:
        from zerodr.config.load import read_config
        from zerodr.operations.doctor_bench import examine_bench
        from zerodr.operations.loading import load_plan

        findings = examine_bench(load_plan(Path("."), read_config(Path("config")), True, {}))
    sys.stdout.write(doctor_machine.render(findings) + "\n")
    return int(doctor_machine.is_missing(findings))


if __name__ == "__main__":
    sys.exit(main())
