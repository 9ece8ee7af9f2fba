"""Plan UDALM: the corpora whose masked words a fine-tuning stage learns."""

from zerodr.errors import ConfigError
from zerodr.papers.udalm.settings import KEY
from zerodr.plan import paths
from zerodr.plan.lines import Link
from zerodr.plan.plan import READS_TARGET, Files, Params, Plan, adds_inputs, adds_params, documents_alone
from zerodr.plan.rules import ADDITIONS

ADDITIONS |= {KEY: 1}
READS_TARGET.add(KEY)


@adds_inputs("finetune", KEY)
def _corpora(plan: Plan, link: Link) -> Files:
    names = plan.chains.corpora(link)
    if not names:
        gated = plan.chains.left_out(link)
        problem = f"all gated: {', '.join(gated)}" if gated else "no collection of that name or group"
        raise ConfigError(f"{link.name}: {KEY}.corpora", f"there is no text to learn from ({problem})", "name another")
    return {"corpora": [paths.collection(name) for name in names]}


@documents_alone("finetune", KEY)
def _alone(plan: Plan, link: Link) -> dict[str, bool]:
    return {"corpora": True}


@adds_params("finetune", KEY)
def _left_out(plan: Plan, link: Link) -> Params:
    return {"left_out": plan.chains.left_out(link)}
