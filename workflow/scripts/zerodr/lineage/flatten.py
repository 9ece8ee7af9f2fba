"""Nested settings as dotted names, for comparison and for MLflow."""

from __future__ import annotations

from typing import Any

from zerodr.config.canonical import canonical_json


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """`{"a": {"b": 1.0}, "c": [1, 2]}` -> `{"a.b": "1.0", "c": "[1,2]"}`. Strings stay bare, the rest is JSON."""
    flat: dict[str, str] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and item:
            flat |= flatten(item, f"{name}.")
        else:
            flat[name] = item if isinstance(item, str) else canonical_json(item)
    return flat
