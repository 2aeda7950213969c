"""The exceptions that this project raises on purpose.

A message says what happened, where (topic, partition, offset, znode, file, setting) and what to do. "Certainly failed"
and "outcome unknown" are different types: a caller may try the first again, and has to read back the second before it
decides anything else.
"""

from __future__ import annotations


class SinkError(Exception):
    """Root of the tree."""


class Conflict(SinkError):
    """A compare-and-set was refused: another process decided first. Certainly without effect."""


class NotLeader(Conflict):
    """A coordinator's write was refused because its lock znode or its epoch is no longer in force."""


class OutcomeUnknown(SinkError):
    """The request may have had its effect, may have it later, or never. Read back; never guess."""


class Unavailable(SinkError):
    """A service cannot be reached; nothing was changed. Worth trying again."""


class Corrupt(SinkError):
    """Stored content that cannot be understood: znode, checkpoint or status. Never treated as absent."""


class OtherVersion(SinkError):
    """A record of another protocol version, older or newer. Nothing is written where one is."""


class ConfigError(SinkError):
    """Settings that cannot be used; the message names the setting and the remedy."""


class TableError(SinkError):
    """The table at the base path cannot be used as configured."""


class OffsetError(SinkError):
    """An error at one offset of a partition."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"{topic}-{partition} offset {offset}: {reason}")
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason


class BadRecord(OffsetError):
    """A record that cannot be decoded, with its coordinates."""


class DataLoss(OffsetError):
    """The log no longer holds a range that a plan names."""
