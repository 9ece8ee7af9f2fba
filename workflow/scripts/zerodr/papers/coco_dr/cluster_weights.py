"""Update cluster weights from cluster losses and similarities, by mode. No network here."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from zerodr.papers.coco_dr import losses as dro
from zerodr.papers.coco_dr.settings import OFFICIAL_FLOOR, GroupSettings


@dataclass(frozen=True)
class SeenClusters:
    """Clusters of a batch, of all processes.

    Attributes:
        members: (B,) index of each query's cluster among the present ones.
        present: (n,) indices of these among all K clusters, ascending.
        counts: (n,) queries of each.
        losses: (n,) mean losses, with graph.
    """

    members: Tensor
    present: Tensor
    counts: Tensor
    losses: Tensor

    @classmethod
    def of(cls, clusters: Tensor, losses: Tensor) -> SeenClusters:
        """From the cluster, 0 to K - 1, and the loss of each query, (B,)."""
        present, members = torch.unique(clusters, return_inverse=True)
        shares = torch.nn.functional.one_hot(members, len(present)).to(losses.dtype).T  # (n, B)
        counts = shares.sum(1)
        return cls(members, present, counts, shares @ losses / counts)

    def spread(self, values: Tensor, clusters: int) -> Tensor:
        """Put (n,) values of the present clusters among all K, zeros elsewhere; float64 on the CPU."""
        filled = torch.zeros(clusters, dtype=torch.float64)
        filled[self.present.cpu()] = values.detach().double().cpu()
        return filled

    def mask(self, clusters: int) -> Tensor:
        """Return a mask of present clusters, (K,) bool."""
        filled = torch.zeros(clusters, dtype=torch.bool)
        filled[self.present.cpu()] = True
        return filled


@dataclass
class ClusterState:
    """State of cluster weights from step to step; float64 on the CPU.

    Attributes:
        omega: (K,) weights of clusters; (devices K,) of official's devices.
        added: (K,) similarities added up, where the temperature follows from them.
    """

    omega: Tensor
    added: Tensor

    @classmethod
    def start(cls, mode: str, clusters: int) -> ClusterState:
        """Before the first step: equal weights, which the released code calls ones."""
        equal = torch.full((clusters,), 1.0 / clusters, dtype=torch.float64)
        return cls(torch.ones_like(equal) if mode == "official" else equal, torch.zeros_like(equal))

    def tensors(self) -> dict[str, Tensor]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def powers(settings: GroupSettings, seen: SeenClusters) -> Tensor:
    """Compute alpha of the present clusters, (n,) float64 on the CPU."""
    losses = seen.losses.detach().double().cpu()
    return dro.loss_powers(losses, torch.ones(len(losses), dtype=torch.bool), settings.beta)


def similarity_sums(settings: GroupSettings, alpha: Tensor, gram: Tensor | None, rows: Tensor) -> Tensor:
    """Compute s of the present clusters (COCO-DR eq. 12), (n,).

    Args:
        gram: (n, n) inner products of cluster gradients, or None where `rows` is enough.
        rows: (n,) products of each with the sum of all, weighted by alpha, as `Agreement` has them.
    """
    if gram is None:
        return alpha * rows
    compared = dro.cosines(gram) if settings.similarity == "cosine" else gram
    return dro.row_sums(dro.similarities(compared, alpha), settings.exclude_self)


def device_sums(alphas: Tensor, gram: Tensor) -> Tensor:
    """Compute s of each device's clusters, (devices, K): their losses are the device's, gradients those of all.

    Args:
        alphas: (devices, K), 0 for clusters that a device lacks.
        gram: (K, K) inner products of gradients that are added up over devices.
    """
    return alphas * (alphas @ dro.cosines(gram))


def updated(
    settings: GroupSettings, state: ClusterState, sums: Tensor, present: Tensor, finished: int, steps: int
) -> tuple[ClusterState, float]:
    """Compute the state after a step with similarities `sums`, and its temperature.

    Args:
        sums, present: as long as the weights.
        finished: steps with this one; steps: of the episode.
    """
    if settings.mode == "official":
        devices = (values.view(settings.devices, -1) for values in (state.omega, sums, present))
        pieces = [
            dro.official_update(omega, losses, seen, settings.rho, settings.ema, OFFICIAL_FLOOR)
            for omega, losses, seen in zip(*devices, strict=True)
        ]
        return replace(state, omega=torch.cat(pieces)), sums.numel() / settings.devices / settings.rho
    if settings.effective is None:
        omega = dro.update_weights(state.omega, sums, present, settings.kappa, settings.temperature)
        return replace(state, omega=omega), settings.temperature
    omega, added, temperature = dro.steered_update(
        state.omega, state.added, sums, present, settings.kappa, settings.effective, finished / steps, steps
    )
    return replace(state, omega=omega / omega.sum(), added=added), temperature


def from_losses(settings: GroupSettings, state: ClusterState, seen: SeenClusters) -> ClusterState:
    """Compute the state after a step of group_dro, which reads losses alone; other modes keep theirs."""
    if settings.mode != "group_dro":
        return state
    clusters = len(state.omega)
    losses, present = seen.spread(seen.losses, clusters), seen.mask(clusters)
    return replace(state, omega=dro.group_dro_update(state.omega, losses, present, settings.eta))


def weights_of(settings: GroupSettings, omega: Tensor, seen: SeenClusters) -> Tensor:
    """Compute factors of the present clusters' mean losses, (n,) float64 on the CPU."""
    weights, ones = omega[seen.present.cpu()], torch.ones(len(seen.present), dtype=torch.bool)
    if settings.mode == "idro":
        return dro.loss_weights(weights, powers(settings, seen), ones, settings.normalise_present)
    if settings.mode == "alpha":
        return dro.loss_weights(torch.ones_like(weights), powers(settings, seen), ones)
    if settings.mode == "balanced":
        return dro.balanced_weights(ones)
    if settings.mode == "erm":
        return (seen.counts / seen.counts.sum()).double().cpu()
    return weights / settings.devices
