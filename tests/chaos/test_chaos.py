"""The shortest chaos run that means something; `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.chaos.__main__ import run
from tests.chaos.nemesis import cut_off, kill_at_failpoint, kill_zookeepers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_fleet_under_load_loses_and_repeats_nothing_while_things_break(tmp_path: Path) -> None:
    faults = (kill_zookeepers, kill_at_failpoint, cut_off)
    assert run(tmp_path, Random(1), workers=2, faults=faults, least=1) == 0
