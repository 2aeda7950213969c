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

    PLANNED    The ranges of all partitions are recorded as BEFORE (not known to be committed) and cut into slices,
               which participants are assigned.
    STARTED    A Hudi instant has begun. Participants read exactly their slices and write files under that instant.
    PREPARED   Each slice is accounted for. This is the decision: one compare-and-set on one znode.
    COMMITTED  The instant is complete, with all files and the checkpoint. The ranges become AFTER (committed).
    ABORTED    The instant is rolled back, or about to be. The same slices are planned again as the next attempt.

Before PREPARED, a failure costs one attempt and nothing else. From PREPARED on, every coordinator, in any term, does
the same: it completes that instant. It aborts only with proof, found under Hudi's table lock, that the instant can no
longer complete as it is. Under that lock, just before it completes the instant, the coordinator checks that the instant
is pending, that the newest checkpoint is the one that this transaction extends, that each slice begins where that
checkpoint ends, and that its election lock, the epoch and the transaction's znode (the *header*) are unchanged. Between
the check and the completion no other writer can commit, and no other coordinator of this fleet can decide anything.

Retries are repetitions. A batch is recorded once, with its slices and their grouping into write tasks; an attempt at it
is a transaction. A batch that keeps failing is divided, once its rollback is confirmed. What a slice holds follows from
topic id, partition, offsets and *generation*, and so do the names of its files. A second attempt forms the same files;
a file id that the table has already is refused. A generation rises when offsets get another meaning: a reset, a skipped
gap, a replay. So two commits never hold the same records under different file names, nor different records under the
same name.

What the record says of a partition is compared with its log case by case (`planning.offsets`): New, Same, Overlapping,
Contains, Crop; LostPrefix, which halts or skips as `on.data.loss` says; and Invalid, which halts. A log is recognised,
not trusted: by the cluster's id, the topic's id, and an *anchor*, the last record that was read, by its hash.

Level-triggered, not edge-triggered. A machine keeps no script of its next steps. It holds its last readings of
ZooKeeper, table and log. The first of its rules that applies gives the next request (`machines.coordinator.RULES`), and
one request is open at a time. After a refusal, a failure or an unknown outcome it reads again. So a takeover needs no
rules of its own, and neither does an unknown outcome: *unknown is not failed*.

The shell. Everything here is pure but `zookeeper`: no clock, no thread, no server. A machine is `step(event) ->
effects`. The shell (`sink.runtime`) carries the effects out, and answers `Done` only for what it saw happen, `Refused`
for what was not done for a reason, `Failed` for what certainly was not done, and `Unknown` for the rest. Time, workers
and failures come in as events. That is why a simulator can run the same machines through millions of schedules, with
clocks that jump, processes that die between any two requests, and writes that arrive late.

What stops a sink. A halt: no further attempt can help, and a person must decide. Each halt has a kind
(`state.failures.HaltKind`), and the runbook has an entry for each kind. Operators ask through one znode
(`state.control`): pause, flush, switchover, drain. A replay or a repair commits by itself: meanwhile it holds the
election lock and an epoch of its own.

The rooms. Each may import those below it; `machines` and `zookeeper` do not know each other:

    machines    Coordinator and participant: rules over readings, one function for each phase.
    zookeeper   Reads snapshots and writes fenced multis, elects, and keeps the records beside the protocol.
    planning    What the next transaction is: offsets, slices, write tasks, who writes which, what is tolerated.
    state       The values: transactions, partitions, checkpoints, failures, messages, and the znodes' text.
    errors      What is raised across rooms: each says whether trying again can help.
"""
