"""Fill the templates of pages. All text is escaped; style and script are part of the page."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from zerodr.evaluation.numbers import compact, fixed, p_value, signed

TEMPLATES = Path(__file__).with_name("templates")


def fill(template: str, **context: Any) -> str:
    """Fill the template of a page.

    Args:
        template: a file of `templates`.
        context: its variables.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {shown.__name__: shown for shown in (duration, compact, fixed, signed, p_value)}
    environment.globals["asset"] = _asset
    return environment.get_template(template).render(**context)


def _asset(name: str) -> Markup:
    """Return a file of `templates` as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def inline_svg(path: Path) -> Markup:
    """Return a picture that was written here, without its XML header, to stand in a page."""
    text = path.read_text(encoding="utf-8")
    return Markup(text[text.index("<svg") :])


def duration(seconds: float) -> str:
    """Format a time: `12 s`, `3.4 min`, `2.1 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
