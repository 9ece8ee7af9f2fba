"""Read WordNet 3.0's `data.{noun,verb,adj,adv}`: a synset's words are the title, its gloss is the text."""

import re
from collections.abc import Iterator

from zerodr.collections.archives import find, read_lines
from zerodr.collections.readers.base import Document, Reader, bad_line

CLASSES = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
MARKER = re.compile(r"\((a|p|ip)\)$")  # of the position of an adjective


class WordnetReader(Reader):
    """Reader of format `wordnet`."""

    def documents(self) -> Iterator[Document]:
        """Read the synsets; lines of the licence start with two blanks."""
        for word_class, letter in CLASSES.items():
            member = str(find(self.archive, f"data.{word_class}"))
            file = f"{self.archive.name}/{member}"
            for number, line in read_lines(self.archive, member):
                if line.startswith("  "):
                    continue
                data, separator, gloss = line.partition(" | ")
                cells = data.split()
                if not separator or len(cells) < 6:
                    raise bad_line(file, number, "is no synset of WordNet 3.0", "replace the file")
                words = cells[4 : 4 + 2 * int(cells[3], 16) : 2]
                title = ", ".join(MARKER.sub("", word).replace("_", " ") for word in words)
                yield Document(f"wn30-{letter}-{cells[0]}", title, gloss.strip(), file, number)
