"""Scans many Protobuf messages side by side for fields: where their values are, and their bits.

Guarantee: all occurrences of every wanted field, packed ones one by one, in the order of the bytes. Other fields, and
fields with another wire type than their own, are skipped, also groups. Bytes that are not Protobuf fail their message.
Raises nothing on purpose.

Every step moves all messages forward by one field, those with the same next field together. A batch of similar messages
costs some fifty numpy calls for each field, whatever its size. The last few messages are scanned one by one in Python,
about a microsecond for each field, so that one long message among short ones is cheap. The time is proportional to the
bytes, except for nested groups: each is scanned once for every wanted group around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from sink.decode.cursors import TOO_LONG, TOO_SHORT, Cursors, Rows

Bits = npt.NDArray[np.uint64]

MAX_DEPTH = 100
"""How deep messages and groups may be nested, as in Protobuf's libraries."""
_FEW = 32
"""Up to so many messages are faster one by one."""
_TAG_BYTES = 5
_TAG_MAX = (1 << 32) - 1
_NO_FIELD = "its bytes are not a Protobuf field"
_NO_GROUP = "a group ends that did not begin"
_TOO_DEEP = f"groups are more than {MAX_DEPTH} deep"


class Wire(IntEnum):
    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    GROUP = 3
    END = 4
    FIXED32 = 5


_WIDTHS: dict[int, int] = {Wire.FIXED32: 4, Wire.FIXED64: 8}


@dataclass(frozen=True, slots=True)
class FieldKey:
    """A field's number, its wire type, and whether it is repeated."""

    number: int
    wire: Wire
    repeated: bool


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Occurrences of a field in rising order: their rows, where their values start, and their bits or lengths."""

    rows: Rows
    starts: Rows
    bits: Bits

    @property
    def lengths(self) -> Rows:
        return self.bits.astype(np.int64)

    def only(self, selected: npt.NDArray[np.bool_]) -> Occurrences:
        return self if selected.all() else Occurrences(self.rows[selected], self.starts[selected], self.bits[selected])


class Scanner:
    """Scans messages that are nested `depth` messages deep for the fields in `keys`."""

    def __init__(self, keys: Sequence[FieldKey], depth: int) -> None:
        self._keys = keys
        self._room = MAX_DEPTH - depth
        self._tags: dict[int, int] = {}
        """The slot of each tag. The slots of packed forms follow the slots of all fields."""
        for slot, key in enumerate(keys):
            self._tags[key.number << 3 | key.wire] = slot
            if key.repeated and key.wire not in (Wire.LENGTH, Wire.GROUP):
                self._tags[key.number << 3 | Wire.LENGTH] = len(keys) + slot
        self._known_tags = np.array([-1, *sorted(self._tags)], np.int64)
        self._slots = np.array([-1, *(self._tags[tag] for tag in sorted(self._tags))], np.int64)

    def scan(self, cursors: Cursors) -> list[Occurrences]:
        """Scans all rows of `cursors`. Returns the occurrences of each key."""
        parts: list[list[Occurrences]] = [[] for _ in range(2 * len(self._keys))]
        active = np.flatnonzero(cursors.at < cursors.end)
        while len(active) > _FEW:
            for slot, rows, tags in self._by_slot(active, _tags(cursors, active)):
                occurrences = _values(cursors, rows, tags, self._room)
                if slot < len(parts):
                    parts[slot].append(occurrences)
            active = active[cursors.at[active] < cursors.end[active]]
        for row in active.tolist():
            self._scan_one(cursors, row, parts)
        packed = parts[len(self._keys) :]
        return [
            in_order([*unpacked_parts, _unpacked(cursors, in_order(runs), key.wire)] if runs else unpacked_parts)
            for key, unpacked_parts, runs in zip(self._keys, parts, packed, strict=False)
        ]

    def _by_slot(self, rows: Rows, tags: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """Groups rows by their next field; rows with an unknown field are grouped by its wire type."""
        first_tag = int(tags[0])
        beyond = 2 * len(self._keys)
        if (tags == first_tag).all():
            yield self._tags.get(first_tag, beyond), rows, tags
            return
        index = np.minimum(np.searchsorted(self._known_tags, tags), len(self._known_tags) - 1)
        slots = np.where(self._known_tags[index] == tags, self._slots[index], beyond + (tags & 7)).astype(np.uint16)
        order = np.argsort(slots, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(slots[order])) + 1):
            yield int(slots[part[0]]), rows[part], tags[part]

    def _scan_one(self, cursors: Cursors, row: int, parts: list[list[Occurrences]]) -> None:
        """Scans one message in plain Python."""
        data, position, end = memoryview(cursors.data.data), int(cursors.at[row]), int(cursors.end[row])
        starts: dict[int, list[int]] = {}
        values: dict[int, list[int]] = {}
        slot_of = self._tags.get
        reason = ""
        try:
            while position < end:
                tag, position = _next_tag(data, position, end)
                start, value, position = _next_value(data, position, end, tag, self._room)
                slot = slot_of(tag)
                if slot is not None:
                    starts.setdefault(slot, []).append(start)
                    values.setdefault(slot, []).append(value)
        except _InvalidMessage as error:
            reason = str(error)
        cursors.at[row] = end
        for slot, slot_starts in starts.items():
            rows = np.full(len(slot_starts), row, np.int64)
            parts[slot].append(Occurrences(rows, np.array(slot_starts, np.int64), np.array(values[slot], np.uint64)))
        if reason:
            cursors.fail(np.array([row]), reason)


def in_order(parts: Sequence[Occurrences]) -> Occurrences:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Occurrences(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))
    starts = np.concatenate([part.starts for part in parts])
    order = np.argsort(starts, kind="stable")
    rows, bits = np.concatenate([part.rows for part in parts]), np.concatenate([part.bits for part in parts])
    return Occurrences(rows[order], starts[order], bits[order])


def _tags(cursors: Cursors, rows: Rows) -> Rows:
    starts = cursors.at[rows]
    tags = cursors.varints(rows)
    invalid = (tags > _TAG_MAX) | (tags < 8) | ((tags & np.uint64(7)) > Wire.FIXED32)
    invalid |= cursors.at[rows] - starts > _TAG_BYTES
    cursors.fail_where(rows, invalid, _NO_FIELD)
    tags[invalid] = 0
    return tags.astype(np.int64)


def _values(cursors: Cursors, rows: Rows, tags: Rows, room: int) -> Occurrences:
    """Skips the value of a field in each row, all of one wire type. Returns where the values are."""
    wire = int(tags[0]) & 7
    starts = cursors.at[rows]
    if wire == Wire.VARINT:
        return Occurrences(rows, starts, cursors.varints(rows))
    if wire in _WIDTHS:
        return Occurrences(rows, starts, cursors.numbers(rows, f"<u{_WIDTHS[wire]}").astype(np.uint64))
    if wire == Wire.LENGTH:
        starts, lengths = cursors.spans(rows, cursors.varints(rows).astype(np.int64))
    elif wire == Wire.GROUP:
        lengths = _groups(cursors, rows, tags >> 3, room) - starts
    else:
        cursors.fail(rows, _NO_GROUP)
        lengths = np.zeros(len(rows), np.int64)
    return Occurrences(rows, starts, lengths.astype(np.uint64))


def _groups(cursors: Cursors, rows: Rows, numbers: Rows, room: int) -> Rows:
    """Skips the rest of the group in each row. Returns where its end tag starts."""
    within = np.zeros((len(rows), room + 2), np.int32)
    within[:, 1] = numbers
    depth = np.ones(len(rows), np.int64)
    ends: Rows = cursors.at[rows]
    if room < 1:
        cursors.fail(rows, _TOO_DEEP)
    active = np.flatnonzero(~cursors.failed[rows])
    while len(active):
        active_rows = rows[active]
        ends[active] = cursors.at[active_rows]
        tags = _tags(cursors, active_rows)
        wires = tags & 7
        for wire in np.unique(wires).tolist():
            chosen = active[wires == wire]
            number = tags[wires == wire] >> 3
            if wire == Wire.GROUP:
                depth[chosen] += 1
                deep = depth[chosen] > room
                cursors.fail(rows[chosen[deep]], _TOO_DEEP)
                within[chosen, depth[chosen]] = number
            elif wire == Wire.END:
                cursors.fail(rows[chosen[within[chosen, depth[chosen]] != number]], _NO_GROUP)
                depth[chosen] -= 1
            else:
                _values(cursors, rows[chosen], tags[wires == wire], room)
        active = active[(depth[active] > 0) & ~cursors.failed[rows[active]]]
    ends[cursors.failed[rows]] = cursors.at[rows][cursors.failed[rows]]
    return ends


def _unpacked(cursors: Cursors, runs: Occurrences, wire: Wire) -> Occurrences:
    """Splits packed runs into single numbers."""
    width = _WIDTHS.get(wire)
    lengths = runs.lengths
    if width is None:
        is_complete = (lengths == 0) | (cursors.data[runs.starts + np.maximum(lengths, 1) - 1] < 0x80)
    else:
        is_complete = lengths % width == 0
    if not is_complete.all():
        cursors.fail(runs.rows[~is_complete], TOO_SHORT)
        runs, lengths = runs.only(is_complete), lengths[is_complete]
    byte_positions = np.repeat(runs.starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    rows = np.repeat(runs.rows, lengths)
    if width is not None:
        rows, starts = rows[::width], byte_positions[::width]
        numbers = cursors.inside(rows, starts, np.full(len(rows), width)).numbers(np.arange(len(rows)), f"<u{width}")
        return Occurrences(rows, starts, numbers.astype(np.uint64))
    ends = np.flatnonzero(cursors.data[byte_positions] < 0x80)
    begins = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)[: len(ends)]
    rows, starts = rows[begins], byte_positions[begins]
    numbers = cursors.inside(rows, starts, ends - begins + 1).varints(np.arange(len(rows)))
    return Occurrences(rows, starts, numbers)


class _InvalidMessage(Exception):
    pass


def _next_number(data: memoryview, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise _InvalidMessage(TOO_SHORT)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
    raise _InvalidMessage(TOO_LONG)


def _next_tag(data: memoryview, position: int, end: int) -> tuple[int, int]:
    tag, next_position = _next_number(data, position, end)
    if tag > _TAG_MAX or tag < 8 or tag & 7 > Wire.FIXED32 or next_position - position > _TAG_BYTES:
        raise _InvalidMessage(_NO_FIELD)
    return tag, next_position


def _next_value(data: memoryview, position: int, end: int, tag: int, room: int) -> tuple[int, int, int]:
    """Returns where the value starts, its bits or its length, and where the next field starts."""
    wire = tag & 7
    if wire == Wire.VARINT:
        value, next_position = _next_number(data, position, end)
        return position, value, next_position
    if wire == Wire.GROUP:
        end_tag, next_position = _group_end(data, position, end, tag >> 3, room)
        return position, end_tag - position, next_position
    if wire == Wire.END:
        raise _InvalidMessage(_NO_GROUP)
    width = _WIDTHS.get(wire)
    if width is None:
        width, position = _next_number(data, position, end)
    if width > end - position:
        raise _InvalidMessage(TOO_SHORT)
    return (
        position,
        width if wire == Wire.LENGTH else int.from_bytes(data[position : position + width], "little"),
        position + width,
    )


def _group_end(data: memoryview, position: int, end: int, number: int, room: int) -> tuple[int, int]:
    within = [number]
    while len(within) <= room:
        tag_start = position
        tag, position = _next_tag(data, position, end)
        if tag & 7 == Wire.GROUP:
            within.append(tag >> 3)
        elif tag & 7 != Wire.END:
            _, _, position = _next_value(data, position, end, tag, room)
        elif within.pop() != tag >> 3:
            raise _InvalidMessage(_NO_GROUP)
        elif not within:
            return tag_start, position
    raise _InvalidMessage(_TOO_DEEP)
