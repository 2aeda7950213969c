"""The steps of a sequence, as a seed chooses them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.rewrites.moments import SIGNS, moments
from tests.rewrites.profiles import Profile

KILL = "killed"
PAUSE = "stopped"
REFUSE = "refused by the disk"
EXPIRE = "without its lock"
WAIT = "overtaken"
DIES_LATE = "stopped, woken late, then killed,"
FAULTS = (KILL, PAUSE, REFUSE, EXPIRE)
LANDING = ("begin", "write", "complete")
_POINTS = {"compaction": "Compaction", "clustering": "Clustering", "clean": "Cleaning"}
_ENDS = {"compaction": "written", "clustering": "written", "clean": "deleted"}
MEANWHILE = (
    "land",
    "land",
    "evolve",
    "another writer",
    "services",
    "second sink",
    "open rolled back",
    "drop partition",
)
"""Acts of another process while one is stopped or waits."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the process that carries out `action`, and the moment at which it strikes."""

    kind: str
    action: str
    moment: str

    def __str__(self) -> str:
        return f"{self.kind} when {self.action} is {self.moment}"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a process does to the table, with a fault or without."""

    kind: str
    """`open`: a transaction whose files are written, and which the next transaction of the sink completes first."""
    fault: Fault | None = None
    meanwhile: str = ""

    def __str__(self) -> str:
        more = [str(self.fault)] if self.fault else []
        more += [f"meanwhile: {self.meanwhile}"] if self.meanwhile else []
        return ", ".join([self.kind, *more])


def sequence(random: Random, profile: Profile, length: int) -> list[Step]:
    """Returns so many steps, after two transactions, and before two runs of the services without a fault."""
    steps = [Step("land"), Step("land")]
    saved = False
    while len(steps) < length + 2:
        step = _step(random, profile, saved, len(steps))
        saved = step.kind == "savepoint" or (saved and step.kind != "restore")
        if step.kind in ("services", "restore", "savepoint") and steps[-1].kind in (step.kind, "restore", "services"):
            steps.append(Step("land"))
        steps.append(step)
    return steps


def _step(random: Random, profile: Profile, saved: bool, earlier: int) -> Step:
    kinds = {
        "land": 2,
        "open": 1.5,
        "open with columns": 1,
        "evolve": 1,
        "services": 12,
        "another writer": 1.5,
        "second sink": 1,
        "rolled back by another": 0.5,
        "open rolled back": 1,
        "drop partition": 0.5 if profile.partitioned else 0,
        "savepoint": 0 if saved else 1.5,
        "restore": 2.5 if saved else 0,
        "metadata services": 1 if profile.metadata else 0,
    }
    [kind] = random.choices(list(kinds), list(kinds.values()))
    fault, meanwhile = None, ""
    if kind == "services" and random.random() < 0.85:
        fault = _fault_of_services(random, profile, earlier)
    elif kind == "land" and random.random() < 0.4:
        fault = _fault(random, random.choice(LANDING), profile)
    elif kind == "restore" and random.random() < 0.6:
        fault = _fault(random, "restore", profile, (KILL, KILL, REFUSE))
    elif kind == "metadata services" and random.random() < 0.7:
        fault = _fault(random, "metadata services", profile)
    elif kind == "open rolled back" and random.random() < 0.8:
        fault = _fault(random, "rollback", profile)
    elif kind == "rolled back by another":
        fault = Fault("", "rollback", random.choice(("planned", "complete")))
    if fault is not None and fault.kind in (PAUSE, WAIT, EXPIRE) and kind in ("services", "metadata services"):
        meanwhile = random.choice(MEANWHILE if profile.partitioned else MEANWHILE[:-1])
    return Step(kind, fault, meanwhile)


def _fault_of_services(random: Random, profile: Profile, earlier: int) -> Fault:
    # There is nothing to be cleaned or archived before there are so many commits.
    needed = {"clean": profile.keep + 2, "archive": profile.keep + 4}
    action = random.choice([action for action in profile.services if needed.get(action, 0) <= earlier] or ["clean"])
    if action in _POINTS and random.random() < 0.4:
        return Fault(WAIT, action, f"{_POINTS[action]}.{random.choice(('scheduled', _ENDS[action]))}")
    return _fault(random, action, profile)


def _fault(random: Random, action: str, profile: Profile, kinds: tuple[str, ...] = FAULTS) -> Fault:
    assert action in SIGNS
    # A process that is killed or stopped costs a JVM, or another one that has to be at hand.
    kind = random.choice(kinds)
    return Fault(kind, action, random.choice(moments(action, profile.metadata)))
