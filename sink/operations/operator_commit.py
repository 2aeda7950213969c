"""One commit by an operator's command, in the place of the coordinator: replays of bad records, and repairs.

Guarantee: no worker of the sink runs meanwhile. The command holds the election's lock and raises the epoch, so that a
paused coordinator is refused later; every write to ZooKeeper, and the completion under the table lock, checks both. The
commit extends the newest checkpoint, which it copies under the next number. An instant that was not completed is rolled
back by the next command or coordinator, like any instant without a transaction; a commit that ZooKeeper does not know
yet is taken over from the table. Raises Conflict (workers are alive, or a transaction is open), TableError,
Unavailable, OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from kazoo.client import KazooClient

from coordination.errors import Conflict, TableError, in_sentences
from coordination.machines import writes
from coordination.machines.recovery import Advance, Ahead, compare_with_table
from coordination.planning import schema_identity
from coordination.planning.planner import next_number
from coordination.state import tree
from coordination.state.model import NO_TRANSACTION, Checkpoint, TableView
from coordination.state.tree import Check, KeeperView, Op
from coordination.zookeeper.keeper import Keeper
from sink.config import Settings
from sink.hudi.specification import ErrorsSpecification, TableSpecification
from sink.hudi.table import Table, TableOutcome
from sink.operations.reset_checks import require_no_live_workers
from sink.operations.reset_writer import coordinator_lock, live_workers
from sink.telemetry.failpoints import Failpoints
from sink.write.rows.specification import RecordSpecification


class OfficeTable(Protocol):
    """The part of `Table` that the command needs."""

    def view(self) -> TableView: ...

    def begin(self, number: int, epoch: int) -> str: ...

    def complete(
        self,
        instant: str,
        stats: Sequence[str],
        checkpoint: Checkpoint,
        guard: Callable[[TableView], None],
        columns: str,
        extra_metadata: Mapping[str, str],
    ) -> TableOutcome: ...

    def roll_back(self, instant: str) -> None: ...


class OfficeKeeper(Protocol):
    """The part of `Keeper` that the command needs."""

    def read(self) -> KeeperView: ...

    def write(self, ops: Sequence[Op]) -> None: ...


@dataclass(frozen=True, slots=True)
class CommandedSink:
    """A sink as a command that makes a commit needs it."""

    root_znode: str
    config_digest: str
    table: TableSpecification
    records: RecordSpecification
    errors: ErrorsSpecification


def commanded_sink(settings: Settings) -> CommandedSink:
    return CommandedSink(settings.root_znode, settings.config_digest, settings.table, settings.records, settings.errors)


@dataclass(frozen=True, slots=True)
class Begun:
    """A pending instant of this command. `newest` is the checkpoint that it extends."""

    instant: str
    number: int
    newest: Checkpoint
    view: KeeperView


class Office:
    """The coordinator's place, while the lock at `lock_path` is held. `name` is that of the command: `Replay`,
    `Reland`. `keeper` gives a new keeper, which has cached nothing; `reach` fires the failpoint of a step."""

    def __init__(
        self,
        name: str,
        lock_path: str,
        keeper: Callable[[], OfficeKeeper],
        table: OfficeTable,
        reach: Callable[[str], None],
    ) -> None:
        self._name, self._lock_path = name, lock_path
        self._keeper, self._table, self._reach = keeper, table, reach

    def begin(self) -> Begun:
        view = self._keeper().read()
        newest = self._settled(view)
        number = next_number(view)
        begun = Begun(self._table.begin(number, view.epoch), number, newest, view)
        self._reach("begun")
        return begun

    def complete(
        self,
        begun: Begun,
        stats: Sequence[str],
        schemas: Sequence[tuple[str, str]],
        columns: str,
        extra: Mapping[str, str],
    ) -> None:
        """Makes the commit, and records it in ZooKeeper. Raises Conflict if the table refuses it: nothing changed."""
        newest, view = begun.newest, begun.view
        if (failure := schema_identity.conflict(newest.schemas, schemas)) is not None:
            raise TableError(in_sentences(failure.reason, "Nothing was changed."))
        known = schema_identity.remembered(newest.schemas, schemas)
        checkpoint = replace(
            newest, epoch=view.epoch, number=begun.number, base=newest.number, results=(), schemas=known
        )
        self._reach("written")
        outcome = self._table.complete(begun.instant, stats, checkpoint, self._guard(begun), columns, extra)
        if outcome is not TableOutcome.COMPLETED:
            raise Conflict(f"instant {begun.instant}: {outcome.value}. Nothing was changed. Try again.")
        self._reach("committed")
        ledger = replace(view.ledger, last=begun.number, committed=begun.number)
        self._keeper().write((*self._fence(view), tree.ledger_op(view, ledger)))

    def abandon(self, begun: Begun) -> None:
        """Rolls the instant back, unless somebody else coordinates by now, who does it as with any orphan."""
        try:
            self._keeper().write(self._fence(begun.view))
        except Conflict:
            return
        self._table.roll_back(begun.instant)

    def check(self) -> None:
        """Raises Conflict if this command no longer holds the lock."""
        self._keeper().write(self._fence(self._keeper().read()))

    def take_over(self) -> None:
        """Raises the epoch as a coordinator does, updates ZooKeeper from the table, in case an earlier command died
        between the two, and rolls back the instants that are pending."""
        view = self._keeper().read()
        newest = self._settled(view)
        epoch = next_epoch(view, newest)
        self._keeper().write((Check(self._lock_path, 0), tree.epoch_op(view, epoch, self._name.lower())))
        self._reconcile(newest)
        orphans = self._table.view().orphans
        # If the lock and the epoch are still valid after the listing, no orphan belongs to a later coordinator.
        self.check()
        for instant in orphans:
            self._table.roll_back(instant)

    def _reconcile(self, newest: Checkpoint) -> None:
        """Brings ZooKeeper up to the table, in case an earlier command died between the two."""
        view = self._keeper().read()
        match compare_with_table(view.states, view.ledger, newest):
            case Ahead(reason=reason):
                raise Conflict(reason)
            case Advance(changed, ledger):
                for multi in writes.advance(view, changed, ledger).multis:
                    self._keeper().write((*self._fence(view), *multi))

    def _settled(self, view: KeeperView) -> Checkpoint:
        if view.transactions:
            number = view.transactions[0].header.number
            raise Conflict(f"transaction {number} is open. Start the workers, let it end, stop them and try again.")
        checkpoint = self._table.view().checkpoint
        if checkpoint is None:
            raise Conflict("the table has no checkpoint of the sink. Restore it.")
        return checkpoint

    def _guard(self, begun: Begun) -> Callable[[TableView], None]:
        def check(table_view: TableView) -> None:
            number = table_view.checkpoint.number if table_view.checkpoint else NO_TRANSACTION
            if number != begun.newest.number:
                raise Conflict(f"the table is at transaction {number} now, not at {begun.newest.number}. Try again.")
            self._keeper().write(self._fence(begun.view))

        return check

    def _fence(self, view: KeeperView) -> tuple[Check, Check]:
        return Check(self._lock_path, 0), Check(tree.EPOCH, view.epoch_version)


def next_epoch(view: KeeperView, newest: Checkpoint) -> int:
    return max(view.epoch, newest.epoch) + 1


@contextmanager
def taking_office(client: KazooClient, sink: CommandedSink, table: Table, name: str) -> Iterator[Office]:
    """Holds the election's lock, and has taken over where the last coordinator or command ended."""
    root = sink.root_znode
    Keeper(client, root, lambda: None).bootstrap(sink.config_digest)
    with coordinator_lock(client, root) as lock_path:
        require_no_live_workers(live_workers(client, root))
        table.ensure()
        failpoints = Failpoints.from_environment()
        office = Office(
            name,
            lock_path,
            lambda: Keeper(client, root, lambda: None),
            table,
            lambda step: failpoints.reach(f"{name}.{step}"),
        )
        office.take_over()
        yield office
