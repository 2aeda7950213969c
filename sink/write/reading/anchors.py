"""The record of the log that is read last, by which the next reader tells the log from another one.

A digest is XXH64 over key, value, timestamp (its kind and milliseconds) and headers, in this order: each part with its
length before it, so that no two records share one by shifting bytes; a null is not an empty text. Headers that the
client cannot read count as none of any other record. Imports only what every executor has. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Message
from xxhash import xxh64_intdigest

from coordination.state.log_records import Anchor
from sink.write.reading.record_headers import Headers, headers_of

_NULL = b"\xff" * 8


@dataclass(frozen=True, slots=True)
class LastMessage:
    """A message that may turn out to be the last one. Its anchor is computed then, and once."""

    message: Message
    headers: Headers
    has_headers: bool
    """Whether `headers` were read: they must not be read twice."""

    @classmethod
    def of(cls, messages: Sequence[Message], headers: Sequence[Headers] | None, position: int) -> LastMessage:
        return cls(messages[position], None if headers is None else headers[position], headers is not None)

    def anchor(self) -> Anchor:
        headers = self.headers if self.has_headers else headers_of([self.message])[0]
        epoch = self.message.leader_epoch()
        return Anchor(self.message.offset() or 0, -1 if epoch is None else epoch, _digest(self.message, headers))


def _digest(message: Message, headers: Headers) -> int:
    kind, milliseconds = message.timestamp()
    numbers = (kind.to_bytes(1, "little"), milliseconds.to_bytes(8, "little", signed=True))
    parts = (*_parts(message.key(), message.value()), *numbers, *_header_parts(headers))
    return int(xxh64_intdigest(b"".join(parts)))


def _header_parts(headers: Headers) -> Iterator[bytes]:
    yield len(headers or ()).to_bytes(8, "little")
    for name, value in headers or ():
        yield from _parts(None if name is None else name.encode(), value)


def _parts(*texts: bytes | str | None) -> Iterator[bytes]:
    for text in texts:
        if text is None:
            yield _NULL
        else:
            encoded = text.encode() if isinstance(text, str) else text
            yield len(encoded).to_bytes(8, "little")
            yield encoded
