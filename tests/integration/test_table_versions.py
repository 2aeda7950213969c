"""The sink refuses a table of an older Hudi version with the way to upgrade it, and adopts the upgraded table."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sink.storage.table_files import UPGRADE
from tests.fleet import Fleet, produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.integration.test_adoption import (
    ENDS,
    REACHED,
    RECORDS,
    Sink,
    config_of,
    hudi_class,
    read_so_far,
    sink,  # noqa: F401
    write_as_another,
)

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", ["6", "8"])
def test_a_table_of_an_older_version_is_refused_with_the_upgrade_that_lets_it_be_adopted(
    spark: SparkSession,
    make_fleet: MakeFleet,
    sink: Sink,  # noqa: F811
    version: str,
) -> None:
    fleet = make_fleet(records=RECORDS, **{"record.key.fields": "id", "provenance.columns": False})
    checkpoint_text = f"{fleet.topic}," + ",".join(f"{partition}:{end}" for partition, end in REACHED.items())
    checkpoint = hudi_class(spark, "table.checkpoint.StreamerCheckpointV1")(checkpoint_text)
    metadata = dict(checkpoint.getCheckpointCommitMetadata(None, None))
    options = {"hoodie.write.table.version": version}
    write_as_another(read_so_far(spark, fleet), fleet.table, metadata, "upsert", **options)
    config = config_of(fleet)
    results = [sink("validate", "--config", config), sink("adopt", "--config", config, "--yes")]
    assert [code for code, _ in results] == [1, 2]
    assert all(
        UPGRADE in " ".join(output.split()) and f"version{': ' if version == '8' else ' '}{version}" in output
        for _, output in results
    ), results
    worker = fleet.start("w0")
    assert worker.wait(120) == 2
    assert UPGRADE in fleet.log("w0")
    assert f"hoodie.table.version={version}\n" in properties(fleet), "a command has upgraded the table"

    spark.sql(f"CREATE TABLE older USING hudi LOCATION '{fleet.table}'")
    spark.sql(UPGRADE.partition(": ")[2].replace("...", "older")).collect()
    spark.sql("DROP TABLE older")
    assert "hoodie.table.version=9\n" in properties(fleet)
    code, output = sink("adopt", "--config", config, "--yes")
    assert code == 0, output
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    produce(fleet.kafka, fleet.topic, 300, PARTITIONS, first=RECORDS)
    fleet.wait_landed(ENDS)
    rows = spark.read.format("hudi").load(str(fleet.table)).select("id").collect()
    assert sorted(row.id for row in rows) == list(range(RECORDS + 300))
    assert fleet.audit().held


def properties(fleet: Fleet) -> str:
    return (fleet.table / ".hoodie" / "hoodie.properties").read_text()
