"""Named ways to break the protocol. Each must be caught by some invariant within a stated number of seeds.

A mutant that survives means a missing fault or a needless rule; docs/how-it-works.md states the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from coordination.machines import advance, housekeeping, opening
from coordination.planning import offsets
from coordination.planning.offsets import OffsetReset
from coordination.state import tree
from coordination.state.messages import Complete, WriteTasks
from tests.simulation import broken_decisions as decisions
from tests.simulation import broken_machines as machines
from tests.simulation import broken_reads as reads
from tests.simulation import broken_repairs as repairs
from tests.simulation import broken_resets as resets
from tests.simulation import broken_table as table
from tests.simulation import broken_tasks as tasks
from tests.simulation import broken_verbs as verbs
from tests.simulation.broken_decisions import Patch
from tests.simulation.faults import Profile


@dataclass(frozen=True)
class Mutant:
    """`faults` are the profile's values without which the rule does not matter; the seed draws all others."""

    name: str
    apply: Callable[[Patch], None]
    seeds: int = 40
    faults: dict[str, Any] | None = None
    first: int = 0
    """The first seed, where the rule's case occurs only after many seeds, or after slow ones."""
    covered_by: str = ""
    """The rule that replaces the broken one, where no invariant shows that it is broken."""

    def profile(self, drawn: Profile) -> Profile:
        return replace(drawn, **{**NEWER, **(self.faults or {})})


NEWER = dict.fromkeys(
    (
        *("planned_restores", "planned_rollbacks", "savepoints", "other_clusters", "unclean_elections", "replacements"),
        *("elections", "open_transactions", "damages"),
    ),
    0.0,
)
"""Faults that are newer than most mutants, whose seeds they would move: they happen only where a mutant names them."""


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


LATE = {"late": 0.1, "lost": 0.02, "answer_lost": 0.05}
DEATHS = {"crashes": 0.3, "expiries": 0.2, "workers": 3}
PAUSES = {"pauses": 0.5, "pause_at": 0.02, "workers": 3}
POISON = {"poisoned": True, "workers": 2}
WIPES = {"wipes": 0.08}
MIXED = {"mixed": True, "workers": 3, "crashes": 0.3}
SMALL = {"small_multis": True}
TWO = {"in_flight": 2}
BAD = {"bad": 0.2}
STORE = {"table_cuts": 0.3, "store_is_known": True, "tampering": 0.0}
TAMPERING = {"tampering": 0.5, "busy": 40.0, "operated": 0.0}
EDITED = {**TAMPERING, "truncations": 0.0, "recreations": 0.0}
AHEAD = {**TAMPERING, **TWO, "flush_size": 20, "interval": 0.5}
LOSSES = {"data_loss": 0.2, "policy": offsets.DataLossPolicy.FAIL}
OLDER = {"table_restores": 0.05, "tampering": 0.0, "busy": 40.0, "operated": 0.0}
SLOW = {"write_seconds": 10.0, "write_timeout": 4.0, "workers": 1, "slice_records": 50, "flush_size": 20}
TOO_MUCH = {"capacity": 150, "flush_size": 1000, "workers": 1}
LONG = {"busy": 200.0, "crashes": 0.0, "expiries": 0.0, "capacity": 0, "partitions": 2}
MATCHED = {"reset": OffsetReset.LATEST, "new_topics": 0.3}
DELETED = {"new_topics": 0.3, "deletions": 0.2, "tampering": 0.0, "table_restores": 0.0}
ADDED = {"reset": OffsetReset.LATEST, "new_partitions": 0.5}
GAPS = {"data_loss": 0.2, "policy": offsets.DataLossPolicy.SKIP}
EVOLVING = {"evolutions": 1.0}
OPERATED = {"operated": 0.1, "recreations": 0.05, "tampering": 0.0, "table_restores": 0.0}
BACKUPS = {
    **GAPS,
    "restores": 0.2,
    "foreign_rollbacks": 0.5,
    "slices_fail": 0.3,
    "busy": 60.0,
    "operated": 0.0,
    "tampering": 0.0,
}
RESTORED = {**OPERATED, **GAPS, "operated": 0.5, "table_restores": 0.05}
PIECEMEAL = {**OPERATED, "operated": 0.5, "recreations": 0.0, "small_multis": True, "partitions": 12}
PAUSED = {"sink_pauses": 0.2, "operated": 0.0, "tampering": 0.0}
FLUSHED = {"flushes": 0.5, "flush_only": True, "flush_size": 1000, "operated": 0.0, "tampering": 0.0}
SWITCHED = {"switchovers": 0.3, "workers": 3, "operated": 0.0, "tampering": 0.0}
RESTORING = {"planned_restores": 0.3, "foreign_commits": 0.5, "tampering": 0.0}
RESTORED_AND_ARCHIVED = {**RESTORING, "savepoints": 1.0, "operated": 0.0}
AHEAD_OF_TIME = {"clock_jumps": 0.3, "crashes": 0.2, "workers": 3}
COMPACTED_AHEAD = {"clock_jumps": 0.3, "foreign_commits": 1.0, "workers": 3}
PLANNED_ROLLBACKS = {"planned_rollbacks": 0.5, "write_seconds": 1.0}
DAMAGED = {"damages": 0.5, "tampering": 0.0, "operated": 0.0, "workers": 2, "partitions": 2, "topics": 1}
BEYOND = {"savepoints": 1.0, "foreign_commits": 0.5, "tampering": 0.0, "operated": 0.0}
RECREATED = {"replacements": 0.3, "trusting_readers": True, "write_seconds": 2.5, "tampering": 0.0}
MISLED = {"other_clusters": 0.3, "trusting_readers": True, "workers": 3, "tampering": 0.0}
CLONED = {**MISLED, "is_cloned": True}
UNCLEAN = {"unclean_elections": 0.1, "hole": 0.0, "tampering": 0.0}
OPEN = {"open_transactions": 0.5}
ASKED_TO_LEAVE = {"drain_requests": 0.4, "workers": 3}

CAUGHT: tuple[Mutant, ...] = (
    Mutant(
        "drop the lock and the epoch from the fence",
        machines.without_checks((f"{tree.ELECTION}/", tree.EPOCH)),
        faults=PAUSES,
    ),
    Mutant("drop the lock from the fence", machines.without_checks((f"{tree.ELECTION}/",)), faults=PAUSES),
    Mutant("set a header whatever its version", machines.versions_ignored(tree.TRANSACTIONS + "/"), faults=LATE),
    Mutant("complete without PREPARED", machines.complete_without_prepared),
    Mutant("roll back a prepared instant at takeover", machines.roll_back_a_prepared_instant, faults=DEATHS),
    Mutant("count statuses instead of comparing sets", decisions.any_status_completes, first=3),
    Mutant("accept an old answer", machines.old_answers_accepted, faults={"duplicate_answer": 0.3, **LATE}),
    Mutant("guess on unknown", machines.unknown_taken_for_done, faults=LATE),
    Mutant("write less than was recorded", decisions.retry_cut_anew),
    Mutant("re-slice a retry", decisions.retry_cut_finer, faults=DEATHS),
    Mutant("AFTER before the commit", machines.after_before_the_commit),
    Mutant("roll back an orphan without a record", machines.orphans_without_a_record, faults={**DEATHS, **LATE}),
    Mutant("end an aborted transaction without its rollback", machines.aborted_without_rollback, faults=DEATHS),
    Mutant(
        "plan ahead of the comparison with the table",
        machines.planned_ahead_unchecked,
        90,
        faults=AHEAD,
        first=230,
    ),
    Mutant("hear of no admission", machines.admission_not_heard, faults={"admission": True}),
    Mutant("compare with the table once a term", machines.compared_once_a_term, 60, faults=TAMPERING, first=325),
    Mutant("go on with a transaction of an older epoch", machines.without(advance.abort_superseded), faults=DEATHS),
    Mutant("a checkpoint of only what moved", decisions.checkpoint_of_moved_partitions),
    Mutant("miss no participant and no deadline", decisions.nobody_is_missed, faults=DEATHS),
    Mutant("never compare with the table", decisions.table_never_compared, faults=WIPES),
    Mutant("skip a gap without declaring it", decisions.gap_not_declared, faults=GAPS),
    Mutant("skip a gap under the old generation", decisions.gap_under_the_old_generation, faults=GAPS),
    Mutant("a settled instant is still an orphan", machines.settled_is_still_an_orphan),
    Mutant("never let go of a prepared instant", machines.rolled_back_taken_for_failed),
    Mutant("start an old transaction again", decisions.header_written_as_planned, faults=DEATHS),
    Mutant("forget what was recorded", decisions.recorded_ranges_forgotten, faults=DEATHS),
    Mutant(
        "forget a change that is told of during a reading",
        machines.without(housekeeping.read_keeper_again),
        100,
        first=14,
    ),
    Mutant("read only the newest commit", decisions.only_the_newest_commit_read, faults={"foreign_commits": 1.0}),
    Mutant(
        "reset every partition when one lost its prefix",
        decisions.all_reset_when_one_lost_its_prefix,
        faults=GAPS,
        first=4,
    ),
    Mutant("plan a write task for nobody", decisions.plans(decisions.task_for_nobody)),
    Mutant("plan a write task for two", decisions.plans(decisions.task_for_two)),
    Mutant("group slices by the assignment", tasks.grouped_by_the_assignment),
    Mutant("group slices by live settings", tasks.grouped_by_live_settings),
    Mutant("group slices from a partial reading", tasks.grouped_from_a_partial_reading, faults=DEATHS),
    Mutant("as many write tasks as slices", tasks.as_many_tasks_as_slices),
    Mutant("a slice in two write tasks", tasks.slice_in_two_tasks),
    Mutant("a slice in no write task", tasks.slice_in_no_task),
    Mutant("take a slice that is reported twice", tasks.reported_twice),
    Mutant("file ids of the first slice alone", tasks.file_id_from_the_first_slice, faults=TOO_MUCH),
    Mutant("commit files that no write task writes", tasks.files_of_no_task),
    Mutant("divide and keep the size of write tasks", tasks.division_that_keeps_the_size, faults=TOO_MUCH),
    Mutant("try again as it was what ran out of memory", tasks.tried_again_as_it_was, faults=TOO_MUCH),
    Mutant("hold no offsets against the table", tasks.offsets_unchecked_altogether, 200, faults=TAMPERING, first=28),
    Mutant("report failed slices as written", machines.failed_slices_reported_as_written, faults={"slices_fail": 0.5}),
    Mutant("AFTER for what was aborted", decisions.aborted_ranges_become_after, faults=DEATHS),
    Mutant("drop the later ranges with the first", decisions.later_ranges_dropped_with_the_first, faults=TWO),
    Mutant("settle by the write statuses", decisions.settled_by_the_write_statuses, 10, EDITED, first=45),
    Mutant("leave gaps out of the checkpoint", decisions.gaps_left_out_of_the_checkpoint, faults=GAPS),
    Mutant("take a recreated topic for the old one", decisions.topic_ids_ignored, 100, {"recreations": 0.1}, first=88),
    Mutant("take a truncated log for the whole one", decisions.truncation_ignored, 100, {"truncations": 0.1}, first=6),
    Mutant("keep the office though nothing works", machines.leadership_kept_though_nothing_works, faults=POISON),
    Mutant("believe what no worker wrote", decisions.content_not_validated, 200, {**GAPS, **TAMPERING}, first=80),
    Mutant("commit though its records are lost", machines.committed_though_records_are_lost, 200, TAMPERING, first=39),
    Mutant("skip a gap though told to halt", decisions.gap_skipped_under_fail, faults=LOSSES),
    Mutant("an epoch below the table's", machines.epoch_from_zookeeper_alone, 60, faults=WIPES, first=36),
    Mutant("leave orphans pending", machines.without(opening.abort_orphans), faults=DEATHS, first=1),
    Mutant(
        "leave plans that never counted",
        machines.without(housekeeping.delete_incomplete_plans),
        faults={**DEATHS, **SMALL},
    ),
    Mutant("complete with a file left out", machines.file_left_out),
    Mutant("look up the columns before the log's ends", decisions.columns_before_the_log, faults=EVOLVING, first=11),
    Mutant(
        "write other columns than the transaction's",
        machines.operations_without_columns(WriteTasks),
        faults=EVOLVING,
    ),
    Mutant("commit without the columns of the files", machines.operations_without_columns(Complete), faults=EVOLVING),
    Mutant("report a status without a fence", machines.status_without_a_fence, faults=DEATHS, first=14),
    Mutant("join beside another configuration", machines.any_configuration_may_join, faults=MIXED),
    Mutant("forget nothing", machines.nothing_forgotten, faults=LONG, first=1),
    Mutant("never divide a batch", decisions.never_divided, faults=TOO_MUCH),
    Mutant("let the same worker try again", decisions.retry_by_the_same_writer, faults=POISON),
    Mutant("the same deadline for every attempt", decisions.same_deadline_for_every_attempt, faults=SLOW),
    Mutant("go on over a table that is older than it was", decisions.older_table_accepted, faults=OLDER),
    Mutant("remember what has ended", machines.without(housekeeping.resign_if_superseded), faults=PAUSES, first=1),
    Mutant("begin at the end of the log", decisions.begins_at_the_end, faults={"reset": OffsetReset.EARLIEST}),
    Mutant("begin an added partition at its end", decisions.begins_at_the_end, faults=ADDED),
    Mutant("wait for a deleted topic", decisions.deleted_topics_awaited, faults=DELETED, first=3),
    Mutant("overlook topics that come to match", decisions.new_topics_overlooked, faults=MATCHED),
    Mutant("begin a topic that comes to match at its end", decisions.new_topics_begin_at_their_end, faults=MATCHED),
    Mutant("skip more than was lost", decisions.gap_to_the_end, faults=GAPS),
    Mutant("plan though halted", machines.planned_though_halted, 100, faults={"truncations": 0.1}),
    Mutant(
        "several writers where one has to write",
        decisions.several_writers,
        faults={"single_writer": True, "workers": 3},
    ),
    Mutant(
        "never publish the checkpoint again", decisions.never_published_again, faults={"foreign_commits": 1.0}, first=4
    ),
    # PREPARED before the predecessor is COMMITTED: one seed in millions; test_coordinator.py holds the rule.
    Mutant("count what the store made fail", decisions.faults_of_the_store_counted, faults=STORE),
    Mutant("write two at once", machines.two_are_written_at_once, faults=TWO),
    Mutant("complete without publishing bad records", machines.bad_records_not_published, faults=BAD),
    Mutant("let any number of records be bad", decisions.any_number_may_be_bad, faults={**BAD, "errors_max": 10}),
    Mutant(
        "believe a backup against the table", decisions.backup_believed_against_the_table, faults=BACKUPS, first=3008
    ),
    Mutant("a reset that leaves on record what is gone", resets.missing_partitions_stay_recorded, faults=OPERATED),
    Mutant(
        "a reset that leaves on record what was planned of a deleted topic",
        resets.deleted_stays_planned,
        faults=DELETED | OPERATED,
    ),
    Mutant("wait for no partition that a topic has no more", resets.nothing_is_awaited, faults=OPERATED),
    Mutant("a reset under the old generation", resets.under_the_old_generation, faults=OPERATED),
    Mutant("a reset over what is decided", resets.decided_transactions_abandoned, 150, faults=OPERATED, first=70),
    Mutant("a reset of nothing that ends half of another", resets.half_a_reset_counts, 9, faults=PIECEMEAL, first=2340),
    Mutant("a reset that declares no gap", resets.without_declaring_what_is_left_out, 100, faults=OPERATED),
    Mutant(
        "a reset of the half of a restored table",
        resets.some_left_beyond_a_restored_table,
        40,
        faults=RESTORED,
        first=170,
    ),
    Mutant("go on from the half of a reset", resets.unfinished_reset_unmarked, 150, faults=PIECEMEAL, first=376),
    Mutant("plan though paused", verbs.planned_though_paused, faults=PAUSED),
    Mutant(
        "open what was planned before the pause",
        verbs.opened_on_an_older_reading,
        200,
        faults={**PAUSED, **LATE},
        first=9,
    ),
    Mutant("a pause stops what is open", verbs.pause_stops_what_is_open, faults={"ends_paused": True}),
    Mutant("end a pause with the term", verbs.new_term_forgets_the_pause, faults=PAUSED),
    Mutant("an answer to one request drops the others", verbs.answer_overwrites_the_rest, faults={**PAUSED, **FLUSHED}),
    Mutant(
        "answer whatever was asked for since", verbs.answer_whatever_the_version, 200, {**PAUSED, **FLUSHED}, first=61
    ),
    Mutant("a flush waits for the interval", verbs.flush_waits_for_the_interval, faults=FLUSHED),
    Mutant("a flush is done once it is planned", verbs.flush_done_once_planned, faults=FLUSHED),
    Mutant("a flush of an older reading of the log", verbs.flush_of_an_older_reading, 150, faults=FLUSHED, first=160),
    Mutant("answer a flush at once", verbs.flush_answered_at_once, faults=FLUSHED),
    Mutant("never answer a flush", verbs.flush_never_answered, faults=FLUSHED),
    Mutant("tasks for who was asked to leave", verbs.tasks_for_workers_asked_to_leave, 200, faults=ASKED_TO_LEAVE),
    Mutant("stay though asked to leave", verbs.drain_request_ignored, faults=ASKED_TO_LEAVE),
    Mutant("plan though asked to yield", verbs.planned_though_asked_to_yield, faults=SWITCHED, first=3),
    Mutant("lead on though asked to yield", verbs.switchover_ignored, faults=SWITCHED, first=3),
    Mutant("drop a switchover", verbs.switchover_dropped, faults=SWITCHED),
    Mutant("never drop a switchover", verbs.switchover_never_dropped, faults=SWITCHED),
    Mutant("begin and complete while a restore is pending", table.pending_restores_ignored, faults=RESTORING),
    Mutant("commit files from before a restore", table.restores_since_ignored, faults=RESTORING, first=31),
    Mutant(
        "archive a restore that is not known yet", table.restores_archived_at_once, 400, faults=RESTORED_AND_ARCHIVED
    ),
    Mutant("begin before the newest completion", table.moments_ignored, faults=AHEAD_OF_TIME, first=5),
    Mutant("complete before its own time", table.requests_ignored, faults=AHEAD_OF_TIME, first=2),
    Mutant("complete before a compaction's time", table.plans_of_compactions_ignored, faults=COMPACTED_AHEAD),
    Mutant("fail where a rollback is planned", table.planned_rollback_is_a_failure, faults=PLANNED_ROLLBACKS),
    Mutant(
        "complete over a planned rollback", table.completed_over_a_planned_rollback, faults=PLANNED_ROLLBACKS, first=1
    ),
    Mutant("read the newest checkpoint of the active timeline", table.newest_of_the_active_timeline, faults=BEYOND),
    Mutant("believe every report of what was read", reads.every_report_believed, faults=MISLED, first=8),
    Mutant("report what was planned as read", reads.reported_as_planned, faults=MISLED, first=8),
    Mutant("go on reading from another topic", reads.change_within_a_range_unnoticed, faults=RECREATED),
    Mutant("compare no clusters", reads.clusters_not_compared, faults=CLONED, first=5),
    Mutant("lead from another cluster", reads.coordinators_cluster_not_compared, faults=CLONED, first=8),
    Mutant("halt for another cluster at once", reads.halted_though_others_could_lead, faults=MISLED),
    Mutant("compare no topic ids", reads.topic_ids_not_compared, faults=RECREATED, first=49),
    Mutant("read on in a log that has changed", reads.changed_log_read_on, faults=UNCLEAN, first=49),
    Mutant(
        "leave the last records out of the checkpoint",
        reads.anchors_left_out_of_the_checkpoint,
        faults={**UNCLEAN, **WIPES},
        first=31,
    ),
    Mutant("read an open transaction", reads.open_transactions_read, faults=OPEN, first=1),
    Mutant("land again without deleting", repairs.landed_without_deleting, faults=DAMAGED),
    Mutant("delete without landing again", repairs.deleted_without_landing, faults=DAMAGED),
    Mutant("repair under the epoch as it is", repairs.epoch_not_raised, faults=DAMAGED),
    Mutant("repair beside an open transaction", repairs.open_transactions_ignored, faults=DAMAGED),
    Mutant(
        "commit a repair without looking under the lock",
        repairs.nothing_checked_under_the_lock,
        faults=DAMAGED,
        first=30,
    ),
    Mutant("repair before ZooKeeper follows the table", repairs.zookeeper_left_behind_the_table, faults=DAMAGED),
    Mutant("leave the configuration unsaid", machines.without(housekeeping.record_config), faults=MIXED, first=3),
)

SURVIVORS: tuple[Mutant, ...] = (
    Mutant(
        "the table as it was before the epoch was raised",
        machines.table_as_read_before_the_epoch,
        faults={**PAUSES, **LATE},
        covered_by="the check of the base notices, at the latest, what an older coordinator completed meanwhile,"
        " which costs an attempt",
    ),
    Mutant(
        "compare no base under the lock before a repair is committed",
        repairs.base_not_checked_under_the_lock,
        faults=DAMAGED,
        covered_by="the fence in the same check: what another commits, it commits under a later epoch; the check is"
        " against a second fleet on another ZooKeeper, which is not simulated",
    ),
    Mutant(
        "never ask for held file ids",
        machines.existing_file_ids_not_checked,
        faults={**WIPES, **GAPS},
        covered_by="the recorded generation, which every gap and every reset raises; the check is against one that was"
        " put back by hand, and against a second sink of the same name",
    ),
    Mutant(
        "hold no offsets against the table under the lock",
        tasks.offsets_unchecked_under_the_lock,
        faults={**WIPES, **GAPS},
        covered_by="the coordinator compares the record with the table before PREPARED and before the commit, and the"
        " base under the lock; the check is against a plan cut anew from a reading that both took for complete",
    ),
    Mutant(
        "give slices to who drains",
        decisions.slices_for_draining_workers,
        faults={"drains": 0.5, "workers": 3},
        covered_by="a draining worker writes its slices before it leaves, or is missed; the rule saves that attempt",
    ),
    Mutant(
        "extend any base",
        decisions.any_base_accepted,
        faults={**TWO, **PAUSES},
        covered_by="an instant whose base is not the newest is rolled back, or does not fit what is on record, before"
        " it can be completed; the check is against a second fleet on another ZooKeeper, which is not simulated",
    ),
    Mutant(
        "set a shard whatever its version",
        machines.versions_ignored(tree.PARTITIONS),
        faults=LATE,
        covered_by="the same multi sets the ledger, at its version",
    ),
    Mutant(
        "order the shards of a division by nothing",
        decisions.shards_not_ordered_by_the_ledger,
        faults={"slices_fail": 0.6, **LATE},
        covered_by="a transaction is committed only with the ranges on record",
    ),
    Mutant(
        "complete without asking ZooKeeper",
        decisions.completion_without_zookeeper,
        faults=PAUSES,
        covered_by="the table refuses an instant that is complete or rolled back, or does not extend its newest",
    ),
    Mutant(
        "stay in an office that has passed on",
        machines.term_not_checked,
        faults=PAUSES,
        covered_by="every write names the term's own contender and epoch, and is refused; the rule spares the tries",
    ),
    Mutant(
        "drop the epoch from the fence",
        machines.without_checks((tree.EPOCH,)),
        faults=PAUSES,
        covered_by="the lock's znode stands in the same fence",
    ),
)
"""Mutants that 150 seeds do not catch, because another rule, still in force, covers each."""
