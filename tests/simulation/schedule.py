"""Records the random draws of a run, so that the run can be replayed after the simulator or the protocol has changed.

A seed alone is one random source for a whole run: one draw more anywhere shifts every draw after it, and the seed then
tests something else. A schedule gives each place that draws (a function of the simulator) a source of its own. A new
draw moves only the draws of its own place. Where a place asks for more than was recorded, it gets "no fault".

The file holds the run's profile, its seed, and the order in which the places drew. Python guarantees what
`Random(seed).random()` yields, so that the values themselves need not be stored.

`python -m tests.simulation.schedule SEED "the bug that this run found"` records one.
"""

from __future__ import annotations

import base64
import json
import sys
import textwrap
import zlib
from collections import defaultdict, deque
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

from coordination.planning.offsets import DataLossPolicy, OffsetReset
from tests.simulation.faults import Profile
from tests.simulation.world import World

DIRECTORY = Path(__file__).parent / "schedules"
NO_FAULT = 1.0 - 2.0**-53
"""The largest draw: above every probability, and the longest wait for the next fault."""
WORD = 32


def _place(kind: str) -> str:
    """Names the function of the simulator that draws, without its line: editing a file must not rename it."""
    frame = sys._getframe(2)
    while Path(frame.f_code.co_filename).stem == "random":
        assert frame.f_back is not None
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name} {kind}"


class Recorder(Random):
    """Draws as `Random(seed)` does, and remembers which place drew when."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.order: list[str] = []

    def random(self) -> float:
        self.order.append(_place("random"))
        return super().random()

    def getrandbits(self, bits: int) -> int:
        assert bits <= WORD, "a schedule stores one word for a draw of bits"
        self.order.append(_place("bits"))
        return super().getrandbits(bits)


class Replay(Random):
    """Gives each place the draws that were recorded for it, in their order."""

    def __init__(self, seed: int, order: list[str]) -> None:
        super().__init__(seed)
        source = Random(seed)
        self._draws: defaultdict[str, deque[float]] = defaultdict(deque)
        for place in order:
            draw = source.random() if place.endswith(" random") else source.getrandbits(WORD)
            self._draws[place].append(draw)

    def random(self) -> float:
        draws = self._draws[_place("random")]
        return draws.popleft() if draws else NO_FAULT

    def getrandbits(self, bits: int) -> int:
        """The upper bits of the recorded word, so that it serves whatever the number of choices has become."""
        draws = self._draws[_place("bits")]
        return int(draws.popleft()) >> (WORD - bits) if draws else 0


@dataclass(frozen=True)
class Schedule:
    seed: int
    bug: str
    profile: Profile
    order: list[str]

    @classmethod
    def record(cls, seed: int, bug: str) -> Schedule:
        recorder = Recorder(seed)
        world = World(seed, rng=recorder)
        world.run()
        return cls(seed, bug, world.profile, recorder.order)

    def world(self) -> World:
        return World(self.seed, self.profile, rng=Replay(self.seed, self.order))

    def save(self, path: Path) -> None:
        places = sorted(set(self.order))
        number = {place: n for n, place in enumerate(places)}
        packed = base64.b85encode(zlib.compress(bytes(number[place] for place in self.order), 9)).decode()
        text = {
            "bug": self.bug,
            "seed": self.seed,
            "profile": {name: v.value if isinstance(v, Enum) else v for name, v in asdict(self.profile).items()},
            "places": places,
            "order": textwrap.wrap(packed, 110),
        }
        path.write_text(json.dumps(text, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Schedule:
        text = json.loads(path.read_text())
        packed = zlib.decompress(base64.b85decode("".join(text["order"])))
        # A fault that the simulator has learned since does not happen in a run that was recorded before.
        given: dict[str, Any] = {**{field.name: 0 for field in fields(Profile)}, **text["profile"]}
        given |= {"policy": DataLossPolicy(given["policy"]), "reset": OffsetReset(given["reset"])}
        return cls(text["seed"], text["bug"], Profile(**given), [text["places"][n] for n in packed])


if __name__ == "__main__":
    Schedule.record(int(sys.argv[1]), sys.argv[2]).save(DIRECTORY / f"{sys.argv[1]}.json")
