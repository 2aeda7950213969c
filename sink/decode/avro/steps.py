"""Steps through Avro values, many records at once: over what has no column, into unions, from item to item.

Guarantee: that of `sink.decode.cursors`. A value that claims more items or nests deeper than its bytes are worth fails
its row. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sink.decode.cursors import Cursors, Reason, Rows, joined
from sink.decode.fields import Field
from sink.decode.json.reasons import Undecodable
from sink.decode.quoting import quoted
from sink.schema.avro_types import AvroSchema, kind_of
from sink.schema.table_schema import stored_type

_FEW_BRANCHES = 8
_LONG_MAX = (1 << 63) - 1
EMPTY_COST = 10
"""An item without bytes takes as many steps: 10,000 of them are allowed."""
MOST_NESTED = 200
"""A nested value takes up to four Python frames, of a thousand."""
Step = Callable[[Cursors, Rows], object]
"""Moves each row past its next value: reads or skips it."""


class Skips:
    """Makes functions that skip the values of a writer's types. A type is skipped by one `_Skip`: it may contain
    itself."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._skipped: dict[str | int, _Skip] = {}
        self._empty: dict[str, bool] = {}
        self.depth = 0
        """The depth of nested values that are being skipped."""

    def is_empty(self, schema: Any) -> bool:
        """Whether all values of a type have no bytes. A walk over them would have no end that the bytes set."""
        schema = self._schema.resolve(schema)
        if isinstance(schema, list):
            return False
        name = kind_of(schema)
        if name != "record":
            return name == "null" or (name == "fixed" and schema["size"] == 0)
        key = schema["name"]
        if key not in self._empty:
            # A record within itself that has no other way out has no value: its bytes fail.
            self._empty[key] = False
            self._empty[key] = all(self.is_empty(field["type"]) for field in schema["fields"])
        return self._empty[key]

    def skipper(self, schema: Any) -> _Skip:
        schema = self._schema.resolve(schema)
        # By identity: thousands of fields can have one type of thousands of parts. A `_Skip` keeps its schema alive.
        key = schema if isinstance(schema, str) else id(schema)
        return self._skipped.setdefault(key, _Skip(self, schema))


class _Skip:
    """Steps over a value of any type. It is compiled when it first occurs."""

    def __init__(self, skips: Skips, schema: Any) -> None:
        self._skips = skips
        self._schema = schema

    def __call__(self, cursors: Cursors, rows: Rows) -> None:
        if self._skips.depth:
            if self._skips.depth == MOST_NESTED:
                cursors.fail(rows, "a value is nested in itself too deeply to be skipped")
                return
            cursors.spend(rows, 1)
            if cursors.failures:
                # A failed row would step on through bytes of the next one.
                rows = rows[~cursors.failed[rows]]
                if not len(rows):
                    return
        self._skips.depth += 1
        self._step(cursors, rows)
        self._skips.depth -= 1

    @cached_property
    def _step(self) -> Step:
        schema, skipper, is_empty = self._schema, self._skips.skipper, self._skips.is_empty
        if isinstance(schema, list):
            branches = [skipper(branch) for branch in schema]
            return lambda cursors, rows: read_branches(cursors, rows, branches)
        name = kind_of(schema)
        if name == "record":
            kinds = [field["type"] for field in schema["fields"] if not is_empty(field["type"])]
            return partial(take_steps, [skipper(kind) for kind in kinds])
        if name == "array":
            item = skipper(schema["items"])
            cost = EMPTY_COST if is_empty(schema["items"]) else 1
            return lambda cursors, rows: read_blocks(cursors, rows, item, cost)
        if name == "map":
            value = skipper(schema["values"])

            def entry(cursors: Cursors, rows: Rows) -> None:
                span(cursors, rows)
                value(cursors, rows)

            return lambda cursors, rows: read_blocks(cursors, rows, entry, 1)
        if name in ("string", "bytes"):
            return span
        if name in ("int", "long", "enum"):
            return Cursors.varints
        sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
        size = schema["size"] if name == "fixed" else sizes[name]
        return lambda cursors, rows: span(cursors, rows, size)


def take_steps(steps: Sequence[Step], cursors: Cursors, rows: Rows) -> None:
    for step in steps:
        step(cursors, rows)


def span(cursors: Cursors, rows: Rows, size: int | None = None) -> tuple[Rows, Rows]:
    """Reads a length and skips that many bytes, or skips `size` bytes. Returns where they start, and their lengths."""
    lengths = cursors.zigzags(rows) if size is None else np.full(len(rows), size, np.int64)
    return cursors.spans(rows, lengths)


def integers(low: int, high: int, misfit: Callable[[int], Reason], cursors: Cursors, rows: Rows) -> Rows:
    """Reads `int` or `long`. A number outside `low` to `high` fails its row for the reason that `misfit` gives; a zero
    stands for it."""
    return within(cursors.zigzags(rows), low, high, misfit, cursors, rows)


def within(numbers: Rows, low: int, high: int, misfit: Callable[[int], Reason], cursors: Cursors, rows: Rows) -> Rows:
    """Checks numbers that were read, in place, as `integers` does."""
    invalid = (numbers < low) | (numbers > high)
    if invalid.any():
        for position in np.flatnonzero(invalid).tolist():
            cursors.fail(rows[position : position + 1], misfit(int(numbers[position])))
        numbers[invalid] = 0
    return numbers


def plain_integers(name: str, field: Field, cursors: Cursors, rows: Rows, bits: int = 64) -> Rows:
    """Reads `int` or `long`, whichever `name` says, for a column of so many bits."""
    reach = 1 << (min(bits, 32 if name == "int" else 64) - 1)
    holds = "Avro's int" if name == "int" and bits > 32 else field.kind.simpleString()

    def misfit(number: int) -> Reason:
        shown = quoted(number, f"the number {number}", "a number")
        return Reason(f"{shown} does not fit {holds}", field.path)

    return integers(-reach, reach - 1, misfit, cursors, rows)


def read_each_text(convert: Callable[[str], Any], field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads texts one at a time, for a column of another type. `convert` raises ValueError or Undecodable."""
    texts = cursors.utf8(rows, *span(cursors, rows)).to_pylist()
    return pa.array(each(convert, texts, field, cursors, rows), stored_type(field.kind))


def shortest_texts(name: str, cursors: Cursors, rows: Rows) -> list[str]:
    """Reads `float` or `double`, whichever `name` says, as the fewest digits that give each number back."""
    # numpy knows the digits of a float, and Python writes them like those of a double.
    return [repr(float(str(number))) for number in cursors.numbers(rows, "<f4" if name == "float" else "<f8")]


def each(convert: Callable[[Any], Any], values: Sequence[Any], field: Field, cursors: Cursors, rows: Rows) -> list[Any]:
    """Converts one value for each row. A value that `convert` refuses fails its row, and None stands for it."""
    converted: list[Any] = [None] * len(values)
    for position in np.flatnonzero(~cursors.failed[rows]).tolist():
        try:
            converted[position] = convert(values[position])
        except (ValueError, Undecodable) as error:
            cursors.fail(rows[position : position + 1], Reason(str(error), field.path))
    return converted


def read_branches(
    cursors: Cursors, rows: Rows, branches: Sequence[Callable[[Cursors, Rows], Any]]
) -> list[tuple[Rows, Any]]:
    """Reads each row's branch. Returns the values of each branch with the positions of their rows."""
    chosen = cursors.zigzags(rows)
    cursors.fail_where(
        rows,
        (chosen < 0) | (chosen >= len(branches)),
        f"a union of {len(branches)} branches has none with the number in the record",
    )
    parts = []
    numbers = range(len(branches)) if len(branches) <= _FEW_BRANCHES else np.unique(chosen).tolist()
    for number in numbers:
        positions = np.flatnonzero(chosen == number)
        if len(positions) and 0 <= number < len(branches):
            parts.append((positions, branches[number](cursors, rows[positions])))
    return parts


def read_blocks(cursors: Cursors, rows: Rows, item: Callable[[Cursors, Rows], Any], cost: int) -> npt.NDArray[np.int64]:
    """Reads the items of an array or a map, one of each row at a time. Returns the number of items in each row.

    `item` gets the rows that have another item. Each item takes `cost` of the steps that a value may have.
    """
    lengths = np.zeros(len(rows), np.int64)
    awaited = np.zeros(len(rows), np.int64)
    active = np.arange(len(rows))
    while len(active):
        between = active[awaited[active] == 0]
        if len(between):
            awaited[between] = _block_sizes(cursors, rows[between], cost)
        active = active[(awaited[active] > 0) & ~cursors.failed[rows[active]]]
        if len(active):
            item(cursors, rows[active])
            lengths[active] += 1
            awaited[active] -= 1
    return lengths


def _block_sizes(cursors: Cursors, rows: Rows, cost: int) -> npt.NDArray[np.int64]:
    """Reads the number of items in the next block: 0 at the end. After a negative count comes the block's size."""
    counts = cursors.zigzags(rows)
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        cursors.varints(rows[sized])
        counts[sized] = -np.maximum(counts[sized], -_LONG_MAX)
    beyond = counts > np.maximum(cursors.bytes_left(rows), 1)
    cursors.fail_where(rows, beyond, "a block claims more items than the record has bytes")
    counts[beyond] = 0
    cursors.spend(rows, counts * cost)
    return counts


def in_order(parts: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Sorts items by row; they were read one of each row at a time."""
    if not parts:
        return pa.array([], kind)
    owners = np.concatenate([rows for rows, _ in parts])
    items = joined([values for _, values in parts], kind)
    return items if len(parts) == 1 else items.take(pa.array(np.argsort(owners, kind="stable")))
