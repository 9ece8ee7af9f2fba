"""Choose the reader of a collection by the registry's field `format`, or by that of its originals."""

from zerodr.collections.archives import Archive
from zerodr.collections.readers.base import Reader
from zerodr.collections.readers.beir import BeirReader
from zerodr.collections.readers.cmedqav2 import CmedqaReader
from zerodr.collections.readers.dpr_wikipedia import DprWikipediaReader
from zerodr.collections.readers.dureader import DureaderReader
from zerodr.collections.readers.dureader_retrieval import DureaderRetrievalReader
from zerodr.collections.readers.folder import FolderReader
from zerodr.collections.readers.lotte import LotteReader
from zerodr.collections.readers.medquad import MedquadReader
from zerodr.collections.readers.mesh_thesaurus import MeshThesaurusReader
from zerodr.collections.readers.mesh_xml import MeshReader
from zerodr.collections.readers.multi_cpr import MultiCprReader
from zerodr.collections.readers.oag_qa import OagQaReader
from zerodr.collections.readers.question_pairs import MlQuestionsReader, NqPairsReader
from zerodr.collections.readers.smart import CisiReader, CranfieldReader
from zerodr.collections.readers.squad import CmrcReader, SquadReader, SquadShiftsReader
from zerodr.collections.readers.summaries import SummariesReader
from zerodr.collections.readers.wordnet import WordnetReader
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
