"""List what this machine lacks (`make doctor`). Python 3.11 is enough; with all packages it checks more."""

import sys

from zerodr import preflight


def main() -> int:
    """Print the findings; 1 when something is missing."""
    if preflight.packages().state == "missing":
        findings = preflight.examine()
    else:
        from zerodr.cli import plan_of
        from zerodr.doctor import examine

        findings = examine(plan_of([]))
    sys.stdout.write(preflight.render(findings) + "\n")
    return int(any(finding.state == "missing" for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
