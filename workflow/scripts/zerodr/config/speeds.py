"""Typed form of config/speeds.yaml: rates for jobs whose like has not run in a checkout."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from pydantic import Field

from zerodr.config.base import Settings, validate
from zerodr.config.files import read_yaml

FILE = Path("config/speeds.yaml")


class Device(Settings):
    """Rate of matrix products, in thousand million operations a second."""

    encode_fp32_gflops: float
    """Forward passes in float32."""
    encode_bf16_gflops: float
    """Forward passes in bfloat16."""
    train_fp32_gflops: float
    """Training in float32."""
    train_bf16_gflops: float
    """Training in bfloat16."""

    def rate(self, work: Literal["encode", "train"], precision: str) -> float:
        """Operations a second."""
        return 1e9 * float(getattr(self, f"{work}_{'fp32' if precision == 'fp32' else 'bf16'}_gflops"))


class TextTokens(Settings):
    """Tokens of a text that no length limit cuts."""

    query: int
    """Of a query."""
    document: int
    """Of a document."""


class Limits(Settings):
    """Time that a job asks a scheduler for, from its estimate."""

    times_finished: float = Field(ge=1)
    """Multiple of an estimate that comes from finished jobs."""
    times_reckoned: float = Field(ge=1)
    """Multiple of another one."""
    least_minutes: int = Field(ge=1)
    """Whatever the estimate."""

    def minutes(self, seconds: float, finished: bool) -> int:
        """Time limit of a job of estimated `seconds`, `finished` when these come from finished jobs."""
        times = self.times_finished if finished else self.times_reckoned
        return max(self.least_minutes, math.ceil(times * seconds / 60))


class Speeds(Settings):
    """Rates for time estimates of rules without a finished job."""

    cpu_core: dict[str, Device] = Field(min_length=1)
    """One core of a processor, by the best instructions that it has: the first of these keys among its flags, else the
    last one."""
    gpu: Device
    """One GPU."""
    text_tokens: TextTokens
    """Usual lengths of texts."""
    question_seconds: float
    """Of a question that a small language model writes, which a package ships."""
    limits: Limits
    """Time limits."""
    jobs: dict[str, tuple[float, float]]
    """Of rules without a model: seconds of any job, and for each million units that it reads."""

    def core(self, flags: Collection[str]) -> Device:
        """Return the rates of a core of the processor with these flags."""
        return self.cpu_core[next((name for name in self.cpu_core if name in flags), [*self.cpu_core][-1])]


def read_speeds(root: Path) -> Speeds:
    """Read a checkout's speeds.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    return validate(Speeds, read_yaml(root / FILE), FILE.as_posix())
