"""The cost of a transaction grows at most in proportion to the fleet and the partitions."""

from __future__ import annotations

import pytest

from tests.simulation.scale import ZNODE_LIMIT, Cost, costs


@pytest.fixture(scope="module")
def small_to_large() -> tuple[Cost, Cost, Cost]:
    single, double, quadruple = costs([(10, 100), (20, 200), (40, 400)])
    return single, double, quadruple


@pytest.mark.parametrize("figure", ["multis", "operations", "written", "reads", "read", "most_children"])
def test_a_fleet_of_twice_the_size_costs_at_most_twice_as_much(
    small_to_large: tuple[Cost, Cost, Cost], figure: str
) -> None:
    single, double, quadruple = (getattr(cost, figure) for cost in small_to_large)
    assert single > 0
    assert quadruple - double <= 2.05 * (double - single)


@pytest.mark.parametrize("size", [(40, 6_500), pytest.param((100, 20_000), marks=pytest.mark.thorough)])
def test_nothing_comes_near_what_zookeeper_takes(size: tuple[int, int]) -> None:
    """The bytes written for one transaction are more than ZooKeeper takes in one request."""
    (large,) = costs([size])
    assert large.written > ZNODE_LIMIT
    assert max(large.largest_znode, large.largest_multi) < ZNODE_LIMIT / 1.5
