"""The class archive is complete or missing: a file that an earlier process left is not taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sink.devtools import class_archiving


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the archive. Spark is replaced by a log that it has written."""
    path = tmp_path / "classes" / "spark-1.jsa"
    path.parent.mkdir()
    monkeypatch.setattr(class_archiving, "archive_path", lambda: path)
    monkeypatch.setattr(class_archiving, "start_session", lambda _settings, _name, log: log.write_text("no memory"))
    for name in ("warm_up", "rehearse", "_exit_jvm"):
        monkeypatch.setattr(class_archiving, name, lambda *_: None)
    return path


def test_a_part_that_a_killed_process_left_is_not_taken_for_the_archive(archive: Path, capsys) -> None:
    archive.with_suffix(".part").write_text("the beginning of an archi")
    assert class_archiving.main() == 1
    assert not archive.exists()
    assert "the JVM wrote no archive: no memory. Workers start without it." in capsys.readouterr().err


def test_the_file_that_the_jvm_wrote_on_exit_becomes_the_archive(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archiving, "_exit_jvm", lambda _: archive.with_suffix(".part").write_text("classes"))
    assert class_archiving.main() == 0
    assert archive.read_text() == "classes"
