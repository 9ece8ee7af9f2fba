"""Serve the page of a collection on 127.0.0.1, and its answers as JSON; `/search` is for programs, see `/docs`.

Only this machine can reach the server, and only under its own names, so that no other site's page can ask it.
"""

import html
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from zerodr.collections.audit import SURROGATE
from zerodr.errors import ConfigError, MachineError, ZerodrError, nearest
from zerodr.lookup.desk import Desk
from zerodr.lookup.openapi import describe

log = logging.getLogger("zerodr")
HOST = "127.0.0.1"
NAMES = [HOST, "localhost"]
PAGE = Path(__file__).with_name("page")
FILES = {"/": "page.html", "/page.css": "page.css", "/page.js": "page.js"}
POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
LARGEST_BODY = 1 << 20
ASKED = ("query", "k", "method")  # fields of POST /search
AT_ONCE = 4
"""Requests that compute at the same time; more wait their turn."""


class Api:
    """JSON answers for one collection.

    Args:
        desk: answers.
        chosen: names of the methods that the page starts with.
    """

    def __init__(self, desk: Desk, chosen: list[str]) -> None:
        self.desk, self.chosen = desk, chosen
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def about(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Describe the collection and its methods."""
        del asked
        methods = [self.desk.described(source) for source in self.desk.methods.values()]
        return {
            "collection": self.desk.name,
            "documents": len(self.desk.documents),
            "queries": len(self.desk.queries),
            "methods": methods,
            "chosen": self.chosen,
        }

    def hits(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer `query` by `method`, by default the first chosen one: the first `k` documents with whole texts."""
        if unknown := sorted(asked.keys() - set(ASKED)):
            raise ConfigError(unknown[0], "is no field of a search", nearest(unknown[0], ASKED))
        method = _field(asked, "method", str, self.chosen[0])
        return self.desk.hits(_field(asked, "query", str), method, _field(asked, "k", int, 10))

    def search(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer `query` by `methods`: the first `count` documents of each."""
        options = _field(asked, "options", dict, {})
        if "memories" in options:
            options = {"memories": [str(name) for name in _field(options, "memories", list)]}
        query, methods = _field(asked, "query", str), _field(asked, "methods", list)
        return self.desk.answer(query, [str(name) for name in methods], _field(asked, "count", int, 10), options)

    def gains(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Compare `left` and `right` by query."""
        return self.desk.gains(_field(asked, "left", str), _field(asked, "right", str))

    def in_turn(self, answer: Callable[[dict[str, Any]], dict[str, Any]], asked: dict[str, Any]) -> dict[str, Any]:
        """Compute an answer when it is its turn."""
        with self._turns:
            return answer(asked)


def _field(asked: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = asked.get(name, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ConfigError(name, f"expected {kind.__name__}, found {value!r:.60}", "send it with the request")
    if isinstance(value, str) and SURROGATE.search(value):
        raise ConfigError(name, f"holds half a character, {value!r:.60}", "send it as UTF-8")
    return value


def make_app(desk: Desk, chosen: list[str]) -> Starlette:
    """Make the application: the page's files, and a POST route for each public method of `Api`."""
    api = Api(desk, chosen)
    answers = {"about": api.about, "search": api.search, "gains": api.gains}

    def route(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            try:
                asked = _parse(await request.body())
                value = await run_in_threadpool(api.in_turn, answer, asked)
            except ZerodrError as error:
                sentence = str(error).encode("utf-8", "backslashreplace").decode()  # it may quote half a character
                return JSONResponse({"error": sentence}, status_code=400, headers=HEADERS)
            return JSONResponse(value, headers=HEADERS)

        return respond

    def file(name: str) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            return FileResponse(PAGE / name, headers=HEADERS)

        return respond

    async def docs(request: Request) -> Response:
        text = (PAGE / "docs.html").read_text(encoding="utf-8")
        return HTMLResponse(text.replace("127.0.0.1:8000", html.escape(request.url.netloc)), headers=HEADERS)

    async def openapi(request: Request) -> Response:
        return JSONResponse(describe(desk.name), headers=HEADERS)

    routes = [
        Route("/search", route(api.hits), methods=["POST"]),
        Route("/openapi.json", openapi),
        Route("/docs", docs),
    ]
    routes += [Route(path, file(name)) for path, name in FILES.items()]
    routes += [Route(f"/api/{name}", route(answer), methods=["POST"]) for name, answer in answers.items()]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=NAMES)])


def _parse(body: bytes) -> dict[str, Any]:
    if len(body) > LARGEST_BODY:
        raise ConfigError("request", f"holds {len(body)} bytes, expected {LARGEST_BODY} at most", "send less")
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):  # of 100,000 brackets
        value = None
    if not isinstance(value, dict):
        raise ConfigError("request", "is no JSON object", "send one")
    return value


def run_server(desk: Desk, chosen: list[str], port: int) -> None:
    """Load the chosen methods, then serve until Ctrl-C.

    Raises:
        MachineError: the port is in use.
    """
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()  # at once: until then another process can bind the port, too
        except OSError as error:
            step = f"choose another: --port {max(port, 8000) + 1}"
            raise MachineError(f"port {port}", f"can't be used ({error.strerror})", step) from None
        desk.answer("warm up", chosen)
        desk.documents.warm_up()
        log.info("%s: http://%s:%d (Ctrl-C ends it)", desk.name, HOST, port)
        config = uvicorn.Config(make_app(desk, chosen), host=HOST, port=port, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])
