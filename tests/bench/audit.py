"""How fast `sink audit` compares contents, and how much memory it takes.

`python -m tests.bench.audit --rows 1000000 --changes 400000` starts a ZooKeeper and a Kafka broker, lands JSON records
of 120 bytes in an appended table and changes of half as many keys in an upsert table, ends the worker, and audits each
table as a user would: as a process of its own, by offsets and by contents. It prints the seconds of each run, records a
minute, the CPU and the peak of memory that no other process shares.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.many_sinks import ManySinks

PARTITIONS = 4
POLL_SECONDS = 0.2
COLUMNS = "id BIGINT, at TIMESTAMP, customer STRING, amount DECIMAL(10,2), note STRING"
ROWS, CHANGES = "rows", "changes"
WORKER = "w1"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=400_000)
    options = parser.parse_args()
    counts = {ROWS: options.rows, CHANGES: options.changes}
    with (
        tempfile.TemporaryDirectory(prefix="sink-audit-bench-") as name,
        ZooKeeperServer(Path(name) / "zookeeper") as zookeeper,
        KafkaServer(Path(name) / "kafka") as kafka,
    ):
        admin = AdminClient({"bootstrap.servers": kafka.address})
        for created in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in counts]).values():
            created.result()
        _send(kafka.address, ROWS, options.rows, options.rows)
        _send(kafka.address, CHANGES, options.changes, max(1, options.changes // 2))
        fleet = ManySinks(Path(name), zookeeper.address, kafka.address, {"spark.driver.memory": "2g"})
        fleet.add(ROWS, ROWS, **{"schema.ddl": COLUMNS})
        upserts = {"write.operation": "upsert", "record.key.fields": "id", "index.type": "bloom"}
        fleet.add(CHANGES, CHANGES, **{"schema.ddl": COLUMNS, **upserts})
        try:
            fleet.start(WORKER)
            for sink, count in counts.items():
                fleet.wait_landed([sink], count, 3600)
        finally:
            fleet.close()
        config = fleet.directory / WORKER / "fleet.yaml"
        return max(_audit(config, sink, counts[sink], *more) for sink in counts for more in ((), ("--content",)))


def _send(bootstrap: str, topic: str, count: int, keys: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
    for number in range(count):
        key = number % keys
        value = (
            f'{{"id":{key},"at":"2024-05-06T07:{number % 60:02}:09.123Z","customer":"c{number % 1000}",'
            f'"amount":{number % 10_000}.{number % 100:02},"note":"{"x" * 40}"}}'
        )
        while True:
            try:
                producer.produce(topic, value.encode(), str(key).encode())
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def _audit(config: Path, sink: str, count: int, *more: str) -> int:
    command = [sys.executable, "-m", "sink", "audit", "--config", str(config), "--sink", sink, *more]
    began, cpu, peak = time.monotonic(), 0.0, 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                family = [root, *root.children(recursive=True)]
                peak = max(peak, sum(each.memory_full_info().uss for each in family))
                cpu = max(cpu, sum(sum(each.cpu_times()[:2]) for each in family))
            except psutil.Error:
                pass
            time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - began
    print(
        f"{sink} {' '.join(more) or 'offsets'}: {count:,} records, {seconds:.1f} s,"
        f" {count / seconds * 60 / 1e6:.1f} million a minute, {cpu:.1f} s of CPU, peak {peak / 1e6:.0f} MB,"
        f" exit status {process.returncode}",
        flush=True,
    )
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
