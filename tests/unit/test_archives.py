from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile

import pytest
from collection_helpers import beir_zip, write_tar, write_zip

from zerodr.collections.archives import check_name, find, open_archive, open_nested, read_lines
from zerodr.errors import CollectionError, DownloadError


def lines(archive, member):
    return [line for _, line in read_lines(archive, member)]


def test_members_of_zip_tar_and_gz_read_alike(tmp_path):
    content = "one\r\n\ntwo\u2028still two\n"
    (tmp_path / "f.txt.gz").write_bytes(gzip.compress(content.encode()))
    made = [
        open_archive(write_zip(tmp_path / "a.zip", {"d/f.txt": content})),
        open_archive(write_tar(tmp_path / "a.tar.gz", {"e/other": "x", "d/f.txt": content})),
    ]
    for archive in made:
        assert lines(archive, find(archive, "f.txt")) == ["one", "two\u2028still two"]
    single = open_archive(tmp_path / "f.txt.gz")
    assert single.names() == ["f.txt"]
    assert lines(single, "f.txt") == ["one", "two\u2028still two"]


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../evil", "..\\evil", "C:/evil"])
def test_members_that_leave_the_folder_are_refused(tmp_path, name):
    with pytest.raises(CollectionError, match="leaves its folder"):
        open_archive(write_zip(tmp_path / "a.zip", {"fine": "x", name: "x"}))
    with pytest.raises(CollectionError, match="leaves its folder"):
        open_archive(write_tar(tmp_path / "a.tar.gz", {"fine": "x", name: "x"})).names()


def test_ordinary_names_pass():
    assert check_name("a/b..c/d.jsonl", "x") == "a/b..c/d.jsonl"


def test_links_are_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(CollectionError, match="link or device"):
        open_archive(tmp_path / "a.tar.gz").names()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(CollectionError, match="link or device"):
        open_archive(tmp_path / "a.zip")


def test_truncated_zip(tmp_path):
    path = beir_zip(tmp_path / "a.zip")
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DownloadError, match="truncated or corrupt"):
        open_archive(path)


def test_corrupt_zip_member(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("f", "some text\n" * 100)
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    raw[200] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(raw)
    with pytest.raises((DownloadError, CollectionError), match="corrupt|UTF-8"):
        lines(open_archive(tmp_path / "a.zip"), "f")


def test_corrupt_deflated_member(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"f": "".join(f"line {i}\n" for i in range(2000))})
    raw = bytearray(path.read_bytes())
    raw[100:160] = bytes(60)
    path.write_bytes(raw)
    with pytest.raises(DownloadError, match="truncated or corrupt"):
        lines(open_archive(path), "f")


@pytest.mark.parametrize("cut", [20, 0.5, 0.95])
def test_truncated_tar_and_gz(tmp_path, cut):
    import random

    text = "".join(f"{random.Random(i).random()}\n" for i in range(3000))
    path = write_tar(tmp_path / "a.tar.gz", {"f": text})
    whole = path.read_bytes()
    path.write_bytes(whole[: cut if cut > 1 else int(len(whole) * cut)])
    with pytest.raises(DownloadError, match="truncated or corrupt"):
        lines(open_archive(path), "f")
    packed = gzip.compress(text.encode())
    (tmp_path / "f.gz").write_bytes(packed[: cut if cut > 1 else int(len(packed) * cut)])
    with pytest.raises(DownloadError, match="truncated or corrupt"):
        lines(open_archive(tmp_path / "f.gz"), "f")


@pytest.mark.parametrize("is_checksum", [True, False])  # else a letter, which zlib alone does not see
def test_gzipped_tar_is_compared_with_its_checksum(tmp_path, is_checksum):
    path = write_tar(tmp_path / "a.tar.gz", {"x.txt": "".join(map(str, range(9999)))})
    content = bytearray(gzip.compress(gzip.decompress(path.read_bytes()), 0))
    content[-6 if is_checksum else content.index(b"12341235")] ^= 1
    path.write_bytes(content)
    with pytest.raises(DownloadError, match="truncated or corrupt .CRC"):
        open_archive(path).names()


def test_no_archive_at_all(tmp_path):
    for name in ("a.zip", "a.tar.gz", "a.tsv.gz"):
        (tmp_path / name).write_bytes(b"<html>not found</html>")
        with pytest.raises(DownloadError, match="truncated or corrupt"):
            archive = open_archive(tmp_path / name)
            lines(archive, archive.names()[0])


def test_not_utf8_names_the_line(tmp_path):
    archive = open_archive(write_zip(tmp_path / "a.zip", {"f": b"good\nb\xe9d\n"}))
    with pytest.raises(CollectionError, match=r"a.zip/f:2: is not UTF-8 \(byte 2\)"):
        lines(archive, "f")


def test_missing_member_names_the_nearest(tmp_path):
    archive = open_archive(beir_zip(tmp_path / "a.zip"))
    with pytest.raises(CollectionError, match="did you mean x/corpus.jsonl"):
        find(archive, "corpus.json")
    assert find(archive, "corpus.json", required=False) is None


def test_nested_zip(tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("f.txt", "inside\n")
    outer = open_archive(write_zip(tmp_path / "a.zip", {"repo/inner.zip": inner.getvalue()}))
    assert lines(open_nested(outer, "repo/inner.zip"), "f.txt") == ["inside"]


@pytest.mark.parametrize(("flag", "method"), [(1, 8), (0, 9)])  # a password; Deflate64
def test_zip_with_a_password_or_an_unknown_compression_is_one_sentence(tmp_path, flag, method):
    content = bytearray(write_zip(tmp_path / "a.zip", {"x.txt": "text\n"}).read_bytes())
    for mark, start in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(mark) + start
        content[at], content[at + 2] = content[at] | flag, method
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(CollectionError, match="can't be unpacked .*pack it again"):
        list(read_lines(open_archive(tmp_path / "a.zip"), "x.txt"))


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_members_of_other_compressions_are_one_sentence(tmp_path, kind):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", kind) as packed:
        packed.writestr("x.txt", "text\n" * 100)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[45:60] = b"\xff" * 15
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DownloadError, match="truncated or corrupt"):
        list(read_lines(open_archive(tmp_path / "a.zip"), "x.txt"))
