"""The twelve faults: how each begins and ends, and where it has to show."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_END, TopicPartition

from sink.operations.health import CLOCK_SECONDS
from tests.drill.lab import EVENTS, PARTITIONS, PATIENCE, RETENTION_SECONDS, SESSION_SECONDS, SHORT, WORKERS, Lab
from tests.storage.s3_proxy import SILENT
from tests.waiting import eventually
from tests.workers import Part

SECOND = WORKERS[1]
BROKEN = "broken"
CLOCK_BEHIND = Path(__file__).parent / "clock_behind"


@dataclass(frozen=True)
class Metric:
    """`matches` judges the value of a sample with these labels."""

    name: str
    matches: Callable[[float], bool]
    labels: Mapping[str, str] = field(default_factory=dict)
    on_every_worker: bool = False
    """Whether every worker has to show it, and not just any."""


@dataclass(frozen=True)
class Fault:
    """`begin` returns at the moment when the fault begins."""

    name: str
    begin: Callable[[Lab], None]
    end: Callable[[Lab], None]
    kind: str
    """The finding in `/health`."""
    metric: Metric
    alert: str
    detectable_after: float
    """Seconds before which no worker can know of it, for the reason `why`."""
    why: str
    alert_waits: float = 0.0
    """Seconds for which the alert's rule waits."""
    worker: str = ""
    """The worker whose address and page are looked at; empty: the first one that reports it."""


def _waits_for(dependency: str) -> Metric:
    return Metric("sink_waiting", lambda value: value == 1, {"for": dependency})


def _silence_store(lab: Lab) -> None:
    lab.store.fault(SILENT)


def _restore_store(lab: Lab) -> None:
    lab.store.fault(0)


def _close_registry(lab: Lab) -> None:
    lab.close_the_registry()
    lab.use_a_new_schema()


def _pause_jvm(lab: Lab) -> None:
    lab.fleet.workers[SECOND].pause_part(Part.JVM)


def _start_again(lab: Lab) -> None:
    """Starts the worker once its process has ended, as a supervisor does."""
    worker = lab.fleet.workers[SECOND]
    eventually("the worker has ended", lambda: not worker.running, PATIENCE, lab.fleet.logs)
    worker.kill()
    lab.start(SECOND)
    lab.wait_ready(SECOND)


def _stop(lab: Lab) -> None:
    for worker in WORKERS:
        lab.fleet.workers[worker].terminate()
    for worker in WORKERS:
        lab.fleet.workers[worker].wait(PATIENCE)


def _start(lab: Lab) -> None:
    for worker in WORKERS:
        lab.start(worker)
    for worker in WORKERS:
        lab.wait_ready(worker)


def _restart(lab: Lab) -> None:
    _stop(lab)
    _start(lab)


def _begin_without_store(lab: Lab) -> None:
    _stop(lab)
    lab.store.fault(SILENT)
    for worker in WORKERS:
        lab.start(worker)
    for worker in WORKERS:
        lab.client(worker).wait("/liveness", 200, PATIENCE)


def _restart_second(lab: Lab, environment: Mapping[str, str] | None = None) -> None:
    worker = lab.fleet.workers[SECOND]
    worker.terminate()
    worker.wait(PATIENCE)
    lab.start(SECOND, environment)
    lab.wait_ready(SECOND)


def _with_path(directory: Path) -> str:
    return os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))


def _turn_back_the_clock(lab: Lab) -> None:
    _restart_second(lab, {"PYTHONPATH": _with_path(CLOCK_BEHIND)})


def _pause_short(lab: Lab) -> None:
    lab.command("pause", "--sink", SHORT)


def _add_broken(lab: Lab) -> None:
    """Adds a sink whose clustering cannot be planned."""
    unusable = {"hoodie.clustering.plan.strategy.partition.regex.pattern": "["}
    lab.add(BROKEN, **{"services.clustering": True, "services.interval.commits": 1, **unusable})
    lab.configure()
    for worker in WORKERS:
        lab.fleet.workers[worker].signal(signal.SIGHUP, Part.PYTHON)
    eventually("a service has failed", lambda: lab.has_logged("services.failed"), PATIENCE, lab.fleet.logs)


def _repair_broken(lab: Lab) -> None:
    """Gives the sink other settings, and restarts the workers, so that they take them."""
    lab.add(BROKEN)
    _restart(lab)


def _delete_unread(lab: Lab) -> None:
    lab.command("pause", "--sink", SHORT)
    before = lab.fleet.landed(SHORT)
    to_the_end = [TopicPartition(SHORT, partition, OFFSET_END) for partition in range(PARTITIONS)]

    eventually("records wait", lambda: lab.log_end(SHORT) > before + 20, PATIENCE)
    for deleted in lab.admin.delete_records(to_the_end).values():
        deleted.result()
    lab.command("resume", "--sink", SHORT)


def _reset(lab: Lab) -> None:
    _stop(lab)
    lab.command("reset", "--sink", SHORT, "--to", "earliest", "--yes")
    _start(lab)


FAULTS = (
    Fault(
        "ZooKeeper away", lambda lab: lab.zookeeper.pause(), lambda lab: lab.zookeeper.resume(),
        "zookeeper", _waits_for("zookeeper"), "SinkWaiting",
        SESSION_SECONDS, "the session time-out: a client pings three times in it", 15.0,
    ),
    Fault(
        "Kafka away", lambda lab: lab.kafka.pause(), lambda lab: lab.kafka.resume(),
        "kafka", _waits_for("kafka"), "SinkWaiting", 10.0, "the time that a look at the log may take", 15.0,
    ),
    Fault(
        "storage away", _silence_store, _restore_store, "waits", _waits_for("storage"), "SinkWaiting",
        10.0, "a store may take as long for an answer", 15.0,
    ),
    Fault(
        "registry away", _close_registry, lambda lab: lab.open_the_registry(), "waits", _waits_for("registry"),
        "SinkWaiting", 13.0, "the next record with such a schema, and the 10 s that a task asks for it", 15.0,
    ),
    Fault(
        "a bad record", lambda lab: lab.produce(EVENTS, b"no Avro"), lambda _: None, "bad-records",
        Metric("sink_bad_records_total", lambda value: value > 0), "SinkBadRecords",
        13.0, "the commit that leaves it aside; the first one makes the errors table",
    ),
    Fault(
        "a stuck JVM", _pause_jvm, _start_again, "silent",
        Metric("sink_jvm_silent_seconds", lambda value: value > 5), "SinkJvmSilent",
        5.0, "a JVM may take as long for an answer", worker=SECOND,
    ),
    Fault(
        "a worker gone", lambda lab: lab.fleet.workers[SECOND].kill(), _start_again, "worker-gone",
        Metric("sink_workers", lambda value: value == 1), "SinkWorkerGone",
        SESSION_SECONDS, "the session time-out", 30.0,
    ),
    Fault(
        "no coordinator", _begin_without_store, _restore_store, "no-coordinator",
        Metric("sink_coordinator", lambda value: value == 0, on_every_worker=True), "SinkNoCoordinator", 0.0, "", 60.0,
    ),
    Fault(
        "retention at risk", _pause_short, lambda lab: lab.command("resume", "--sink", SHORT), "retention",
        Metric("sink_retention_left_seconds", lambda value: value < RETENTION_SECONDS / 2), "SinkRetentionAtRisk",
        RETENTION_SECONDS / 2, "half of the retention",
    ),
    Fault(
        "a clock behind", _turn_back_the_clock, _restart_second, "clock",
        Metric("sink_worker_time_seconds", lambda value: time.time() - value > CLOCK_SECONDS), "SinkClockOff",
        0.0, "", 30.0, SECOND,
    ),
    Fault(
        "a halt", _delete_unread, _reset, "halted", Metric("sink_halted", lambda value: value == 1), "SinkHalted",
        0.0, "",
    ),
    Fault(
        # Last: the sink that it adds reads the topic that the halt is about.
        "a service that fails", _add_broken, _repair_broken, "service-failed",
        Metric("sink_table_service_failed", lambda value: value == 1), "SinkServiceFails", 0.0, "",
    ),
)  # fmt: skip
