"""Expensive tests that run in `make test-all` only, beside the tests that carry the mark themselves.

Each key is an `fnmatch` pattern for a test's id from the repository's root, in which `[` stands for itself. Its value
names the test in `make test` that proves the same, or the part of it that needs no such server; "only here": none does.
`tests/unit/test_thorough.py` asserts that each pattern still matches the words of a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

MOVED: Mapping[str, str] = {
    "tests/chaos/test_chaos.py*": "test_takeover kills at three steps and audits; its auditor's cells need its run",
    "tests/integration/test_outages.py*": "the simulation takes ZooKeeper away and empties it; a real one only here",
    "tests/integration/test_prometheus.py*": "test_alerts where promtool is; test_monitoring the names",
    "tests/integration/test_cluster.py*": "only here, beside YARN: a cluster of its own",
    "tests/integration/test_catalog.py*": "when it is registered: unit tests; a metastore only here",
    "tests/integration/test_s3_identity.py*": "test_storage_settings: what each client is given; renewal only here",
    "tests/integration/test_s3_product.py*merge_on_read*": "test_upserts writes it; test_services compacts",
    "tests/integration/test_kafka.py*not_blamed_for_an_earlier_failure*": "only here: a broker that gives no answer",
    "tests/integration/test_table.py*which_wants_none[between*": "only here: others make a metadata table",
    "tests/integration/test_errors_table.py*[hudi-*": "its cell of the Arrow engine",
    "tests/integration/test_monitoring.py*can_hang_and_die*": "test_group_offsets; a killed child only here",
    "tests/integration/test_monitoring.py*shows_as_a_wait*": "test_metrics, from the same calls",
    "tests/integration/test_http.py*zookeeper_that_is_away*": "test_health judges it",
    "tests/integration/test_http.py*one_leads_and_both_tell*": "test_http_server, test_http_fleet",
    "tests/integration/test_page.py*thousand_partitions*": "only here",
    "tests/integration/test_page.py*phone*": "only here",
    "tests/integration/test_discovery.py*outlasts_a_broker*": "only here: the thread. Its looks are in the other tests",
    "tests/integration/test_s3_outage.py*": "test_storage_watch, from the same calls; a store that is away only here",
    "tests/integration/test_shared_table.py*lose_a_coordinator*": "test_table: commits by others lie between ours",
    "tests/integration/test_flush.py*backlog_is_eaten*": "test_patience sizes batches by bytes",
    "tests/integration/test_flush.py*empty_commits*": "the simulation commits them",
    "tests/integration/test_topics.py*comes_to_match*": "the simulation makes more of them; test_discovery finds them",
    "tests/integration/test_topics.py*aborted_records*": "test_task_reader: a slice that ends in them",
    "tests/integration/test_topics.py*compacted_topic*": "test_task_reader: a slice whose last offsets were compacted",
    "tests/integration/test_takeover.py*miss_the_write_status_deadline*": "the simulation; its other kills here",
    "tests/integration/test_takeover.py*participant_paused*": "its coordinator that is paused",
    "tests/integration/test_takeover.py*only_the_*_of_a_committing*": "its coordinator that is paused as a whole",
    "tests/integration/test_s3_validate.py*worker_says_the_same*[wrong secret*": "`sink validate` says it",
    "tests/integration/test_s3_validate.py*worker_says_the_same*[no bucket*": "`sink validate` says it",
    "tests/integration/test_s3_validate.py*worker_says_the_same*[wrong key*": "`sink validate` says it",
    "tests/integration/test_s3_validate.py*worker_says_the_same*[no directory*": "`sink validate` says it",
    "tests/integration/test_s3_validate.py*trailing_checksums*": "only here: a server that refuses them",
    "tests/integration/test_s3_validate.py*may_only_read*": "only here: a server with rights",
    "tests/integration/test_http.py*halt_is_told*": "test_health judges it",
    "tests/integration/test_s3_requests.py*": "only here: how many requests a commit makes",
    "tests/integration/test_s3_leak.py*": "only here: a hundred commits to S3",
    "tests/integration/test_s3_upserts.py*": "test_s3_fleet writes to S3; test_upserts changes rows",
    "tests/integration/test_s3_uploads.py*without_lists*": "only here: a server without lists of uploads",
    "tests/integration/test_monitoring.py*kafkas_own_tool*": "test_metrics, test_group_offsets, test_http by HTTP",
    "tests/integration/test_adoption.py*while_a_worker_runs*": "unit test_adoption",
    "tests/integration/test_metadata_services.py*clean_compact*": "its siblings compact; cleaning, archiving only here",
    "tests/integration/test_upserts.py*log_files_column*": "test_column_ranges, of base files; of log files only here",
    "tests/integration/test_errors_replay.py*errors_table_of_two*": "test_errors_table: one sink's; of two only here",
    "tests/integration/test_partitioning.py*both_engines*": "test_row_writer: both; the time: test_partition_times",
    "tests/integration/test_arrow_writer.py*ten_megabytes*": "test_records_fuzz decodes, test_kafka_reader reads them",
    "tests/integration/test_column_ranges.py*read_the_footers[nested*": "its cell of plain columns",
    "tests/integration/test_registry.py*outlives_the_registry*": "test_registry of unit tests; a real one only here",
    "tests/integration/test_upsert_index.py*would_not_find*[3 buckets*": "its other cells; unit test_adoption",
    "tests/integration/test_kafka_reader.py*after_a_restart*": "test_kafka: a broker that was down is found again",
    "tests/integration/test_upsert_fleet.py*": "test_takeover kills; test_upserts rolls back and changes coordinators",
    "tests/integration/test_upserts.py*random_changes*[copy on write, bloom*": "its cell of merge on read",
    "tests/integration/test_upsert_evolution.py*read_alike*": "test_upsert_registry: columns follow; its siblings",
    "tests/integration/test_kafka_process.py*orderly_way*": "a process that ends costs one view; the cause only here",
    "tests/integration/test_table.py*which_wants_none[during one*": "only here: others make a metadata table",
    "tests/integration/test_reader_matrix.py*changes_the_rows*": "test_audit_real_table: Spark SQL changes rows",
    "tests/integration/test_errors_table.py*every_plain_format*": "unit test_sifting; JSON by its other tests",
    "tests/integration/test_kafka_reader.py*away_too_long*": "its task without a broker; one that goes away only here",
    "tests/integration/test_servers.py*ensemble*": "only here: what chaos starts",
    "tests/integration/test_rehearsal.py*statistics_of_columns*": "test_column_ranges; in a rehearsal only here",
    "tests/integration/test_session.py*started_for_nothing*": "only here: a worker that ends before Spark is up",
    "tests/unit/test_first_minutes.py*other_shells*[fish*": "its cell of zsh",
    "tests/integration/test_s3_validate.py*store_that_works*": "its store that checks signatures",
    "tests/integration/test_audit.py*all_the_rights*": "only here: a broker that asks for rights",
    "tests/integration/test_demo.py*ended_from_outside*": "test_servers: nothing outlives a starter that is killed",
    "tests/integration/test_worker_input.py*holds_something_else*": "test_many_sinks by a worker; test_table",
    "tests/integration/test_chroot.py*is_refused[worker*": "its cell of `sink validate`",
    "tests/integration/test_s3_validate.py*worker_says_the_same*[no jar*": "`sink validate` says it",
    "tests/integration/test_s3_validate.py*certificate_that_nobody*": "test_storage_faults; a certificate only here",
    "tests/integration/test_retry.py*": "test_arrow_writer: a second attempt; test_upserts rolls attempts back",
    "tests/integration/test_flush.py*what_trickles_in*": "test_verbs: what the interval keeps waiting; the simulation",
    "tests/integration/test_s3_product.py*bad_records*": "test_errors_table publishes them; test_s3_fleet",
    "tests/integration/test_upserts.py*debeziums_events*": "test_upsert_registry: the same events in Avro",
    "tests/integration/test_errors_replay.py*rows_more*": "test_errors_table: a replay adds what is good by now",
    "tests/integration/test_errors_table.py*cannot_be_read_is_set_aside*[false*": "its cell with headers",
    "tests/integration/test_errors_table.py*more_bad_records*[hudi*": "its cell of the Arrow engine",
}


def is_thorough(nodeid: str) -> bool:
    return any(fnmatchcase(nodeid, pattern.replace("[", "[[]")) for pattern in MOVED)
