"""What a coordinator's term is configured with, and what it remembers of its open transactions."""

from __future__ import annotations

from dataclasses import dataclass

from coordination.offsets import DataLossPolicy, OffsetReset
from coordination.slicing import Limits
from coordination.tolerance import NO_ERRORS, ErrorLimits


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """Durations in seconds.

    `lock_path` is this term's contender znode, relative to the sink's root. A batch that has failed
    `divide_after` times is divided. `republish_after` is how many commits by others may follow our checkpoint
    before it is published again, ahead of archiving. `flush_bytes` bounds a transaction by what its records are
    estimated to weigh; with `allow_empty` one is made at every interval, with or without records. A transaction with
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

    @property
    def poll(self) -> float:
        """How often the log is looked at between transactions."""
        return min(1.0, self.interval / 4)


@dataclass(slots=True)
class Memory:
    """What this term knows of one open transaction beyond its znodes."""

    begun: str | None = None
    started_at: float | None = None
    unheld: bool = False
    refused: str | None = None
    counted: bool = False
    """Whether its commit is known to who decides how much the next batch takes on."""
