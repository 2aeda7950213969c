"""Named ways to break a decoder or the fold of changes, of the auditor or of the writer, with the case of
`tests/reports` in which the two no longer make the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.unknown_fields import UnknownFieldSet

from sink.audit.content import changes, records
from sink.audit.decode import avro_values, json_values, protobuf_values
from sink.audit.decode.rules import Bad
from sink.decode import time_texts
from sink.decode.avro import times as avro_times
from sink.decode.json import columns as json_columns
from sink.decode.json import decimals as json_decimals
from sink.decode.protobuf import values as protobuf_texts
from sink.write.rows import changes as writers_changes
from sink.write.rows import record_columns

Patch = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Mutant:
    name: str
    case: str
    apply: Callable[[Patch], None]
    suffix: bytes = b""
    """Bytes behind each value, which a decoder that is right leaves out."""


def after(owner: Any, name: str, change: Callable[..., Any]) -> Callable[[Patch], None]:
    """Changes what a function returns. `change` gets it, and what the function was called with."""
    original = getattr(owner, name)

    def changed(*arguments: Any, **named: Any) -> Any:
        return change(original(*arguments, **named), *arguments)

    return lambda patch: patch(owner, name, changed)


def before(owner: Any, name: str, change: Callable[..., Any]) -> Callable[[Patch], None]:
    """Changes what a function is called with."""
    original = getattr(owner, name)
    return lambda patch: patch(owner, name, lambda *arguments: original(*change(*arguments)))


def _coarser(digits: str, unit: str) -> tuple[str, str]:
    return digits, {"us": "ms", "ms": "s", "ns": "us"}.get(unit, unit)


def always(owner: Any, name: str, answer: Any) -> Callable[[Patch], None]:
    return lambda patch: patch(owner, name, lambda *_: answer)


def _any_case(source: Any, found: Any, _: bool) -> tuple[Any, ...]:
    return source, found, True


def _without_infinity(read: Any, _: str, kind: str) -> tuple[Any, ...]:
    return read, "bad", kind


def _no_unknown_fields(message: Any, *_: Any) -> Any:
    if len(UnknownFieldSet(message)):
        raise Bad("an unknown field")
    return message


def _in_capitals(read: Callable[[Any], Any], *_: Any) -> Callable[[Any], Any]:
    def changed(found: Any) -> Any:
        value = read(found)
        return value.upper() if isinstance(value, str) else value

    return changed


AUDITORS = (
    Mutant(
        "an Avro timestamp of another unit",
        "local-timestamp-micros-of-a-subject",
        before(avro_values, "moment_of_number", _coarser),
    ),
    Mutant("an Avro text in capitals", "primitive-avro-key", after(avro_values, "_text", _in_capitals)),
    Mutant(
        "the first message of a file of Protobuf",
        "second-message-of-a-protobuf-file-named",
        after(records, "message_path", lambda found, _: ((0,), found[1])),
    ),
    Mutant(
        "a field that is unknown makes a record bad",
        "delete-marker-in-protobuf",
        after(protobuf_values, "parsed", _no_unknown_fields),
        b"\xf8\x07\x01",
    ),
    Mutant(
        "a decimal in base64 of another scale",
        "postgres-identity-of-the-key",
        after(json_values, "_decimal_of_text", lambda number, *_: number.scaleb(1)),
    ),
    Mutant("names in another case are others", "names-in-another-case", before(json_values, "_fields_for", _any_case)),
    Mutant(
        "a JSON number of another unit",
        "postgres-identity-of-the-key",
        before(json_values, "moment_of_number", _coarser),
    ),
    Mutant(
        "infinity is bad",
        "infinity-of-postgres-by-a-setting",
        before(json_values, "limited", _without_infinity),
    ),
    Mutant(
        "a delete marker that is a text is none",
        "delete-marker-as-text",
        lambda patch: patch(changes, "_MARKS", dict.fromkeys(changes._MARKS, False)),
    ),
    Mutant("a placeholder is a value", "placeholders-of-unavailable-values", always(changes, "_is_unavailable", False)),
    Mutant(
        "the first event of a log counts",
        "incremental-snapshot-without-lsn",
        after(changes, "_position", lambda position, *_: -position),
    ),
    Mutant("a key that is another", "json-number-key", always(changes, "json_key", {"id": 8})),
    Mutant("a record of another type lands", "several-record-types", always(records.RowMaker, "_require_type", None)),
)


def _undeleted(decoded: Any, *_: Any) -> Any:
    return replace(decoded, deleted=np.zeros_like(decoded.deleted))


def _nulls(columns: Any, *_: Any) -> Any:
    return {name: pa.nulls(len(column), column.type) for name, column in columns.items()}


def _base64(patch: Patch) -> None:
    after(json_columns, "_of_base64", lambda column, *_: pa.nulls(len(column), column.type))(patch)
    after(json_decimals, "_unscaled", lambda number, *_: number + 1)(patch)


WRITERS = (
    Mutant("a decimal in base64 of another value", "postgres-identity-of-the-key", _base64),
    Mutant("a time in JSON of another second", "iso-times", after(time_texts, "micros", lambda at, _: at + 10**6)),
    Mutant(
        "an Avro timestamp of another unit",
        "local-timestamp-micros-of-a-subject",
        after(avro_times, "_micros", lambda found, *_: (found[0] // 1000, found[1])),
    ),
    Mutant(
        "a delete that deletes nothing",
        "delete-marker-as-text",
        after(writers_changes._PlainValues, "decode", _undeleted),
    ),
    Mutant(
        "an event of a delete that deletes nothing",
        "mariadb-binlog",
        after(writers_changes._Events, "decode", _undeleted),
    ),
    Mutant(
        "a text in Protobuf in capitals",
        "delete-marker-in-protobuf",
        after(protobuf_texts, "convert_texts", lambda texts, *_: pc.utf8_upper(texts)),
    ),
    Mutant(
        "a key that is not read",
        "json-number-key",
        after(writers_changes.KeyBytes, "fill", lambda bad, *_: {**bad, 0: "?"}),
    ),
    Mutant(
        "a record without what it brings",
        "schema-and-payload-around-rows",
        after(record_columns, "added_columns", _nulls),
    ),
)
