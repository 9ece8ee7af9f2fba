"""Rank by BM25 and RM3: Lucene for reported numbers, bm25s as light backend and oracle."""
