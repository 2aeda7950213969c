"""Decodes the fields of many Protobuf messages of one type to columns: singular, repeated, nested, in oneofs, in maps.

Guarantee: the rules of Protobuf. The last occurrence of a field counts, messages in several pieces are merged, the last
member of a oneof is set, and an unknown number of a closed enum is an unknown field. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sink.decode.cursors import Cursors, Rows, as_map, offsets_after, scattered
from sink.decode.protobuf.fields import Occurrences, Scanner, in_order
from sink.decode.protobuf.types import Composer, NestedMessages
from sink.decode.protobuf.values import Convert, convert_texts, int32

FieldReader = Callable[[NestedMessages, Occurrences], pa.Array]
"""Returns a value for each of the messages, of a field that has a column."""


class MergingConvert:
    """Converts a field whose type is a message. `merged` returns a column of so many values, each merged from all
    occurrences of its owner."""

    def __init__(self, merge: Callable[[Cursors, Occurrences, Rows, int], pa.Array]) -> None:
        self.merged = merge

    def __call__(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:
        return self.merged(cursors, occurrences, np.arange(len(occurrences.rows)), len(occurrences.rows))


def composed(message: Message, compose: Composer) -> MergingConvert:
    """Returns what turns the columns of nested messages into one column."""

    def merge(cursors: Cursors, occurrences: Occurrences, owners: Rows, count: int) -> pa.Array:
        inside = cursors.inside(occurrences.rows, occurrences.starts, occurrences.lengths)
        messages = NestedMessages(inside, owners, count)
        return compose(messages, message.columns(messages))

    return MergingConvert(merge)


@dataclass(frozen=True, slots=True)
class Missing:
    """The value of a message without the field: its default, null, or a reason why the message is bad."""

    default: pa.Scalar | None = None
    reason: str | None = None


class Singular:
    """A field that is not repeated. With `always` a missing message is an empty one."""

    def __init__(self, convert: Convert, kind: pa.DataType, missing: Missing, always: bool) -> None:
        self._convert, self._kind, self._missing = convert, kind, missing
        self._always = always and isinstance(convert, MergingConvert)

    def __call__(self, messages: NestedMessages, occurrences: Occurrences) -> pa.Array:
        if self._always:
            occurrences = self._with_empty(messages, occurrences)
        owners = messages.owners[occurrences.rows]
        is_last = _flag_last(owners)
        positions = owners[is_last]
        if isinstance(self._convert, MergingConvert):
            pieces = np.searchsorted(positions, owners)
            values = self._convert.merged(messages.cursors, occurrences, pieces, len(positions))
        else:
            self.check_replaced(messages.cursors, occurrences, ~is_last)
            values = self._convert(messages.cursors, occurrences.only(is_last))
        if len(positions) == messages.count:
            return values
        column = scattered(messages.count, [(positions, values)], self._kind)
        if self._missing.default is not None:
            if values.null_count:
                # A value may be null by its rule: no default stands for it.
                return pc.if_else(pa.array(messages.has(occurrences)), column, self._missing.default)
            return pc.fill_null(column, self._missing.default)
        if self._missing.reason:
            messages.fail(~messages.has(occurrences), self._missing.reason)
        return column

    def check_replaced(self, cursors: Cursors, occurrences: Occurrences, replaced: npt.NDArray[np.bool_]) -> None:
        """Checks replaced occurrences of strings: Protobuf requires UTF-8 there, too."""
        if self._convert is convert_texts and replaced.any():
            convert_texts(cursors, occurrences.only(replaced))

    @staticmethod
    def _with_empty(messages: NestedMessages, occurrences: Occurrences) -> Occurrences:
        rows = messages.row_of(np.flatnonzero(~messages.has(occurrences)))
        return in_order([occurrences, Occurrences(rows, messages.cursors.end[rows], np.zeros(len(rows), np.uint64))])


@dataclass(frozen=True, slots=True)
class ColumnField:
    """The field of a column. `path` is the column's, for reasons."""

    number: int
    read: FieldReader
    path: str


def read_repeated(convert: Convert, kind: pa.ListType, messages: NestedMessages, occurrences: Occurrences) -> pa.Array:
    lengths = np.bincount(messages.owners[occurrences.rows], minlength=messages.count)
    return pa.ListArray.from_arrays(offsets_after(lengths), convert(messages.cursors, occurrences), type=kind)


def read_map(entry: Message, kind: pa.MapType, messages: NestedMessages, occurrences: Occurrences) -> pa.Array:
    """Makes maps of entries, which are messages of two fields. Drops an entry with an unknown number of a closed
    enum."""
    count = len(occurrences.rows)
    entries = NestedMessages(
        messages.cursors.inside(occurrences.rows, occurrences.starts, occurrences.lengths), np.arange(count), count
    )
    unknown = np.zeros(count, np.bool_)
    keys, values = entry.columns(entries, unknown)
    owners = messages.owners[occurrences.rows]
    if unknown.any():
        is_known = pa.array(~unknown)
        keys, values, owners = keys.filter(is_known), values.filter(is_known), owners[~unknown]
    return as_map(np.bincount(owners, minlength=messages.count), keys, values, kind)


@dataclass(frozen=True)
class Message:
    """A message type as columns. The scanner looks for the fields in `numbers`: those of columns, the other members
    of their oneofs, and the required ones."""

    fields: Sequence[ColumnField | pa.DataType]
    """For each column its field, or the type of a column that has none."""
    scanner: Scanner
    numbers: Sequence[int]
    oneofs: Sequence[Sequence[int]]
    required: Mapping[int, str]
    """The names of required fields."""
    closed: Mapping[int, npt.NDArray[np.int32]]
    """The known numbers of fields with a closed enum."""

    def columns(self, messages: NestedMessages, unknown: npt.NDArray[np.bool_] | None = None) -> list[pa.Array]:
        """Decodes the columns. Flags in `unknown` the messages with a number that a closed enum does not have."""
        occurrences = dict(zip(self.numbers, self.scanner.scan(messages.cursors), strict=True))
        for number, known in self.closed.items():
            is_known = np.isin(int32(occurrences[number].bits), known)
            if unknown is not None:
                unknown |= messages.has(occurrences[number].only(~is_known))
            occurrences[number] = occurrences[number].only(is_known)
        for oneof in self.oneofs:
            self._settle(messages, oneof, occurrences)
        for number, name in self.required.items():
            messages.fail(~messages.has(occurrences[number]), f"{name!r} is required and not set")
        columns = []
        for field in self.fields:
            if isinstance(field, ColumnField):
                failures_before = len(messages.cursors.failures)
                columns.append(field.read(messages, occurrences[field.number]))
                if len(messages.cursors.failures) > failures_before:
                    _name_column(messages.cursors, failures_before, field.path)
            else:
                columns.append(pa.nulls(messages.count, field))
        return columns

    def _settle(self, messages: NestedMessages, oneof: Sequence[int], occurrences: dict[int, Occurrences]) -> None:
        """Keeps in `occurrences` only the last member of the oneof."""
        members = [number for number in oneof if len(occurrences[number].rows)]
        if len(members) < 2:
            return
        readers = {field.number: field.read for field in self.fields if isinstance(field, ColumnField)}
        last_ends = np.full((len(members), messages.count), -1)
        for member_ends, number in zip(last_ends, members, strict=True):
            member = occurrences[number]
            ends = _flag_last(messages.owners[member.rows])
            member_ends[messages.owners[member.rows[ends]]] = member.starts[ends]
        second_latest, latest = np.sort(last_ends, axis=0)[-2:]
        for member_ends, number in zip(last_ends, members, strict=True):
            member = occurrences[number]
            other_ends = np.where(member_ends == latest, second_latest, latest)
            counts = member.starts > other_ends[messages.owners[member.rows]]
            occurrences[number] = member.only(counts)
            read = readers.get(number)
            if isinstance(read, Singular):
                read.check_replaced(messages.cursors, member, ~counts)


def _name_column(cursors: Cursors, known: int, path: str) -> None:
    """Adds the column to the reasons after the first `known` ones. The innermost column is named."""
    for row, reason in list(cursors.failures.items())[known:]:
        if not reason.column:
            cursors.name_column(row, reason, path)


def _flag_last(owners: Rows) -> npt.NDArray[np.bool_]:
    """Flags the last of each run of equal numbers. The numbers rise."""
    is_last = np.ones(len(owners), np.bool_)
    is_last[:-1] = owners[1:] != owners[:-1]
    return is_last
