"""Group texts of a batch that are encoded together: of similar length, so that little is padding."""

from collections.abc import Sequence

WASTE = {"cpu": 512, "cuda": 4096}  # padded tokens that cost less than one more forward pass


def length_groups(lengths: Sequence[int], waste: int, texts: int | None = None) -> list[list[int]]:
    """Indexes of texts in groups, each sorted by length, all texts once.

    A group is closed when the next longer text would make the group's padding exceed `waste` tokens, or when it holds
    `texts` texts.

    Args:
        lengths: tokens of each text.
        waste: padded tokens that a group may hold; what a further forward pass costs, in tokens.
        texts: most texts of a group, or None.
    """
    groups: list[list[int]] = []
    padding = 0
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups:
            group = groups[-1]
            more = padding + len(group) * (lengths[index] - lengths[group[-1]])
            if more <= waste and (texts is None or len(group) < texts):
                group.append(index)
                padding = more
                continue
        groups.append([index])
        padding = 0
    return groups
