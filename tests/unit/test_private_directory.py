"""Temporary files of a worker are in directories that nobody else enters, and that a crash does not leave for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.clients.host import private_directory as module
from sink.clients.host.private_directory import PREFIX, private_directories, private_directory


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Leaves the directories of the Spark session of other tests alone."""
    known, module._directory_in = module._directory_in, module._directory_in.__wrapped__
    yield
    module._directory_in = known


def test_a_directory_is_for_its_user_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = private_directory(str(tmp_path))
    finally:
        os.umask(before)
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700


def test_the_directory_of_a_process_that_died_is_removed_and_that_of_one_that_runs_is_not(tmp_path: Path) -> None:
    program = f"""
    import sys
    from sink.clients.host.private_directory import private_directory
    print((private_directory({str(tmp_path)!r}) / "block").write_text("x"), flush=True)
    sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        private_directory(str(tmp_path))
        assert len(list(tmp_path.glob(f"{PREFIX}*/block"))) == 1
        process.kill()
    private_directory(str(tmp_path))
    assert list(tmp_path.glob(f"{PREFIX}*/block")) == []


def test_a_link_or_another_users_directory_is_not_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "lock").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(kept)
    others = tmp_path / f"{PREFIX}other"
    others.mkdir()
    (others / "lock").touch()
    if os.getuid() == 0:
        os.chown(others, 65534, 65534)
    else:
        others.chmod(0)
    private_directory(str(tmp_path))
    assert (kept / "lock").exists()
    assert others.exists()


def test_each_place_for_blocks_that_can_be_written_gets_one(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    directories = private_directories([str(places[0]), f" {places[1]} ", str(tmp_path / "missing")])
    assert [directory.parent for directory in directories] == places
    with pytest.raises(ConfigError, match=r"missing: no directory for temporary files can be made there"):
        private_directories([str(tmp_path / "missing")])
