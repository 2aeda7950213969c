"""Parses and writes Spark's DDL for table columns without a JVM.

Guarantee: `StructType.fromDDL` of Spark 3.5 reads every accepted text alike. Types that JSON or Hudi cannot hold are
refused by name. `parse_struct` reads the text that `to_ddl` writes. Raises ConfigError with the position and the word
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.schema.avro import AVRO_NAME, MAX_PRECISION

_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+)|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<sign>[<>,():]))"
)

_SIMPLE: dict[str, Callable[[], T.DataType]] = {
    "boolean": T.BooleanType,
    "tinyint": T.ByteType,
    "byte": T.ByteType,
    "smallint": T.ShortType,
    "short": T.ShortType,
    "int": T.IntegerType,
    "integer": T.IntegerType,
    "bigint": T.LongType,
    "long": T.LongType,
    "float": T.FloatType,
    "real": T.FloatType,
    "double": T.DoubleType,
    "string": T.StringType,
    "binary": T.BinaryType,
    "date": T.DateType,
    "timestamp": T.TimestampType,
    "timestamp_ltz": T.TimestampType,
}
_REFUSED = {
    "char": "string",
    "character": "string",
    "varchar": "string",
    "timestamp_ntz": "timestamp",
    "void": "string",
    "interval": "string or bigint",
}


def parse_struct(ddl: str) -> T.StructType:
    """Parses the columns of a DDL text; like Spark it allows `struct<...>` around them."""
    reader = _DdlReader(ddl)
    if [word.lower() for word, _ in reader.tokens[:2]] == ["struct", "<"]:
        kind = reader.kind()
        assert isinstance(kind, T.StructType)
    else:
        kind = T.StructType(reader.columns())
    reader.expect("")
    return kind


def to_ddl(struct: T.StructType) -> str:
    """Writes the columns as DDL, one a line. DDL cannot express NOT NULL for elements of arrays and values of maps."""
    return ",\n".join(_written_field(field, " ") for field in struct.fields)


def _written_field(field: T.StructField, separator: str) -> str:
    name = field.name if AVRO_NAME.fullmatch(field.name) else "`" + field.name.replace("`", "``") + "`"
    return f"{name}{separator}{_type_ddl(field.dataType)}{'' if field.nullable else ' NOT NULL'}"


def _type_ddl(kind: T.DataType) -> str:
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{_type_ddl(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<{_type_ddl(kind.keyType)}, {_type_ddl(kind.valueType)}>"
    if isinstance(kind, T.StructType):
        return f"STRUCT<{', '.join(_written_field(field, ': ') for field in kind.fields)}>"
    return kind.simpleString().upper()


class _DdlReader:
    """A recursive descent parser; `position` counts words."""

    def __init__(self, ddl: str) -> None:
        self.ddl = ddl
        self.tokens = _tokens(ddl)
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position][0]

    def take(self) -> str:
        word = self.peek()
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return word

    def skip(self, *words: str) -> bool:
        next_words = [word.lower() for word, _ in self.tokens[self.position : self.position + len(words)]]
        if next_words != list(words):
            return False
        self.position += len(words)
        return True

    def expect(self, word: str) -> None:
        if self.peek() != word:
            raise self.error(f"expected {word!r}" if word else "expected ',' or the end")
        self.take()

    def error(self, reason: str) -> ConfigError:
        word, offset = self.tokens[self.position]
        token = f"found {word[:40]!r}" if word else "the text ends"
        return ConfigError(f"{reason} at position {offset}, {token}: {_excerpt(self.ddl, offset)}")

    def columns(self) -> list[T.StructField]:
        fields = [self.column()]
        while self.skip(","):
            fields.append(self.column())
        return fields

    def column(self) -> T.StructField:
        word = self.peek()
        if not re.match(r"\w|`", word):
            raise self.error("expected a column name")
        name = self.take()
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        self.skip(":")
        kind = self.kind()
        nullable = not self.skip("not", "null")
        if self.skip("comment"):
            if not self.peek().startswith(("'", '"')):
                raise self.error("expected a quoted comment")
            self.take()
        return T.StructField(name, kind, nullable)

    def kind(self) -> T.DataType:
        name = self.peek().lower()
        if name in _REFUSED:
            raise self.error(f"type {name} is not supported, use {_REFUSED[name]},")
        if name in _SIMPLE:
            self.take()
            return _SIMPLE[name]()
        if name in ("decimal", "dec", "numeric"):
            return self.decimal()
        if name in ("array", "map", "struct"):
            self.take()
            self.expect("<")
            kind = {"array": self.array, "map": self.map, "struct": self.struct}[name]()
            self.expect(">")
            return kind
        raise self.error("expected a type")

    def decimal(self) -> T.DataType:
        start = self.position
        self.take()
        precision, scale = 10, 0
        if self.skip("("):
            precision = self.number()
            scale = self.number() if self.skip(",") else 0
            self.expect(")")
        if not (1 <= precision <= MAX_PRECISION and scale <= precision):
            self.position = start
            raise self.error(f"decimal({precision},{scale}) needs a precision of 1 to 38 and a scale within it,")
        return T.DecimalType(precision, scale)

    def number(self) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", self.peek()):
            raise self.error("expected a number")
        return int(self.take())

    def array(self) -> T.DataType:
        return T.ArrayType(self.kind())

    def map(self) -> T.DataType:
        start = self.position
        if not isinstance(self.kind(), T.StringType):
            self.position = start
            raise self.error("a map's key must be string, because JSON and Avro have no other,")
        self.expect(",")
        return T.MapType(T.StringType(), self.kind())

    def struct(self) -> T.DataType:
        return T.StructType(self.columns())


def _tokens(ddl: str) -> list[tuple[str, int]]:
    tokens: list[tuple[str, int]] = []
    offset = 0
    end = len(ddl.rstrip())
    while offset < end:
        match = _TOKEN.match(ddl, offset)
        if match is None:
            offset += len(ddl[offset:]) - len(ddl[offset:].lstrip())
            raise ConfigError(f"cannot read position {offset}: {_excerpt(ddl, offset)}")
        word = match[match.lastgroup or 0]
        tokens.append((word, match.end() - len(word)))
        offset = match.end()
    # The empty word marks the end, so that the parser can always look ahead.
    return [*tokens, ("", len(ddl))]


def _excerpt(ddl: str, offset: int) -> str:
    return f"...{ddl[max(0, offset - 20) : offset]} >>> {ddl[offset : offset + 20]}"
