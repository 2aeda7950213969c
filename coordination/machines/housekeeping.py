"""Rules that keep a term valid: readings are fresh, the epoch is this term's, ZooKeeper agrees with the table, and
orphans are deleted.

A takeover has no code of its own: a new term reads everything, raises the epoch, and finds its predecessor's
transactions like its own.
"""

from __future__ import annotations

from coordination.machines import recovery, writes
from coordination.machines.term import OUT_OF_STEP, Term
from coordination.state import tree
from coordination.state.failures import Halt
from coordination.state.messages import Operation, ReadKeeper, ReadTable, Write
from coordination.state.model import NO_TRANSACTION, Phase
from coordination.state.tree import Check

TABLE_FRESH = 60.0
"""Seconds after which an idle coordinator looks at the timeline again."""


def read_keeper(term: Term) -> Operation | None:
    if term.view is not None:
        return None
    term.changed_during_read = False
    return ReadKeeper()


def read_keeper_again(term: Term) -> Operation | None:
    """Reads again if ZooKeeper changed during the read."""
    if not term.changed_during_read:
        return None
    term.view = None
    return read_keeper(term)


def resign_if_superseded(term: Term) -> Operation | None:
    if not term.keeper_view.is_complete:
        term.resign("ZooKeeper has lost a part of the sink's tree")
    elif term.epoch is not None and term.keeper_view.epoch != term.epoch:
        term.resign(f"epoch {term.keeper_view.epoch} has followed epoch {term.epoch}")
    elif term.keeper_view.control.flush.asked < term.flush_seen:
        term.resign("the sink's tree is older than it was")
    for number in set(term.progress) - {t.header.number for t in term.open_transactions()}:
        del term.progress[number]
    term.rolled_back &= {t.header.instant for t in term.open_transactions()}
    return None


def halt(term: Term) -> Operation | None:
    """Halts the sink if a request has shown that it must stop."""
    halting, term.halting = term.halting, None
    return None if halting is None else term.halt(halting)


def yield_leadership(term: Term) -> Operation | None:
    """Resigns when requests keep failing here: this JVM, or this side of the network, may be at fault."""
    failing = term.backoff.exhausted()
    if failing is not None and term.keeper_view.halt is None and len(term.keeper_view.contenders) > 1:
        term.resign(f"{failing} keeps failing here: another worker may do better")
    return None


def read_table(term: Term) -> Operation | None:
    named_instants = [t.header.instant for t in term.open_transactions() if t.header.instant is not None]
    begun_instants = {progress.begun for progress in term.progress.values()}
    if (
        term.table is None
        or set(named_instants) - set(term.table.instants) - begun_instants
        or (not named_instants and term.at - term.table_read_at > TABLE_FRESH)
    ):
        return ReadTable(tuple(sorted(set(named_instants))))
    return None


def raise_epoch(term: Term) -> Operation | None:
    table_epoch = term.table.checkpoint.epoch if term.table and term.table.checkpoint else 0
    # Also in mid-term: the epoch of a commit that was under way while ZooKeeper was emptied is known only now.
    if term.epoch is not None and term.epoch >= table_epoch:
        return None
    term.raising = max(term.keeper_view.epoch, table_epoch) + 1
    lock = Check(term.config.lock_path, 0)
    return Write("raise epoch", (lock, tree.epoch_op(term.keeper_view, term.raising, term.config.incarnation)))


def record_config(term: Term) -> Operation | None:
    write_plan = writes.record_config(term.keeper_view, term.config.config_digest)
    return None if write_plan is None else term.fence_and_queue(write_plan)


def delete_incomplete_plans(term: Term) -> Operation | None:
    write_plan = writes.delete_incomplete_plans(term.keeper_view)
    return None if write_plan is None else term.fence_and_queue(write_plan)


def sync_with_table(term: Term) -> Operation | None:
    """Brings the recorded states into step with the table's checkpoint. Other rules use them only after this one."""
    assert term.keeper_view.info is not None
    checkpoint = term.table_view.checkpoint
    foreign = recovery.foreign(checkpoint, term.keeper_view.info, term.checkpoint_seen)
    if foreign is not None:
        return term.halt(Halt(foreign.kind, foreign.reason, at=term.wall))
    match term.comparison():
        case recovery.Ahead(kind, reason):
            return term.halt(Halt(kind, reason, at=term.wall))
        case recovery.Advance() if term.open_transactions():
            oldest = term.open_transactions()[0]
            # A PREPARED transaction has halted the sink: its own record does not fit.
            return term.abort(oldest, OUT_OF_STEP) if oldest.header.phase is Phase.STARTED else None
        case recovery.Advance(changed, ledger):
            term.note("keeper.advanced", partitions=len(changed), transaction=ledger.committed)
            return term.fence_and_queue(writes.advance(term.keeper_view, changed, ledger))
    term.checkpoint_seen = checkpoint.number if checkpoint else NO_TRANSACTION
    return None
