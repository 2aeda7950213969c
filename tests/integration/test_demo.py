"""The demo lands everything, can be left running, and leaves no process behind however it ends."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from coordination.errors import ConfigError
from sink.clients.host.child_environment import child_environment
from sink.devtools.demo.fleet import DemoCluster
from sink.devtools.demo.orders import make_topic
from sink.devtools.demo.play import FIRST_WORKERS, _home, _print_next_commands, run
from sink.devtools.demo.tables import DemoTable
from sink.devtools.demo.view import Screen
from sink.devtools.local.child_process import Child
from sink.devtools.local.kafka import KafkaServer, kafka_answers
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import zookeeper_answers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 30_000
GONE_SECONDS = 20.0
MARK = "TEST_DEMO_MARK"
SCRIPT = """
import sys
from pathlib import Path
from sink.devtools.demo.play import run
try:
    sys.exit(run(keep={keep}, records={records}, directory=Path("demo"), feed_seconds=10.0, storage="{storage}"))
except KeyboardInterrupt:
    sys.exit(130)
"""
ENDING = """
import sys, tempfile
from pathlib import Path
from sink.devtools.demo import play as demo
from coordination.errors import Unavailable

def play(stage, *_):
    stage.logs.mkdir(parents=True)
    (stage.logs / "worker-1.log").write_text("why")
    raise {error}

tempfile.tempdir = {directory!r}
demo._play = play
demo.spark_jars = demo.kafka_jars = list
demo.run()
"""


@dataclass(frozen=True, slots=True)
class Demo:
    process: subprocess.Popen[str]
    mark: str

    def living(self) -> list[psutil.Process]:
        """Returns every process that the demo has started, directly or not, and the demo itself."""
        return [process for process in psutil.process_iter() if _marked(process, self.mark)]

    def say_until(self, text: str) -> str:
        """Reads its output up to the line that holds `text`."""
        assert self.process.stdout is not None
        output = ""
        for line in self.process.stdout:
            output += line
            if text in line:
                return output
        raise AssertionError(f"the demo ended without saying {text!r}:\n{output}")

    def gone(self) -> bool:
        limit = time.monotonic() + GONE_SECONDS
        while self.living():
            if time.monotonic() > limit:
                return False
            time.sleep(0.1)
        return True


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[type[Demo]]:
    started: list[Demo] = []

    def start(keep: bool = False, records: int = RECORDS, storage: str = "local") -> Demo:
        mark = uuid.uuid4().hex
        script = SCRIPT.format(keep=keep, records=records, storage=storage)
        started.append(
            Demo(
                subprocess.Popen(
                    [sys.executable, "-c", script],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=child_environment({MARK: mark}),
                    cwd=tmp_path,
                ),
                mark,
            )
        )
        return started[-1]

    yield start  # type: ignore[misc]
    for running in started:
        for process in running.living():
            process.kill()
        running.process.wait()


@pytest.mark.parametrize("storage", ["local", pytest.param("s3", marks=pytest.mark.thorough)])
def test_everything_lands_though_the_coordinator_is_killed_and_what_is_kept_can_be_stopped(demo, storage: str) -> None:
    """The demo's directory is given relative to its working directory."""
    running = demo(keep=True, storage=storage)
    output = running.say_until("  stop: ")
    assert running.process.wait(60) == 0
    assert re.search(r"SIGKILL to the coordinator, (worker-\d) .* partitions are BEFORE", output)
    assert re.search(r"worker-\d is coordinator, epoch [2-9]", output)
    assert re.search(r"Takeover: \d+\.\d s from the SIGKILL", output)
    assert f"Held: every record exactly once, with its values, {RECORDS:,} rows" in output

    query = textwrap.dedent(output[output.index("import duckdb") :]).partition("\n\n")[0]
    shown = subprocess.run([sys.executable, "-c", query], capture_output=True, text=True, check=True).stdout
    assert counted(shown) == RECORDS

    addresses = re.search(r"ZooKeeper ([\d.:]+), Kafka ([\d.:]+),.* topic orders\n", output)
    assert addresses is not None
    assert zookeeper_answers(addresses[1], seconds=10)
    assert kafka_answers(addresses[2], seconds=10)
    stop = output[output.index("  stop: ") + len("  stop: ") :].strip()
    subprocess.run(stop, shell=True, check=True, timeout=60, env=child_environment({}))
    assert running.gone()


@pytest.mark.parametrize(
    "moment",
    [
        "starting ZooKeeper and Kafka",
        pytest.param("starting 3 workers", marks=pytest.mark.thorough),
        pytest.param("SIGKILL to the coordinator", marks=pytest.mark.thorough),
    ],
)
def test_ctrl_c_leaves_no_process_behind(demo, moment: str) -> None:
    running = demo()
    running.say_until(moment)
    while len(running.living()) == 1:
        time.sleep(0.01)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 130
    assert running.gone()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.thorough), signal.SIGKILL])
def test_a_demo_that_is_ended_from_outside_leaves_no_process_behind(demo, number: signal.Signals) -> None:
    running = demo()
    running.say_until("starting 3 workers")
    os.kill(running.process.pid, number)
    assert running.process.wait(60) == -number
    assert running.gone()


@pytest.mark.parametrize(
    ("error", "remaining_logs"),
    [('Unavailable("gone")', ["why"]), ("AssertionError", ["why"]), ("KeyboardInterrupt", [])],
)
def test_the_logs_that_an_error_names_are_left_and_nothing_after_ctrl_c(
    error: str, remaining_logs: list[str], tmp_path: Path
) -> None:
    script = ENDING.format(error=error, directory=str(tmp_path))
    command = [sys.executable, "-c", script]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=child_environment({})
    )
    assert error.partition("(")[0] in result.stderr
    assert [log.read_text() for log in tmp_path.rglob("logs/worker-1.log")] == remaining_logs


def test_what_is_kept_is_looked_at_with_settings_that_exist_when_nobody_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_ZOOKEEPER_CONNECT", "real:2181")
    stage = DemoCluster(tmp_path, 1000, DemoTable(tmp_path))
    monkeypatch.setattr(Child, "start", lambda child: child)
    monkeypatch.setattr(stage, "detach", lambda: "")
    for name in FIRST_WORKERS:
        stage.start_worker(name)
    with Screen() as screen, screen.console.capture() as captured:
        _print_next_commands(screen, stage)
    for command in ("look:", "check:"):
        words = shlex.split(captured.get().partition(command)[2].partition("\n")[0])
        assert words[:3] == ["env", "-u", "SINK_ZOOKEEPER_CONNECT"]
        assert Path(words[words.index("--config") + 1]).is_file()


def test_a_directory_that_holds_an_earlier_demo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    with pytest.raises(ConfigError, match="has an earlier demo"):
        _home(tmp_path)


@pytest.mark.thorough
def test_a_table_that_ends_with_its_server_is_shown_before_it_does(demo) -> None:
    running = demo(storage="s3")
    output = running.say_until("It ends with the demo's S3 server")
    assert running.process.wait(60) == 0
    assert counted(output) == RECORDS
    assert running.gone()


def test_an_s3_server_that_is_not_installed_is_named_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto", None)
    with pytest.raises(ConfigError, match=r"Run pip install '\.\[s3-server\]'"):
        run(storage="s3")


def test_a_producer_without_a_broker_says_so_in_one_sentence() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "sink.devtools.demo.orders", "--bootstrap", address]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=child_environment({}))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        f"sink.devtools.demo.orders: no Kafka broker answers at {address} within 10 s."
        " Start one or correct --bootstrap.\n"
    )


def test_a_producer_that_asks_for_more_partitions_than_there_are_says_so(kafka: KafkaServer) -> None:
    topic = f"narrow-{uuid.uuid4().hex[:8]}"
    make_topic(kafka.address, topic, 2)
    options = ["--bootstrap", kafka.address, "--topic", topic, "--partitions", "6", "--records", "1000"]
    command = [sys.executable, "-m", "sink.devtools.demo.orders", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=child_environment({}))
    assert result.returncode == 2
    assert f"topic {topic}: Kafka does not take the events: " in result.stderr


def counted(shown: str) -> int:
    """Adds up the orders of all countries in the table that the query prints."""
    return sum(int(count) for count in re.findall(r"│ [A-Z]{2}\s+│\s+(\d+) │", shown))


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
