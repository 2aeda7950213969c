"""Collects statistics of each field in sample JSON documents, from which `sink.infer.json_samples` derives the types:
kinds, forms of text, and the first value that needs a wider type.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

from sink.decode import time_texts
from sink.decode.json.decimals import NOT_FINITE
from sink.decode.json.text import FractionalNumber, JsonObject, WholeNumber
from sink.schema.avro import AVRO_NAME

MAP_KEYS = 20
DEEPEST = 16
"""Levels of nested objects and arrays that become columns."""
DECIMAL_DIGITS = 38
_LONG = 1 << 63
_DOUBLE_DIGITS = 400
"""Digits before the point: no double has more."""
_MICROS = 6
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ISO_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.(?P<fraction>[0-9]+))?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?"
)


class Kind(Enum):
    """Kinds of JSON value; the enum's value is the name in a warning."""

    NULL = "null"
    BOOLEAN = "a boolean"
    WHOLE = "an integer"
    FRACTION = "a fraction"
    TEXT = "a text"
    OBJECT = "an object"
    ARRAY = "an array"
    DEEP = "something too deep"


class Form(Enum):
    """Forms of a text."""

    DATE = "dates"
    TIME = "timestamps"
    OTHER = "other texts"


class FieldStats:
    """Statistics of one field over all documents."""

    def __init__(self) -> None:
        self.first: dict[Kind, int] = {}
        """The index of the first value of each kind."""
        self.forms: set[Form] = set()
        self.wide: int | None = None
        """The index of the first value with an integer beyond 64 bits."""
        self.wider: int | None = None
        """The index of the first integer beyond 38 digits."""
        self.inexact: int | None = None
        """The index of the first integer that no double represents exactly."""
        self.lossy: int | None = None
        """The index of the first fraction with more digits than a double keeps."""
        self.beyond: int | None = None
        """The index of the first fraction that is larger than any double."""
        self.nanos: int | None = None
        """The index of the first timestamp with more digits than microseconds."""
        self.unzoned: int | None = None
        """The index of the first timestamp without a zone."""
        self.objects = 0
        self.members: dict[str, FieldStats] = {}
        self.holders: Counter[str] = Counter()
        """The number of objects that have each member."""
        self.element: FieldStats | None = None

    def add(self, value: Any, index: int, depth: int = 0) -> None:
        kind = _kind_of(value, depth)
        self.first.setdefault(kind, index)
        if kind is Kind.WHOLE:
            self._add_whole(value, index)
        elif kind is Kind.FRACTION:
            if self.lossy is None and _loses_digits(value):
                self.lossy = index
            if self.beyond is None and value not in NOT_FINITE and math.isinf(float(value)):
                self.beyond = index
        elif kind is Kind.TEXT:
            self._add_text(value, index)
        elif kind is Kind.OBJECT:
            self.objects += 1
            for name, inner in value:
                member = self.members.get(name)
                if member is None:
                    member = self.members[name] = FieldStats()
                member.add(inner, index, depth + 1)
            self.holders.update({name for name, _ in value})
        elif kind is Kind.ARRAY:
            self.element = self.element or FieldStats()
            for inner in value:
                self.element.add(inner, index, depth + 1)

    def _add_whole(self, value: WholeNumber, index: int) -> None:
        digits = len(value.lstrip("-"))
        number = int(value) if digits <= _DOUBLE_DIGITS else None
        if number is None or not -_LONG <= number < _LONG:
            self.wide = index if self.wide is None else self.wide
            if digits > DECIMAL_DIGITS:
                self.wider = index if self.wider is None else self.wider
        if self.inexact is None and not _is_double(number):
            self.inexact = index

    def _add_text(self, text: str, index: int) -> None:
        if Form.OTHER in self.forms:
            return
        if _ISO_DATE.fullmatch(text) and _parses(time_texts.days, text):
            self.forms.add(Form.DATE)
        elif (match := _ISO_TIME.fullmatch(text)) and _parses(time_texts.micros, text):
            self.forms.add(Form.TIME)
            if self.nanos is None and len(match["fraction"] or "") > _MICROS:
                self.nanos = index
            if self.unzoned is None and match["zone"] is None:
                self.unzoned = index
        else:
            self.forms.add(Form.OTHER)

    def absorb(self, other: FieldStats) -> None:
        """Merges the statistics of another field into this one."""
        for kind, index in other.first.items():
            self.first.setdefault(kind, index)
        self.forms |= other.forms
        for name in ("wide", "wider", "inexact", "lossy", "beyond", "nanos", "unzoned"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))
        self.objects += other.objects
        self.holders.update(other.holders)
        for name, member in other.members.items():
            self.members.setdefault(name, FieldStats()).absorb(member)
        if other.element is not None:
            self.element = self.element or FieldStats()
            self.element.absorb(other.element)

    def all_members(self) -> FieldStats:
        """Returns the statistics of all members together, as the values of a map."""
        together = FieldStats()
        for member in self.members.values():
            together.absorb(member)
        return together

    def has_keys_like_data(self) -> bool:
        if not any(AVRO_NAME.fullmatch(name) for name in self.members):
            return True
        return len(self.members) >= MAP_KEYS and 2 * max(self.holders.values()) <= self.objects


def _kind_of(value: Any, depth: int) -> Kind:
    if value is None:
        return Kind.NULL
    if isinstance(value, list):
        if depth > DEEPEST:
            return Kind.DEEP
        return Kind.OBJECT if isinstance(value, JsonObject) else Kind.ARRAY
    return {bool: Kind.BOOLEAN, WholeNumber: Kind.WHOLE, FractionalNumber: Kind.FRACTION, str: Kind.TEXT}[type(value)]


def _parses(parse: Callable[[str], int], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_double(number: int | None) -> bool:
    try:
        return number is not None and int(float(number)) == number
    except OverflowError:
        return False


def _loses_digits(text: str) -> bool:
    """Returns whether the nearest double has other digits, or is infinite."""
    try:
        exact = Decimal(text)
    except InvalidOperation:
        # The exponent is too large.
        return True
    return exact.is_finite() and Decimal(repr(float(text))) != exact
