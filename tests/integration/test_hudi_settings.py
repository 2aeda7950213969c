"""Tables that are written with every setting of Hudi that the sink accepts have the rows and files that they must have,
and the list of settings is that of Hudi's own classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sink.audit.audit import audit
from sink.clients.java.installation import spark_jars
from sink.config.hudi_keys import KEYS
from sink.devtools.hudi_keys import differences
from tests.integration.conftest import MakeDriver
from tests.integration.sinktable import slices_of
from tests.integration.table_kit import connected
from tests.integration.upsert_kit import BY_LOG, ON_READ, Upserts, expected, plain, random_log, rows, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TRIED: Mapping[str, str] = {key.name.replace(".", "__"): key.tried for key in KEYS.values() if key.tried}
"""Every value in the list's column `tried`, as the kits take settings."""


def test_the_list_of_settings_has_each_name_that_hudi_reads_and_no_other(spark: SparkSession) -> None:
    [jar] = (jar for jar in spark_jars() if jar.name.startswith("hudi-"))
    assert differences(spark._jvm, jar) == []


def test_appends_with_every_accepted_setting_keep_all_rows_in_files_as_they_say(
    make_driver: MakeDriver, tmp_path: Path
) -> None:
    driver = make_driver(**TRIED, services__clustering="true", partition__field__name="kind")
    done = set()
    for number in range(1, 7):
        driver.land(number)
        if number % 3 == 0:
            results = (*driver.table.metadata_services(), *driver.table.services())
            assert not any(service.reason for service in results), results
            done |= {service.name for service in results if service.instant}
    assert {"clustering", "cleaning", "metadata compaction"} <= done
    base = tmp_path / "table"
    assert list((base / ".hoodie" / "timeline" / "history").glob("*.parquet"))
    for metadata in ("true", "false"):
        frame = driver.spark.read.format("hudi").option("hoodie.metadata.enable", metadata).load(str(base))
        found = sorted((row.id, row.kind, row._hoodie_record_key) for row in frame.collect())
        key = "_kafka_topic:t,_kafka_partition:0,_kafka_offset:{}"
        assert found == [(number, "a", key.format(number)) for number in range(10, 70)], metadata
    files = [path for path in base.rglob("*.parquet") if ".hoodie" not in path.parts]
    assert {pq.read_metadata(file).row_group(0).column(0).compression for file in files} == {"SNAPPY"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({**ON_READ, "index__type": "record"}, id="merge on read, record index"),
        pytest.param({"index__type": "bloom"}, id="copy on write, bloom filters"),
        pytest.param({**ON_READ, "index__type": "bucket"}, id="merge on read, buckets"),
    ],
)
def test_upserts_with_every_accepted_setting_keep_the_newest_row_of_each_key(
    spark: SparkSession, kafka, zookeeper, topic, tmp_path: Path, settings: Mapping[str, str]
) -> None:
    name, log = topic(), random_log(1, 1, 400, 60, ordered=False)
    send(kafka.address, name, log.changes(0))
    with connected(zookeeper.address) as client:
        upserts = Upserts(spark, client, tmp_path / "sink", kafka.address, name, **BY_LOG, **TRIED, **settings)
        done = set()
        for end in range(100, 500, 100):
            upserts.land((0, end - 100, end))
            results = (*upserts.table.metadata_services(), *upserts.table.services()) if end % 200 == 0 else ()
            assert not any(service.reason for service in results), results
            done |= {service.name for service in results if service.instant}
        upserts.table.stop_heartbeats()
        assert {"cleaning", "metadata compaction"} <= done
        assert ("compaction" in done) == (ON_READ.items() <= settings.items())
        wanted = plain(expected(log, slices_of(name, (0, 0, 400)), ordered=False))
        for metadata in ("true", "false"):
            assert upserts.rows(**{"hoodie.metadata.enable": metadata}) == wanted, metadata
        assert rows(Path(upserts.settings.base_path)) == wanted, "hudi-rs"
        report = audit(upserts.settings.base_path, "orders", storage=upserts.settings.storage)
        assert report.held, report.to_json()
