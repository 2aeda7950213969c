"""Walks an Avro record before fastavro reads it, where few bytes can stand for much.

fastavro goes one level of C deeper for each record within itself, until the process ends, and makes an object for each
item of an array, also where items take no bytes. Guarantee: what passes nests at most `MOST_NESTED` levels, and has at
most `MOST_ITEMS` items without bytes. Only schemas that have such types are walked: of others each item takes a byte,
and the depth is that of the schema. Raises Bad.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sink.audit.decode.avro_types import WrittenType
from sink.audit.decode.rules import Bad

MOST_NESTED = 300
"""More than the sink takes. A level takes up to two Python frames, of a thousand."""
MOST_ITEMS = 100_000
"""More than the sink takes."""
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def bounded(written: WrittenType) -> Callable[[bytes], None] | None:
    """Returns what raises Bad for bytes of this type that stand for too much; None where none can."""
    types = _Types()
    return (lambda value: _Walk(value, types).over(written, 0)) if types.can_stand_for_much(written) else None


class _Types:
    """Looks at each type once, however often others refer to it."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._harmless: set[int] = set()
        self._empty: dict[int, bool] = {}

    def can_stand_for_much(self, written: WrittenType) -> bool:
        key = id(written)
        if key in self._open or (written.kind == "array" and self.is_empty(written.parts[0])):
            return True
        if key not in self._harmless:
            self._open.add(key)
            if any(map(self.can_stand_for_much, written.parts)):
                return True
            self._open.discard(key)
            self._harmless.add(key)
        return False

    def is_empty(self, written: WrittenType) -> bool:
        """Whether values of this type take no bytes."""
        if written.kind != "record":
            return written.kind == "null" or (written.kind == "fixed" and not written.size)
        if id(written) not in self._empty:
            # A record within itself that has no other way out has no value.
            self._empty[id(written)] = False
            self._empty[id(written)] = all(map(self.is_empty, written.parts))
        return self._empty[id(written)]


@dataclass
class _Walk:
    value: bytes
    types: _Types
    at: int = 0
    items: int = 0

    def over(self, written: WrittenType, depth: int) -> None:
        """Steps over a value."""
        kind = written.kind
        if depth > MOST_NESTED:
            raise Bad("nested too deeply")
        if kind in ("int", "long", "enum"):
            self._number()
        elif kind in ("bytes", "string"):
            self._step(self._number())
        elif kind == "record":
            for part in written.parts:
                self.over(part, depth + 1)
        elif kind == "union":
            branch = self._number()
            if not 0 <= branch < len(written.parts):
                raise Bad("no branch of the union")
            self.over(written.parts[branch], depth + 1)
        elif kind in ("array", "map"):
            self._items(written, depth + 1)
        else:
            self._step(written.size if kind == "fixed" else _FIXED_SIZES[kind])

    def _items(self, written: WrittenType, depth: int) -> None:
        is_empty = written.kind == "array" and self.types.is_empty(written.parts[0])
        while count := self._number():
            if count < 0:
                count = -count
                self._number()
            if is_empty:
                self.items += count
                if self.items > MOST_ITEMS:
                    raise Bad("too many items without bytes")
                continue
            for _ in range(count):
                if written.kind == "map":
                    self._step(self._number())
                self.over(written.parts[0], depth)

    def _number(self) -> int:
        found = shift = 0
        while True:
            if self.at >= len(self.value) or shift > 63:
                raise Bad("no number")
            byte = self.value[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)

    def _step(self, size: int) -> None:
        if size < 0 or size > len(self.value) - self.at:
            raise Bad("fewer bytes than a value has")
        self.at += size
