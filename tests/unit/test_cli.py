"""The command line: exit statuses, one sentence for what is wrong, no tracebacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from coordination.errors import Unavailable
from sink import cli
from tests.handmade import SINK, HandmadeTable, span

COMMANDS = ("demo", "status", "audit", "reset", "adopt", "validate", "infer", "version")


def run_sink(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]):
    code, out, _ = run_sink(capsys, "--help")
    assert code == 0
    assert [command for command in COMMANDS if command not in out] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], command: str):
    code, out, _ = run_sink(capsys, command, "--help")
    assert code == 0
    assert "Usage: sink" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("stauts",),
        ("status",),
        ("status", "--config"),
        ("status", "--conifg", "x"),
        ("status", "--config", "/no/such.yaml"),
        ("audit", "--config", "/no/such.yaml"),
        ("reset", "--config", "/no/such.yaml"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_status_2(capsys: pytest.CaptureFixture[str], arguments):
    code, out, err = run_sink(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("sink: ")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--partition", "orders"), "--partition 'orders' is not TOPIC:PARTITION, like orders:3"),
        (("--content", "--sample", "0%"), "--sample '0%' is not a share of more than 0% and at most 100%, like 5%"),
        (("--content", "--sample", "half"), "--sample 'half' is not a share"),
        (("--sample", "5%"), "--sample is a share of the contents: add --content"),
        (("--since", "yesterday"), "--since 'yesterday' is not a time"),
        (("--no-log", "--since", "2026-01-01"), "are about the log: leave --no-log out"),
    ],
)
def test_a_part_that_an_audit_cannot_take_is_refused(capsys: pytest.CaptureFixture[str], arguments, sentence):
    code, _, err = run_sink(capsys, "audit", "--config", "/no/such.yaml", *arguments)
    assert (code, sentence in err) == (2, True), err


def test_a_broken_configuration_does_not_validate_and_all_reasons_are_told(capsys, tmp_path: Path):
    config = tmp_path / "sink.yaml"
    config.write_text("flush.sise: 1\ntransaction.interval.ms: soon\n")
    code, out, _ = run_sink(capsys, "validate", "--config", str(config))
    assert code == 1
    assert "Did you mean flush.size?" in out
    assert "transaction.interval.ms ('soon') is not a duration" in out


@pytest.mark.parametrize(
    ("error", "status", "printed"),
    [
        (
            Unavailable("ZooKeeper at zk:2181 did not answer"),
            2,
            "sink: ZooKeeper at zk:2181 did not answer\n",
        ),
        (KeyboardInterrupt(), 130, "sink: interrupted\n"),
    ],
)
def test_an_error_inside_a_command_has_its_exit_status(capsys, monkeypatch, error, status, printed):
    def fails() -> dict[str, str]:
        raise error

    monkeypatch.setattr(cli, "dependency_versions", fails)
    code, _, err = run_sink(capsys, "version")
    assert (code, err) == (status, printed)


def test_a_defect_shows_its_traceback_and_has_not_the_status_for_no(capsys, monkeypatch):
    monkeypatch.setattr(cli, "dependency_versions", lambda: {}["missing"])
    code, _, err = run_sink(capsys, "version")
    assert (code, "KeyError: 'missing'" in err, "this is a defect of the sink" in err) == (2, True, True), err


@pytest.mark.parametrize(
    "program", [("sink", "version"), ("sink.worker", "--config", "/no/such.yaml")], ids=["sink", "worker"]
)
def test_an_interrupt_during_the_imports_is_one_sentence_and_status_130(program):
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", *program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert any("coordination.errors" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    printed = [line for line in process.stderr if not line.startswith("import time:")]
    assert (process.wait(60), printed) == (130, ["sink: interrupted\n"])


def test_a_worker_names_a_file_that_is_not_there():
    worker = [sys.executable, "-m", "sink.worker", "-c", "/no/such.yaml"]
    result = subprocess.run(worker, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("sink: /no/such.yaml: there is no such file")


def test_a_reader_that_goes_away_is_told_by_the_status_alone():
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "sink.cli", "version"]
    result = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (result.returncode, result.stderr) == (cli.EXIT_PIPE_CLOSED, "")


@pytest.fixture
def absent_zookeeper(monkeypatch) -> list[float]:
    """Replaces ZooKeeper by one that never answers; returns the seconds that each command waited for it."""
    waited: list[float] = []

    def absent(_settings, seconds: float) -> NoReturn:
        waited.append(seconds)
        raise Unavailable("ZooKeeper did not answer")

    monkeypatch.setattr("sink.commands.audit.connected", absent)
    return waited


@pytest.mark.usefixtures("absent_zookeeper")
@pytest.mark.parametrize(("broken", "status", "verdict"), [(False, 0, "Held"), (True, 1, "Not held")])
def test_audit_says_by_its_exit_status_whether_the_table_held(capsys, tmp_path: Path, broken, status, verdict):
    table = HandmadeTable(tmp_path / "table")
    table.commit(span(0, 0, 10))
    table.commit(span(0, 9 if broken else 10, 20))
    config = tmp_path / "sink.properties"
    config.write_text(
        "zookeeper.connect=zk\nkafka.bootstrap.servers=b:1\ntopics=orders\nschema.ddl=id BIGINT\n"
        f"target.table.name=orders\ntarget.base.path={table.path}\n"
    )
    code = cli.main(["audit", "--config", str(config), "--no-log"])
    assert (code, verdict in capsys.readouterr().out) == (status, True)
    assert cli.main(["audit", "--config", str(config), "--no-log", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["held"] is not broken


@pytest.mark.parametrize(("broken", "status", "sinks_held"), [(False, 0, 2), (True, 1, 1)])
def test_an_audit_of_several_sinks_holds_when_each_of_them_does(
    capsys, tmp_path: Path, absent_zookeeper, broken, status, sinks_held
):
    sinks = ""
    for name in (SINK, "more"):
        table = HandmadeTable(tmp_path / name)
        table.checkpoint["sink"] = name
        table.commit(span(0, 0, 10))
        table.commit(span(0, 9 if broken and name == SINK else 10, 20))
        sinks += f"  {name}: {{topics: orders, target.base.path: {table.path}}}\n"
    config = tmp_path / "fleet.yaml"
    config.write_text(f"zookeeper.connect: zk\nkafka.bootstrap.servers: b:1\nschema.ddl: id BIGINT\nsinks:\n{sinks}")
    code = cli.main(["audit", "--config", str(config), "--no-log"])
    assert (code, f"{sinks_held} of 2 sinks hold" in capsys.readouterr().out) == (status, True)
    assert cli.main(["audit", "--config", str(config), "--no-log", "--json"]) == status
    document = json.loads(capsys.readouterr().out)
    assert document["held"] is not broken
    assert [entry["sink"] for entry in document["sinks"]] == [SINK, "more"]
    assert len(absent_zookeeper) == 2, "each of the two audits waits once for all its sinks"
