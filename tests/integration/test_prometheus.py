"""A real Prometheus with the rules of this repository raises the alerts of faults in a real fleet, and none without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import free_ports
from tests.conftest import topics
from tests.fleet import Fleet, produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.prometheus import MISSING, Prometheus
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]

PATIENCE = 180.0
"""An alert waits for up to half a minute by itself."""
RECORDS = 3000


@pytest.fixture
def ports() -> list[int]:
    return free_ports(2)


@pytest.fixture
def prometheus(tmp_path: Path, ports: list[int]) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip(MISSING)
    server = Prometheus(program, tmp_path / "prometheus", ports)
    server.child.start()
    eventually("Prometheus answers", server.answers, 60, server.child.tail)
    yield server
    server.child.stop()


def test_faults_raise_their_alerts_and_a_fleet_at_work_none(
    make_fleet: MakeFleet, prometheus: Prometheus, ports: list[int], tmp_path: Path
) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka, topics(kafka.address) as topic:
        name = topic(partitions=PARTITIONS)
        produce(kafka.address, name, RECORDS, PARTITIONS)
        fleet = make_fleet(name=name, **{"errors.tolerance": "all"})
        fleet.kafka = kafka.address
        fleet.start("w1", **{"metrics.port": ports[0]})
        fleet.coordinator()
        fleet.start("w2", **{"metrics.port": ports[1]})
        fleet.wait("both are members", lambda view: len(view.members) == 2)
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
        wait_for_quiet(prometheus, fleet)

        kafka.pause()
        wait_for(prometheus, "SinkWaiting", fleet)
        assert prometheus.alerts("firing") == {"SinkWaiting"}
        kafka.resume()
        wait_for_quiet(prometheus, fleet)

        produce_a_bad_record(fleet)
        wait_for(prometheus, "SinkBadRecords", fleet)
        assert prometheus.alerts("firing") == {"SinkBadRecords"}

        fleet.workers["w2"].kill()
        wait_for(prometheus, "SinkWorkerGone", fleet)
        wait_for(prometheus, "SinkWorkerSilent", fleet)
        assert prometheus.alerts("firing") == {"SinkBadRecords", "SinkWorkerGone", "SinkWorkerSilent"}


def wait_for(prometheus: Prometheus, alert: str, fleet: Fleet) -> None:
    def firing() -> bool:
        return alert in prometheus.alerts("firing")

    eventually(f"{alert} fires", firing, PATIENCE, lambda: f"{prometheus.alerts('firing', 'pending')}\n{fleet.logs()}")


def wait_for_quiet(prometheus: Prometheus, fleet: Fleet) -> None:
    def quiet() -> bool:
        return not prometheus.alerts("firing", "pending")

    eventually("nothing fires", quiet, PATIENCE, lambda: f"{prometheus.alerts('firing', 'pending')}\n{fleet.logs()}")


def produce_a_bad_record(fleet: Fleet) -> None:
    producer = Producer({"bootstrap.servers": fleet.kafka})
    producer.produce(fleet.topic, b'{"id": "none"}', partition=0)
    assert producer.flush(30) == 0
