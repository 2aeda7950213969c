# ruff: noqa: E501 - long lines of test data read better whole
"""Random JSON values that come near to a schema: right, slightly wrong, oddly spelled, and mutilated."""

from __future__ import annotations

import base64
import json
from random import Random

from pyspark.sql import types as T

NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "7",
    "127",
    "-128",
    "-129",
    "32767",
    "32768",
    "-32768",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036825200000",
    "-9223372036832400000",
    "9223372036854775808",
    "-9223372036854775808",
    "10000000000000000000000000",
    "99999999.99",
    "100000000",
    "0.1",
    "1.0",
    "1.5",
    "-2.50",
    "1.255",
    "1.245",
    "-0.005",
    "-0.0",
    "1e3",
    "1e9999999999",
    "1E-7",
    "2e0",
    "1.7976931348623157e308",
    "1e39",
    "5e-324",
    "1e-400",
    "16777217",
    "0.30000001192092896",
    "1.00000005960464477539062",
    "12345678.125",
    "123456789012345678.123",
    "0.001",
    "0.00099",
    "9999999.0",
    "10000000.5",
    "1e22",
    "1700000000",
    "NaN",
    "Infinity",
    "-Infinity",
    "+Infinity",
    "+INF",
    "-INF",
]
NOT_NUMBERS = [
    "01",
    "1.",
    ".5",
    "+1",
    "--1",
    "0x10",
    "Inf",
    "-Inf",
    "-NaN",
    "nan",
    "1e",
    "1e+",
    "-",
    "1_000",
    "TRUE",
    "nul",
    "INF",
    "-+INF",
]
TEXTS = [
    '""',
    '"abc"',
    '"é😀"',
    '"\\u00e9\\ud83d\\ude00"',
    '"a\\nb\\t\\"\\\\\\/"',
    '"\\u0000"',
    '"\\u001f"',
    '"\\\\u00ab"',
    '"\\\\\\u001f"',
    '"NaN"',
    '"Infinity"',
    '"-INF"',
    '"+INF"',
    '"nan"',
    '"1"',
    '"-1"',
    '"1.5"',
    '"1,000.5"',
    '"1e2"',
    '"+1.5"',
    '".5"',
    '"1."',
    '"abc1"',
    '"true"',
    '"null"',
    '"aGk="',
    '"aGk"',
    '"aGk=="',
    '"aG',
    'k="',
    '"####"',
    '"+/8="',
    '"-_8="',
    '"a\\qb"',
    '"\\u12"',
    '"{}"',
    '"[1]"',
    '"}\\n{"',
]
TIMES = (
    """
2024-02-29|2023-02-29|2024-2-9|2024-13-01|2024|2024-05|2024-05-|0001-01-01|1500-01-01|1582-10-10|9999-12-31|0000-01-01
 2024-02-29 |+2024-01-01|-0044-03-15|2024-02-29T|2024-02-29 x|2024/02/29|29.02.2024|2024-02-29 12|2024-02-29 12:34
2024-02-29 12:34:56|2024-02-29T12:34:56Z|2024-02-29T12:34:56.1|2024-02-29T12:34:56.123456789Z|2024-02-29T12:34:56.Z
2024-02-29T1:2:3|2024-02-29T12:34Z|2024-02-29T24:00:00Z|2024-02-29T23:59:60Z|2024-02-29T12:34:56+01:00
2024-02-29T12:34:56-0330|2024-02-29T12:34:56+1|2024-02-29T12:34:56+1:00|2024-02-29T12:34:56+01:00:30|2024-02-29T12:34:56+19:00
2024-02-29 12:34:56 UTC|2024-02-29 12:34:56UTC+3|2024-02-29 12:34:56 GMT-02:30|2024-02-29T12:34:56 Europe/Berlin
2024-03-31T02:30:00Europe/Berlin|2024-10-27T02:30:00Europe/Berlin|2024-02-29T12:34:56 Nowhere/Land|2024-02-29T12:34:56z
2024-02-29T12:34:56 PST|2024-07-29T12:34:56PST|2024-02-29T12:34:56 JST|1900-02-28T12:34:56EST|2024-02-29T12:34:56+130
2024-02-29T12:34:56+01:0203|2024-02-29T12:34:56+010203|2024-02-29T12:34:56+7:3|2024-02-29T12:34:56UTC+07:3
2024-02-29T12:34:56 localtime|2024-02-29T12:34:56 right/UTC|2024-02-29T12:34:56 posix/UTC|2024-02-29T12:34:56\u00a0UTC
2024-02-29T12:34:56 ROC|2024-02-29T12:34:56 Factory|2024-02-29T12:34:56 GMT0|2024-02-29 12:34 GMT|2024-02-29GMT
infinity|-infinity| Infinity |infinity Z|+infinity|1899-12-31T23:59:59Z|1500-01-01T00:00:00Z|9999-12-31T23:59:59.999999Z|2024-02-29T12:34:56.123456|2024-02-29 12:34:56.12345
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
BLANKS = ("", "", "", "", " ", "\n", "\t", "\r\n ")


class Cases:
    """Values for one schema from one source of randomness."""

    def __init__(self, random: Random, struct: T.StructType) -> None:
        self.random = random
        self.struct = struct

    def value(self) -> bytes:
        text = self._object(self.struct)
        if self.random.random() < 0.1:
            text = self._mutilated(text)
        return text.encode()

    def plain(self) -> bytes:
        """A value without surprises, which the fast path takes."""
        return json.dumps(dict.fromkeys(self.struct.names)).encode()

    def _mutilated(self, text: str) -> str:
        position = self.random.randrange(len(text))
        kind = self.random.randrange(4)
        if kind == 0:
            return text[:position]
        if kind == 1:
            return text[:position] + text[position + 1 :]
        if kind == 2:
            return text[:position] + self.random.choice('{}[]",:\\x0 \n\x01') + text[position:]
        return self.random.choice((" ", "\n", "[", "x", "\ufeff")) + text

    def _blank(self) -> str:
        return self.random.choice(BLANKS)

    def _object(self, kind: T.StructType) -> str:
        members = []
        for field in self.random.sample(kind.fields, self.random.randint(0, len(kind.fields))):
            name = json.dumps(field.name)
            draw = self.random.random()
            if draw < 0.03:
                name = f'"\\u{ord(field.name[0]):04x}{field.name[1:]}"'
            elif draw < 0.08:
                name = self.random.choice((name.upper(), name.title(), name.replace("s", "\u017f")))
            members.append((name, self._any(field.dataType)))
        if self.random.random() < 0.2:
            members.append((self.random.choice(('"unknown"', '""')), self._wild(2)))
        if members and self.random.random() < 0.03:
            members.append(self.random.choice(members))
        body = ",".join(
            f"{self._blank()}{name}{self._blank()}:{self._blank()}{text}{self._blank()}" for name, text in members
        )
        return "{" + body + "}"

    def _any(self, kind: T.DataType) -> str:
        draw = self.random.random()
        if draw < 0.08:
            return "null"
        return self._wild(2) if draw < 0.1 else self._fitting(kind)

    def _fitting(self, kind: T.DataType) -> str:
        if isinstance(kind, T.StructType):
            return self._object(kind)
        if isinstance(kind, T.ArrayType):
            return "[" + ",".join(self._any(kind.elementType) for _ in range(self.random.randrange(4))) + "]"
        if isinstance(kind, T.MapType):
            names = self.random.sample(("a", "b", "é", ""), self.random.randrange(4))
            return "{" + ",".join(f"{json.dumps(name)}:{self._any(kind.valueType)}" for name in names) + "}"
        if isinstance(kind, T.BooleanType):
            return self.random.choice(("true", "false"))
        if isinstance(kind, (T.StringType, T.BinaryType)):
            return self.random.choice(TEXTS)
        if isinstance(kind, (T.DateType, T.TimestampType)):
            if self.random.random() < 0.3:
                return self._count()
            return json.dumps(self.random.choice(TIMES))
        if isinstance(kind, T.DecimalType) and self.random.random() < 0.5:
            number = f"{self.random.randint(-(10**12), 10**12)}e-{self.random.randrange(8)}"
            return number if self.random.random() < 0.7 else json.dumps(number)
        if isinstance(kind, (T.DoubleType, T.FloatType)) and self.random.random() < 0.5:
            return repr(self.random.uniform(-1, 1) * 10 ** self.random.randint(-45, 38))
        fitting = [text for text in NUMBERS if len(text) < 4] if self.random.random() < 0.7 else NUMBERS
        return self.random.choice(fitting)

    def _count(self) -> str:
        """Returns a number that may count days, seconds, milliseconds, microseconds or nanoseconds since 1970."""
        digits = str(self.random.randint(-(10 ** self.random.randrange(22)), 10 ** self.random.randrange(22)))
        return digits + self.random.choice(("", "", "", ".0", ".5", "e0", "e3"))

    def _wild(self, depth: int) -> str:
        draw = self.random.random()
        if depth and draw < 0.2:
            return "[" + ",".join(self._wild(depth - 1) for _ in range(self.random.randrange(3))) + "]"
        if depth and draw < 0.4:
            names = self.random.sample(("a", "b", "c d"), self.random.randrange(3))
            return "{" + ", ".join(f"{json.dumps(name)} : {self._wild(depth - 1)}" for name in names) + "}"
        times = [json.dumps(text) for text in TIMES]
        pool = self.random.choice((NUMBERS, NUMBERS, TEXTS, TEXTS, times, ["true", "false", "null"], NOT_NUMBERS))
        return self.random.choice(pool)


LOGICAL = {
    T.DateType: ["org.apache.kafka.connect.data.Date", "io.debezium.time.Date", "io.debezium.time.Timestamp"],
    T.TimestampType: [
        "org.apache.kafka.connect.data.Timestamp",
        *(f"io.debezium.time.{name}" for name in ("Timestamp", "MicroTimestamp", "NanoTimestamp", "ZonedTimestamp")),
    ],
    T.DecimalType: ["org.apache.kafka.connect.data.Decimal"],
}
ODD_TYPES: list[object] = ["table", ["object", "null"], {}, 1, None, True]
SCALES = ["2", "0", "3", "-1", "20", "x", 2, None, "99999"]


def envelope(rnd: Random, struct: T.StructType) -> bytes:
    """Returns an envelope of Kafka Connect's, or nearly one, with `PAYLOAD` where its payload has to be."""
    shape = rnd.random()
    if shape < 0.1:
        schema: object = (
            None if shape < 0.05 else rnd.choice([5, "struct", [], {}, *({"type": kind} for kind in ODD_TYPES)])
        )
    else:
        schema = described(rnd, struct)
    separators = rnd.choice([(",", ":"), (", ", ": ")])
    text = json.dumps({"schema": schema, "payload": 0}, separators=separators)
    return (rnd.choice(["", "", "", " "]) + text[:-2] + "PAYLOAD" + rnd.choice(["}", "}", "}", "} ", ""])).encode()


def described(rnd: Random, kind: T.DataType) -> dict[str, object]:
    """Returns a schema of Kafka Connect's for a type, often with a logical name."""
    if isinstance(kind, T.StructType):
        spelled = rnd.choice([str, str, str.upper])
        fields = [{**described(rnd, field.dataType), "field": spelled(field.name)} for field in kind.fields]
        return {"type": "struct", "fields": fields[rnd.choice([0, 0, 1]) :] + fields[: rnd.choice([0, 1])]}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": described(rnd, kind.elementType)}
    if isinstance(kind, T.MapType):
        return {"type": "map", "keys": {"type": "string"}, "values": described(rnd, kind.valueType)}
    names = LOGICAL.get(type(kind), [])
    if not names or rnd.random() < 0.3:
        return {"type": "string"}
    return {"type": "int64", "name": rnd.choice(names), "parameters": {"scale": rnd.choice(SCALES)}}


def sent(rnd: Random, kind: T.DataType) -> object:
    """Returns a value of a type as Kafka Connect sends it, with no more than three fields of a struct."""
    if isinstance(kind, T.StructType):
        fields = rnd.sample(kind.fields, min(len(kind.fields), rnd.randint(1, 3)))
        required = [field for field in kind.fields if not field.nullable and field not in fields]
        return {field.name: sent(rnd, field.dataType) for field in [*fields, *required]}
    if isinstance(kind, T.ArrayType):
        return [sent(rnd, kind.elementType) for _ in range(rnd.randrange(3))]
    if isinstance(kind, T.MapType):
        return {key: sent(rnd, kind.valueType) for key in rnd.sample("abc", rnd.randrange(3))}
    if isinstance(kind, (T.DateType, T.TimestampType)):
        return rnd.choice(
            [0, -1, 19849, rnd.randrange(10**5), rnd.randrange(10**13), rnd.randrange(10**16), "2024-05-06"]
        )
    if isinstance(kind, (T.DecimalType, T.BinaryType)):
        return base64.b64encode(rnd.randbytes(rnd.choice([1, 2, 3, 3, 9]))).decode()
    if isinstance(kind, T.BooleanType):
        return rnd.random() < 0.5
    return "x" if isinstance(kind, T.StringType) else rnd.randrange(100)
