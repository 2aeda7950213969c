"""The systemd unit on a booted host, with the package as its archive installs it without any network."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import yaml
from kazoo.client import KazooClient

from coordination.errors import Unavailable
from coordination.zookeeper.keeper import Keeper
from sink.devtools import dist
from tests.booted import BootedHost, CannotBoot
from tests.conftest import Address, TopicFactory, temporary_chroot, topics
from tests.fleet import SCHEMA, produce
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(1800)]

PREFIX = "/opt/hudi-keeper-sink"
TABLES = "/srv/tables"
RECORDS = 600
INSTALL_SECONDS = 900.0
STATE = ("ActiveState", "SubState", "Result", "ExecMainStatus", "NRestarts", "MainPID")


@dataclass
class Site:
    """A host with the package, and the servers that its workers use."""

    host: BootedHost
    zookeeper: str
    kafka: str
    topic: TopicFactory
    installed: str
    started: list[str] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = KazooClient(self.zookeeper)
        self.client.start()

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def filled_topic(self, records: int = RECORDS) -> str:
        name = str(self.topic(partitions=2))
        produce(self.kafka, name, records, 2)
        return name

    def configure(self, instance: str, sinks: dict[str, str], **environment: str) -> None:
        """Writes the settings of a worker; `sinks` gives the topic of each sink."""
        self.host.write(f"/etc/hudi-keeper-sink/{instance}.yaml", yaml.safe_dump(self.settings(sinks)))
        variables = {"SINK_WORKER_ID": instance, **environment}
        text = "".join(f"{name}={value}\n" for name, value in variables.items())
        self.host.write(f"/etc/hudi-keeper-sink/{instance}.env", text)
        # As in the docs: no other user reads the files.
        files = [f"/etc/hudi-keeper-sink/{instance}.{kind}" for kind in ("yaml", "env")]
        self.host.run("chown", "root:sink", *files)
        self.host.run("chmod", "640", *files)
        self.topics.update(sinks)

    def settings(self, sinks: Mapping[str, str]) -> dict[str, object]:
        return {
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": 6000,
            "kafka.bootstrap.servers": self.kafka,
            "schema.ddl": SCHEMA,
            "transaction.interval.ms": 1000,
            "spark.master": "local[1]",
            "spark.driver.memory": "700m",
            "hoodie.metadata.enable": False,
            "worker.rehearsal": False,
            "sinks": {
                name: {"kafka.topic.names": topic, "target.base.path": f"{TABLES}/{name}"}
                for name, topic in sinks.items()
            },
        }

    def start(self, instance: str) -> str:
        """Starts the unit and checks that it is ready. Returns its name."""
        unit = f"sink-worker@{instance}.service"
        self.started.append(unit)
        self.host.run("systemctl", "start", unit, ok=(0, 1))
        assert self.host.show(unit, "ActiveState")["ActiveState"] == "active", self.host.journal(unit)[-4000:]
        return unit

    def stop_all(self) -> None:
        for unit in self.started:
            self.host.run("systemctl", "stop", unit)
        self.started.clear()

    def sink(self, sink: str, *arguments: str) -> str:
        """Runs a command of the package for the sink, as the unit's user. Returns its output."""
        config = f"/etc/hudi-keeper-sink/only-{sink}.yaml"
        self.host.write(config, yaml.safe_dump(self.settings({sink: self.topics[sink]})))
        command = (f"{PREFIX}/bin/sink", *arguments, "--config", config)
        return self.host.run("runuser", "--user", "sink", "--", "env", f"SINK_HOME={PREFIX}/home", *command)

    def members(self, sink: str) -> set[str]:
        """Returns the workers that have joined the sink."""
        try:
            view = Keeper(self.client, f"/sink/{sink}", lambda: None).read()
        except Unavailable:
            return set()
        return {member.incarnation.rpartition(":")[0] for member in view.members}

    def landed(self, sink: str) -> int:
        try:
            view = Keeper(self.client, f"/sink/{sink}", lambda: None).read()
        except Unavailable:
            return 0
        return sum(state.end for state in view.states.values() if not state.open)

    def wait_landed(self, sink: str, records: int, context: Callable[[], str] = lambda: "") -> None:
        eventually(f"{sink} has {records}", lambda: self.landed(sink) >= records, 240, context)

    def assert_exactly_once(self, sink: str, records: int) -> None:
        report = json.loads(self.sink(sink, "audit", "--json"))
        assert report["held"], report
        assert report["rows"] == records, report

    def processes(self, main_pid: int) -> list[psutil.Process]:
        """Returns the worker's processes, as seen from outside the container."""
        for process in psutil.process_iter():
            pids = _pids_inside(process.pid)
            if len(pids) > 1 and pids[-1] == main_pid and "sink.worker" in " ".join(process.cmdline()):
                return [process, *process.children(recursive=True)]
        return []


def _pids_inside(pid: int) -> list[int]:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(number) for number in status.partition("NSpid:")[2].partition("\n")[0].split()]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, zookeeper: Address, kafka: Address) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("systemd")
    try:
        with (
            BootedHost(directory / "host") as host,
            temporary_chroot(zookeeper.address) as chroot,
            topics(kafka.address) as topic,
        ):
            installed = _install(host, dist.make(directory / "dist", ()))
            booted_site = Site(host, chroot, kafka.address, topic, installed)
            yield booted_site
            booted_site.close()
    except CannotBoot as error:
        pytest.skip(str(error))


def _install(host: BootedHost, archive: Path) -> str:
    """Installs the archive as docs/operations.md says, with no network but loopback. Returns the output."""
    subprocess.run(["tar", "-xf", str(archive), "-C", str(host.root / "srv")], check=True)
    script = f"/srv/{archive.stem}/install"
    offline_command = ("unshare", "--net", "sh", "-c", f"ip link set lo up && ! ip route | grep -q . && {script}")
    output = host.run(*offline_command, seconds=INSTALL_SECONDS)
    host.write("/etc/systemd/system/sink-worker@.service.d/tables.conf", f"[Service]\nReadWritePaths={TABLES}\n")
    host.run("install", "-d", "-o", "sink", "-g", "sink", TABLES)
    host.run("systemctl", "daemon-reload")
    return output


@pytest.fixture(autouse=True)
def nothing_runs_afterwards(site: Site) -> Iterator[None]:
    yield
    site.stop_all()


def test_the_archive_installs_a_worker_without_any_network(site: Site) -> None:
    assert "installed in /opt/hudi-keeper-sink" in site.installed
    assert "going on without" not in site.installed
    assert site.host.run("find", f"{PREFIX}/home/classes", "-name", "*.jsa")
    # The installer refuses a damaged copy before it changes anything.
    [archive] = (site.host.root / "srv").glob("hudi-keeper-sink-*")
    inode = site.host.run("stat", "--format=%i", f"{PREFIX}/pyvenv.cfg")
    (archive / "LICENSE").write_text("damaged")
    site.host.run(f"/srv/{archive.name}/install", ok=(1,))
    assert site.host.run("stat", "--format=%i", f"{PREFIX}/pyvenv.cfg") == inode


def test_a_unit_is_ready_when_it_has_joined_takes_up_a_new_sink_on_reload_and_drains_on_stop(site: Site) -> None:
    first_topic = site.filled_topic()
    site.configure("solo", {"solo-a": first_topic})
    unit = site.start("solo")
    assert site.members("solo-a") == {"solo"}
    assert site.host.show(unit, "ActiveState", "SubState") == {"ActiveState": "active", "SubState": "running"}
    site.wait_landed("solo-a", RECORDS, lambda: site.host.journal(unit))
    pid = site.host.show(unit, "MainPID")["MainPID"]

    site.configure("solo", {"solo-a": first_topic, "solo-b": site.filled_topic()})
    site.host.run("systemctl", "reload", unit)
    site.wait_landed("solo-b", RECORDS, lambda: site.host.journal(unit))
    assert site.host.show(unit, "MainPID", "NRestarts") == {"MainPID": pid, "NRestarts": "0"}
    processes = site.processes(int(pid))
    assert any("java" in process.name() for process in processes)

    site.host.run("systemctl", "stop", unit)
    state = site.host.show(unit, *STATE)
    assert (state["ActiveState"], state["Result"], state["ExecMainStatus"]) == ("inactive", "success", "0")
    assert "worker.stopped" in site.host.journal(unit)
    assert site.members("solo-a") == set()
    assert not [process for process in processes if process.is_running()]
    for sink in ("solo-a", "solo-b"):
        site.assert_exactly_once(sink, RECORDS)


def test_a_worker_whose_settings_cannot_be_used_ends_with_2_and_is_not_started_again(site: Site) -> None:
    site.configure("wrong", {"wrong": "no-such"}, SINK_FLUSH_SIZE="many")
    unit = "sink-worker@wrong.service"
    site.host.run("systemctl", "start", unit, ok=(1,))
    # A unit that systemd starts again is "activating", and NRestarts counts it.
    state = site.host.show(unit, *STATE)
    assert (state["ActiveState"], state["SubState"]) == ("failed", "failed"), state
    assert (state["Result"], state["ExecMainStatus"], state["NRestarts"]) == ("exit-code", "2", "0"), state
    assert "flush.size" in site.host.journal(unit)


def test_a_stopped_python_and_a_stopped_jvm_are_killed_and_started_again(site: Site) -> None:
    site.configure("hangs", {"hangs": site.filled_topic()})
    site.host.write("/etc/systemd/system/sink-worker@hangs.service.d/soon.conf", "[Service]\nWatchdogSec=15\n")
    site.host.run("systemctl", "daemon-reload")
    unit = site.start("hangs")
    site.wait_landed("hangs", RECORDS, lambda: site.host.journal(unit))

    for restarts, program in ((1, "python"), (2, "java")):
        pid = site.host.show(unit, "MainPID")["MainPID"]
        processes = site.processes(int(pid))
        victims = [process for process in processes if program in process.name()]
        victims[0].suspend()
        site.host.wait(
            unit,
            f"is started again after its {program} was stopped",
            lambda state, pid=pid, n=str(restarts): (  # type: ignore[misc]
                (state["ActiveState"], state["NRestarts"]) == ("active", n) and state["MainPID"] not in ("0", pid)
            ),
        )
        assert not [process for process in processes if process.is_running()]
        produce(site.kafka, site.topics["hangs"], RECORDS, 2, first=restarts * RECORDS)
        site.wait_landed("hangs", (restarts + 1) * RECORDS, lambda: site.host.journal(unit))
    journal = site.host.journal(unit)
    assert "Watchdog timeout" in journal
    assert "worker.hangs" in journal
    assert "status=70" in journal
    site.assert_exactly_once("hangs", 3 * RECORDS)


def test_a_fleet_of_three_lands_every_record_once_through_a_rolling_restart_and_a_drain_under_load(site: Site) -> None:
    name = "rolling"
    workers = ["r1", "r2", "r3"]
    topic = site.filled_topic()
    units = {}
    for worker in workers:
        site.configure(worker, {name: topic})
        units[worker] = site.start(worker)
    assert site.members(name) == set(workers)

    with Load(site.kafka, topic, RECORDS) as load:
        for worker, unit in units.items():
            old_pid = site.host.show(unit, "MainPID")
            site.host.run("systemctl", "restart", unit)
            assert site.host.show(unit, "MainPID") != old_pid
            # As the docs say: restart the next worker when this one is back.
            eventually(f"{worker} is back", lambda: site.members(name) == set(workers), 120)
            landed_before = site.landed(name)
            eventually("records land meanwhile", lambda n=landed_before: site.landed(name) > n, 120)  # type: ignore[misc]

        site.sink(name, "drain", "r2")
        site.host.wait(units["r2"], "ends", lambda state: state["ActiveState"] == "inactive")
    site.wait_landed(name, load.produced, lambda: "\n".join(map(site.host.journal, units.values()))[-8000:])
    state = site.host.show(units["r2"], *STATE)
    assert (state["ActiveState"], state["Result"], state["ExecMainStatus"]) == ("inactive", "success", "0"), state
    assert site.members(name) == {"r1", "r3"}
    site.assert_exactly_once(name, load.produced)


class Load:
    """Produces records without pause."""

    def __init__(self, kafka: str, topic: str, first: int) -> None:
        self.produced = first
        self._kafka = kafka
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            produce(self._kafka, self._topic, 200, 2, first=self.produced)
            self.produced += 200
