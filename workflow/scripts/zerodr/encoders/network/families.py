"""List families of networks, by `model_type` of transformers, and what this bench can do with each.

A family that is not listed encodes texts all the same, where transformers loads it: what is listed are exceptions and
additions. A new family is one record here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkFamily:
    """Facts of a family.

    Attributes:
        layers: attributes of its module that lead to its layers, where layers like them may follow (Condenser's head).
        pairs: it may be a cross-encoder or a reader.
        offset: positions are counted from the padding id on, so its table has more rows than a text has tokens.
        decoder: it is an encoder-decoder of T5's kind.
    """

    layers: str | None = None
    pairs: bool = False
    offset: bool = False
    decoder: bool = False


FAMILIES = {
    "bert": NetworkFamily("encoder.layer", pairs=True),
    "roberta": NetworkFamily("encoder.layer", pairs=True, offset=True),
    "xlm-roberta": NetworkFamily("encoder.layer", pairs=True, offset=True),
    "camembert": NetworkFamily("encoder.layer", offset=True),
    "distilbert": NetworkFamily("transformer.layer", pairs=True),
    "electra": NetworkFamily(pairs=True),
    "xlm-roberta-xl": NetworkFamily(offset=True),
    "mpnet": NetworkFamily(offset=True),
    "data2vec-text": NetworkFamily(offset=True),
    "longformer": NetworkFamily(offset=True),
    "t5": NetworkFamily(decoder=True),
    "mt5": NetworkFamily(decoder=True),
    "umt5": NetworkFamily(decoder=True),
}
T5_FAMILY = tuple(name for name, family in FAMILIES.items() if family.decoder)
UNLISTED = NetworkFamily()


def family_of(model_type: str | None) -> NetworkFamily:
    """Return the facts of a family; of one that is not listed, those of a plain encoder.

    >>> family_of("roberta").offset, family_of("modernbert").offset
    (True, False)
    """
    return FAMILIES.get(model_type or "", UNLISTED)


def families_with(fact: str) -> tuple[str, ...]:
    """List families that have a fact, in the table's order.

    >>> families_with("decoder")
    ('t5', 'mt5', 'umt5')
    """
    return tuple(name for name, family in FAMILIES.items() if getattr(family, fact))
