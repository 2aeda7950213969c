"""Tests of `make test-all` only, beside those that carry the mark themselves: what they prove, another test proves too.

A pattern is one of `fnmatch`, on a test's id from the repository's root, with `[` for itself. Beside it stands where
the sentence stays proved in `make test`. `tests/unit/test_thorough.py` holds that each pattern still names a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

MOVED: Mapping[str, str] = {
    "tests/chaos/test_chaos.py*": "test_takeover kills workers at each step and audits; the simulation breaks the rest",
    "tests/integration/test_outages.py*": "the simulation takes ZooKeeper away and empties it; test_s3_outage has one",
    "tests/integration/test_prometheus.py*": "test_alerts plays each fault; test_monitoring holds the names",
    "tests/integration/test_cluster.py*": "run once in `make test-all`, beside YARN; test_session holds the settings",
    "tests/integration/test_catalog.py*": "unit tests hold when it is registered; the metastore is real in test-all",
    "tests/integration/test_s3_identity.py*": "test_storage_settings holds what each client is given",
    "tests/integration/test_s3_product.py*merge_on_read*": "test_s3_upserts writes it; test_upserts compacts",
    "tests/integration/test_s3_upserts.py*copy on write*": "its cell of merge on read; copy on write in test_upserts",
    "tests/integration/test_s3_validate.py*one_sentence_without_a_secret[no server*": "test_storage_faults has it",
    "tests/integration/test_s3_validate.py*one_sentence_without_a_secret[no jar*": "test_storage_settings has it",
    "tests/integration/test_upsert_evolution.py*[merge on read, buckets]": "its other cells",
    "tests/integration/test_reader_matrix.py*changes_the_rows*[hudi-*": "its cell of the Arrow engine",
    "tests/integration/test_rehearsal.py*statistics_of_columns[False]": "its cell with column statistics",
    "tests/integration/test_flush.py*empty_commits*": "the coordinator's unit tests",
    "tests/integration/test_kafka.py*not_blamed_for_an_earlier_failure*": "the other tests of a broker that is away",
    "tests/integration/test_table.py*which_wants_none[between two transactions]": "its cell during one",
    "tests/integration/test_task_reader.py*one_task_and_one_file[spark]": "its cell of the other reader",
    "tests/integration/test_upsert_registry.py*[postgresql, merge on read]": "its other cells, and test_upserts",
    "tests/integration/test_errors_table.py*[hudi-*": "its cells of the Arrow engine",
    "tests/integration/test_monitoring.py*can_hang_and_die*": "test_kafka_process: a child's end ends nothing else",
    "tests/integration/test_monitoring.py*shows_as_a_wait*": "test_metrics, from the same calls",
    "tests/integration/test_http.py*zookeeper_that_is_away*": "test_http_health judges it",
    "tests/integration/test_http.py*one_leads_and_both_tell*": "test_verbs asks two workers",
    "tests/integration/test_page.py*thousand_partitions*": "figures in docs/http.md",
    "tests/integration/test_page.py*phone*": "looked at when the page changes",
    "tests/integration/test_discovery.py*outlasts_a_broker*": "the other tests of discovery, and of Kafka's client",
    "tests/integration/test_s3_outage.py*slow_store*": "test_storage_watch, and its other outages",
}


def is_thorough(nodeid: str) -> bool:
    return any(fnmatchcase(nodeid, pattern.replace("[", "[[]")) for pattern in MOVED)
