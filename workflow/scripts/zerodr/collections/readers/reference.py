"""Read reference works, a corpus alone: MeSH (XML, and tables of R), WordNet, summaries and passages of Wikipedia."""

import gzip
import json
import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any
from xml.etree import ElementTree

from zerodr.collections.archives import damage_errors, find, read_lines
from zerodr.collections.readers.base import Document, Reader, bad_line, read_quoted, text_of
from zerodr.errors import CollectionError

RECORDS = ("DescriptorRecord", "QualifierRecord")
ENTRY_TERMS = 25
SYMBOL, PAIRS, CHARACTERS, LOGICAL, INTEGER, REAL, STRINGS, LIST, POINTER = 1, 2, 9, 10, 13, 14, 16, 19, 22
NIL, REFERENCE = 254, 255
NUMBERS = {LOGICAL: "i", INTEGER: "i", REAL: "d"}
HAS_ATTRIBUTES, HAS_TAG, UTF8 = 1 << 9, 1 << 10, (1 << 15) | (1 << 18)
CLASSES = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
MARKER = re.compile(r"\((a|p|ip)\)$")  # of the position of an adjective


class MeshReader(Reader):
    """Reader of format `mesh-xml`: one document for each Concept with a ScopeNote in NLM's `desc<year>.xml`.

    MoMA, appendix A.3. id `mesh:<ConceptUI>`, title the concept's name, text its scope note; blanks collapsed. A
    concept that several records share appears once.
    """

    def documents(self) -> Iterator[Document]:
        """Read concepts with scope notes. `line` is the number of the record."""
        (member,) = self.archive.names()
        file, number, seen = f"{self.archive.name}/{member}", 0, set()
        with damage_errors(self.archive.name), self.archive.open(member) as stream:
            try:
                for _, record in ElementTree.iterparse(stream):
                    if record.tag not in RECORDS:
                        continue
                    number += 1
                    for concept in record.iter("Concept"):
                        name, note = (_text(concept, path) for path in ("ConceptName/String", "ScopeNote"))
                        key = concept.findtext("ConceptUI")
                        if note and key not in seen:
                            seen.add(key)
                            yield Document(f"mesh:{key or ''}", name, note, file, number)
                    record.clear()
            except ElementTree.ParseError as error:
                raise CollectionError(file, f"is no well-formed XML ({error})", "download it again") from None


def _text(element: ElementTree.Element, path: str) -> str:
    return " ".join((element.findtext(path) or "").split())


class MeshThesaurusReader(Reader):
    """Reader of format `mesh-thesaurus`: tables of R with MeSH's terms and their positions in the trees.

    A descriptor is a document `mesh-<DescriptorUI>`. Its text is composed from its name, its first 25 entry terms and
    its paths in the trees, category first, without the tree's root.
    """

    def _rows(self, name: str, *columns: str) -> Iterator[tuple[str, ...]]:
        member = str(find(self.archive, name))
        with damage_errors(self.archive.name), self.archive.open(member) as stream:
            table = read_table(stream, f"{self.archive.name}/{member}")
        return zip(*(table[column] for column in columns), strict=True)

    def documents(self) -> Iterator[Document]:
        """Read the descriptors. `line` is the number of the descriptor."""
        file = f"{self.archive.name}/data_mesh_thesaurus.rds"
        columns = ("DescriptorUI", "DescriptorName", "TermName", "IsPermutedTermYN")
        names: dict[str, str] = {}
        terms: dict[str, dict[str, None]] = {}
        for key, name, term, permuted in self._rows("data_mesh_thesaurus.rds", *columns):
            names[key] = name
            entries = terms.setdefault(key, {})
            if permuted == "N" and term != name:
                entries[term] = None
        paths = self._paths()
        for line, (key, name) in enumerate(names.items(), start=1):
            text = f"{name} is a medical subject heading."
            if terms[key]:
                text += f" Also called {'; '.join(islice(terms[key], ENTRY_TERMS))}."
            if key in paths:
                text += f" Found under {' | '.join(paths[key])}."
            yield Document(f"mesh-{key}", name, text, file, line)

    def _paths(self) -> dict[str, dict[str, None]]:
        """Return the paths of each descriptor, each once."""
        rows = list(self._rows("data_mesh_trees.rds", "DescriptorUI", "DescriptorName", "tree_location", "cats"))
        names = {location: name for _, name, location, _ in rows}
        paths: dict[str, dict[str, None]] = {}
        for key, _, location, category in rows:
            numbers = location.split(".")
            above = (".".join(numbers[:depth]) for depth in range(2, len(numbers) + 1))
            steps = [category, *(names[number] for number in above if number in names)]
            paths.setdefault(key, {})[" > ".join(steps)] = None
        return paths


class Vector(list):
    """A vector of R with its attributes, such as `names`."""

    attributes: dict[str, Any]


def read_table(stream: IO[bytes], where: str) -> dict[str, list[Any]]:
    """Read a data frame: columns by name, factors as their labels.

    Raises:
        CollectionError: another format, or an object of R that is no table.
    """
    data = gzip.decompress(stream.read())
    try:
        frame = _Cursor(data).table()
    except (struct.error, LookupError, ValueError, TypeError, AttributeError) as error:
        problem = f"is no table that R saved ({type(error).__name__}: {error})"
        raise CollectionError(where, problem, "download it again") from None
    return frame


class _Cursor:
    """A position in R's serialisation format (XDR, `.rds`): vectors, factors, their attributes. Nothing is run."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 2
        if data[:2] != b"X\n":
            raise ValueError(f"starts with {data[:2]!r}, expected b'X\\n'")
        version, _, _ = (self.integer() for _ in range(3))
        if version == 3:
            self.take(self.integer())
        self.references: list[Any] = []

    def take(self, count: int) -> bytes:
        self.position += count
        return self.data[self.position - count : self.position]

    def integer(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def table(self) -> dict[str, list[Any]]:
        frame = self.item(self.integer())
        columns = {}
        for name, column in zip(frame.attributes["names"], frame, strict=True):
            levels = column.attributes.get("levels")
            columns[name] = [levels[code - 1] for code in column] if levels else list(column)
        return columns

    def item(self, flags: int) -> Any:
        """Read the object whose type and flags were read already."""
        kind = flags & 255
        if kind == NIL:
            return None
        if kind == REFERENCE:
            return self.references[(flags >> 8) - 1]
        if kind == PAIRS:
            return self.pairs(flags)
        if kind in (SYMBOL, POINTER):
            number = len(self.references)
            self.references.append(None)
            items = [self.item(self.integer()) for _ in range(1 if kind == SYMBOL else 2)]
            if kind == SYMBOL:
                self.references[number] = items[0]
            elif flags & HAS_ATTRIBUTES:
                self.item(self.integer())
            return self.references[number]
        count = self.integer()
        if kind == CHARACTERS:
            return None if count < 0 else self.take(count).decode("utf-8" if flags & UTF8 else "latin-1")
        if kind in NUMBERS:
            code = f">{count}{NUMBERS[kind]}"
            vector = Vector(struct.unpack(code, self.take(struct.calcsize(code))))
        elif kind in (STRINGS, LIST):
            vector = Vector(self.item(self.integer()) for _ in range(count))
        else:
            raise ValueError(f"object of type {kind}")
        vector.attributes = self.item(self.integer()) if flags & HAS_ATTRIBUTES else {}
        return vector

    def pairs(self, flags: int) -> dict[str, Any]:
        """Read a pair list: values by tag."""
        values: dict[str, Any] = {}
        while flags & 255 == PAIRS:
            if flags & HAS_ATTRIBUTES:
                self.item(self.integer())
            tag = self.item(self.integer()) if flags & HAS_TAG else str(len(values))
            values[tag] = self.item(self.integer())
            flags = self.integer()
        return values


class WordnetReader(Reader):
    """Reader of format `wordnet`: 3.0's `data.{noun,verb,adj,adv}`; words are the title, the gloss is the text."""

    def documents(self) -> Iterator[Document]:
        """Read the synsets; lines of the licence start with two blanks."""
        for word_class, letter in CLASSES.items():
            member = str(find(self.archive, f"data.{word_class}"))
            for location, line in read_lines(self.archive, member):
                if line.startswith("  "):
                    continue
                data, separator, gloss = line.partition(" | ")
                cells = data.split()
                if not separator or len(cells) < 6:
                    raise bad_line(*location, "is no synset of WordNet 3.0", "replace the file")
                words = cells[4 : 4 + 2 * int(cells[3], 16) : 2]
                title = ", ".join(MARKER.sub("", word).replace("_", " ") for word in words)
                yield Document(f"wn30-{letter}-{cells[0]}", title, gloss.strip(), *location)


class SummariesReader(Reader):
    """Reader of format `wikipedia-summaries`: `summaries_en-us.json`, first paragraphs of vital articles, by title."""

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


class DprWikipediaReader(Reader):
    """Reader of format `dpr-wikipedia`: `psgs_w100.tsv.gz`, a header and id, text, title; ids become `wiki:<id>`."""

    def documents(self) -> Iterator[Document]:
        """Read passages of 100 words."""
        (member,) = self.archive.names()
        for location, row in read_quoted(self.archive, member):
            if row == ["id", "text", "title"]:
                continue
            if len(row) != 3:
                raise bad_line(*location, f"expected id, text, title, found {len(row)} cells", "replace the file")
            yield Document(f"wiki:{row[0]}", row[2], row[1], *location)
