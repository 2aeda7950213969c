"""Finds the values of a batch that match a layout, by comparing bytes, and the positions of their members' values.

Guarantee: a matching value consists of the layout's texts in order, with a span between every two of them. It has no
backslash, no control character and as many quotes as the layout. So a span has no quote: the span of a string is the
whole string, without escapes. All spans are UTF-8; the span of a bare value is not empty. Raises nothing on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sink.decode.cursors import Bytes, Flags, flags
from sink.decode.json.layout import MAX_TEXT_BYTES, JsonLayout

Positions = npt.NDArray[np.int64]

_FEWEST = 256
"""Smallest batch: for fewer values numpy's calls cost more than they save."""
_MOST_BYTES = 16 << 20
_MOST_QUOTES = 1 << 21
"""Most quotes of a batch. Each takes eight bytes of memory."""
_BLOCK = 1 << 16
_WORD = 8
_QUOTE, _BACKSLASH, _BLANK = b'"\\ '
_ASCII = 0x7F


@dataclass(frozen=True, slots=True)
class Matched:
    """Values that match a layout: for each span where it starts and ends in the bytes of the batch."""

    positions: Positions
    starts: tuple[Positions, ...]
    ends: tuple[Positions, ...]

    def only(self, selected: Flags) -> Matched:
        starts, ends = (
            tuple(positions[selected] for positions in span_positions) for span_positions in (self.starts, self.ends)
        )
        return Matched(self.positions[selected], starts, ends)


class Scratch:
    """Memory that is reused from batch to batch: to allocate it again would cost as much time as its use."""

    def __init__(self) -> None:
        self._bytes = np.zeros(0, np.uint8)
        self._positions = np.zeros(0, np.int64)
        self._flags = np.zeros(_BLOCK, np.bool_)

    def padded(self, data: Bytes) -> Bytes:
        """Returns the bytes with zeros after them: texts are read at any position, also at negative ones."""
        size = len(data) + MAX_TEXT_BYTES + _WORD
        if len(self._bytes) < size:
            self._bytes = np.zeros(size * 5 // 4, np.uint8)
        padded_bytes = self._bytes[:size]
        padded_bytes[: len(data)] = data
        padded_bytes[len(data) :] = 0
        return padded_bytes

    def positions_of(self, data: Bytes, sign: int) -> Positions | None:
        """Returns the positions of the byte; None if there are too many."""
        count = 0
        for begin in range(0, len(data), _BLOCK):
            block = data[begin : begin + _BLOCK]
            in_block = np.flatnonzero(np.equal(block, sign, out=self._flags[: len(block)]))
            if count + len(in_block) > _MOST_QUOTES:
                return None
            if count + len(in_block) > len(self._positions):
                self._positions = np.concatenate([self._positions[:count], np.empty(count + len(in_block), np.int64)])
            np.add(in_block, begin, out=self._positions[count : count + len(in_block)])
            count += len(in_block)
        return self._positions[:count]

    def has(self, data: Bytes, sign: int) -> bool:
        blocks = (data[begin : begin + _BLOCK] for begin in range(0, len(data), _BLOCK))
        return any(np.equal(block, sign, out=self._flags[: len(block)]).any() for block in blocks)


class BatchText:
    """The bytes of a batch of values, and the positions of its quotes. Valid until the scratch memory is reused."""

    def __init__(self, values: pa.BinaryArray, starts: Positions, ends: Positions, data: Bytes, quotes: Positions):
        self.data = data
        self.plain = np.ones(len(values), np.bool_) if not values.null_count else flags(values.is_valid())
        self._starts, self._ends = starts, ends
        self._words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
        self._quotes = quotes
        self._counted: tuple[Positions, Positions] | None = None

    @classmethod
    def of(cls, scratch: Scratch, values: pa.BinaryArray) -> BatchText | None:
        """Returns None for a batch that is too small, too large, or not UTF-8."""
        if len(values) < _FEWEST or values.buffers()[2] is None:
            return None
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        begin, stop = int(offsets[0]), int(offsets[-1])
        if stop - begin > _MOST_BYTES:
            return None
        data = np.frombuffer(values.buffers()[2], np.uint8, stop)[begin:]
        try:
            if data.max(initial=0) > _ASCII:
                values.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        quotes = scratch.positions_of(data, _QUOTE)
        if quotes is None:
            return None
        bounds = offsets.astype(np.int64) - begin
        batch = cls(values, bounds[:-1], bounds[1:], scratch.padded(data), quotes)
        if data.min(initial=_BLANK) < _BLANK:
            batch._exclude(data < _BLANK)
        if scratch.has(data, _BACKSLASH):
            batch._exclude(data == _BACKSLASH)
        return batch

    def value(self, position: int) -> bytes:
        return self.data[self._starts[position] : self._ends[position]].tobytes()

    def matches(self, layout: JsonLayout, candidates: Flags) -> Matched | None:
        """Returns the values that match the layout, of those that `candidates` flags."""
        first_quotes, counts = self._value_quotes(layout.quote_count)
        rows = np.flatnonzero(candidates & (counts == layout.quote_count))
        if not len(rows):
            return None
        matched = self._compared(layout, rows, first_quotes[rows])
        return matched if len(matched.positions) else None

    def _compared(self, layout: JsonLayout, rows: Positions, first_quotes: Positions) -> Matched:
        starts: list[Positions] = []
        ends: list[Positions] = []
        is_match = np.ones(len(rows), np.bool_)
        last_text, quotes_before = len(layout.texts) - 1, 0
        for number, text in enumerate(layout.texts):
            if not number:
                positions = self._starts[rows]
            elif number == last_text:
                positions = self._ends[rows] - len(text)
            else:
                # Between two values there is a name, and so a quote, which gives the position of the text.
                positions = self._quotes[first_quotes + quotes_before] - text.index(b'"')
            if number:
                ends.append(positions)
                # The texts are in order, and the span of a bare value is not empty.
                is_match &= starts[-1] + (not layout.texts[number - 1].endswith(b'"')) <= positions
            is_match &= self._has(text, positions)
            starts.append(positions + len(text))
            quotes_before += text.count(b'"')
        matched = Matched(rows, tuple(starts[:-1]), tuple(ends))
        return matched if is_match.all() else matched.only(is_match)

    def _has(self, text: bytes, positions: Positions) -> Flags:
        """Flags the positions at which the text is. A negative position reads the zeros after the last byte."""
        is_match = np.ones(len(positions), np.bool_)
        for begin in range(0, len(text), _WORD):
            piece = text[begin : begin + _WORD]
            words = self._words[positions + begin]
            if len(piece) < _WORD:
                words &= np.uint64((1 << 8 * len(piece)) - 1)
            is_match &= words == np.uint64(int.from_bytes(piece, "little"))
        return is_match

    def _value_quotes(self, per_value: int) -> tuple[Positions, Positions]:
        """Returns for each value the index of its first quote, and how many quotes it has."""
        if self._counted is None and len(self._quotes) == per_value * len(self._starts):
            by_value = self._quotes.reshape(-1, per_value)
            if (by_value[:, 0] >= self._starts).all() and (by_value[:, -1] < self._ends).all():
                self._counted = np.arange(len(by_value)) * per_value, np.full(len(by_value), per_value)
        if self._counted is None:
            first_quotes = np.searchsorted(self._quotes, self._starts)
            self._counted = first_quotes, np.searchsorted(self._quotes, self._ends) - first_quotes
        return self._counted

    def _exclude(self, unfit: Flags) -> None:
        """Marks values with a flagged byte as not plain."""
        concerned = np.searchsorted(self._ends, np.flatnonzero(unfit), side="right")
        self.plain[concerned] = False
