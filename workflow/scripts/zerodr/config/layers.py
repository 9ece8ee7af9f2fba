"""Layers of a recipe's values: the recipe, what a scale changes, what a variant changes, starts under each of them.

A layer lies over those before it key by key. The order is: recipe, scale, variant, the variant's part for the scale.
Variants that a variant lies over come before it.
A `start:` lies directly under the layer that names it.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import chain, takewhile
from typing import Any, NamedTuple

from zerodr.config.base import Settings, mapping, validate
from zerodr.config.files import known
from zerodr.config.methods import METHOD_KINDS, Change, Method, TrainedMethod, Variant
from zerodr.config.stages import ChainStage
from zerodr.config.starts import init_of, start_of
from zerodr.config.training import InitSettings, ObjectiveSettings, is_loss, options_of, takes
from zerodr.errors import ConfigError

FROM_SCRATCH = {"architecture", "tokenizer"}  # of an encoder that starts from random weights
CHECKPOINT = {"init", "revision", "layers"}  # the part of a start that models of other types than its own take


class Start(Settings):
    """An initial model that recipes share: `start: <name>` in a recipe, one of its scales or variants."""

    remark: str = ""
    """Footnote of every method that comes from this model, before the method's remark."""
    encoder: InitSettings
    """Settings of the initial model."""

    @property
    def values(self) -> dict[str, Any]:
        """Return the settings that the start names."""
        return self.encoder.model_dump(exclude_unset=True)


class Layer(NamedTuple):
    """One layer of a method's values.

    Attributes:
        name: `recipe`, `scale lab`, `variant large`, `variant large at scale lab` or `start <name>`.
        value: the keys of a recipe that it sets.
    """

    name: str
    value: dict[str, Any]


class Layers:
    """Layers of the recipe in one file at one scale.

    Args:
        where: the file, for errors.
        written: its content.
        scale: one of `scales`.
        scales: names of all scales.
        starts: initial models by name.
    """

    def __init__(
        self, where: str, written: dict[str, Any], scale: str, scales: Iterable[str], starts: Mapping[str, Start]
    ) -> None:
        self.where, self.scale, self.scales, self.starts = where, scale, scales, starts
        self.kind = known(f"{where}: kind", str(written.get("kind")), METHOD_KINDS)
        recipe = {key: value for key, value in written.items() if key not in ("scales", "variants", "changes")}
        settings = mapping(recipe.setdefault("settings", {}), f"{where}: settings")
        self.encoder = mapping(settings.get("encoder"), f"{where}: settings.encoder").get("type")
        self.label = written.get("label")
        self.base = [*self._under("recipe", recipe, where), *self._of_scale(written.get("scales"), "", where)]
        for change in written.get("changes", ()):  # of `like: <recipe>`
            change_values = {
                key: value for key, value in change.items() if key not in ("name", "scales") and value is not None
            }
            self.base = [Layer(f"{change['name']}: {layer.name}", layer.value) for layer in self.base]
            change_values |= {"label": self.label}
            self.base += [*self._under("recipe", change_values, where), *self._of_scale(change["scales"], "", where)]
        self.variants = mapping(written.get("variants"), f"{where}: variants")

    def of_variant(self, name: str) -> list[Layer]:
        """Give the layers that a variant adds to those of the recipe, after those of the variants that it lies over.

        Raises:
            ConfigError: unknown key, a start that can't be, or a variant that is not above it in the file.
        """
        where = f"{self.where}: variants.{name}"
        variant = validate(Variant, self.variants[name], where)
        named = variant.model_copy(update={"label": variant.label or f"{self.label} ({name})"})
        earlier = {other: other for other in takewhile(lambda other: other != name, self.variants)}
        below = [self.of_variant(known(f"{where}: over: variant", other, earlier)) for other in variant.over]
        above = self._of_scale(variant.scales, f"variant {name} at ", where)
        return [*chain.from_iterable(below), *self._under(f"variant {name}", _values(named), where), *above]

    def _of_scale(self, changes: Any, prefix: str, where: str) -> list[Layer]:
        changes = mapping(changes, f"{where}: scales")
        for name in changes:
            known(f"{where}: scales", name, self.scales)
        location = f"{where}: scales.{self.scale}"
        change = validate(Change, mapping(changes.get(self.scale), where), location)
        return self._under(f"{prefix}scale {self.scale}", _values(change), location)

    def _under(self, name: str, value: dict[str, Any], where: str) -> list[Layer]:
        """Give the layer, and before it the start that it names."""
        layer = Layer(name, value)
        if "start" not in value:
            return [layer]
        start = known(f"{where}: start", str(value["start"]), self.starts)
        if self.kind is not TrainedMethod:
            raise ConfigError(f"{where}: start", "is for methods that train a model", "leave it out")
        if "init" in value["settings"].get("encoder", {}):
            raise ConfigError(f"{where}: start", "gives the initial model, and so does init", "leave one of them out")
        same = self.encoder in (None, start.encoder.type)
        values = {key: setting for key, setting in start.values.items() if same or key in CHECKPOINT}
        return [Layer(f"start {value['start']}", {"settings": {"encoder": values}}), layer]


def _values(change: Change) -> dict[str, Any]:
    return change.model_dump(include={"label", "remark", "start", "settings"}, exclude_none=True)


def merge(layers: Iterable[Layer], below: dict[str, Any] | None = None) -> dict[str, Any]:
    """Lay layers over `below`, the first one lowest.

    A layer with another initial model takes away what those below it say of one from random weights, and its revision;
    one with another loss, the options and arguments that this loss does not read.
    """
    return reduce(_lay, (layer.value for layer in layers), below or {})


def _lay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    named = _encoder(above)
    if "init" in named and not named.keys() & FROM_SCRATCH:
        other = {"revision"} if named["init"] != _encoder(below).get("init") else set[str]()
        encoder = {key: value for key, value in _encoder(below).items() if key not in FROM_SCRATCH | other}
        if encoder != _encoder(below):
            below = below | {"settings": below["settings"] | {"encoder": encoder}}
    chain = {name: _without_unread(stage, _stage(above, name)) for name, stage in _chain(below).items()}
    if chain != _chain(below):
        below = below | {"settings": below["settings"] | {"chain": chain}}
    return overlay(below, above)


def _chain(value: dict[str, Any]) -> dict[str, Any]:
    settings = value.get("settings")
    chain = settings.get("chain") if isinstance(settings, dict) else None
    return chain if isinstance(chain, dict) else {}


def _stage(value: dict[str, Any], name: str) -> dict[str, Any]:
    stage = _chain(value).get(name)
    return stage if isinstance(stage, dict) else {}


def _without_unread(stage: Any, above: dict[str, Any]) -> Any:
    """Take away the options that another loss, which a layer above chooses, does not read."""
    below, chosen = stage.get("objective") if isinstance(stage, dict) else None, above.get("objective")
    if not isinstance(below, dict) or not isinstance(chosen, dict):
        return stage
    name = str(chosen.get("name"))
    if name == below.get("name") or not is_loss(name):
        return stage
    unread = ObjectiveSettings.model_fields.keys() - options_of(name)
    options = {key: value for key, value in below.items() if key not in unread}
    if isinstance(arguments := options.get("arguments"), dict):
        options["arguments"] = {key: value for key, value in arguments.items() if takes(name, key)}
    return stage | {"objective": options}


def _encoder(value: dict[str, Any]) -> dict[str, Any]:
    settings = value.get("settings")
    encoder = settings.get("encoder") if isinstance(settings, dict) else None
    return encoder if isinstance(encoder, dict) else {}


def overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay the keys of `above` over `below`: mappings are joined key by key, all else is replaced."""
    joined = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(joined.get(key), dict):
            value = overlay(joined[key], value)
        joined[key] = value
    return joined


def add_remarks(
    methods: dict[str, Method], starts: Mapping[str, Start], among: Mapping[str, Method] | None = None
) -> dict[str, Method]:
    """Put the remark of the start that each method comes from before its remark, then those of its teachers' starts."""
    named: dict[int, list[str]] = {}
    return {name: _with_remark(method, among or methods, starts, named) for name, method in methods.items()}


def _with_remark(
    method: Method, methods: Mapping[str, Method], starts: Mapping[str, Start], named: dict[int, list[str]]
) -> Method:
    start = _start_behind(method, methods)
    remarks = [starts[start].remark] if start else []
    for teacher in _teachers(method, methods, named):
        other = _start_behind(methods[teacher], methods)
        if other and other != start and starts[other].remark:
            remarks.append(f"learns from {methods[teacher].label}, which {starts[other].remark}")
    joined = "; ".join(filter(None, [*remarks, method.remark]))
    return method if joined == method.remark else method.model_copy(update={"remark": joined})


def _teachers(method: Method, methods: Mapping[str, Method], named: dict[int, list[str]]) -> list[str]:
    """Name the recipes whose scores or labels a method learns from, or the recipe that it starts from.

    `named` remembers the teachers of settings, which all models of a chain share.
    """
    teachers: list[str] = []
    seen: set[str] = set()
    while isinstance(method, TrainedMethod):
        settings = method.settings
        if id(settings) not in named:
            named[id(settings)] = [name for stage in settings.chain.values() for name in _teachers_of(stage)]
        teachers += named[id(settings)]
        parent = start_of(init_of(method), methods)
        if parent is None or parent[0] in seen:
            break
        seen.add(parent[0])
        method = methods[parent[0]]
    return [name for name in dict.fromkeys(teachers) if name in methods]


def _teachers_of(stage: ChainStage) -> list[str]:
    teacher = stage.find("teacher")
    return [*([teacher] if teacher else []), *(name for keys in stage.added for name in keys.teachers)]


def _start_behind(method: Method, methods: Mapping[str, Method]) -> str:
    """Name the start of a method or of the recipe that it starts from; empty where there is none."""
    seen: set[str] = set()
    while isinstance(method, TrainedMethod) and not method.start:
        parent = start_of(init_of(method), methods)
        if parent is None or parent[0] in seen:
            return ""
        seen.add(parent[0])
        method = methods[parent[0]]
    return method.start if isinstance(method, TrainedMethod) else ""
