"""On S3, every command works, two sinks share a table, and a sink continues after another writer."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.fleet import produce
from tests.integration.commands_kit import a_reset_lands_everything_again, every_command_works
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.integration.s3_kit import HUDIS_DEFAULTS, table_location, with_store_access
from tests.integration.test_adoption import (
    REACHED,
    config_of,
    hudi_class,
    read_so_far,
    sink,  # noqa: F401
    write_as_another,
)
from tests.integration.test_adoption import RECORDS as ADOPTED
from tests.integration.test_adoption import Sink as RunSink
from tests.integration.test_shared_table import beside, both_land_though_a_coordinator_is_killed
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(900)]


def test_every_command_works_on_s3(make_fleet: MakeFleet, topic, s3: Store) -> None:
    fleet = make_fleet(
        name=topic(partitions=PARTITIONS), **METADATA, **table_location(s3), **{"errors.tolerance": "all"}
    )
    every_command_works(fleet)
    a_reset_lands_everything_again(fleet)


def test_two_sinks_of_one_table_on_s3_lose_a_coordinator(make_fleet: MakeFleet, s3: Store) -> None:
    first = make_fleet(records=1200, **HUDIS_DEFAULTS, **table_location(s3))
    second = beside(first, make_fleet(records=1200))
    both_land_though_a_coordinator_is_killed(first, second)


def test_a_sink_begins_on_s3_exactly_where_hudi_streamer_ended(
    spark: SparkSession,
    make_fleet: MakeFleet,
    sink: RunSink,  # noqa: F811
    s3: Store,
) -> None:
    location = table_location(s3)
    base_path = location["target.base.path"]
    fleet = make_fleet(
        records=ADOPTED, **{"record.key.fields": "id", "provenance.columns": False}, **METADATA, **location
    )
    checkpoint_text = f"{fleet.topic}," + ",".join(f"{partition}:{end}" for partition, end in REACHED.items())
    with_store_access(spark, s3)
    checkpoint = hudi_class(spark, "table.checkpoint.StreamerCheckpointV2")(checkpoint_text)
    metadata = dict(checkpoint.getCheckpointCommitMetadata(None, None))
    write_as_another(read_so_far(spark, fleet), base_path, metadata, "upsert", **{"hoodie.metadata.enable": "true"})
    code, output = sink("adopt", "--config", config_of(fleet), "--yes")
    assert code == 0, output
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), ADOPTED // PARTITIONS))
    produce(fleet.kafka, fleet.topic, 300, PARTITIONS, first=ADOPTED)
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), ADOPTED // PARTITIONS + 100))
    rows = spark.read.format("hudi").load(base_path).select("id").collect()
    assert sorted(row.id for row in rows) == list(range(ADOPTED + 300))
    assert fleet.audit().held
