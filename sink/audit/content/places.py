"""Where a row has to be: its table partition, its record key, and the text of a generated time column.

Written from what Hudi's key generators make of the table's properties. Raises Bad for a row that has no place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from sink.audit.checkpoints import LogPartition
from sink.audit.content.specification import TimePartition
from sink.audit.decode.moments import SECONDS, in_utc, moment_of_text
from sink.audit.decode.rules import Bad, Rules, chosen
from sink.audit.rows import PROVENANCE

_NULL = "__HIVE_DEFAULT_PARTITION__"
_EMPTY = "__empty__"
_ANY_OFFSET = "\0"
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\[\\\]^{\x7f]")
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TOKEN = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|[^A-Za-z']")
_FORMATS = {"yyyy": "%Y", "YYYY": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}


@dataclass(frozen=True)
class Places:
    """The rules of a table."""

    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    hive_style: bool
    url_encode: bool

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Places:
        def names(setting: str) -> tuple[str, ...]:
            listed = properties.get(setting, "").split(",")
            return tuple(name.partition(":")[0].strip() for name in listed if name.strip())

        def is_true(setting: str) -> bool:
            return properties.get(setting, "false").strip().lower() == "true"

        return cls(
            names("hoodie.table.recordkey.fields"),
            names("hoodie.table.partition.fields"),
            is_true("hoodie.datasource.write.hive_style_partitioning"),
            is_true("hoodie.datasource.write.partitionpath.urlencode"),
        )

    def path(self, row: Mapping[str, Any]) -> str:
        """Returns the table partition of a row; an empty text for that of a table without partitions."""
        if not self.partitions:
            return ""
        values = [self._value(name, row[name]) for name in self.partitions]
        names = [
            f"{name}={value}" if self.hive_style else value for name, value in zip(self.partitions, values, strict=True)
        ]
        path = "/".join(names)
        self._refuse(path)
        return path

    def _value(self, name: str, value: Any) -> str:
        if value is None:
            return _NULL
        text = _text(value)
        if text in ("", _NULL):
            raise Bad(f"{name} is a text that stands for null")
        return _ESCAPED.sub(lambda sign: f"%{ord(sign[0]):02X}", text) if self.url_encode else text

    def _refuse(self, path: str) -> None:
        """Raises Bad for a path that is not a directory of the table, or from which readers read another value."""
        parts = path.split("/")
        for part in parts:
            if part in ("", ".", "..", ".hoodie") or len(part.encode()) > 255 or _CONTROL.search(part) or ":" in part:
                raise Bad(f"{part!r} cannot be a directory")
            if part.startswith((".", "_")) and part != _NULL:
                raise Bad(f"readers skip {part!r}")
            value = part.partition("=")[2] if self.hive_style else part
            if not self.url_encode and (_ESCAPE.search(value) or ("=" in value and not self.hive_style)):
                raise Bad(f"readers read another value from {part!r}")
        values = [part for part in parts if "=" in part] if self.hive_style else parts
        if not self.url_encode and len(values) > len(self.partitions) > 1:
            raise Bad(f"{path!r} has more values than columns")

    def keys_of_places(self, sources: Sequence[LogPartition], numbers: pa.Array, offsets: pa.Array) -> pa.Array:
        """Returns the record keys of rows whose key is their place in the log, all at once.
        `numbers` are positions in `sources`."""
        parts = []
        for source in sources:
            place = dict(zip(PROVENANCE, (source.topic, source.partition, _ANY_OFFSET), strict=True))
            before, any_offset, after = self.key(place).partition(_ANY_OFFSET)
            parts.append((before, any_offset, after))
        before, has_offset, after = (pa.array(column, pa.string()).take(numbers) for column in zip(*parts, strict=True))
        texts = pc.if_else(pc.equal(has_offset, ""), "", offsets.cast(pa.string()))
        return pc.binary_join_element_wise(before, texts, after, "")

    def key(self, row: Mapping[str, Any]) -> str:
        """Returns the record key of a row."""
        values = [row.get(name) for name in self.keys]
        if None in values:
            raise Bad("a column of the record key is null")
        if len(self.keys) == 1 and len(self.partitions) <= 1:
            text = _text(values[0])
            if text == "":
                raise Bad("the record key is empty")
            return text
        if values[0] == "" and all(value == "" for value in values):
            raise Bad("all columns of the record key are empty")
        return ",".join([f"{name}:{_text(value) or _EMPTY}" for name, value in zip(self.keys, values, strict=True)])


def time_text(time: TimePartition, row: Mapping[str, Any], rules: Rules) -> str | None:
    """Returns the text of the generated column."""
    value = row[time.field]
    if value is None:
        return None
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        return _format(time.pattern, datetime(value.year, value.month, value.day))
    elif isinstance(value, str):
        moment = in_utc(moment_of_text(value))
    else:
        try:
            seconds = int(value * SECONDS[str(chosen(rules.time_unit, time.field))] // 1)
            moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)
        except OverflowError:
            raise Bad(f"{value} is outside of the years 1 to 9999") from None
    try:
        return _format(time.pattern, moment.astimezone(_zone(time.zone)))
    except OverflowError:
        # The local year is 0 or 10000, which Python does not count.
        raise Bad(f"{moment} has no local year") from None


@lru_cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _format(pattern: str, local: datetime) -> str:
    parts: list[str] = []
    for token in _TOKEN.finditer(pattern):
        if token[1] is not None:
            parts.append(token[1].replace("''", "'") or "'")
        elif token[2] in _FORMATS:
            text = local.strftime(_FORMATS[token[2]])
            parts.append(text.rjust(4, "0") if _FORMATS[token[2]] == "%Y" else text)
        else:
            parts.append(token[0])
    return "".join(parts)


def _text(value: Any) -> str:
    """Writes a value as Java does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)
