"""The servers of the demo and the tests are real, come back with their data, and leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from coordination.errors import Unavailable
from sink.clients.host.child_environment import child_environment
from sink.devtools.local.child_process import Child
from sink.devtools.local.kafka import KafkaServer, kafka_answers
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer, zookeeper_answers
from tests.conftest import OWN_SERVERS, SERVERS
from tests.waiting import eventually
from tests.workers import Part, WorkerProcess
from tests.zookeepers import ZooKeeperEnsemble, empty

pytestmark = pytest.mark.integration


def test_zookeeper_keeps_port_and_data_over_a_restart_and_loses_all_when_emptied(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        address = server.address
        _create(address, "/kept")
        server.stop()
        assert _exists(server.start().address, "/kept")
        server.kill()
        assert not zookeeper_answers(address, seconds=0.5)
        assert _exists(server.start().address, "/kept")
        empty(server)
        assert server.address == address
        assert not _exists(address, "/kept")
    assert not zookeeper_answers(address, seconds=0.5)


def test_a_paused_zookeeper_loses_its_clients_and_a_resumed_one_gets_them_back(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        disconnected, connected = threading.Event(), threading.Event()
        client = KazooClient(hosts=server.address, timeout=2.0)
        client.start()
        client.add_listener(lambda state: (connected if state == KazooState.CONNECTED else disconnected).set())
        server.pause()
        assert disconnected.wait(20)
        connected.clear()
        server.resume()
        assert connected.wait(20)
        client.stop()
        client.close()


def test_an_ensemble_goes_on_without_one_of_its_servers(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        _create(ensemble.address, "/kept")
        ensemble.servers[0].kill()
        assert _exists(ensemble.address, "/kept")
        ensemble.servers[1].kill()
        assert not zookeeper_answers(ensemble.address, seconds=1.0)
        ensemble.servers[1].start()
        assert _exists(ensemble.address, "/kept")


@pytest.mark.thorough
def test_kafka_keeps_port_and_records_over_sigkill(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(timeout=30)
        producer = Producer({"bootstrap.servers": server.address})
        producer.produce("kept", value=b"x")
        assert producer.flush(30) == 0
        address = server.address
        server.kill()
        assert not kafka_answers(address, seconds=0.5)
        assert server.start().address == address
        consumer = Consumer({"bootstrap.servers": address, "group.id": "test"})
        assert consumer.get_watermark_offsets(TopicPartition("kept", 0), timeout=30) == (0, 1)
        consumer.close()


def test_servers_listen_on_loopback_only_and_on_no_other_port_than_theirs(zookeeper, kafka) -> None:
    if any(name in os.environ for name in SERVERS) and os.environ.get(SERVERS[-1]) != OWN_SERVERS:
        pytest.skip(f"the servers of this run are not ours: unset {' '.join(SERVERS)}")
    listening = [place for place in psutil.net_connections("tcp") if place.status == psutil.CONN_LISTEN]
    for server, ports in ((zookeeper, 1), (kafka, 2)):
        [process] = {place.pid for place in listening if place.laddr.port == int(server.address.rpartition(":")[2])}
        addresses = [place.laddr for place in listening if place.pid == process]
        assert {address.ip.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
        assert len(addresses) == ports


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "first") as first:
        second = KafkaServer(tmp_path / "second", first.port)
        with pytest.raises(Unavailable, match=r"(?s)Kafka did not start on 127\.0\.0\.1:\d+.*in use.*server\.log"):
            second.start()
        assert not second.running


def test_nothing_outlives_a_starter_that_is_killed(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import os, sys, time
        from pathlib import Path
        from sink.devtools.local.child_process import Child
        from sink.devtools.local.zookeeper import ZooKeeperServer
        server = ZooKeeperServer(Path({str(tmp_path)!r})).start()
        log = Path({str(tmp_path / "nest.log")!r})
        child = Child("nest", ("bash", "-c", "setsid sleep 1000 & sleep 1001"), log)
        child.start()
        server.pause()
        print(server.pid, child.pid, flush=True)
        time.sleep(1000)
        """
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=child_environment({})
    )
    assert starter.stdout is not None
    pids = [int(word) for word in starter.stdout.readline().split()]
    assert len(pids) == 2
    eventually("the second child sleeps", lambda: len(_sleepers(pids[1])) == 2)
    processes = [*(psutil.Process(pid) for pid in pids), *_sleepers(pids[1])]
    starter.kill()
    starter.wait()
    starter.stdout.close()
    assert psutil.wait_procs(processes, timeout=20)[1] == []


def test_pause_resume_and_kill_reach_what_a_child_forked_into_another_process_group(tmp_path: Path) -> None:
    script = "import os, time\nif os.fork() == 0: os.setpgid(0, 0)\nprint('up', flush=True)\ntime.sleep(1000)"
    child = Child("nest", (sys.executable, "-c", script), tmp_path / "nest.log")
    child.start()
    log = tmp_path / "nest.log"
    eventually("both are up", lambda: log.is_file() and log.read_text().count("up") == 2)
    processes = [psutil.Process(child.pid), *psutil.Process(child.pid).children()]
    assert len(processes) == 2
    child.pause()
    eventually("all are stopped", lambda: {process.status() for process in processes} == {psutil.STATUS_STOPPED})
    child.resume()
    eventually("all run again", lambda: {process.status() for process in processes} == {psutil.STATUS_SLEEPING})
    child.pause()
    child.kill()
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    assert child.exit_status == -signal.SIGKILL


def test_a_child_does_not_inherit_the_settings_that_its_starters_shell_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_ZOOKEEPER_CONNECT", "real:2181")
    monkeypatch.setenv("SINK_FAILPOINTS", "Complete.before=kill")
    monkeypatch.setenv("SINK_HOME", str(tmp_path / "home"))
    config = tmp_path / "sink.yaml"
    config.write_text(
        "{zookeeper.connect: 'own:2181', kafka.bootstrap.servers: 'own:9092', kafka.topic.names: t,"
        " target.base.path: /t, target.table.name: t, schema.ddl: id BIGINT}"
    )
    script = f"""
        import os
        from pathlib import Path
        from sink.config import load_configuration
        (settings,) = load_configuration(Path({str(config)!r})).sinks
        print(settings.zookeeper, settings.flush_size, "SINK_FAILPOINTS" in os.environ, os.environ["SINK_HOME"])
    """
    command = (sys.executable, "-c", textwrap.dedent(script))
    child = Child("child", command, tmp_path / "child.log", {"SINK_FLUSH_SIZE": "7"})
    child.start()
    assert child.wait(60) == 0, child.tail()
    assert child.log.read_text().split() == ["own:2181", "7", "False", str(tmp_path / "home")]


def test_a_worker_process_without_a_jvm_refuses_signals_for_it(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path / "missing.yaml", tmp_path / "worker.log")
    assert worker.jvm_pid is None
    with pytest.raises(Unavailable, match="no JVM process"):
        worker.pause_part(Part.JVM)


def test_free_ports_are_distinct_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32768


def _sleepers(parent: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(parent).children() if child.name() == "sleep"]


def _create(address: str, path: str) -> None:
    client = KazooClient(hosts=address)
    client.start()
    client.create(path)
    client.stop()
    client.close()


def _exists(address: str, path: str) -> bool:
    client = KazooClient(hosts=address)
    client.start(timeout=20)
    try:
        return client.exists(path) is not None
    finally:
        client.stop()
        client.close()
