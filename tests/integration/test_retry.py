"""A retry writes the very same rows: the test rolls back an attempt that was written in full, and repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hudi import HudiTableBuilder

from coordination.machines.transactions import results
from coordination.state.model import Phase
from tests.fleet import in_phase, produce, transaction_in
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet
from tests.workers import Part

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def file_groups(table: Path, instant: str | None) -> set[str]:
    """Returns the file groups that have a base file of this instant."""
    return {path.name.partition("_")[0] for path in table.glob(f"*_{instant}.parquet")}


def test_a_retried_transaction_has_the_same_slices_digests_keys_and_file_groups(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start("w1", "Write:PREPARED.before=wait")
    fleet.wait_fired("Write:PREPARED.before")
    first = transaction_in(fleet.wait("STARTED", in_phase(Phase.STARTED)), Phase.STARTED)
    first_groups = file_groups(fleet.table, first.header.instant)
    assert first_groups
    # The worker dies just before the decision: all rows are written, and no reader may see one.
    fleet.workers["w1"].kill_part(Part.GROUP)
    fleet.start("w2", "Write:PREPARED.after=wait")
    fleet.wait_fired("Write:PREPARED.after")
    second = transaction_in(fleet.wait("PREPARED", in_phase(Phase.PREPARED)), Phase.PREPARED)
    assert second.header.instant != first.header.instant
    assert second.header.batch == first.header.batch
    assert results(second) == results(first)
    assert file_groups(fleet.table, second.header.instant) == first_groups
    fleet.release("Write:PREPARED.after")
    fleet.wait_landed(ENDS)
    fleet.assert_exactly_once(RECORDS)
    rows = HudiTableBuilder.from_base_uri(fleet.table.as_uri()).build().read()
    keys = [key for batch in rows for key in batch.column("_hoodie_record_key").to_pylist()]
    assert sorted(keys) == sorted(
        f"_kafka_topic:{fleet.topic},_kafka_partition:{partition},_kafka_offset:{offset}"
        for partition in range(PARTITIONS)
        for offset in range(RECORDS // PARTITIONS)
    )
    produce(fleet.kafka, fleet.topic, 300, PARTITIONS, first=RECORDS)
    fleet.wait_landed({partition: end + 100 for partition, end in ENDS.items()})
    fleet.assert_exactly_once(RECORDS + 300)
