"""A tree and a table of another protocol version, on real servers: worker and commands name it, and write nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from coordination.state.versions import PROTOCOL
from sink import cli
from sink.operations.reset_writer import live_workers
from tests.fleet import Fleet, produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 300
LANDED = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
OTHER = PROTOCOL + 1
SENTENCE = re.compile(
    rf"protocol version {OTHER}\. This release reads version {PROTOCOL}\. Use the newer release, whose `sink version`"
    rf" names protocol {OTHER}\..*`sink reset --forget --yes`: a tree is rebuilt from the table",
)
READERS = ("status", "status --json", "history", "history --json", "pause --no-wait", "resume", "flush", "switchover")
IN_A_TREE = (
    *READERS, "drain w1", "wait --caught-up", "reset", "reset --yes", "reset --to earliest --yes",
    "reset --to checkpoint --yes", "adopt", "adopt --yes", "errors replay", "errors replay --yes",
    "reland t:0=0", "reland t:0=0 --yes",
)  # fmt: skip
IN_A_TABLE = (
    "audit", "audit --json", "adopt", "adopt --yes", "errors", "errors replay", "errors replay --yes",
    "reset", "reset --yes", "reset --to earliest --yes", "reset --to checkpoint --yes", "reset --forget",
    "reset --forget --yes", "reland t:0=0", "reland t:0=0 --yes",
)  # fmt: skip

Contents = dict[str, object]
RunCommand = Callable[[str], tuple[int, str]]


@pytest.fixture
def landed(make_fleet: MakeFleet) -> Fleet:
    """A fleet that has landed its records. No worker is left."""
    fleet = make_fleet(records=RECORDS, **{"errors.tolerance": "all"})
    fleet.start("w1")
    fleet.wait_landed(LANDED)
    stop(fleet, "w1")
    return fleet


@pytest.fixture
def run(landed: Fleet, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Runs a command of the sink. Returns its exit status, and its output as one line."""

    def command(line: str) -> tuple[int, str]:
        capsys.readouterr()
        status = cli.main([*line.split(), "--config", str(landed.directory / "w1.yaml")])
        return status, " ".join("".join(capsys.readouterr()).split())

    return command


def stop(fleet: Fleet, name: str) -> None:
    fleet.workers[name].kill()
    eventually("its session has ended", lambda: not live_workers(fleet.client, fleet.root))


def tree_contents(client: KazooClient, path: str = "/sink") -> Contents:
    """Returns the content of each znode, and the transaction of ZooKeeper that wrote it last."""
    data, stat = client.get(path)
    contents: Contents = {path: (data, stat.mzxid)}
    for child in client.get_children(path):
        contents |= tree_contents(client, f"{path}/{child}")
    return contents


def table_contents(table: Path) -> Contents:
    return {str(path.relative_to(table)): path.read_bytes() for path in sorted(table.rglob("*")) if path.is_file()}


def contents(fleet: Fleet) -> tuple[Contents, Contents]:
    return tree_contents(fleet.client), table_contents(fleet.table)


def raise_version_of_tree(fleet: Fleet) -> None:
    for path in tree_contents(fleet.client):
        data, _ = fleet.client.get(path)
        if data.startswith(b'{"format":'):
            fleet.client.set(path, json.dumps({**json.loads(data), "format": OTHER}).encode())


def raise_version_of_table(fleet: Fleet) -> None:
    for commit in (fleet.table / ".hoodie" / "timeline").glob("*.commit"):
        data = commit.read_bytes()
        old, new = (b'{"format":%d,"sink"' % version for version in (PROTOCOL, OTHER))
        assert data.count(old) == 1
        commit.write_bytes(data.replace(old, new))


def refuses_to_run(fleet: Fleet, name: str, **settings: object) -> bool:
    """Whether a worker, and `sink run`, end with the sentence."""
    assert fleet.start(name, **settings).wait(120) == 2
    config = str(fleet.directory / f"{name}.yaml")
    bounded = subprocess.run(
        [sys.executable, "-m", "sink.cli", "run", "--until-end", "--config", config],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert bounded.returncode == 2, bounded.stderr
    return all(SENTENCE.search(" ".join(output.split())) for output in (fleet.log(name), bounded.stderr))


def test_a_worker_and_every_command_leave_a_tree_of_another_version_as_it_is(landed: Fleet, run: RunCommand) -> None:
    raise_version_of_tree(landed)
    before = contents(landed)
    for line in IN_A_TREE:
        status, output = run(line)
        assert (line, status, bool(SENTENCE.search(output))) == (line, 2, True), output
        assert contents(landed) == before, line
    for line, expected in (("validate", 1), ("doctor", 0), ("audit", 0), ("reset --forget", 0)):
        status, output = run(line)
        assert (line, status, bool(SENTENCE.search(output))) == (line, expected, True), output
        assert contents(landed) == before, line
    assert refuses_to_run(landed, "w2")
    assert contents(landed) == before


@pytest.mark.thorough
def test_a_tree_of_another_version_is_rebuilt_from_the_table_once_it_is_forgotten(
    landed: Fleet, run: RunCommand
) -> None:
    raise_version_of_tree(landed)
    assert run("reset --forget --yes")[0] == 0
    produce(landed.kafka, landed.topic, RECORDS, PARTITIONS, first=RECORDS)
    landed.start("w3")
    landed.wait_landed(dict.fromkeys(range(PARTITIONS), 2 * RECORDS // PARTITIONS))
    landed.assert_exactly_once(2 * RECORDS)


def test_a_worker_and_every_command_leave_a_table_of_another_version_as_it_is(landed: Fleet, run: RunCommand) -> None:
    raise_version_of_table(landed)
    before = contents(landed)
    for line in IN_A_TABLE:
        status, output = run(line)
        assert (line, status, bool(SENTENCE.search(output))) == (line, 2, True), output
        assert contents(landed) == before, line
    for line, expected in (("validate", 1), ("doctor", 0)):
        status, output = run(line)
        assert (line, status, bool(SENTENCE.search(output))) == (line, expected, True), output
        assert contents(landed) == before, line
    assert refuses_to_run(landed, "w2")
    assert contents(landed) == before

    landed.client.delete("/sink", recursive=True)
    without_tree = table_contents(landed.table)
    assert refuses_to_run(landed, "w3")
    assert refuses_to_run(landed, "w4", **{"sink.name": "another-sink"})
    assert landed.client.exists("/sink") is None
    assert table_contents(landed.table) == without_tree


def test_a_tree_that_only_a_member_of_another_version_is_in_is_left_as_it_is(landed: Fleet, run: RunCommand) -> None:
    member = {"format": OTHER, "host": "far"}
    path = landed.client.create(f"{landed.root}/workers/w9:1", json.dumps(member).encode(), ephemeral=True)
    before = contents(landed)
    for line in IN_A_TREE:
        status, output = run(line)
        assert (line, status, bool(SENTENCE.search(output))) == (line, 2, True), output
    status, output = run("audit")
    assert (status, bool(SENTENCE.search(output))) == (0, True), output
    assert refuses_to_run(landed, "w2")
    assert contents(landed) == before
    landed.client.delete(path)
    assert run("status")[0] == 0
