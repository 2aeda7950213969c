"""The cost of a small append on S3: requests, and seconds from PLANNED to settled with a delay added to each request.

`python -m tests.bench.lake --commits 20` lets one worker land 500 records of six Kafka partitions at a time, with
Hudi's defaults, and prints the mean of requests by library, and seconds by phase. `--list` adds the requests of the
slowest transaction, and of the last one, in the order in which they began, with the phases between them.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from coordination.state.tree import Summary
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench.fleet import phases
from tests.bench.lake_store import LakeStore, add_options, open_store, wall_clock
from tests.bench.orders import create_topic
from tests.bench.topics import REGIONS_DDL, chunk
from tests.fleet import Fleet
from tests.storage.s3_proxy import Request

PARTITIONS = 6
RECORDS = 504
TOPIC = "orders"
HUDIS_DEFAULTS = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}


@dataclass(frozen=True, slots=True)
class Append:
    """One transaction, and the requests to the store from its plan to its end."""

    summary: Summary
    requests: Sequence[Request]

    @property
    def seconds(self) -> float:
        return self.summary.times["ENDED"] - self.summary.times["PLANNED"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--commits", type=int, default=20, help="counted (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=10, help="commits before them (default: %(default)s)")
    parser.add_argument("--table-partitions", type=int, default=1)
    parser.add_argument("--without-metadata-table", action="store_true")
    parser.add_argument("--list", action="store_true", help="the slowest and the last transaction's requests, in order")
    options = parser.parse_args()
    settings: dict[str, object] = {"hoodie.metadata.enable": False} if options.without_metadata_table else {}
    if options.table_partitions > 1:
        settings["partition.field.name"] = "region"
    with (
        tempfile.TemporaryDirectory(prefix="sink-lake-") as directory,
        open_store(Path(directory), options.minio, options.delay_ms) as store,
    ):
        appends = _run(Path(directory), store, settings, options)
    print(f"{store.name}, {options.delay_ms:g} ms a request, {options.table_partitions} table partition(s)")
    _print_summary(appends)
    if options.list:
        for append in (max(appends, key=lambda append: append.seconds), appends[-1]):
            print("\n".join(_request_lines(append)))
    return 0


def _run(directory: Path, store: LakeStore, settings: dict[str, object], options: argparse.Namespace) -> list[Append]:
    fleet_settings = {
        **HUDIS_DEFAULTS,
        **store.settings,
        "target.base.path": store.base_path(),
        "schema.ddl": REGIONS_DDL,
        "write.task.bytes": None,
        "spark.master": "local[2]",
        "log.level": "info",
        **settings,
    }
    appends: list[Append] = []
    with ZooKeeperServer(directory / "zookeeper") as zookeeper, KafkaServer(directory / "kafka", heap="384m") as kafka:
        create_topic(kafka.address, TOPIC, PARTITIONS)
        fleet = Fleet(directory / "fleet", zookeeper.address, kafka.address, TOPIC, fleet_settings)
        try:
            fleet.start("w1")
            for number in range(1, options.warm_up + options.commits + 1):
                _produce(kafka.address, (number - 1) * RECORDS, max(1, options.table_partitions))
                fleet.wait_landed(dict.fromkeys(range(PARTITIONS), number * RECORDS // PARTITIONS))
                appends += _new_appends(fleet.view().ledger.history, appends, store.proxy.take())
        finally:
            fleet.close()
    return appends[-options.commits :]


def _new_appends(
    history: Sequence[Summary], known_appends: Sequence[Append], requests: Sequence[Request]
) -> Iterator[Append]:
    """Yields the transactions that have newly ended, each with the requests made meanwhile."""
    for summary in history:
        if all(append.summary.number != summary.number for append in known_appends):
            begin, end = summary.times["PLANNED"], summary.times["ENDED"]
            yield Append(summary, [request for request in requests if begin <= wall_clock(request) <= end])


def _produce(bootstrap: str, begin: int, regions: int) -> None:
    """Sends one batch to each partition, so that one transaction takes them all."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number, (key, value) in enumerate(zip(*chunk(begin, RECORDS, regions), strict=True)):
        producer.produce(TOPIC, value, key, number % PARTITIONS)
    assert producer.flush(60) == 0


def _print_summary(appends: Sequence[Append]) -> None:
    commits = len(appends)
    mean = statistics.mean
    by_client = Counter(request.client for append in appends for request in append.requests)
    clients_text = ", ".join(f"{client} {count / commits:.0f}" for client, count in by_client.most_common())
    print(f"{commits} transactions of {RECORDS} records")
    print(f"requests: {sum(by_client.values()) / commits:.1f} ({clients_text})")
    seconds = sorted(append.seconds for append in appends)
    print(f"seconds from PLANNED to settled: mean {mean(seconds):.2f}, p50 {statistics.median(seconds):.2f}")
    print("each: " + ", ".join(f"{append.seconds:.2f} s ({len(append.requests)})" for append in appends))
    transactions = phases([append.summary for append in appends])
    for phase in ("begin", "write", "commit", "settle"):
        print(f"  {phase}: {mean(transaction[phase] for transaction in transactions):.2f}")
    counts_by_request = Counter((r.client, r.kind, abridged(r.path)) for append in appends for r in append.requests)
    most_common = counts_by_request.most_common(60)
    print("\n".join(f"{count / commits:6.1f} {' '.join(request_key)}" for request_key, count in most_common))


def _request_lines(append: Append) -> list[str]:
    begin = append.summary.times["PLANNED"]
    lines: list[tuple[float, str]] = [(at - begin, f"------ {phase}") for phase, at in append.summary.times.items()]
    for request in append.requests:
        line = f"{request.client:4} {request.kind:4} {request.status} {request.path}"
        lines.append((wall_clock(request) - begin, line))
    return [f"{at:7.3f} {line}" for at, line in sorted(lines)]


def abridged(path: str) -> str:
    path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27,}", "ID", path)
    return re.sub(r"\d{15,}", "INSTANT", path)


if __name__ == "__main__":
    sys.exit(main())
