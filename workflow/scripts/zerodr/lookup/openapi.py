"""Describe the route for programs of `zerodr serve` as OpenAPI 3.1."""

from importlib.metadata import version
from typing import Any

from zerodr.lookup.desk import LARGEST_COUNT


def describe(name: str) -> dict[str, Any]:
    """Return the description of a collection's server."""
    asked = {
        "query": _text("What to look for."),
        "k": {"type": "integer", "minimum": 1, "maximum": LARGEST_COUNT, "default": 10, "description": "Documents."},
        "method": _text("A method of the page; the first one where it is left out."),
    }
    hit = {
        "rank": {"type": "integer", "description": "From 1."},
        "id": _text("Of the document."),
        "score": {"type": "number", "description": "Higher is better; comparable within one query alone."},
        "title": _text("Empty where there is none."),
        "text": _text("The whole text."),
    }
    hits = {"type": "array", "items": _object(hit), "description": "Best first."}
    answer = {"query": asked["query"], "method": _text("That answered."), "notice": _text("Such as a cut query.")}
    responses = {
        "200": _content("The documents.", _object(answer | {"hits": hits})),
        "400": _content("What is wrong.", _object({"error": _text("In one sentence.")})),
    }
    body = {"required": True} | _content("", _object(asked, ["query"]) | {"additionalProperties": False})
    search = {"operationId": "search", "summary": "Find documents.", "requestBody": body, "responses": responses}
    info = {"title": f"zerodr: {name}", "version": version("zerodr")}
    return {"openapi": "3.1.0", "info": info, "paths": {"/search": {"post": search}}}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or list(properties)}


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {"description": description} if description else {}
    return described | {"content": {"application/json": {"schema": schema}}}
