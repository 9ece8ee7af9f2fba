"""The names of artifacts. Every path of the bench is made here and nowhere else."""

from __future__ import annotations

RESULTS = "results"


def archive(name: str) -> str:
    """A downloaded archive."""
    return f"resources/archives/{name}"


def collection(name: str) -> str:
    """Manifest of a normalised collection: corpus.parquet, queries.parquet, qrels.<split>.tsv, audit.json."""
    return f"{RESULTS}/collections/{name}/manifest.json"


def statistics(name: str) -> str:
    """Statistics of a collection, among them its similarity with the source."""
    return f"{RESULTS}/collections/{name}/statistics.json"


def bm25_index(index: str, name: str) -> str:
    """Manifest of an inverted index."""
    return f"{RESULTS}/bm25/{index}/{name}/manifest.json"


def model(name: str, scope: str, stage: str) -> str:
    """Manifest of a model folder."""
    return f"{RESULTS}/models/{name}/{scope}/{stage}/manifest.json"


def candidates(name: str, scope: str, of: str, split: str, depth: int | str) -> str:
    """The best `depth` documents of each query of a split, where negatives are looked for."""
    return f"{RESULTS}/candidates/{name}/{scope}/{of}/{split}.top{depth}.parquet"


def candidate_hits(name: str, scope: str, of: str, split: str, depth: int | str, part: str) -> str:
    """The same in one shard."""
    return f"{RESULTS}/candidates/{name}/{scope}/{of}/{split}.top{depth}/{part}.parquet"


def mined(name: str, scope: str, stage: str) -> str:
    """Manifest of a stage's training queries with positives and mined negatives."""
    return f"{RESULTS}/mined/{name}/{scope}/{stage}/manifest.json"


def scored(name: str, scope: str, stage: str) -> str:
    """Manifest of mined queries with a teacher's scores."""
    return f"{RESULTS}/scored/{name}/{scope}/{stage}/manifest.json"


def spans(name: str, scope: str, stage: str, of: str) -> str:
    """Manifest of a corpus's spans, cut for a pretraining stage."""
    return f"{RESULTS}/spans/{name}/{scope}/{stage}/{of}/manifest.json"


def clusters(name: str, scope: str, stage: str) -> str:
    """Manifest of the clusters of a stage's training queries."""
    return f"{RESULTS}/clusters/{name}/{scope}/{stage}/manifest.json"


def units(name: str, scope: str, stage: str, part: str) -> str:
    """Manifest of the units of a stage's positives; `part` is `cut`, `read` (a reader's scores) or `labels`."""
    return f"{RESULTS}/units/{name}/{scope}/{stage}/{part}/manifest.json"


def unit_measures(units_of: str, name: str) -> str:
    """Balance, extractability and dispersion of a model over the units of a method's last stage."""
    return f"{RESULTS}/analysis/units/{units_of}/{name}.tsv"


def memory(name: str, scope: str, stage: str, part: str) -> str:
    """Something of a model whose queries are augmented."""
    return f"{RESULTS}/memory/{name}/{scope}/{stage}/{part}"


def component(name: str, scope: str, stage: str, which: str) -> str:
    """Manifest of the `main` model or the `augmenter` that an episode trained."""
    return memory(name, scope, stage, f"{which}/manifest.json")


def learned(name: str, scope: str, stage: str) -> str:
    """Manifest of what an episode's augmenter learns from."""
    return memory(name, scope, stage, "learned/manifest.json")


def memory_embeddings(name: str, scope: str, stage: str, of: str, part: str) -> str:
    """Embeddings of a memory or of queries by a model's augmenter; `part` as for embeddings."""
    return memory(name, scope, stage, f"embeddings/{of}/{part}.npy")


def memory_hits(
    name: str, scope: str, stage: str, kind: str, of: str, split: str, depth: int | str, which: str, part: str
) -> str:
    """Hits in a shard of memory `which` for the queries of a collection; `kind` is `hits` or `hits-with-self`."""
    return memory(name, scope, stage, f"{kind}/{of}/{split}.top{depth}/{which}/{part}.parquet")


def augmentations(name: str, scope: str, stage: str, use: str, of: str, split: str) -> str:
    """Rankings of a mixture: for `learning` (by the augmenter before the stage) or for `search` (by the stage's)."""
    return memory(name, scope, stage, f"{use}/{of}/{split}.parquet")


def attention(name: str, scope: str, stage: str, use: str, of: str, split: str) -> str:
    """Attention of a stage's main model to augmentation documents."""
    return memory(name, scope, stage, f"attention/{use}/{of}/{split}.parquet")


def fused_queries(name: str, scope: str, stage: str, of: str, protocol: str, split: str) -> str:
    """Embeddings of queries with their augmentation."""
    return memory(name, scope, stage, f"queries/{of}/{protocol}/{split}.npy")


def exported(name: str, scope: str) -> str:
    """Manifest of a folder that sentence-transformers loads."""
    return f"{RESULTS}/exported/{name}/{scope}/manifest.json"


def exported_memory(name: str, scope: str, which: str) -> str:
    """Manifest of a memory's documents with the vectors of a model's augmenter, for search from Python."""
    return f"{RESULTS}/exported-memories/{name}/{scope}/{which}/manifest.json"


def shares(name: str, scope: str, stage: str, use: str, of: str, split: str, file: str) -> str:
    """A file of how attention and documents are shared by memories: `shares.tsv`, `cases.tsv`."""
    return memory(name, scope, stage, f"shares/{use}/{of}/{split}.{file}")


def embeddings(name: str, scope: str, of: str, protocol: str, part: str) -> str:
    """One `.npy` of embeddings; `part` is `queries.<split>` or `corpus-00003-of-00010`."""
    return f"{RESULTS}/embeddings/{name}/{scope}/{of}/{protocol}/{part}.npy"


def shard(kind: str, number: int, count: int) -> str:
    """Name of part `number` (from 0) of `count`: `corpus-00003-of-00010`."""
    return f"{kind}-{number:05d}-of-{count:05d}"


def shard_hits(name: str, of: str, protocol: str, part: str) -> str:
    """Ranking of one shard."""
    return f"{RESULTS}/runs/{name}/{of}/{protocol}/{part}.parquet"


def run(name: str, of: str, protocol: str) -> str:
    """A ranking, as gzipped TREC run."""
    return f"{RESULTS}/runs/{name}/{of}/{protocol}.trec.gz"


def summary(name: str, of: str, protocol: str) -> str:
    """Metrics of one run."""
    return f"{RESULTS}/evaluation/{name}/{of}/{protocol}.summary.tsv"


def per_query(name: str, of: str, protocol: str) -> str:
    """Metrics of one run by query."""
    return f"{RESULTS}/evaluation/{name}/{of}/{protocol}.per_query.parquet"


def beir(file: str) -> str:
    """A file of the main table: `all.tsv`, `all.md`, `<model>.tsv`, `significance.tsv`, ..."""
    return f"{RESULTS}/beir/{file}"


def space(name: str, scope: str, of: str) -> str:
    """What the vectors of a model, `<method>@<stage>`, look like on held-out documents of a corpus."""
    return f"{RESULTS}/spaces/{name}/{scope}/{of}.json"


def item(paper: str, name: str, kind: str) -> str:
    """A table or figure of a paper; `kind` is tsv, md, html, svg or png."""
    return f"{RESULTS}/{paper}/{name}.{kind}"


def domains(name: str, target: str, file: str) -> str:
    """How a model sees a target beside its source: `measures.tsv`, `nearest.parquet`, `tsne.parquet`."""
    return f"{RESULTS}/domains/{name}/{target}/{file}"


def lineage(file: str) -> str:
    """A file of the lineage publisher."""
    return f"{RESULTS}/lineage/{file}"
