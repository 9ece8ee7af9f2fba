"""The three descriptions of the environment say the same."""

from __future__ import annotations

import re

import yaml


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


def test_no_machine_leaks_into_the_lock(root):
    lock = (root / "envs/requirements.lock").read_text()
    assert "file:" not in lock and "@" not in lock and "+cpu" not in lock
