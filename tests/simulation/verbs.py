"""The operator's verbs in the simulation: pause, resume, flush, switchover and drain, and the invariants of each.

`Commands` writes the control znode as `sink.operations.control` does: on the version that was read, some time later,
again after a conflict. `VerbInvariants` watches that znode from outside and asks no machine anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from coordination.errors import Conflict
from coordination.state import tree
from coordination.state.control import Asked, Control
from coordination.state.model import Gap, Phase, TopicPartition
from coordination.state.tree import KeeperView, Transaction
from tests.simulation.faults import Profile
from tests.simulation.log import SimLog
from tests.simulation.violation import Violation
from tests.simulation.visible import beyond, gaps_of

if TYPE_CHECKING:
    from tests.simulation.world import World

PAUSED_SECONDS = 8.0
AGAIN = 10.0

Edit = Callable[[KeeperView], Control]
Ends = dict[TopicPartition, tuple[str, int, int]]
"""The id of its topic, its end, and how often the log had been truncated by then."""


class Commands:
    def __init__(self, world: World) -> None:
        self._world = world

    def pause(self) -> None:
        world = self._world
        self._write("pause", lambda view: view.control.pause(self._asked))
        if world.faulty:
            world.after(world.rng.expovariate(1 / PAUSED_SECONDS), self.resume)

    def resume(self) -> None:
        if not (self._world.ends_paused and self._world.healed):
            self._write("resume", lambda view: view.control.resume())

    def go_on(self) -> None:
        """Resume, again and again: a pause that was asked for may arrive after the first."""
        self.resume()
        self._world.after(AGAIN, self.go_on)

    def flush(self) -> None:
        self._write("flush", lambda view: view.control.ask_flush(self._asked))

    def flush_until_settled(self) -> None:
        """Without an interval nothing else brings in what is left."""
        self.flush()
        self._world.after(AGAIN, self.flush_until_settled)

    def switchover(self) -> None:
        def edit(view: KeeperView) -> Control:
            if len(view.contenders) < 2:
                return view.control
            return view.control.ask_switchover(*view.contenders[0], self._asked)

        self._write("switchover", edit)

    def drain(self) -> None:
        rng = self._world.rng

        def edit(view: KeeperView) -> Control:
            alive = [member.incarnation for member in view.members]
            return view.control.drain([rng.choice(alive)], alive, self._asked) if alive else view.control

        self._write("drain", edit)

    @property
    def _asked(self) -> Asked:
        return Asked("operator", self._world.now)

    def _write(self, name: str, edit: Edit) -> None:
        """A command that cannot read the tree gives up, as one that the operator runs again later."""
        world = self._world
        view = world.tree()
        if view is None or view.control_version < 0 or (control := edit(view)) == view.control:
            return

        def arrive() -> None:
            try:
                with world.invariants.verbs.commanded():
                    world.keeper.write([tree.control_op(view, control)])
            except Conflict:
                self._write(name, edit)
            else:
                world.count(f"commands {name}")
                world.trace("operator", f"asks: {name}")

        world.after(world.latency("keeper"), arrive)


class VerbInvariants:
    def __init__(self, profile: Profile, log: SimLog) -> None:
        self._profile = profile
        self._log = log
        self._is_commanded = False
        self._ends: dict[int, Ends] = {}
        """Where the log ended when each flush was asked for, by its number."""
        self._was_alone = False
        """Whether the coordinator that is asked to yield has had no successor at some moment since."""

    def commanded(self) -> _Commanded:
        return _Commanded(self)

    def begin_anew(self) -> None:
        """The tree is another one, or older."""
        self._ends.clear()
        self._was_alone = True

    def changed(self, before: KeeperView, after: KeeperView, reached: Callable[[TopicPartition], int] | None) -> None:
        """`reached` tells what is visible of a partition; None where nobody can say, after a restore or a reset."""
        known = {t.header.number for t in before.transactions}
        for t in after.transactions:
            if t.header.number not in known and t.header.phase is Phase.PLANNED:
                self._opened(t, before)
        if before.control != after.control:
            if self._is_commanded:
                self._asked(before.control, after.control)
            elif after.control_version >= 0:
                self._answered(before, after, reached)
        self._was_alone = self._was_alone or len(after.contenders) < 2

    def _opened(self, t: Transaction, seen: KeeperView) -> None:
        control, lock = seen.control, seen.contenders[0][0] if seen.contenders else ""
        if control.paused is not None:
            raise Violation("a sink that is paused plans nothing", f"{t.header}")
        if leaving := control.drains.keys() & t.plan.tasks.keys():
            raise Violation("a worker that was asked to leave is given nothing", f"{t.header.number}: {leaving}")
        if control.switchover is not None and control.switchover.lock_path == lock:
            raise Violation("a coordinator that was asked to yield plans nothing", f"{t.header}")

    def _asked(self, before: Control, after: Control) -> None:
        if after.flush.asked > before.flush.asked:
            partitions = self._log.partitions.items()
            self._ends[after.flush.asked] = {
                source: (self._log.ids[source.topic], partition.end, len(partition.truncations))
                for source, partition in partitions
            }
        if after.switchover != before.switchover:
            self._was_alone = False

    def _answered(self, before: KeeperView, after: KeeperView, reached: Callable[[TopicPartition], int] | None) -> None:
        old, new = before.control, after.control
        if old.paused != new.paused or old.drains != new.drains or old.flush.asked != new.flush.asked:
            raise Violation("only an operator changes a request", f"{old} -> {new}")
        if old.switchover != new.switchover:
            led = bool(after.contenders) and old.switchover is not None
            same = led and old.switchover is not None and after.contenders[0][0] == old.switchover.lock_path
            if new.switchover is not None or (same and not self._was_alone):
                raise Violation("a switchover ends once another worker leads", f"{old} -> {new}, {after.contenders}")
        for request in [number for number in self._ends if number <= new.flush.done]:
            ends = self._ends.pop(request)
            if reached is not None:
                self._flushed(request, ends, reached, after.ledger.gaps)

    def _flushed(self, request: int, ends: Ends, reached: Callable[[TopicPartition], int], gaps: Sequence[Gap]) -> None:
        """Visible, or declared lost: a gap of the ledger becomes visible no more, in a commit or not."""
        for source, (topic_id, asked, truncations) in ends.items():
            partition = self._log.partitions.get(source)
            if partition is None or self._log.ids[source.topic] != topic_id:
                continue  # recreated since
            # What the log lost has no reader, though others have its offsets since.
            end = min([asked, *partition.truncations[truncations:]])
            visible = beyond(reached(source), end, gaps_of(source, gaps))
            if visible < end:
                raise Violation(
                    "a flush is done once all is visible that was there when it was asked for",
                    f"{request}: {source} to {visible} of {end}",
                )


class _Commanded:
    """Marks a change of the control znode as an operator's."""

    def __init__(self, invariants: VerbInvariants) -> None:
        self._invariants = invariants

    def __enter__(self) -> None:
        self._invariants._is_commanded = True

    def __exit__(self, *_: object) -> None:
        self._invariants._is_commanded = False


def unanswered(view: KeeperView) -> str | None:
    """A request in the control znode that could have been answered."""
    control = view.control
    if control.flush.is_pending:
        return "a flush"
    if control.switchover is not None:
        return "a switchover"
    alive = {member.incarnation for member in view.members}
    return "a drain" if alive & control.drains.keys() else None
