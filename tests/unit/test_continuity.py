"""A commit adds to each partition the offsets from where the table is, in one piece, or is refused."""

from __future__ import annotations

import re

import pytest

from coordination.planning.continuity import discontinuity
from coordination.state.model import Checkpoint, PartitionCheckpoint, Slice, SliceResult, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def checkpoint(
    ends: dict[TopicPartition, tuple[int, int]], *slices: tuple[TopicPartition, int, int, int]
) -> Checkpoint:
    """`ends`: end and generation; `slices`: partition, start, end, generation."""
    results = tuple(
        SliceResult(Slice(source.topic, source.partition, start, end, "id", generation), end - start, 0)
        for source, start, end, generation in slices
    )
    checkpoints = {source: PartitionCheckpoint(*end) for source, end in ends.items()}
    return Checkpoint("s", "k", "c", 1, 2, 1, "config", {"orders": "id"}, checkpoints, results)


TABLE = checkpoint({P0: (50, 1), P1: (10, 1)})

CONTINUES = {
    "slices in any order": checkpoint({P0: (90, 1), P1: (10, 1)}, (P0, 70, 90, 1), (P0, 50, 70, 1)),
    "nothing new": checkpoint({P0: (50, 1), P1: (10, 1)}),
    "a partition that is new to the table": checkpoint(
        {P0: (50, 1), P1: (10, 1), TopicPartition("orders", 2): (9, 0)}, (TopicPartition("orders", 2), 4, 9, 0)
    ),
    "a gap or a reset, under a higher generation": checkpoint({P0: (90, 2), P1: (10, 1)}, (P0, 80, 90, 2)),
    "a reset that nothing follows yet": checkpoint({P0: (0, 2), P1: (10, 1)}),
}
BREAKS = {
    "a hole to the table": (checkpoint({P0: (90, 1), P1: (10, 1)}, (P0, 60, 90, 1)), "follows offset 50"),
    "offsets that the table has": (checkpoint({P0: (90, 1), P1: (10, 1)}, (P0, 40, 90, 1)), "follows offset 50"),
    "a hole between slices": (
        checkpoint({P0: (90, 1), P1: (10, 1)}, (P0, 50, 60, 1), (P0, 70, 90, 1)),
        r"orders-0\[70, 90\) follows offset 60",
    ),
    "an overlap under a higher generation": (
        checkpoint({P0: (90, 2), P1: (10, 1)}, (P0, 0, 60, 2), (P0, 50, 90, 2)),
        "follows offset 60",
    ),
    "another end than the slices'": (
        checkpoint({P0: (95, 1), P1: (10, 1)}, (P0, 50, 90, 1)),
        "orders-0 ends at 90, its checkpoint says 95",
    ),
    "an idle partition that moves": (checkpoint({P0: (50, 1), P1: (20, 1)}), "orders-1 ends at 10"),
    "a lower generation": (checkpoint({P0: (90, 0), P1: (10, 1)}, (P0, 50, 90, 0)), "generation 0, the table's of 1"),
    "a slice of another generation": (checkpoint({P0: (90, 2), P1: (10, 1)}, (P0, 50, 90, 1)), "is of generation 1"),
    "a partition that is left out": (checkpoint({P0: (50, 1)}), "orders-1 is not in its checkpoint"),
    "slices of a partition that is left out": (
        checkpoint({P0: (50, 1), P1: (10, 1)}, (TopicPartition("orders", 2), 0, 5, 0)),
        "orders-2 is not in its checkpoint",
    ),
}


@pytest.mark.parametrize("case", CONTINUES)
def test_what_goes_on_where_the_table_is_passes(case: str) -> None:
    assert discontinuity(CONTINUES[case], TABLE) is None


@pytest.mark.parametrize("case", BREAKS)
def test_what_does_not_is_refused_with_where(case: str) -> None:
    broken, reason = BREAKS[case]
    assert re.search(reason, discontinuity(broken, TABLE) or "it passes")


def test_the_first_commit_of_a_table_begins_anywhere_and_has_no_hole() -> None:
    assert discontinuity(checkpoint({P0: (90, 0)}, (P0, 20, 60, 0), (P0, 60, 90, 0)), None) is None
    assert discontinuity(checkpoint({P0: (90, 0)}, (P0, 20, 60, 0), (P0, 70, 90, 0)), None) is not None
