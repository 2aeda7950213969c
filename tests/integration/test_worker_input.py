"""A worker reports input that cannot work, and ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sink.devtools.local.servers import free_ports
from tests.fleet import Fleet, produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.workers import Part

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def refusal(worker_log: Path) -> str:
    """Returns the one sentence on standard error, which follows any log lines."""
    return next(line for line in worker_log.read_text().splitlines() if line.startswith("sink: "))


def test_a_missing_file_is_named_in_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.yaml"
    result = subprocess.run(
        [sys.executable, "-m", "sink.worker", "--config", str(missing)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert str(missing) in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_setting_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    config = tmp_path / "worker.properties"
    config.write_text("flush.sise=100\n")
    result = subprocess.run(
        [sys.executable, "-m", "sink.worker", "--config", str(config)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "flush.sise" in result.stderr
    assert "flush.size" in result.stderr


def test_a_base_path_that_holds_something_else_is_left_alone(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.table.mkdir(parents=True)
    (fleet.table / "somebody's.csv").write_text("a,b\n")
    worker = fleet.start("w1")
    assert worker.wait(120) == 2
    assert str(fleet.table) in refusal(fleet.directory / "w1.log")
    assert [path.name for path in fleet.table.iterdir()] == ["somebody's.csv"]


def test_an_unreachable_zookeeper_is_named_and_tried_again_until_the_worker_is_stopped(
    make_fleet: MakeFleet,
) -> None:
    fleet = make_fleet()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    worker = fleet.start("w1", **{"zookeeper.connect": address})
    fleet.wait_for_log("w1", address)
    fleet.wait_for_log("w1", "Connection refused")
    worker.signal(signal.SIGTERM, Part.PYTHON)
    assert worker.wait(60) == 0


def test_a_worker_waits_for_its_topic_tells_the_service_manager_and_leaves_another_configuration_out(
    make_fleet: MakeFleet, topic, tmp_path: Path
) -> None:
    fleet: Fleet = make_fleet(name="not-there-yet")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(120)
        fleet.environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        worker = fleet.start("w1")
        assert manager.recv(64) == b"READY=1"
        assert manager.recv(64) == b"WATCHDOG=1"
        fleet.wait_for_log("w1", "not-there-yet")
        topic(partitions=PARTITIONS, name="not-there-yet")
        produce(fleet.kafka, fleet.topic, 300, PARTITIONS)
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 100))

        fleet.environment = {}
        refused_worker = fleet.start("w2", **{"flush.size": 1000})
        assert refused_worker.wait(120) == 2
        assert "w1" in refusal(fleet.directory / "w2.log")
        produce(fleet.kafka, fleet.topic, 300, PARTITIONS, first=300)
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 200))
        fleet.assert_exactly_once(600)

        worker.signal(signal.SIGTERM, Part.PYTHON)
        while manager.recv(64) != b"STOPPING=1":
            pass
        assert worker.wait(120) == 0
