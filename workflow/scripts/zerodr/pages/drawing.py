"""Draw lineage as a graph: archives at the top, each stage below everything that it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from zerodr.lineage.graph import Graph, short_name

BOX, HIGH, GAP, ROOM = 176, 38, 14, 34  # width and height of a node; room between nodes and between layers, in pixels
LETTERS = 25  # of a label


@dataclass
class Node:
    """Jobs of one rule that differ in their collection or shard alone.

    Attributes:
        title: the rule, or the kind of a file that no stage wrote.
        label: model and stage, or the file.
        artifacts: paths with the start of their digest.
        collections: those of the jobs, as keys.
        above: keys of the nodes that it was made from.
    """

    title: str
    label: str
    artifacts: list[str] = field(default_factory=list)
    collections: dict[str, None] = field(default_factory=dict)
    above: set[str] = field(default_factory=set)


def nodes_of(graph: Graph, artifacts: Iterable[str]) -> dict[str, Node]:
    """Group artifacts and everything above them into nodes, sources first."""
    nodes: dict[str, Node] = {}
    key_of: dict[str, str] = {}
    for path in graph.ancestors(*artifacts):
        record = graph.record(path)
        if record is None:
            title, label, digest = "file", short_name(path), ""
        else:
            words = record["wildcards"]
            title, digest = record["rule"], record["digest"][:8]
            named = [words.get(name, "") for name in ("archive", "index", "model", "stage", "kind", "memory")]
            label = " ".join(filter(None, named))
        key = f"{title} {label}"
        node = nodes.setdefault(key, Node(title, label))
        node.artifacts.append(f"{path} {digest}".strip())
        node.collections |= {record["wildcards"]["collection"]: None} if record and "collection" in words else {}
        key_of[path] = key
        node.above |= {key_of[entry["path"]] for entry in record["inputs"]} - {key} if record else set()
    return nodes


def layers(nodes: dict[str, Node]) -> list[list[str]]:
    """Order nodes in layers: below all sources, as low as users allow, next to what they are connected with."""
    depth: dict[str, int] = {}
    for key, node in nodes.items():
        depth[key] = max((depth[other] + 1 for other in node.above if other in depth), default=0)
    users: dict[str, list[str]] = {}
    for key, node in nodes.items():
        for other in node.above:
            users.setdefault(other, []).append(key)
    for key in reversed(nodes):
        if key in users:
            depth[key] = max(depth[key], min(depth[user] for user in users[key]) - 1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for key in nodes:
        rows[depth[key]].append(key)
    position: dict[str, float] = {}
    for row in rows:
        row.sort(key=lambda key: _middle([position[other] for other in nodes[key].above if other in position]))
        position |= {key: number - len(row) / 2 for number, key in enumerate(row)}
    return rows


def _middle(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def draw(nodes: dict[str, Node]) -> Markup:
    """Draw nodes and their edges as SVG in the colours of the page."""
    rows = layers(nodes)
    width = max((len(row) for row in rows), default=1) * (BOX + GAP) + GAP
    height = len(rows) * (HIGH + ROOM) + GAP
    where: dict[str, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        left = (width - len(row) * (BOX + GAP) + GAP) / 2
        where |= {key: (left + n * (BOX + GAP), GAP + level * (HIGH + ROOM)) for n, key in enumerate(row)}
    lines = [_edge(where[other], where[key]) for key, node in nodes.items() for other in node.above if other in where]
    boxes = [_box(node, *where[key]) for key, node in nodes.items()]
    head = f'<svg class="lineage" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    return Markup(head + "".join(lines) + "".join(boxes) + "</svg>")


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y, u, v = start[0] + BOX / 2, start[1] + HIGH, end[0] + BOX / 2, end[1]
    bend = max((v - y) / 2, ROOM / 2)
    return f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v:.0f}"/>'


def _box(node: Node, x: float, y: float) -> str:
    count = f" x {len(node.artifacts)}" if len(node.artifacts) > 1 else ""
    shown = node.label or ", ".join(node.collections)
    title = "\n".join(escape(path) for path in node.artifacts[:40])
    kind = "source" if not node.above else "stage"
    return (
        f'<g class="{kind}"><title>{title}</title><rect x="{x:.0f}" y="{y:.0f}" width="{BOX}" height="{HIGH}" rx="4"/>'
        f'<text x="{x + 8:.0f}" y="{y + 15:.0f}">{escape(node.title)}{count}</text>'
        f'<text class="soft" x="{x + 8:.0f}" y="{y + 30:.0f}">{escape(_short(shown))}</text></g>'
    )


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 3]}..."
