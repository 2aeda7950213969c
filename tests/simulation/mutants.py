"""Named ways to break the protocol. Each must be caught by some invariant within a stated number of seeds.

One that survives means a missing fault or a needless rule; DESIGN 3 says why each rule is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from coordination import (
    advance,
    assignment,
    codec,
    coordinator,
    offsets,
    opening,
    planner,
    planning,
    recovery,
    slicing,
    transactions,
    tree,
    upkeep,
    writes,
)
from coordination.advance import ADVANCE
from coordination.coordinator import Coordinator
from coordination.messages import Answered, Complete, Done, RollBack, Unknown, Write, WriteSlices
from coordination.model import LogView, PartitionState, Phase, SliceResult, TopicPartition, WriteStatus
from coordination.offsets import LostPrefix, OffsetReset
from coordination.participant import Participant
from coordination.patience import Backoff
from coordination.term import Term
from coordination.tolerance import ErrorLimits
from coordination.tree import Check, Create, Delete, Set
from tests.simulation.effects import Effects
from tests.simulation.faults import Profile
from tests.simulation.process import Process
from tests.simulation.table import SimTable, stat_of

Patch = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Mutant:
    """`faults` are what the run must have for the rule to matter; everything else is drawn as usual."""

    name: str
    apply: Callable[[Patch], None]
    seeds: int = 40
    faults: dict[str, Any] | None = None
    covered_by: str = ""
    """What makes up for the rule, where nothing shows that it is broken."""

    def profile(self, drawn: Profile) -> Profile:
        return replace(drawn, **(self.faults or {}))


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        if isinstance(owner, dict):
            undo.append((owner, name, owner[name]))
            owner[name] = value
        else:
            undo.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

    mutant.apply(patch)
    try:
        yield
    finally:
        for owner, name, value in reversed(undo):
            if isinstance(owner, dict):
                owner[name] = value
            else:
                setattr(owner, name, value)


def _without_checks(prefixes: tuple[str, ...]) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        usual = Coordinator._next

        def next_(self: Coordinator) -> Any:
            op = usual(self)
            if isinstance(op, Write):
                kept = (o for o in op.ops if not (isinstance(o, Check) and o.path.startswith(prefixes)))
                return replace(op, ops=tuple(kept))
            return op

        patch(Coordinator, "_next", next_)

    return apply


def _versions_ignored(prefix: str) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        usual = Coordinator._next

        def next_(self: Coordinator) -> Any:
            op = usual(self)
            if isinstance(op, Write):
                loose = (
                    replace(o, version=-1) if isinstance(o, Set | Delete) and o.path.startswith(prefix) else o
                    for o in op.ops
                )
                return replace(op, ops=tuple(loose))
            return op

        patch(Coordinator, "_next", next_)

    return apply


def _bad_records_not_published(patch: Patch) -> None:
    usual = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = usual(self)
        return replace(op, errors=()) if isinstance(op, Complete) else op

    patch(Coordinator, "_next", next_)


def _any_number_may_be_bad(patch: Patch) -> None:
    patch(ErrorLimits, "exceeded", lambda *_: None)


def _complete_without_prepared(patch: Patch) -> None:
    usual = Term.enter

    def enter(self: Term, t: Any, phase: Phase, instant: str | None = None) -> Any:
        if phase is not Phase.PREPARED:
            return usual(self, t, phase, instant)
        return ADVANCE[Phase.PREPARED](self, t)

    patch(Term, "enter", enter)


def _roll_back_a_prepared_instant(patch: Patch) -> None:
    usual = ADVANCE[Phase.PREPARED]

    def prepared(term: Term, t: Any) -> Any:
        return term.abort(t, "takeover") if t.header.epoch != term.epoch else usual(term, t)

    patch(ADVANCE, Phase.PREPARED, prepared)  # type: ignore[arg-type]


def _any_status_completes(patch: Patch) -> None:
    usual = transactions.progress

    def progress(t: Any, members: Any, waited: float) -> Any:
        return transactions.Complete() if t.statuses else usual(t, members, waited)

    patch(transactions, "progress", progress)


def _old_answers_accepted(patch: Patch) -> None:
    usual = Coordinator._answered

    def answered(self: Coordinator, id: int, outcome: Any) -> None:
        usual(self, self._outstanding.id if self._outstanding else id, outcome)

    patch(Coordinator, "_answered", answered)


def _unknown_taken_for_done(patch: Patch) -> None:
    usual = Coordinator.step

    def step(self: Coordinator, event: Any) -> Any:
        asked = self._outstanding.operation if self._outstanding else None
        if (
            isinstance(event, Answered)
            and isinstance(event.outcome, Unknown)
            and isinstance(asked, Write | Complete | RollBack)
        ):
            event = replace(event, outcome=Done())
        return usual(self, event)

    patch(Coordinator, "step", step)


def _retry_cut_anew(patch: Patch) -> None:
    usual = slicing.cut

    def cut(source: TopicPartition, topic_id: str, recorded: Any) -> Any:
        pieces = usual(source, topic_id, recorded)
        return pieces[:-1] if len(pieces) > 1 else pieces

    patch(slicing, "cut", cut)


def _retry_cut_finer(patch: Patch) -> None:
    usual = planner._re_form

    def re_form(*arguments: Any) -> Any:
        step = usual(*arguments)
        if not isinstance(step, planner.OpenBatch) or step.attempt == 1:
            return step
        halves = (
            (replace(piece, end=piece.start + piece.size // 2), replace(piece, start=piece.start + piece.size // 2))
            if piece.size > 1
            else (piece,)
            for piece in step.slices
        )
        return replace(step, slices=tuple(half for two in halves for half in two))

    patch(planner, "_re_form", re_form)


def _after_before_the_commit(patch: Patch) -> None:
    usual = Term.enter

    def enter(self: Term, t: Any, phase: Phase, instant: str | None = None) -> Any:
        op = usual(self, t, phase, instant)
        if phase is Phase.PREPARED and isinstance(op, Write):
            settled = tree.shard_ops(self.now, transactions.settled(self.now.states, t.header))
            return replace(op, ops=(*op.ops, *settled))
        return op

    patch(Term, "enter", enter)


def _orphans_without_a_record(patch: Patch) -> None:
    def abort_orphans(term: Term) -> Any:
        named = {t.header.instant for t in term.open()} | {m.begun for m in term.memory.values()}
        orphan = next((i for i in term.table.orphans if i not in named), None) if term.table else None
        return RollBack(orphan) if orphan else None

    _replace(patch, opening.abort_orphans, abort_orphans)


def _aborted_without_rollback(patch: Patch) -> None:
    patch(ADVANCE, Phase.ABORTED, lambda term, t: term.end(t))  # type: ignore[arg-type]


def _next_prepared_too_early(patch: Patch) -> None:
    usual = ADVANCE[Phase.STARTED]

    def started(term: Term, t: Any) -> Any:
        first = term.open()
        try:
            term.open = lambda: (t, *(o for o in first if o is not t))  # type: ignore[method-assign]
            return usual(term, t)
        finally:
            del term.open

    patch(ADVANCE, Phase.STARTED, started)  # type: ignore[arg-type]


def _checkpoint_of_what_moved(patch: Patch) -> None:
    usual = transactions.checkpoint

    def checkpoint(*arguments: Any) -> Any:
        said = usual(*arguments)
        moved = {result.slice.source for result in said.results}
        return replace(said, ends={s: e for s, e in said.ends.items() if s in moved})

    patch(transactions, "checkpoint", checkpoint)


def _nobody_is_missed(patch: Patch) -> None:
    usual = transactions.progress

    def progress(t: Any, *_: Any) -> Any:
        return usual(t, set(t.plan.slices), 0.0)

    patch(transactions, "progress", progress)


def _table_never_compared(patch: Patch) -> None:
    patch(recovery, "compare", lambda *_: recovery.InStep())


def _gap_not_declared(patch: Patch) -> None:
    usual = writes.skip
    patch(writes, "skip", lambda view, changed, _: usual(view, changed, ()))


def _gap_under_the_old_generation(patch: Patch) -> None:
    usual = offsets.reconcile

    def reconcile(*arguments: Any) -> Any:
        decision = usual(*arguments)
        if isinstance(decision, LostPrefix):
            state = decision.state
            return replace(decision, state=replace(state, generation=state.generation - 1))
        return decision

    patch(offsets, "reconcile", reconcile)


def _shards_not_ordered_by_the_ledger(patch: Patch) -> None:
    usual = writes.divide

    def divide(*arguments: Any) -> Any:
        draft = usual(*arguments)
        ledger = tuple(op for op in draft.multis[0] if op.path == tree.TRANSACTIONS)
        shards = (tuple(op for op in multi if op.path != tree.TRANSACTIONS) for multi in draft.multis)
        return replace(draft, multis=(ledger, *shards))

    patch(writes, "divide", divide)


def _settled_is_still_an_orphan(patch: Patch) -> None:
    usual = Coordinator._done

    def done(self: Coordinator, operation: Any, value: Any) -> None:
        term = self._term
        orphans = term.table.orphans if term.table else ()
        usual(self, operation, value)
        if isinstance(operation, Complete) and term.table is not None:
            term.table = replace(term.table, orphans=tuple({*orphans, operation.instant}))

    patch(Coordinator, "_done", done)


def _any_base_will_do(patch: Patch) -> None:
    usual = SimTable.refusal

    def refusal(self: SimTable, op: Complete) -> Any:
        newest = self.newest.number if self.newest else 0
        return usual(self, replace(op, checkpoint=replace(op.checkpoint, base=newest)))

    patch(SimTable, "refusal", refusal)


def _rolled_back_taken_for_failed(patch: Patch) -> None:
    """Never let go of a PREPARED instant, not even on proof."""
    patch(ADVANCE, Phase.PREPARED, lambda *_: None)  # type: ignore[arg-type]


def _status_without_a_fence(patch: Patch) -> None:
    def report(self: Participant, t: Any, status: Any) -> Any:
        *_, last = tree.status_ops(status)
        assert isinstance(last, Create)
        self._reporting = {(t.header.number, t.version)}
        return Write("write status", (last,))

    patch(Participant, "_report", report)


def _completion_without_zookeeper(patch: Patch) -> None:
    patch(Effects, "_guard", lambda *_: None)


def _header_written_as_planned(patch: Patch) -> None:
    """A takeover starts the old transaction again instead of aborting it."""
    usual = codec.encode_header

    def encode(header: Any, version: int = 0) -> bytes:
        return usual(replace(header, phase=Phase.PLANNED) if header.reason.startswith("epoch") else header, version)

    patch(codec, "encode_header", encode)


def _recorded_ranges_forgotten(patch: Patch) -> None:
    """Plan anew from what is settled, instead of re-forming what is recorded."""
    usual = planning.survey

    def survey(states: Any, *arguments: Any) -> Any:
        return usual({s: replace(state, open=state.open[:0]) for s, state in states.items()}, *arguments)

    patch(planning, "survey", survey)


def _only_the_newest_commit_read(patch: Patch) -> None:
    usual = SimTable.view

    def view(self: SimTable, names: Any) -> Any:
        seen = usual(self, names)
        return replace(seen, checkpoint=None) if seen.commits_since else seen

    patch(SimTable, "view", view)


def _all_reset_when_one_lost_its_prefix(patch: Patch) -> None:
    usual = writes.skip

    def skip(view: Any, changed: Any, gaps: Any) -> Any:
        anew = {
            source: PartitionState(state.topic_id, 0, 0, state.generation + 1) for source, state in view.states.items()
        }
        return usual(view, {**anew, **changed}, gaps)

    patch(writes, "skip", skip)


def _plans(change: Callable[[dict[str, Any]], None]) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        usual = planning.assigned

        def assigned(*arguments: Any) -> Any:
            slices = dict(usual(*arguments).slices)
            change(slices)
            return replace(usual(*arguments), slices=slices)

        patch(planning, "assigned", assigned)

    return apply


def _slice_for_nobody(slices: dict[str, Any]) -> None:
    incarnation = max(slices)
    if len(slices[incarnation]) > 1:
        slices[incarnation] = slices[incarnation][:-1]


def _slice_for_two(slices: dict[str, Any]) -> None:
    first, last = min(slices), max(slices)
    slices[first] = tuple(sorted({*slices[first], slices[last][0]}))


def _failed_slices_reported_as_written(patch: Patch) -> None:
    usual = Participant._status

    def status(self: Participant, operation: Any, outcome: Any) -> Any:
        said = usual(self, operation, outcome)
        if said.failure is None:
            return said
        results = tuple(SliceResult(piece, piece.size, 0) for piece in operation.slices)
        return WriteStatus(said.number, said.incarnation, results, tuple(stat_of(r.slice) for r in results))

    patch(Participant, "_status", status)


def _aborted_ranges_become_after(patch: Patch) -> None:
    usual = transactions.settled
    patch(transactions, "settled", lambda states, header: usual(states, replace(header, phase=Phase.COMMITTED)))


def _later_ranges_dropped_with_the_first(patch: Patch) -> None:
    usual = transactions.settled

    def settled(states: Any, header: Any) -> Any:
        return {source: replace(state, open=()) for source, state in usual(states, header).items()}

    patch(transactions, "settled", settled)


def _gaps_left_out_of_the_checkpoint(patch: Patch) -> None:
    usual = transactions.checkpoint
    patch(transactions, "checkpoint", lambda *arguments: replace(usual(*arguments), gaps=()))


def _topic_ids_ignored(patch: Patch) -> None:
    usual = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, *arguments: Any) -> Any:
        if recorded is not None and observed is not None:
            observed = replace(observed, topic_id=recorded.topic_id)
        return usual(source, recorded, observed, *arguments)

    patch(offsets, "reconcile", reconcile)


def _replace(patch: Patch, usual: Any, other: Any) -> None:
    """Another rule in the place of one."""
    patch(coordinator, "RULES", tuple(other if rule is usual else rule for rule in coordinator.RULES))


def _without(dropped: Any) -> Callable[[Patch], None]:
    return lambda patch: patch(coordinator, "RULES", tuple(rule for rule in coordinator.RULES if rule is not dropped))


def _gap_skipped_under_fail(patch: Patch) -> None:
    usual = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, policy: Any, reset: Any) -> Any:
        return usual(source, recorded, observed, offsets.DataLossPolicy.SKIP, reset)

    patch(offsets, "reconcile", reconcile)


def _begins_at_the_end(patch: Patch) -> None:
    usual = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, policy: Any, _: Any) -> Any:
        return usual(source, recorded, observed, policy, OffsetReset.LATEST)

    patch(offsets, "reconcile", reconcile)


def _gap_to_the_end(patch: Patch) -> None:
    usual = offsets._lost_prefix

    def lost_prefix(source: Any, recorded: Any, _: int, end: int, policy: Any) -> Any:
        return usual(source, recorded, end, end, policy)

    patch(offsets, "_lost_prefix", lost_prefix)


def _planned_though_halted(patch: Patch) -> None:
    usual = opening.plan

    def plan(term: Term) -> Any:
        seen = term.now
        term.view = blind = replace(seen, halt=None)
        operation = usual(term)
        if term.view is blind:
            term.view = seen
        return operation

    _replace(patch, usual, plan)


def _term_not_checked(patch: Patch) -> None:
    usual = upkeep.check_term

    def check(term: Term) -> Any:
        vars(term)["resign"] = lambda _reason: None
        usual(term)
        del vars(term)["resign"]

    _replace(patch, usual, check)


def _never_published_again(patch: Patch) -> None:
    patch(planner, "_must_publish", lambda *_: False)


def _several_writers(patch: Patch) -> None:
    usual = planning.assigned

    def assigned(*arguments: Any) -> Any:
        return usual(*arguments[:-1], None)

    patch(planning, "assigned", assigned)


def _epoch_from_zookeeper_alone(patch: Patch) -> None:
    usual = upkeep.raise_epoch

    def raise_epoch(term: Term) -> Any:
        if term.epoch is not None:
            return None
        table, term.table = term.table, None
        operation = usual(term)
        term.table = table
        return operation

    _replace(patch, usual, raise_epoch)


def _file_left_out(patch: Patch) -> None:
    usual = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = usual(self)
        return replace(op, stats=op.stats[:-1]) if isinstance(op, Complete) and self._requests % 2 else op

    patch(Coordinator, "_next", next_)


def _columns_before_the_log(patch: Patch) -> None:
    def look_up(self: Effects, seen: LogView, then: Callable[[Any], None]) -> None:
        world, columns = self._world, str(self._world.log.schema)
        topics = tuple({source.topic for source in seen.partitions})
        world.after(self._gap(), lambda: then(Done(replace(world.log.view(topics), columns=columns))))

    patch(Effects, "_look_up_columns", look_up)


def _operations_without_columns(kind: type[Any]) -> Callable[[Patch], None]:
    owner = Coordinator if kind is Complete else Participant

    def apply(patch: Patch) -> None:
        usual = owner._next

        def next_(self: Any) -> Any:
            op = usual(self)
            return replace(op, columns="") if isinstance(op, kind) else op

        patch(owner, "_next", next_)

    return apply


def _truncation_ignored(patch: Patch) -> None:
    usual = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, *arguments: Any) -> Any:
        if recorded is not None and observed is not None:
            observed = replace(observed, end=max(observed.end, recorded.planned_end))
        return usual(source, recorded, observed, *arguments)

    patch(offsets, "reconcile", reconcile)


def _content_of_others_believed(patch: Patch) -> None:
    usual = codec.from_bytes
    patch(codec, "from_bytes", lambda data, place, build, *_: usual(data, place, build))


def _compared_once_a_term(patch: Patch) -> None:
    usual = upkeep.compare

    def compare(term: Term) -> Any:
        return usual(term) if term.checkpoint_seen is None else None

    _replace(patch, usual, compare)


def _any_configuration_may_join(patch: Patch) -> None:
    patch(Process, "_fits", lambda self: True)  # noqa: ARG005


def _committed_though_records_are_lost(patch: Patch) -> None:
    patch(Term, "damage", lambda *_: None)


def _nothing_forgotten(patch: Patch) -> None:
    class Kept(dict):  # type: ignore[type-arg]
        def __delitem__(self, key: object) -> None:
            pass

    usual = Term.__init__

    def init(self: Term, config: Any) -> None:
        usual(self, config)
        self.memory = Kept()

    patch(Term, "__init__", init)


def _never_divided(patch: Patch) -> None:
    patch(planning, "divided", lambda *_: {})


def _retry_by_the_same_writer(patch: Patch) -> None:
    usual = planning.assigned

    def assigned(slices: Any, members: Any, writers: Any, left_out: Any, attempt: int, single: Any) -> Any:
        return usual(slices, members, writers, (), 1, single)

    patch(planning, "assigned", assigned)


def _same_deadline_for_every_attempt(patch: Patch) -> None:
    usual = planner.new_header

    def new_header(view: Any, table: Any, config: Any, *rest: Any) -> Any:
        return replace(usual(view, table, config, *rest), timeout=config.timeout)

    patch(planner, "new_header", new_header)


def _older_table_accepted(patch: Patch) -> None:
    usual = recovery.compare

    def compare(*arguments: Any) -> Any:
        found = usual(*arguments)
        return recovery.InStep() if isinstance(found, recovery.Ahead) else found

    patch(recovery, "compare", compare)


def _table_as_read_before_the_epoch(patch: Patch) -> None:
    usual = Coordinator._written

    def written(self: Coordinator) -> None:
        table = self._term.table
        usual(self)
        self._term.table = table

    patch(Coordinator, "_written", written)


def _held_ids_not_asked_for(patch: Patch) -> None:
    usual = Term.remember

    def remember(self: Term, number: int) -> Any:
        memory = usual(self, number)
        memory.unheld = True
        return memory

    patch(Term, "remember", remember)


def _slices_for_who_drains(patch: Patch) -> None:
    def eligible(members: Any, excluded: Any) -> Any:
        return tuple(m for m in sorted(members) if m.worker not in excluded) or tuple(sorted(members))

    patch(assignment, "eligible", eligible)


def _office_kept_though_nothing_works(patch: Patch) -> None:
    patch(Backoff, "exhausted", lambda self: None)  # noqa: ARG005


LATE = {"late": 0.1, "lost": 0.02, "answer_lost": 0.05}
DEATHS = {"crashes": 0.3, "expiries": 0.2, "workers": 3}
PAUSES = {"pauses": 0.5, "pause_at": 0.02, "workers": 3}
POISON = {"poisoned": True, "workers": 2}
WIPES = {"wipes": 0.08}
MIXED = {"mixed": True, "workers": 3, "crashes": 0.3}
TWO = {"in_flight": 2}
BAD = {"bad": 0.2}
HANDS = {"tampering": 0.5, "busy": 40.0}
LOSSES = {"data_loss": 0.2, "policy": offsets.DataLossPolicy.FAIL}
OLDER = {"table_restores": 0.05, "tampering": 0.0, "busy": 40.0}
SLOW = {"write_seconds": 10.0, "write_timeout": 4.0, "workers": 1, "slice_records": 50, "flush_size": 20}
TOO_MUCH = {"capacity": 150, "flush_size": 1000, "workers": 1}
LONG = {"busy": 200.0, "crashes": 0.0, "expiries": 0.0, "capacity": 0, "partitions": 2}
ADDED = {"reset": OffsetReset.LATEST, "new_partitions": 0.5}
GAPS = {"data_loss": 0.2, "policy": offsets.DataLossPolicy.SKIP}
EVOLVING = {"evolutions": 1.0}

CAUGHT: tuple[Mutant, ...] = (
    Mutant(
        "drop the lock and the epoch from the fence",
        _without_checks((f"{tree.ELECTION}/", tree.EPOCH)),
        faults=PAUSES,
    ),
    Mutant("drop the lock from the fence", _without_checks((f"{tree.ELECTION}/",)), faults=PAUSES),
    Mutant("set a header whatever its version", _versions_ignored(tree.TRANSACTIONS + "/"), faults=LATE),
    Mutant("complete without PREPARED", _complete_without_prepared),
    Mutant("roll back a prepared instant at takeover", _roll_back_a_prepared_instant, faults=DEATHS),
    Mutant("count statuses instead of comparing sets", _any_status_completes),
    Mutant("accept an old answer", _old_answers_accepted, faults={"duplicate_answer": 0.3, **LATE}),
    Mutant("guess on unknown", _unknown_taken_for_done, faults=LATE),
    Mutant("write less than was recorded", _retry_cut_anew),
    Mutant("re-slice a retry", _retry_cut_finer, faults=DEATHS),
    Mutant("AFTER before the commit", _after_before_the_commit),
    Mutant("roll back an orphan without a record", _orphans_without_a_record, faults={**DEATHS, **LATE}),
    Mutant("end an aborted transaction without its rollback", _aborted_without_rollback, faults=DEATHS),
    Mutant("compare with the table once a term", _compared_once_a_term, 60, faults=HANDS),
    Mutant("go on with a transaction of an older epoch", _without(advance.abort_superseded), faults=DEATHS),
    Mutant("a checkpoint of only what moved", _checkpoint_of_what_moved),
    Mutant("miss no participant and no deadline", _nobody_is_missed, faults=DEATHS),
    Mutant("never compare with the table", _table_never_compared, faults=WIPES),
    Mutant("skip a gap without declaring it", _gap_not_declared, faults=GAPS),
    Mutant("skip a gap under the old generation", _gap_under_the_old_generation, faults=GAPS),
    Mutant("a settled instant is still an orphan", _settled_is_still_an_orphan),
    Mutant("never let go of a prepared instant", _rolled_back_taken_for_failed),
    Mutant("start an old transaction again", _header_written_as_planned, faults=DEATHS),
    Mutant("forget what was recorded", _recorded_ranges_forgotten, faults=DEATHS),
    Mutant("forget a change that is told of during a reading", _without(upkeep.read_keeper_again), 100),
    Mutant("read only the newest commit", _only_the_newest_commit_read, faults={"foreign_commits": 1.0}),
    Mutant("reset every partition when one lost its prefix", _all_reset_when_one_lost_its_prefix, faults=GAPS),
    Mutant("plan a slice for nobody", _plans(_slice_for_nobody)),
    Mutant("plan a slice for two", _plans(_slice_for_two)),
    Mutant("report failed slices as written", _failed_slices_reported_as_written, faults={"slices_fail": 0.5}),
    Mutant("AFTER for what was aborted", _aborted_ranges_become_after, faults=DEATHS),
    Mutant("drop the later ranges with the first", _later_ranges_dropped_with_the_first, faults=TWO),
    Mutant("leave gaps out of the checkpoint", _gaps_left_out_of_the_checkpoint, faults=GAPS),
    Mutant("take a recreated topic for the old one", _topic_ids_ignored, 100, faults={"recreations": 0.1}),
    Mutant("take a truncated log for the whole one", _truncation_ignored, 100, faults={"truncations": 0.1}),
    Mutant("keep the office though nothing works", _office_kept_though_nothing_works, faults=POISON),
    Mutant("believe what no worker wrote", _content_of_others_believed, 200, faults={**GAPS, **HANDS}),
    Mutant("commit though its records are lost", _committed_though_records_are_lost, 200, faults=HANDS),
    Mutant("skip a gap though told to halt", _gap_skipped_under_fail, faults=LOSSES),
    Mutant("an epoch below the table's", _epoch_from_zookeeper_alone, 60, faults=WIPES),
    Mutant("leave orphans pending", _without(opening.abort_orphans), faults=DEATHS),
    Mutant("leave plans that never counted", _without(upkeep.tidy), faults={**DEATHS, "small_multis": True}),
    Mutant("complete with a file left out", _file_left_out),
    Mutant("look up the columns before the log's ends", _columns_before_the_log, faults=EVOLVING),
    Mutant("write other columns than the transaction's", _operations_without_columns(WriteSlices), faults=EVOLVING),
    Mutant("commit without the columns of the files", _operations_without_columns(Complete), faults=EVOLVING),
    Mutant("report a status without a fence", _status_without_a_fence, faults=DEATHS),
    Mutant("join beside another configuration", _any_configuration_may_join, faults=MIXED),
    Mutant("forget nothing", _nothing_forgotten, faults=LONG),
    Mutant("never divide a batch", _never_divided, faults=TOO_MUCH),
    Mutant("let the same worker try again", _retry_by_the_same_writer, faults=POISON),
    Mutant("the same deadline for every attempt", _same_deadline_for_every_attempt, faults=SLOW),
    Mutant("go on over a table that is older than it was", _older_table_accepted, faults=OLDER),
    Mutant("remember what has ended", _without(upkeep.check_term), faults=PAUSES),
    Mutant("begin at the end of the log", _begins_at_the_end, faults={"reset": OffsetReset.EARLIEST}),
    Mutant("begin an added partition at its end", _begins_at_the_end, faults=ADDED),
    Mutant("skip more than was lost", _gap_to_the_end, faults=GAPS),
    Mutant("plan though halted", _planned_though_halted, 100, faults={"truncations": 0.1}),
    Mutant("several writers where one has to write", _several_writers, faults={"single_writer": True, "workers": 3}),
    Mutant("never publish the checkpoint again", _never_published_again, faults={"foreign_commits": 1.0}),
    Mutant("PREPARED before the predecessor is COMMITTED", _next_prepared_too_early, 200, faults=TWO),
    Mutant("complete without publishing bad records", _bad_records_not_published, faults=BAD),
    Mutant("let any number of records be bad", _any_number_may_be_bad, faults={**BAD, "errors_max": 10}),
    Mutant("leave the configuration unsaid", _without(upkeep.stamp_config), faults=MIXED),
)

SURVIVORS: tuple[Mutant, ...] = (
    Mutant(
        "the table as it was before the epoch was raised",
        _table_as_read_before_the_epoch,
        faults={**PAUSES, **LATE},
        covered_by="what an older coordinator completed meanwhile is found out by the check of the base at the latest,"
        " which costs an attempt",
    ),
    Mutant(
        "never ask for held file ids",
        _held_ids_not_asked_for,
        faults={**WIPES, **GAPS},
        covered_by="the recorded generation, which every gap and every reset raises; the check is against one that was"
        " put back by hand, and against a second sink of the same name",
    ),
    Mutant(
        "give slices to who drains",
        _slices_for_who_drains,
        faults={"drains": 0.5, "workers": 3},
        covered_by="who drains writes what it was given before it leaves, or is missed; the rule saves that attempt",
    ),
    Mutant(
        "extend any base",
        _any_base_will_do,
        faults={**TWO, **PAUSES},
        covered_by="an instant whose base is not the newest is rolled back, or does not fit what is on record, before"
        " it can be completed; the check is against a second fleet on another ZooKeeper, which is not simulated",
    ),
    Mutant(
        "set a shard whatever its version",
        _versions_ignored(tree.PARTITIONS),
        faults=LATE,
        covered_by="the same multi sets the ledger, at its version",
    ),
    Mutant(
        "order the shards of a division by nothing",
        _shards_not_ordered_by_the_ledger,
        faults={"slices_fail": 0.6, **LATE},
        covered_by="a transaction is committed only with the ranges on record",
    ),
    Mutant(
        "complete without asking ZooKeeper",
        _completion_without_zookeeper,
        faults=PAUSES,
        covered_by="the table refuses an instant that is complete or rolled back, or does not extend its newest",
    ),
    Mutant(
        "stay in an office that has passed on",
        _term_not_checked,
        faults=PAUSES,
        covered_by="every write names the term's own contender and epoch, and is refused; the rule spares the tries",
    ),
    Mutant(
        "drop the epoch from the fence",
        _without_checks((tree.EPOCH,)),
        faults=PAUSES,
        covered_by="the lock's znode stands in the same fence",
    ),
)
"""Not caught within 150 seeds, for each rule is covered by another that is still in force."""
