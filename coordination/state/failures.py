"""How a task of a transaction can fail, and why a sink stops itself until an operator clears it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FailureKind(Enum):
    RETRYABLE = "RETRYABLE"
    """Worth another attempt, on another worker or a smaller plan."""
    BAD_RECORD = "BAD_RECORD"
    """A record that no attempt can decode: the sink halts and names it."""
    TOO_MANY_BAD_RECORDS = "TOO_MANY_BAD_RECORDS"
    """More bad records than are tolerated: the sink halts and names the first."""
    DATA_LOSS = "DATA_LOSS"
    """The log no longer holds the recorded range: planning looks again at the log."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    """Too much for a worker's memory: the batch is divided before its next attempt."""
    LOG_CHANGED = "LOG_CHANGED"
    """The log is not the one that was read before: the sink halts and names the record that differs."""
    LOG_DAMAGED = "LOG_DAMAGED"
    """A batch of the log cannot be read: the sink halts if the next attempt cannot read it either."""
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    """An id of the schema registry is another schema than before: the sink halts and names it."""
    STORE_AWAY = "STORE_AWAY"
    """The table's store was away, or refused. It counts as no attempt at the batch."""
    REGISTRY_AWAY = "REGISTRY_AWAY"
    """The schema registry was away. It counts as no attempt, too."""


AWAY = frozenset({FailureKind.STORE_AWAY, FailureKind.REGISTRY_AWAY})


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    reason: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class HaltKind(str, Enum):
    """Why a sink has stopped itself. An operator does something else about each."""

    BAD_RECORD = "bad-record"
    TOO_MANY_BAD_RECORDS = "too-many-bad-records"
    BAD_RECORDS_GONE = "bad-records-gone"
    """Somebody deleted bad records before they were published."""
    OFFSETS_DELETED = "offsets-deleted"
    TOPIC_RECREATED = "topic-recreated"
    PARTITIONS_GONE = "partitions-gone"
    LOG_TRUNCATED = "log-truncated"
    LOG_DAMAGED = "log-damaged"
    LOG_CHANGED = "log-changed"
    """The log lost its end and grew again."""
    SCHEMA_CHANGED = "schema-changed"
    """An id of the registry is another schema than before."""
    COLUMNS = "columns"
    """The table cannot have the columns of the records."""
    ANOTHER_CLUSTER = "another-cluster"
    FILE_IDS = "file-ids"
    """The table has file ids of a transaction that was not committed."""
    LANDED_BY_ANOTHER = "landed-by-another"
    TABLE_CHANGED = "table-changed"
    """Another writer has changed the table's properties."""
    ANOTHER_FLEET = "another-fleet"
    """The fleet of another tree commits under the sink's name."""
    ZNODES_GONE = "znodes-gone"
    TABLE_BEHIND = "table-behind"
    """ZooKeeper records more than the table has."""
    RESET_INTERRUPTED = "reset-interrupted"
    OTHER = "other"
    """The request's own input is at fault; the reason says how."""


@dataclass(frozen=True, slots=True)
class Halt:
    """A halt, and the place in the log that it names, if it names one. `at` is the wall clock of its coordinator."""

    kind: HaltKind
    reason: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """Why the table cannot have the columns of the next records."""

    kind: HaltKind
    reason: str
