"""What the DAG looks like for one configuration. Rules ask here; nothing here touches a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from zerodr.config.archives import refuse_absent
from zerodr.config.canonical import canonical_json
from zerodr.config.index import IndexSettings
from zerodr.config.load import Bench
from zerodr.config.methods import EncoderSettings, LexicalSettings, Method
from zerodr.config.registry import Collection
from zerodr.config.settings import Protocol
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE, Chains
from zerodr.plan.episodes import EpisodeStages
from zerodr.plan.papers import PaperItems
from zerodr.plan.resources import Machines
from zerodr.plan.rules import RULES
from zerodr.plan.training import SCRATCH
from zerodr.plan.units import UnitStages

INDEX_FIELDS = set(IndexSettings.model_fields)
NOTHING = r"(?!)"


class Plan(EpisodeStages, UnitStages, PaperItems, Machines):
    """Paths, targets and stage settings of a checked configuration."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.config = bench.config
        own = [row.name for row in bench.collections.values() if row.kind == "own"]
        missing = [row.name for row in self.wanted if row not in self.columns]
        self.chains = Chains(bench, [*(row.name for row in self.columns), *own], missing)

    # ---- names -------------------------------------------------------------------------------------------------
    @property
    def source(self) -> str:
        """The collection with supervision."""
        return self.config.source or self.bench.scale.source

    @property
    def methods(self) -> tuple[str, ...]:
        """Rows of the main table."""
        return self.bench.scale.methods if self.config.methods is None else self.config.methods

    @property
    def wanted(self) -> list[Collection]:
        """Evaluated collections of the main table, in registry order, gated ones included."""
        return self.bench.wanted

    @property
    def columns(self) -> list[Collection]:
        """The wanted collections that can be had."""
        return self.bench.columns

    def collection(self, name: str) -> Collection:
        """The registry row of `name`."""
        return self.bench.collections[name]

    def method(self, name: str) -> Method:
        """The method with the full name `name`."""
        return self.bench.methods[name]

    def protocol(self, name: str) -> Protocol:
        """The protocol called `name`."""
        return self.bench.protocols[name]

    def pattern(self, *kinds: str) -> str:
        """A wildcard constraint that matches the methods of these kinds and nothing else."""
        return _alternatives(name for name, method in self.bench.methods.items() if method.kind in kinds)

    def pattern_of_chains(self) -> str:
        """A wildcard constraint that matches trained methods, whose stages stand beside them, not in their names."""
        return _alternatives(self.chains.names())

    def pattern_of_stages(self, *kinds: str) -> str:
        """A wildcard constraint that matches the stages of these kinds, `finetune` or `pretrain`, of all chains."""
        chains = [self.chains.trained(name).chain for name in self.chains.names()]
        return _alternatives({name for chain in chains for name, stage in chain.items() if stage.kind in kinds})

    def pattern_of_scopes(self) -> str:
        """A wildcard constraint that matches `shared` and every target that models may be made for."""
        return _alternatives({SCOPE, *(row.column for row in self.bench.collections.values())})

    def pattern_of_targets(self) -> str:
        """A wildcard constraint that matches what models may be made for."""
        return _alternatives({row.column for row in self.bench.collections.values()})

    def pattern_of_protocols(self, titles: bool = False) -> str:
        """A wildcard constraint that matches the protocols; with `titles` only those that keep titles."""
        protocols = self.bench.protocols.items()
        return _alternatives(name for name, value in protocols if not titles or value.title_join != "none")

    def pattern_of_papers(self) -> str:
        """A wildcard constraint that matches the papers of config/papers."""
        return _alternatives(self.bench.papers)

    def pattern_of_items(self) -> str:
        """A wildcard constraint that matches the items of all papers."""
        return _alternatives({name for paper in self.bench.papers.values() for name in paper.items})

    def pattern_of_collections(self) -> str:
        """A wildcard constraint that matches the registry's collections."""
        return _alternatives(self.bench.collections)

    # ---- shards ------------------------------------------------------------------------------------------------
    def shard_count(self, name: str) -> int:
        """Embedding shards of a collection: static, from the registry or the estimate. Unknown sizes make one shard."""
        return max(1, -(-self.collection(name).planned_documents // self.shard_size))

    def shard_names(self, kind: str, name: str) -> list[str]:
        """Names of all parts of a collection's corpus."""
        count = self.shard_count(name)
        return [paths.shard(kind, number, count) for number in range(count)]

    # ---- who makes what ----------------------------------------------------------------------------------------
    def index_of(self, method: str) -> str:
        """The inverted index that a lexical method searches."""
        settings = self.bench.settings(method, LexicalSettings)
        return f"{settings.backend}-{settings.fields}"

    def sources_of(self, name: str) -> list[str]:
        """What a collection is made from: its archive, or the files of the user's own folder."""
        row = self.collection(name)
        return list(self.bench.user_files) if row.kind == "own" else [paths.archive(row.archive)]

    def embeddings_for(self, wc: Any, part: str, protocol: str | None = None) -> str:
        """The embeddings that the method of wildcards `wc` searches: those of the model made for the collection."""
        if self.method(wc.model).kind == "trained":
            link = self.chains.ranker(wc.model, wc.collection)
            return paths.embeddings(link.name, link.scope, wc.collection, protocol or wc.protocol, part)
        return paths.embeddings(self.embedded_by(wc.model), SCOPE, wc.collection, protocol or wc.protocol, part)

    def embedded_by(self, method: str) -> str:
        """The encoder whose embeddings `method` searches: variants that only change the index share the recipe's.

        A trained method's are named after the stage that makes its model: `dpr` and `ance@init` -> `dpr@ep0`.
        """
        recipe = method.partition("+")[0]
        ours, base = (self._encoding(self.bench.settings(m, EncoderSettings)) for m in (method, recipe))
        return recipe if ours == base else method

    @staticmethod
    def _encoding(settings: EncoderSettings) -> dict[str, Any]:
        return settings.model_dump(exclude=INDEX_FIELDS)

    # ---- targets -----------------------------------------------------------------------------------------------
    def references(self) -> list[str]:
        """Files of published numbers."""
        return [reference.path for reference in self.config.references]

    def statistics_targets(self) -> list[str]:
        """Statistics of the columns of the main table."""
        return [paths.statistics(row.name) for row in self.columns]

    def evaluations(self, part: str, model: str | None = None) -> list[str]:
        """`summary` or `per_query` files of the main table, or of one of its rows."""
        name = {"summary": paths.summary, "per_query": paths.per_query}[part]
        models = [model] if model else self.methods
        return [name(m, row.name, self.config.protocol) for m in models for row in self.columns]

    # ---- stage settings ----------------------------------------------------------------------------------------
    def settings(self, rule: str) -> Any:
        """The `params: settings=` of a rule: wildcards -> canonical JSON, so that equal settings look equal."""
        make = getattr(self, f"_{rule}")

        def render(wildcards: Any) -> str:
            return canonical_json(
                {
                    "version": RULES[rule].version,
                    "seed": self.config.seed if self._seeded(rule, wildcards) else 0,
                    "settings": make(wildcards) | ({"nodes": self.nodes(rule)} if self.nodes(rule) > 1 else {}),
                }
            )

        return render

    def _seeded(self, rule: str, wc: Any) -> bool:
        """Whether a job makes random choices; only those run again when the seed changes."""
        if rule == "init_model":
            encoder = self.chains.encoder(wc.model)
            return encoder.init == SCRATCH or encoder.head != "none"
        if rule == "search_shard":
            return self._index(wc.model)["index"] != "flat"
        return RULES[rule].seeded

    def _fetch_archive(self, wc: Any) -> dict:
        row = self.archive_row(wc.archive)
        refuse_absent(self.bench, row)
        originals = {"originals": row.originals.model_dump(mode="json")} if row.originals else {}
        return {
            "archive": row.archive,
            "urls": row.urls,
            "checksums": row.checksums,
            "bytes": row.archive_bytes,
            "access": row.access,
            "registration": row.registration,
        } | originals

    def mirrored(self, archive: str) -> list[str]:
        """Files in mirror folders that an archive without checksums is made from, so that a change there is noticed."""
        row = self.archive_row(archive)
        unpinned = [name for name, pinned in row.parts.items() if not pinned]
        return [self.bench.mirrored[name] for name in unpinned if name in self.bench.mirrored]

    def archive_row(self, archive: str) -> Collection:
        """The first row that uses an archive."""
        rows = [row for row in self.bench.collections.values() if row.archive == archive]
        if not rows:
            raise ConfigError(f"archive {archive}", "no collection of config/collections uses it", "check the name")
        return rows[0]

    def _normalize_collection(self, wc: Any) -> dict:
        row = self.collection(wc.collection)
        kept = {
            "name",
            "kind",
            "format",
            "archive",
            "member",
            "documents",
            "queries",
            "splits",
            "known_gaps",
            "drop_missing",
            "language",
        }
        original = {"original": row.originals.format} if row.originals else {}
        return row.model_dump(mode="json", include=kept) | original

    def _measure_statistics(self, wc: Any) -> dict:
        row = self.collection(wc.collection)
        return {
            "collection": row.name,
            "source": self.source,
            "evaluation_split": row.evaluation_split,
            "language": row.language,
            "documents": self.bench.scale.statistics_documents,
        }

    def _index_bm25(self, wc: Any) -> dict:
        backend, fields = wc.index.split("-")
        return {"backend": backend, "fields": fields, "language": self.collection(wc.collection).language}

    def _search_bm25(self, wc: Any) -> dict:
        return self.method(wc.model).settings.model_dump(mode="json") | self._ranking(wc)

    def _ranking(self, wc: Any) -> dict:
        row, protocol = self.collection(wc.collection), self.protocol(wc.protocol)
        return {
            "collection": row.name,
            "language": row.language,
            "split": row.evaluation_split,
            "depth": protocol.depth,
            "exclude_self": row.exclude_self and protocol.exclude_self == "registry",
        }

    def _import_model(self, wc: Any) -> dict:
        settings = self.method(wc.model).settings
        return settings.model_dump(
            mode="json",
            include={"model", "revision", "pooling", "normalize", "query_prefix", "document_prefix", "max_tokens"},
        )

    def _embedding(self, wc: Any) -> dict:
        row, protocol, settings = (
            self.collection(wc.collection),
            self.protocol(wc.protocol),
            self._arithmetic(wc.model),
        )
        own = protocol.overrides.get(row.name) or (row if protocol.collection_lengths == "registry" else protocol)
        return {
            "collection": row.name,
            "query_tokens": own.query_tokens or protocol.query_tokens,
            "document_tokens": own.document_tokens or protocol.document_tokens,
            "title_join": self._title_join(row.name, wc.protocol),
        } | settings

    def _arithmetic(self, method: str) -> dict:
        return self.method(method).settings.model_dump(mode="json", include={"precision", "batch_tokens"})

    def _embed_corpus(self, wc: Any) -> dict:
        return self._embedding(wc) | _shard_numbers(wc.shard)

    def _embed_queries(self, wc: Any) -> dict:
        return self._embedding(wc) | {"split": wc.split}

    def _search_shard(self, wc: Any) -> dict:
        return _without(self._ranking(wc), "language") | self._index(wc.model) | _shard_numbers(wc.shard)

    def _index(self, method: str) -> dict:
        if self.method(method).kind == "trained":
            return {"index": "flat"}
        return self.method(method).settings.model_dump(mode="json", include=INDEX_FIELDS)

    def _search_candidates(self, wc: Any) -> dict:
        return {
            "collection": wc.collection,
            "split": wc.split,
            "depth": int(wc.depth),
            "exclude_self": False,
            "index": "flat",
        } | _shard_numbers(wc.shard)

    def _merge_run(self, wc: Any) -> dict:
        return _without(self._ranking(wc), "language", "exclude_self") | {"tag": wc.model}

    def _fuse_runs(self, wc: Any) -> dict:
        own = self.method(wc.model).settings.model_dump(mode="json")
        return own | _without(self._ranking(wc), "language") | {"tag": wc.model}

    def _evaluate_run(self, wc: Any) -> dict:
        return self._ranking(wc) | {
            "model": wc.model,
            "protocol": wc.protocol,
            "bootstrap_samples": self.config.bootstrap_samples,
        }

    def _compare_runs(self, wc: Any) -> dict:
        return {
            "baseline": self.config.baseline,
            "samples": self.config.randomization_samples,
            "methods": list(self.methods),
        }

    def settings_of_table(self, methods: list[str] | None = None) -> dict:
        """What a table needs to know: rows, columns, what is missing, groups, protocol."""
        methods = methods or list(self.methods)
        gone = [row for row in self.wanted if row not in self.columns]
        unjudged = [row for row in self.bench.collections.values() if row.kind == "own" and not row.evaluation_split]
        listed = {
            "name",
            "label",
            "kind",
            "evaluation_split",
            "aggregate",
            "groups",
            "remark",
            "exclude_self",
            "language",
            "licence",
        }
        all_rows = self.bench.collections.values()
        return {
            "methods": [{"name": m, "label": self.method(m).label, "remark": self.remark_of(m)} for m in methods],
            "collections": [row.model_dump(mode="json", include=listed) for row in self.columns],
            "missing": [{"name": row.name, "reason": "gated: needs registration"} for row in gone]
            + [{"name": row.name, "reason": "no judgements: not evaluated"} for row in unjudged],
            "groups": {g: _unique(r.column for r in all_rows if g in r.groups) for r in all_rows for g in r.groups},
            "aggregates": {
                r.aggregate: [other.name for other in all_rows if other.aggregate == r.aggregate]
                for r in all_rows
                if r.aggregate
            },
            "protocol": {"name": self.config.protocol} | self.protocol(self.config.protocol).model_dump(mode="json"),
            "scale": self.config.scale,
            "source": self.source,
        }

    def _build_table(self, wc: Any) -> dict:
        references = [reference.model_dump(mode="json") for reference in self.config.references]
        return self.settings_of_table() | {"references": references}

    def _build_row(self, wc: Any) -> dict:
        return self.settings_of_table([wc.model])

    def _plot_table(self, wc: Any) -> dict:
        return self.settings_of_table() | {"bootstrap_samples": self.config.bootstrap_samples}

    def _publish_lineage(self, wc: Any) -> dict:
        return {}


def _alternatives(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names)) or NOTHING


def _without(settings: dict, *names: str) -> dict:
    return {name: value for name, value in settings.items() if name not in names}


def _unique(names: Iterable[str]) -> list[str]:
    """Names without repetition, in order of first appearance."""
    return list(dict.fromkeys(names))


def _shard_numbers(shard: str) -> dict[str, int]:
    """`00003-of-00010` -> 3, 10."""
    number, count = shard.split("-of-")
    return {"shard": int(number), "shards": int(count)}
