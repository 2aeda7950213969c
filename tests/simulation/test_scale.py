"""The cost of a transaction grows with the fleet and with the partitions, at most in proportion."""

from __future__ import annotations

import pytest

from tests.simulation.scale import ZNODE_LIMIT, Cost, costs


@pytest.fixture(scope="module")
def small_to_large() -> tuple[Cost, Cost, Cost]:
    one, two, four = costs([(10, 100), (20, 200), (40, 400)])
    return one, two, four


@pytest.mark.parametrize("what", ["multis", "operations", "written", "reads", "read", "most_children"])
def test_a_fleet_of_twice_the_size_costs_at_most_twice_as_much(
    small_to_large: tuple[Cost, Cost, Cost], what: str
) -> None:
    one, two, four = (getattr(cost, what) for cost in small_to_large)
    assert one > 0
    assert four - two <= 2.05 * (two - one)


def test_nothing_comes_near_what_zookeeper_takes() -> None:
    """Where all that is written for one transaction is more than it takes at once."""
    (large,) = costs([(100, 20_000)])
    assert large.written > ZNODE_LIMIT
    assert max(large.largest_znode, large.largest_multi) < ZNODE_LIMIT / 1.5
