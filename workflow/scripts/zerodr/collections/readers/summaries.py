"""Read `summaries_en-us.json`: title and first paragraphs of Wikipedia's vital articles, sorted by title."""

import json
from collections.abc import Iterator

from zerodr.collections.archives import damage_errors, find
from zerodr.collections.readers.base import Document, Reader, text_of
from zerodr.errors import CollectionError


class SummariesReader(Reader):
    """Reader of format `wikipedia-summaries`."""

    def documents(self) -> Iterator[Document]:
        """Read the articles, blanks collapsed. `line` is the number of the article."""
        member = str(find(self.archive, "summaries_en-us.json"))
        file = f"{self.archive.name}/{member}"
        try:
            with damage_errors(self.archive.name), self.archive.open(member) as stream:
                articles = json.load(stream)
        except ValueError as error:
            raise CollectionError(file, f"is no JSON ({error})", "download it again") from None
        for number, key in enumerate(sorted(articles)):
            title, text = (text_of(articles[key], (name,), file, number + 1) for name in ("title", "extract"))
            yield Document(f"wiki-{number:05d}", title, " ".join(text.split()), file, number + 1)
