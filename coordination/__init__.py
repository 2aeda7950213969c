"""The protocol by which a fleet of workers lands the records of a log in a table, each exactly once.

THEORY OF OPERATION

The truth. A commit of the table carries two things at once: files, and the offsets that the files hold (the
*checkpoint*). A reader of the newest commit knows what has landed. ZooKeeper holds *intent* only: which offsets are
about to land, who writes them, and how far that has come. If both disagree, the table is right, or the sink halts.

One writer decides. A lock elects one worker as *coordinator*. Its term raises the *epoch*, and each write of a
coordinator is one multi that checks its lock's znode, the epoch, and the version of every znode that it replaces. A
coordinator that was replaced without knowing it writes nothing any more. All workers are *participants*, the
coordinator's too: they write files, and say in a *write status* what they have written. Files mean nothing before a
commit names them.

A transaction goes through five phases; `state.phases` has the table of them.

    PLANNED    The ranges of all partitions are recorded as BEFORE, cut into slices, and given to participants.
    STARTED    A Hudi instant has begun. Participants read exactly their slices and write files under that instant.
    PREPARED   Each slice is accounted for. This is the decision: one compare-and-set on one znode.
    COMMITTED  The instant is complete, with all files and the checkpoint. The partitions become AFTER.
    ABORTED    The instant is rolled back, or about to be. The same slices are planned again as the next attempt.

Before PREPARED anything may fail, and costs an attempt. From PREPARED on each coordinator does the same, in any term:
it completes that instant. The only way back is proof, found under the table's lock, that the instant can no longer
complete as it is. That lock is Hudi's own. Under it the coordinator looks last at what must be true: the instant is
pending, the newest checkpoint is the one that this transaction extends, each slice begins where the checkpoint ends,
and lock, epoch and header are still in force. Then it completes. Between that look and the completion no other writer
can commit, and none of this fleet can begin another decision.

Retries are repetitions. A batch is recorded once, with its slices and their grouping into write tasks; an attempt at it
is a transaction. What a slice holds follows from topic id, partition, offsets and *generation*, and so do the names of
its files. A second attempt forms the same files; a file id that the table has already is refused. A generation rises
when offsets get another meaning: a reset, a skipped gap, a replay. So no two commits can ever mean the same records by
other names, nor other records by the same.

What the record says of a partition, against what its log says now, is a small algebra (`planning.offsets`): New, Same,
Overlapping, Contains, Crop, and two that halt or skip: LostPrefix and Invalid. A log is recognised, not trusted: by the
cluster's id, the topic's id, and an *anchor*, the last record that was read, by its hash.

Level, not edge. A machine keeps no script of what it was about to do. It holds what it last read of ZooKeeper, table
and log; the first of its rules that has something to say gives its next request, and there is one request at a time
(`machines.coordinator.RULES`). After an answer that is no, or no answer, it reads again. So a takeover needs no rules
of its own, and neither does an unknown outcome: *unknown is not failed*.

The shell. Everything here is pure but `zookeeper`: no clock, no thread, no server. A machine is `step(event) ->
effects`. The shell (`sink.runtime`) carries the effects out, and answers `Done` only for what it saw happen, `Refused`
for what was not done for a reason, `Failed` for what certainly was not done, and `Unknown` for the rest. Time, workers
and failures come in as events. That is why a simulator can run the same machines through millions of schedules, with
clocks that jump, processes that die between any two requests, and writes that arrive late.

What ends it. A halt: the sink has met something that no attempt will change, and that a person must decide. A halt has
a kind (`state.failures`), and the runbook a row for each kind. Operators ask through one znode (`state.control`):
pause, flush, switchover, drain. Commands that commit themselves (a replay, a repair) take the coordinator's place for
that time, with an epoch of their own.

The rooms, each of which knows only those behind it:

    machines    Coordinator and participant: rules over readings, one function for each phase.
    planning    What the next transaction is: offsets, slices, write tasks, who writes which, what is tolerated.
    state       The values: transactions, partitions, checkpoints, failures, messages, and the znodes' text.
    zookeeper   Reads snapshots and writes fenced multis, elects, and keeps the records beside the protocol.
    errors      What is raised across rooms: each says whether trying again can help.
"""
