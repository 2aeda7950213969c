"""The audit holds ranges of columns against rows as readers compare them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sink.audit.content.indexes import Extent

NAN, INFINITY = math.nan, math.inf


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [
        (1.0, 5.0, True),
        (1.0, INFINITY, True),
        pytest.param(1.0, NAN, True, id="Java's NaN is the greatest number"),
        pytest.param(NAN, NAN, False, id="and so no lower bound"),
        (1.0, 4.0, False),
        (2.0, NAN, False),
        (None, None, False),
    ],
)
def test_a_range_holds_if_no_row_is_beyond_it(low: Any, high: Any, holds: bool) -> None:
    assert Extent(1.0, 5.0).within(low, high) is holds


def test_a_column_of_nan_or_of_nulls_is_within_any_range() -> None:
    assert Extent().within(None, None)
    assert Extent().within(0.0, 0.0)


def test_extents_of_row_groups_add_up() -> None:
    extent = Extent()
    for part in (Extent(nulls=2), Extent(2.0, 3.0, 1), Extent(1.0, 2.5)):
        extent.add(part)
    assert extent == Extent(1.0, 3.0, 3)
