"""The configuration of a coordinator."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from coordination.planning.offsets import DataLossPolicy, OffsetReset
from coordination.planning.slicing import Limits
from coordination.planning.tolerance import NO_ERRORS, ErrorLimits
from coordination.planning.write_tasks import USUAL_SIZES, TaskSizes


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """Durations in seconds.

    `lock_path` is this term's contender znode, relative to the sink's root. A batch that has failed
    `divide_after` times is divided. `republish_after` is how many commits of other writers may follow the sink's
    checkpoint before it is published again, ahead of archiving. Topics that match `topic_pattern` are the sink's
    besides `topics`. `flush_bytes` bounds the estimated bytes of a transaction's records, and `task_sizes` those of its
    write tasks; with `allow_empty` a transaction is made at every interval, with or without records. A transaction with
    more bad records than `errors` allows halts the sink.
    """

    sink: str
    incarnation: str
    lock_path: str
    config_digest: str
    topics: tuple[str, ...]
    limits: Limits
    interval: float
    timeout: float
    in_flight: int = 1
    reset: OffsetReset = OffsetReset.EARLIEST
    on_data_loss: DataLossPolicy = DataLossPolicy.FAIL
    single_writer: bool = False
    divide_after: int = 3
    republish_after: int = 20
    flush_bytes: int | None = None
    allow_empty: bool = False
    errors: ErrorLimits = NO_ERRORS
    task_sizes: TaskSizes = USUAL_SIZES
    topic_pattern: str | None = None

    @property
    def poll(self) -> float:
        """Seconds between two readings of the log while no transaction is open."""
        return min(1.0, self.interval / 4)

    @property
    def first_interval(self) -> float:
        """A term's first interval, shortened by a part that the sink's name decides: sinks of one process that begin
        together would all commit together, interval after interval.
        """
        return self.interval * (1 - zlib.crc32(self.sink.encode()) / 2**32)
