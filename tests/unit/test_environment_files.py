"""The three descriptions of the environment say the same."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from zerodr.operations.doctor_machine import PYTHONS


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^\s*-?\s*([A-Za-z][A-Za-z0-9_.-]*)==([0-9][^\s#]*)", text, re.M)
    return {name.lower().replace("_", "-").replace(".", "-"): version for name, version in found}


def test_the_lock_holds_every_direct_requirement_at_its_pin(root):
    direct = pins((root / "envs/requirements.txt").read_text())
    locked = pins((root / "envs/requirements.lock").read_text())
    del direct["uv"]
    assert direct.items() <= locked.items()


def test_the_conda_environment_is_generated_from_the_direct_requirements(root):
    conda = yaml.safe_load((root / "envs/zerodr.yaml").read_text())
    listed = next(part["pip"] for part in conda["dependencies"] if isinstance(part, dict))
    assert pins("\n".join(listed)) == pins((root / "envs/requirements.txt").read_text())


def test_the_docs_extra_has_the_pin_of_the_environment(root):
    extra = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"]
    assert pins("\n".join(extra)).items() <= pins((root / "envs/requirements.txt").read_text()).items()


def test_every_file_names_the_same_versions_of_python(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (major, first), (_, last) = PYTHONS
    assert project["requires-python"] == f">={major}.{first},<{major}.{last + 1}"
    names = [f"python{major}.{minor}" for minor in range(first, last + 1)]
    for name in ("create.sh", "python.sh"):
        assert f"not {PYTHONS[0]} <= sys.version_info[:2] <= {PYTHONS[1]}" in (root / "envs" / name).read_text()
    assert f"for python in {' '.join(names)} python3; do" in (root / "envs/python.sh").read_text()


def test_the_first_python_that_runs_is_taken(root, tmp_path):
    """A version manager leaves names that only say how to install what they stand for."""
    (tmp_path / "python3.11").write_text("#!/bin/sh\necho 'python3.11: command not found' >&2; exit 127\n")
    (tmp_path / "python3.11").chmod(0o755)
    for name, expected in (("python3", "python3"), ("python3.13", "python3.13"), ("python3.12", "python3.12")):
        (tmp_path / name).symlink_to(sys.executable)
        command = [shutil.which("bash"), str(root / "envs/python.sh")]
        done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
        assert done.stdout == f"{expected}\n" and not done.stderr


def imported_modules(path: Path) -> set[str]:
    """Top-level names that a file imports, relative imports left out."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def test_everything_that_is_imported_is_a_direct_requirement(root):
    files = [path for place in ("workflow", "tests", "benchmarks", "docs") for path in (root / place).rglob("*.py")]
    own = {"zerodr", "tests"} | {path.stem for path in files}
    own |= {path.parent.name for path in files if path.name == "__init__.py"}
    names = set().union(*map(imported_modules, files)) - own - sys.stdlib_module_names
    direct, homes = pins((root / "envs/requirements.txt").read_text()), packages_distributions()
    for name in sorted(names):
        packages = {package.lower().replace("_", "-").replace(".", "-") for package in homes[name]}
        assert packages & direct.keys(), f"{name} is imported, but {packages} is no direct requirement"


def test_the_lock_is_whole(root):
    """The lock has what each package asks for. Set-up adds the CUDA libraries of torch's build; two are left bare."""
    locked = pins((root / "envs/requirements.lock").read_text())
    for name in sorted(locked.keys() - {"pyserini", "openvino"}):
        for line in requires(name) or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                wanted = need.name.lower().replace("_", "-").replace(".", "-")
                if name == "torch" and wanted.startswith(("cuda-", "nvidia-", "triton")):
                    continue
                assert wanted in locked.keys() | {"setuptools", "pip"}, f"{name} asks for {line}"


def test_no_machine_leaks_into_the_lock(root):
    lock = (root / "envs/requirements.lock").read_text()
    assert "file:" not in lock and "@" not in lock and "+cpu" not in lock


STUB = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >>calls
echo "torch ${UV_TORCH_BACKEND:-usual}" >backend
case "$*" in *-r\\ *) cp "${@: -1}" installed ;; *--dry-run*) [ -z "${UNREACHED:-}" ] ;; esac
"""


def created(folder: Path, root: Path, **environment: str) -> tuple[subprocess.CompletedProcess, str]:
    """Run envs/create.sh with recorders for Python and uv; returns also the calls of uv."""
    (folder / ".venv/bin").mkdir(parents=True)
    shutil.copytree(root / "envs", folder / "envs")
    for name in ("python", "uv"):
        (folder / ".venv/bin" / name).write_text(STUB)
        (folder / ".venv/bin" / name).chmod(0o755)
    variables = os.environ | {"PYTHON": sys.executable, "UV_TORCH_BACKEND": "cpu"} | environment
    done = subprocess.run(["bash", "envs/create.sh"], cwd=folder, env=variables, capture_output=True, text=True)
    return done, (folder / "calls").read_text()


@pytest.mark.parametrize(
    ("present", "environment", "build"),
    [
        ((), {}, "cpu"),
        ((), {"UNREACHED": "1"}, "usual"),
        ((), {"UV_FIND_LINKS": "wheels"}, "usual"),
        ((), {"UV_TORCH_BACKEND": "auto"}, "auto"),
        (("nvidia-smi",), {}, "usual"),
        (("sbatch",), {}, "usual"),
    ],
)
def test_without_a_driver_torch_is_the_build_for_processors(root, tmp_path, present, environment, build):
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "basename", "cp", "dirname", "env", "grep"):
        (commands / name).symlink_to(shutil.which(name))
    for name in present:
        (commands / name).symlink_to("bash")
    fresh = {"UV_TORCH_BACKEND": "", "UV_FIND_LINKS": "", "PIP_FIND_LINKS": "", "PATH": str(commands)}
    done, _ = created(tmp_path / "clone", root, **fresh | environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clone/backend").read_text() == f"torch {build}\n"
    assert ("for processors" in done.stdout) == (build == "cpu")


def test_the_lock_is_what_is_installed(root, tmp_path):
    done, calls = created(tmp_path, root)
    assert done.returncode == 0, done.stderr
    assert "uv pip install --python .venv --no-deps --quiet -r envs/requirements.lock\n" in calls
    installed, locked = (pins(path.read_text()) for path in (tmp_path / "installed", root / "envs/requirements.lock"))
    assert installed == locked
