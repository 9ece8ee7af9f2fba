"""A model hub on loopback that answers as huggingface_hub asks: revisions, etags, 401, 403, 404; no weights of anyone.

`with Hub({"organisation/name": Repository(folder)}) as hub` serves folders; set HF_ENDPOINT to `hub.address` in the
process that asks. `python -m zerodr.operations.stand_ins.hub FOLDER` serves FOLDER/<organisation>/<name>.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """A model, or a data set where its name begins with `datasets/`.

    Attributes:
        folder: its files.
        state: `open`, `gated` (its files need a token that was allowed), `private` (there is none without a token) or
            `refused` (no files for this address).
        commits: known commits, the last one is `main`; None: one, made from the files.
    """

    folder: Path
    state: str = "open"
    commits: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.commits:
            named = [f"{path.relative_to(self.folder)}{path.stat().st_size}" for path in self.files()]
            self.commits.append(hashlib.sha1("".join(named).encode()).hexdigest())

    def files(self) -> list[Path]:
        """List the files, sorted."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def tree(self) -> list[dict[str, object]]:
        """List the files as the hub does."""
        entries = [(path.relative_to(self.folder).as_posix(), path.read_bytes()) for path in self.files()]
        return [
            {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for path, content in entries
        ]

    def commit(self, revision: str) -> str | None:
        """The commit of a branch or commit; None where there is none."""
        return self.commits[-1] if revision == "main" else revision if revision in self.commits else None


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def log_message(self, *words: object) -> None:
        pass

    def _answer(self, whole: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(path)
        if self.hub.down:
            self.connection.close()
            return
        is_api = path.startswith("api/")
        path = path.removeprefix("api/").removeprefix("models/")
        name, _, rest = path.partition("/revision/" if is_api else "/resolve/")
        listed = is_api and "/tree/" in name
        if listed:
            name, _, rest = name.partition("/tree/")
        repository = self.hub.repositories.get(name)
        if repository is None or repository.state == "private":
            return self._refuse(401 if repository is None else 404, "RepoNotFound", "Repository not found")
        if repository.state == "gated" and not is_api:  # facts of it are public
            return self._refuse(403, "GatedRepo", "Access to this model is restricted")
        if repository.state == "refused" and not is_api:
            return self._refuse(403, "", "No access from here")
        revision, _, file = (rest or "main").partition("/")
        commit = repository.commit(revision)
        if commit is None:
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if listed:
            return self._send(json.dumps(repository.tree()).encode(), whole)
        if is_api:
            siblings = [{"rfilename": path.relative_to(repository.folder).as_posix()} for path in repository.files()]
            gated = "manual" if repository.state == "gated" else False
            facts = {"id": name, "sha": commit, "siblings": siblings, "tags": [], "gated": gated}
            return self._send(json.dumps(facts).encode(), whole)
        wanted = repository.folder / file
        if not wanted.is_file():
            return self._refuse(404, "EntryNotFound", f"{file} not found")
        content = wanted.read_bytes()
        self._send(content, whole, commit, hashlib.sha256(content).hexdigest())

    def _send(self, content: bytes, whole: bool, commit: str = "", etag: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/octet-stream" if etag else "application/json")
        if etag:
            self.send_header("ETag", f'"{etag}"')
            self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if whole and etag and self.hub.cut:
            self.wfile.write(content[: len(content) // 2])
            self.hub.down = self.close_connection = True
        elif whole:
            self.wfile.write(content)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Hub:
    """The server, on a free port of 127.0.0.1.

    Attributes:
        requests: paths asked for.
        down: connections are cut.
        cut: it goes down in the middle of the next file.
    """

    def __init__(self, repositories: dict[str, Repository], port: int = 0) -> None:
        self.repositories, self.requests, self.down, self.cut = repositories, list[str](), False, False
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def main(root: Path) -> None:
    """Serve all models below a folder until Ctrl-C."""
    folders = [path for path in sorted(root.glob("*/*")) if path.is_dir()]
    with Hub({path.relative_to(root).as_posix(): Repository(path) for path in folders}) as hub:
        sys.stdout.write(f"HF_ENDPOINT={hub.address}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
