"""Invariants that hold at every moment of every run. A breach raises a `Violation` with the broken sentence."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordination.errors import Corrupt
from coordination.machines.coordinator import Coordinator
from coordination.machines.participant import Participant
from coordination.planning.offsets import DataLossPolicy, OffsetReset
from coordination.state.failures import FailureKind, Halt, HaltKind
from coordination.state.messages import Complete, Operation, Write
from coordination.state.model import (
    NO_TRANSACTION,
    Checkpoint,
    InstantState,
    OpenRange,
    PartitionState,
    Phase,
    Slice,
    TopicPartition,
)
from coordination.state.phases import TRANSITIONS
from coordination.state.tree import Create, KeeperView, Transaction
from sink.operations.reset import Move
from tests.simulation.faults import Profile
from tests.simulation.log import SimLog
from tests.simulation.reading import ReadInvariants, truths_of
from tests.simulation.table import COMMIT, COMPACTION, SimInstant, SimTable, slices_of
from tests.simulation.tasks import TaskInvariants
from tests.simulation.verbs import VerbInvariants
from tests.simulation.violation import Violation
from tests.simulation.visible import Visible, beyond, gaps_of

if TYPE_CHECKING:
    from tests.simulation.keeper import SimKeeper

_COLLECTIONS = (dict, set, list, deque)
REMEMBERED = 20
"""The most entries in a machine's collections: a few open transactions and their reports."""
QUEUED = 200
"""The most multis of one large plan, where ZooKeeper's limits are set low."""


class Invariants:
    """Observes ZooKeeper and the table from outside, without asking a machine."""

    def __init__(self, profile: Profile, log: SimLog) -> None:
        self._profile = profile
        self._log = log
        self._view: KeeperView | None = None
        self._epoch = 0
        self.table: SimTable | None = None
        self.tasks = TaskInvariants(profile)
        self.verbs = VerbInvariants(profile, log)
        self.visible = Visible()
        self.reads = ReadInvariants()
        self._repaired: set[str] = set()
        """Instants that a repair is completing or rolling back, under the election's lock."""
        self.prepared: set[str | None] = set()
        self.aborted: set[str] = set()
        self.undecided: set[str | None] = set()
        self.halts: list[str] = []
        self._tampered = False
        self.restored = False
        """Whether the table is older than ZooKeeper's record of it, and no operator has decided yet how to go on."""
        self._beyond_recall: set[str] = set()
        self._table_restored = False
        self._newest_completion = ""
        self._newest_plan = ""
        """When the newest compaction was requested: readers take earlier completions for a part of what it has read."""
        """The time of the newest completion on the timeline, as the clock of its host had it."""
        self._newest_commit = ""
        self._from_before_a_restore: set[str] = set()
        """Instants that were pending when a restore was planned."""
        self._planned_slices: dict[TopicPartition, set[Slice]] = {}
        """Planned slices, by partition, whose ranges may still be open."""
        self._configs: dict[str, str] = {}
        self._operated = False
        self._inherited: set[tuple[TopicPartition, OpenRange]] = set()
        """Ranges of a tree from a backup: they may have been divided since, so that the table decides."""
        self._backup: dict[TopicPartition, PartitionState] = {}
        """Partition states of a tree from a backup: the table may have gone on since."""

    # The machines

    def check_queues(self, machine: Coordinator | Participant) -> None:
        """Checks that a machine's queues and collections do not grow with its age, but depend on what is open."""
        attributes = vars(machine._term if isinstance(machine, Coordinator) else machine)
        sizes = {name: len(value) for name, value in attributes.items() if isinstance(value, _COLLECTIONS)}
        group = sizes["group"]
        if sum(sizes.values()) - group > REMEMBERED or group > QUEUED:
            raise Violation("queues are bounded", f"{type(machine).__name__}: {sizes}")

    def check_halt(self, machine: Coordinator | Participant, operation: Operation) -> None:
        """Checks that a coordinator halts nothing for another cluster while another candidate could lead."""
        if not isinstance(machine, Coordinator) or not isinstance(operation, Write) or operation.purpose != "halt":
            return
        view = machine._term.view
        is_alone = view is not None and len(view.contenders) < 2
        if not is_alone and any(b"Kafka cluster" in op.data for op in operation.ops if isinstance(op, Create)):
            raise Violation("a worker on another cluster stands back where another can lead", f"{operation}")

    # ZooKeeper

    def keeper_changed(self, keeper: SimKeeper) -> None:
        try:
            view = keeper.view(keeper.latest)
        except (Corrupt, KeyError, ValueError) as error:
            if not self._tampered:
                raise Violation("ZooKeeper's content can be read", repr(error)) from error
            self._view = None
            return
        self.tasks.note_members(view.members)
        self._configs.update((member.incarnation, member.config) for member in view.members)
        before, self._view = self._view, view
        if view.info is None or before is None or before.info is None or view.info.uuid != before.info.uuid:
            self._new_tree(view)
            return
        self._epoch = view.epoch
        self._transactions(before, view)
        self._order(view.transactions)
        self._ranges(before, view)
        is_unreliable = self._tampered or self._table_restored or self._profile.operated
        self.verbs.changed(before, view, None if is_unreliable else self.visible_end)
        has_fallen = view.ledger.committed < before.ledger.committed and not (self._operated and self.restored)
        if view.ledger.last < before.ledger.last or has_fallen:
            raise Violation("the ledger only goes forward", f"{before.ledger} -> {view.ledger}")
        self._claims(view)
        if view.epoch < before.epoch:
            raise Violation("the epoch only rises", f"{before.epoch} -> {view.epoch}")
        self._gaps(before, view)
        if view.halt is None:
            self.halts.clear()
        elif before.halt is None:
            self._halted(view.halt)

    def _halted(self, halt: Halt) -> None:
        self.halts.append(halt.reason)
        has_changed = any(partition.truncations for partition in self._log.partitions.values())
        if halt.kind is HaltKind.LOG_CHANGED and not has_changed:
            raise Violation("a log is said to have changed only if it has", halt.reason)

    @contextmanager
    def resetting(self, moves: Iterable[Move]) -> Iterator[None]:
        """Surrounds an operator's reset: each moved partition is read anew from the commit on that carries the move."""
        declared = self._view.ledger.gaps if self._view else ()
        for move in moves:
            self.visible.move(move.source, move.after.generation, move.after.end, declared)
            self._planned_slices.pop(move.source, None)
        self.tasks.forget()
        self._operated = True
        try:
            yield
        finally:
            self._operated = False
            self.restored = self.restored and self._view is not None and self._beyond_the_table(self._view)

    @contextmanager
    def repairing(self, instants: Collection[str]) -> Iterator[None]:
        """Surrounds what a repair does with instants."""
        self._repaired |= set(instants)
        try:
            yield
        finally:
            self._repaired -= set(instants)

    def keeper_restored(self, tampered: bool) -> None:
        """ZooKeeper has an older tree, or a person has changed znodes; `tampered`: content may be unreadable."""
        self._view, self._tampered = None, tampered

    def keeper_emptied(self) -> None:
        self._tampered = False
        self.halts.clear()

    def _new_tree(self, view: KeeperView) -> None:
        """ZooKeeper was emptied, or is older than it was. A partition that no commit contains may begin anywhere again.
        A commit has lost its decision record, so that its instant may look like an orphan, or undecided."""
        # A backup from before the table was restored may know as many commits, and claim other ends.
        self.restored = self._table_restored and (self._beyond_the_table(view) or any(self._claimed(view)))
        if view.halt is not None:
            # A backup may have been made while the sink stood still.
            self.halts.append(view.halt.reason)
        # A transaction that became PREPARED while the tree was unreadable shows only now.
        self.prepared |= {t.header.instant for t in view.transactions if t.header.phase is Phase.PREPARED}
        self.undecided |= self.prepared
        self._planned_slices.clear()
        self.tasks.forget()
        self.verbs.begin_anew()
        self._inherited = {(source, open_range) for source, state in view.states.items() for open_range in state.open}
        self._backup = dict(view.states)
        self.visible.begins_as_recorded(view.states)

    def _transactions(self, before: KeeperView, after: KeeperView) -> None:
        old = {t.header.number: t for t in before.transactions}
        new = {t.header.number: t for t in after.transactions}
        for number, t in new.items():
            previous = old.get(number)
            if previous is None:
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
            elif previous.header.phase is not t.header.phase:
                self._entered(previous, t)
            elif previous.version != t.version:
                raise Violation("a header changes only with its phase", f"{previous.header} -> {t.header}")
            if t.header.phase is Phase.ABORTED and t.header.instant:
                self._has_aborted(t.header.instant, number)
        for number in set(old) - set(new):
            self.tasks.ended(old[number])
            self._ended(old[number])
            self._check_attempts(old[number], after)

    def _halted_before(self, t: Transaction, view: KeeperView) -> bool:
        """Whether `t` was planned after the halt, by coordinators' clocks; never if those jump.

        A plan from before the halt may arrive after it.
        """
        halt = view.halt
        return halt is not None and not self._profile.clock_jumps and t.header.times[Phase.PLANNED.value] > halt.at

    def _planned(self, piece: Slice, view: KeeperView) -> None:
        state = view.states.get(piece.source)
        if state is None or not any(r.start <= piece.start and piece.end <= r.end for r in state.open):
            return  # a person has deleted the record
        earlier_slices = self._planned_slices.setdefault(piece.source, set())
        if piece in earlier_slices:
            return
        for earlier in earlier_slices:
            if earlier.start < piece.end and piece.start < earlier.end:
                raise Violation("a recorded slice keeps its shape", f"{earlier}, now {piece}")
        earlier_slices.add(piece)

    def _entered(self, previous: Transaction, t: Transaction) -> None:
        header, phase = t.header, t.header.phase
        if phase not in TRANSITIONS[previous.header.phase]:
            raise Violation("phases follow the table", f"{header.number}: {previous.header.phase} -> {phase}")
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
            # The completion has to notice a status that was deleted just before.
            if not self._tampered:
                self.tasks.prepared(t)
        if phase is Phase.COMMITTED and state is not InstantState.COMPLETED and not self.restored:
            raise Violation("COMMITTED only what the table holds", f"{header.number} is {state}")
        if phase is Phase.ABORTED and previous.header.phase is Phase.PREPARED:
            newest = self._newest
            # Its instant cannot complete on another base, nor after a restored table has lost it.
            if state in (InstantState.PENDING, InstantState.ABSENT) and newest != header.base:
                return
            if header.instant in self._from_before_a_restore:
                return
            is_proven = state is InstantState.ROLLED_BACK or self._was_rolled_back(header.instant)
            if not is_proven and not (self._operated and state is InstantState.ABSENT):
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

    def _check_attempts(self, t: Transaction, after: KeeperView) -> None:
        kinds = {status.failure.kind for status in t.statuses.values() if status.failure is not None}
        if t.header.phase is Phase.ABORTED and kinds == {FailureKind.STORE_AWAY} and not self._profile.tampering:
            attempts = after.ledger.attempts.get(t.header.batch, 0)
            if attempts >= t.header.attempt:
                raise Violation("a fault of the store is not an attempt at a batch", f"{t.header}: {attempts}")

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
            if source not in self.visible.origin:
                self._begins(source, state)
                self.visible.begins(source, state.start)
        for source, old in before.states.items():
            new = after.states.get(source)
            if new is None:
                raise Violation("a recorded partition stays recorded", f"{source}")
            if new is old:
                continue
            for old_range in old.open:
                if old_range in new.open or old_range.batch > before.ledger.last:
                    continue
                if (source, old_range) in self._inherited:
                    self._forget_slices(source, old_range)
                    continue
                self._vanished(source, old_range, new, before.states)

    def _begins(self, source: TopicPartition, state: PartitionState) -> None:
        """Checks that a partition begins at the log's beginning, unless its topic is new and its past is not wanted."""
        ends = self.visible.ends
        added = bool(ends) if self._profile.new_topics else any(other.topic == source.topic for other in ends)
        excused = self._operated or self._tampered or self._table_restored
        if source in ends or excused or not self._is_read(source, state):
            return
        if (added or self._profile.reset is OffsetReset.EARLIEST) and state.start > self._log.partitions[source].start:
            raise Violation("a partition is read from its beginning", f"{source} from {state.start}")

    def _gaps(self, before: KeeperView, after: KeeperView) -> None:
        """Checks that the log has lost every newly declared gap, except where an operator moves partitions."""
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
        """Whether the topic is still the one that the state is of."""
        return source in self._log.partitions and self._log.ids[source.topic] == state.topic_id

    def _vanished(
        self,
        source: TopicPartition,
        old_range: OpenRange,
        state: PartitionState,
        before: Mapping[TopicPartition, PartitionState],
    ) -> None:
        end, generation, new_ranges = state.end, state.generation, state.open
        if end >= old_range.end and generation == old_range.generation:
            if not self.restored and not self.visible.covers(source, old_range.start, old_range.end):
                raise Violation("AFTER only what is visible", f"{source} [{old_range.start}, {old_range.end})")
            return
        if self._operated:
            self._forget_slices(source, old_range)
            return
        start = old_range.start
        parts = sorted((r.start, r.end) for r in new_ranges if start <= r.start and r.end <= old_range.end)
        if parts and parts[0][0] == start and parts[-1][1] == old_range.end:
            self._forget_slices(source, old_range)
            self.tasks.divided(source, old_range, new_ranges, before)
            return  # divided: the parts are contiguous, or the state would not be well-formed
        moves = self.visible.move_positions(source, old_range.generation)
        is_visible = self.visible.covers(source, start, old_range.end) and not moves
        if self._profile.policy is DataLossPolicy.SKIP and not is_visible:
            self._forget_slices(source, old_range)
            return  # abandoned for a gap: it is planned anew or lies in the gap, which the run's end verifies
        raise Violation(
            "an open range keeps its shape until AFTER", f"{source} {old_range} -> {end} {list(state.open)}"
        )

    def _forget_slices(self, source: TopicPartition, old_range: OpenRange) -> None:
        """Forgets a range's planned slices: ranges that a division or a gap leaves on record are cut anew."""
        planned = self._planned_slices.get(source, set())
        self._planned_slices[source] = {
            piece for piece in planned if piece.end <= old_range.start or old_range.end <= piece.start
        }

    def _claims(self, view: KeeperView) -> None:
        claimed = list(self._claimed(view))
        # A coordinator that read the table before its restore may record that reading after it. A tree from a backup,
        # with commits that the restored table lacks, is in step once its transactions have ended and it claims nothing.
        self.restored = self._table_restored and (self._beyond_the_table(view) or (self.restored and bool(claimed)))
        if claimed and not self.restored:
            raise Violation("ZooKeeper never claims more than the table", claimed[0])

    def _claimed(self, view: KeeperView) -> Iterator[str]:
        """Yields claims of ZooKeeper that the table does not support."""
        if view.ledger.committed > self._newest:
            yield f"{view.ledger.committed}"
        is_behind = view.ledger.committed < self._newest
        for source, state in view.states.items():
            if is_behind and (state.start == state.end or self._backup.get(source) == state):
                continue  # nothing is settled here: the record has to follow the table first
            end = max([self.visible_end(source), *self.visible.move_positions(source, state.generation)])
            end = beyond(end, state.end, gaps_of(source, view.ledger.gaps))
            if state.end > end and not self.visible.is_past(source, state.generation):
                yield f"{source} {state} > {end}"

    # The table

    def passed_check(self, instant: str) -> None:
        """ZooKeeper has allowed the instant's completion, which no tree that comes back meanwhile can stop."""
        if self.restored:
            self._beyond_recall.discard(instant)
        else:
            self._beyond_recall.add(instant)

    def beginning(self, requested: str) -> None:
        if self._has_pending_restore:
            raise Violation("nothing is begun or completed while a restore is pending", f"begins at {requested}")
        if requested <= self._newest_completion:
            raise Violation("an instant is later than every completion before it", f"{requested}")

    def completing(self, instant: SimInstant, op: Complete, completed: str) -> None:
        stats, checkpoint = op.stats, op.checkpoint
        if instant.checkpoint is not None:
            content = (tuple(stats), checkpoint.number, checkpoint.ends, checkpoint.gaps)
            first = instant.checkpoint
            if content != (instant.stats, first.number, first.ends, first.gaps):
                raise Violation("one instant, one content", f"{instant.name} is completed again with another one")
            return
        if self._has_pending_restore:
            raise Violation("nothing is begun or completed while a restore is pending", instant.name)
        if instant.name in self._from_before_a_restore:
            raise Violation("files from before a restore are never committed after it", instant.name)
        if completed <= self._newest_commit:
            raise Violation(
                "incremental readers miss no commit", f"{instant.name} at {completed}, after {self._newest_commit}"
            )
        if completed <= self._newest_plan:
            raise Violation(
                "what is completed after a compaction was planned is later than it",
                f"{instant.name} at {completed}, before {self._newest_plan}",
            )
        self._newest_commit = completed
        self._newest_completion = max(self._newest_completion, completed)
        assert self.table is not None
        if later := [commit.name for commit in self.table.commits if commit.requested > instant.requested]:
            raise Violation("instants are in the order of their transactions", f"{instant.name} after {later}")
        if completed <= instant.requested:
            raise Violation("an instant is completed after it was requested", f"{instant.name} at {completed}")
        if self.restored and instant.name not in self._beyond_recall:
            raise Violation("nothing is committed to a restored table before somebody decides", instant.name)
        if instant.name in self.aborted and instant.name not in self.undecided:
            raise Violation("an aborted instant is never completed", instant.name)
        if instant.name not in self.prepared and instant.name not in self._repaired:
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
        transactions = self._view.transactions if self._view else ()
        self.tasks.committed(instant.name, stats, () if self._tampered else transactions)
        if instant.name not in (t.header.instant for t in transactions if t.header.phase is Phase.PREPARED):
            # Its completion was in flight when ZooKeeper lost its tree.
            self.visible.begins_as_in(checkpoint)
        self.visible.add(checkpoint, slices_of(stats))
        self.reads.committed(checkpoint.cluster, truths_of(stats, instant.read))

    def _has_errors(self, checkpoint: Checkpoint, table: SimTable) -> None:
        """Checks that the errors table has every bad record of the commit's slices. It also keeps records that a log
        had before it was truncated."""
        for result in checkpoint.results:
            if result.errors > sum(piece == result.slice for piece, _ in table.errors):
                raise Violation("bad records are published before they are committed", f"{result}")

    def rolling_back(self, instant: SimInstant) -> None:
        if instant.name not in self.aborted and instant.name not in self._repaired:
            raise Violation("only an aborted instant is rolled back", instant.name)

    def rolled_back_by_others(self, instant: SimInstant) -> None:
        if instant.state is InstantState.COMPLETED:
            raise Violation("a rollback that another writer planned removes no commit", instant.name)

    def completed_besides(self, completed: str, is_commit: bool) -> None:
        """Something else than the sink's commit was completed: another writer's commit, or any rollback."""
        self._newest_completion = max(self._newest_completion, completed)
        if is_commit:
            self._newest_commit = max(self._newest_commit, completed)

    def compaction_planned(self, requested: str) -> None:
        if requested <= self._newest_completion:
            raise Violation("an instant is later than every completion before it", f"compaction {requested}")
        self._newest_plan = requested

    @property
    def _has_pending_restore(self) -> bool:
        return self.table is not None and any(restore.completed is None for restore in self.table.restores)

    def restore_planned(self) -> None:
        assert self.table is not None
        self._from_before_a_restore.update(self.table.pending())

    def table_restored(self) -> None:
        assert self.table is not None
        self._table_restored = True
        # Readers that have seen what is gone begin anew.
        entries = self.table.timeline().instants
        self._newest_completion = max(entry.completed or "" for entry in entries)
        self._newest_plan = max((entry.requested for entry in entries if entry.action == COMPACTION), default="")
        self._newest_commit = max((entry.completed or "" for entry in entries if entry.action == COMMIT), default="")
        self.visible.begin_again(
            (instant.checkpoint, slices_of(instant.stats)) for instant in self.table.commits if instant.checkpoint
        )
        self.reads.begin_again(
            (instant.checkpoint.cluster, truths_of(instant.stats, instant.read))
            for instant in self.table.commits
            if instant.checkpoint
        )
        self.visible.begins_as_recorded(self._view.states if self._view else {})
        self.restored = self._view is not None and self._beyond_the_table(self._view)

    def _beyond_the_table(self, view: KeeperView) -> bool:
        decided = (t for t in view.transactions if t.header.phase in (Phase.PREPARED, Phase.COMMITTED))
        absent = any(self._state(t.header.instant) is InstantState.ABSENT for t in decided)
        return absent or view.ledger.committed > self._newest

    # Helpers

    def visible_end(self, source: TopicPartition) -> int:
        """Returns the end of the visible offsets, with declared gaps; before any commit, of lost or left-out ones."""
        state = self._view.states.get(source) if self._view else None
        if self._view is None or state is None or not self.visible.is_unseen(source):
            return self.visible.end(source)
        start = state.start if self.visible.was_moved(source, state) else self.visible.end(source)
        return beyond(start, state.end, gaps_of(source, self._view.ledger.gaps))

    def _state(self, instant: str | None) -> InstantState:
        assert self.table is not None
        sim_instant = self.table.instants.get(instant or "")
        return sim_instant.state if sim_instant else InstantState.ABSENT

    def _was_rolled_back(self, instant: str | None) -> bool:
        assert self.table is not None
        return instant in self.table.instants and self.table.instants[instant].rolled_back is not None

    @property
    def _newest(self) -> int:
        assert self.table is not None
        return self.table.newest.number if self.table.newest else NO_TRANSACTION
