"""Build and draw items about adaptation and parameters (DDR figure 4, table 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.errors import ArtifactError
from zerodr.papers.ddr.items import AdaptationItem, ModuleLossesItem, ParametersItem
from zerodr.reporting.item_facts import WEIGHTS, written_parameters
from zerodr.reporting.item_inputs import METRIC, ItemParams, ItemTable, Report, gain, level, printed, read_scores
from zerodr.reporting.panels import bars, legend, panels, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {METRIC: "nDCG@10", "recall_1000": "R@1000"}


def adaptation(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare a measure over the steps on the target, and that of references, which have none."""
    assert isinstance(item, AdaptationItem)
    metric, rows = item.measure, []
    scores = read_scores(stage.paths("per_query"), metric)
    for name in settings.collections:
        for line, models in settings.points.items():
            for model, steps in models.items():
                values, first = scores[model, name], scores[next(iter(models)), name]
                mean = level(values, settings.bootstrap_samples, stage.seed).columns(metric)
                over_first = gain(values, first, settings.bootstrap_samples, stage.seed).columns("gain")
                row = {"collection": name, "line": line, "method": model, "steps": steps}
                rows.append(row | {"reference": line in item.references} | mean | over_first)
    durations = ({**row, "steps": "-" if row["reference"] else row["steps"]} for row in rows)
    columns = {
        "": "{collection}",
        "method": "{method}",
        "steps": "{steps}",
        NAMES.get(metric, metric): f"{{{metric}:.4f}}",
    }
    columns |= {"gain": "{gain_interval}"}
    notes = [
        "steps: optimiser steps on the target's texts; gain: over the line's first model; 95 % intervals over queries"
    ]
    return ItemTable(pd.DataFrame(rows), notes, printed(durations, settings, columns))


def parameters(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Count the parameters that supervised learning trains, and those at inference, as shares of the backbone's.

    Raises:
        ArtifactError: a model has no lineage record, or no weights in the plain form.
    """
    assert isinstance(item, ParametersItem)
    rows = []
    for method, path in zip(item.methods, stage.paths("models"), strict=True):
        written, record = written_parameters(path.parent / WEIGHTS), read_record(path)
        if record is None:
            raise ArtifactError(path, "has no lineage record, so its modules aren't known", "run its target again")
        plain = {"backbone": written, "lora": 0, "parallel_adapter": 0, "trained": written}
        facts = {key: int((record["notes"].get("rem") or plain)[key]) for key in plain}
        shares = {"trained_share": facts["trained"] / facts["backbone"], "inference": written}
        rows.append({"method": method} | facts | shares | {"inference_extra": written / facts["backbone"] - 1})
    numbers = {"backbone": "backbone", "LoRA": "lora", "parallel adapter": "parallel_adapter", "trained": "trained"}
    columns = {"": "{method}", **{heading: f"{{{key}:,}}" for heading, key in numbers.items()}}
    columns |= {"share": "{trained_share:.2%}", "at inference": "{inference:,}", "more": "{inference_extra:+.2%}"}
    notes = [
        "trained: by supervised learning; at inference: numbers in the plain model's weights file, modules folded "
        "in; shares are of the backbone with its embeddings"
    ]
    counted = {"trained_share": "trainable_params", "inference_extra": "inference_params"}
    measured = {(str(row["method"]), "", name): float(row[key]) for row in rows for key, name in counted.items()}
    return ItemTable(pd.DataFrame(rows), notes, printed(rows, settings, columns), measured)


def module_losses(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Show the loss on held-out texts before and after pretraining stages: the mean over seeds, and the fall of each.

    Raises:
        ArtifactError: a model's record has no such loss.
    """
    assert isinstance(item, ModuleLossesItem)
    rows = list[dict[str, Any]]()
    for path, fact in zip(stage.paths("models"), settings.values, strict=True):
        record = read_record(path) or {"notes": {}}
        losses = {
            k: v for k, v in record["notes"].get("before_and_after", {}).items() if k.startswith(f"{item.measure}.")
        }
        if not losses:
            problem = f"has no {item.measure} of held-out texts in its record"
            raise ArtifactError(path, problem, "name a pretraining stage with training.dev_queries above 0")
        rows += [
            fact | {"corpus": name.removeprefix(f"{item.measure}."), "before": before, "after": after}
            for name, (before, after) in losses.items()
        ]
    frame = pd.DataFrame(rows).assign(fall=lambda rows: rows["before"] - rows["after"])
    groups = frame.groupby(["model", "corpus"], sort=False)
    by_seed = frame.pivot(index=["model", "corpus"], columns="seed", values="fall").add_prefix("fall_seed")
    frame = groups[["before", "after", "fall"]].mean().join(by_seed).reset_index()
    columns = {
        "": "{model}",
        "texts of": "{corpus}",
        "before": "{before:.3f}",
        "after": "{after:.3f}",
        "fall": "{fall:+.3f}",
    }
    columns |= {f"seed {name.removeprefix('fall_seed')}": f"{{{name}:+.3f}}" for name in by_seed}
    labelled = frame.replace({"model": settings.methods, "corpus": dict(settings.collections)})
    notes = [f"{item.measure} in nats on texts that training held out; means over seeds, and the fall with each"]
    return ItemTable(frame, notes, printed(labelled.to_dict("records"), settings, columns))


def draw_adaptation(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a panel a collection: a measure over steps on the target; references as level lines."""
    metric = str(settings.item.get("measure", METRIC))
    figure, every = panels(len(settings.collections))
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        for number, line in enumerate(settings.points):
            rows = frame[(frame["collection"] == name) & (frame["line"] == line)]
            if rows["reference"].iloc[0]:
                look = {"color": style(number)["color"], "linestyle": "--", "linewidth": 1.0}
                axes.axhline(rows[metric].iloc[0], label=settings.methods[line], **look)
            else:
                look = style(number) | {"markersize": 4, "linewidth": 1.2}
                axes.errorbar(rows["steps"], rows[metric], yerr=bars(rows, metric), label=line, **look)
        axes.set_title(label, fontsize=9)
        axes.set_xlabel("steps on the target's texts")
    every[0].set_ylabel(NAMES.get(metric, metric))
    legend(figure, every[0])
    return figure


REPORT = Report(
    {"adaptation": adaptation, "parameters": parameters, "module_losses": module_losses},
    {"adaptation": draw_adaptation},
)
