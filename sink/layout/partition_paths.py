"""Table partition paths of rows, as Hudi's key generators make them.

Guarantee: character for character what SimpleKeyGenerator (one column) and ComplexKeyGenerator (several)
give for the same values (a test compares with Hudi's own writer). A time is a column too: see
`sink.layout.partition_times`. A value that would leave the table's
directory is refused, where Hudi would follow it, and one that Hudi writes but cannot commit, or readers cannot
list, or take for another. Raises BadPartition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.spark_times import DAYS_OF_400_YEARS
from sink.layout.bad_partition import BadPartition

if TYPE_CHECKING:
    from sink.layout.partition_times import PartitionTime

PARTITION_TYPES: tuple[type[T.DataType], ...] = (
    T.StringType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.BooleanType,
    T.DateType,
)
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\[\\\]^{\x7f]")
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_NAME = 255
_REMEDY = "hoodie.datasource.write.partitionpath.urlencode=true, set before the table is made, escapes it"


@dataclass(frozen=True)
class Groups:
    """`codes` has one number per row: its position in `paths`."""

    paths: tuple[str, ...]
    codes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartitionPaths:
    """By the fields, and by a time after them."""

    fields: tuple[str, ...]
    hive_style: bool
    url_encode: bool
    time: PartitionTime | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return self.fields if self.time is None else (*self.fields, self.time.name)

    def complete(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the column that `group` asks for besides the fields, when there is a time to partition by."""
        return rows if self.time is None else self.time.add(rows)

    def group(self, rows: pa.RecordBatch) -> Groups:
        """Which path each row goes to, with the paths in their order. The rows are complete."""
        if not self.columns:
            return Groups(("",), np.zeros(rows.num_rows, np.int64))
        codes = np.zeros(rows.num_rows, np.int64)
        paths = [""]
        for field in self.columns:
            encoded = pc.dictionary_encode(rows.column(field), null_encoding="encode")
            names = [self._name(field, value) for value in _texts(encoded.dictionary)]
            # Number the combinations that occur, column by column: all that could may be more than 64 bits count.
            codes = codes * len(names) + encoded.indices.to_numpy(zero_copy_only=False)
            present, codes = np.unique(codes, return_inverse=True)
            before = [divmod(code, len(names)) for code in present.tolist()]
            paths = [f"{paths[code]}/{names[position]}" for code, position in before]
        # A path is the same text whatever order the batch had.
        paths = [path.removeprefix("/") for path in paths]
        reasons = ((code, _refusal(path) or self._misreading(path)) for code, path in enumerate(paths))
        refused = {code: reason for code, reason in reasons if reason}
        if refused:
            raise BadPartition({row: refused[code] for row, code in enumerate(codes.tolist()) if code in refused})
        # Two combinations may share a path: null and the empty text do.
        distinct = {path: number for number, path in enumerate(sorted(set(paths)))}
        renumber = np.array([distinct[path] for path in paths], np.int64)
        return Groups(tuple(distinct), renumber[codes] if len(paths) else codes.astype(np.int64))

    def _name(self, field: str, value: str | None) -> str:
        name = value or NULL_PARTITION
        if self.url_encode:
            name = _ESCAPED.sub(lambda character: f"%{ord(character[0]):02X}", name)
        return f"{field}={name}" if self.hive_style else name

    def _misreading(self, path: str) -> str | None:
        """Spark reads partition columns from the names of directories, and takes back what it takes for escaped."""
        for name in () if self.url_encode else path.split("/"):
            value = name.partition("=")[2] if self.hive_style else name
            if _ESCAPE.search(value):
                return f"partition path {path!r} has in {value!r} what readers take for an escaped character; {_REMEDY}"
            if "=" in value and not self.hive_style:
                return f"partition path {path!r} has in {value!r} what readers take for a column's name; {_REMEDY}"
        return None


def _texts(values: pa.Array) -> list[str | None]:
    """As Java writes them: Arrow has no sign for years of more than four digits, and no text for the largest."""
    if not pa.types.is_date32(values.type):
        return list(values.cast(pa.string()).to_pylist())
    return [None if day is None else _date_text(day) for day in values.cast(pa.int32()).to_pylist()]


def _date_text(day: int) -> str:
    """Formats days since 1970, by way of a year within Python's calendar, which repeats itself every 400 years."""
    cycles, within = divmod(day + date(1970, 1, 1).toordinal() - 1, DAYS_OF_400_YEARS)
    day_of_cycle = date.fromordinal(within + 1)
    year = day_of_cycle.year + 400 * cycles
    return f"{'-' if year < 0 else '+' if year > 9999 else ''}{abs(year):04d}-{day_of_cycle:%m-%d}"


def _refusal(path: str) -> str | None:
    """Hudi would write to `..` and to `.hoodie` without a word. In the first part of a path it writes a colon too,
    takes what stands before it for the scheme of a URI when it commits or reads, and fails at every try; HDFS takes
    none in any part. And one directory with a control character in its name makes the whole table unreadable for
    hudi-rs.
    """
    for name in path.split("/"):
        if name in ("", ".", "..", ".hoodie"):
            return f"partition path {path!r} has the part {name!r}, which is no directory of its own"
        if len(name.encode()) > _LONGEST_NAME:
            return f"partition path {path[:60]!r}... has a part longer than {_LONGEST_NAME} bytes"
        if _CONTROL.search(name):
            return f"partition path {path!r} has a control character in it; {_REMEDY}"
        if ":" in name:
            return f"partition path {path!r} has a colon in it; {_REMEDY}"
    return None
