"""Formats the values of record keys and partition paths like Java.

Guarantee: the same texts as from Hudi's key generators. Arrow writes no sign before years of five digits, and cannot
write some large dates. Raises nothing on purpose.
"""

from __future__ import annotations

from datetime import date

import pyarrow as pa

from sink.decode.time_texts import DAYS_OF_400_YEARS


def value_texts(values: pa.Array) -> pa.StringArray:
    """Returns the text of each value; null stays null. It formats each distinct date once."""
    if not pa.types.is_date32(values.type):
        return values.cast(pa.string())
    encoded = values.dictionary_encode()
    days = encoded.dictionary.cast(pa.int32()).to_pylist()
    return pa.array(map(_date_text, days), pa.string()).take(encoded.indices)


def _date_text(day: int) -> str:
    """Formats days since 1970, shifted by multiples of 400 years into the range of Python's calendar."""
    cycles, within = divmod(day + date(1970, 1, 1).toordinal() - 1, DAYS_OF_400_YEARS)
    day_of_cycle = date.fromordinal(within + 1)
    year = day_of_cycle.year + 400 * cycles
    return f"{'-' if year < 0 else '+' if year > 9999 else ''}{abs(year):04d}-{day_of_cycle:%m-%d}"
