"""The operator's commands in the simulation: pause, resume, flush, switchover and drain, and the invariants of each.

`Commands` writes the control znode as `sink.operations.control` does: with the version that it read, some time later,
and again after a conflict. `VerbInvariants` observes that znode from outside, without asking a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coordination.errors import Conflict
from coordination.planning.offsets import OffsetReset
from coordination.state import tree
from coordination.state.control import Control, RequestAuthor
from coordination.state.model import Phase, TopicPartition
from coordination.state.tree import KeeperView, Transaction
from tests.simulation.faults import Profile
from tests.simulation.log import SimLog
from tests.simulation.violation import Violation
from tests.simulation.visible import beyond, gaps_of

if TYPE_CHECKING:
    from tests.simulation.world import World

PAUSED_SECONDS = 8.0
REPEAT_SECONDS = 10.0

Edit = Callable[[KeeperView], Control]
Ends = dict[TopicPartition, tuple[str, int, int]]
"""A topic id, an end offset and the number of truncations so far, for each partition."""


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
        """Resumes again and again: a pause that an operator asked for earlier may arrive late."""
        self.resume()
        self._world.after(REPEAT_SECONDS, self.go_on)

    def flush(self) -> None:
        self._write("flush", lambda view: view.control.ask_flush(self._asked))

    def flush_until_settled(self) -> None:
        """Flushes again and again: without an interval nothing else lands the remaining records."""
        self.flush()
        self._world.after(REPEAT_SECONDS, self.flush_until_settled)

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
    def _asked(self) -> RequestAuthor:
        return RequestAuthor("operator", self._world.now)

    def _write(self, name: str, edit: Edit) -> None:
        """Writes an edit of the control znode. Gives up if the tree cannot be read: the operator would try later."""
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
        """The log's ends at the time of each flush request, by the request's number."""
        self._was_alone = False
        """Whether, since the switchover request, the coordinator has at some moment had no other contender."""

    def commanded(self) -> _Commanded:
        return _Commanded(self)

    def begin_anew(self) -> None:
        """Forgets requests: the tree is another one, or older."""
        self._ends.clear()
        self._was_alone = True

    def changed(
        self, before: KeeperView, after: KeeperView, visible_end: Callable[[TopicPartition], int] | None
    ) -> None:
        """`visible_end` returns the visible end of a partition; None after a restore or a reset, when it is unknown."""
        numbers = {t.header.number for t in before.transactions}
        for t in after.transactions:
            if t.header.number not in numbers and t.header.phase is Phase.PLANNED:
                self._opened(t, before)
        if before.control != after.control:
            if self._is_commanded:
                self._asked(before.control, after.control)
            elif after.control_version >= 0:
                self._answered(before, after, visible_end)
        self._was_alone = self._was_alone or len(after.contenders) < 2

    def _opened(self, t: Transaction, view: KeeperView) -> None:
        control, lock = view.control, view.contenders[0][0] if view.contenders else ""
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
                source: (self._log.ids[source.topic], partition.readable_end, len(partition.truncations))
                for source, partition in partitions
            }
        if after.switchover != before.switchover:
            self._was_alone = False

    def _answered(
        self, before: KeeperView, after: KeeperView, visible_end: Callable[[TopicPartition], int] | None
    ) -> None:
        old, new = before.control, after.control
        if old.paused != new.paused or old.drains != new.drains or old.flush.asked != new.flush.asked:
            raise Violation("only an operator changes a request", f"{old} -> {new}")
        if old.switchover != new.switchover:
            is_led = bool(after.contenders) and old.switchover is not None
            is_same = is_led and old.switchover is not None and after.contenders[0][0] == old.switchover.lock_path
            if new.switchover is not None or (is_same and not self._was_alone):
                raise Violation("a switchover ends once another worker leads", f"{old} -> {new}, {after.contenders}")
        for request in [number for number in self._ends if number <= new.flush.done]:
            ends = self._ends.pop(request)
            if visible_end is not None:
                self._flushed(request, ends, visible_end, after)

    def _flushed(
        self, request: int, ends: Ends, visible_end: Callable[[TopicPartition], int], after: KeeperView
    ) -> None:
        """Checks that each partition is visible to its end, or declared lost in a commit or in the ledger."""
        begins_at_end = self._profile.reset is OffsetReset.LATEST
        for source, (topic_id, end_at_request, truncations) in ends.items():
            partition = self._log.partitions.get(source)
            if partition is None or self._log.ids[source.topic] != topic_id:
                continue  # recreated since the request
            is_unread = source not in after.states and not visible_end(source)
            if is_unread and (begins_at_end or partition.start >= end_at_request):
                continue  # the sink has read nothing of it, and nothing of what was there can be read any more
            # Records that the log lost cannot be read, even if other records have their offsets since.
            end = min([end_at_request, *partition.truncations[truncations:]])
            visible = beyond(visible_end(source), end, gaps_of(source, after.ledger.gaps))
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
    """Returns a request in the control znode that could have been answered, or None."""
    control = view.control
    if control.flush.is_pending:
        return "a flush"
    if control.switchover is not None:
        return "a switchover"
    alive = {member.incarnation for member in view.members}
    return "a drain" if alive & control.drains.keys() else None
