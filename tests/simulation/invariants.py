"""Invariants that hold at every moment of every run. A breach is a `Violation`, named after the broken sentence."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordination.errors import Corrupt
from coordination.machines.coordinator import Coordinator
from coordination.machines.participant import Participant
from coordination.planning.offsets import DataLossPolicy, OffsetReset
from coordination.state.messages import Complete
from coordination.state.model import (
    NO_TRANSACTION,
    Checkpoint,
    FailureKind,
    InstantState,
    OpenRange,
    PartitionState,
    Phase,
    Slice,
    TopicPartition,
)
from coordination.state.phases import TRANSITIONS
from coordination.state.tree import KeeperView, Transaction
from sink.operations.reset import Move
from tests.simulation.faults import Profile
from tests.simulation.log import SimLog
from tests.simulation.table import SimInstant, SimTable, slices_of
from tests.simulation.tasks import TaskInvariants
from tests.simulation.verbs import VerbInvariants
from tests.simulation.violation import Violation
from tests.simulation.visible import Visible, beyond, gaps_of

if TYPE_CHECKING:
    from tests.simulation.keeper import SimKeeper

_COLLECTIONS = (dict, set, list, deque)
REMEMBERED = 20
"""The most that a machine may remember: a few open transactions and their reports."""
QUEUED = 200
"""How many multis one large plan takes, of those that ZooKeeper's limits, set low, allow."""


class Invariants:
    """Watches ZooKeeper and the table from outside; asks neither machine anything."""

    def __init__(self, profile: Profile, log: SimLog) -> None:
        self._profile = profile
        self._log = log
        self._view: KeeperView | None = None
        self._epoch = 0
        self.table: SimTable | None = None
        self.tasks = TaskInvariants(profile)
        self.verbs = VerbInvariants(profile, log)
        self.seen = Visible()
        self.prepared: set[str | None] = set()
        self.aborted: set[str] = set()
        self.undecided: set[str | None] = set()
        self.halts: list[str] = []
        self._tampered = False
        self.restored = False
        """Whether the table is older than what ZooKeeper says of it, and nobody has decided yet what is to become."""
        self._beyond_recall: set[str] = set()
        self._table_restored = False
        self._cut: dict[TopicPartition, set[Slice]] = {}
        """Slices that were planned, where their ranges may still be open."""
        self._configs: dict[str, str] = {}
        self._operated = False
        self._inherited: set[tuple[TopicPartition, OpenRange]] = set()
        """Ranges of a tree that came from a backup: it may have been cut otherwise since, and the table decides."""
        self._backup: dict[TopicPartition, PartitionState] = {}
        """The states of that tree: the table may have gone on since."""

    # The machines

    def remembers(self, machine: Coordinator | Participant) -> None:
        """A machine's queues and memories are of what is open now; they do not grow with its age."""
        attributes = vars(machine._term if isinstance(machine, Coordinator) else machine)
        sizes = {name: len(kept) for name, kept in attributes.items() if isinstance(kept, _COLLECTIONS)}
        group = sizes["group" if isinstance(machine, Coordinator) else "_group"]
        if sum(sizes.values()) - group > REMEMBERED or group > QUEUED:
            raise Violation("queues are bounded", f"{type(machine).__name__}: {sizes}")

    # ZooKeeper

    def keeper_changed(self, keeper: SimKeeper) -> None:
        try:
            view = keeper.view(keeper.latest)
        except (Corrupt, KeyError, ValueError) as error:
            if not self._tampered:
                raise Violation("ZooKeeper's content can be read", repr(error)) from error
            self._view = None
            return
        self.tasks.seen(view.members)
        self._configs.update((member.incarnation, member.config) for member in view.members)
        before, self._view = self._view, view
        if view.info is None or before is None or before.info is None or view.info.uuid != before.info.uuid:
            self._new_tree(view)
            return
        self._epoch = view.epoch
        self._transactions(before, view)
        self._order(view.transactions)
        self._ranges(before, view)
        unsure = self._tampered or self._table_restored or self._profile.operated
        self.verbs.changed(before, view, None if unsure else self.reached)
        fell = view.ledger.committed < before.ledger.committed and not (self._operated and self.restored)
        if view.ledger.last < before.ledger.last or fell:
            raise Violation("the ledger only goes forward", f"{before.ledger} -> {view.ledger}")
        self._claims(view)
        if view.epoch < before.epoch:
            raise Violation("the epoch only rises", f"{before.epoch} -> {view.epoch}")
        self._gaps(before, view)
        if view.halt is None:
            self.halts.clear()
        elif before.halt is None:
            self.halts.append(view.halt.reason)

    @contextmanager
    def resetting(self, moves: Iterable[Move]) -> Iterator[None]:
        """An operator moves partitions: from the commit on that carries it, each is read anew."""
        declared = self._view.ledger.gaps if self._view else ()
        for move in moves:
            self.seen.move(move.source, move.after.generation, move.after.end, declared)
            self._cut.pop(move.source, None)
        self.tasks.forget()
        self._operated = True
        try:
            yield
        finally:
            self._operated = False
            self.restored = self.restored and self._view is not None and self._beyond_the_table(self._view)

    def keeper_restored(self, tampered: bool) -> None:
        """To a tree that somebody may have tampered with, or by hand, znode by znode."""
        self._view, self._tampered = None, tampered

    def keeper_emptied(self) -> None:
        self._tampered = False
        self.halts.clear()

    def _new_tree(self, view: KeeperView) -> None:
        """ZooKeeper was emptied, or is older than it was: what the table has never seen may begin anywhere again,
        and a commit has lost its decision record, so that its instant may look like an orphan, or as undecided."""
        # A backup from before the table was restored may know as many commits, and claim other ends.
        self.restored = self._table_restored and (self._beyond_the_table(view) or any(self._claimed(view)))
        if view.halt is not None:
            # A backup may have been made while the sink stood still.
            self.halts.append(view.halt.reason)
        # What became PREPARED while the tree was not whole is seen only now.
        self.prepared |= {t.header.instant for t in view.transactions if t.header.phase is Phase.PREPARED}
        self.undecided |= self.prepared
        self._cut.clear()
        self.tasks.forget()
        self.verbs.begin_anew()
        self._inherited = {(source, kept) for source, state in view.states.items() for kept in state.open}
        self._backup = dict(view.states)
        self.seen.begins_as_recorded(view.states)

    def _transactions(self, before: KeeperView, after: KeeperView) -> None:
        old = {t.header.number: t for t in before.transactions}
        new = {t.header.number: t for t in after.transactions}
        for number, t in new.items():
            known = old.get(number)
            if known is None:
                if number <= before.ledger.last:
                    raise Violation("transaction numbers rise", f"{number} after {before.ledger.last}")
                if t.header.phase not in (Phase.PLANNED, Phase.ABORTED):
                    raise Violation("a transaction begins PLANNED", f"{t.header}")
                if t.plan.slices and self._halted_before(t, before):
                    raise Violation("a sink that is halted plans nothing", f"{t.header}")
                if self._profile.single_writer and len(t.plan.slices) > 1:
                    raise Violation("one worker writes where one has to", f"{t.header}: {sorted(t.plan.slices)}")
                if not self._tampered:
                    self.tasks.planned(t, after.states)
                for piece in t.plan:
                    self._planned(piece, after)
            elif known.header.phase is not t.header.phase:
                self._entered(known, t)
            elif known.version != t.version:
                raise Violation("a header changes only with its phase", f"{known.header} -> {t.header}")
            if t.header.phase is Phase.ABORTED and t.header.instant:
                self._has_aborted(t.header.instant, number)
        for number in set(old) - set(new):
            self.tasks.ended(old[number])
            self._ended(old[number])
            self._counted(old[number], after)

    def _halted_before(self, t: Transaction, seen: KeeperView) -> bool:
        """A plan that was made before may arrive after: by the clock of coordinators, where it does not jump."""
        halt = seen.halt
        return halt is not None and not self._profile.clock_jumps and t.header.times[Phase.PLANNED.value] > halt.at

    def _planned(self, piece: Slice, view: KeeperView) -> None:
        state = view.states.get(piece.source)
        if state is None or not any(r.start <= piece.start and piece.end <= r.end for r in state.open):
            return  # somebody has deleted the record
        before = self._cut.setdefault(piece.source, set())
        if piece in before:
            return
        for known in before:
            if known.start < piece.end and piece.start < known.end:
                raise Violation("a recorded slice keeps its shape", f"{known}, now {piece}")
        before.add(piece)

    def _entered(self, known: Transaction, t: Transaction) -> None:
        header, phase = t.header, t.header.phase
        if phase not in TRANSITIONS[known.header.phase]:
            raise Violation("phases follow the table", f"{header.number}: {known.header.phase} -> {phase}")
        state = self._state(header.instant)
        if phase is Phase.PREPARED:
            assert header.instant is not None
            self.prepared.add(header.instant)
            if len({self._configs.get(incarnation) for incarnation in t.statuses}) > 1:
                raise Violation("a transaction is written with one configuration", f"{header.number}")
            bad = sum(r.errors for s in t.statuses.values() for r in s.results)
            if bad > self._profile.errors_max:
                raise Violation("PREPARED only with few bad records", f"{header.number}: {bad}")
            if header.epoch != self._epoch:
                raise Violation("only a transaction of this epoch is PREPARED", f"{header.number}")
            # What is taken away just before has to be found out when it is completed.
            if not self._tampered:
                self.tasks.prepared(t)
        if phase is Phase.COMMITTED and state is not InstantState.COMPLETED and not self.restored:
            raise Violation("COMMITTED only what the table holds", f"{header.number} is {state}")
        if phase is Phase.ABORTED and known.header.phase is Phase.PREPARED:
            newest = self._newest
            # On another base nothing completes it, nor once a restored table has it no more.
            if state in (InstantState.PENDING, InstantState.ABSENT) and newest != header.base:
                return
            if state is not InstantState.ROLLED_BACK and not (self._operated and state is InstantState.ABSENT):
                raise Violation("PREPARED is aborted only on proof", f"{header.number}: {state}, base {newest}")

    def _has_aborted(self, instant: str, number: int) -> None:
        self.aborted.add(instant)
        if self._state(instant) is InstantState.COMPLETED and instant not in self.undecided:
            raise Violation("what is committed is never aborted", f"transaction {number}, {instant}")

    def _ended(self, t: Transaction) -> None:
        state = self._state(t.header.instant)
        if t.header.phase is Phase.COMMITTED:
            return
        if t.header.phase is not Phase.ABORTED:
            raise Violation("a transaction ends COMMITTED or ABORTED", f"{t.header}")
        if state is InstantState.PENDING:
            raise Violation("an aborted transaction ends once it is rolled back", f"{t.header}")

    def _counted(self, t: Transaction, after: KeeperView) -> None:
        kinds = {status.failure.kind for status in t.statuses.values() if status.failure is not None}
        if t.header.phase is Phase.ABORTED and kinds == {FailureKind.AWAY} and not self._profile.tampering:
            tries = after.ledger.attempts.get(t.header.batch, 0)
            if tries >= t.header.attempt:
                raise Violation("a fault of the store is no attempt at a batch", f"{t.header}: {tries}")

    def _order(self, transactions: Collection[Transaction]) -> None:
        working = [t for t in transactions if t.plan.slices or t.header.phase is not Phase.ABORTED]
        live = [t for t in working if t.header.phase is not Phase.ABORTED]
        if len(live) > self._profile.in_flight:
            raise Violation("no more transactions than may be in flight", f"{[t.header.number for t in live]}")
        written = [t.header.number for t in live if t.header.phase is Phase.STARTED]
        if len(written) > 1:
            raise Violation("one transaction is written at a time", f"{written}")
        undecided = False
        for t in live:
            if undecided and t.header.phase in (Phase.PREPARED, Phase.COMMITTED):
                raise Violation("N+1 is PREPARED only when N is COMMITTED", f"{t.header.number}")
            undecided = undecided or t.header.phase is not Phase.COMMITTED

    def _ranges(self, before: KeeperView, after: KeeperView) -> None:
        for source, state in after.states.items():
            if source not in self.seen.origin:
                self._begins(source, state)
                self.seen.begins(source, state.start)
        for source, old in before.states.items():
            new = after.states.get(source)
            if new is None:
                raise Violation("a recorded partition stays recorded", f"{source}")
            if new is old:
                continue
            for kept in old.open:
                if kept in new.open or kept.batch > before.ledger.last:
                    continue
                if (source, kept) in self._inherited:
                    self._forget_slices(source, kept)
                    continue
                self._vanished(source, kept, new, before.states)

    def _begins(self, source: TopicPartition, state: PartitionState) -> None:
        """At the log's beginning, as it was when it was looked at, unless the topic is new and its past not wanted."""
        ends = self.seen.ends
        added = bool(ends) if self._profile.new_topics else any(known.topic == source.topic for known in ends)
        excused = self._operated or self._tampered or self._table_restored
        if source in ends or excused or not self._is_read(source, state):
            return
        if (added or self._profile.reset is OffsetReset.EARLIEST) and state.start > self._log.partitions[source].start:
            raise Violation("a partition is read from its beginning", f"{source} from {state.start}")

    def _gaps(self, before: KeeperView, after: KeeperView) -> None:
        """A declared gap cannot be read any more, or an operator did not want it."""
        if self._operated:
            return
        newest = self.table.newest if self.table else None
        for gap in set(after.ledger.gaps) - set(before.ledger.gaps) - set(newest.gaps if newest else ()):
            source = TopicPartition(gap.topic, gap.partition)
            state = after.states.get(source)
            if state is None or not self._is_read(source, state) or self._tampered or self._table_restored:
                continue
            if self._log.partitions[source].start < gap.end:
                raise Violation("only what is lost is declared a gap", f"{gap}, {self._log.partitions[source]}")

    def _is_read(self, source: TopicPartition, state: PartitionState) -> bool:
        """Whether the log is still the one that the state is of."""
        return source in self._log.partitions and self._log.ids[source.topic] == state.topic_id

    def _vanished(
        self,
        source: TopicPartition,
        gone: OpenRange,
        state: PartitionState,
        before: Mapping[TopicPartition, PartitionState],
    ) -> None:
        end, generation, now = state.end, state.generation, state.open
        if end >= gone.end and generation == gone.generation:
            if not self.restored and not self.seen.covers(source, gone.start, gone.end):
                raise Violation("AFTER only what is visible", f"{source} [{gone.start}, {gone.end})")
            return
        if self._operated:
            self._forget_slices(source, gone)
            return
        parts = sorted((r.start, r.end) for r in now if gone.start <= r.start and r.end <= gone.end)
        if parts and parts[0][0] == gone.start and parts[-1][1] == gone.end:
            self._forget_slices(source, gone)
            self.tasks.divided(source, gone, now, before)
            return  # divided: contiguous, or it would not be a well-formed state
        visible = self.seen.covers(source, gone.start, gone.end) and not self.seen.moved(source, gone.generation)
        if self._profile.policy is DataLossPolicy.SKIP and not visible:
            self._forget_slices(source, gone)
            return  # abandoned for a gap: it is planned anew, or lies in the gap; the end of the run tells
        raise Violation("an open range keeps its shape until AFTER", f"{source} {gone} -> {end} {list(now)}")

    def _forget_slices(self, source: TopicPartition, gone: OpenRange) -> None:
        """Ranges that a division or a gap leaves on record are cut anew."""
        planned = self._cut.get(source, set())
        self._cut[source] = {piece for piece in planned if piece.end <= gone.start or gone.end <= piece.start}

    def _claims(self, view: KeeperView) -> None:
        claimed = list(self._claimed(view))
        # A reading of the table from before it was restored may be put on record after. A tree from a backup whose
        # commits the restored table has no more is in step once its transactions have ended and it claims nothing.
        self.restored = self._table_restored and (self._beyond_the_table(view) or (self.restored and bool(claimed)))
        if claimed and not self.restored:
            raise Violation("ZooKeeper never claims more than the table", claimed[0])

    def _claimed(self, view: KeeperView) -> Iterator[str]:
        """Claims of ZooKeeper that the table does not hold."""
        if view.ledger.committed > self._newest:
            yield f"{view.ledger.committed}"
        behind = view.ledger.committed < self._newest
        for source, state in view.states.items():
            if behind and (state.start == state.end or self._backup.get(source) == state):
                continue  # nothing was settled here: it has to follow the table yet
            reached = max([self.reached(source), *self.seen.moved(source, state.generation)])
            reached = beyond(reached, state.end, gaps_of(source, view.ledger.gaps))
            if state.end > reached and not self.seen.is_past(source, state.generation):
                yield f"{source} {state} > {reached}"

    # The table

    def passed_check(self, instant: str) -> None:
        """ZooKeeper has allowed its completion, which nobody can call back, whatever tree comes back meanwhile."""
        if self.restored:
            self._beyond_recall.discard(instant)
        else:
            self._beyond_recall.add(instant)

    def completing(self, instant: SimInstant, op: Complete) -> None:
        stats, checkpoint = op.stats, op.checkpoint
        if instant.checkpoint is not None:
            again = (tuple(stats), checkpoint.number, checkpoint.ends, checkpoint.gaps)
            first = instant.checkpoint
            if again != (instant.stats, first.number, first.ends, first.gaps):
                raise Violation("one instant, one content", f"{instant.name} is completed again with another one")
            return
        if self.restored and instant.name not in self._beyond_recall:
            raise Violation("nothing is committed to a restored table before somebody decides", instant.name)
        if instant.name in self.aborted and instant.name not in self.undecided:
            raise Violation("an aborted instant is never completed", instant.name)
        if instant.name not in self.prepared:
            raise Violation("an instant is completed only after PREPARED", instant.name)
        if checkpoint.number != instant.number or checkpoint.number <= self._newest:
            raise Violation("checkpoints rise", f"{checkpoint.number} after {self._newest}")
        if self.table is not None and self.table.newest and checkpoint.epoch < self.table.newest.epoch:
            raise Violation("the epochs of checkpoints rise", f"{checkpoint.epoch}")
        if missing := set(stats) - instant.files:
            raise Violation("all files of a commit are there", f"{instant.name}: {sorted(missing)}")
        if len(set(stats)) != len(stats):
            raise Violation("one instant, one content", f"{instant.name}")
        if instant.columns - {op.columns}:
            raise Violation("a commit names the columns of its files", f"{instant.name}: {op.columns!r}")
        if self.table is not None:
            self._has_errors(checkpoint, self.table)
        known = self._view.transactions if self._view else ()
        self.tasks.committed(instant.name, stats, () if self._tampered else known)
        if instant.name not in (t.header.instant for t in known if t.header.phase is Phase.PREPARED):
            # It was under way when its tree was lost.
            self.seen.begins_as_in(checkpoint)
        self.seen.add(checkpoint, slices_of(stats))

    def _has_errors(self, checkpoint: Checkpoint, table: SimTable) -> None:
        """With the commit each record of its slices is in the table or in the errors table, where those stay that a log
        had before it was truncated."""
        for result in checkpoint.results:
            if result.errors > sum(piece == result.slice for piece, _ in table.errors):
                raise Violation("bad records are published before they are committed", f"{result}")

    def rolling_back(self, instant: SimInstant) -> None:
        if instant.name not in self.aborted:
            raise Violation("only an aborted instant is rolled back", instant.name)

    def table_restored(self) -> None:
        assert self.table is not None
        self._table_restored = True
        self.seen.begin_again(
            (instant.checkpoint, slices_of(instant.stats)) for instant in self.table.commits if instant.checkpoint
        )
        self.seen.begins_as_recorded(self._view.states if self._view else {})
        self.restored = self._view is not None and self._beyond_the_table(self._view)

    def _beyond_the_table(self, view: KeeperView) -> bool:
        decided = (t for t in view.transactions if t.header.phase in (Phase.PREPARED, Phase.COMMITTED))
        absent = any(self._state(t.header.instant) is InstantState.ABSENT for t in decided)
        return absent or view.ledger.committed > self._newest

    # Helpers

    def reached(self, source: TopicPartition) -> int:
        """The end of what is visible, declared gaps included; where nothing is, of what is lost or was left out."""
        state = self._view.states.get(source) if self._view else None
        if self._view is None or state is None or not self.seen.is_unseen(source):
            return self.seen.end(source)
        begins = state.start if self.seen.was_moved(source, state) else self.seen.end(source)
        return beyond(begins, state.end, gaps_of(source, self._view.ledger.gaps))

    def _state(self, instant: str | None) -> InstantState:
        assert self.table is not None
        known = self.table.instants.get(instant or "")
        return known.state if known else InstantState.ABSENT

    @property
    def _newest(self) -> int:
        assert self.table is not None
        return self.table.newest.number if self.table.newest else NO_TRANSACTION
