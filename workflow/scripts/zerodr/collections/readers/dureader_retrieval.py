"""DuReader retrieval, the baseline archive: `passage-collection/part-0*`, `passage2id.map.json`, `dev/dev.json`.

A line of a part is `-`, title (empty), text, `0`, separated by tabs; the map gives the id of the n-th line of all
parts. `dev.json` has one object a line: question_id, question, answer_paragraphs with paragraph_id. The training files
of this archive name passages by text, not by id, and are not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from zerodr.collections.archives import Archive, find, telling_corruption
from zerodr.collections.readers.base import (
    Document,
    Judgement,
    Query,
    Reader,
    read_cells,
    read_json_lines,
    text_of,
    where,
)
from zerodr.errors import CollectionError


class DureaderReader(Reader):
    """Reader of format `dureader-retrieval`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self._map = str(find(archive, "passage-collection/passage2id.map.json"))
        folder = self._map.rpartition("/")[0]
        self._parts = sorted(name for name in archive.names() if name.startswith(f"{folder}/part-"))
        self._dev = str(find(archive, "dev/dev.json"))

    def documents(self) -> Iterator[Document]:
        """Passages with their ids from the map."""
        with telling_corruption(self.archive.name), self.archive.open(self._map) as stream:
            ids = json.load(stream)
        index = 0
        for part in self._parts:
            file = f"{self.archive.name}/{part}"
            for line, cells in read_cells(self.archive, part, 4):
                pid = ids.get(str(index))
                if pid is None:
                    raise CollectionError(
                        where(file, line), f"passage {index} has no id in {self._map}", "replace the archive"
                    )
                yield Document(pid, cells[1], cells[2], file, line)
                index += 1

    def queries(self) -> Iterator[Query]:
        """Questions of the development set."""
        file = f"{self.archive.name}/{self._dev}"
        for line, value in read_json_lines(self.archive, self._dev):
            yield Query(
                text_of(value, ("question_id",), file, line), text_of(value, ("question",), file, line), file, line
            )

    def splits(self) -> list[str]:
        """The development set."""
        return ["dev"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Answer paragraphs, grade 1."""
        del split
        file = f"{self.archive.name}/{self._dev}"
        for line, value in read_json_lines(self.archive, self._dev):
            for paragraph in value.get("answer_paragraphs", ()):
                yield Judgement(value["question_id"], text_of(paragraph, ("paragraph_id",), file, line), 1, file, line)
