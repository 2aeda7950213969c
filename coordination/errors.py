"""The exceptions that this project raises on purpose.

A message says what happened, where (topic, partition, offset, znode, file, setting) and what to do. "Certainly failed"
and "outcome unknown" are different types: a caller may try the first again, and has to read back the second before it
decides anything else.
"""

from __future__ import annotations


def in_sentences(*texts: str) -> str:
    """Returns the texts one after the other, each with one full stop: an error may end with its fix, or have none."""
    return " ".join(text if text.endswith((".", "?")) else f"{text}." for text in texts)


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

    def __reduce__(self) -> tuple[type[OffsetError], tuple[str, int, int, str]]:
        """Pickles the arguments: by default Python would pickle the text."""
        return type(self), (self.topic, self.partition, self.offset, self.reason)


class BadRecord(OffsetError):
    """A record that cannot be decoded, with its coordinates."""


class DataLoss(OffsetError):
    """The log no longer holds a range that a plan names."""


class DamagedLog(OffsetError):
    """A batch of the broker's log that cannot be read as it is: it has changed since it was written."""

    def __str__(self) -> str:
        return f"Kafka: {super().__str__()}"


class WrongLog(SinkError):
    """Records would come from another Kafka cluster, or from another topic of that name, than planned."""

    def __init__(self, topic: str, planned: tuple[str, str], found: tuple[str, str]) -> None:
        """`planned` and `found` are cluster and topic id; an empty text is unknown."""
        self.topic, self.planned, self.found = topic, planned, found
        if planned[0] and found[0] != planned[0]:
            remedy = "The brokers of this process belong to another cluster: correct kafka.bootstrap.servers"
        else:
            remedy = f"The topic was created again: to read the new one, run `sink reset --to earliest --topic {topic}`"
        super().__init__(
            f"topic {topic}: to be read from cluster {planned[0] or '?'}, topic id {planned[1] or '?'}, but the brokers"
            f" gave cluster {found[0] or '?'}, topic id {found[1] or '?'}. {remedy}."
        )

    def __reduce__(self) -> tuple[type[WrongLog], tuple[str, tuple[str, str], tuple[str, str]]]:
        """Pickles the arguments: by default Python would pickle the text."""
        return WrongLog, (self.topic, self.planned, self.found)
