"""Find methods that can answer new queries, from the lineage of runs, embeddings, indexes, models, exported folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from zerodr import papers
from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.record import read_record
from zerodr.collections.access import read_corpus
from zerodr.encoders.folder import retriever as folders
from zerodr.encoders.folder.attention import WEIGHTS
from zerodr.errors import ArtifactError, nearest
from zerodr.lineage.graph import Graph
from zerodr.lookup.lacking import PROTOCOL, what_lacks, what_was_never_read
from zerodr.plan import paths
from zerodr.plan.rules import Kind, facts_of

LEXICAL, DENSE, FUSION = folders.LEXICAL, folders.DENSE, folders.FUSION
TEXTS = {"collection", "sections"}  # inputs with the collection itself
NAMED = 4  # collections of a message
CONTENTS = {"model": "weights", "collection": "documents"}  # of inputs of an index, for messages
PLAIN = "retrieval.embed:embed_queries"
"""The stage whose query vectors a model gives alone. Papers add others."""
FEEDBACK = "retrieval.feedback:augment_queries"
"""The stage that adds documents of another ranking to query vectors."""


class QueryEncoder(NamedTuple):
    """Embed new queries as a stage does: two addresses, each as `module:name`.

    Attributes:
        queries: class with a method `encode`, made of a source.
        memories: function that lists the memories whose documents a query of a source may read; empty: none.
    """

    queries: str
    memories: str = ""


@cache
def query_encoders() -> dict[str, QueryEncoder]:
    """Return what embeds new queries, by the stage that embeds a method's queries."""
    encoders = {PLAIN: QueryEncoder("zerodr.lookup.searchers:PlainQueries")}
    encoders |= {FEEDBACK: QueryEncoder("zerodr.lookup.searchers:FeedbackQueries")}
    for module in papers.modules("lookup"):
        encoders |= module.LOOKUP
    return encoders


def load_function(address: str) -> Any:
    """Import what `module:name` names."""
    module, name = address.split(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class Source:
    """A method on a collection, with the artifacts that answer a query.

    Attributes:
        name: of the method.
        collection: manifest of the collection.
        kind: LEXICAL, DENSE or FUSION.
        index: manifest of the BM25 index, or the embeddings of all corpus shards in order.
        params: settings of the search (lexical), of the queries' embedding (dense), or of the fusion.
        encoder: stage that embeds queries.
        inputs: by name, the artifacts that this stage reads.
        run: the ranking of the collection's queries; empty without one.
        per_query: its evaluation by query; empty without one.
        halves: the two sources that a fusion joins; of feedback, the plain bi-encoder and what finds documents.
    """

    name: str
    collection: str
    kind: str
    index: tuple[str, ...]
    params: dict[str, Any]
    encoder: str = PLAIN
    inputs: dict[str, list[str]] = field(default_factory=dict)
    run: str = ""
    per_query: str = ""
    halves: tuple[Source, ...] = ()

    @property
    def artifacts(self) -> set[str]:
        """Artifacts that the source answers for: its run, its index, and the inputs of its queries' embedding."""
        inputs = {path for name, listed in self.inputs.items() if name not in TEXTS for path in listed}
        return {self.run, *self.index, *inputs}


def of_retriever(folder: Path, index: Path | None = None) -> dict[str, Source]:
    """Return the methods of a retriever's folder by name, the chosen one first.

    Args:
        folder: with `retriever.json`.
        index: what it searches; None: its own index.
    """
    facts, index = folders.read_retriever(folder), index or folder / folders.INDEX
    collection, made = str(index / folders.ABOUT), dict[str, Source]()

    def source(name: str) -> Source:
        way = facts.ways[name]
        halves = tuple(made.get(member) or source(member) for member in way.members)
        if way.kind == FUSION:
            return Source(name, collection, FUSION, (), way.params, halves=halves)
        if way.kind == LEXICAL:
            return Source(name, collection, LEXICAL, (str(index / folders.BM25 / name / folders.ABOUT),), way.params)
        if way.kind == folders.FEEDBACK:
            learned = {"attention": [str(folder / WEIGHTS)]} if (folder / WEIGHTS).exists() else {}
            return Source(name, collection, DENSE, halves[0].index, way.params, FEEDBACK, learned, halves=halves)
        model = folder if name == facts.encoder else folder / folders.INDEX / folders.MODELS / name
        shards = tuple(map(str, folders.shards_of(index, name)))
        return Source(name, collection, DENSE, shards, way.params, PLAIN, {"model": [str(model / "manifest.json")]})

    for name in (facts.method, *(name for name in sorted(facts.ways) if name != facts.method)):
        made[name] = source(name)
    return made


def refuse_other_inputs(source: Source) -> None:
    """Refuse an index whose model or collection was made anew after it: it is of other vectors, or of other documents.

    Raises:
        ArtifactError: names the index.
    """
    for path in source.index:
        record = read_record(path)
        for entry in record["inputs"] if record else ():
            now = read_record(entry["path"]) if entry["name"] in CONTENTS else None
            if now is not None and now["digest"] != entry["digest"]:
                problem = f"was made by other {CONTENTS[entry['name']]} than {entry['path']} holds now"
                raise ArtifactError(path, problem, AGAIN)


def list_memories(source: Source) -> list[str]:
    """List the memories that a query of the source can read."""
    address = query_encoders()[source.encoder].memories
    return load_function(address)(source) if address and source.kind == DENSE else []


class Sources:
    """All sources of a checkout.

    Args:
        graph: its lineage.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def find(self, text: str, corpus: str = "") -> Source:
        """Find the source that an artifact, or `METHOD/COLLECTION`, stands for.

        Args:
            text: path or digest of an artifact, or a method and a collection.
            corpus: a collection, where a model has embedded several.

        Raises:
            ArtifactError: there is none, or there are several.
        """
        method, _, collection = text.rpartition("/")
        collections = {collection: paths.collection(collection)} | self.collections()
        if method and "/" not in method and self.graph.record(collections[collection]) is not None:
            return self.named(method, collections[collection])
        if method and not Path(text).exists() and (lacking := what_was_never_read(method, collection)):
            raise ArtifactError(f"{method} on {collection}", *lacking)
        artifact = self.graph.find(text)
        record = self.graph.require(artifact)
        rule = facts_of(record["rule"])
        if rule.writes == "collection":
            return self.named("bm25", artifact)
        stands_for = {("evaluate", ""): "run", ("export", "model"): "model"}.get((rule.kind, rule.writes))
        targets = set(_inputs(record)[stands_for]) if stands_for else {artifact}
        matching = [source for source in self.all() if targets & source.artifacts]
        names = {_name(source.collection) for source in matching}
        if corpus:
            matching = [source for source in matching if _name(source.collection) == corpus]
        elif len(names) > 1:
            step = f"add --corpus {' or '.join(sorted(names)[:NAMED])}"
            raise ArtifactError(text, f"is used for {len(names)} collections", step)
        if not matching:
            step = "name a run, embeddings, an index, a model or an exported folder that was embedded here"
            raise ArtifactError(text, "answers no query", step)
        return min(matching, key=_unusual)

    def collections(self) -> dict[str, str]:
        """Manifests of the collections that something can be looked up in, by name."""
        return {_name(source.collection): source.collection for source in self.all()}

    def named(self, name: str, collection: str) -> Source:
        """Find a method on a collection by name; `bm25` is the first lexical one, or one that needs no index.

        Raises:
            ArtifactError: no method of that name has an index or embeddings of the collection.
        """
        matching = self.on(collection)
        lexical = [source.name for source in matching if source.kind == LEXICAL]
        wanted = lexical[0] if name == "bm25" and lexical else name
        for source in matching:
            if source.name == wanted:
                return source
        if name == "bm25":
            return Source("bm25", collection, LEXICAL, (), {"language": self._language(collection)})
        where, names = f"{name} on {_name(collection)}", [source.name for source in matching]
        if lacking := what_lacks(self.graph, name, collection, {source.run for source in self.all()}):
            raise ArtifactError(where, *lacking)
        raise ArtifactError(where, "can't answer queries", nearest(name, names) if names else "index it first")

    def _language(self, collection: str) -> str:
        """Return the recorded language; that of a user's folder, which has none, is guessed by its first documents."""
        from zerodr.collections.user_folders import SAMPLE_DOCUMENTS, language_of  # brings every reader of files

        record = self.graph.record(collection)
        if record and "language" in record["spec"]["params"]:
            return str(record["spec"]["params"]["language"])
        blocks = read_corpus(Path(collection).parent, 0, SAMPLE_DOCUMENTS, ("title", "text"))
        return language_of(f"{row['title'] or ''} {row['text']}" for block in blocks for row in block.to_pylist())

    def on(self, collection: str) -> list[Source]:
        """List the sources of a collection, BM25 first, and of several rankings of a method the standard one."""
        found = [source for source in self.all() if source.collection == collection]
        return sorted(found, key=lambda source: (source.kind != LEXICAL, source.name, _unusual(source)))

    def all(self) -> list[Source]:
        """List every source, those of runs first; indexes and embeddings that no run has used stand for themselves."""
        if not hasattr(self, "_all"):
            runs = {source.run: source for source in self._of_runs()}
            runs |= {source.run: source for source in self._fused(runs)}
            runs |= {source.run: source for source in self._with_feedback(runs)}
            runs |= {source.run: source for source in self._fused(runs) if source.run not in runs}
            listed = list(runs.values())
            used = {path for source in listed for path in source.index}
            self._all = [*listed, *self._without_run(used)]
        return self._all

    def _of_runs(self) -> Iterator[Source]:
        for artifact in self.graph.artifacts():
            record = self.graph.require(artifact)
            if _ranks(record, "search") and Path(artifact).exists():
                yield self._lexical(artifact, record)
            elif _ranks(record, "merge") and Path(artifact).exists():
                yield from self._dense(artifact, record)  # but those with feedback, which need others

    def _fused(self, halves: dict[str, Source]) -> Iterator[Source]:
        """Yield fusions of two runs that can both answer new queries."""
        for artifact in self.graph.artifacts():
            record = self.graph.require(artifact)
            if not _ranks(record, "fuse") or not Path(artifact).exists():
                continue
            inputs, name = _inputs(record), record["wildcards"]["model"]
            joined = tuple(halves[run] for run in inputs["runs"] if run in halves)
            if len(joined) == len(inputs["runs"]):
                facts: dict[str, Any] = {"run": artifact, "per_query": self._per_query(artifact), "halves": joined}
                yield Source(name, inputs["collection"][0], FUSION, (), record["spec"]["params"], **facts)

    def _with_feedback(self, runs: dict[str, Source]) -> Iterator[Source]:
        """Yield methods that read documents of another one, where both the other and their bi-encoder can answer."""
        for artifact in self.graph.artifacts():
            record = self.graph.require(artifact)
            if not _ranks(record, "merge") or not Path(artifact).exists():
                continue
            for source in self._dense(artifact, record, FEEDBACK):
                memory = runs.get(source.inputs["run"][0])
                asked = self.graph.record(source.inputs["queries"][0])
                if memory is None or asked is None or _stage(asked) not in query_encoders():
                    continue
                inner: dict[str, Any] = {"encoder": _stage(asked), "inputs": _inputs(asked)}
                plain = Source(memory.name, source.collection, DENSE, source.index, asked["spec"]["params"], **inner)
                yield replace(source, halves=(plain, memory))

    def _lexical(self, run: str, record: dict[str, Any]) -> Source:
        inputs = _inputs(record)
        name, params = record["wildcards"]["model"], record["spec"]["params"]
        index = tuple(inputs["index"])
        return Source(name, inputs["collection"][0], LEXICAL, index, params, run=run, per_query=self._per_query(run))

    def _dense(self, run: str, record: dict[str, Any], stage: str = "") -> Iterator[Source]:
        """Yield the source of a dense run if its queries are of a stage; empty: of any but feedback."""
        searches = [self.graph.record(hits) for hits in _inputs(record)["hits"]]
        corpus = [path for search in searches if search for path in _inputs(search)["corpus"]]
        queries = next((_inputs(search)["queries"][0] for search in searches if search), "")
        asked = self.graph.record(queries) if queries else None
        whole = len(corpus) == len(searches) and all(Path(path).exists() for path in corpus)
        if asked is None or not whole or _stage(asked) not in query_encoders():
            return
        if _stage(asked) != stage and (stage or _stage(asked) == FEEDBACK):
            return
        name, collection = record["wildcards"]["model"], _inputs(record)["collection"][0]
        facts: dict[str, Any] = {"encoder": _stage(asked), "inputs": _inputs(asked), "run": run}
        facts |= {"per_query": self._per_query(run)}
        yield Source(name, collection, DENSE, tuple(corpus), asked["spec"]["params"], **facts)

    def _without_run(self, used: set[str]) -> Iterator[Source]:
        shards: dict[tuple[str, ...], list[tuple[int, str, dict[str, Any]]]] = {}
        for artifact in self.graph.artifacts():
            record = self.graph.require(artifact)
            if artifact in used or not Path(artifact).exists():
                continue
            words, params = record["wildcards"], record["spec"]["params"]
            if facts_of(record["rule"]).kind == "index":
                named = {"collection": words["collection"], "split": "", "depth": 1000, "exclude_self": False}
                name = f"bm25-{words['index']}"
                yield Source(name, _inputs(record)["collection"][0], LEXICAL, (artifact,), params | named)
            elif facts_of(record["rule"]).embeds and {"protocol", "shard"} <= set(words):
                key = tuple(words[word] for word in ("model", "scope", "collection", "protocol"))
                shards.setdefault(key, []).append((params["shard"], artifact, record))
        for (model, scope, _, _), listed in shards.items():
            rows = sorted(listed, key=lambda row: row[0])
            _, _, record = rows[0]
            params, inputs = record["spec"]["params"], _inputs(record)
            if len(rows) == params["shards"] and Path(inputs["model"][0]).exists():
                name = model if scope in ("shared", _name(inputs["collection"][0])) else f"{model}@{scope}"
                index = tuple(path for _, path, _ in rows)
                yield Source(name, inputs["collection"][0], DENSE, index, params, inputs=inputs)

    def _per_query(self, run: str) -> str:
        records = (self.graph.require(edge.user) for edge in self.graph.down(run))
        path = next((r["outputs"]["per_query"] for r in records if facts_of(r["rule"]).kind == "evaluate"), "")
        return path if path and Path(path).exists() else ""


def _unusual(source: Source) -> bool:
    """True where a source has no ranking under the standard protocol."""
    return Path(source.run).name != f"{PROTOCOL}.trec.gz"


def _stage(record: dict[str, Any]) -> str:
    """Address of the library function that wrote an artifact."""
    return facts_of(record["rule"]).function


def _ranks(record: dict[str, Any], kind: Kind) -> bool:
    """True for a ranking of a collection that work of a kind wrote."""
    rule = facts_of(record["rule"])
    return rule.kind == kind and rule.writes == "run"


def _inputs(record: dict[str, Any]) -> dict[str, list[str]]:
    """Paths of a record's inputs by name."""
    inputs: dict[str, list[str]] = {}
    for entry in record["inputs"]:
        inputs.setdefault(entry["name"], []).append(entry["path"])
    return inputs


def _name(collection: str) -> str:
    return Path(collection).parent.name
