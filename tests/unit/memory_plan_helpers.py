"""A recipe with one stage with memories in a copy of the configuration, and its plan, for the tests of MoMA's plan."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import yaml
from tests.unit.config_helpers import lab_plan, root

from zerodr.plan import Plan

__all__ = ["root"]

ROOT = Path(__file__).parents[2]
EPISODE = {
    "kind": "moma",
    "memory": {"memories": ["source", "memory-mesh"], "documents": 4},
    "augmenter": {"selected": 2},
    "objective": {"name": "info_nce"},
    "training": {"schedule": "constant"},
}


def add(root: Path, name: str = "mine", chain: dict | None = None, **settings: dict) -> None:
    made = {"encoder": {"init": "t5-ance/ep0"}, "chain": chain or {"moma1": EPISODE}} | settings
    value = {"kind": "trained", "label": name, "description": "test", "settings": made}
    (root / f"config/methods/{name}.yaml").write_text(yaml.safe_dump(value, sort_keys=False))


def plan(root: Path = ROOT, **config: object) -> Plan:
    return lab_plan(root, **config)


def wc(stage: str = "moma2", model: str = "moma-t5ance", **wildcards: str) -> SimpleNamespace:
    return SimpleNamespace(model=model, stage=stage, scope="shared", **wildcards)
