"""The first minutes with the command line: completion, examples, and a report for support."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import typer

from coordination.errors import Unavailable
from sink.cli import app, main
from sink.commands.doctor import as_archive
from sink.commands.examples import EXAMPLES
from sink.config import Configuration
from sink.operations import diagnosis
from sink.operations.chosen import KnownSinks
from sink.operations.diagnosis import LOG_LINES, ReportPart, diagnose
from tests.docs.help import commands, help_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def sink_on_path(tmp_path: Path) -> dict[str, str]:
    """Returns an environment whose `sink` command runs this tree, as after an installation."""
    program = tmp_path / "bin" / "sink"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sink.cli "$@"\n')
    program.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("_")}
    return {**inherited, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def run(command: list[str], environment: dict[str, str]) -> str:
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return result.stdout


def test_bash_completes_commands_and_options(sink_on_path: dict[str, str]) -> None:
    script = """
    eval "$(_SINK_COMPLETE=source_bash sink)"
    complete -p sink
    COMP_WORDS=(sink st) COMP_CWORD=1; _sink_completion sink; echo "${COMPREPLY[@]}"
    COMP_WORDS=(sink audit --no) COMP_CWORD=2; _sink_completion sink; echo "${COMPREPLY[@]}"
    """
    lines = run(["bash", "-c", script], sink_on_path).splitlines()
    assert lines == ["complete -o default -F _sink_completion sink", "status", "--no-log"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_their_script_and_its_answers(shell: str, sink_on_path: dict[str, str]) -> None:
    script = run(["sink"], {**sink_on_path, "_SINK_COMPLETE": f"source_{shell}"})
    assert f"_SINK_COMPLETE=complete_{shell}" in script
    completion = {"_SINK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "sink st"}
    assert "status" in run(["sink"], {**sink_on_path, **completion, "_TYPER_COMPLETE_FISH_ACTION": "get-args"})
    if executable := shutil.which(shell):
        subprocess.run([executable, "-n", "/dev/stdin"], input=script, text=True, check=True, timeout=60)


@pytest.mark.parametrize("command", [command for command in commands() if command])
def test_the_help_of_every_command_has_examples_that_it_understands(command: str) -> None:
    _, _, shown = help_of(command).partition("Examples:\n")
    assert [line.strip() for line in shown.splitlines()] == list(EXAMPLES[command])
    for example in EXAMPLES[command]:
        words = shlex.split(example.partition(">")[0])
        assert words[: 1 + len(command.split())] == ["sink", *command.split()]
        group = typer.main.get_command(app)
        for part in command.split():
            group = group.commands[part]  # type: ignore[attr-defined]
        arguments = words[1 + len(command.split()) :]
        group.make_context(command, list(arguments), resilient_parsing=False)


def test_a_report_is_made_even_where_the_settings_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "orders.yaml"
    config.write_text("kafka.sasl.password: hunter22\nflush.sise: 1\n")
    assert main(["doctor", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert "===== versions.txt" in out
    assert re.search(r"^python 3\.", out, re.MULTILINE)
    assert "flush.sise" in out
    assert "hunter22" not in out


def test_logs_are_left_out_where_the_settings_tell_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "w1.log").write_text("login with hunter22 failed\n")
    config = tmp_path / "orders.yaml"
    config.write_text("kafka.sasl.password: hunter22\nflush.sise: 1\n")
    parts = {part.name: part.text for part in diagnose(config, [tmp_path / "logs" / "w1.log"])}
    assert parts["logs.txt"].startswith("left out")
    assert "hunter22" not in "".join(parts.values())


def test_a_configuration_of_patterns_has_its_logs_in_the_report_though_no_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_servers(_: Configuration) -> KnownSinks:
        raise Unavailable("neither Kafka nor ZooKeeper answers")

    monkeypatch.setattr(diagnosis, "known_sinks", without_servers)
    logs = tmp_path / "logs"
    (logs / "more").mkdir(parents=True)
    (logs / "w1.log").write_text("first\n")
    (logs / "gone.log").symlink_to(logs / "nowhere")
    (logs / "more" / "w1.log").write_text("second\n")
    config = tmp_path / "lake.yaml"
    config.write_text(
        "zookeeper.connect: 127.0.0.1:1\nkafka.bootstrap.servers: 127.0.0.1:2\nschema.ddl: id BIGINT\n"
        f"log.dir: {logs}\nsinks:\n  lake:\n    kafka.topic.regex: '.*'\n    target.base.path: {tmp_path}/{{topic}}\n"
    )
    parts = {part.name: part.text for part in diagnose(config, [logs / "more" / "w1.log"])}
    assert {"logs/w1.log": "second\n", "logs/2-w1.log": "first\n"}.items() <= parts.items()
    assert parts["logs/gone.log"] == f"left out: {logs}/gone.log cannot be read (it is a link)\n"
    assert parts["patterns.txt"].startswith("could not be gathered: ")


def test_the_ends_of_the_newest_logs_are_in_it_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(diagnosis, "validate", lambda _: [])
    monkeypatch.setattr(diagnosis, "_status", lambda _: "{}")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "w1-spark.log").write_text("".join(f"line {number}\n" for number in range(1000)))
    (tmp_path / "w1.log").write_text("login with hunter22 at https://me:pw12345@host/ failed\n")
    config = tmp_path / "orders.properties"
    properties = {
        "zookeeper.connect": "127.0.0.1:1",
        "kafka.bootstrap.servers": "127.0.0.1:2",
        "kafka.topic.names": "orders",
        "kafka.sasl.password": "hunter22",
        "target.base.path": str(tmp_path / "table"),
        "target.table.name": "orders",
        "schema.ddl": "id BIGINT",
        "log.dir": str(logs),
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    parts = {part.name: part.text for part in diagnose(config, [tmp_path / "w1.log", tmp_path / "absent.log"])}
    assert parts["logs/w1-spark.log"].splitlines() == [f"line {number}" for number in range(1000 - LOG_LINES, 1000)]
    assert parts["logs/w1.log"] == "login with ****** at https://******@host/ failed\n"
    absent = tmp_path / "absent.log"
    assert parts["logs/absent.log"] == f"left out: {absent} cannot be read (No such file or directory)\n"
    assert '"kafka.topic.names"' in parts["settings.txt"]
    assert "hunter22" not in "".join(parts.values())


def test_an_archive_has_a_file_for_each_part() -> None:
    data = as_archive([ReportPart("versions.txt", "sink 1\n"), ReportPart("orders/status.json", "{}")], "report")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
        versions = archive.extractfile("report/versions.txt")
        assert versions is not None
        assert (names, versions.read()) == (["report/versions.txt", "report/orders/status.json"], b"sink 1\n")


def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "orders.yaml"
    config.write_text("flush.sise: 1\n")
    assert main(["doctor", "--config", str(config), "--output", str(tmp_path / "absent" / "report.txt")]) == 2
    assert capsys.readouterr().err.startswith("sink: --output: ")
