"""Read zip, tar, gz and plain files and folders without unpacking or trusting them."""

import gzip
import io
import lzma
import stat
import tarfile
import tempfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from zerodr.errors import CollectionError, DownloadError, nearest

MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32"}  # longest first
MARKS |= {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


class Location(NamedTuple):
    """A line of a source file, for errors."""

    file: str
    line: int


class Archive(ABC):
    """A read-only set of named members."""

    name: str
    """Its name in error messages."""
    when_damaged = "delete it and run again, or replace the mirror's file"
    """What to do about a damaged one."""
    _names: list[str]

    def names(self) -> list[str]:
        """List all regular members, in the archive's order."""
        return self._names

    @abstractmethod
    def open(self, member: str) -> IO[bytes]:
        """Open a member's bytes as a stream."""


@contextmanager
def damage_errors(where: object, step: str = Archive.when_damaged) -> Iterator[None]:
    """Turn the many ways in which a damaged archive fails into one error.

    Raises:
        DownloadError: truncated or corrupt.
    """
    try:
        yield
    except (*BROKEN, OSError) as error:
        if not isinstance(error, BROKEN) and error.errno:  # bz2's alone has no number
            raise
        problem = f"is truncated or corrupt ({str(error) or type(error).__name__})"
        raise DownloadError(where, problem, step) from error


def check_name(member: str, archive: str) -> str:
    """Return `member`, unless it would leave the archive's folder: absolute, with `..`, or a drive."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise CollectionError(archive, f"holds a member that leaves its folder ({member!r})", "don't use this archive")
    return member


def _refuse_link(member: str, archive: str) -> None:
    problem = f"holds a link or device ({member!r}), expected plain files"
    raise CollectionError(archive, problem, "don't use this archive")


class ZipArchive(Archive):
    """A zip file."""

    def __init__(self, path: Path | IO[bytes], name: str) -> None:
        self.name = name
        with damage_errors(name):
            self._zip = zipfile.ZipFile(path)
        self._names = [info.filename for info in self._zip.infolist() if self._plain(info)]

    def _plain(self, info: zipfile.ZipInfo) -> bool:
        check_name(info.filename, self.name)
        if stat.S_ISLNK(info.external_attr >> 16):
            _refuse_link(info.filename, self.name)
        return not info.is_dir()

    def open(self, member: str) -> IO[bytes]:
        """Open a member's bytes as a stream.

        Raises:
            CollectionError: it has a password, or a compression that Python lacks.
        """
        try:
            with damage_errors(self.name):
                return self._zip.open(member)
        except RuntimeError as error:  # Deflate64, which Windows writes above 2 GB, is not implemented
            raise CollectionError(f"{self.name}/{member}", f"can't be unpacked ({error})", "pack it again") from None


class TarArchive(Archive):
    """A tar file, compressed or not. Every `open` reads from the start, which needs no space and no seeking."""

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path = name, path

    def names(self) -> list[str]:
        """List all regular members; the first call reads the whole archive."""
        return self._scanned_names

    @cached_property
    def _scanned_names(self) -> list[str]:
        names = []
        with damage_errors(self.name), self._bytes() as content:
            for info in _members(content):
                check_name(info.name, self.name)
                if not (info.isfile() or info.isdir()):
                    _refuse_link(info.name, self.name)
                if info.isfile():
                    names.append(info.name)
            while content.read(1 << 20):  # the checksum of gzip stands behind the end of the archive
                pass
        return names

    def _bytes(self) -> IO[bytes]:
        """Open the file, unpacked where it is gzipped: `tarfile` would not compare its checksum."""
        with open(self._path, "rb") as packed:
            is_gzipped = packed.read(2) == b"\x1f\x8b"
        return gzip.open(self._path) if is_gzipped else open(self._path, "rb")  # type: ignore[return-value]

    def open(self, member: str) -> IO[bytes]:
        """Open a member's bytes as a stream. The tar file is closed when the stream is garbage collected."""
        with damage_errors(self.name):
            tar = _members(self._bytes())
            for info in tar:
                stream = tar.extractfile(info) if info.name == member and info.isfile() else None
                if stream is not None:
                    return stream
        raise CollectionError(self.name, f"has no member {member}", nearest(member, self.names()))


def _members(content: IO[bytes]) -> tarfile.TarFile:
    """Open a tar file for one walk: `r|*` reads once, front to back; `r:*` would seek, and unpack again for that."""
    return tarfile.open(fileobj=content, mode="r|*")


class SingleFile(Archive):
    """One file, such as `x.tsv.gz` or `x.xml`, as an archive with one member; `.gz` is unpacked while reading."""

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path, self._names = name, path, [name.removesuffix(".gz")]

    def open(self, member: str) -> IO[bytes]:
        """Open the file's bytes as a stream."""
        del member
        return gzip.open(self._path) if self.name.endswith(".gz") else open(self._path, "rb")  # type: ignore[return-value]


class FolderArchive(Archive):
    """Files of a user's folder. Tables with a mark of UTF-16 or UTF-32 are UTF-8 here."""

    when_damaged = "write its file again"

    def __init__(self, root: Path, files: list[Path]) -> None:
        self.name, self._root = str(root), root
        self._names = [path.relative_to(root).as_posix() for path in files]

    def open(self, member: str) -> IO[bytes]:
        """Open a file's bytes as a stream; `.gz` is unpacked while reading."""
        path = self._root / member
        stream: IO[bytes] = gzip.open(path) if member.lower().endswith(".gz") else open(path, "rb")  # type: ignore
        with damage_errors(f"{self.name}/{member}", self.when_damaged):
            encoding = self.encoding_of(member, stream)
        stream.seek(0)
        return stream if encoding.startswith("utf-8") else recoded(stream, encoding)

    def encoding_of(self, member: str, stream: IO[bytes]) -> str:
        """Return the encoding of a file by its first bytes."""
        del member
        return marked_encoding(stream.read(4)) or "utf-8"


def marked_encoding(content: bytes) -> str:
    """Return the encoding that the mark at the head of a text names; empty: it has none."""
    return next((name for mark, name in MARKS.items() if content.startswith(mark)), "")


def recoded(stream: IO[bytes], encoding: str) -> IO[bytes]:
    """Write a text in UTF-8 to a temporary file, and return that."""
    copy = tempfile.SpooledTemporaryFile(max_size=1 << 26)
    with io.TextIOWrapper(stream, encoding, "replace", newline="\n") as lines:
        copy.writelines(line.encode() for line in lines)
    copy.seek(0)
    return copy  # type: ignore[return-value]


def open_archive(path: Path, name: str | None = None) -> Archive:
    """Open the archive at `path` by the ending of its name."""
    name = name or path.name
    if name.endswith((".zip", ".whl")):
        return ZipArchive(path, name)
    if name.endswith((".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")):
        return TarArchive(path, name)
    return SingleFile(path, name)


def open_nested(archive: Archive, member: str) -> Archive:
    """Open a zip inside an archive, through a temporary file."""
    # zipfile seeks to the directory at the end, and members of an archive are streams.
    copy = tempfile.SpooledTemporaryFile(max_size=1 << 26)
    with damage_errors(archive.name), archive.open(member) as stream:
        while block := stream.read(1 << 20):
            copy.write(block)
    return ZipArchive(copy, f"{archive.name}/{member}")  # type: ignore[arg-type]


def find(archive: Archive, suffix: str, required: bool = True) -> str | None:
    """Find the member whose path is `suffix` or ends with `/suffix`; the shortest when there are several.

    Raises:
        CollectionError: there is none and it is required.
    """
    matches = [name for name in archive.names() if name == suffix or name.endswith("/" + suffix)]
    if matches:
        return min(matches, key=lambda name: (len(name), name))
    if required:
        raise CollectionError(archive.name, f"has no member {suffix}", nearest(suffix, archive.names()[:1000]))
    return None


def read_lines(archive: Archive, member: str) -> Iterator[tuple[Location, str]]:
    """Read location and text of each line that is not blank. Lines count from 1, end at `\\n` alone (JSON lines).

    Raises:
        CollectionError: a line is not UTF-8.
        DownloadError: the archive is damaged.
    """
    for location, whole in read_whole_lines(archive, member):
        line = whole.rstrip("\r\n")
        if line.strip():
            yield location, line


def read_whole_lines(archive: Archive, member: str) -> Iterator[tuple[Location, str]]:
    """Read location and text of each line, with its end, blank ones included; see `read_lines`."""
    with damage_errors(archive.name, archive.when_damaged), archive.open(member) as stream:
        # Binary lines end at \n alone; text mode would also end them at \r, and str.splitlines at \u2028 inside JSON.
        for number, raw in enumerate(stream, start=1):
            location = Location(f"{archive.name}/{member}", number)
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                problem = f"is not UTF-8 (byte {error.start + 1})"
                raise CollectionError(":".join(map(str, location)), problem, "convert the file to UTF-8") from None
            yield location, line.removeprefix("\ufeff") if number == 1 else line
