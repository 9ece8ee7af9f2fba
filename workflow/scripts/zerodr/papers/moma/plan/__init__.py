"""Plan MoMA: memories and their search, episodes and the items that show them."""

from zerodr.papers.moma.plan import costs, episodes, memories, mixtures  # noqa: F401
