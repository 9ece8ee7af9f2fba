"""Reading zip, tar, gz and plain files and folders without unpacking them, and without trusting them."""

from __future__ import annotations

import gzip
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from zerodr.errors import CollectionError, DownloadError, nearest

BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)


class Archive(Protocol):
    """A read-only set of named members."""

    name: str
    """What error messages call it."""

    def names(self) -> list[str]:
        """Names of all regular members, in the archive's order."""

    def open(self, member: str) -> IO[bytes]:
        """A member's bytes as a stream."""


@contextmanager
def telling_corruption(where: object) -> Iterator[None]:
    """Turns the many ways in which a damaged archive fails into one error.

    Raises:
        DownloadError: truncated or corrupt.
    """
    try:
        yield
    except BROKEN as error:
        raise DownloadError(
            where,
            f"is truncated or corrupt ({str(error) or type(error).__name__})",
            "delete it and run again, or replace the mirror's file",
        ) from error


def check_name(member: str, archive: str) -> str:
    """`member`, unless it would leave the archive's folder: absolute, with `..`, or a drive."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise CollectionError(archive, f"holds a member that leaves its folder ({member!r})", "don't use this archive")
    return member


def _refuse_link(member: str, archive: str) -> None:
    raise CollectionError(
        archive, f"holds a link or device ({member!r}), expected plain files", "don't use this archive"
    )


class ZipArchive:
    """A zip file."""

    def __init__(self, path: Path | IO[bytes], name: str) -> None:
        self.name = name
        with telling_corruption(name):
            self._zip = zipfile.ZipFile(path)
        self._names = [info.filename for info in self._zip.infolist() if self._plain(info)]

    def _plain(self, info: zipfile.ZipInfo) -> bool:
        check_name(info.filename, self.name)
        if stat.S_ISLNK(info.external_attr >> 16):
            _refuse_link(info.filename, self.name)
        return not info.is_dir()

    def names(self) -> list[str]:
        """Names of all regular members."""
        return self._names

    def open(self, member: str) -> IO[bytes]:
        """A member's bytes as a stream."""
        with telling_corruption(self.name):
            return self._zip.open(member)


class TarArchive:
    """A tar file, compressed or not. Every `open` reads from the start, which needs no space and no seeking."""

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path = name, path
        self._names: list[str] | None = None

    def names(self) -> list[str]:
        """Names of all regular members; the first call reads the whole archive."""
        if self._names is None:
            names = []
            with telling_corruption(self.name), tarfile.open(self._path, "r|*") as tar:
                for info in tar:
                    check_name(info.name, self.name)
                    if not (info.isfile() or info.isdir()):
                        _refuse_link(info.name, self.name)
                    if info.isfile():
                        names.append(info.name)
            self._names = names
        return self._names

    def open(self, member: str) -> IO[bytes]:
        """A member's bytes as a stream. The tar file is closed when the stream is garbage collected."""
        with telling_corruption(self.name):
            tar = tarfile.open(self._path, "r|*")
            for info in tar:
                stream = tar.extractfile(info) if info.name == member and info.isfile() else None
                if stream is not None:
                    return stream
        raise CollectionError(self.name, f"has no member {member}", nearest(member, self.names()))


class SingleFile:
    """One file, such as `x.tsv.gz` or `x.xml`, as an archive with one member; `.gz` is unpacked on the way."""

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path = name, path

    def names(self) -> list[str]:
        """The one name, without `.gz`."""
        return [self.name.removesuffix(".gz")]

    def open(self, member: str) -> IO[bytes]:
        """The file's bytes as a stream."""
        del member
        return gzip.open(self._path) if self.name.endswith(".gz") else open(self._path, "rb")  # type: ignore[return-value]


class FolderArchive:
    """Files of a user's own folder."""

    def __init__(self, root: Path, files: list[Path]) -> None:
        self.name, self._root = str(root), root
        self._names = [path.relative_to(root).as_posix() for path in files]

    def names(self) -> list[str]:
        """Paths relative to the folder."""
        return self._names

    def open(self, member: str) -> IO[bytes]:
        """A file's bytes as a stream."""
        return open(self._root / member, "rb")


def open_archive(path: Path, name: str | None = None) -> Archive:
    """The archive at `path`, by the ending of its name."""
    name = name or path.name
    if name.endswith(".zip"):
        return ZipArchive(path, name)
    if name.endswith((".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")):
        return TarArchive(path, name)
    return SingleFile(path, name)


def open_nested(archive: Archive, member: str) -> Archive:
    """A zip inside an archive, through a temporary file."""
    copy = tempfile.SpooledTemporaryFile(max_size=1 << 26)
    with telling_corruption(archive.name), archive.open(member) as stream:
        while block := stream.read(1 << 20):
            copy.write(block)
    return ZipArchive(copy, f"{archive.name}/{member}")  # type: ignore[arg-type]


def find(archive: Archive, suffix: str, required: bool = True) -> str | None:
    """The member whose path is `suffix` or ends with `/suffix`; the shortest when there are several.

    Raises:
        CollectionError: there is none and it is required.
    """
    found = [name for name in archive.names() if name == suffix or name.endswith("/" + suffix)]
    if found:
        return min(found, key=lambda name: (len(name), name))
    if required:
        raise CollectionError(archive.name, f"has no member {suffix}", nearest(suffix, archive.names()[:1000]))
    return None


def read_lines(archive: Archive, member: str) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line that is not blank. Lines end at `\\n` alone, as JSON lines need.

    Raises:
        CollectionError: a line is not UTF-8.
        DownloadError: the archive is damaged.
    """
    with telling_corruption(archive.name), archive.open(member) as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                line = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise CollectionError(
                    f"{archive.name}/{member}:{number}",
                    f"is not UTF-8 (byte {error.start + 1})",
                    "convert the file to UTF-8",
                ) from None
            if number == 1:
                line = line.removeprefix("\ufeff")
            if line.strip():
                yield number, line
