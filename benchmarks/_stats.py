"""The numbers under a measurement: median, 95th percentile, and between what bounds the true median lies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
LEAST_CHANGE = 0.05
"""A median that moved by less is not worth a word, however sure it is."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The median is in it with this confidence, whatever the samples' distribution."""

    low: float
    high: float
    confidence: float
    """less than was asked for where there are too few samples: then it is the whole of them"""


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that so many of them do not exceed."""
    return sorted(samples)[max(0, math.ceil(len(samples) * share) - 1)]


def interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """From order statistics: of n samples, k below the median is binomial, so no distribution is assumed."""
    ordered = sorted(samples)
    count = len(ordered)
    chances = [math.comb(count, below) / 2**count for below in range(count + 1)]
    cut = 0
    while cut + 1 < count - 1 - cut and 1 - 2 * sum(chances[: cut + 2]) >= confidence:
        cut += 1
    return Interval(ordered[cut], ordered[count - 1 - cut], 1 - 2 * sum(chances[: cut + 1]))


def moved(before: Sequence[float], after: Sequence[float]) -> float | None:
    """By what factor the median moved; None where that may be noise: the intervals overlap, or it is too little."""
    old, new = interval(before), interval(after)
    if old.low <= new.high and new.low <= old.high:
        return None
    was, factor = statistics.median(before), math.inf
    if was:
        factor = statistics.median(after) / was
    return factor if abs(factor - 1) >= LEAST_CHANGE else None
