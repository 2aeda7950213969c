"""Decodes JSON values that share a few layouts at once with numpy, without parsing each: the fastest path.

Guarantee: a value that this path decodes gets the row that `json_values` gives it; other paths decode the rest.
`json_matches` has the proof for strings. A bare value must be a JSON number, `true`, `false` or `null`. Raises nothing
on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.cursors import Bytes, Flags, cut, flags
from sink.decode.fields import Columns, Field
from sink.decode.json.columns import NotExact, exact_rows, read_type, unit_of
from sink.decode.json.hazards import are_short_decimals
from sink.decode.json.layout import JsonLayout, Members, ValueSpan, layout_of
from sink.decode.json.matches import BatchText, Matched, Positions, Scratch
from sink.decode.json.reasons import Undecodable
from sink.decode.json.values import columns_of
from sink.schema.table_schema import arrow_type

MIN_VALUES = 64
"""The parser learns a new layout only for at least so many values without a known one."""
MAX_LAYOUTS = 8
"""Layouts that a parser remembers."""
MAX_NEW = 4
"""Layouts that may be learned from one batch."""
BATCHES_SKIPPED = 31
"""Batches to leave to the other paths after a batch in which most values had no common layout."""
_MINUS, _ZERO, _POINT = b"-0."
_LOWER_E, _TO_LOWER = ord("e"), 0x20
_WORDS = pa.array(["true", "false", "null"])
_FRACTIONAL = r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,20})?"
_FITTING: dict[type[T.DataType], str] = {
    T.ByteType: "-?(0|[1-9][0-9]?)",
    T.ShortType: "-?(0|[1-9][0-9]{0,3})",
    T.IntegerType: "-?(0|[1-9][0-9]{0,8})",
    T.LongType: "-?(0|[1-9][0-9]{0,17})",
    T.FloatType: _FRACTIONAL,
    T.DoubleType: rf"{_FRACTIONAL}([eE][+-]?[0-9]{{1,2}})?",
    T.BooleanType: "true|false",
    T.StringType: rf"{_FRACTIONAL}([eE][+-]?[0-9]{{1,2}})?|true|false",
}
"""Bare values that certainly fit a column. The parser checks them only if some value of a batch does not fit."""


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """Rows, and the positions of their values in the batch, which rise."""

    positions: Positions
    rows: pa.RecordBatch


class LayoutParser:
    """Parses values for some columns. It remembers the layouts that it met, the most frequent first."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._layouts: list[JsonLayout] = []
        self._scratch = Scratch()
        self._pause = 0

    def parse(self, values: pa.BinaryArray) -> list[ParsedRows]:
        """Returns the rows of the values that it can decode, in parts; an empty list if there are none."""
        if self._pause:
            self._pause -= 1
            return []
        batch = BatchText.of(self._scratch, values)
        if batch is None:
            return []
        parsed: list[ParsedRows] = []
        counted: dict[JsonLayout, int] = {}
        unparsed = batch.plain
        for layout in self._candidates(batch, unparsed):
            matched = batch.matches(layout, unparsed)
            rows = None if matched is None else self._parse_layout(batch, layout, matched)
            if rows is not None:
                counted[layout] = len(rows.positions)
                parsed.append(rows)
                unparsed[rows.positions] = False
            if not unparsed.any():
                break
        by_frequency = sorted(self._layouts, key=lambda layout: -counted.get(layout, 0))
        self._layouts = by_frequency[:MAX_LAYOUTS]
        if sum(counted.values()) * 2 < len(values):
            self._pause = BATCHES_SKIPPED
        return parsed

    def _candidates(self, batch: BatchText, unparsed: Flags) -> Iterator[JsonLayout]:
        """Yields the known layouts, then new ones, from values that no known layout matches."""
        yield from tuple(self._layouts)
        for _ in range(MAX_NEW):
            if np.count_nonzero(unparsed) < MIN_VALUES:
                return
            layout = layout_of(batch.value(int(np.argmax(unparsed))))
            if layout is None or layout in self._layouts:
                return
            self._layouts.append(layout)
            yield layout

    def _parse_layout(self, batch: BatchText, layout: JsonLayout, matched: Matched) -> ParsedRows | None:
        """Returns the rows of all matched values, or else of those whose bare values certainly fit."""
        cut_columns = _CutColumns(batch, layout, matched, self._columns)
        try:
            return ParsedRows(matched.positions, cut_columns.rows())
        except (pa.ArrowInvalid, NotExact):
            fits = cut_columns.fitting()
        if fits.all() or not fits.any():
            return None
        return self._parse_layout(batch, layout, matched.only(fits))


class _CutColumns:
    """Cuts the columns out of values of one layout, equal to those that `FastParser` would read."""

    def __init__(self, batch: BatchText, layout: JsonLayout, matched: Matched, columns: Columns) -> None:
        self._columns = columns
        self._batch = batch
        self._layout = layout
        self._matched = matched
        self._count = len(matched.positions)

    def rows(self) -> pa.RecordBatch:
        return exact_rows(self._columns, self._object(self._columns.fields, self._layout.members))

    def fitting(self) -> Flags:
        """Flags the values whose bare values all certainly fit their columns."""
        fits = np.ones(self._count, np.bool_)
        try:
            bare = [*self._bare(self._layout.members, self._columns.fields)]
        except NotExact:
            return np.zeros(self._count, np.bool_)
        for span, field in bare:
            pattern = f"{_FRACTIONAL}|true|false" if field is None else _fitting(field)
            fits &= flags(pc.match_substring_regex(self._texts(span), rf"\A({pattern}|null)\z"))
        return fits

    def _object(self, fields: Sequence[Field], members: Members) -> list[pa.Array]:
        chosen = self._chosen(members, fields)
        for name in members.keys() - chosen.values():
            self._check(members[name])
        return [self._member(field, members[chosen[field.name]] if field.name in chosen else None) for field in fields]

    def _chosen(self, members: Members, fields: Sequence[Field]) -> dict[str, str]:
        """Returns the member of each column that has one. Raises NotExact where two differ in case only."""
        names = {field.name: field for field in fields}
        folded = {} if self._columns.exact_case else {name.lower(): name for name in names}
        try:
            return {column: name for name, column in columns_of(tuple(members), names, folded).items()}
        except Undecodable:
            raise NotExact from None

    def _bare(self, members: Members, fields: Sequence[Field]) -> Iterator[tuple[ValueSpan, Field | None]]:
        """Yields the spans of bare values, with their field, if it fills a column."""
        chosen = self._chosen(members, fields)
        by_member = {chosen[field.name]: field for field in fields if field.name in chosen}
        for name, member in members.items():
            field = by_member.get(name)
            if not isinstance(member, ValueSpan):
                yield from self._bare(member, field.inner if field and isinstance(field.kind, T.StructType) else ())
            elif not member.quoted:
                yield member, field

    def _check(self, member: ValueSpan | Members) -> None:
        """Checks that a member without a column is valid JSON."""
        if not isinstance(member, ValueSpan):
            for inner in member.values():
                self._check(inner)
        elif not member.quoted:
            texts = self._texts(member)
            is_word = flags(pc.is_in(texts, _WORDS))
            if not is_word.all():
                self._require_json_numbers(member, texts, ~is_word, integers=False)
                texts.filter(pa.array(~is_word)).cast(pa.float64())

    def _member(self, field: Field, member: ValueSpan | Members | None) -> pa.Array:
        kind = field.kind
        if member is None:
            return pa.nulls(self._count, read_type(field, frozenset(), {}))
        if not isinstance(member, ValueSpan):
            if not isinstance(kind, T.StructType):
                raise NotExact
            inner = self._object(field.inner, member)
            return pa.StructArray.from_arrays(inner, [child.name for child in field.inner])
        texts = self._texts(member)
        if member.quoted:
            if not isinstance(kind, (T.StringType, T.BinaryType, T.DecimalType, T.DateType, T.TimestampType)):
                raise NotExact
            return texts
        if isinstance(kind, T.BooleanType):
            return _booleans(texts)
        if isinstance(kind, (T.IntegralType, T.FractionalType)):
            return self._numbers(member, texts, arrow_type(kind))
        if pc.all(pc.equal(texts, "null")).as_py():
            return pa.nulls(self._count, read_type(field, frozenset(), {}))
        if unit_of(field) is not None:
            return self._numbers(member, texts, pa.int64())
        if isinstance(kind, T.StringType):
            return self._written(member, texts)
        raise NotExact

    def _written(self, span: ValueSpan, texts: pa.StringArray) -> pa.StringArray:
        """Returns numbers and booleans as texts."""
        is_word = flags(pc.is_in(texts, _WORDS))
        if not is_word.all():
            self._require_json_numbers(span, texts, ~is_word, integers=False)
            texts.filter(pa.array(~is_word)).cast(pa.float64())
        return pc.if_else(pc.equal(texts, "null"), None, texts)

    def _numbers(self, span: ValueSpan, texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
        nulls = pc.equal(texts, "null")
        integers = pa.types.is_integer(kind)
        if pa.types.is_decimal(kind) and not are_short_decimals(texts):
            raise NotExact
        if not pc.any(nulls).as_py():
            self._require_json_numbers(span, texts, None, integers)
            return texts.cast(kind)
        self._require_json_numbers(span, texts, ~flags(nulls), integers)
        return pc.if_else(nulls, None, texts).cast(kind)

    def _require_json_numbers(
        self, span: ValueSpan, texts: pa.StringArray, selected: Flags | None, integers: bool
    ) -> None:
        """Raises NotExact for numbers that Arrow's cast accepts and JSON does not: leading zeros, `.5`, `5.`,
        hexadecimal digits, names of infinity. Texts that the cast refuses may pass."""
        data, starts, ends = self._batch.data, self._matched.starts[span.index], self._matched.ends[span.index]
        if selected is not None:
            starts, ends = starts[selected], ends[selected]
        first_characters = data[starts]
        if not _digits(first_characters).all():
            starts = starts + (first_characters == _MINUS)
            first_characters = data[starts]
            if not _digits(first_characters).all():
                raise NotExact
        zero = (first_characters == _ZERO) & (ends - starts > 1)
        if zero.any() and (integers or not _point_or_exponent(data[starts[zero] + 1]).all()):
            raise NotExact
        if integers:
            return
        if not _digits(data[ends - 1]).all():
            raise NotExact
        # The texts follow one another without a separator, and none ends in a point.
        joined = np.frombuffer(texts.buffers()[2], np.uint8)
        exponents = joined | _TO_LOWER == _LOWER_E
        if exponents.any() and (exponents[1:] & (joined[:-1] == _POINT)).any():
            raise NotExact

    def _texts(self, span: ValueSpan) -> pa.StringArray:
        matched = self._matched
        return cut(self._batch.data, matched.starts[span.index], matched.ends[span.index], pa.string())


def _fitting(field: Field) -> str:
    """Returns a pattern of bare values that certainly fit a column."""
    kind = field.kind
    if isinstance(kind, T.DecimalType):
        whole, scale = kind.precision - kind.scale, kind.scale
        digits = f"(0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
        return f"-?{digits}" + (rf"(\.[0-9]{{1,{scale}}})?" if scale else "")
    if unit_of(field) is not None:
        return "-?(0|[1-9][0-9]{0,8})"
    return _FITTING.get(type(kind), "null")


def _booleans(texts: pa.StringArray) -> pa.BooleanArray:
    nulls = pc.equal(texts, "null")
    if pc.any(nulls).as_py():
        texts = pc.if_else(nulls, None, texts)
    is_true = pc.equal(texts, "true")
    if not pc.all(pc.or_(is_true, pc.equal(texts, "false"))).as_py():
        raise NotExact
    return is_true


def _point_or_exponent(signs: Bytes) -> Flags:
    matches: Flags = (signs == _POINT) | (signs | _TO_LOWER == _LOWER_E)
    return matches


def _digits(signs: Bytes) -> Flags:
    matches: Flags = signs - np.uint8(_ZERO) <= 9
    return matches
