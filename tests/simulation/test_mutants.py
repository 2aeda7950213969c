"""The simulator can fail: every named way to break the protocol is caught within its number of seeds."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.faults import draw
from tests.simulation.mutants import CAUGHT, Mutant, mutated
from tests.simulation.world import World


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_caught(mutant: Mutant) -> None:
    with mutated(mutant):
        runs = (World(seed, mutant.profile(draw(Random(seed)))).run() for seed in range(mutant.seeds))
        assert any(report.violation is not None for report in runs), f"survived {mutant.seeds} seeds"
