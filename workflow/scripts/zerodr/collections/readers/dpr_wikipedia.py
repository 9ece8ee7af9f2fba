"""Read DPR's Wikipedia: `psgs_w100.tsv.gz` with a header and id, text, title. No queries; ids become `wiki:<id>`."""

import csv
from collections.abc import Iterator

from zerodr.collections.archives import read_lines
from zerodr.collections.readers.base import Document, Reader, bad_line


class DprWikipediaReader(Reader):
    """Reader of format `dpr-wikipedia`."""

    def documents(self) -> Iterator[Document]:
        """Read passages of 100 words."""
        (member,) = self.archive.names()
        file = f"{self.archive.name}/{member}"
        lines = (line for _, line in read_lines(self.archive, member))
        for number, row in enumerate(csv.reader(lines, delimiter="\t"), start=1):
            if row == ["id", "text", "title"]:
                continue
            if len(row) != 3:
                raise bad_line(file, number, f"expected id, text, title, found {len(row)} cells", "replace the file")
            yield Document(f"wiki:{row[0]}", row[2], row[1], file, number)
