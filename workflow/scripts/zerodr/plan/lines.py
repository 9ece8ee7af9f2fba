"""Read chains as recipes write them: stages, parents of a model, the position of a stage in its schedule.

`remembered` keeps the results of the plan's pure methods.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Signature
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from zerodr.config.bench import Bench
from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.stages import ChainStage, FinetuneStage, PretrainStage
from zerodr.config.starts import encoder_of, line_of, start_of
from zerodr.config.trained import TrainedSettings
from zerodr.config.training import InitSettings, PairSettings, StartSettings, TrainingSettings

Owner = TypeVar("Owner")
Result = TypeVar("Result")
Key = ParamSpec("Key")
Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(method: Callable[Concatenate[Owner, Key], Result]) -> Callable[Concatenate[Owner, Key], Result]:
    """Compute a method's result once for each object and arguments, which are hashable. Callers don't change it."""
    name = f"_remembered_{method.__name__}"

    @wraps(method)
    def look_up(self: Owner, /, *args: Key.args, **kwargs: Key.kwargs) -> Result:
        results: dict[Any, Result] = self.__dict__.setdefault(name, {})
        key = (args, *kwargs.items()) if kwargs else args
        if key not in results:
            results[key] = method(self, *args, **kwargs)
        return results[key]

    return look_up


def with_signature(signature: Signature) -> Callable[[Function], Function]:
    """Keep a function's signature with it, so that nobody computes it again."""

    def attach(function: Function) -> Function:
        function.__signature__ = signature  # type: ignore[attr-defined]
        function._overwrite_params = signature.parameters  # type: ignore[attr-defined]  # Snakemake's own name
        return function

    return attach


SCOPE = "shared"


class Link(NamedTuple):
    """A model that a chain makes.

    Attributes:
        method: the recipe or `recipe+variant` that its path names.
        stage: `init`, a stage of the chain, or `<stage>.<step>` for a saved step.
        scope: `shared`, or the target that it is made for.
    """

    method: str
    stage: str
    scope: str = SCOPE

    @property
    def name(self) -> str:
        """`<method>@<stage>`, as rows, embeddings and candidates are named."""
        return f"{self.method}@{self.stage}"

    @property
    def path_keys(self) -> tuple[str, str, str]:
        """Method, scope and stage, in the order of paths."""
        return self.method, self.scope, self.stage


def link_of(wildcards: Any, stage: str = "") -> Link:
    """The model that wildcards name, at another `stage` where one is given."""
    return Link(wildcards.model, stage or wildcards.stage, wildcards.scope)


class Lines:
    """The stages of a configuration's chains, without scopes and sharing.

    Args:
        bench: the configuration.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def trained(self, method: str) -> TrainedSettings:
        """Settings of a trained method."""
        return self.bench.settings(method, TrainedSettings)

    def names(self) -> list[str]:
        """Trained methods, `recipe` and `recipe+variant`."""
        return [n for n, m in self.bench.methods.items() if isinstance(m, TrainedMethod) and not m.stage]

    def fine_tuning(self, method: str) -> list[str]:
        """Stages of a chain that learn from judgements."""
        chain = self.trained(method).chain
        return [name for name, stage in chain.items() if isinstance(stage, FinetuneStage)]

    def source_of(self, method: str) -> str:
        """The collection with supervision of a trained method."""
        return self.trained(method).source or self.bench.config.source or self.bench.scale.source

    def last(self, name: str) -> str:
        """The stage, or saved step, whose model a trained row ranks with."""
        method = self.bench.methods[name]
        assert isinstance(method, TrainedMethod), f"{name} is not trained"
        return method.last

    @remembered
    def sources(self) -> frozenset[str]:
        """Collections that methods learn from."""
        return frozenset(map(self.source_of, self.names()))

    # ---- stages ------------------------------------------------------------------------------------------------
    def find_stage(self, link: Link) -> ChainStage | None:
        """Settings of a stage of any kind, for its target; None for `init`, and where the method has no such stage."""
        return self.chain(link).get(link.stage)

    @remembered
    def chain(self, link: Link) -> dict[str, ChainStage]:
        """Stages of a link's method by name, with what differs for the link's target."""
        chain, rows = self.trained(link.method).chain, self.bench.collections.values()
        names = {name for row in rows if row.column == link.scope for name in (row.name, row.column, *row.groups)}
        return {
            name: stage.for_target(names) if isinstance(stage, PretrainStage) and stage.by_target else stage
            for name, stage in chain.items()
        }

    def stage(self, link: Link) -> FinetuneStage:
        """Settings of a stage that learns from judgements."""
        stage = self.find_stage(link)
        assert isinstance(stage, FinetuneStage), f"{link.name} does not learn from judgements"
        return stage

    def pretraining(self, link: Link) -> PretrainStage:
        """Settings of a stage that learns from texts."""
        stage = self.find_stage(link)
        assert isinstance(stage, PretrainStage), f"{link.name} does not learn from texts"
        return stage

    def before(self, link: Link) -> str:
        """The stage that a stage starts from: the one that it names, or the one before it, `init` before the first."""
        chain = self.trained(link.method).chain
        stage = chain[link.stage]
        named = [name for key, name in stage.parents.items() if key not in stage.foreign]
        names = [INIT, *chain]
        return named[-1] or names[names.index(link.stage) - 1]

    @remembered
    def line(self, method: str, stage: str) -> list[str]:
        """The stages that a model comes from, in the chain's order, itself last; nothing for `init`."""
        chain, reached, waiting = self.trained(method).chain, set[str](), [stage]
        while waiting:
            name = waiting.pop().partition(".")[0]
            if name != INIT and name not in reached:
                reached.add(name)
                waiting += [self.before(Link(method, name)), *self.named_parents(chain[name])]
        return [name for name in chain if name in reached]

    def named_parents(self, stage: ChainStage) -> list[str]:
        """Stages of its chain that a stage names as parents."""
        return [name for name in stage.parents.values() if name is not None and self.start(name) is None]

    def other_parents(self, stage: ChainStage) -> list[tuple[str, str]]:
        """Recipes and stages outside its chain whose models a stage needs."""
        starts = [self.start(name) for name in (*stage.parents.values(), *stage.other_models) if name is not None]
        return [start for start in starts if start is not None]

    # ---- what a chain begins with ------------------------------------------------------------------------------
    @remembered
    def encoder(self, method: str) -> StartSettings:
        """Settings of the initial model; what a recipe that starts from another leaves out is the other's."""
        return encoder_of(method, self.bench.methods)

    def bi_encoder(self, method: str) -> InitSettings:
        """The same of a method that ranks."""
        encoder = self.encoder(method)
        assert isinstance(encoder, InitSettings), f"{method} is no bi-encoder"
        return encoder

    def start(self, init: str) -> tuple[str, str] | None:
        """Recipe and stage that `init: <recipe>/<stage>` names; None where it names none of ours."""
        return start_of(init, self.bench.methods)

    def start_of_chain(self, method: str) -> tuple[str, str] | None:
        """Recipe and stage that a chain starts from; None where it starts from a checkpoint or from scratch."""
        return self.start(self.trained(method).encoder.init)

    def scoring(self, link: Link) -> dict[str, Any]:
        """How a model that reads pairs of texts scores them."""
        encoder = self.encoder(link.method)
        assert isinstance(encoder, PairSettings), f"{link.name} reads no pairs"
        return {"precision": self.trained(link.method).precision, "batch_pairs": encoder.batch_pairs}

    def origin(self, method: str) -> InitSettings:
        """Settings of the model from scratch or of the checkpoint that a chain of recipes begins with."""
        origin = line_of(method, self.bench.methods)[-1]
        assert isinstance(origin, InitSettings), f"{method} is no bi-encoder"
        return origin

    # ---- schedules ---------------------------------------------------------------------------------------------
    def trainings(self, method: str, scope: str = SCOPE) -> dict[str, TrainingSettings]:
        """Optimisation of the stages of a chain that train, by stage."""
        chain = self.chain(Link(method, INIT, scope))
        return {name: stage.optimisation for name, stage in chain.items() if stage.optimisation is not None}

    @remembered
    def schedule(self, link: Link) -> dict[str, Any]:
        """Find the position of a stage in its schedule.

        Fine-tuning stages in a row have one schedule, and so have pretraining stages; `restart_schedule` begins anew.
        """
        chain, trainings = self.trained(link.method).chain, self.trainings(link.method, link.scope)
        names = list(trainings)
        at, training = names.index(link.stage), trainings[link.stage]
        kinds = [chain[name].kind for name in names]
        breaks = [n for n in range(1, len(names)) if kinds[n] != kinds[n - 1] or trainings[names[n]].restart_schedule]
        start = max((n for n in breaks if n <= at), default=0)
        end = min((n for n in breaks if n > at), default=len(names))
        first = sum(trainings[name].steps for name in names[start:at])
        ends = training.schedule == "linear" and training.schedule_steps is None
        total = sum(trainings[name].steps for name in names[start:end]) if ends else first + training.steps
        return {"stage": link.stage, "stage_index": at, "first_step": first, "total_steps": total}

    def keeps_moments(self, link: Link) -> bool:
        """Whether a stage's optimiser moments are saved: the stage after continues with them, or could.

        A stage that continues with moments saves its moments too, so that one more episode leaves it as it is.
        """
        keeping = [name for name, training in self.trainings(link.method).items() if training.keep_optimizer]
        return link.stage in keeping or any(self.before(link._replace(stage=name)) == link.stage for name in keeping)
