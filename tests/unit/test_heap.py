"""A heap has room for so many sinks and slots, and one that is too small is refused."""

from __future__ import annotations

import pytest

from coordination.errors import ConfigError
from sink.clients.heap import MOST_SLOTS, heap_bytes, least_heap, require_room, slots

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1g", 1024), ("768m", 768), ("768M", 768), ("512", 512), (" 2gb ", 2048), ("524288k", 512), ("1t", 1 << 20)],
)
def test_a_size_is_read_as_spark_reads_it(size: str, expected: int) -> None:
    assert heap_bytes(size) == expected * MIB


@pytest.mark.parametrize("size", ["", "g", "2 GB", "1.5g", "-1g", "much"])
def test_a_size_that_spark_refuses_is_left_to_java(size: str) -> None:
    assert heap_bytes(size) is None
    assert require_room(size, 30).startswith("spark.driver.memory is")


def test_a_heap_that_is_too_small_is_refused_with_the_figure_and_what_to_do() -> None:
    needed = least_heap(200) // MIB
    with pytest.raises(ConfigError, match=f"spark.driver.memory: 768m is too little: 200 sinks need {needed}m"):
        require_room("768m", 200)
    assert require_room(f"{needed}m", 200) == f"spark.driver.memory is {needed}m; 200 sinks need {needed}m"


@pytest.mark.parametrize(("sinks", "size"), [(1, "512m"), (3, "768m"), (3, "1g"), (30, "1g")])
def test_small_fleets_have_room_in_what_the_docs_recommend(sinks: int, size: str) -> None:
    require_room(size, sinks)


def test_slots_follow_the_heap_and_leave_room_for_sinks_and_cores() -> None:
    by_heap = [slots(size * MIB, sinks=3, cores=2) for size in range(256, 4096, 64)]
    assert by_heap == sorted(by_heap)
    assert (by_heap[0], by_heap[-1]) == (1, MOST_SLOTS)
    assert slots(1024 * MIB, 3, 2) > slots(1024 * MIB, 60, 2)
    assert slots(1024 * MIB, 3, 1) > slots(1024 * MIB, 3, 4)
