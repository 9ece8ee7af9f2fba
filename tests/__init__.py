"""Tests of the project."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # networks of tests are so small that threads wait for each other
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles all modules that it imports
sys.dont_write_bytecode = False
