"""Tables as hudi-rs shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hudi import HudiTableBuilder

TRANSACTIONS = ("commit", "deltacommit")
_COMPLETED = re.compile(rf"(\d{{17}})_\d{{17}}\.({'|'.join(TRANSACTIONS)})")


def rows_of(table: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns no rows of a table that was never created. A column that a file is older than is None in its rows."""
    if not (table / ".hoodie" / "hoodie.properties").exists():
        return []
    batches = HudiTableBuilder.from_base_uri(str(table)).build().read()
    return [tuple(row.get(name) for name in columns) for batch in batches for row in batch.to_pylist()]


def committed_instants(table: Path) -> set[str]:
    """Reads completed instants of the active and of the archived timeline."""
    timeline = table / ".hoodie" / "timeline"
    instants = {match[1] for path in timeline.glob("*commit") if (match := _COMPLETED.fullmatch(path.name))}
    for archived in _archived(timeline / "history"):
        entries = pq.read_table(archived, columns=["instantTime", "action"]).to_pylist()
        instants |= {entry["instantTime"] for entry in entries if entry["action"] in TRANSACTIONS}
    return instants


def _archived(history: Path) -> list[Path]:
    """Returns the files of the newest manifest: a writer that was killed leaves others."""
    numbers = [int(path.name.removeprefix("manifest_")) for path in history.glob("manifest_*") if path.suffix == ""]
    if not numbers:
        return []
    manifest = json.loads((history / f"manifest_{max(numbers)}").read_text())
    return [history / file["fileName"] for file in manifest["files"]]
