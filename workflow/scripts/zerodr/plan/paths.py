"""Name artifacts. Every path of the bench is written here and nowhere else."""

import re
from itertools import chain, zip_longest

BRACES = re.compile(r"\{\w+\}")


class Name:
    """The path of one kind of artifact; a call takes what stands for the names in braces, in their order.

    Args:
        pattern: the path, with wildcards in braces.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._fixed = BRACES.split(pattern)

    def __call__(self, *words: object) -> str:
        """Write the path.

        Raises:
            TypeError: more or fewer words than there are wildcards.
        """
        if len(words) != len(self._fixed) - 1:
            raise TypeError(f"{self.pattern}: expected {len(self._fixed) - 1} words, found {len(words)}")
        return "".join(chain.from_iterable(zip_longest(self._fixed, map(str, words), fillvalue="")))


def shard(kind: str, number: int, count: int) -> str:
    """Name shard `number` (from 0) of `count`: `corpus-00003-of-00010`."""
    return f"{kind}-{number:05d}-of-{count:05d}"


archive = Name("resources/archives/{archive}")
"""A downloaded archive."""

# ---- collections -----------------------------------------------------------------------------------------------
collection = Name("results/collections/{collection}/manifest.json")
"""Manifest of a normalised collection: corpus.parquet, queries.parquet, qrels.<split>.tsv, audit.json."""
collection_section = Name("results/collections/{collection}/{section}/manifest.json")
"""Manifest of the `queries` or `judgements` of a user's own folder; the collection itself is the corpus alone."""
statistics = Name("results/collections/{collection}/statistics.json")
"""Statistics of a collection, among them its similarity with the source."""
bm25_index = Name("results/bm25/{index}/{collection}/manifest.json")
"""Manifest of an inverted index."""

# ---- models ----------------------------------------------------------------------------------------------------
model = Name("results/models/{model}/{scope}/{stage}/manifest.json")
"""Manifest of a model folder."""
sampled = Name("{split}.sample{queries}-stage{stage_index}-dev{dev_queries}-seed{seed}")
"""Name of the queries of a split that a stage with `negatives.queries` mines; rankings of them have it for a split."""
sample = Name(f"results/samples/{{collection}}/{sampled.pattern}.parquet")
"""The ids of these queries."""
candidates = Name("results/candidates/{model}/{scope}/{collection}/{split}.top{depth}.parquet")
"""The best `depth` documents of each query of a split, or of a sample of it, where negatives are looked for."""
candidate_hits = Name("results/candidates/{model}/{scope}/{collection}/{split}.top{depth}/{shard}.parquet")
"""The same in one shard."""
mined = Name("results/mined/{model}/{scope}/{stage}/manifest.json")
"""Manifest of a stage's training queries with positives and mined negatives."""
scored = Name("results/scored/{model}/{scope}/{stage}/manifest.json")
"""Manifest of mined queries with a teacher's scores."""
generated = Name("results/generated/{model}/{scope}/{stage}/manifest.json")
"""Manifest of a target's corpus with queries that were made from it for a stage."""
spans = Name("results/spans/{model}/{scope}/{stage}/{collection}/manifest.json")
"""Manifest of a corpus's spans, cut for a pretraining stage."""
clusters = Name("results/clusters/{model}/{scope}/{stage}/manifest.json")
"""Manifest of the clusters of a stage's training queries."""
units = Name("results/units/{model}/{scope}/{stage}/{kind}/manifest.json")
"""Manifest of the units of a stage's positives; `kind` is `cut`, `read` (a reader's scores) or `labels`."""
unit_measures = Name("results/analysis/units/{units_of}/{model}.tsv")
"""Balance, extractability and dispersion of a model over the units of a method's last stage."""
adapted_answer = Name("results/adapted/{collection}/answer/manifest.json")
"""Manifest of the comparison of all candidates on a collection: which is best, by how much."""
adapted_model = Name("results/adapted/{collection}/model/manifest.json")
"""Manifest of the best of them, as a folder."""
retained_model = Name("results/adapted/{collection}/trained/{model}/{stage}/manifest.json")
"""Manifest of a trained model that was chosen before documents changed."""
retained_items = Name("results/adapted/{collection}/trained/items/manifest.json")
"""Manifest of the documents that it learned from, and of the known items that these lack."""
adapted_page = Name("results/adapted/{collection}/index.html")
"""The page about both."""
learned_attention = Name("results/attention/{model}/manifest.json")
"""Manifest of a feedback method's attention, learned on the source."""
exported = Name("results/exported/{model}/{scope}/manifest.json")
"""Manifest of a folder that sentence-transformers loads."""

# ---- memories --------------------------------------------------------------------------------------------------
component = Name("results/memory/{model}/{scope}/{stage}/{component}/manifest.json")
"""Manifest of the `main` model or the `augmenter` that an episode trained."""
learned = Name("results/memory/{model}/{scope}/{stage}/learned/manifest.json")
"""Manifest of what an episode's augmenter learns from."""
memory_embeddings = Name("results/memory/{model}/{scope}/{stage}/embeddings/{collection}/{vectors}.npy")
"""Embeddings of a memory or of queries by a model's augmenter; `vectors` as for embeddings."""
memory_hits = Name(
    "results/memory/{model}/{scope}/{stage}/{kind}/{collection}/{split}.top{depth}/{memory}/{shard}.parquet"
)
"""Hits in a shard of a memory for the queries of a collection; `kind` is `hits` or `hits-with-self`, and
`.<protocol>` after it where the augmenter reads the target under another protocol than in training."""
augmentations = Name("results/memory/{model}/{scope}/{stage}/{use}/{collection}/{split}.parquet")
"""Rankings of a mixture: for `learning` (by the augmenter before the stage) or for `search` (by the stage's)."""
attention = Name("results/memory/{model}/{scope}/{stage}/attention/{use}/{collection}/{split}.parquet")
"""Attention of a stage's main model to augmentation documents."""
fused_queries = Name("results/memory/{model}/{scope}/{stage}/queries/{collection}/{protocol}/{split}.npy")
"""Embeddings of queries with their augmentation."""
shares = Name("results/memory/{model}/{scope}/{stage}/shares/{use}/{collection}/{split}.{file}")
"""A file of how attention and documents are shared by memories: `shares.tsv`, `cases.tsv`."""
latency = Name("results/memory/{model}/{scope}/{stage}/latency/{collection}/{split}.json")
"""Milliseconds of a query and of a document by component."""
exported_memory = Name("results/exported-memories/{model}/{scope}/{memory}/manifest.json")
"""Manifest of a memory's documents with the vectors of a model's augmenter, for search from Python."""

# ---- rankings --------------------------------------------------------------------------------------------------
embeddings = Name("results/embeddings/{model}/{scope}/{collection}/{protocol}/{vectors}.npy")
"""Embeddings in one file; `vectors` is `queries.<split>` or `corpus-00003-of-00010`."""
shard_hits = Name("results/runs/{model}/{collection}/{protocol}/{shard}.parquet")
"""Ranking of one shard."""
run = Name("results/runs/{model}/{collection}/{protocol}.trec.gz")
"""A ranking, as gzipped TREC run."""
summary = Name("results/evaluation/{model}/{collection}/{protocol}.summary.tsv")
"""Metrics of one run."""
per_query = Name("results/evaluation/{model}/{collection}/{protocol}.per_query.parquet")
"""Metrics of one run by query."""

# ---- tables and measures ---------------------------------------------------------------------------------------
beir = Name("results/beir/{file}")
"""A file of a table: `<selection>.tsv`, `<selection>.html`, `<model>.tsv`, ...; `all` is the scale's own selection."""
compared = Name("results/beir/{selection}/{file}")
"""A file about a table's numbers: `significance.tsv`, `published.tsv`, `holes.tsv`, `per_query.parquet`."""
query_pages = Name("results/beir/{selection}/queries/manifest.json")
"""Manifest of the pages that show a table's methods against its baseline, query by query."""
query_page = Name("results/queries/{collection}/{protocol}/{model}/{baseline}.html")
"""Two methods, query by query."""
item = Name("results/{paper}/{item}.{kind}")
"""A table or figure of a paper; `kind` is tsv, md, html, svg or png."""
item_published = Name("results/{paper}/{item}.published.tsv")
"""Values that the paper prints next to those of an item."""
space = Name("results/spaces/{model}/{scope}/{collection}.json")
"""Measures of the vectors of a model, `<method>@<stage>`, on held-out documents of a corpus."""
cluster_losses = Name("results/clusters/losses/{model}/{scope}/{stage}.parquet")
"""Losses of a stage's model on judged queries of the source, with the cluster of each."""
training_losses = Name("results/clusters/training-losses/{clusters_of}/{model}.parquet")
"""The same of a row's model on training queries, by the clusters of a stage, `<method>@<stage>`."""
domains = Name("results/domains/{model}/{target}/{file}")
"""Measures of a target against its source: `measures.tsv`, `nearest.parquet`, `tsne.parquet`."""
domain_indexes = Name("results/domains/{model}/{target}/{protocol}.indexes.tsv")
"""How a model ranks all documents of a target and of its source: `knn_source_100`, measures on the source's queries."""
lineage = Name("results/lineage/{file}")
"""A file of the lineage publisher."""
