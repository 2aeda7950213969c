"""Jars and classes run only from where no other user can replace them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.clients.host.trusted_files import require_trusted
from sink.clients.java import installation as java
from sink.clients.java.class_archive import archive_option, archive_path
from sink.clients.java.installation import fetch


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("SINK_HOME", str(directory))
    return directory


def downloaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes what a download makes, and returns its directory."""

    def download(_name: str, _document: str, directory: Path) -> None:
        directory.mkdir()
        (directory / "a.jar").touch()

    monkeypatch.setattr(java, "download_into", download)
    (jar,) = fetch("a", ())
    return jar.parent


@pytest.mark.parametrize("place", ["home", "jars", "set"])
def test_jars_that_everybody_may_replace_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    jars = downloaded(home, monkeypatch)
    open_place = {"home": home, "jars": jars.parent, "set": jars}[place]
    open_place.chmod(0o777)
    with pytest.raises(ConfigError, match=rf"SINK_HOME: every user may write {open_place}, and replace what runs"):
        fetch("a", ())
    open_place.chmod(0o1777)
    if open_place == jars:
        # Another user could add a jar.
        with pytest.raises(ConfigError, match="every user may write"):
            fetch("a", ())
    else:
        assert fetch("a", ())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_jars_of_another_user_are_refused_and_roots_are_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = downloaded(home, monkeypatch)
    os.chown(jars, 1, 1)
    with pytest.raises(ConfigError, match=rf"SINK_HOME: {jars} belongs to the user \w+, who could replace"):
        fetch("a", ())


def test_an_archive_of_classes_that_everybody_may_replace_is_refused(home: Path) -> None:
    archive = archive_path()
    assert archive is not None
    archive.parent.mkdir()
    archive.touch()
    assert archive_option()
    archive.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="SINK_HOME: every user may write"):
        archive_option()


def test_a_directory_below_one_with_the_sticky_bit_is_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "own").mkdir()
    require_trusted(tmp_path / "own", "SINK_HOME")
