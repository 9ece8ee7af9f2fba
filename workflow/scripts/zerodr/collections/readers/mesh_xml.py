"""MeSH in NLM's XML (`desc<year>.xml`, `qual<year>.xml`): one document for each Concept that has a ScopeNote.

MoMA, appendix A.3. id `mesh:<ConceptUI>`, title the concept's name, text its scope note; blanks collapsed. A concept
that several records share is given once. A corpus alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from zerodr.collections.archives import telling_corruption
from zerodr.collections.readers.base import Document, Reader
from zerodr.errors import CollectionError

RECORDS = ("DescriptorRecord", "QualifierRecord")


class MeshReader(Reader):
    """Reader of format `mesh-xml`."""

    def documents(self) -> Iterator[Document]:
        """Concepts with scope notes. `line` is the number of the record."""
        (member,) = self.archive.names()
        file, number, seen = f"{self.archive.name}/{member}", 0, set()
        with telling_corruption(self.archive.name), self.archive.open(member) as stream:
            try:
                for _, record in ElementTree.iterparse(stream):
                    if record.tag not in RECORDS:
                        continue
                    number += 1
                    for concept in record.iter("Concept"):
                        name, note, key = (
                            _text(concept, "ConceptName/String"),
                            _text(concept, "ScopeNote"),
                            concept.findtext("ConceptUI"),
                        )
                        if note and key not in seen:
                            seen.add(key)
                            yield Document(f"mesh:{key or ''}", name, note, file, number)
                    record.clear()
            except ElementTree.ParseError as error:
                raise CollectionError(file, f"is no well-formed XML ({error})", "download it again") from None


def _text(element: ElementTree.Element, path: str) -> str:
    return " ".join((element.findtext(path) or "").split())
