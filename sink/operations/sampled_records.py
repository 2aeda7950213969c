"""Decodes a sample of a sink's records as a worker would, and says what its configuration does not expect of them.

`look` takes records and returns what was seen; `findings` puts it in words. Neither knows a server, but for the schema
registry that a decoder asks. Reasons of bad records quote values only if the sink's do. Raises what the decoders raise:
Unavailable and the errors of the registry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.fields import NO_PATH, Columns
from sink.decode.formats import RAW
from sink.decode.quoting import Quotes
from sink.operations.check_results import CheckResult
from sink.operations.record_fields import RecordFields
from sink.schema.table_schema import IS_DELETED
from sink.schema.warnings import shown_path, shown_reason
from sink.write.rows.record_columns import BadRow, Decode, RowSpec, separate_bad

PART = "records"
_REASONS = 5
"""Reasons that are shown for each topic."""
_NAMED = 10
"""Fields or columns that a sentence names."""


@dataclass(frozen=True, slots=True)
class BadGroup:
    """Bad records of one topic with the same reason, but for the values that it quotes."""

    reason: str
    """The reason of the first one."""
    where: str
    records: int


@dataclass(frozen=True, slots=True)
class Look:
    """The look at one topic's records."""

    topic: str
    records: int
    bad: tuple[BadGroup, ...]
    """The most frequent first."""
    rows: int
    """The rows of good records, but for deleted ones."""
    filled: frozenset[str]
    """The paths of columns that are not null in each row."""
    fields: RecordFields

    @property
    def bad_records(self) -> int:
        return sum(group.records for group in self.bad)


def look(spec: RowSpec, topic: str, records: pa.RecordBatch, fields: RecordFields) -> Look:
    """Looks at the records of a topic. `fields` are those of its records."""
    _, decoded, bad = separate_bad(records, topic, spec.decoder())
    rows = _live(decoded)
    filled = frozenset() if rows is None else frozenset(_filled_columns(rows, spec.schema.value_struct))
    groups = tuple(_grouped(spec, topic, records, bad)) if bad else ()
    return Look(topic, records.num_rows, groups, 0 if rows is None else rows.num_rows, filled, fields)


def _live(rows: pa.RecordBatch | None) -> pa.RecordBatch | None:
    """Returns the rows that delete nothing: of others only the key counts."""
    if rows is None or IS_DELETED not in rows.schema.names:
        return rows
    return rows.filter(pc.invert(rows.column(IS_DELETED).fill_null(False)))


def _filled_columns(rows: pa.RecordBatch, columns: T.StructType) -> Iterator[str]:
    for field in columns.fields:
        yield from _filled(rows.column(field.name), field.dataType, field.name)


def _filled(column: pa.Array, kind: T.DataType, path: str) -> Iterator[str]:
    """Yields the path of a column that has values, and those of its fields."""
    if column.null_count == len(column):
        return
    yield path
    if isinstance(kind, T.StructType):
        for field, inner in zip(kind.fields, column.flatten(), strict=True):
            yield from _filled(inner, field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, T.ArrayType):
        yield from _filled(column.flatten(), kind.elementType, path)
    elif isinstance(kind, T.MapType):
        pairs = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
        yield from _filled(pairs.flatten().flatten()[1], kind.valueType, path)


def _grouped(spec: RowSpec, topic: str, records: pa.RecordBatch, bad: Sequence[BadRow]) -> list[BadGroup]:
    """Groups bad records. Reasons that quote values differ from record to record: those that quote none decide."""
    alone = records.take(pa.array([bad_row.row for bad_row in bad]))
    _, _, unquoted = separate_bad(alone, topic, _unquoting(spec))
    keys = [(bad_row.kind, bad_row.reason) for bad_row in unquoted]
    counts = Counter(keys)
    firsts = dict(zip(reversed(keys), reversed(bad), strict=True))
    groups = []
    for key, count in counts.most_common():
        first = firsts[key]
        partition, offset = (records.column(name)[first.row].as_py() for name in ("partition", "offset"))
        reason = shown_reason(first.reason)
        groups.append(BadGroup(reason, f"{topic}-{partition} offset {offset}", count))
    return groups


def _unquoting(spec: RowSpec) -> Decode:
    return replace(spec, format=replace(spec.format, quotes=Quotes.KINDS)).decoder()


def findings(looks: Sequence[Look], spec: RowSpec, tolerant: bool) -> Iterator[CheckResult]:
    """Says what was seen. `tolerant` is whether the sink goes on behind bad records."""
    for seen in looks:
        yield from _bad(seen, tolerant)
        if spec.format.name not in RAW:
            yield from _unfilled(seen, spec)
            yield from _fields(seen)
    unfilled = _never_filled(looks, Columns.of(spec.schema.value_struct, spec.format.rules))
    if unfilled:
        yield CheckResult(PART, f"columns that no record fills: {_listed(unfilled)}", note=True)


def _bad(seen: Look, tolerant: bool) -> Iterator[CheckResult]:
    if not seen.bad:
        yield CheckResult(PART, f"topic {seen.topic}: {seen.records:,} records looked at, none is bad")
        return
    share = f"{seen.bad_records:,} of {seen.records:,} records ({seen.bad_records / seen.records:.1%}) are bad"
    is_wrong = seen.bad_records == seen.records and not tolerant
    yield CheckResult(PART, f"topic {seen.topic}: {share}", wrong=is_wrong, note=not is_wrong)
    for group in seen.bad[:_REASONS]:
        first = f"{group.where}: {group.reason}"
        sentence = first if group.records == 1 else f"{group.records:,} records, the first at {first}"
        yield CheckResult(PART, sentence, note=True)
    if len(seen.bad) > _REASONS:
        others = f"bad records have {len(seen.bad) - _REASONS} other reasons"
        yield CheckResult(PART, f"topic {seen.topic}: {others}", note=True)


def _unfilled(seen: Look, spec: RowSpec) -> Iterator[CheckResult]:
    if seen.rows and not seen.filled:
        fields = _listed(_by_count(seen.fields.seen)) or "none"
        yield CheckResult(
            PART,
            f"topic {seen.topic}: {seen.rows:,} records fill no column. Their fields: {fields}. The columns:"
            f" {_listed(spec.schema.value_struct.names)}. Correct the columns, value.format or value.envelope.",
            wrong=True,
        )


def _fields(seen: Look) -> Iterator[CheckResult]:
    if seen.filled and (without := seen.fields.without_column):
        counted = [f"{shown_path(name)} ({without[name]:,})" for name in _by_count(without)]
        sentence = f"topic {seen.topic}: fields without a column, with the number of records: {_cut(counted)}"
        yield CheckResult(PART, sentence, note=True)
    if alike := seen.fields.alike:
        pairs = [f"field {shown_path(field)} and column {shown_path(column)}" for field, column in sorted(alike)]
        yield CheckResult(PART, f"topic {seen.topic}: names that differ in case only: {_cut(pairs)}", note=True)


def _never_filled(looks: Iterable[Look], columns: Columns) -> list[str]:
    """Returns the outermost columns that no record of any topic fills."""
    filled = {path for seen in looks for path in seen.filled}
    if not filled:
        return []
    paths = dict.fromkeys(column.path for column in columns.all_fields if column.path != NO_PATH)
    unfilled = [path for path in paths if path not in filled]
    return [path for path in unfilled if (parent := path.rpartition(".")[0]) in filled or not parent]


def _by_count(names: Mapping[str, int]) -> list[str]:
    return sorted(names, key=lambda name: (-names[name], name))


def _listed(names: Iterable[str]) -> str:
    return _cut([shown_path(name) for name in names])


def _cut(items: Sequence[str]) -> str:
    more = len(items) - _NAMED
    return ", ".join(items[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
