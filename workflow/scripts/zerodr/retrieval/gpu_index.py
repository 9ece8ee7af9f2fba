"""Search the lists of a finished IVF index on a GPU, by faiss-gpu.

faiss's kernels give a query at most 2,048 entries, and candidates of a deep ranking are more. So the GPU holds the
index in pieces, document n in piece n modulo their number, and the best of all are kept: the candidates of the
whole index, unless one piece has more than 2,048 of them. Scores of codes differ from the CPU's in the last bits.
"""

import logging
from typing import Any

import numpy as np

log = logging.getLogger("zerodr")
LARGEST = 2048  # entries, and lists, of a query that the kernels take


class GpuIndex:
    """Copies of the pieces of an IVF index on the first GPU.

    Args:
        index: trained, with its documents; it stays on the CPU and is not changed.
        proposals: candidates of a query.

    Raises:
        RuntimeError: faiss can't hold this index on a GPU: its sizes, or memory.
    """

    def __init__(self, index: Any, proposals: int) -> None:
        import faiss

        self.pieces = -(-proposals // LARGEST)
        self._resources = faiss.StandardGpuResources()
        self._copies = [self._copy(faiss, index, number) for number in range(self.pieces)]

    def _copy(self, faiss: Any, index: Any, number: int) -> Any:
        if self.pieces == 1:
            return faiss.index_cpu_to_gpu(self._resources, 0, index)
        piece = faiss.clone_index(index)
        piece.reset()
        index.copy_subset_to(piece, faiss.InvertedLists.SUBSET_TYPE_ID_MOD, self.pieces, number)
        return faiss.index_cpu_to_gpu(self._resources, 0, piece)

    def search(self, queries: np.ndarray, proposals: int, probes: int) -> np.ndarray:
        """Return the rows of the best candidates of each query, int64 [q, proposals]; -1 where there are fewer."""
        scores, rows = [], []
        for copy in self._copies:
            copy.nprobe = probes
            near, numbers = copy.search(queries, min(proposals, LARGEST))
            scores.append(np.where(numbers < 0, -np.inf, near))
            rows.append(numbers)
        if self.pieces == 1:
            return rows[0]
        best = np.argsort(-np.concatenate(scores, 1), axis=1, kind="stable")[:, :proposals]
        return np.take_along_axis(np.concatenate(rows, 1), best, 1)


def on_gpu(index: Any, proposals: int, probes: int) -> tuple[GpuIndex | None, dict[str, Any]]:
    """Copy an index to the GPU that faiss sees.

    Returns:
        the copies, or None where it stays on the CPU, and facts for lineage: where it is searched, and why.
    """
    reason = "" if probes <= LARGEST else f"{probes} lists of a query are more than the {LARGEST} that a GPU takes"
    try:
        if not reason:
            copies = GpuIndex(index, proposals)
            return copies, {"searched_on": "cuda", "pieces": copies.pieces}
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"faiss refuses it ({lines[-1] if lines else type(error).__name__})"
    log.warning("the index is searched on the CPU: %s", reason)
    return None, {"searched_on": "cpu", "not_on_gpu": reason}
