"""Read DuReader retrieval, the baseline archive: `passage-collection/part-0*`, `passage2id.map.json`, `dev/dev.json`.

A line of a part is `-`, title (empty), text, `0`, separated by tabs; the map gives the id of the n-th line of all
parts. `dev.json` has one object a line: question_id, question, answer_paragraphs with paragraph_id. The training files
of this archive name passages by text, not by id, and are not read; format `dureader` has training pairs.
"""

import json
from collections.abc import Iterator

from zerodr.collections.archives import Archive, damage_errors, find
from zerodr.collections.readers.base import (
    Document,
    Judgement,
    Query,
    Reader,
    bad_line,
    read_cells,
    read_json_lines,
    text_of,
)


class DureaderRetrievalReader(Reader):
    """Reader of format `dureader-retrieval`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self._map = str(find(archive, "passage-collection/passage2id.map.json"))
        folder = self._map.rpartition("/")[0]
        self._files = sorted(name for name in archive.names() if name.startswith(f"{folder}/part-"))
        self._dev = str(find(archive, "dev/dev.json"))

    def documents(self) -> Iterator[Document]:
        """Read the passages with their ids from the map."""
        with damage_errors(self.archive.name), self.archive.open(self._map) as stream:
            ids = json.load(stream)
        index = 0
        for member in self._files:
            file = f"{self.archive.name}/{member}"
            for line, cells in read_cells(self.archive, member, 4):
                pid = ids.get(str(index))
                if pid is None:
                    raise bad_line(file, line, f"passage {index} has no id in {self._map}", "replace the archive")
                yield Document(pid, cells[1], cells[2], file, line)
                index += 1

    def queries(self) -> Iterator[Query]:
        """Read the questions of the development set."""
        file = f"{self.archive.name}/{self._dev}"
        for line, value in read_json_lines(self.archive, self._dev):
            question, text = (text_of(value, (key,), file, line) for key in ("question_id", "question"))
            yield Query(question, text, file, line)

    def splits(self) -> list[str]:
        """List the development set."""
        return ["dev"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the answer paragraphs, grade 1."""
        del split
        file = f"{self.archive.name}/{self._dev}"
        for line, value in read_json_lines(self.archive, self._dev):
            for paragraph in value.get("answer_paragraphs", ()):
                yield Judgement(value["question_id"], text_of(paragraph, ("paragraph_id",), file, line), 1, file, line)
