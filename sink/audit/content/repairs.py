"""Which offsets of a slice a repair has landed again.

A row that was landed again is of the repair's commit, and decoded by what that commit says; in the order of the changes
of its key it stays where its record is. Pure; raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from sink.audit.checkpoints import AuditedSlice, LogPartition
from sink.audit.timeline import Commit

Again = Mapping[str, Sequence[tuple[LogPartition, int, int, int]]]
"""By the instant of the repair: partition, first offset, the one after the last, and the number of the commit that had
landed them before."""


def repaired(sink: str, commits: Sequence[Commit], slice_: AuditedSlice) -> Iterator[tuple[int, int, str]]:
    """Yields first offset, the one after the last, and the instant of the newest repair, empty without one, for all
    parts of a slice."""
    runs = [
        (commit.instant, run)
        for commit in commits
        if sink in commit.relanded
        for run in commit.relanded[sink].runs
        if run.covers_part_of(slice_)
    ]
    bounds = {at for _, run in runs for at in (run.low, run.high) if slice_.start < at < slice_.end}
    low = slice_.start
    for high in (*sorted(bounds), slice_.end):
        instants = [instant for instant, run in runs if run.low <= low < run.high]
        yield low, high, instants[-1] if instants else ""
        low = high


def as_before(
    again: Again, instant: str, sources: pa.Array, offsets: pa.Array, known: Mapping[LogPartition, int]
) -> pa.Array:
    """Returns for rows of a repair the numbers of the commits that had landed their records before; null for others.
    `sources` has the numbers of the rows' partitions, as in `known`."""
    ranges = [(known[source], low, high, number) for source, low, high, number in again[instant]]
    found = []
    for source, offset in zip(sources.to_pylist(), offsets.to_pylist(), strict=True):
        numbers = (n for own, low, high, n in ranges if own == source and low <= offset < high)
        found.append(next(numbers, None))
    return pa.array(found, pa.int32())
