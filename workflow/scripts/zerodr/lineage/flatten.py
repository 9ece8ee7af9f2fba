"""Flatten nested settings to dotted names and shorten long values, for comparison and for MLflow."""

from typing import Any

from zerodr.config.canonical import canonical_json


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Map `{"a": {"b": 1.0}, "c": [1, 2]}` to `{"a.b": "1.0", "c": "[1,2]"}`; strings unquoted, others as JSON."""
    flat: dict[str, str] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and item:
            flat |= flatten(item, f"{name}.")
        else:
            flat[name] = item if isinstance(item, str) else canonical_json(item)
    return flat


def brief(value: str | None, width: int = 80) -> str:
    """Cut a value to `width` characters; None becomes `none`."""
    text = "none" if value is None else value
    return text if len(text) <= width else text[: width - 3] + "..."
