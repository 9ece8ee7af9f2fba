"""One spelling for every JSON value, so that equal settings have equal digests."""

import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, no NaN, non-ASCII kept. `1.0` stays `1.0`, `1` stays `1`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
