"""Tests of the project."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # networks of tests are so small that threads wait for each other
