"""`python -m tests.bench.json_shapes`: what the middle one of JSON's three ways is worth, by the shape of the values.

Each shape is decoded as a task decodes it (layouts, then Arrow's parser, then the reference), and without Arrow's
parser. One process, one thread; the two take turns, and the fastest of their rounds counts, in processor time. Both
have to give the same rows.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from sink.decode.json.records import JsonDecoder
from tests.bench.orders import DDL, order
from tests.columns_kit import columns

ROWS = 8_192
ROUNDS = 7
Shape = tuple[str, Callable[[int, random.Random], bytes]]
_COLUMNS = 100


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _wide(number: int, rng: random.Random) -> bytes:
    return _text(
        {f"c{column}": rng.randrange(10**6) if column % 2 else f"value {number}" for column in range(_COLUMNS)}
    )


def _nested(number: int, rng: random.Random) -> bytes:
    place = {"city": f"city {number % 97}", "at": {"x": rng.random(), "y": rng.random()}}
    return _text({"id": number, "place": place, "kind": "a"})


def _arrays(number: int, rng: random.Random) -> bytes:
    lines = [{"sku": f"s{rng.randrange(999)}", "count": rng.randrange(9)} for _ in range(rng.randrange(4))]
    return _text({"id": number, "lines": lines, "tags": ["a", "b"][: number % 3]})


def _escapes(number: int, rng: random.Random) -> bytes:
    return _text({"id": number, "note": f'he said "{rng.randrange(999)}"\nand left', "kind": "a"})


def _some_escapes(number: int, rng: random.Random) -> bytes:
    return _text({"id": number, "note": '"quoted"' if rng.random() < 0.05 else "plain", "kind": "a"})


def _nulls(number: int, rng: random.Random) -> bytes:
    return _text({f"c{column}": None if rng.random() < 0.7 else number for column in range(12)})


def _missing(number: int, rng: random.Random) -> bytes:
    return _text({f"c{column}": number for column in range(12) if rng.random() < 0.7})


def _mixed_order(number: int, rng: random.Random) -> bytes:
    names = ["id", "kind", "note", "price", "amount", "at"]
    rng.shuffle(names)
    return _text({name: number if name in ("id", "amount") else 1.5 if name == "price" else "x" for name in names})


def _pretty(number: int, _: random.Random) -> bytes:
    return json.dumps({"id": number, "kind": "a", "note": "pretty"}, indent=2).encode()


SHAPES: dict[str, Shape] = {
    "the benchmark's order": (DDL, lambda number, rng: order(number, rng)[1]),
    "narrow": ("id bigint", lambda number, _: _text({"id": number})),
    "100 columns": (
        ", ".join(f"c{column} {'bigint' if column % 2 else 'string'}" for column in range(_COLUMNS)),
        _wide,
    ),
    "nested": ("id bigint, place struct<city: string, at: struct<x: double, y: double>>, kind string", _nested),
    "arrays": ("id bigint, lines array<struct<sku: string, count: int>>, tags array<string>", _arrays),
    "escapes in each": ("id bigint, note string, kind string", _escapes),
    "escapes in one of twenty": ("id bigint, note string, kind string", _some_escapes),
    "many nulls": (", ".join(f"c{column} bigint" for column in range(12)), _nulls),
    "rare layouts (members missing)": (", ".join(f"c{column} bigint" for column in range(12)), _missing),
    "long strings": (
        "id bigint, body string",
        lambda number, rng: _text({"id": number, "body": "lorem ipsum " * rng.randrange(40, 200)}),
    ),
    "numbers as text": (
        "id string, price decimal(12,2), at timestamp",
        lambda number, rng: _text(
            {"id": str(number), "price": rng.randrange(10**6) / 100, "at": f"2026-01-01T00:00:{number % 60:02}Z"}
        ),
    ),
    "mixed key order": (
        "id bigint, kind string, note string, price double, amount int, at string",
        _mixed_order,
    ),
    "pretty-printed": ("id bigint, kind string, note string", _pretty),
}


class WithoutArrow(JsonDecoder):
    """Layouts, then the reference."""

    def __init__(self, ddl: str) -> None:
        super().__init__(columns(ddl))
        self._fast.supported = False


def measured() -> Iterator[tuple[str, float, float]]:
    """Yields a shape, and the µs a record with and without Arrow's parser."""
    for name, (ddl, value) in SHAPES.items():
        rng = random.Random(1)
        values = pa.array([value(number, rng) for number in range(ROWS)], pa.binary())
        decoders = (JsonDecoder(columns(ddl)), WithoutArrow(ddl))
        fastest = [float("inf")] * 2
        for _ in range(ROUNDS):
            rows = []
            for position, decoder in enumerate(decoders):
                began = time.process_time()
                rows.append(decoder.decode(values))
                fastest[position] = min(fastest[position], time.process_time() - began)
            if rows[0].rows != rows[1].rows or rows[0].bad != rows[1].bad:
                raise AssertionError(f"{name}: the two ways differ")
        yield name, *(seconds / ROWS * 1e6 for seconds in fastest)


def main() -> None:
    print("| values | µs a record | without Arrow's parser | |\n|---|---:|---:|---:|")
    for name, with_arrow, without in measured():
        print(f"| {name} | {with_arrow:.2f} | {without:.2f} | {without / with_arrow - 1:+.0%} |", flush=True)


if __name__ == "__main__":
    main()
