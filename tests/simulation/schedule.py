"""Records the random draws of a run, so that the run can be replayed after the simulator or the protocol has changed.

A seed alone is one random source for a whole run: an additional draw shifts every draw after it, and the seed then
tests something else. A schedule gives each caller that draws (a function of the simulator) a source of its own. A new
draw moves only the draws of its own caller. A caller that draws more than was recorded gets "no fault".

The file holds the run's profile, its seed, and the order in which the callers drew. Python guarantees what
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


def _caller(kind: str) -> str:
    """Returns the name of the simulator's function that draws, without a line: edits of a file must not change it."""
    frame = sys._getframe(2)
    while Path(frame.f_code.co_filename).stem == "random":
        assert frame.f_back is not None
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name} {kind}"


class Recorder(Random):
    """Draws as `Random(seed)` does, and records which caller drew when."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.order: list[str] = []

    def random(self) -> float:
        self.order.append(_caller("random"))
        return super().random()

    def getrandbits(self, bits: int) -> int:
        assert bits <= WORD, "a schedule stores one word for a draw of bits"
        self.order.append(_caller("bits"))
        return super().getrandbits(bits)


class Replay(Random):
    """Gives each caller the draws that were recorded for it, in their order."""

    def __init__(self, seed: int, order: list[str]) -> None:
        super().__init__(seed)
        source = Random(seed)
        self._draws: defaultdict[str, deque[float]] = defaultdict(deque)
        for caller in order:
            draw = source.random() if caller.endswith(" random") else source.getrandbits(WORD)
            self._draws[caller].append(draw)

    def random(self) -> float:
        draws = self._draws[_caller("random")]
        return draws.popleft() if draws else NO_FAULT

    def getrandbits(self, bits: int) -> int:
        """Returns the upper bits of the recorded word, which serve even if the number of choices has changed."""
        draws = self._draws[_caller("bits")]
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
        callers = sorted(set(self.order))
        numbers = {caller: number for number, caller in enumerate(callers)}
        packed = base64.b85encode(zlib.compress(bytes(numbers[caller] for caller in self.order), 9)).decode()
        document = {
            "bug": self.bug,
            "seed": self.seed,
            "profile": {name: v.value if isinstance(v, Enum) else v for name, v in asdict(self.profile).items()},
            "places": callers,
            "order": textwrap.wrap(packed, 110),
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Schedule:
        document = json.loads(path.read_text())
        packed = zlib.decompress(base64.b85decode("".join(document["order"])))
        # A fault that is newer than the recording does not happen in the replay.
        settings: dict[str, Any] = {**{field.name: 0 for field in fields(Profile)}, **document["profile"]}
        settings |= {"policy": DataLossPolicy(settings["policy"]), "reset": OffsetReset(settings["reset"])}
        callers = [document["places"][number] for number in packed]
        return cls(document["seed"], document["bug"], Profile(**settings), callers)


if __name__ == "__main__":
    Schedule.record(int(sys.argv[1]), sys.argv[2]).save(DIRECTORY / f"{sys.argv[1]}.json")
