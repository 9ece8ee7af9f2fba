"""List what this machine lacks (`make doctor`). Python 3.11 is enough; with all packages it checks more."""

import sys

from zerodr.operations.doctor import machine


def main() -> int:
    """Print the findings; 1 when something is missing."""
    if machine.packages().state == "missing":
        findings = machine.examine()
    else:
        from zerodr.operations.cli import plan_of
        from zerodr.operations.doctor.bench import examine

        findings = examine(plan_of([]))
    sys.stdout.write(machine.render(findings) + "\n")
    return int(any(finding.state == "missing" for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
