from __future__ import annotations

import hashlib
import logging
import os
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from collection_helpers import beir_zip, stage_of

from zerodr.collections.fetch import FetchSettings, Refused, download, fetch_archive, obtain, verify
from zerodr.errors import ConfigError, DownloadError

CONTENT = os.urandom(300_000)
SHA = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT with ranges; the path says how it misbehaves."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        if self.path.startswith("/status/"):
            self.send_error(int(self.path.rpartition("/")[2]))
            return
        if self.path == "/page":
            self._send(200, b"<html>sign in</html>", {"Content-Type": "text/html; charset=utf-8"})
            return
        start = 0
        wanted = self.headers.get("Range")
        fresh = self.headers.get("If-Range") in (None, '"v1"')
        if wanted and fresh and self.path != "/norange":
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(CONTENT):
                self._send(416, b"", {"Content-Range": f"bytes */{len(CONTENT)}"})
                return
        headers = {"ETag": '"v1"'} | (
            {"Content-Range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"} if start else {}
        )
        body = CONTENT[start:]
        if self.path == "/flaky" and len(self.server.asked) < 4:
            self._send(206 if start else 200, body[:90_000], headers, announce=len(body))
            return
        self._send(206 if start else 200, body, headers)

    def _send(self, status, body, headers, announce=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if announce is None else announce))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.asked = []
    made.url = f"http://127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def run(tmp_path: Path, **params) -> tuple[Path, dict]:
    """Run the stage; the published bytes' temporary path and the notes."""
    stage = stage_of(
        "zerodr.collections.fetch:fetch_archive",
        {"archive": "a.zip"} | params,
        {},
        {"archive": str(tmp_path / "archives/a.zip")},
        tmp_path / "state",
    )
    fetch_archive(stage)
    return stage.output("archive"), stage.notes


def test_download_is_verified_and_recorded(tmp_path, server):
    path, notes = run(tmp_path, urls=[server.url + "/a.zip"], checksums=[SHA])
    assert path.read_bytes() == CONTENT
    assert notes == {"origin": server.url + "/a.zip", "checksum": SHA, "pinned": True}


def test_any_of_the_checksums_will_do(tmp_path, server):
    _, notes = run(tmp_path, urls=[server.url + "/a.zip"], checksums=["md5:" + "0" * 32, SHA, MD5])
    assert notes["checksum"] == MD5


def test_interrupted_download_continues_where_it_stopped(tmp_path, server):
    path = download(server.url + "/flaky", tmp_path, "a.zip", pause_s=0)
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=65536-", "bytes=131072-", "bytes=196608-"]


def test_bytes_of_a_killed_run_are_used(tmp_path, server):
    path = download(server.url + "/a.zip", tmp_path, "a.zip")
    path.write_bytes(CONTENT[:123_456])
    server.asked.clear()
    assert download(server.url + "/a.zip", tmp_path, "a.zip").read_bytes() == CONTENT
    assert server.asked == [("/a.zip", "bytes=123456-")]
    assert download(server.url + "/a.zip", tmp_path, "a.zip").read_bytes() == CONTENT  # complete already: status 416


def test_server_without_ranges_starts_again(tmp_path, server):
    path = download(server.url + "/norange", tmp_path, "a.zip")
    path.write_bytes(CONTENT[:1000])
    assert download(server.url + "/norange", tmp_path, "a.zip").read_bytes() == CONTENT


def test_changed_file_is_not_glued_together(tmp_path, server):
    path = download(server.url + "/a.zip", tmp_path, "a.zip")
    path.write_bytes(b"x" * 1000)
    notes = path.with_suffix(".json")
    notes.write_text(notes.read_text().replace("v1", "v0"))
    assert download(server.url + "/a.zip", tmp_path, "a.zip").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "reason"), [("/status/404", "HTTP status 404"), ("/status/500", "HTTP status 500"), ("/page", "web page")]
)
def test_bad_answers_are_no_file(tmp_path, server, path, reason):
    with pytest.raises(Refused, match=reason):
        download(server.url + path, tmp_path, "a.zip")
    with pytest.raises(DownloadError, match=reason):
        run(tmp_path, urls=[server.url + path])


def test_next_address_when_one_fails(tmp_path, server):
    _, notes = run(tmp_path, urls=[server.url + "/status/404", server.url + "/a.zip"], checksums=[SHA])
    assert notes["origin"] == server.url + "/a.zip"


def test_wrong_download_is_refused_and_removed(tmp_path, server):
    wrong = "sha256:" + "0" * 64
    with pytest.raises(DownloadError, match=f"expected {wrong}, found {SHA}"):
        run(tmp_path, urls=[server.url + "/a.zip"], checksums=[wrong])
    assert not list((tmp_path / "state").glob("*.part"))


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setattr("zerodr.collections.fetch.ATTEMPTS", 1)
    with pytest.raises(DownloadError) as error:
        run(tmp_path, urls=["http://127.0.0.1:1/a.zip"], mirrors=[str(tmp_path / "mirror")])
    assert str(tmp_path / "mirror/a.zip") in str(error.value) and "http://127.0.0.1:1/a.zip" in str(error.value)
    assert "(no connection)" in str(error.value) and "mirror folder" in error.value.next_step


def test_offline_asks_nobody_and_lists_all(tmp_path, server):
    with pytest.raises(DownloadError, match="offline: true") as error:
        run(tmp_path, urls=[server.url + "/a.zip"], mirrors=[str(tmp_path / "m")], offline=True)
    assert server.asked == [] and str(tmp_path / "m/a.zip") in str(error.value)


def test_mirror_comes_first(tmp_path, server):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a.zip").write_bytes(CONTENT)
    path, notes = run(
        tmp_path, urls=[server.url + "/a.zip"], checksums=[MD5], mirrors=[str(tmp_path / "x"), str(tmp_path / "m")]
    )
    assert path.read_bytes() == CONTENT and notes["origin"] == str(tmp_path / "m/a.zip")
    assert server.asked == [] and (tmp_path / "m/a.zip").stat().st_nlink == 1  # touching a copy leaves the mirror alone


def test_wrong_mirror_file_is_not_passed_over(tmp_path, server):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a.zip").write_bytes(b"something else")
    with pytest.raises(DownloadError, match="wrong checksum") as error:
        run(tmp_path, urls=[server.url + "/a.zip"], checksums=[SHA], mirrors=[str(tmp_path / "m")])
    assert str(tmp_path / "m/a.zip") in error.value.where
    assert SHA in error.value.what and hashlib.sha256(b"something else").hexdigest() in error.value.what
    assert server.asked == [] and (tmp_path / "m/a.zip").exists()


def test_gated_says_where_to_register(tmp_path):
    with pytest.raises(DownloadError, match="needs registration at https://bioasq.example"):
        run(tmp_path, access="gated", registration="https://bioasq.example", mirrors=[str(tmp_path / "m")])
    (tmp_path / "m").mkdir()
    beir_zip(tmp_path / "m/a.zip")
    assert (
        run(tmp_path, access="gated", registration="https://bioasq.example", mirrors=[str(tmp_path / "m")])[1]["pinned"]
        is False
    )


def test_unpinned_archive_is_said_to_be(tmp_path, caplog):
    (tmp_path / "a.zip").write_bytes(CONTENT)
    with caplog.at_level(logging.WARNING, "zerodr"):
        assert verify(tmp_path / "a.zip", (), "somewhere") == SHA
    assert "not pinned" in caplog.text


def test_nothing_to_try(tmp_path):
    with pytest.raises(DownloadError, match="neither a mirror nor an address"):
        obtain(FetchSettings(archive="a.zip"), tmp_path)


def test_unknown_setting_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="did you mean mirrors"):
        run(tmp_path, mirror=["m"])


def originals(server, **files) -> dict:
    """The block of a registry row; values of `files` are checksums, or whole settings."""
    written = [
        {"path": path} | (value if isinstance(value, dict) else {"checksum": value}) for path, value in files.items()
    ]
    return {"format": "x", "address": server.url + "/", "files": written}


def test_files_of_a_publisher_are_packed(tmp_path, server):
    block = originals(server, **{"data/one.txt": SHA, "two.txt": MD5})
    path, notes = run(tmp_path, originals=block)
    with zipfile.ZipFile(path) as packed:
        assert packed.namelist() == ["data/one.txt", "two.txt"]
        assert packed.read("two.txt") == CONTENT
    assert notes["pinned"] and notes["originals"] == {"data/one.txt": SHA, "two.txt": MD5}
    assert notes["origin"] == f"{server.url}/data/one.txt, {server.url}/two.txt"
    again, others = run(tmp_path / "again", originals=block)
    assert again.read_bytes() == path.read_bytes() and others["checksum"] == notes["checksum"]


def test_an_archive_in_a_mirror_comes_before_files_of_the_publisher(tmp_path, server):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a.zip").write_bytes(CONTENT)
    path, notes = run(tmp_path, mirrors=[str(tmp_path / "m")], checksums=[SHA], originals=originals(server, x=SHA))
    assert path.read_bytes() == CONTENT and server.asked == [] and "originals" not in notes


def test_files_of_a_publisher_may_be_in_a_mirror(tmp_path, server):
    (tmp_path / "m/a").mkdir(parents=True)
    beir_zip(tmp_path / "m/a/x.zip", **{"notes.txt": "n"})
    block = originals(server, **{"x.zip": {"members": ["corpus.jsonl", "queries.jsonl"]}})
    path, notes = run(tmp_path, mirrors=[str(tmp_path / "m")], offline=True, originals=block)
    with zipfile.ZipFile(path) as packed:
        assert packed.namelist() == ["x/corpus.jsonl", "x/queries.jsonl"]
    assert not notes["pinned"] and server.asked == []


def test_a_file_of_a_publisher_that_is_wrong_or_missing_is_named(tmp_path, server):
    with pytest.raises(DownloadError, match="one.txt: wrong checksum"):
        run(tmp_path, originals=originals(server, **{"one.txt": "sha256:" + "0" * 64}))
    with pytest.raises(DownloadError, match=r"a/status/404: is not available; tried .*HTTP status 404"):
        run(tmp_path, originals=originals(server, **{"status/404": SHA}))
    (tmp_path / "m/a").mkdir(parents=True)
    beir_zip(tmp_path / "m/a/x.zip")
    block = originals(server, **{"x.zip": {"members": ["corpus.jsonl", "gone.txt"]}})
    with pytest.raises(DownloadError, match="x.zip: has no member gone.txt"):
        run(tmp_path, mirrors=[str(tmp_path / "m")], originals=block)
