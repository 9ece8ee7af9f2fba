"""Extend model folders for MoMA: main model at the root, augmenter in a subfolder, section of the card."""

from pathlib import Path

from zerodr.config.params import ExportParams
from zerodr.encoders.folder.checkpoint import all_model_files, copy_files
from zerodr.encoders.folder.contract import CONTRACT, CardSection, PaperFolders, read_contract, write_model_json
from zerodr.errors import ModelError
from zerodr.papers.moma.settings import TARGET, Augmentation, AugmentationKeys

MEMORIES = """## Queries are augmented

A query's vector comes from the query and the {count} documents of memories that the augmenter finds for it. Results of
this model are of queries that were augmented with {names}{target}. Only zerodr does that:

```python
from zerodr.papers.moma.retriever import MoMA

model = MoMA.load("path/to/this/folder")
{plugs}
queries = model.encode_queries(["who wrote the play?"])
documents = model.encode_documents(["A play is written by a playwright."])
scores = queries @ documents.T
```

In the checkout that made this model, `snakemake ... results/exported-memories/{model}/{scope}/<memory>/manifest.json`
makes a memory, of any collection. sentence-transformers loads this folder, too: it encodes documents alike, but **does
not augment queries**, so that its rankings are not those that the results are of."""
PLAIN = " with sentence-transformers: queries without memories"
AUGMENTER = "augmenter"


def augmenter_of(folder: Path, separate: bool) -> Path:
    """The folder of what augments a model's queries.

    Args:
        folder: of the whole model.
        separate: it has an augmenter of its own; else the model itself augments.

    Raises:
        ModelError: there is none.
    """
    if not separate:
        return folder
    if not (folder / AUGMENTER / CONTRACT).exists():
        raise ModelError(
            folder,
            f"has no subfolder {AUGMENTER}, which retrieves augmentation documents",
            "take the model of a moma stage with augmenter.mode learned or frozen",
        )
    return folder / AUGMENTER


def copy_model(source: Path, target: Path) -> None:
    """Copy the files of a bi-encoder, and no others."""
    target.mkdir(parents=True, exist_ok=True)
    copy_files(all_model_files(source, read_contract(source)), source, target)


def export(source: Path, target: Path, params: ExportParams) -> None:
    """Copy the augmenter, where the model has one, and write how queries are augmented in search.

    Raises:
        ModelError: queries are to be augmented, and the model can't read so much.
    """
    copy_augmenter(source, target)
    augmentation = _augmentation(params)
    if augmentation is not None:
        write_fusion(target, augmentation)


def _augmentation(params: ExportParams) -> Augmentation | None:
    keys = AugmentationKeys.of(params)
    return None if keys is None else keys.augmentation


def copy_augmenter(source: Path, target: Path) -> None:
    """Copy what augments a model's queries, where it has that; sentence-transformers does not read it."""
    if (source / AUGMENTER / CONTRACT).exists():
        copy_model(source / AUGMENTER, target / AUGMENTER)


def write_fusion(folder: Path, augmentation: Augmentation) -> None:
    """Write `fusion.json` as queries are augmented in search, which may differ from training.

    Raises:
        ModelError: the model of the folder can't read so much.
    """
    from zerodr.papers.moma.augmented_encoder import FUSION, FusionContract, fusion_json
    from zerodr.papers.moma.joined_encoder import load_augmented

    used = FusionContract(**augmentation.model_dump(include=set(FusionContract.model_fields)))
    load_augmented(folder).augment_with(used)
    write_model_json(folder / FUSION, fusion_json(used))


def describe(params: ExportParams) -> CardSection | None:
    """Tell which memories a query is augmented with, and how; None where queries are plain."""
    augmentation = _augmentation(params)
    return None if augmentation is None else CardSection(_memories(params.model, params.scope, augmentation), PLAIN)


def _memories(model: str, scope: str, augmentation: Augmentation) -> str:
    """Describe which memories augment a query, and how."""
    names = augmentation.memories
    calls = {name: f'model.plug("path/to/exported-memories/{name}")' for name in names}
    calls |= {TARGET: 'model.plug("path/to/exported-memories/name-of-your-collection")'} if TARGET in names else {}
    plugs = "\n".join(calls.values())
    target = ", where `target` is the collection that is searched" if TARGET in names else ""
    listed, documents = ", ".join(f"`{name}`" for name in names), augmentation.documents
    return MEMORIES.format(count=documents, names=listed, target=target, plugs=plugs, model=model, scope=scope)


FOLDERS = PaperFolders(export=export, describe=describe)
