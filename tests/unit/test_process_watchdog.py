"""Every process of a family is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import psutil
import pytest

from sink.devtools.local.process_watchdog import FAMILY, kill_tagged_processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a tag of its own, `args[-1]`, that ends only when it is killed."""
    tag = uuid.uuid4().hex
    command = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()", tag]
    process = subprocess.Popen(command, env={**os.environ, FAMILY: tag}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def _tag(child: subprocess.Popen[bytes]) -> str:
    assert isinstance(child.args, list)
    return str(child.args[-1])


def test_a_process_of_the_family_is_killed(child: subprocess.Popen[bytes]) -> None:
    kill_tagged_processes(_tag(child))
    assert not psutil.pid_exists(child.pid)


def test_a_process_that_executes_another_program_is_seen_at_the_next_look(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux shows no environment while a program is replaced."""
    real_environ = psutil.Process.environ
    looks: list[int] = []

    def environ(process: psutil.Process) -> dict[str, str]:
        if process.pid == child.pid:
            looks.append(process.pid)
            if len(looks) == 1:
                return {}
        return real_environ(process)

    monkeypatch.setattr(psutil.Process, "environ", environ)
    kill_tagged_processes(_tag(child))
    assert not psutil.pid_exists(child.pid)


def test_another_family_lives_on(child: subprocess.Popen[bytes]) -> None:
    kill_tagged_processes(uuid.uuid4().hex)
    assert child.poll() is None
