"""A JVM that does nothing but collect garbage for some time counts as gone; one that collects often does not."""

from __future__ import annotations

import pytest

from sink.runtime.watches.jvm_watchdog import COLLECTING_SECONDS, Collections


@pytest.mark.parametrize(
    ("share", "is_exhausted"), [(0.0, False), (0.5, False), (0.9, False), (0.97, True), (1.0, True)]
)
def test_only_a_jvm_that_does_nothing_else_is_exhausted(share: float, is_exhausted: bool) -> None:
    now = 0.0
    collections = Collections(lambda: share * now)
    reasons = set()
    for now in range(int(3 * COLLECTING_SECONDS)):
        reasons.add(collections.exhausted(float(now)))
    assert any("spark.driver.memory" in reason for reason in reasons) == is_exhausted


def test_a_burst_of_collections_is_no_exhaustion_and_is_forgotten() -> None:
    spent = 0.0
    collections = Collections(lambda: spent)
    for second in range(200):
        if second % int(COLLECTING_SECONDS) < COLLECTING_SECONDS / 2:
            spent += 1
        assert not collections.exhausted(float(second))


def test_a_jvm_that_was_not_asked_for_long_is_judged_by_the_whole_time() -> None:
    spent = 0.0
    collections = Collections(lambda: spent)
    collections.exhausted(0.0)
    spent = 30.0
    assert not collections.exhausted(60.0)
    spent = 89.0
    assert collections.exhausted(90.0)
