"""The simulator can fail: every named way to break the protocol is caught within its number of seeds."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.faults import draw
from tests.simulation.mutants import CAUGHT, Mutant, mutated
from tests.simulation.world import World

DEFECTIVE = "a machine never raises"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_caught(mutant: Mutant) -> None:
    with mutated(mutant):
        seeds = range(mutant.first, mutant.first + mutant.seeds)
        runs = (World(seed, mutant.profile(draw(Random(seed)))).run() for seed in seeds)
        # A machine that raises is defective: such a run does not test the rule.
        broken = next((run for run in runs if run.violation and run.violation.invariant != DEFECTIVE), None)
    assert broken is not None, f"survived {mutant.seeds} seeds"
    assert World(broken.seed, broken.profile).run().violation is None, "the whole protocol breaks there too"
