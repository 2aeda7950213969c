"""Reads the headers of records, and finds those whose headers the client cannot read.

Guarantee: each message is asked for its headers once. The client decodes the names of headers as UTF-8; it raises for
other names, and crashes the process if it is asked again. Such a record has one header without a name, which no
record in Kafka has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from confluent_kafka import Message

UNREADABLE = "the name of one of its headers is not UTF-8: have the producer give headers names in UTF-8"
_Pairs = list[tuple[str | None, bytes | None]]
Headers = _Pairs | None
"""The headers of a message, in order; None without any. A name is None where the client could not read them."""


def headers_of(messages: Sequence[Message]) -> list[Headers]:
    """Returns the headers of each message. Ask for those of a message once."""
    headers: list[Headers] = []
    # Not `message.headers()`: the client returns a broken list and sets an exception. `map` looks for the exception
    # after each call, CPython's specialized bytecode of a call does not.
    calls = cast("Iterator[_Pairs | None]", map(Message.headers, messages))
    while len(headers) < len(messages):
        try:
            headers.extend(calls)
        except SystemError as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                # The client wraps its MemoryError in this error, and Spark's traceback omits causes.
                raise (error.__cause__ or error) from None
            headers.append([(None, None)])
    return headers
