"""What a participant asks of an engine: write these slices under that instant, and report.

Guarantee of every engine: all slices or an error; the files are invisible until the instant is completed; the
same slice gives the same rows, record keys, bad records and digest in every attempt. Voided by a table that is not the
one the settings name. Errors: BadRecord (one, or more than are tolerated) and DataLoss with coordinates; anything else
is worth another attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from coordination.model import SetAside, Slice, SliceResult

DIGEST_MASK = (1 << 64) - 1
"""Digests are sums modulo 2^64; Spark hands them over as signed longs."""


@dataclass(frozen=True, slots=True)
class Written:
    """One result per slice, those without records included; one Hudi write stat per file."""

    results: tuple[SliceResult, ...]
    stats: tuple[str, ...]
    size: int
    """Bytes of the values that were read."""
    errors: tuple[SetAside, ...] = ()


class Engine(Protocol):
    def check(self) -> None:
        """Refuses, with ConfigError, settings that this engine cannot serve."""
        ...

    def write(
        self, instant: str, slices: Sequence[Slice], columns: str = "", records: DataFrame | None = None
    ) -> Written:
        """Writes the slices' files, with the columns that `TableSchema.columns` names, by default those it was made
        with. The Spark job runs in the job group named by the instant. `records` are taken instead of Kafka's, with the
        same columns as these: a Spark partition for each slice, in the order of offsets.
        """
        ...

    def cancel(self, instant: str) -> None:
        """Ends the job that writes under the instant, if there is one; its `write` then raises."""
        ...
