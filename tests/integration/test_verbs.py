"""Operators' verbs on real workers: a fleet of two, whose interval never passes, goes through all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

import pytest

from sink.cli import main
from tests.conftest import temporary_chroot, topics
from tests.fleet import Fleet, produce
from tests.http_kit import Client, client_on_free_port
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 3
NEVER = 86_400_000
TOKEN = "a token of sixteen letters"


@dataclass
class Operated:
    """A fleet, the number of records in its topic, and the commands of `sink` on it."""

    fleet: Fleet
    http: Client
    records: int = 0

    def produce(self, records: int) -> None:
        produce(self.fleet.kafka, self.fleet.topic, records, PARTITIONS, first=self.records)
        self.records += records

    def landed(self) -> int:
        return sum(state.end for state in self.fleet.view().states.values())

    def command(self, *arguments: str, status: int = 0) -> None:
        name = "w1.yaml" if (self.fleet.directory / "w1.yaml").exists() else "w2.yaml"
        assert main([*arguments, "--config", str(self.fleet.directory / name)]) == status, self.fleet.logs()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a worker that ends by itself, as a scheduler starts it."""
        config = ["--config", str(self.fleet.configure("scheduled"))]
        command = [sys.executable, "-m", "sink.cli", "run", *arguments, *config]
        return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=240, check=False)

    def leader(self) -> WorkerProcess:
        return self.fleet.coordinator()

    def follower(self) -> WorkerProcess:
        leader = self.leader()
        return next(worker for worker in self.fleet.workers.values() if worker is not leader and worker.running)


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory, zookeeper, kafka) -> Iterator[Operated]:
    settings = {"hoodie.metadata.enable": False, "transaction.interval.ms": NEVER, "flush.size": 1_000_000}
    with temporary_chroot(zookeeper.address) as chroot, topics(kafka.address) as make_topic:
        topic = make_topic(PARTITIONS)
        operated = Operated(
            Fleet(tmp_path_factory.mktemp("verbs"), chroot, kafka.address, topic, settings), client_on_free_port()
        )
        try:
            operated.produce(30)
            operated.fleet.start(
                "w1", **{"http.listen": f"{operated.http.host}:{operated.http.port}", "http.token": TOKEN}
            )
            operated.fleet.start("w2")
            operated.fleet.wait(
                "two members and the first commit", lambda view: len(view.members) == 2 and view.ledger.committed > 0
            )
            yield operated
        finally:
            operated.fleet.close()


def test_a_flush_commits_what_the_interval_would_keep_waiting(operated: Operated, capsys) -> None:
    operated.produce(30)
    operated.command("flush")
    assert operated.landed() == operated.records
    assert "all that was there is committed" in capsys.readouterr().out


def test_a_paused_sink_commits_nothing_says_so_and_goes_on_where_it_was(operated: Operated, capsys) -> None:
    operated.command("pause", "--reason", "maintenance")
    assert "is paused; nothing is open" in capsys.readouterr().out
    operated.produce(30)
    operated.command("flush", status=2)
    assert "is paused, by" in capsys.readouterr().err
    operated.command("switchover")
    capsys.readouterr()
    operated.command("status", "--json")
    status = json.loads(capsys.readouterr().out)
    assert (status["paused"]["reason"], status["lag"]) == ("maintenance", 30)
    operated.command("resume")
    operated.command("flush")
    assert operated.landed() == operated.records


def test_a_worker_performs_verbs_by_http_for_who_has_the_token(operated: Operated, capsys) -> None:
    def perform(verb: str) -> object:
        answer = operated.http.ask(verb, "POST", {"Authorization": f"Bearer {TOKEN}"})
        assert answer.status == 200, answer.body
        return answer.json["done"][operated.fleet.name]

    assert perform("/pause") == f"sink {operated.fleet.name} is paused"
    operated.command("flush", status=2)
    assert "is paused, by HTTP at " in capsys.readouterr().err
    assert "goes on. It was paused by HTTP" in str(perform("/resume"))
    operated.produce(3)
    assert perform("/flush") == "asked for"
    operated.command("wait", "--caught-up")
    assert operated.landed() == operated.records


def test_a_switchover_makes_the_other_worker_coordinator(operated: Operated, capsys) -> None:
    old_leader, follower = operated.leader(), operated.follower()
    operated.command("switchover")
    assert f"{follower.name} coordinates" in capsys.readouterr().out
    assert operated.leader() is follower
    assert old_leader.running
    operated.produce(3)
    operated.command("flush")
    assert operated.landed() == operated.records


def test_a_drained_coordinator_hands_over_and_ends_with_status_0(operated: Operated, capsys) -> None:
    leader, follower = operated.leader(), operated.follower()
    operated.command("drain", leader.name)
    assert f"{leader.name} has left" in capsys.readouterr().out
    assert leader.wait(120) == 0
    assert operated.leader() is follower
    operated.produce(3)
    operated.command("flush")
    assert operated.landed() == operated.records
    operated.command("switchover", status=2)
    assert "no other worker could" in capsys.readouterr().err
    operated.command("drain", "nobody", status=2)
    assert f"There are: {follower.name}" in capsys.readouterr().err


def test_a_wait_ends_when_all_is_committed_that_was_there_when_it_began(operated: Operated, capsys) -> None:
    operated.command("wait", "--caught-up")
    assert "has committed what was there" in capsys.readouterr().out
    operated.produce(3)
    operated.command("wait", "--caught-up", "--timeout", "1", status=1)
    assert "is 3 offsets before the end after 1 s" in capsys.readouterr().err
    operated.command("flush")
    operated.command("wait", "--caught-up")


def test_the_history_has_every_transaction_with_the_seconds_of_its_phases(operated: Operated, capsys) -> None:
    operated.command("history", "--json")
    transactions = json.loads(capsys.readouterr().out)
    assert sum(transaction["records"] for transaction in transactions) == operated.records
    assert {transaction["outcome"] for transaction in transactions} == {"COMMITTED"}
    assert {transaction["attempt"] for transaction in transactions} == {1}
    assert all({"begin", "write", "commit", "settle"} == transaction["seconds"].keys() for transaction in transactions)
    operated.command("history", "--aborted")
    assert "no transaction has been aborted yet" in capsys.readouterr().out


def test_a_run_of_a_paused_sink_ends_with_one_sentence(operated: Operated) -> None:
    (last,) = (worker for worker in operated.fleet.workers.values() if worker.running)
    operated.command("drain", last.name)
    assert last.wait(120) == 0
    operated.command("pause")
    operated.produce(30)
    result = operated.run("--until-end")
    assert result.returncode == 1, result.stderr
    assert "is paused, 30 offsets before the end" in result.stderr.splitlines()[-1]
    operated.command("resume")


def test_a_run_lands_what_was_there_after_a_reset_to_a_time_and_leaves(operated: Operated, capsys) -> None:
    """No worker is alive, and 30 records wait."""
    landed_before, reset_time = operated.landed(), datetime.now(timezone.utc).isoformat()
    time.sleep(0.01)  # the broker's timestamps are whole milliseconds
    operated.produce(3)
    operated.command("reset", "--to", reset_time)
    assert "leaves out 10 offsets, recorded as a gap" in capsys.readouterr().out
    operated.command("reset", "--to", reset_time, "--yes")
    result = operated.run("--until-end")
    assert result.returncode == 0, result.stderr
    assert "has committed what was there" in result.stdout
    view = operated.fleet.view()
    assert (operated.landed(), view.members) == (operated.records, ())
    assert {state.generation for state in view.states.values()} == {1}
    assert sum(gap.end - gap.start for gap in view.ledger.gaps) == operated.records - landed_before - 3
    operated.fleet.assert_exactly_once(landed_before + 3)
