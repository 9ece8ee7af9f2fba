"""Choose the reader of a collection by the registry's field `format`, or by that of its originals."""

from zerodr.collections.archives import Archive
from zerodr.collections.readers.base import BeirReader, Reader
from zerodr.collections.readers.chinese import CmedqaReader, DureaderReader, DureaderRetrievalReader, MultiCprReader
from zerodr.collections.readers.folder import FolderReader
from zerodr.collections.readers.forums import LotteReader, OagQaReader
from zerodr.collections.readers.questions import MedquadReader, MlQuestionsReader, NqPairsReader
from zerodr.collections.readers.reference import (
    DprWikipediaReader,
    MeshReader,
    MeshThesaurusReader,
    SummariesReader,
    WordnetReader,
)
from zerodr.collections.readers.smart import CisiReader, CranfieldReader
from zerodr.collections.readers.squad import CmrcReader, SquadReader, SquadShiftsReader
from zerodr.errors import ConfigError, nearest

READERS: dict[str, type[Reader]] = {
    "beir": BeirReader,
    "lotte": LotteReader,
    "oag-qa": OagQaReader,
    "cmedqav2": CmedqaReader,
    "multi-cpr": MultiCprReader,
    "dureader": DureaderReader,
    "dureader-retrieval": DureaderRetrievalReader,
    "dpr-wikipedia": DprWikipediaReader,
    "mesh-xml": MeshReader,
    "mesh-thesaurus": MeshThesaurusReader,
    "wordnet": WordnetReader,
    "wikipedia-summaries": SummariesReader,
    "squad": SquadReader,
    "squadshifts": SquadShiftsReader,
    "cmrc2018": CmrcReader,
    "mlquestions": MlQuestionsReader,
    "nq-pairs": NqPairsReader,
    "medquad": MedquadReader,
    "cranfield": CranfieldReader,
    "cisi": CisiReader,
    "folder": FolderReader,
}


def open_reader(name: str, archive: Archive, member: str = "") -> Reader:
    """Open an archive with the reader of format `name`.

    Raises:
        ConfigError: unknown format.
        CollectionError: the archive lacks what the format needs.
    """
    if name not in READERS:
        raise ConfigError(f"format {name!r}", "is not known", nearest(name, READERS))
    return READERS[name](archive, member)
