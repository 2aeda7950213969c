"""Texts joined row by row, as Arrow's own function joins them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink.layout.joined_texts import joined

TEXTS = st.sampled_from(["", "1", "22", "é", "33", None])
UNIFORM = st.lists(st.sampled_from(["10", "99", "é"]), min_size=4, max_size=4)
COLUMNS = st.one_of(UNIFORM, st.lists(TEXTS, min_size=4, max_size=4))


@given(COLUMNS, COLUMNS, st.text(max_size=3), st.integers(0, 2), st.integers(0, 2))
def test_texts_are_joined_as_arrow_joins_them(first, second, constant, start, length):
    columns = [pa.array(column, pa.string()).slice(start, length) for column in (first, second)]
    parts = [pa.scalar(constant), columns[0], pa.scalar("_"), columns[1]]
    joined_column = joined(*parts)
    joined_column.validate(full=True)
    assert joined_column.equals(pc.binary_join_element_wise(*parts, pa.scalar("")))


@pytest.mark.parametrize("offsets", [range(5, 9), range(8, 12), range(998, 1002)])
def test_numbers_may_gain_a_digit(offsets):
    numbers = pc.cast(pa.array(list(offsets)), pa.string())
    assert joined(pa.scalar("t_"), numbers).to_pylist() == [f"t_{offset}" for offset in offsets]
