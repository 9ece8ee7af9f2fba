"""Write lineage and settings as text: an artifact's sources as a tree, nested settings as dotted names."""

from typing import Any

from zerodr.config.base import canonical_json
from zerodr.lineage.graph import Edge, Graph


def render_tree(graph: Graph, artifact: str, down: bool = False, depth: int | None = None) -> str:
    """Render the sources of an artifact (with `down`: its users) as a tree, one line an artifact.

    A branch that was printed already is not printed again: its line ends with `(see above)`.

    Args:
        graph: the checkout's lineage.
        artifact: path of the root of the tree.
        down: walk to users instead of sources.
        depth: levels below the root; None is all of them.
    """
    lines = [_line(graph, artifact)]
    _grow(graph, artifact, down, depth, "", {artifact}, lines)
    return "\n".join(lines)


def _grow(graph: Graph, artifact: str, down: bool, depth: int | None, indent: str, seen: set[str], lines: list) -> None:
    edges = _edges(graph, artifact, down)
    if depth == 0:
        if edges:
            lines.append(f"{indent}└─ ... {len(edges)} more")
        return
    for number, edge in enumerate(edges, start=1):
        last = number == len(edges)
        other = edge.user if down else edge.source
        again = other in seen and bool(_edges(graph, other, down))
        branch, suffix = "└─" if last else "├─", " (see above)" if again else ""
        lines.append(f"{indent}{branch} {_line(graph, other)}{_remark(edge)}{suffix}")
        if not again:
            seen.add(other)
            deeper = indent + ("   " if last else "│  ")
            _grow(graph, other, down, None if depth is None else depth - 1, deeper, seen, lines)


def _edges(graph: Graph, artifact: str, down: bool) -> list[Edge]:
    return graph.down(artifact) if down else graph.up(artifact)


def _line(graph: Graph, artifact: str) -> str:
    record = graph.record(artifact)
    if record is None:
        return f"{artifact}  (no stage writes it)"
    return f"{artifact}  {record['rule']} v{record['spec']['version']}  {record['digest'][:12]}"


def _remark(edge: Edge) -> str:
    if not edge.stale:
        return ""
    if edge.current is None:
        return f"  GONE: {edge.source} is missing or damaged"
    return f"  STALE: {edge.recorded[:12]} was used, {edge.source} is {edge.current[:12]} now"


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
