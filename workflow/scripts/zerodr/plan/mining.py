"""Plan workflow/rules/mining.smk: rankings of training queries by BM25, a model or both, then a choice of negatives.

The wildcard `split` of rankings is a split, or a sample of one where the stage mines no more.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from zerodr.config.generation import GenerateSettings
from zerodr.config.load import files_of_model
from zerodr.config.methods import FusionSettings, LexicalSettings, TrainedMethod
from zerodr.config.stages import FinetuneStage
from zerodr.config.training import FILE
from zerodr.plan import paths
from zerodr.plan.chains import PREVIOUS
from zerodr.plan.dense import corpus_embeddings, embeddings_for, fusion_params, query_embeddings
from zerodr.plan.lines import SCOPE, Link, link_of
from zerodr.plan.plan import Files, Params, Plan, inputs, params, shard_numbers

SUFFIX = r"\.sample\d+-stage\d+-dev\d+-seed\d+"
NAME = re.compile(r"(.+)\.sample(\d+)-stage(\d+)-dev(\d+)-seed(\d+)")


class Sample(NamedTuple):
    """A draw of training queries.

    Attributes:
        split: of the queries.
        queries: how many are drawn.
        stage_index: position in its chain of the stage that mines them; each draws others.
        dev_queries: queries that training holds out, which are ranked too.
        seed: of the draw.
    """

    split: str
    queries: int
    stage_index: int
    dev_queries: int
    seed: int

    @property
    def name(self) -> str:
        """The name in paths of rankings."""
        return paths.sampled(*self)


def read_name(name: str) -> Sample | None:
    """Read the name of a sample; None for that of a split."""
    if (match := NAME.fullmatch(name)) is None:
        return None
    split, *numbers = match.groups()
    return Sample(split, *map(int, numbers))


def split_of(name: str) -> str:
    """Find the split of a sample's name; a split's is itself."""
    sample = read_name(name)
    return name if sample is None else sample.split


def ranked_share(name: str, splits: Mapping[str, int | None]) -> float:
    """Estimate which share of a split's queries a ranking has, 1 where the split's size is unknown.

    Args:
        name: of a sample or a split.
        splits: number of queries by split.
    """
    sample = read_name(name)
    total = 0 if sample is None else splits.get(sample.split) or 0
    return min(1.0, (sample.queries + sample.dev_queries) / total) if sample and total else 1.0


INDEX = "bm25s-flat"
PROTOCOL = "standard"  # of encoders that were not trained here


# ---- samples ---------------------------------------------------------------------------------------------------
def ranked_for(plan: Plan, wc: Any) -> str:
    """Name the queries that are ranked for a stage that mines: its split, or the sample of it that the stage draws.

    The model before ranks the sample of this stage. Any other method may rank for many stages: samples, until those of
    this stage and of the stages that its model comes from are together larger than the split, or one of these mines
    all; from there on all queries, once. So an episode more leaves the earlier ones as they are, and a model needs no
    more than twice the split.
    """
    link = link_of(wc)
    (collection, split), queries = plan.chains.taught(link), plan.chains.stage(link).negatives.queries
    size = plan.collection(collection).splits.get(split)
    if queries is None:
        return split
    if size is not None and sum(_count(plan.chains.stage(at), size) for at in _readers(plan, link)) > size:
        return split
    return Sample(split, queries, _index(plan, link), plan.chains.stage(link).training.dev_queries, plan.seed(wc)).name


def _readers(plan: Plan, link: Link) -> Iterator[Link]:
    """Return a stage and those before it, in its recipe and in those it starts from, that one ranking could serve."""
    yield link
    chains, negatives, generate = plan.chains, plan.chains.stage(link).negatives, plan.chains.stage(link).generate
    start: tuple[str, str] | None = (link.method, link.stage)
    while start is not None and negatives.source != PREVIOUS:
        method, stage = start
        for name in chains.line(method, stage):
            at = link._replace(method=method, stage=name)
            other = chains.find_stage(at)
            if at == link or not isinstance(other, FinetuneStage) or other.generate != generate:
                continue
            alike = (other.negatives.source, other.negatives.depth) == (negatives.source, negatives.depth)
            if alike and chains.taught(at) == chains.taught(link):
                yield at
        start = chains.start_of_chain(method)


def _count(stage: FinetuneStage, size: int) -> int:
    """Count the queries that are ranked for a stage, of `size` ones of its split."""
    return size if stage.negatives.queries is None else stage.negatives.queries + stage.training.dev_queries


def _index(plan: Plan, link: Link) -> int:
    return list(plan.chains.trained(link.method).chain).index(link.stage)


@inputs("sample_queries")
def _sample_inputs(plan: Plan, wc: Any) -> Files:
    return {"collection": plan.labelled(wc.collection, wc.split)}


@params("sample_queries")
def _sample_params(plan: Plan, wc: Any) -> Params:
    numbers = {name: int(getattr(wc, name)) for name in ("queries", "stage_index", "dev_queries")}
    return {"split": wc.split} | numbers


def _asked(plan: Plan, wc: Any) -> Files:
    """The collection whose queries are ranked, and the sample of these where there is one."""
    sample = read_name(wc.split)
    drawn = {} if sample is None else {"sample": paths.sample(wc.collection, *sample)}
    return {"collection": plan.labelled(wc.collection, split_of(wc.split))} | drawn


# ---- rankings --------------------------------------------------------------------------------------------------
@inputs("rank_bm25")
def _rank_inputs(plan: Plan, wc: Any) -> Files:
    return {"index": paths.bm25_index(INDEX, wc.collection)} | _asked(plan, wc)


def _ranking(wc: Any) -> Params:
    return {"collection": wc.collection, "split": split_of(wc.split), "depth": int(wc.depth)}


@params("rank_bm25")
def _rank_params(plan: Plan, wc: Any) -> Params:
    settings = plan.bench.settings(wc.model, LexicalSettings)
    return _ranking(wc) | {"k1": settings.k1, "b": settings.b}


@inputs("search_candidates")
def _search_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "queries": mining_queries(plan, wc),
        "corpus": mining_embeddings(plan, wc, f"corpus-{wc.shard}"),
    } | _asked(plan, wc)


def mining_queries(plan: Plan, wc: Any) -> str:
    """The embeddings of the source's queries that negatives are searched with: of all, also where a sample is searched.

    A vector's last bits depend on the texts that share its batch, and other rules read the vectors of all.
    """
    split = split_of(wc.split)
    if not isinstance(plan.method(wc.model), TrainedMethod):
        return mining_embeddings(plan, wc, f"queries.{split}")
    link = plan.chains.link(wc.model, wc.scope)
    return query_embeddings(plan, link.name, link, wc.collection, plan.chains.trained(link.method).protocol, split)


def mining_embeddings(plan: Plan, wc: Any, content: str) -> str:
    """The embeddings of the source that negatives are searched in."""
    if not isinstance(plan.method(wc.model), TrainedMethod):
        return embeddings_for(plan, wc.model, wc.collection, content, PROTOCOL)
    link = plan.chains.link(wc.model, wc.scope)
    return corpus_embeddings(plan, link, wc.collection, plan.chains.trained(link.method).protocol, content)


@params("search_candidates")
def _search_params(plan: Plan, wc: Any) -> Params:
    return _ranking(wc) | {"exclude_self": False, "index": "flat"} | shard_numbers(wc.shard)


@inputs("merge_candidates")
def _merge_inputs(plan: Plan, wc: Any) -> Files:
    keys = (wc.model, wc.scope, wc.collection, wc.split, wc.depth)
    hits = [paths.candidate_hits(*keys, shard) for shard in plan.shard_names("shard", wc.collection)]
    return {"hits": hits} | _asked(plan, wc)


@params("merge_candidates")
def _merge_params(plan: Plan, wc: Any) -> Params:
    return _ranking(wc)


@inputs("fuse_candidates")
def _fuse_inputs(plan: Plan, wc: Any) -> Files:
    runs = plan.bench.settings(wc.model, FusionSettings).runs
    return {"rankings": [paths.candidates(run, SCOPE, wc.collection, wc.split, wc.depth) for run in runs]}


@params("fuse_candidates")
def _fuse_params(plan: Plan, wc: Any) -> Params:
    return fusion_params(plan, wc.model) | _ranking(wc)


# ---- negatives -------------------------------------------------------------------------------------------------
@inputs("mine_negatives")
def _mine_inputs(plan: Plan, wc: Any) -> Files:
    """The source, a ranking to take negatives from, what the stage before mined."""
    chains, link = plan.chains, link_of(wc)
    (source, split), ranker = chains.taught(link), chains.negatives_from(link)
    before, negatives = chains.mined_before(link), chains.stage(link).negatives
    files, ranked = {"source": plan.labelled(source, split)}, (ranked_for(plan, wc), negatives.depth)
    files |= {"file": negatives.file} if negatives.file is not None else {}
    files |= {"candidates": paths.candidates(*ranker, source, *ranked)} if ranker else {}
    return files | ({"previous": paths.mined(*before.path_keys)} if before else {})


@params("mine_negatives")
def _mine_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    stage = plan.chains.stage(link)
    leaders = stage.generate is not None and stage.generate.positives == "ranked"
    source, split = plan.chains.taught(link)
    return {
        **({"exclude_self": True} if stage.generate is None and plan.collection(source).exclude_self else {}),
        **({"leaders": True} if leaders else {}),
        **({"scored": True} if stage.teacher == FILE else {}),
        "negatives": stage.negatives.model_dump(mode="json"),
        "split": split,
        "stage": wc.stage,
        "stage_index": _index(plan, link),
        "dev_queries": stage.training.dev_queries,
    }


# ---- generated queries -------------------------------------------------------------------------------------------
@inputs("generate_queries")
def _generate_inputs(plan: Plan, wc: Any) -> Files:
    """The target, and its BM25 index where questions make a round trip."""
    name, writer = plan.chains.only_member(wc.scope), _generation(plan, plan.link(wc)).writer
    files = {"collection": paths.collection(name)}
    files |= {"index": paths.bm25_index(INDEX, name)} if writer and writer.round_trip else {}
    return files | writer_files(writer.model if writer else "")


def writer_files(model: str) -> Files:
    """Files of a language model in a folder, which are inputs of what it writes."""
    files = files_of_model(model) if model else []
    return {"writer": files} if files else {}


@params("generate_queries")
def _generate_params(plan: Plan, wc: Any) -> Params:
    link = plan.link(wc)
    (name, split), generate = plan.chains.taught(link), _generation(plan, link)
    settings = generate.model_dump(mode="json", exclude={"positives"}, exclude_none=True) | {"split": split}
    if not generate.writer:
        return settings
    judged = plan.collection(name).kind == "proxy" and plan.config.held_out_questions > 0
    return settings | {"title_join": plan.collection(name).title_join} | ({"apart": True} if judged else {})


def _generation(plan: Plan, link: Link) -> GenerateSettings:
    generate = plan.chains.stage(link).generate
    assert generate is not None, "only stages that generate have queries"
    return generate


# ---- scores of teachers ------------------------------------------------------------------------------------------
@inputs("score_pairs")
def _score_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "teacher": plan.chains.model(_teacher(plan, wc)),
        "mined": paths.mined(*plan.chains.mined(link_of(wc)).path_keys),
        "source": plan.labelled(*plan.chains.taught(link_of(wc))),
    }


@params("score_pairs")
def _score_params(plan: Plan, wc: Any) -> Params:
    joined = {"title_join": plan.collection(plan.chains.taught(link_of(wc))[0]).title_join}
    return plan.chains.scoring(_teacher(plan, wc)) | joined


def _teacher(plan: Plan, wc: Any) -> Link:
    teacher = plan.chains.stage(link_of(wc)).teacher
    assert teacher is not None, "only distilling stages have scores"
    return plan.chains.server(teacher, wc.scope)
