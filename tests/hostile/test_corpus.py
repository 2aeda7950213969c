"""No input of the corpus crashes a parser, holds it for five seconds, or takes 200 MB for a megabyte."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import corpus
from tests.hostile.parsers import PARSERS

ROOT = Path(__file__).parents[2]
SECONDS = 10.0
"""Processor time; twice what decision 82 promises, for slow machines."""
SILENT_SECONDS = 60.0
"""A child that is silent for so long is ended. A machine under load takes several times the processor's time."""
BYTES_PER_BYTE = 200


class Child:
    """A process that parses inputs. It is started anew after one that ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def parse(self, parser: str, name: str) -> dict[str, Any]:
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(SILENT_SECONDS, process.kill)
        timer.start()
        process.stdin.write(f"{parser} {name}\n")
        process.stdin.flush()
        lines = [process.stdout.readline() for _ in range(2)]
        timer.cancel()
        if not lines[1]:
            self.close()
            return {"fault": f"the process ended with {process.returncode}: it hung, or crashed"}
        result: dict[str, Any] = json.loads(lines[1])
        return result

    def _started(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    process = Child()
    yield process
    process.close()


@pytest.mark.parametrize(("parser", "name"), corpus.names(), ids=lambda value: value)
def test_an_input_that_hurts_is_refused_or_read_in_time(child: Child, parser: str, name: str) -> None:
    result = child.parse(parser, name)
    assert not result["fault"]
    assert result["seconds"] < SECONDS
    assert result["bytes"] < BYTES_PER_BYTE * max(1_000_000, result["size"])


def test_every_parser_has_hostile_inputs_and_a_valid_one_to_begin_with() -> None:
    assert set(corpus.GENERATED) == set(PARSERS)
    assert all(next(corpus.seeds(parser)) for parser in PARSERS)
