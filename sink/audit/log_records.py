"""Records of the log as a consumer got them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, cast

from confluent_kafka import Message

Headers = Sequence[tuple[str, bytes | None]] | None
"""None where a name cannot be read."""


class RecordColumns(NamedTuple):
    """Records as columns, which are as long as each other. `timestamps` are in milliseconds."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]


class LogRecords:
    """Records of a partition, by rising offset. Each part of a message is asked for once, and only if somebody needs
    it: the client crashes for headers that are asked for again."""

    def __init__(self, messages: Sequence[Message], offsets: Sequence[int]) -> None:
        self._messages = messages
        self.offsets = offsets

    @cached_property
    def timestamps(self) -> list[int]:
        return list(map(itemgetter(1), map(Message.timestamp, self._messages)))

    @cached_property
    def keys(self) -> list[bytes | None]:
        return cast("list[bytes | None]", list(map(Message.key, self._messages)))

    @cached_property
    def values(self) -> list[bytes | None]:
        return cast("list[bytes | None]", list(map(Message.value, self._messages)))

    @cached_property
    def headers(self) -> list[Headers]:
        # Not by `message.headers()`: the client sets an exception and returns a list, which only `map` looks for.
        found: list[Headers] = []
        calls = cast("Iterator[list[tuple[str, bytes | None]] | None]", map(Message.headers, self._messages))
        while len(found) < len(self._messages):
            try:
                # Not a generator, which an exception ends.
                found.extend(map(_or_none, calls))
            except SystemError as error:
                if not isinstance(error.__cause__, UnicodeDecodeError):
                    raise
                found.append(None)
        return found

    def part(self, low: int, high: int) -> RecordColumns:
        """Returns the records of `[low, high)`, by their positions here."""
        return RecordColumns(
            self.offsets[low:high],
            self.timestamps[low:high],
            self.keys[low:high],
            self.values[low:high],
            self.headers[low:high],
        )


def _or_none(headers: Headers) -> Headers:
    return headers or ()
