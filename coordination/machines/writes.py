"""Plans a coordinator's writes to ZooKeeper. Pure: the machine fences and sends them.

A write plan has a purpose, and multis in order. The last multi makes the plan count; until then readers ignore the
earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.machines import transactions
from coordination.state import tree
from coordination.state.control import Control
from coordination.state.failures import Halt
from coordination.state.model import Gap, Header, PartitionState, Phase, Plan, TopicPartition
from coordination.state.tree import Check, Create, Delete, KeeperView, Ledger, Op, Transaction

States = Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class WritePlan:
    purpose: str
    multis: tuple[tuple[Op, ...], ...]


def record_config(view: KeeperView, digest: str) -> WritePlan | None:
    """Records this fleet's configuration; None where it is recorded already."""
    assert view.info is not None
    info = replace(view.info, config=digest)
    return None if info == view.info else WritePlan("stamp configuration", ((tree.info_op(view, info),),))


def with_cluster(plan: WritePlan, view: KeeperView, cluster: str) -> WritePlan:
    """Records the Kafka cluster as well, with the first multi, unless it is recorded already."""
    assert view.info is not None
    info = replace(view.info, cluster=cluster)
    first, *others = plan.multis
    return plan if info == view.info else replace(plan, multis=((tree.info_op(view, info), *first), *others))


def halt(halt: Halt) -> WritePlan:
    return WritePlan("halt", ((Create(tree.HALT, tree.halt_data(halt)),),))


def delete_incomplete_plans(view: KeeperView) -> WritePlan | None:
    """Deletes the remains of plans that never counted."""
    changed = transactions.drop_incomplete_plans(view.states, view.ledger.last)
    if not changed and not view.incomplete_plan_paths:
        return None
    ops = [*tree.shard_ops(view, changed), *(Delete(path) for path in view.incomplete_plan_paths)]
    return ordered(view, "delete incomplete plans", tree.batched(ops, ()), view.ledger)


def advance(view: KeeperView, changed: States, ledger: Ledger) -> WritePlan:
    """Brings the recorded states up to the table's checkpoint."""
    ledger = _pruned(ledger, {**view.states, **changed})
    return ordered(view, "advance to the checkpoint", tree.batched(tree.shard_ops(view, changed), ()), ledger)


def record_partitions(view: KeeperView, new_partitions: States) -> WritePlan:
    """Records where new partitions begin."""
    return ordered(view, "record new partitions", tree.batched(tree.shard_ops(view, new_partitions), ()), view.ledger)


def skip(view: KeeperView, changed: States, gaps: tuple[Gap, ...]) -> WritePlan:
    """Declares gaps with the first multi: a skipped offset must never go undeclared."""
    kept_gaps = tuple(
        recorded_gap for recorded_gap in view.ledger.gaps if not any(gap.covers(recorded_gap) for gap in gaps)
    )
    ledger = _pruned(replace(view.ledger, gaps=(*kept_gaps, *gaps)), {**view.states, **changed})
    return ordered(view, "skip a gap", tree.batched(tree.shard_ops(view, changed), ()), ledger, from_first=True)


def divide(view: KeeperView, divided: States, batch: int, remainder: int) -> WritePlan:
    """Divides a batch. Each part has two attempts left, on two workers, before it is divided in turn."""
    tried = view.ledger.attempts[batch] - 2
    # The ledger first: a range whose batch is above `last` would count as never planned.
    ledger = replace(view.ledger, last=remainder, attempts={**view.ledger.attempts, batch: tried, remainder: tried})
    shards = tree.batched(tree.shard_ops(view, divided), ())
    return ordered(view, "divide a batch", shards, ledger, from_first=True)


def control(view: KeeperView, answered: Control) -> WritePlan:
    return WritePlan("answer an operator", ((tree.control_op(view, answered),),))


def open_transaction(view: KeeperView, header: Header, plan: Plan, changed: States) -> WritePlan:
    """Opens a transaction. The multi that makes it count checks that no operator has asked for anything since `view`
    was read. The record of an instant that is rolled back does not check that: nothing may delay it.
    """
    attempts = dict(view.ledger.attempts)
    if plan.tasks:
        attempts[header.batch] = header.attempt
    ledger = replace(view.ledger, last=header.number, attempts=attempts)
    ops = [*tree.plan_ops(header.number, plan), *tree.shard_ops(view, changed)]
    control_check = [] if header.phase is Phase.ABORTED else [Check(tree.CONTROL, view.control_version)]
    return ordered(view, "open a transaction", tree.batched(ops, [*control_check, tree.header_op(header)]), ledger)


def enter(view: KeeperView, transaction: Transaction, header: Header, halt: Halt | None = None) -> WritePlan:
    """Replaces a header by its next phase, and halts the sink in the same multi if that is the reason."""
    ops = [tree.header_op(header, transaction.version)]
    if header.phase is Phase.PREPARED:
        # Each try of the commit carries what is recorded: setting the ledger refuses an earlier multi that comes late.
        ops.append(tree.ledger_op(view, view.ledger))
    if halt is not None:
        ops.append(Create(tree.HALT, tree.halt_data(halt)))
    return WritePlan(header.phase.value, (tuple(ops),))


def end(
    view: KeeperView, transaction: Transaction, written: transactions.Written, wall: float, divide_after: int
) -> WritePlan:
    """Settles a COMMITTED transaction, or removes an ABORTED one that is rolled back. One that ran out of memory counts
    as having failed `divide_after` times: the next attempt has to be smaller. A failure of the store does not count: it
    says nothing of the batch.
    """
    header = transaction.header
    ledger = transactions.ended(view.ledger, header, written.results, wall)
    if header.phase is Phase.ABORTED:
        attempts = ledger.attempts.get(header.batch, 0)
        if transactions.ran_out_of_memory(transaction):
            attempts = max(attempts, divide_after)
        elif transactions.failed_by_a_server(transaction):
            attempts = min(attempts, header.attempt - 1)
        if attempts != ledger.attempts.get(header.batch, 0):
            ledger = replace(ledger, attempts={**ledger.attempts, header.batch: attempts})
    ledger = _pruned(ledger, view.states)
    changed = transactions.settled(view.states, header, written.last_records)
    header_deletion = [Delete(tree.header_path(header.number), transaction.version)]
    return ordered(view, "settle", tree.batched(tree.shard_ops(view, changed), header_deletion), ledger)


def _pruned(ledger: Ledger, states: States) -> Ledger:
    """Drops attempts at batches that are not recorded: a division that was cut short leaves them."""
    recorded = {planned.batch for state in states.values() for planned in state.open}
    return replace(ledger, attempts={batch: n for batch, n in ledger.attempts.items() if batch in recorded})


def ordered(
    view: KeeperView, purpose: str, multis: Sequence[tuple[Op, ...]], ledger: Ledger, from_first: bool = False
) -> WritePlan:
    """Lets every multi set the ledger as well: its version puts them all in one order.

    Without that, a multi of unknown outcome could arrive late: it could move a range while a transaction is open that
    was planned without it, or add to the plan of a number that is in use again. `ledger` is written by the last multi,
    or from the first on.
    """
    ordered: list[tuple[Op, ...]] = []
    for position, multi in enumerate(multis):
        next_ledger = ledger if from_first or position == len(multis) - 1 else view.ledger
        ordered.append((*multi, tree.ledger_op(view, next_ledger)))
        view = replace(view, ledger_version=view.ledger_version + 1)
    return WritePlan(purpose, tuple(ordered))
