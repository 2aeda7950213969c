"""Makes the partition paths of rows like Hudi's key generators.

Guarantee: the same paths as from SimpleKeyGenerator (one column) and ComplexKeyGenerator (several); a test compares
with Hudi's own writer. A partition by time is a column, too: see `sink.layout.partition_times`. A value is refused if
its path would leave the table's directory, if Hudi writes but cannot commit it, or if readers skip it, cannot list it,
or would read another value from it. Raises BadPartition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.quoting import quoted
from sink.layout.partition_times import BadPartition, PartitionTime
from sink.layout.value_texts import value_texts

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
_ENCODED = "hoodie.datasource.write.partitionpath.urlencode=true"
_REMEDY = f"{_ENCODED}, set before the table is made, escapes it."


@dataclass(frozen=True)
class Groups:
    """The partition paths of rows: `codes` has for each row the position of its path in `paths`."""

    paths: tuple[str, ...]
    codes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartitionPaths:
    """How the table is partitioned: by the fields, followed by a time."""

    fields: tuple[str, ...]
    hive_style: bool
    url_encode: bool
    time: PartitionTime | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return self.fields if self.time is None else (*self.fields, self.time.name)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that decide the path of a row."""
        return self.fields if self.time is None else (*self.fields, self.time.field)

    def complete(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows with the generated time column, if the table is partitioned by time."""
        return rows if self.time is None else self.time.add(rows)

    def group(self, rows: pa.RecordBatch) -> Groups:
        """Returns the path of each row, with the paths sorted. The rows come from `complete`."""
        if not self.columns:
            return Groups(("",), np.zeros(rows.num_rows, np.int64))
        codes = np.zeros(rows.num_rows, np.int64)
        paths = [""]
        for field in self.columns:
            encoded = pc.dictionary_encode(rows.column(field), null_encoding="encode")
            values, indices = (
                value_texts(encoded.dictionary).to_pylist(),
                encoded.indices.to_numpy(zero_copy_only=False),
            )
            _refuse_texts_of_null(field, values, indices)
            names = [self._name(field, value) for value in values]
            # Number the combinations that occur, column by column: the possible ones may exceed 64 bits.
            codes = codes * len(names) + indices
            present, codes = np.unique(codes, return_inverse=True)
            combinations = [divmod(code, len(names)) for code in present.tolist()]
            paths = [f"{paths[code]}/{names[position]}" for code, position in combinations]
        # The first separator is not part of the path.
        paths = [path.removeprefix("/") for path in paths]
        reasons = (
            (code, _refusal(path) or self._skipped(path) or self._misreading(path)) for code, path in enumerate(paths)
        )
        refused = {code: reason for code, reason in reasons if reason}
        if refused:
            raise BadPartition({row: refused[code] for row, code in enumerate(codes.tolist()) if code in refused})
        # Two combinations may share a path: values with slashes in them.
        distinct = {path: number for number, path in enumerate(sorted(set(paths)))}
        renumber = np.array([distinct[path] for path in paths], np.int64)
        return Groups(tuple(distinct), renumber[codes])

    def _name(self, field: str, value: str | None) -> str:
        name = NULL_PARTITION if value is None else value
        if self.url_encode:
            name = _ESCAPED.sub(lambda character: f"%{ord(character[0]):02X}", name)
        return f"{field}={name}" if self.hive_style else name

    def _skipped(self, path: str) -> str | None:
        """Returns why readers would skip the directory, or None. To Hadoop and Spark `.x` and `_x` are hidden."""
        for name in path.split("/"):
            if name.startswith((".", "_")) and name != NULL_PARTITION:
                return (
                    f"{_path(path)}: readers skip {quoted(name, repr(name))}, since it begins with a dot or an"
                    " underscore. Set partition.hive.style=true before the table is made."
                )
        return None

    def _misreading(self, path: str) -> str | None:
        """Returns why readers would read another value, or none.

        Spark unescapes the partition values in directory names. It takes a path of several columns apart at slashes, in
        Hive style where a column's name follows, and cannot read the table if it finds more values than columns."""
        names = [] if self.url_encode else path.split("/")
        values = [name for name in names if "=" in name] if self.hive_style else names
        if len(values) > len(self.columns) > 1:
            columns = f"{len(self.columns)} columns"
            return f"{_path(path)}: readers would find {len(values)} values for {columns}. {_REMEDY}"
        for name in names:
            value = name.partition("=")[2] if self.hive_style else name
            if _ESCAPE.search(value):
                return f"{_path(path)}: readers would unescape {quoted(value, repr(value))}. {_REMEDY}"
            if "=" in value and not self.hive_style:
                return f"{_path(path)}: readers would read a column name from {quoted(value, repr(value))}. {_REMEDY}"
        return None


def _refuse_texts_of_null(field: str, values: Sequence[str | None], indices: npt.NDArray[np.int64]) -> None:
    """Raises BadPartition for texts that readers would take for null: they would share its directory."""
    reasons: dict[int, str] = {}
    for position, value in enumerate(values):
        if value in ("", NULL_PARTITION):
            found = "an empty text" if value == "" else f"the text {NULL_PARTITION}"
            reason = (
                f"partition column {field!r} is {found}, which readers take for null. Have the producer write null."
            )
            reasons |= dict.fromkeys(np.flatnonzero(indices == position).tolist(), reason)
    if reasons:
        raise BadPartition(reasons)


def _path(path: str, cut: bool = False) -> str:
    as_written = f"{path[:60]!r}..." if cut else repr(path)
    return quoted(path, f"partition path {as_written}", "a partition path")


def _refusal(path: str) -> str | None:
    """Returns why the path is refused, or None.

    Hudi would write into `..` and `.hoodie`. It writes a path with a colon, but then takes the text before the colon
    for the scheme of a URI and cannot commit; HDFS refuses colons. One directory with a control character in its name
    makes the whole table unreadable for hudi-rs."""
    for name in path.split("/"):
        if name in ("", ".", "..", ".hoodie"):
            return (
                f"{_path(path)} has the part {quoted(name, repr(name))}, which cannot be a directory. Set"
                f" partition.hive.style=true or {_ENCODED} before the table is made."
            )
        if len(name.encode()) > _LONGEST_NAME:
            return f"{_path(path, cut=True)} has a part longer than {_LONGEST_NAME} bytes"
        if _CONTROL.search(name):
            return f"{_path(path)} has a control character in it. {_REMEDY}"
        if ":" in name:
            return f"{_path(path)} has a colon in it. {_REMEDY}"
    return None
