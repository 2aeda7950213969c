"""Random Avro schemas, columns that come near to them, and records: right, at the edges, and mutilated."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from json_cases import NUMBERS, TEXTS, TIMES

INTEGERS = [0, 1, -1, 127, 128, -129, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 16777217, 33554435]
MOMENTS = [19849, 1714979280, 1714979280123, 1714979280123456, 1714979280123456789, -62135596800, 253402300799, 2932896]
ENDLESS = [9223372036825200000, -9223372036832400000]
FLOATS = [
    1714979280.1,
    19849.5,
    -1.25,
    0.0,
    -0.0,
    1.0,
    0.1,
    1.5,
    1e16,
    1e-7,
    3.4e38,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
    16777217.0,
]
WORDS = ["", "a", "é😀", "6F1C2B3A-1111-4222-8333-94A5B6C7D8E9", "12.3", "1e2", "-0.005", "AeJA", "19.999"]
NAMES = ["a", "B", "c", "dd", "Dd", "é"]
LOGICAL: dict[str, list[dict[str, Any]]] = {
    "int": [{"logicalType": "date"}, {"logicalType": "time-millis"}, {"connect.name": "io.debezium.time.Date"}],
    "long": [
        *(
            {"logicalType": f"{zone}timestamp-{unit}"}
            for zone in ("", "local-")
            for unit in ("millis", "micros", "nanos")
        ),
        {"logicalType": "time-micros"},
        {"connect.name": "io.debezium.time.MicroTimestamp"},
        {"logicalType": "date"},
    ],
    "string": [{"logicalType": "uuid"}, {"logicalType": "varchar"}],
    "bytes": [
        *({"logicalType": "decimal", "precision": p, "scale": s} for p, s in ((10, 2), (64, 4), (38, 38), (5, 0))),
        {"logicalType": "decimal", "precision": 2, "scale": 5},
        {"logicalType": "decimal", "precision": 2_000_000_000, "scale": 1_000_000_000},
        {"logicalType": "uuid"},
    ],
}
FIXED: list[dict[str, Any]] = [
    {"size": 16, "logicalType": "uuid"},
    {"size": 12, "logicalType": "duration"},
    {"size": 5, "logicalType": "decimal", "precision": 9, "scale": 3},
    {"size": 5, "logicalType": "decimal", "precision": 90, "scale": 3},
    {"size": 3, "logicalType": "uuid"},
]
COLUMNS = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "DECIMAL(38,4)",
    "STRING",
]
COLUMNS += ["BINARY", "DATE", "TIMESTAMP"]
FITTING = {
    "boolean": ["BOOLEAN", "STRING"],
    "int": ["INT", "BIGINT", "TINYINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "STRING", "DATE", "TIMESTAMP"],
    "long": ["BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38,4)", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP"],
    "float": ["FLOAT", "DOUBLE", "STRING", "TIMESTAMP", "DATE"],
    "double": ["DOUBLE", "STRING", "TIMESTAMP", "DATE"],
    "string": ["STRING", "BINARY", "DECIMAL(10,2)", "DATE", "TIMESTAMP"],
    "bytes": ["BINARY", "STRING", "DECIMAL(10,2)", "DECIMAL(38,4)"],
    "fixed": ["BINARY", "STRING", "DECIMAL(10,2)"],
    "enum": ["STRING"],
}


class AvroCases:
    """Schemas and values from one source of randomness."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._count = 0

    def schema(self) -> dict[str, Any]:
        return self._record(2)

    def columns(self, schema: dict[str, Any]) -> list[str]:
        """Returns columns as DDL, most of which can hold the fields."""
        names = {field["name"].lower(): field for field in schema["fields"]}
        return [
            f"`{self._spelled(field['name'])}` {self._column(field['type'])}{self._null()}" for field in names.values()
        ]

    def value(self, schema: dict[str, Any]) -> bytes:
        content = self._encoded(schema)
        if self.random.random() < 0.9:
            return content
        position = self.random.randrange(len(content) + 1)
        kind = self.random.randrange(3)
        if kind == 0:
            return content[:position]
        if kind == 1:
            return content + b"\0"
        return content[:position] + self.random.randbytes(1) + content[position + 1 :]

    def _record(self, depth: int) -> dict[str, Any]:
        names = self.random.sample(NAMES, self.random.randint(1, 4))
        fields = [{"name": name, "type": self._type(depth), "default": 5} for name in names]
        return {"type": "record", "name": self._name(), "fields": fields}

    def _name(self) -> str:
        self._count += 1
        return f"{self.random.choice(('', 'x.', 'x.y.'))}N{self._count}"

    def _type(self, depth: int) -> Any:
        draw = self.random.random()
        if depth and draw < 0.35:
            inner = {
                "record": lambda: self._record(depth - 1),
                "array": lambda: {"type": "array", "items": self._type(depth - 1)},
                "map": lambda: {"type": "map", "values": self._type(depth - 1)},
            }
            return inner[self.random.choice([*inner])]()
        if draw < 0.65:
            branches = [self._simple() for _ in range(self.random.randint(1, 3))]
            if depth and self.random.random() < 0.3:
                branches += [self._record(depth - 1), self._record(depth - 1)]
            branches.insert(self.random.randrange(len(branches) + 1), "null")
            return branches
        return self._simple()

    def _simple(self) -> Any:
        kind = self.random.choice([*FITTING])
        if kind == "enum":
            return {"type": "enum", "name": self._name(), "symbols": ["RED", "GREEN"], "default": "BLUE"}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(), **self.random.choice(FIXED)}
        if kind in LOGICAL and self.random.random() < 0.5:
            return {"type": kind, **self.random.choice(LOGICAL[kind])}
        return kind

    def _column(self, schema: Any) -> str:
        if self.random.random() < 0.02:
            return self.random.choice(COLUMNS)
        if isinstance(schema, list):
            return self._column(self.random.choice([branch for branch in schema if branch != "null"]))
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return f"STRUCT<{', '.join(self.columns(schema))}>"
        if kind == "array":
            return f"ARRAY<{self._column(schema['items'])}>"
        if kind == "map":
            return f"MAP<STRING, {self._column(schema['values'])}>"
        return self.random.choice(FITTING[kind])

    def _spelled(self, name: str) -> str:
        return name.swapcase() if name.isascii() and self.random.random() < 0.2 else "e" if name == "é" else name

    def _null(self) -> str:
        return " NOT NULL" if self.random.random() < 0.1 else ""

    def _encoded(self, schema: Any) -> bytes:
        if isinstance(schema, list):
            number = self.random.randrange(len(schema))
            return zigzag(number) + self._encoded(schema[number])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return b"".join(self._encoded(field["type"]) for field in schema["fields"])
        if kind in ("array", "map"):
            items = [self._item(schema) for _ in range(self.random.randrange(3))]
            return (zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"
        content = self._simple_content(schema, kind)
        return zigzag(len(content)) + content if kind in ("string", "bytes") else content

    def _item(self, schema: Any) -> bytes:
        if schema["type"] == "array":
            return self._encoded(schema["items"])
        return zigzag(1) + self.random.choice((b"k", b"l")) + self._encoded(schema["values"])

    def _simple_content(self, schema: Any, kind: str) -> bytes:
        random = self.random
        contents: dict[str, Callable[[], bytes]] = {
            "null": lambda: b"",
            "boolean": lambda: random.choice((b"\0", b"\1", b"\2")),
            "int": lambda: zigzag(random.choice((random.choice(INTEGERS[:8]), random.randint(-(2**31), 2**31 - 1)))),
            "long": lambda: zigzag(random.choice((*INTEGERS, *MOMENTS, *ENDLESS, random.randint(-(2**63), 2**63 - 1)))),
            "float": lambda: random.choice((random.randbytes(4), struct.pack("<f", random.choice(FLOATS)))),
            "double": lambda: random.choice((random.randbytes(8), struct.pack("<d", random.choice(FLOATS)))),
            "string": lambda: random.choice((*WORDS, *TIMES, *NUMBERS, *TEXTS)).encode(),
            "bytes": self._bytes,
            "fixed": lambda: random.randbytes(schema["size"]),
            "enum": lambda: zigzag(random.choice((0, 1, 1, 2))),
        }
        return contents[kind]()

    def _bytes(self) -> bytes:
        number = self.random.randint(-(10**12), 10**12) * 10 ** self.random.choice((0, 0, 2, 30))
        wide = number.to_bytes(20, "big", signed=True)
        return self.random.choice((wide, wide[-6:], b"", b"text", b"\xff" * 1001))


def zigzag(number: int) -> bytes:
    """Returns a number as Avro writes `int` and `long`."""
    rest, content = ((number << 1) ^ (number >> 63)) & (2**64 - 1), b""
    while rest > 127:
        content += bytes([rest & 127 | 128])
        rest >>= 7
    return content + bytes([rest])
