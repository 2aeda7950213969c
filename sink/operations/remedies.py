"""Findings: each describes a fault of a sink and its remedy, as in `docs/runbook.md`.

Pure; raises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordination.state.failures import HaltKind

RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True, slots=True)
class Remedy:
    """`section` is the anchor in the runbook."""

    cause: str
    do: str
    section: str


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    text: str
    do: str = ""
    section: str = ""
    """The anchor in the runbook."""

    def to_json(self) -> dict[str, str]:
        page = f"{RUNBOOK}#{self.section}" if self.section else ""
        return {"kind": self.kind, "text": self.text, "do": self.do, "page": page}


_HALTS: Mapping[HaltKind, Remedy] = {
    HaltKind.TOO_MANY_BAD_RECORDS: Remedy(
        "too many bad records: a wrong schema, or a bad producer",
        "Correct the schema, or raise errors.max.per.transaction or errors.max.ratio on all workers. Stop all"
        " workers, run `sink reset --yes`, start them: the same offsets are read again.",
        "halt-too-many-bad-records",
    ),
    HaltKind.BAD_RECORDS_GONE: Remedy(
        "somebody deleted bad records before they were published",
        "Stop all workers, roll the instant back with Hudi's tools, run `sink reset --yes`, start the workers: the"
        " transaction is re-formed.",
        "halt-bad-records-gone",
    ),
    HaltKind.OFFSETS_DELETED: Remedy(
        "Kafka's retention was shorter than the standstill: records are lost",
        "Raise the topic's retention. Set on.data.loss=skip on all workers, stop them, run `sink reset --yes`,"
        " start them: the gap is recorded. Set it back later.",
        "halt-offsets-deleted",
    ),
    HaltKind.TOPIC_RECREATED: Remedy(
        "another topic has the name now",
        "To go on with the new topic: stop all workers, run `sink reset --to earliest --topic NAME --yes`, start them.",
        "halt-topic-recreated",
    ),
    HaltKind.PARTITIONS_GONE: Remedy(
        "the topic was created again with fewer partitions, or is gone",
        "Stop all workers, run `sink reset --to earliest --topic NAME --yes`, start them.",
        "halt-partitions-gone",
    ),
    HaltKind.LOG_TRUNCATED: Remedy(
        "the broker lost records",
        "Find out which records the broker lost. Then stop all workers and run `sink reset --offset"
        " TOPIC:PARTITION=OFFSET --yes`, or `--to latest`.",
        "halt-log-truncated",
    ),
    HaltKind.LOG_DAMAGED: Remedy(
        "a broker's log has changed on its disk, by its checksum",
        "Let another replica lead the partition, or delete its records up to the end of that batch (they are lost:"
        " on.data.loss=skip records the gap). Then stop all workers, run `sink reset --yes`, start them.",
        "halt-log-damaged",
    ),
    HaltKind.LOG_CHANGED: Remedy(
        "the log lost its end and grew again: an unclean leader election, a restored disk",
        "Run `sink audit` to see which records differ. Then stop all workers and run `sink reset --to checkpoint"
        " --yes` to go on in this log, or `sink reset --offset TOPIC:PARTITION=OFFSET --yes` to read its new"
        " records from where it changed. Rows of the lost records stay in the table.",
        "halt-log-changed",
    ),
    HaltKind.SCHEMA_CHANGED: Remedy(
        "records name schema ids of another registry than before",
        "Correct schema.registry.url on all workers, stop them, run `sink reset --yes`, which clears the halt, and"
        " start them. If the registry was built anew, give schema.registry.name another value as well.",
        "halt-schema-changed",
    ),
    HaltKind.ANOTHER_CLUSTER: Remedy(
        "the wrong brokers, or a move of the topic",
        "Correct kafka.bootstrap.servers. A sink does not move to another cluster.",
        "halt-another-cluster",
    ),
    HaltKind.FILE_IDS: Remedy(
        "offsets would be written under file ids that were used before",
        "Run `sink audit` first: somebody may have edited the table or ZooKeeper. Then stop all workers and run"
        " `sink reset --to checkpoint --yes`, which raises the generation.",
        "halt-file-ids",
    ),
    HaltKind.LANDED_BY_ANOTHER: Remedy(
        "two sinks of one table read one topic",
        "Stop one of the two sinks, or give it a table of its own. To go on with this one behind the other: stop"
        " its workers, run `sink reset --offset TOPIC:PARTITION=OFFSET --yes`: the reason names the offset.",
        "halt-landed-by-another",
    ),
    HaltKind.TABLE_CHANGED: Remedy(
        "another writer has changed the table's properties",
        "Put the properties back with Hudi's tools. Then stop all workers, run `sink reset --yes`, start them.",
        "halt-table-changed",
    ),
    HaltKind.ANOTHER_FLEET: Remedy(
        "another fleet commits under this sink's name",
        "Stop one of the two fleets. Give it another sink.name and, better, another table.",
        "halt-another-fleet",
    ),
    HaltKind.ZNODES_GONE: Remedy(
        "somebody deleted znodes of a decided transaction",
        "Stop all workers, run `sink reset --forget --yes`, start them: the tree is rebuilt from the table.",
        "halt-znodes-gone",
    ),
    HaltKind.TABLE_BEHIND: Remedy(
        "the table was restored or deleted, or ZooKeeper records more than the table has",
        "Stop all workers, run `sink reset --to checkpoint --yes`, start them: the sink goes on from the table as"
        " it is. If the table is gone: `sink reset --forget --yes`.",
        "halt-table-behind",
    ),
    HaltKind.RESET_INTERRUPTED: Remedy(
        "a reset did not come to its end",
        "Run the same `sink reset` or `sink adopt` again.",
        "halt-reset-interrupted",
    ),
    HaltKind.BAD_RECORD: Remedy(
        "a bad record: it cannot be decoded, or has no place in the table",
        "Set errors.tolerance=all on all workers: bad records go into the errors table. Then stop them, run `sink reset"
        " --yes`, start them. To leave out this one record for good, the runbook has the steps.",
        "a-bad-record",
    ),
}
_UNKNOWN_HALT = Remedy(
    "the sink has stopped itself",
    "Fix what the reason says: records whose schema does not fit the table, for example. Then stop all workers, run"
    " `sink reset --yes`, which clears the halt, and start them.",
    "halts",
)


def halt_remedy(kind: HaltKind) -> Remedy:
    return _HALTS.get(kind, _UNKNOWN_HALT)


DO = {
    "no-tree": (
        "Start a worker. If the tree was there before: an empty ensemble is rebuilt from the table.",
        "incidents",
    ),
    "refused": (
        "Correct what the sentence names, settings on every worker that hosts the sink. Then run `systemctl reload`"
        " there: the sink begins again.",
        "sink-refused",
    ),
    "no-coordinator": (
        "Workers elect one within the session time-out. If that lasts: start workers, and read their logs for"
        " `election.interrupted`, `worker.waits` and `session.lost`.",
        "the-log",
    ),
    "not-committing": (
        "Read why the last transactions were aborted, and what workers wait for (`request.not_done`, `worker.waits`,"
        " `store.unavailable` in their logs). Storage that is away or full: make room, the sink goes on by itself.",
        "incidents",
    ),
    "zookeeper": ("Bring ZooKeeper back. Workers go on by themselves when it answers.", "incidents"),
    "znode": (
        "Somebody changed a znode by hand. Stop all workers, run `sink reset --forget --yes`, start them: nothing is"
        " lost and nothing repeated.",
        "incidents",
    ),
    "other-version": (
        "Use the release whose `sink version` names that protocol. Or, to go on with this one: stop all workers, run"
        " `sink reset --forget --yes`, start them: the tree is rebuilt from the table.",
        "incidents",
    ),
    "kafka": ("Bring Kafka back, or make the topic. The sink goes on by itself.", "incidents"),
    "open-transaction": (
        "Nothing behind it can be read until its producer ends it, or Kafka's coordinator after the producer's"
        " `transaction.timeout.ms`. Find the producer: `kafka-transactions.sh find-hanging` or `describe-producers`."
        " Where it is dead, abort it: `kafka-transactions.sh abort`.",
        "an-open-kafka-transaction",
    ),
    "not-read": ("Ask again in some seconds.", ""),
    "paused": ("Run `sink resume` when it is to go on.", ""),
    "worker-gone": ("Start it again, unless it was meant to end. The others have taken over its work.", "the-log"),
    "outside": (
        "Correct what the sentence names, and restart that worker. What it waits for comes back by itself.",
        "sink-refused",
    ),
    "waits": ("Bring back what it waits for. The worker goes on by itself.", "the-log"),
    "retention": (
        "Raise `retention.ms` of the topic first. Then see why the sink is behind: start more workers, or give them"
        " more cores.",
        "sizing",
    ),
    "silent": (
        "It ends itself when that lasts for the session time-out, and its supervisor starts it again. Repeated: look at"
        " the host's memory and at the JVM's log in log.dir.",
        "draining",
    ),
    "aborts": (
        "One abort needs no action: the same offsets are tried again. If it repeats, fix the reason.",
        "the-log",
    ),
    "service-failed": (
        "It is tried again after services.interval.commits more transactions, or after 15 minutes. If it always fails,"
        " the table gets slow.",
        "services-failed",
    ),
    "service-overdue": (
        "Fix the reason of the last attempt. Without one, see whether the worker that runs the services hangs or dies"
        " in them. The next run clears this. Commits go on meanwhile, and the table gets slow.",
        "table-service-overdue",
    ),
    "audit": (
        "Run `sink audit --content` and read its findings before anything else is changed.",
        "audit-not-held",
    ),
    "catalog": ("Commits go on. Fix the catalogue. The sink registers the table again by itself.", "the-log"),
    "bad-records": ("List them: `sink errors --group-by reason`. Replay them: `sink errors replay`.", "a-bad-record"),
    "clock": (
        "Let NTP set the clock of this worker's host. Hudi names instants by the clock: a worker whose clock is behind"
        " can begin no transaction.",
        "incidents",
    ),
    "configuration": ("Give every worker the same file.", ""),
    "falls-behind": (
        "Start more workers, or give them more cores. Compare the time that retention leaves with the backlog.",
        "sizing",
    ),
}
"""The remedy and the section of the runbook, by the kind of a finding."""


def finding(kind: str, text: str) -> Finding:
    return Finding(kind, text, *DO[kind])
