"""The numbers under a measurement, against known answers."""

import random
import statistics

import pytest
from _stats import interval, moved, percentile


def test_the_percentile_is_a_sample_that_so_many_do_not_exceed() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert percentile(samples, 0.95) == 95 and percentile(samples, 0.5) == 50 and percentile(samples, 1) == 100
    assert percentile([7.0], 0.95) == 7


def test_the_interval_is_the_one_of_the_tables() -> None:
    """Order statistics of the binomial: for n = 10 the 2nd and 9th hold 97.9 %, for n = 20 the 6th and 15th 95.9 %."""
    ten, twenty = (interval([float(number) for number in range(1, count + 1)]) for count in (10, 20))
    assert (ten.low, ten.high, round(ten.confidence, 3)) == (2, 9, 0.979)
    assert (twenty.low, twenty.high, round(twenty.confidence, 3)) == (6, 15, 0.959)


def test_too_few_samples_give_all_of_them_and_say_how_little_that_is() -> None:
    few = interval([3.0, 1.0, 2.0])
    assert (few.low, few.high, few.confidence) == (1, 3, 0.75)
    assert interval([5.0]).confidence == 0


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    chance = random.Random(4)
    inside = 0
    for _ in range(400):
        found = interval([chance.expovariate(1.0) for _ in range(25)])
        inside += found.low <= 0.6931 <= found.high
    assert inside / 400 > 0.92


def test_a_change_counts_when_it_is_beyond_the_noise() -> None:
    chance = random.Random(7)
    before = [chance.gauss(100, 5) for _ in range(40)]
    again, slower = [chance.gauss(100, 5) for _ in range(40)], [chance.gauss(130, 5) for _ in range(40)]
    assert moved(before, again) is None
    assert moved(before, slower) == pytest.approx(1.3, abs=0.05)
    assert moved(slower, before) == pytest.approx(0.77, abs=0.05)


def test_a_change_that_is_sure_but_tiny_does_not_count() -> None:
    before, after = [100 + n / 1000 for n in range(40)], [103 + n / 1000 for n in range(40)]
    assert moved(before, after) is None
    assert statistics.median(after) > statistics.median(before)
