"""A view from another process equals one of this process, and the end of that process costs one view."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from coordination.errors import Unavailable
from coordination.state.model import LogView, TopicPartition
from sink.clients.kafka.log import Log, UnknownTopic, settled
from sink.clients.kafka.process import LogProcess
from sink.devtools.local.kafka import KafkaServer
from tests.conftest import topics
from tests.fleet import produce
from tests.waiting import eventually

pytestmark = pytest.mark.integration

SECRET = "pass-word-that-nobody-else-may-see"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker of this file's own, because a test stops it."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def log(kafka: KafkaServer) -> Iterator[LogProcess]:
    log = LogProcess({"bootstrap.servers": kafka.address})
    yield log
    log.close()


def view_of(log: LogProcess, topic: str) -> LogView:
    """Waits for a topic that is new, as a sink does."""
    return settled(lambda: log.view_once([topic]), 10.0)


def test_a_view_is_the_same_as_in_this_process(log: LogProcess, kafka: KafkaServer, topic) -> None:
    name = topic(partitions=3)
    produce(kafka.address, name, 30, 3)
    with closing(Log({"bootstrap.servers": kafka.address})) as here:
        assert view_of(log, name) == here.view([name])


def test_topics_that_match_are_the_same_as_in_this_process(log: LogProcess, kafka: KafkaServer, topic) -> None:
    name = topic()
    with closing(Log({"bootstrap.servers": kafka.address})) as here:
        assert log.view_once([], f"{name}.*") == here.view([], f"{name}.*")
        assert log.topics() == here.topics()
    assert log.topics(f"{name}.*") == (name,)


def test_an_error_is_the_same_as_in_this_process(log: LogProcess, topic) -> None:
    name = topic()
    with pytest.raises(UnknownTopic) as raised:
        log.view_once([name + "x"])
    assert raised.value.topics == (name + "x",)
    assert name in raised.value.similar_names


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_process_that_ends_during_a_view_costs_that_view_only(
    log: LogProcess, kafka: KafkaServer, topic, number: signal.Signals
) -> None:
    name = topic()
    before = view_of(log, name)
    child = log.pid
    kafka.pause()
    try:
        with ThreadPoolExecutor(1) as pool:
            view = pool.submit(view_of, log, name)
            os.kill(child, number)
            with pytest.raises(Unavailable, match=f"ended by signal {number.name}"):
                view.result()
    finally:
        kafka.resume()
    assert not psutil.pid_exists(child), "a zombie"
    produce(kafka.address, name, 10, 1)
    now = view_of(log, name)
    source = TopicPartition(name, 0)
    assert now.partitions[source].end == before.partitions[source].end + 10


def test_a_broker_that_stops_in_an_orderly_way_ends_no_process_but_that_one(tmp_path: Path) -> None:
    """While a broker stops, its answers name no broker: librdkafka 2.16 aborts on one that it does not expect."""
    with KafkaServer(tmp_path / "kafka") as broker, topics(broker.address) as make:
        log = LogProcess({"bootstrap.servers": broker.address}, timeout=1.0)
        name = make()
        before = view_of(log, name)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(broker.stop)
            while not stopping.done():
                with suppress(Unavailable):
                    view_of(log, name)
        broker.start()

        def sees_it_again() -> bool:
            with suppress(Unavailable):
                return view_of(log, name) == before
            return False

        eventually("the broker's answer", sees_it_again)
        log.close()


def test_a_process_that_hangs_is_replaced(kafka: KafkaServer, topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sink.clients.kafka.child.GRACE_SECONDS", 0.5)
    log = LogProcess({"bootstrap.servers": kafka.address}, timeout=1.0)
    name = topic()

    def answered() -> LogView | None:
        """On a busy machine a process may not be up within so short a time-out."""
        with suppress(Unavailable):
            return view_of(log, name)
        return None

    eventually("the first process answers", answered)
    before, child = answered(), log.pid
    os.kill(child, signal.SIGSTOP)
    with pytest.raises(Unavailable, match="gave no answer"):
        view_of(log, name)
    assert not psutil.pid_exists(child)
    eventually("another process answers", lambda: (view := answered()) is not None and view == before)
    log.close()


def test_the_process_ends_with_a_parent_that_is_killed(kafka: KafkaServer) -> None:
    program = f"""
from sink.clients.kafka.process import LogProcess
log = LogProcess({{"bootstrap.servers": {kafka.address!r}}})
log.start()
print(log.pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(30)


def test_the_settings_are_on_no_command_line_and_in_no_environment(kafka: KafkaServer) -> None:
    with closing(LogProcess({"bootstrap.servers": kafka.address, "sasl.password": SECRET})) as log:
        log.start()
        contents = [Path(f"/proc/{log.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    assert not any(SECRET.encode() in content for content in contents)
