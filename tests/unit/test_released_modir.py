"""Mode official of MoDIR against what its released code answered, at the recipes' own sizes."""

from __future__ import annotations

import pytest
import torch
from tests.unit.released import answers

from zerodr.config.load import load_bench
from zerodr.config.methods import TrainedMethod
from zerodr.papers.modir.domain_classifier import MomentumQueue
from zerodr.papers.modir.objective import Adversary, EncodedDomains
from zerodr.papers.modir.settings import AdversarySettings, adversary_of
from zerodr.training.optimizers import Lamb, schedule, set_rate

STEPS, TEXTS = 20, 4


@pytest.fixture(scope="module")
def paper_bench(root):
    return load_bench(root, {"scale": "paper"})


@pytest.mark.parametrize("recipe", ["modir-ance+official", "modir-dpr+official"])
def test_an_update_reads_the_entries_of_the_released_code(recipe, paper_bench):
    """Queue of 1,000 entries, 20 updates: entries 1 to 999 from the oldest, 50 in an update."""
    method = paper_bench.methods[recipe]
    assert isinstance(method, TrainedMethod)
    stage = method.settings.chain["modir1"]
    settings, training = adversary_of(stage), stage.training
    assert settings is not None and settings.official
    size = training.batch_queries // training.accumulation
    assert (settings.queue_length, settings.updates, settings.batches_per_update) == (1000, 20, 50)
    queue, released = MomentumQueue(settings.queue_length, size, 1, 1), answers("modir_queue")
    for fill in range(1, settings.queue_length + 1):
        queue.push(torch.full((size, 1, 1), float(fill - 1)))
        for expected in released["read"][released["fills"] == fill]:
            read = torch.stack(list(queue.in_order(settings.updates, settings.batches_per_update)))
            assert torch.equal(read.reshape(20, 50, size)[:, :, 0].long(), expected.long())
            assert read.shape == (20, 50 * size, 1, 1), "an update reads whole entries, whatever their size"


@pytest.mark.parametrize(
    ("run", "loss", "scale", "accumulation"),
    [
        ("a1.x7.confusion.clip", "confusion", 7.0, 1),
        ("a4.x1.confusion.clip", "confusion", 1.0, 4),
        ("a4.x7.minimax.clip", "minimax", 7.0, 4),
    ],
)
def test_twenty_steps_of_the_released_code(run, loss, scale, accumulation):
    """Seen: classifier 8e-8, encoder 3e-8, loss 5e-7. Without clipping the classifier is off by more than 1e-2."""
    released = answers("modir_adversary")
    weight, adversary, seen = released["encoder0"].clone().requires_grad_(), adversary_of_run(loss, accumulation), []
    adversary.classifier.weight.data.copy_(released["classifier0"])
    optimizer, rate = Lamb([weight], lr=1e-3), schedule("linear", 5, 1000)
    inputs = iter(released["inputs"] * scale)
    for step in range(STEPS):
        weight.grad = None
        for _ in range(accumulation):
            vectors = next(inputs) @ weight
            terms = adversary(batch_of(step, vectors))
            scores = torch.einsum("bd,bkd->bk", vectors[0], vectors[1:3].transpose(0, 1))
            ranking = -scores.log_softmax(-1)[:, 0].mean()
            ((ranking + terms[loss]) / accumulation).backward()
        seen.append(float(terms[loss].detach()))
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        set_rate(optimizer, 1e-3 * rate(step))
        optimizer.step()
        adversary.on_step(step + 1)
    assert seen == pytest.approx(released[f"{run}.adversarial_loss"].tolist(), abs=5e-6)
    torch.testing.assert_close(weight.detach(), released[f"{run}.encoder"], rtol=0, atol=1e-6)
    torch.testing.assert_close(adversary.classifier.weight.data, released[f"{run}.classifier"], rtol=0, atol=1e-6)


def adversary_of_run(loss: str, accumulation: int) -> Adversary:
    """The adversary of the runs."""
    settings = AdversarySettings(
        mode="official", loss=loss, half_life_steps=50, queue_length=20, updates=4, learning_rate=0.01
    )
    rate = schedule("linear", 5, 1000)
    return Adversary("run", settings, TEXTS * accumulation, 8, [0], rate, micro_batches=accumulation)


def batch_of(step: int, vectors: torch.Tensor) -> EncodedDomains:
    """Vectors (5, 4, 8) of source query, positive, negative, target query, target document."""
    documents = vectors[1:3].transpose(0, 1)
    return EncodedDomains(step, vectors[0], documents, target_documents=vectors[4], target_queries=vectors[3])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"minibatch": 200}, "mode official reads queue_length / updates batches in an update: leave minibatch out"),
        ({"queue_length": 1000, "updates": 30}, "1000 is no multiple of 30"),
    ],
)
def test_sizes_that_the_released_code_can_not_have(values, said):
    with pytest.raises(ValueError, match=said):
        AdversarySettings(mode="official", **values)
