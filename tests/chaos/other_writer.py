"""Another job that writes to the sink's table by Spark's data source for Hudi, takes the table's lock, and may die."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.shape import Shape
from tests.rewrites.host import Host, failed

ROWS = 20
ATTEMPTS = 3
"""The job tries again when the table's lock finds that the sink has changed the same files."""
LONGEST_LIFE = 12.0
"""A job that is killed has had at most so many seconds for its commit."""
PROVENANCE = {
    "_kafka_topic": "STRING",
    "_kafka_partition": "INT",
    "_kafka_offset": "BIGINT",
    "_kafka_timestamp": "TIMESTAMP",
}


class OtherWriter:
    """Its rows have negative ids. `acknowledged` gets the id of each that Hudi has committed, a line each."""

    def __init__(self, directory: Path, acknowledged: Path) -> None:
        self._directory, self._acknowledged = directory, acknowledged
        self._jobs = 0
        self._id = 0
        self._host: Host | None = None

    def close(self) -> None:
        if self._host is not None:
            self._host.kill()
            self._host = None

    def write(self, settings: Path, shape: Shape, evolved: Mapping[str, str], chance: Random) -> str:
        """Starts a job that commits some rows, and perhaps cleans. Returns how that went."""
        self._jobs += 1
        sink, dies, cleans = str(settings), chance.random() < 0.4, chance.random() < 0.4
        life = chance.uniform(0, LONGEST_LIFE)
        self._host = host = Host(settings, self._directory, f"other{self._jobs}")
        try:
            host.ask("open", properties=sink)
            deletion = {} if shape.appends else {"_hoodie_is_deleted": "BOOLEAN"}
            columns = shape.columns({**evolved, **PROVENANCE, **deletion})
            rows = self._rows(columns)
            operation = "bulk_insert" if shape.appends else "upsert"
            write = {"sink": sink, "rows": rows, "operation": operation, "schema": columns}
            if dies:
                host.begin("upsert_as_another", **write)
                time.sleep(life)
                return f"another job killed {life:.1f} s after its commit began"
            if not self._write(host, write):
                return f"another job refused {ATTEMPTS} times"
            with self._acknowledged.open("a") as file:
                file.writelines(f"{row['id']}\n" for row in rows)
            if cleans:
                host.ask("clean_as_another", sink=sink)
            return f"another job committed {len(rows)} rows{' and cleaned' if cleans else ''}"
        finally:
            self.close()

    @staticmethod
    def _write(host: Host, write: Mapping[str, Any]) -> bool:
        for _ in range(ATTEMPTS):
            if not (reason := failed(host.attempt("upsert_as_another", **write))):
                return True
            assert "HoodieWriteConflict" in reason, reason
        return False

    def _rows(self, columns: str) -> list[dict[str, object]]:
        names = [column.split(" ")[0] for column in columns.split(", ")]
        rows = []
        for _ in range(ROWS):
            self._id -= 1
            row = {"id": self._id, "at": 0, "number": self._id, "_hoodie_is_deleted": False}
            rows.append({name: row.get(name) for name in names})
        return rows
