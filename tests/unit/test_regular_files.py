"""Root's commands follow no link of the worker's user, and write nothing that everybody reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.cli import main
from sink.clients.host.regular_files import open_regular
from sink.clients.java import installation as java
from sink.clients.java.installation import fetch
from sink.clients.spark.log import jvm_output, log4j_configuration
from sink.operations.diagnosis import _logs

SECRET = "root:$6$hash"
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link to another user")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "shadow"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "log"
    directory.mkdir()
    return directory


def test_a_regular_file_is_opened_and_made(logs: Path) -> None:
    with open(open_regular(logs / "w1.log", os.O_WRONLY | os.O_CREAT), "w") as file:
        file.write("line")
    assert (logs / "w1.log").stat().st_mode & 0o777 == 0o600
    with open(open_regular(logs / "w1.log", os.O_RDONLY)) as file:
        assert file.read() == "line"


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT])
def test_links_pipes_and_directories_are_refused_at_once(logs: Path, secret: Path, flags: int) -> None:
    (logs / "link").symlink_to(secret)
    os.mkfifo(logs / "pipe")
    (logs / "directory").mkdir()
    for name, reason in (
        ("link", "it is a link"),
        ("pipe", "it is not a regular file"),
        ("directory", "regular file|[Dd]irectory"),
    ):
        with pytest.raises(OSError, match=reason):
            open_regular(logs / name, flags)
    assert secret.read_text() == f"{SECRET}\n"


@ROOT_ONLY
def test_a_directory_that_another_user_made_a_link_is_refused_and_roots_is_not(
    tmp_path: Path, logs: Path, secret: Path
) -> None:
    place = tmp_path / "place"
    place.symlink_to(secret.parent)
    os.close(open_regular(place / "shadow", os.O_RDONLY))
    os.chown(place, 1, 1, follow_symlinks=False)
    with pytest.raises(OSError, match="its directory is a link of another user's"):
        open_regular(place / "shadow", os.O_RDONLY)


def test_a_report_has_the_logs_and_not_what_links_among_them_lead_to(logs: Path, secret: Path) -> None:
    (logs / "w1.log").write_text("it ran\n")
    (logs / "evil.log").symlink_to(secret)
    os.mkfifo(logs / "pipe.log")
    parts = {part.name: part.text for part in _logs([logs], [logs / "evil.log"])}
    assert parts["logs/w1.log"] == "it ran\n"
    left_out = f"left out: {logs}/evil.log cannot be read (it is a link)\n"
    assert (parts["logs/evil.log"], parts["logs/2-evil.log"]) == (left_out, left_out)
    assert parts["logs/pipe.log"] == f"left out: {logs}/pipe.log cannot be read (it is not a regular file)\n"
    assert SECRET not in "".join(parts.values())


@pytest.mark.parametrize("name", ["report.txt", "report.tar.gz"])
def test_a_report_is_a_new_file_of_its_own_user(
    tmp_path: Path, secret: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "orders.yaml"
    config.write_text("flush.sise: 1\n")
    report = tmp_path / name
    command = ["doctor", "--config", str(config), "--output", str(report)]
    assert main(command) == 0
    assert report.stat().st_mode & 0o777 == 0o600
    for target in (secret, tmp_path / "absent"):
        report.unlink()
        report.symlink_to(target)
        assert main(command) == 2
        sentence = f"sink: --output: {report} exists already. Choose another file, or remove it.\n"
        assert capsys.readouterr().err == sentence
    assert secret.read_text() == f"{SECRET}\n"
    assert not (tmp_path / "absent").exists()


def test_sparks_log_is_not_written_through_a_link(logs: Path, secret: Path) -> None:
    (logs / "replay-spark.log").symlink_to(secret)
    with (
        pytest.raises(ConfigError, match=r"log\.dir: .*/replay-spark\.log cannot be written \(it is a link\)"),
        jvm_output(logs / "replay-spark.log"),
    ):
        pass
    assert secret.read_text() == f"{SECRET}\n"
    with jvm_output(logs / "w1-spark.log") as output:
        assert not isinstance(output, int)
        output.write("line")
    assert (logs / "w1-spark.log").stat().st_mode & 0o777 == 0o640


def test_a_log_that_does_not_roll_is_written_by_its_descriptor_alone(logs: Path) -> None:
    assert str(logs) in log4j_configuration(logs / "spark.log")
    assert str(logs) not in log4j_configuration(logs / "spark.log", rolls=False)


@ROOT_ONLY
def test_nothing_is_written_below_another_users_home_of_jars(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "home" / "jars"
    jars.mkdir(parents=True)
    os.chown(jars, 1, 1)
    monkeypatch.setenv("SINK_HOME", str(jars.parent))
    monkeypatch.setattr(java, "download_into", lambda _name, _document, directory: directory.mkdir())
    locks: list[Path] = []
    monkeypatch.setattr(java, "locked", lambda path, _work: locks.append(path))
    with pytest.raises(ConfigError, match=rf"SINK_HOME: {jars} belongs to the user"):
        fetch("a", ())
    assert locks == []
