"""Read Multi-CPR: `corpus.tsv` or `corpus_split_*.tsv`, `<split>.query.txt` (id, text) and `qrels.<split>.tsv` (TREC).

`member` is the domain's folder in the repository, `data/ecom`.
"""

from collections.abc import Iterator

from zerodr.collections.archives import Archive
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, read_cells, read_qrels
from zerodr.errors import CollectionError, nearest


class MultiCprReader(Reader):
    """Reader of format `multi-cpr`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        inside = f"/{member}/"
        self._files = {
            n.rpartition("/")[2]: n
            for n in archive.names()
            if n.rpartition("/")[0].endswith(inside[:-1]) or n.startswith(inside[1:])
        }
        self._corpus = sorted(n for n in self._files if n == "corpus.tsv" or n.startswith("corpus_split_"))
        if not self._corpus:
            raise CollectionError(archive.name, f"has no {member}/corpus.tsv", nearest(member, archive.names()[:1000]))

    def documents(self) -> Iterator[Document]:
        """Read the passages."""
        for name in self._corpus:
            for line, (pid, text) in read_cells(self.archive, self._files[name], 2):
                yield Document(pid, "", text, f"{self.archive.name}/{self._files[name]}", line)

    def queries(self) -> Iterator[Query]:
        """Read the queries of all splits."""
        for split in self.splits():
            member = self._files[f"{split}.query.txt"]
            for line, (qid, text) in read_cells(self.archive, member, 2):
                yield Query(qid, text, f"{self.archive.name}/{member}", line)

    def splits(self) -> list[str]:
        """List the splits that have both queries and judgements."""
        names = [n.split(".")[1] for n in self._files if n.startswith("qrels.") and n.endswith(".tsv")]
        return sorted(n for n in names if f"{n}.query.txt" in self._files)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the lines of `qrels.<split>.tsv`."""
        return read_qrels(self.archive, self._files[f"qrels.{split}.tsv"], trec=True)
