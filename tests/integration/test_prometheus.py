"""A real Prometheus with the rules of this repository raises the alerts of faults in a real fleet, and none without."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Producer

from sink.clients.child_process import Child
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import free_ports
from tests.conftest import topics
from tests.fleet import Fleet, produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]

RULES = Path(__file__).resolve().parents[2] / "docker" / "monitoring" / "alerts.yaml"
RECORDS = 3000


class Prometheus:
    """Scrapes every second, evaluates every two."""

    def __init__(self, program: str, place: Path, targets: list[int]) -> None:
        place.mkdir()
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/api/v1/alerts"
        rules = yaml.safe_load(RULES.read_text())
        for group in rules["groups"]:
            group["interval"] = "2s"
        (place / "alerts.yaml").write_text(yaml.safe_dump(rules))
        addresses = [f"127.0.0.1:{target}" for target in targets]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "2s"},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": [{"job_name": "sink", "static_configs": [{"targets": addresses}]}],
        }
        (place / "prometheus.yaml").write_text(yaml.safe_dump(config))
        arguments = [
            f"--config.file={place / 'prometheus.yaml'}",
            f"--storage.tsdb.path={place / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self.child = Child("prometheus", [program, *arguments], place / "prometheus.log")

    def alerts(self, *states: str) -> set[str]:
        """Names of those in these states."""
        with urlopen(self._url, timeout=5) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] in states}

    def answers(self) -> bool:
        try:
            return self.alerts("firing") is not None
        except URLError:
            return False

    def wait_for(self, alert: str, seconds: float, it: Fleet) -> None:
        def firing() -> bool:
            return alert in self.alerts("firing")

        eventually(f"{alert} fires", firing, seconds, lambda: f"{self.alerts('firing', 'pending')}\n{it.logs()}")

    def wait_for_quiet(self, seconds: float, it: Fleet) -> None:
        def quiet() -> bool:
            return not self.alerts("firing", "pending")

        eventually("nothing fires", quiet, seconds, lambda: f"{self.alerts('firing', 'pending')}\n{it.logs()}")


@pytest.fixture
def ports() -> list[int]:
    return free_ports(2)


@pytest.fixture
def prometheus(tmp_path: Path, ports: list[int]) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: `apt-get install prometheus` has it")
    made = Prometheus(program, tmp_path / "prometheus", ports)
    made.child.start()
    eventually("Prometheus answers", made.answers, 60, made.child.tail)
    yield made
    made.child.stop()


def test_faults_raise_their_alerts_and_a_fleet_at_work_none(
    fleet: MakeFleet, prometheus: Prometheus, ports: list[int], tmp_path: Path
) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka, topics(kafka.address) as topic:
        name = topic(partitions=PARTITIONS)
        produce(kafka.address, name, RECORDS, PARTITIONS)
        it = fleet(name=name, **{"errors.tolerance": "all"})
        it.kafka = kafka.address
        it.start("w1", **{"metrics.port": ports[0]})
        it.coordinator()
        it.start("w2", **{"metrics.port": ports[1]})
        it.wait("both are members", lambda view: len(view.members) == 2)
        it.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
        prometheus.wait_for_quiet(60, it)

        # Known after the 10 s that a view of the log may take; the alert itself waits for 15 s.
        kafka.pause()
        prometheus.wait_for("SinkWaiting", 10 + 15 + 15, it)
        assert prometheus.alerts("firing") == {"SinkWaiting"}
        kafka.resume()
        prometheus.wait_for_quiet(60, it)

        produce_a_bad_record(it)
        prometheus.wait_for("SinkBadRecords", 15, it)
        assert prometheus.alerts("firing") == {"SinkBadRecords"}

        # Known after the session time-out of 6 s; the alert itself waits for 30 s.
        it.workers["w2"].kill()
        prometheus.wait_for("SinkWorkerGone", 6 + 30 + 15, it)
        prometheus.wait_for("SinkWorkerSilent", 15, it)
        assert prometheus.alerts("firing") == {"SinkBadRecords", "SinkWorkerGone", "SinkWorkerSilent"}


def produce_a_bad_record(it: Fleet) -> None:
    producer = Producer({"bootstrap.servers": it.kafka})
    producer.produce(it.topic, b'{"id": "none"}', partition=0)
    assert producer.flush(30) == 0
