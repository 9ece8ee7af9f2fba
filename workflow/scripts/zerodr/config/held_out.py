"""Proxy collections: a folder's documents without some titles and sentences, which become queries."""

from zerodr.config.registry import Collection

ENDING, SPLIT = ".proxy", "known-items"
ADAPTING = "lab"  # the scale of `zerodr adapt`


def with_proxies(rows: dict[str, Collection], count: int) -> dict[str, Collection]:
    """Add a proxy collection for each folder of the user, and let its models rank the folder, too.

    So what was held out is in no text that a model learns from, whichever recipe makes it.

    Args:
        rows: the registry by name.
        count: titles and sentences to hold out; 0 adds nothing.
    """
    if not count:
        return rows
    added = dict(rows)
    for name, row in rows.items():
        if row.kind == "own":
            proxy = name + ENDING
            added[name] = row.model_copy(update={"models_of": proxy})
            held_out = {"kind": "proxy", "name": proxy, "label": f"{row.label} (proxy)", "held_out_of": name}
            judged = {"splits": {SPLIT: None}, "evaluation_split": SPLIT, "queries": None, "archive": ""}
            added[proxy] = row.model_copy(update=held_out | judged)
    return added
