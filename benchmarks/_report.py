"""The result of a run of the harness: what `--json` prints and docs/benchmarks/data.json holds."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Measured(_Part):
    """One contender in one case of a question."""

    name: str
    case: str
    """what is done; rows of one case (and one `at`) are compared with each other"""
    at: float | None
    """the size in bytes, or how many at once, where the question is how the cost grows"""
    who: Literal["ours", "floor", "peer"]
    """floor: the physical limit, or the same by hand with the raw interface"""
    unit: str
    """ms, op/s, MB …; more is better for op/s alone"""
    samples: list[float] = Field(min_length=1)
    """one for each round, in the order of rounds"""
    median: float
    p95: float
    low: float
    """the median lies between `low` and `high` …"""
    high: float
    confidence: float
    """… with this confidence, by order statistics"""
    baseline: str | None
    """name of the row that `ratio` compares with"""
    ratio: float | None
    """median, as a multiple of the baseline's"""
    goal: str
    """what this project set itself; nothing asserts it"""
    note: str

    @property
    def place(self) -> tuple[str, float | None, str]:
        """What it is the same measurement as, in another run."""
        return self.case, self.at, self.name


class Answer(_Part):
    """What one benchmark found."""

    name: str
    """the file: `exec` is benchmarks/bench_exec.py"""
    question: str
    command: str
    """makes it again"""
    engines: list[str]
    seconds: float
    left_out: dict[str, str]
    """contender -> why it did not take part"""
    rows: list[Measured]
    error: str = ""
    """why there are no rows"""


class Machine(_Part):
    """Where it was measured. Times of different machines cannot be compared."""

    cpu: str
    cores: int
    memory_mb: int
    kernel: str
    system: str
    python: str
    load_before: float
    """the one-minute load average when it began: above about 0.3 the numbers are noise"""
    versions: dict[str, str]
    """engine or tool -> version"""


class Report(_Part):
    """One run of `python -m benchmarks`."""

    schema_version: Literal[1] = 1
    started: str
    """ISO 8601, UTC"""
    seconds: float
    command: str
    quick: bool
    commit: str
    """of this repository; `+` behind it: with changes that are not committed"""
    machine: Machine
    peers: dict[str, str]
    """peer -> its version, or `not here: …`"""
    answers: list[Answer]
