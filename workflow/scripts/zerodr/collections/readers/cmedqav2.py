"""Read cMedQA v2: `answer.csv` (ans_id, question_id, content), `question.csv` (question_id, content), candidates.

Content may hold commas without quotes, so lines are split at the first commas. The repository has each file in a zip
file (`answer.zip`), which is read inside the repository's archive. Training candidates name a positive answer;
those of dev and test have a label, and label 1 is relevant.
"""

from collections.abc import Iterator

from zerodr.collections.archives import Archive, find, open_nested
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line, grade_of, read_cells
from zerodr.errors import CollectionError

SPLITS = {"train": 3, "dev": 4, "test": 4}


class CmedqaReader(Reader):
    """Reader of format `cmedqav2`."""

    def _file(self, name: str) -> tuple[Archive, str]:
        """Return the archive that holds `name`, and its member: plain, or in a zip of the same stem."""
        plain = find(self.archive, name, required=False)
        if plain:
            return self.archive, plain
        nested = open_nested(self.archive, str(find(self.archive, name.rpartition(".")[0] + ".zip")))
        return nested, str(find(nested, name))

    def _rows(self, name: str, cells: int) -> Iterator[tuple[str, int, list[str]]]:
        archive, member = self._file(name)
        for line, values in read_cells(archive, member, cells, ","):
            if line > 1:
                yield f"{archive.name}/{member}", line, values

    def documents(self) -> Iterator[Document]:
        """Read the answers."""
        for file, line, (answer, _, content) in self._rows("answer.csv", 3):
            yield Document(answer, "", unquote(content), file, line)

    def queries(self) -> Iterator[Query]:
        """Read the questions."""
        for file, line, (question, content) in self._rows("question.csv", 2):
            yield Query(question, unquote(content), file, line)

    def splits(self) -> list[str]:
        """List the three candidates files."""
        return sorted(SPLITS)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the relevant candidates, grade 1."""
        if split not in SPLITS:
            raise CollectionError(f"{self.archive.name}/{split}", "is no split", f"known: {', '.join(SPLITS)}")
        for file, line, cells in self._rows(f"{split}_candidates.txt", SPLITS[split]):
            if len(cells) == 3 or grade_of(cells[3].strip(), file, line) > 0:
                if not cells[1]:
                    raise bad_line(file, line, "names no answer")
                yield Judgement(cells[0], cells[1], 1, file, line)


def unquote(content: str) -> str:
    """Remove surrounding blanks and quotes of CSV content."""
    content = content.strip()
    if len(content) >= 2 and content[0] == content[-1] == '"':
        content = content[1:-1].replace('""', '"')
    return content
