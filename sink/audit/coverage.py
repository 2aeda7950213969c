"""The part of a table that an audit compares: `--since`, `--partition` and `--sample` leave out the rest.

A coverage that ends with the newest commit is a suffix: what a table must have lies in it, or is older.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import LogPartition

_ALL = 1 << 32


@dataclass(frozen=True, slots=True)
class Coverage:
    """`since`: the instant of the first commit that counts, empty for the first of all. `partitions`: only these, all
    if empty. `sample`: the share of the ranges whose contents are compared; the log is read all the same."""

    since: str = ""
    partitions: frozenset[LogPartition] = frozenset()
    sample: float = 1.0

    @property
    def is_whole(self) -> bool:
        return self.is_suffix and not self.since

    @property
    def is_suffix(self) -> bool:
        return not self.partitions and self.sample >= 1.0

    def has_log(self, source: LogPartition, instant: str) -> bool:
        """Whether the log of a range is read that this commit added."""
        return instant >= self.since and (not self.partitions or source in self.partitions)

    def has_contents(self, source: LogPartition, instant: str) -> bool:
        """Whether the contents of such a range are compared: the same ones each time."""
        return self.has_log(source, instant) and zlib.crc32(f"{source} {instant}".encode()) < self.sample * _ALL

    def ranges(self, ranges: Iterable[CommittedRange]) -> tuple[CommittedRange, ...]:
        """Returns those whose log is read."""
        return tuple(entry for entry in ranges if self.has_log(entry.source, entry.instant))

    def __str__(self) -> str:
        """Says what is left in; empty if that is all."""
        parts = [f"commits since {self.since}"] if self.since else []
        if self.partitions:
            parts.append(f"{', '.join(map(str, sorted(self.partitions)))} alone")
        if self.sample < 1.0:
            parts.append(f"{self.sample:.4g} of the ranges")
        return ", ".join(parts)


WHOLE = Coverage()
