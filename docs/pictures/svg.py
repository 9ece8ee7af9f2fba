"""Small pieces of SVG: colours that are readable on white and on black, text, boxes, arrows."""

from __future__ import annotations

from html import escape

GREY = "#7d8590"
SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"


def text(
    x: float, y: float, words: str, *, size: int = 12, fill: str = GREY, anchor: str = "start", **more: str
) -> str:
    """One line of text; `more` are attributes with _ in place of -."""
    extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{fill}"{extra}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "none", opacity: float = 1) -> str:
    """A rectangle with round corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" '
        f'fill-opacity="{opacity:g}" stroke="{stroke}" stroke-opacity="0.6"/>'
    )


def line(points: list[tuple[float, float]], *, arrow: bool = False, dashed: bool = False, width: float = 2) -> str:
    """A line through points, with an arrow head at its end."""
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    head = ' marker-end="url(#head)"' if arrow else ""
    dash = ' stroke-dasharray="6 5"' if dashed else ""
    return (
        f'<path d="{path}" fill="none" stroke="{GREY}" stroke-width="{width:g}" stroke-linejoin="round"{dash}{head}/>'
    )


def picture(width: float, height: float, title: str, description: str, parts: list[str]) -> str:
    """A whole file, with a transparent ground."""
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{GREY}"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-labelledby="title description" font-family="{SANS}">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
            f"<defs>{head}</defs>",
            *parts,
            "</svg>\n",
        ]
    )
