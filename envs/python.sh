#!/usr/bin/env bash
# Print the first Python that the lock has packages for (3.11 runs the tests every day), else `python3`.
for python in python3.11 python3.12 python3.13 python3; do
  if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
    echo "$python"
    exit
  fi
done
echo python3
