"""The operator of the simulated sink: stops the fleet after a halt and runs `sink reset`, as the runbook says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordination.errors import ConfigError, Conflict, NotLeader
from coordination.planning.batches import unfinished_topics
from coordination.state import tree
from coordination.state.failures import Halt
from coordination.state.model import InstantState, LogView, TopicPartition
from coordination.state.tree import Check
from sink.operations.reset import Position, ResetRequest, TimelineSnapshot, plan_reset, write_plans
from tests.simulation.process import CONFIG

if TYPE_CHECKING:
    from tests.simulation.world import World

LOOK_SECONDS = 5.0
CLEARS = 0.2
"""The probability that the operator first tries to end a halt by a reset that moves nothing."""
INTERRUPTION = 0.1
"""The probability, at each of a reset's multis, that the command is killed and has to be run again unchanged."""


class Interrupted(Exception):
    """The command was killed before it had written everything."""


class Operator:
    def __init__(self, world: World) -> None:
        self._world = world
        self.has_stopped_all = False
        self._unfinished: ResetRequest | None = None

    def answers(self, halt: Halt) -> bool:
        """Whether the operator resets the sink for this halt: an undecodable record would halt it again."""
        return bool(self._world.profile.operated) and "records are bad" not in halt.reason

    def look(self) -> None:
        world = self._world
        view = world.tree()
        if view is not None and not self.has_stopped_all:
            resets_anyway = world.faulty and world.rng.random() < world.profile.operated
            if resets_anyway if view.halt is None else self.answers(view.halt):
                self._stop_all(view.halt)
        world.after(world.rng.expovariate(1 / LOOK_SECONDS), self.look)

    def _stop_all(self, halt: Halt | None) -> None:
        self._world.trace("operator", "stops the fleet")
        self.has_stopped_all = True
        for process in self._world.processes:
            process.crash()
        if halt is not None and self._world.rng.random() < CLEARS:
            self._ask(ResetRequest())
        elif halt is not None and "restored" in halt.reason:
            self._ask(ResetRequest(Position.CHECKPOINT))
        elif halt is not None and halt.topic and "no such topic" in halt.reason and self._world.rng.random() < 0.5:
            self._ask(self._unfinished or ResetRequest(Position.EARLIEST, topics=(halt.topic,)))
        else:
            self._ask(self._unfinished or self._request())

    def _request(self) -> ResetRequest:
        rng, log = self._world.rng, self._world.log
        if rng.random() < 0.2:
            source, log_range = rng.choice(sorted(log.partitions.items(), key=lambda item: item[0]))
            return ResetRequest(offsets={source: rng.randint(log_range.start, log_range.end)})
        topics = (rng.choice(self._world.topics),) if rng.random() < 0.3 else ()
        return ResetRequest(rng.choice((Position.EARLIEST, Position.EARLIEST, Position.LATEST)), topics=topics)

    def _ask(self, request: ResetRequest) -> None:
        """Reads the state, and runs the reset with it some time later."""
        view, topics = self._world.tree(), self._world.topics
        unfinished = unfinished_topics(view.states, topics) if view is not None else ()
        timeline, log = self._timeline(), self._world.log.view(topics, optional=unfinished)
        self._world.after(self._world.rng.random() * 2.0, lambda: self._answer(request, timeline, log))

    def _answer(self, request: ResetRequest, timeline: TimelineSnapshot, log: LogView) -> None:
        world = self._world
        try:
            self._reset(request, timeline, log)
        except Interrupted:
            world.count("resets interrupted")
            self._unfinished = request
            if world.rng.random() < 0.5:
                self.has_stopped_all = False
            else:
                self._ask(request)
        except NotLeader:
            self._ask(request)
        except ConfigError as error:
            self._ask_otherwise(request, str(error))
        except Conflict as error:
            world.trace("operator", "is refused:", str(error))
            if "is decided" in str(error) or "not settled" in str(error):
                world.count("resets refused")
                self.has_stopped_all = False
            else:
                self._ask(request)
        else:
            world.count("resets")
            self._unfinished = None
            self.has_stopped_all = False

    def _ask_otherwise(self, request: ResetRequest, error_text: str) -> None:
        if "the table was restored" not in error_text:
            # An earlier reset was interrupted, or the request has an offset of a partition that is gone by now, or that
            # ends before it.
            self._ask(self._unfinished if self._unfinished not in (None, request) else self._request())
        elif "--to checkpoint" in error_text and request.to is not Position.CHECKPOINT:
            self._ask(ResetRequest(Position.CHECKPOINT))
        elif request.topics or request.offsets:
            self._ask(ResetRequest(Position.EARLIEST))
        else:
            self._world.forget()
            self._unfinished = None
            self.has_stopped_all = False

    def _reset(self, request: ResetRequest, timeline: TimelineSnapshot, log: LogView) -> None:
        """Writes the reset as `sink.operations.reset_writer` does: under the election's lock and a new epoch."""
        world, keeper = self._world, self._world.keeper
        keeper.bootstrap(CONFIG)
        session = keeper.open_session()
        lock = keeper.contend("reset:1", session)
        try:
            if lock is None or keeper.first_contender(keeper.latest) != lock:
                raise NotLeader("somebody else contends for the office")
            view = keeper.view(keeper.latest)
            planned = plan_reset(view, request, timeline, log)
            world.trace("operator", "resets:", planned.changed)
            fence = Check(lock, 0)
            table_epoch = timeline.checkpoint.epoch if timeline.checkpoint else 0
            keeper.write((fence, tree.epoch_op(view, max(view.epoch, table_epoch) + 1, "reset")))
            view = keeper.view(keeper.latest)
            planned = plan_reset(view, request, timeline, log)
            with world.invariants.resetting(planned.moves):
                for multi in write_plans(view, planned):
                    if world.rng.random() < INTERRUPTION:
                        raise Interrupted
                    keeper.write((fence, Check(tree.EPOCH, view.epoch_version), *multi))
        finally:
            keeper.expire(session)

    def _timeline(self) -> TimelineSnapshot:
        table = self._world.table
        generations: dict[TopicPartition, int] = {}
        for commit in table.commits:
            assert commit.checkpoint is not None
            for source, table_end in commit.checkpoint.ends.items():
                generations[source] = max(generations.get(source, -1), table_end.generation)
        completed = (name for name, instant in table.instants.items() if instant.state is InstantState.COMPLETED)
        return TimelineSnapshot(
            table.view(()).checkpoint, generations, frozenset(completed), frozenset(table.pending())
        )
