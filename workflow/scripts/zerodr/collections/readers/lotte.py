"""Read LoTTE: `collection.tsv` (pid, text), `questions.<kind>.tsv` (qid, text), `qas.<kind>.jsonl` (qid, answer_pids).

`member` is the questions file, `lotte/writing/test/questions.forum.tsv`; its folder names the split. An upvoted or
accepted answer has grade 1.
"""

from collections.abc import Iterator

from zerodr.collections.archives import Archive
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line, read_cells, read_json_lines


class LotteReader(Reader):
    """Reader of format `lotte`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self.folder, _, name = member.rpartition("/")
        self.kind = name.removeprefix("questions.").removesuffix(".tsv")

    def documents(self) -> Iterator[Document]:
        """Read the lines of `collection.tsv`."""
        member = f"{self.folder}/collection.tsv"
        for line, (pid, text) in read_cells(self.archive, member, 2):
            yield Document(pid, "", text, f"{self.archive.name}/{member}", line)

    def queries(self) -> Iterator[Query]:
        """Read the lines of the questions file."""
        for line, (qid, text) in read_cells(self.archive, self.member, 2):
            yield Query(qid, text, f"{self.archive.name}/{self.member}", line)

    def splits(self) -> list[str]:
        """Return `test` or `dev`: the folder's name."""
        return [self.folder.rpartition("/")[2]]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the answer passages, grade 1."""
        del split
        member = f"{self.folder}/qas.{self.kind}.jsonl"
        file = f"{self.archive.name}/{member}"
        for line, value in read_json_lines(self.archive, member):
            if "qid" not in value or not isinstance(value.get("answer_pids"), list):
                raise bad_line(file, line, f"lacks qid or a list answer_pids, found {sorted(value)}", "add it")
            for pid in value["answer_pids"]:
                yield Judgement(str(value["qid"]), str(pid), 1, file, line)
