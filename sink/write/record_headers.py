"""The headers of records as a column, and the records whose headers the client cannot read.

Guarantee: each message is asked for its headers once. The client decodes the names of headers as UTF-8; it raises for
other names, and crashes the process if it is asked again. In the column such a record has one header without a name,
which no record in Kafka has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
UNREADABLE = "the name of one of its headers is not UTF-8: have the producer give headers names in UTF-8"
_Pairs = list[tuple[str | None, bytes | None]]
Headers = _Pairs | None
"""The headers of a message, in order; None without any. A name is None where the client could not read them."""


def headers_column(headers: Sequence[Headers]) -> pa.ListArray:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS_TYPE)
    return pa.array([[{"key": k, "value": v} for k, v in pairs] if pairs else None for pairs in headers], HEADERS_TYPE)


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


def unreadable_headers(batch: pa.RecordBatch) -> dict[int, str]:
    """Returns why records of a batch are bad whose headers could not be read, by their row."""
    if "headers" not in batch.schema.names:
        return {}
    headers = batch.column("headers")
    names = headers.flatten().field("key")
    if not names.null_count:
        return {}
    nameless = np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False))
    return dict.fromkeys(pc.list_parent_indices(headers).take(pa.array(nameless)).to_pylist(), UNREADABLE)
