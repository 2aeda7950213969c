"""One command's measurements, as data: which peer reads which topic with how much to warm up, in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from coordination.errors import ConfigError
from tests.bench.lab import Load
from tests.bench.results import Shape
from tests.bench.topics import Topic

MILLION = 1_000_000
COMMIT_PARTITIONS = 128
"""Kafka partitions of the runs that look at the commit phase."""
TABLE_PARTITIONS = 8


class ShapeSelection(Enum):
    """The shapes that a peer is run with."""

    EVERYWHERE = "every number of partitions, every warm-up"
    NARROW = "the first number of partitions, every warm-up"
    SPREAD = f"{COMMIT_PARTITIONS} partitions, the first warm-up, records of {TABLE_PARTITIONS} regions"


@dataclass(frozen=True, slots=True)
class Axes:
    """The shapes: partitions of the topic, records to warm up with. `records` are counted after the largest warm-up;
    after a smaller one more are counted, because every run reads the same topic."""

    partitions: tuple[int, ...]
    warm_ups: tuple[int, ...]
    records: int

    def __post_init__(self) -> None:
        smallest, total = min(self.warm_ups), self.records + max(self.warm_ups)
        if min(self.partitions) < 1 or smallest < max(self.partitions):
            raise ConfigError(f"--partitions: {self.partitions}: each needs a record in the warm-up of {smallest}")
        for warm_up in self.warm_ups:
            if warm_up % smallest or total % warm_up:
                raise ConfigError(
                    f"--warm-up: {warm_up:,} is not a multiple of {smallest:,}, or {total:,} records (--records and the"
                    f" largest warm-up) are not a multiple of it: transactions have to be equal"
                )

    def load(self, shape: Shape) -> Load:
        """Returns a shape's load, rounded down to a multiple of its partitions. A transaction has a warm-up's size."""
        smallest = min(self.warm_ups)
        unit = smallest // shape.partitions * shape.partitions
        lead = shape.warm_up // smallest * unit
        return Load((self.records + max(self.warm_ups)) // smallest * unit - lead, lead, lead)

    def shapes(self, selection: ShapeSelection) -> list[Shape]:
        if selection is ShapeSelection.SPREAD:
            return [Shape(COMMIT_PARTITIONS, self.warm_ups[0])] if COMMIT_PARTITIONS in self.partitions else []
        partitions = self.partitions if selection is ShapeSelection.EVERYWHERE else self.partitions[:1]
        return [Shape(count, warm_up) for count in partitions for warm_up in self.warm_ups]

    def topic(self, shape: Shape, selection: ShapeSelection) -> Topic:
        total = self.load(shape).total
        regions = TABLE_PARTITIONS if selection is ShapeSelection.SPREAD else 0
        kind = "regional" if regions else "orders"
        return Topic(f"{kind}-{total}-{shape.partitions}", shape.partitions, total // shape.partitions, regions)


def numbers(text: str) -> tuple[int, ...]:
    """Parses `4,128,1024`. Raises `ConfigError`."""
    return tuple(_number(part, 1) for part in text.split(","))


def millions(text: str) -> tuple[int, ...]:
    """Parses `2,4` and `0.5`, in millions. Raises `ConfigError`."""
    return tuple(_number(part, MILLION) for part in text.split(","))


def _number(text: str, unit: int) -> int:
    try:
        value = float(text) * unit
    except ValueError:
        value = 0.0
    if value < 1 or value != round(value):
        raise ConfigError(f"{text!r} is not a number that can be used: numbers above 0, separated by commas")
    return round(value)


def interleaved(axes: Axes, selections: Sequence[ShapeSelection]) -> Iterator[tuple[int, Shape]]:
    """Yields indices of `selections` with their shapes, so that peers which are compared follow each other."""
    shapes = [shape for selection in ShapeSelection for shape in axes.shapes(selection)]
    for shape in dict.fromkeys(shapes):
        for index, selection in enumerate(selections):
            if shape in axes.shapes(selection):
                yield index, shape
