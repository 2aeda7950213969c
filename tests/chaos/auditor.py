"""`python -m tests.chaos.auditor TABLE ACKNOWLEDGED`: holds a table against the events that Kafka acknowledged.

Imports nothing of the sink: hudi-rs reads the table, as it stands on storage. Every acknowledged event has to be in
it exactly once, with its amount and the partition and the offset that Kafka gave it; one that was never acknowledged
may be there, but not twice. Prints one JSON object; exit status 0 if all of that holds, else 1.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import pyarrow as pa
from hudi import HudiTableBuilder

COLUMNS = ("id", "amount", "_kafka_partition", "_kafka_offset")


def audit(table: str, acknowledged: str) -> dict[str, object]:
    rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(table).build().read()).select(COLUMNS)
    numbers, amounts, *place = (rows.column(name).to_pylist() for name in COLUMNS)
    places = dict(zip(numbers, zip(*place, strict=True), strict=True))
    sent: dict[int, tuple[int, int]] = {}
    with open(acknowledged) as lines:
        for line in lines:
            partition, offset, number = map(int, line.split())
            sent[number] = (partition, offset)
    lost = [number for number in sent if number not in places]
    mistaken = [number for number, at in sent.items() if places.get(number, at) != at]
    mistaken += [number for number, amount in zip(numbers, amounts, strict=True) if amount != number / 4]
    repeated = [number for number, count in Counter(numbers).items() if count > 1]
    return {
        "acknowledged": len(sent),
        "rows": rows.num_rows,
        "lost": len(lost),
        "duplicated": rows.num_rows - len(places),
        "mistaken": len(mistaken),
        "examples": {"lost": lost[:5], "duplicated": repeated[:5], "mistaken": mistaken[:5]},
    }


def main() -> int:
    report = audit(*sys.argv[1:])
    print(json.dumps(report))
    return int(any(report[what] for what in ("lost", "duplicated", "mistaken")))


if __name__ == "__main__":
    sys.exit(main())
