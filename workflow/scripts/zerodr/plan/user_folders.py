"""Plan workflow/rules/user_folders.smk: documents, queries and judgements of users' own folders."""

from typing import Any

from zerodr.errors import CollectionError
from zerodr.plan import paths
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params


@inputs("normalize_corpus", "normalize_queries")
def _section_inputs(plan: Plan, wc: Any) -> Files:
    """No file: they are content digests among the params, and inputs of the rule file."""
    return {}


@inputs("normalize_judgements")
def _judgement_inputs(plan: Plan, wc: Any) -> Files:
    return {"collection": paths.collection(wc.collection)}


@params("normalize_corpus")
def _corpus_params(plan: Plan, wc: Any) -> Params:
    return _section_params(plan, wc.collection, "corpus")


@params("normalize_queries")
def _queries_params(plan: Plan, wc: Any) -> Params:
    return _section_params(plan, wc.collection, "queries")


@params("normalize_judgements")
def _judgement_params(plan: Plan, wc: Any) -> Params:
    row = plan.collection(wc.collection)
    return _section_params(plan, wc.collection, "judgements") | {"drop_missing": row.drop_missing}


def section_files(plan: Plan, collection: str, section: str) -> list[str]:
    """Files of a section of a user's own folder, which was found usable.

    Raises:
        CollectionError: the contents can't be used, or the folder has no such file.
    """
    folder = plan.bench.folders[collection]
    folder.check()
    if section not in folder.files:
        step = "add qrels/test.tsv" if section == "judgements" else f"add {section}.{{jsonl,tsv,parquet}}"
        raise CollectionError(folder.path, f"has no {section}", step)
    return list(folder.files[section])


def _section_params(plan: Plan, collection: str, section: str) -> Params:
    folder = plan.bench.folders[collection]
    content = [folder.digests.get(file, "") for file in folder.files.get(section, ())]
    return {"name": collection, "archive": folder.path, "content": content}
