"""Read MeSH in NLM's XML (`desc<year>.xml`, `qual<year>.xml`): one document for each Concept that has a ScopeNote.

MoMA, appendix A.3. id `mesh:<ConceptUI>`, title the concept's name, text its scope note; blanks collapsed. A concept
that several records share appears once. A corpus alone.
"""

from collections.abc import Iterator
from xml.etree import ElementTree

from zerodr.collections.archives import damage_errors
from zerodr.collections.readers.base import Document, Reader
from zerodr.errors import CollectionError

RECORDS = ("DescriptorRecord", "QualifierRecord")


class MeshReader(Reader):
    """Reader of format `mesh-xml`."""

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
