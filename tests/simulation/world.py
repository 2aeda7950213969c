"""The simulated world: a virtual clock, one seeded random source, a heap of events, and all faults.

A run is determined by its seed alone. It has a busy time, in which the log grows and faults happen, and a
quiet one, in which everything heals. At its end every produced record has to be visible exactly once.
"""

from __future__ import annotations

import heapq
import itertools
import zlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from coordination.errors import Corrupt
from coordination.planning.offsets import DataLossPolicy
from coordination.state import tree as znodes
from coordination.state.messages import Done, Note, Request, Write
from coordination.state.model import TopicPartition
from coordination.state.tree import KeeperView
from tests.simulation.faults import Profile, draw
from tests.simulation.invariants import Invariants
from tests.simulation.keeper import SimKeeper
from tests.simulation.log import SimLog
from tests.simulation.operator import Operator
from tests.simulation.process import ANOTHER_CONFIG, CONFIG, REPUBLISH_AFTER, Process
from tests.simulation.repairs import Repairs
from tests.simulation.table import Restore, SimTable
from tests.simulation.verbs import Commands, unanswered
from tests.simulation.violation import Violation

SECOND_LOOK = 30.0
QUIET = 400.0
HALVING = 2400.0
"""Additional quiet time for each transaction in flight, where batches have to be divided again and again before workers
can write them: aborting an older transaction aborts the younger one too, whose files were written in vain."""
RECOVERING = 5.0
MANY_OTHERS = 0.9
"""Foreign commits a second. At a higher rate they go on for a while after producing has ended."""
TRACE = 80


@dataclass
class Report:
    seed: int
    profile: Profile
    counts: Counter[str]
    seconds: float
    trace: list[str] = field(default_factory=list)
    violation: Violation | None = None
    digest: int = 0


class World:
    def __init__(
        self, seed: int, profile: Profile | None = None, trace: int = TRACE, rng: Random | None = None
    ) -> None:
        self.seed = seed
        self.rng = rng or Random(seed)
        self.profile = profile or draw(self.rng)
        self.now = 0.0
        self.healed = False
        self.ends_paused = self.profile.ends_paused
        self._recovering_until = 0.0
        self._foreign_commits_until = 0.0
        self.counts: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._names = itertools.count(1)
        self._trace: deque[tuple[float, tuple[Any, ...]]] = deque(maxlen=trace)
        self._digest = 0
        self.log = SimLog("cluster-1", self.profile.bad)
        self.other_log = SimLog("cluster-2", self.profile.bad)
        self.misdirected: set[str] = set()
        """Names of processes whose connections lead to the other cluster."""
        self.invariants = Invariants(self.profile, self.log)
        self.keeper = SimKeeper(self._keeper_changed)
        self.table = SimTable(self.invariants)
        self.invariants.table = self.table
        self.topics = tuple(f"t{n}" for n in range(self.profile.topics))
        self.processes: list[Process] = []
        self.machines: list[object] = []
        self._retired = False
        self.operator = Operator(self)
        self.repairs = Repairs(self)
        self.commands = Commands(self)

    # The clock

    def after(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), call))

    def run(self) -> Report:
        report = Report(self.seed, self.profile, self.counts, 0.0)
        limits = {"SHARD": 2, "PIECE_BYTES": 200, "MULTI_OPS": 4} if self.profile.small_multis else {}
        original_limits = {name: getattr(znodes, name) for name in limits}
        vars(znodes).update(limits)
        try:
            self._begin()
            self._until(self.profile.busy)
            self._heal()
            self._end_the_pause()
            halving = HALVING * self.profile.in_flight if self.profile.capacity else 0.0
            self._until(self.now + QUIET + halving, self._settled)
            self._verdict()
        except Violation as violation:
            report.violation = violation
        finally:
            vars(znodes).update(original_limits)
        report.seconds = self.now
        report.trace = [f"{at:9.3f}  {' '.join(map(_brief, parts))}" for at, parts in self._trace]
        report.digest = self._digest
        return report

    def _until(self, end: float, done: Callable[[], bool] | None = None) -> None:
        next_look = self.now
        while self._heap and self._heap[0][0] <= end:
            self.now, _, call = heapq.heappop(self._heap)
            call()
            if done is not None and self.now >= next_look:
                if done():
                    return
                next_look = self.now + 1.0
        self.now = end

    def _keeper_changed(self) -> None:
        self.invariants.keeper_changed(self.keeper)
        for process in self.processes:
            process.notice()

    # Services for processes

    @property
    def faulty(self) -> float:
        """The factor on the profile's failure probabilities."""
        if self.healed:
            return 0.0
        return self.profile.recovery if self.now < self._recovering_until else 1.0

    def recovering(self) -> None:
        """Raises the failure rate for RECOVERING seconds when a term begins: tree and table may be in mid-change."""
        self._recovering_until = self.now + RECOVERING

    def latency(self, service: str) -> float:
        typical = {"keeper": 0.005, "log": 0.02, "table": 0.1}[service]
        return self.rng.random() * typical * (20.0 if self.rng.random() < 0.05 else 2.0)

    def fate(self) -> str:
        faulty = self.faulty
        if not faulty:
            return "arrives"
        profile, roll = self.profile, self.rng.random()
        for fate, chance in (
            ("lost", profile.lost),
            ("answer lost", profile.answer_lost),
            ("late", profile.late),
            ("failed", profile.failed),
        ):
            if roll < chance * faulty:
                self.count(f"request {fate}" if fate != "answer lost" else fate)
                return fate
            roll -= chance * faulty
        return "arrives"

    def tree(self) -> KeeperView | None:
        """Returns ZooKeeper's tree as it is now; None if it cannot be decoded."""
        try:
            return self.keeper.view(self.keeper.latest)
        except Corrupt:
            return None

    @property
    def has_cluster_on_record(self) -> bool:
        """Whether table or tree name the cluster that is read: a process that is led elsewhere can know it."""
        tree = self.tree() if not self.table.commits else None
        return bool(self.table.commits or (tree and tree.info and tree.info.cluster))

    def next_name(self) -> str:
        return f"{next(self._names):04d}"

    def count(self, name: str) -> None:
        self.counts[name] += 1

    def trace(self, *parts: Any) -> None:
        self._trace.append((self.now, parts))
        label = f"{self.now:.6f} {parts[0]} {parts[1]}"
        self._digest = zlib.crc32(label.encode(), self._digest)

    def noted(self, name: str, role: str, note: Note) -> None:
        self.count(f"note {note.event}")
        self.trace(name, role, note.event, dict(note.fields))
        if note.event == "transaction.ended":
            self.count(f"ended {dict(note.fields)['outcome']}")

    def expire(self, session: int) -> None:
        if session in self.keeper.alive:
            self.count("sessions expired")
            self.trace("zookeeper", "expires session", session)
            self.keeper.expire(session)

    def expire_later(self, session: int) -> None:
        self.after(self.profile.session_timeout * self.rng.uniform(0.5, 1.2), lambda: self.expire(session))

    def new_process(self, worker: str, name: str) -> Process:
        return Process(self, worker, name)

    def restart_later(self, process: Process) -> None:
        self.after(self.rng.uniform(0.2, 6.0), lambda: self._restart(process))

    def _restart(self, process: Process) -> None:
        if process not in self.processes:
            return
        if self.operator.has_stopped_all:
            self.restart_later(process)
            return
        position = self.processes.index(process)
        if position == 0 or not (self._retired and self.profile.one_survivor):
            self.processes[position] = successor = self.new_process(process.worker, process.name)
            successor.config = process.config if self.faulty else CONFIG
            successor.start()

    # What happens

    def _begin(self) -> None:
        profile = self.profile
        for topic in self.topics:
            for partition in range(profile.partitions):
                self.log.add(TopicPartition(topic, partition))
        for n in range(profile.workers):
            worker = "w0" if profile.twins and n == 1 else f"w{n}"
            self.processes.append(self.new_process(worker, f"p{n}"))
            self.after(self.rng.random() * 2, self.processes[-1].start)
        if profile.poisoned and len(self.processes) > 1:
            self.count("poisoned")
            self.processes[-1].poisoned = True
        if profile.mixed and len(self.processes) > 1:
            self.count("mixed configurations")
            self.processes[-1].config = ANOTHER_CONFIG
        self._grow()
        if profile.operated:
            self.operator.look()
        if profile.damages:
            self.repairs.look()
        for rate, fault in (
            (profile.crashes, lambda: self._someone().crash()),
            (profile.pauses, lambda: self._someone().pause(self._span())),
            (profile.expiries, lambda: self.expire(self._someone().session)),
            (profile.keeper_cuts, lambda: self._someone().cut_off("keeper", self._span())),
            (profile.table_cuts, lambda: self._someone().cut_off("table", self._span())),
            (profile.log_cuts, lambda: self._someone().cut_off("log", self._span())),
            (profile.drains, lambda: self._someone().drain()),
            (profile.wipes, self.forget),
            (profile.restores, self._restore),
            (profile.tampering, self._tamper),
            (profile.clock_jumps, lambda: self._someone().jump(self.rng.uniform(-20.0, 20.0))),
            (profile.foreign_commits, self._commit_as_another),
            (profile.foreign_rollbacks, self._foreign_rollback),
            (profile.new_partitions, self._new_partition),
            (profile.data_loss, self._lose_data),
            (profile.recreations, self._recreate),
            (profile.truncations, self._truncate),
            (profile.table_restores, self._restore_table),
            (profile.evolutions, self._evolve),
            (profile.sink_pauses, self.commands.pause),
            (profile.flushes, self.commands.flush),
            (profile.switchovers, self.commands.switchover),
            (profile.drain_requests, self.commands.drain),
            (profile.new_topics, self._new_topic),
            (profile.deletions, self._delete_topic),
            (profile.planned_restores, self._plan_restore),
            (profile.planned_rollbacks, self._plan_rollback),
            (profile.savepoints, self._change_savepoints),
            (profile.other_clusters, self._lead_to_another_cluster),
            (profile.unclean_elections, self._elect_uncleanly),
            (profile.replacements, self._replace_topic),
            (profile.elections, self._elect),
            (profile.open_transactions, self._open_transaction),
            (profile.damages, self.repairs.damage),
        ):
            self._every(rate, fault)

    def _every(self, rate: float, fault: Callable[[], None]) -> None:
        if not rate:
            return

        def happen() -> None:
            if not self.faulty:
                return
            fault()
            self.after(self.rng.expovariate(rate), happen)

        self.after(self.rng.expovariate(rate), happen)

    def _someone(self) -> Process:
        """Draws a process: half of the time a coordinator's, which has more to lose."""
        leading = [p for p in self.processes if p.coordinator is not None]
        return self.rng.choice(leading) if leading and self.rng.random() < 0.5 else self.rng.choice(self.processes)

    def _span(self) -> float:
        return self.rng.expovariate(1.0) * self.profile.session_timeout

    def _grow(self) -> None:
        if not self.faulty:
            return
        source = self.rng.choice(sorted(self.log.partitions))
        self.log.grow(
            self.rng,
            source,
            self.rng.randint(1, 40 if self.profile.flush_size > 20 else 5),
            self.profile.hole,
        )
        self.after(self.rng.random() * 0.8, self._grow)

    def _evolve(self) -> None:
        self.count("evolutions")
        self.log.schema += 1

    def _foreign_rollback(self) -> None:
        """Another writer cleans up failed writes: it means instants of silent owners, but clocks differ."""
        for name in self.table.pending():
            owner = self.table.instants[name].owner
            silent = isinstance(owner, Process) and (not owner.alive or owner.paused)
            if silent or self.rng.random() < 0.3:
                self.count("rolled back by others")
                self.trace("others", "roll back", name)
                self.table.roll_back_by_others(name, self.now)
                return

    def _commit_as_another(self) -> None:
        """Commits as another writer. A table service of the sink plans or completes a compaction, on the host whose
        clock is ahead of the others."""
        self._under_table_lock(lambda: self.table.foreign_commit(self.now))
        self._under_table_lock(lambda: self.table.rewrite(max(process.clock for process in self.processes)))

    def _under_table_lock(self, act: Callable[[], None]) -> None:
        """Lets another writer act once no completion is under way."""
        if self.table.completing:
            self.after(0.1, lambda: self._under_table_lock(act))
        else:
            act()

    def _plan_rollback(self) -> None:
        """Another writer takes an instant for abandoned, plans to roll it back, and may die then."""
        dies, delay, position = self.rng.random() < 0.5, self.rng.expovariate(0.2), self.rng.random()

        def plan() -> None:
            pending = self.table.pending()
            if pending and self.table.plan_rollback_by_others(name := pending[int(position * len(pending))], self.now):
                self.count("rollbacks planned by others")
                self.trace("others", "plan to roll back", name)
                if not dies:
                    self.after(delay, lambda: self._carry_out_rollback(name))

        self._under_table_lock(plan)

    def _carry_out_rollback(self, name: str) -> None:
        if self.table.instants[name].rolled_back is None:
            self.trace("others", "roll back", name)
            self.table.roll_back_by_others(name, self.now)

    def _plan_restore(self) -> None:
        """Another writer plans to restore the table, and carries it out soon, or dies: then a person does it later."""
        dies, position = self.rng.random() < 0.5, self.rng.random()
        delay = self.rng.expovariate(0.05 if dies else 1.0)

        def plan() -> None:
            if targets := self.table.restorable()[-6:]:
                restore = self.table.plan_restore(targets[int(position * len(targets))], self.now)
                self.count("restores planned")
                self.count("tables restored")
                self.trace("others", "plan a restore to", restore.target)
                self.after(delay, lambda: self._restore_further(restore))

        self._under_table_lock(plan)

    def _restore_further(self, restore: Restore) -> None:
        if self.table.restore_further(restore, self.now):
            self.trace("others", "complete the restore to", restore.target)
            if not self.profile.operated:
                self._operate_soon()
        else:
            self.after(self.rng.random(), lambda: self._restore_further(restore))

    def _change_savepoints(self) -> None:
        """Another writer makes a savepoint, deletes one, or archives beyond it."""
        kind, position, kept = self.rng.random(), self.rng.random(), self.rng.randint(1, 4)
        commits = self.table.active_commits()[-4:]
        if kind < 0.3 and commits:
            self.count("savepoints")
            self.table.savepoint(commits[int(position * len(commits))].requested)
        elif kind < 0.4 and self.table.savepoints:
            self.count("savepoints deleted")
            savepoints = sorted(self.table.savepoints)
            self.table.delete_savepoint(savepoints[int(position * len(savepoints))])
        elif archived := self.table.archive(kept):
            self.count("archivings")
            self.trace("others", "archive instants:", archived)

    def forget(self) -> None:
        """ZooKeeper comes back empty, or an operator deletes its tree."""
        self.count("wipes")
        self.trace("zookeeper", "is emptied")
        self.invariants.keeper_emptied()
        self.keeper.wipe()

    def _restore(self) -> None:
        """The ensemble comes back from a backup: an older tree, and no session."""
        self.count("restores")
        self.trace("zookeeper", "is restored from a backup")
        tampered = self.counts["znodes tampered with"] > 0
        self.invariants.keeper_restored(tampered)
        self.keeper.restore(self.rng)
        if tampered:
            self._operate_soon()

    def _restore_table(self) -> None:
        if self.table.commits:
            self.count("tables restored")
            self.trace("table", "is restored to an earlier commit")
            self.table.restore(self.rng.randrange(len(self.table.commits)))
            if not self.profile.operated:
                self._operate_soon()

    def _tamper(self) -> None:
        """A person changes a znode by hand."""
        self.invariants.keeper_restored(tampered=True)
        if (change := self.keeper.tamper(self.rng)) is not None:
            self.count("znodes tampered with")
            self.trace("somebody", "changes a znode:", change)
            self._operate_soon()

    def _operate_soon(self) -> None:
        self.after(self.rng.expovariate(0.2), self._operate)

    def _operate(self) -> None:
        """An operator deletes the tree if the sink has halted or the tree cannot be read."""
        view = self.tree()
        if view is None or view.halt is not None:
            self.forget()

    def _look_again(self) -> None:
        """Deletes an unreadable tree: a late write may have spoiled it after the operator had looked."""
        if self.tree() is None:
            self.forget()

    def _new_partition(self) -> None:
        topic = self.rng.choice(self.topics)
        count = sum(source.topic == topic for source in self.log.partitions)
        self.count("partitions added")
        self.log.add(TopicPartition(topic, count))

    def _new_topic(self) -> None:
        self.count("topics made")
        topic = f"t{self.profile.topics + self.counts['topics made']}"
        self.topics = (*self.topics, topic)
        for number in range(self.rng.randint(1, 3)):
            self.log.add(TopicPartition(topic, number))

    def _delete_topic(self) -> None:
        if len(self.topics) > 1:
            self.count("topics deleted")
            topic = self.rng.choice(self.topics)
            self.topics = tuple(other for other in self.topics if other != topic)
            self.log.delete(topic)

    def _lose_data(self) -> None:
        source = self.rng.choice(sorted(self.log.partitions))
        partition = self.log.partitions[source]
        self.count("log prefixes deleted")
        self.log.delete_before(source, self.rng.randint(partition.start, partition.end))

    def _truncate(self) -> None:
        source = self.rng.choice(sorted(self.log.partitions))
        partition = self.log.partitions[source]
        self.count("logs truncated")
        self.log.truncate(source, self.rng.randint(partition.start, partition.end))

    def _replace_topic(self) -> None:
        """Creates a topic again, with at least as many records as before."""
        topic = self.rng.choice(self.topics)
        ends = {source: partition.end for source, partition in self.log.partitions.items() if source.topic == topic}
        self.count("topics recreated")
        self.count("topics replaced")
        self.trace("kafka", topic, "is created again, and grows at once")
        self.log.recreate(topic, len(ends))
        for source, end in sorted(ends.items()):
            self.log.grow(self.rng, source, end + self.rng.randint(0, 10), self.profile.hole)

    def _lead_to_another_cluster(self) -> None:
        """Half of the time the connections lead back soon, as after a wrong answer of the name service."""
        process, span, lasts = self._someone(), self.rng.expovariate(0.5), self.rng.random() < 0.5
        self.other_log.follow(self.log, self.rng, self.profile.is_cloned)
        self.misdirected.add(process.name)
        self.count("led to another cluster")
        self.trace(process.name, "is led to another cluster")
        if not self.profile.operated:
            self._operate_soon()
        if not lasts:
            self.after(span, lambda: self.misdirected.discard(process.name))

    def _elect(self) -> None:
        self.count("elections")
        self.log.partitions[self.rng.choice(sorted(self.log.partitions))].elect()

    def _elect_uncleanly(self) -> None:
        """A leader is elected that lacks the newest records, and gets others at once."""
        source = self.rng.choice(sorted(self.log.partitions))
        partition = self.log.partitions[source]
        end, lost = partition.end, self.rng.randint(1, 20)
        self.count("logs truncated")
        self.count("unclean elections")
        self.trace("kafka", source, "loses and regains offsets below", end)
        self.log.truncate(source, max(partition.start, end - lost))
        self.log.grow(self.rng, source, end - partition.end + self.rng.randint(0, 10), self.profile.hole)

    def _open_transaction(self) -> None:
        source = self.rng.choice(sorted(self.log.partitions))
        partition, span, is_aborted = self.log.partitions[source], self.rng.expovariate(0.2), self.rng.random() < 0.3
        if partition.open_from is None:
            self.count("transactions opened")
            partition.open_from = partition.end
            self.after(span, lambda: self.log.end_transaction(source, is_aborted))

    def _recreate(self) -> None:
        self.count("topics recreated")
        topic = self.rng.choice(self.topics)
        partitions = sum(source.topic == topic for source in self.log.partitions)
        self.log.recreate(topic, self.rng.randint(1, partitions + 1) if self.profile.operated else partitions)

    # The end

    def _heal(self) -> None:
        self.trace("world", "heals")
        self.healed = True
        self.misdirected.clear()
        for source in sorted(self.log.partitions):
            self.log.end_transaction(source, is_aborted=False)
        self._retired = True
        self.after(SECOND_LOOK, self._look_again)
        for process in self.processes:
            process.resume()
            process.cut.clear()
            process.wall = 0.0
            process.notice()
            if process.config != CONFIG:
                process.crash()
        if self.profile.one_survivor:
            for process in self.processes[1:]:
                process.crash()
        if self.profile.foreign_commits > MANY_OTHERS:
            self._foreign_commits_until = self.now + 2.0 * REPUBLISH_AFTER
            for number in range(REPUBLISH_AFTER):
                self.after(2.0 * number + 2.0, self._commit_as_another)

    def _end_the_pause(self) -> None:
        """A paused sink ends its open transactions; then it is resumed."""
        if self.ends_paused:
            self.commands.pause()
            self._until(self.now + QUIET, self._is_at_rest)
            view = self.tree()
            # If the pause is gone, ZooKeeper was emptied meanwhile.
            if view is not None and view.control.paused is not None and not self._is_at_rest():
                raise Violation("a paused sink brings what is open to its end", f"{view.transactions}")
            self.ends_paused = False
        self.commands.go_on()
        if self.profile.flush_only:
            self.commands.flush_until_settled()

    def _is_at_rest(self) -> bool:
        """Whether the sink is halted, or paused with nothing open."""
        view = self.tree()
        if view is None or view.halt is not None:
            return True
        is_open = view.transactions or view.incomplete_plan_paths or self.table.pending()
        return view.control.paused is not None and not is_open

    def _settled(self) -> bool:
        view = self.tree()
        if view is None or self.now <= self._foreign_commits_until:
            return False
        if view.halt is not None:
            return not self.operator.answers(view.halt)
        if self.repairs.damaged or self.operator.has_stopped_all:
            return False
        if view.transactions or view.incomplete_plan_paths or self.table.pending():
            return False
        if unanswered(view) is not None or view.control.paused is not None:
            return False
        config_is_recorded = view.info is not None and view.info.config == CONFIG
        if (view.ledger.attempts or not config_is_recorded) and not self.counts["znodes tampered with"]:
            return False
        if self.table.newest is not None and self.table.view(()).commits_since >= REPUBLISH_AFTER:
            return False
        if any(state.open for state in view.states.values()):
            return False
        return all(
            (
                source in view.states
                and view.states[source].end == partition.end
                and self.invariants.visible_end(source) == partition.end
            )
            for source, partition in self.log.partitions.items()
        )

    def _verdict(self) -> None:
        excused = (
            self.counts["topics recreated"]
            or self.counts["topics deleted"]
            or self.counts["logs truncated"]
            or self.counts["znodes tampered with"]
            or self.counts["tables restored"]
            or self.counts["led to another cluster"]
            or (self.counts["log prefixes deleted"] and self.profile.policy is DataLossPolicy.FAIL)
        )
        if self.invariants.halts:
            if "records are bad" in self.invariants.halts[0]:
                self.count("halts for bad records")
            elif self.profile.operated:
                raise Violation("a reset ends every halt", self.invariants.halts[0])
            elif not excused:
                raise Violation("the sink halts only for a cause", self.invariants.halts[0])
            self.count("halts")
            return
        if not self._settled():
            view = self.tree()
            state = (
                (view.transactions, dict(view.ledger.attempts), view.info, dict(view.states))
                if view
                else "no tree that can be read"
            )
            raise Violation(
                "once healed, everything is brought to its end",
                f"{state}, pending {self.table.pending()}, log {self.log.partitions}",
            )
        for source, partition in self.log.partitions.items():
            if self.invariants.visible_end(source) != partition.end:
                raise Violation("everything produced is visible", f"{source}: {self.invariants.visible_end(source)}")
        self.counts["commits"] += len(self.table.commits)


def _brief(part: Any) -> str:
    match part:
        case Request(id=id, operation=Write(purpose=purpose)):
            return f"asks {id}: Write {purpose!r}"
        case Request(id=id, operation=operation):
            return f"asks {id}: {str(operation)[:300]}"
        case Done(value=KeeperView() as view):
            phases = [f"{t.header.number} {t.header.phase.value}" for t in view.transactions]
            return f"epoch {view.epoch}, last {view.ledger.last}, {phases}"
        case _:
            return str(part)[:300]
