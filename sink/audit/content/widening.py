"""Compares FLOAT columns that were widened to DOUBLE: older rows may hold either of two numbers.

Where Hudi writes a file again, or Spark reads it, the FLOAT 0.1 becomes 0.1: its decimal digits. hudi-rs gives
0.10000000149011612: its binary digits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from sink.audit.content.specification import Specification


def widened(columns: pa.Schema, specifications: Mapping[int, Specification | str]) -> dict[str, list[int]]:
    """Returns, for each DOUBLE column, the commits in which it was a FLOAT. `specifications` are by commit; a text says
    why one cannot be read, and that commit is passed over."""
    read = {number: spec.floats for number, spec in specifications.items() if isinstance(spec, Specification)}
    doubles = (field.name for field in columns if pa.types.is_float64(field.type))
    found = {name: [number for number, floats in read.items() if name in floats] for name in doubles}
    return {name: numbers for name, numbers in found.items() if numbers}


def as_float(cell: str, commit: str, commits: Collection[int]) -> str:
    """Returns the expression for a cell in which the DOUBLE of a FLOAT's decimal digits is the FLOAT. `commit` is the
    expression for the number of its commit."""
    is_float = f"{commit} IN ({', '.join(map(str, commits))})"
    # Nine digits tell every two FLOATs apart. Any decimal that rounds to the FLOAT passes: Java's is not the shortest.
    is_decimal = f"{cell} = CAST(printf('%.8e', {cell}) AS DOUBLE) AND (TRY_CAST({cell} AS FLOAT) <> 0 OR {cell} = 0)"
    return f"CASE WHEN {is_float} AND {is_decimal} THEN CAST(TRY_CAST({cell} AS FLOAT) AS DOUBLE) ELSE {cell} END"
