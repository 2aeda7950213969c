"""Carries out a sequence on real parts, and compares the table with the model after every step."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from sink.hudi.metadata_timeline import METADATA_TABLE, METADATA_TIMELINE, completed_twice, written_twice
from tests.one_sink import load
from tests.rewrites.host import Died, Host, failed, ranges_of, wait_until
from tests.rewrites.lab import Lab, Record
from tests.rewrites.model import Change, Model, SinkState, difference, readable
from tests.rewrites.moments import METADATA_BEGUN
from tests.rewrites.places import NotRead
from tests.rewrites.profiles import Profile
from tests.rewrites.records import Records
from tests.rewrites.steps import DIES_LATE, EXPIRE, KILL, PAUSE, REFUSE, WAIT, Fault, Step, sequence

FIRST, SECOND = "first", "second"
PARTITIONS = 2
ATTEMPTS = 5
SETTLINGS = 2
"""Runs of the services without faults at the end of a sequence."""
MOMENT_SECONDS = 120.0
REFUSALS = ("HoodieWriteConflict", "HoodieDeletePartition", "HoodieClusteringUpdateException")
NOT_IN_METADATA = "Unable to find completion time for instant"
"""Why Hudi cannot finish some restores before its metadata table is deleted."""
LOCKED = "not free within"
NO_LOCK = "no connection to ZooKeeper"
UNSAVABLE = "beyond the lookup window"
LANDED = ("COMPLETED", "ALREADY_COMPLETE")
FORMED_AGAIN = ("ROLLED_BACK", "CONFLICT")
"""After any other outcome a coordinator tries to complete the same instant again."""


class Broken(AssertionError):
    """The table is not what the model says, or a service that has to succeed failed."""


@dataclass
class Report:
    """How a sequence went."""

    seed: int
    profile: str = ""
    failure: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


@dataclass
class _Open:
    """A transaction whose files are written."""

    instant: str
    number: int
    ends: Mapping[int, int]
    written: Any
    is_overtaken: bool = False
    """Whether another writer has completed an instant since."""


@dataclass
class _SinkSetup:
    properties: Path
    topic: tuple[str, str, str]
    """Its name, its id and the id of its cluster."""
    sent: dict[int, list[Change]] = field(default_factory=dict)
    """By Kafka partition, the changes in the order of the log."""
    epoch: int = 0


class World:
    """One table with its sinks, its hosts and its model."""

    def __init__(
        self,
        lab: Lab,
        seed: int,
        length: int = 8,
        s3_share: float = 0.0,
        show: Callable[[str], object] = lambda _: None,
    ) -> None:
        random = Random(f"rewrites {seed}")
        self._settlings = SETTLINGS
        profile = Profile.of(random, s3_share)
        self._setup(lab, seed, profile, sequence(random, profile, length), show)

    @classmethod
    def of(cls, lab: Lab, number: int, profile: Profile, steps: Sequence[Step], settlings: int = SETTLINGS) -> World:
        """Returns a sequence that no seed has chosen."""
        world = cls.__new__(cls)
        world._settlings = settlings
        world._setup(lab, number, profile, steps, print)
        return world

    def _setup(
        self, lab: Lab, seed: int, profile: Profile, steps: Sequence[Step], show: Callable[[str], object]
    ) -> None:
        self.report = Report(seed)
        self.profile = profile
        self.steps = steps
        self._lab = lab
        self._random = Random(f"rows {self.report.seed}")
        self._show = show
        self._model = Model(self.profile.key, "at" if self.profile.ordered else None)
        self._place = lab.place(f"table{seed}", profile.on_s3)
        self._host = lab.hosts[0]
        self._opened: dict[tuple[str, str], int] = {}
        self._records = Records(profile, self._random)
        self._savepoint = ""
        self._sinks: dict[str, _SinkSetup] = {}
        self._began, self._cpu_began = time.monotonic(), lab.cpu_seconds
        self._pending: _Open | None = None
        self._beside = ""
        """The act of another process beside one that has lost its lock."""

    def run(self) -> Report:
        """Runs all steps. Never raises for what the sequence finds."""
        self.report.profile = str(self.profile)
        self._note(f"seed {self.report.seed}: {self.profile}")
        with ExitStack() as stack:
            try:
                for name in (FIRST, SECOND):
                    topic = f"rewrites-{self.report.seed}-{name}-{time.time_ns()}"
                    made = stack.enter_context(self._lab.topic(topic, PARTITIONS))
                    self._sinks[name] = _SinkSetup(self._lab.directory / f"{topic}.properties", made)
                    self._new_epoch(name)
                for step in self.steps:
                    self._note(str(step))
                    self._carry_out(step)
                    self._check()
                self._settle()
                self._audit()
            except (AssertionError, Died, TimeoutError) as error:
                self.report.failure = f"{type(error).__name__}: {error}"[:2000]
                self._note(self.report.failure)
                self._end_hosts()
            else:
                for host in list(self._lab.hosts):
                    host.ask("forget")
                self._place.remove()
        for setup in self._sinks.values():
            setup.properties.unlink(missing_ok=True)
        self.report.seconds = time.monotonic() - self._began
        self.report.cpu_seconds = self._lab.cpu_seconds - self._cpu_began
        return self.report

    def _end_hosts(self) -> None:
        """Ends hosts that may be in the middle of something. A table that broke stays for inspection."""
        for host in list(self._lab.hosts):
            self._lab.end(host)
        self._place.keep(self._lab.directory / f"broken{self.report.seed}")
        self._place.remove()
        self._lab.other(self._host)

    def _note(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:6.1f}  {text}"
        self.report.trace.append(line)
        self._lab.trace(line)
        self._show(line)

    def _count(self, what: str) -> None:
        self.report.counts[what] += 1

    # Steps

    def _carry_out(self, step: Step) -> None:
        self._count("steps")
        match step.kind:
            case "land":
                self._land(self._host, FIRST, step.fault)
            case "services" | "metadata services":
                self._serve(step)
            case "savepoint":
                self._save()
            case "restore":
                self._restore(step.fault)
            case "rolled back by another":
                assert step.fault is not None
                self._land_after_a_rollback(step.fault.moment)
            case "open rolled back":
                self._roll_back_open(self._host, step.fault)
            case _:
                self._act(step.kind, self._host)

    def _meanwhile(self, what: str, host: Host) -> None:
        self._act(what, host)
        self._check(host)

    def _act(self, what: str, host: Host) -> None:
        """Does something without a fault."""
        match what:
            case "open":
                self._open(host)
            case "open with columns":
                self._change_columns()
                self._open(host)
            case "close":
                if self._pending is None:
                    self._open(host)
                self._close(host)
            case "open rolled back":
                self._roll_back_open(host)
            case "drop partition":
                self._drop_partition(host)
            case "land":
                self._land(host, FIRST)
            case "evolve":
                self._evolve(host)
            case "another writer":
                self._write_as_another(host)
            case "second sink":
                self._land(host, SECOND)
            case "services":
                self._outcomes(self._ready(host).attempt("services", sink=self._path()))
            case _:
                raise ValueError(what)

    def _settle(self) -> None:
        """Runs the services, which must succeed, each time followed by a transaction."""
        for _ in range(self._settlings):
            results = self._ready(self._host).attempt("services", sink=self._path())
            reasons = [failed(results)] if failed(results) else [r["reason"] for r in results if r["reason"]]
            self._outcomes(results)
            if reasons:
                raise Broken(f"the services fail without a fault: {reasons}")
            self._check()
            self._land(self._host, FIRST)
            self._check()

    def _serve(self, step: Step) -> None:
        command = "services" if step.kind == "services" else "metadata_services"
        fault, host = step.fault, self._ready(self._host)
        if fault is not None and fault.kind == WAIT:
            self._overtake(fault.moment, step.meanwhile)
            return
        self._beside = step.meanwhile if fault is not None and fault.kind == EXPIRE else ""
        results = self._with_fault(host, fault, command, sink=self._path())
        self._beside = ""
        if results is not None:
            self._outcomes(results)
        if host.paused:
            self._check()
            self._meanwhile(step.meanwhile, self._host)
            if step.meanwhile != "services":
                self._outcomes(self._ready(self._host).attempt("services", sink=self._path()))
                self._check()
            if fault is not None and fault.kind == DIES_LATE:
                self._kill_late(host, fault)
            else:
                self._wake(host)

    def _kill_late(self, host: Host, fault: Fault) -> None:
        """Lets a stopped process write files, late, and kills it before it looks at the plan: those of its compaction,
        or those of the metadata table.
        """
        point = "Compaction.written"
        has_written = partial(host.reached, point)
        if fault.moment == METADATA_BEGUN:
            has_written = self._place.watch("metadata commit", "files", KILL)
        host.arm(point, "wait")
        host.resume()
        if not _comes(has_written, host):
            raise Broken(f"the late compaction does not write its files: {host.answer()}")
        self._lab.replace(host)
        self._count("killed late")
        self._settle_metadata_table()
        self._check()

    def _overtake(self, point: str, meanwhile: str) -> None:
        """Has the services wait at a point while another process does something."""
        host, other = self._host, self._ready(self._lab.other(self._host))
        host.arm(point, "wait")
        host.begin("services", sink=self._path())
        wait_until(lambda: host.reached(point) or host.has_answered, MOMENT_SECONDS)
        if host.reached(point):
            self._count(f"{WAIT}")
            self._note(f"  at {point}: {meanwhile}")
            self._meanwhile(meanwhile, other)
        host.let_go(point)
        self._outcomes(host.answer())

    def _outcomes(self, results: Any) -> None:
        if reason := failed(results):
            self._note(f"  services: {reason}")
            self._count("services failed")
            return
        for result in results:
            if result["instant"]:
                self._count(f"{result['name']} done")
            if result["reason"]:
                self._count("services failed")
                self._note(f"  {result['name']}: {result['reason']}")
        done = ", ".join(f"{result['name']} {result['instant']}" for result in results if result["instant"])
        self._note(f"  done: {done or 'nothing'}")

    def _wake(self, host: Host) -> None:
        """Lets a stopped process go on: it is late."""
        host.resume()
        answer = host.answer()
        self._count("woken")
        self._note(f"  woken: {failed(answer) or answer}"[:400])
        self._settle_metadata_table()
        if NO_LOCK in json.dumps(answer):
            # It could not delete the files that it has written late: the next run of the services does.
            self._outcomes(self._ready(self._host).attempt("services", sink=self._path()))
        self._check()

    def _settle_metadata_table(self) -> None:
        """Has the metadata table made anew if a late process has written into it: readers may fail until then."""
        if completed_twice(list(self._place.names(METADATA_TIMELINE))):
            self._count("metadata tables made anew by a transaction")
            self._land(self._host, FIRST)
        if written_twice([f"files/{name}" for name in self._place.names(f"{METADATA_TABLE}/files")]):
            self._count("metadata tables made anew by the services")
            self._outcomes(self._ready(self._host).attempt("services", sink=self._path()))

    def _save(self) -> None:
        answer = self._ready(self._host).attempt("savepoint", sink=self._path())
        if UNSAVABLE in failed(answer):
            # The newest completion is of a clustering that was planned before the oldest commit that a cleaning kept.
            self._land(self._host, FIRST)
            answer = self._ready(self._host).ask("savepoint", sink=self._path())
        assert not failed(answer), answer
        self._savepoint = answer
        self._model.save()

    def _restore(self, fault: Fault | None) -> None:
        host = self._ready(self._host)
        answer = self._with_fault(host, fault, "restore", sink=self._path(), instant=self._savepoint)
        if answer is not None and not failed(answer):
            return self._restored()
        self._note(f"  restore: {failed(answer) or 'has died'}")
        if self._place.is_pending("restore"):
            begun = self._try_to_begin()
            if "is pending" not in failed(begun):
                raise Broken(f"begun while a restore is pending: {begun}")
            self._count("waited for a restore")
        answer = self._ready(self._host).attempt("restore", sink=self._path(), instant=self._savepoint)
        if NOT_IN_METADATA in failed(answer):
            # Hudi looks in its metadata table for commits that the attempt before has removed there.
            self._count("restored without the metadata table")
            self._host.ask("delete_metadata_table", sink=self._path())
            answer = self._host.attempt("restore", sink=self._path(), instant=self._savepoint)
        if failed(answer):
            raise Broken(f"a restore that failed is not finished by another: {failed(answer)}")
        return self._restored()

    def _try_to_begin(self) -> Any:
        """Returns how a worker answers when it begins a transaction, once the lock of one that has died is free."""
        for _ in range(ATTEMPTS):
            number = self._state(FIRST).number + 1
            answer = self._ready(self._host).attempt("begin", sink=self._path(), number=number)
            if LOCKED not in failed(answer):
                break
        return answer

    def _restored(self) -> None:
        self._count("restored")
        self._model.restore()
        self._forget_open()

    def _land_after_a_rollback(self, moment: str) -> None:
        """Lands a transaction whose instant another writer rolls back, or means to, once its files are written."""
        host = self._host
        self._open(host)
        assert self._pending is not None
        command = "roll_back_as_another" if moment == "complete" else "plan_roll_back_as_another"
        self._ready(host).ask(command, sink=self._path(), instant=self._pending.instant)
        if self._close(host):
            raise Broken("a transaction is complete that another writer rolls back")
        self._count("rolled back by another")

    def _roll_back_open(self, host: Host, fault: Fault | None = None) -> None:
        """Has the sink itself roll the open transaction back, and form it again."""
        if self._pending is None:
            self._open(host)
        assert self._pending is not None
        instant = self._pending.instant
        answer = self._with_fault(self._ready(host), fault, "roll_back", sink=self._path(), instant=instant)
        self._pending = None
        if failed(answer):
            self._note(f"  rolling back: {failed(answer)}")
        if host.paused:
            self._new_epoch(FIRST)
        self._roll_back(FIRST, instant, self._host if fault is not None else host)
        self._check(self._host if fault is not None else host)
        self._land(self._host if fault is not None else host, FIRST, sends=False)
        if host.paused:
            self._wake(host)

    def _drop_partition(self, host: Host) -> None:
        region = f"r{self._random.randrange(2)}"
        answer = self._ready(host).attempt(
            "drop_partition_as_another", sink=self._path(), directory=self.profile.directory(region)
        )
        if self._is_refused(answer):
            self._ready(host).ask("roll_back_replacements_as_another", sink=self._path())
            return
        self._count("partitions dropped by another")
        self._model.drop("region", region)

    # Transactions

    def _open(self, host: Host) -> None:
        """Writes the files of a transaction, and completes that of an earlier call."""
        if self._pending is not None:
            self._close(host)
        self._send(FIRST)
        state, setup = self._state(FIRST), self._sinks[FIRST]
        ends = {partition: len(changes) for partition, changes in setup.sent.items()}
        host = self._ready(host)
        instant = host.ask("begin", sink=self._path(), number=state.number + 1)
        ranges = ranges_of(ends, state.ends)
        written = host.ask("write", sink=self._path(), instant=instant, topic=setup.topic, ranges=ranges)
        self._pending = _Open(instant, state.number + 1, ends, written)
        self._count("transactions left open")

    def _close(self, host: Host) -> bool:
        """Completes the open transaction. Returns whether that succeeded; else its records land in another one."""
        pending, self._pending = self._pending, None
        assert pending is not None
        outcome = self._complete(host, FIRST, pending.instant, pending.number, pending.ends, pending.written)
        self._note(f"  open {FIRST} {pending.number}: {outcome}")
        if outcome in LANDED:
            self._landed(FIRST, pending.ends)
            return True
        if outcome not in FORMED_AGAIN:
            raise Broken(f"the open transaction stays open: {outcome}")
        self._count("formed again")
        self._roll_back(FIRST, pending.instant, host)
        self._land(host, FIRST, sends=False)
        return False

    def _evolve(self, host: Host) -> None:
        self._change_columns()
        self._land(host, FIRST)

    def _change_columns(self) -> None:
        if self._records.evolve():
            self._count("columns changed")

    def _land(self, host: Host, sink: str, fault: Fault | None = None, sends: bool = True) -> None:
        """Lands a transaction as the protocol does: with a fault in one of its phases, the rest by another process."""
        if sink == FIRST and self._pending is not None:
            self._close(host)
        if sends:
            self._send(sink)
        state, setup = self._state(sink), self._sinks[sink]
        number, starts = state.number + 1, dict(state.ends)
        ends = {partition: len(changes) for partition, changes in setup.sent.items()}
        woken: list[Host] = []
        for _ in range(ATTEMPTS):
            if self._attempt(host, sink, number, starts, ends, fault, woken):
                break
            host, fault = self._host if fault is not None else host, None
        else:
            raise Broken(f"transaction {number} of {sink} does not land")
        self._landed(sink, ends)
        for late in woken:
            self._check()
            self._wake(late)

    def _landed(self, sink: str, ends: Mapping[int, int]) -> None:
        starts, sent = self._state(sink).ends, self._sinks[sink].sent
        changes = [change for partition, start, end in ranges_of(ends, starts) for change in sent[partition][start:end]]
        self._model.land(sink, ends, changes)
        self._count("commits")
        self._overtake_open()

    def _attempt(
        self,
        host: Host,
        sink: str,
        number: int,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        fault: Fault | None,
        woken: list[Host],
    ) -> bool:
        """Returns whether the transaction is complete."""
        setup = self._sinks[sink]
        began = self._phase(host, sink, "begin", fault, number=number)
        if began is None or failed(began):
            self._note_stopped(host, sink, woken)
            self._roll_back_orphans(sink)
            return False
        written = self._phase(
            host, sink, "write", fault, instant=began, topic=setup.topic, ranges=ranges_of(ends, starts)
        )
        if written is None or failed(written):
            self._note_stopped(host, sink, woken)
            self._roll_back(sink, began)
            return False
        outcome = self._complete(host, sink, began, number, ends, written, fault)
        if outcome is None or outcome.startswith("!"):
            self._note_stopped(host, sink, woken)
            outcome = self._complete(self._host, sink, began, number, ends, written)
        self._note(f"  {sink} {number}: {outcome}")
        if outcome in LANDED:
            return True
        if outcome not in FORMED_AGAIN:
            raise Broken(f"completing {began}: {outcome}")
        self._count("formed again")
        self._roll_back(sink, began)
        return False

    def _phase(
        self, host: Host, sink: str, phase: str, fault: Fault | None, may_fail: bool = False, **arguments: Any
    ) -> Any:
        """Returns what the process answers; None if it was killed or stopped."""
        fault = fault if fault is not None and fault.action == phase else None
        answer = self._with_fault(self._ready(host, sink), fault, phase, sink=self._path(sink), **arguments)
        if failed(answer):
            self._note(f"  {phase}: {failed(answer)}")
            # A process that goes on without its lock, for one request, may complete what this one carries out.
            collides = phase == "begin" and self._beside
            if fault is None and not may_fail and not collides:
                raise Broken(f"{phase} fails without a fault: {failed(answer)}")
        return answer

    def _complete(
        self,
        host: Host,
        sink: str,
        instant: str,
        number: int,
        ends: Mapping[int, int],
        written: Any,
        fault: Fault | None = None,
        expects_failure: bool = False,
    ) -> str | None:
        """Returns the outcome; with `!` before it an error; None if the process was killed or stopped."""
        setup = self._sinks[sink]
        answer = self._phase(
            host,
            sink,
            "complete",
            fault,
            instant=instant,
            topic=setup.topic,
            number=number,
            ends=ends,
            written=written,
            epoch=setup.epoch,
            may_fail=expects_failure,
        )
        return answer if answer is None or isinstance(answer, str) else f"!{failed(answer)}"

    def _note_stopped(self, host: Host, sink: str, woken: list[Host]) -> None:
        """Has another process lead, if the one that did was stopped."""
        if host.paused:
            woken.append(host)
        self._new_epoch(sink)

    def _roll_back(self, sink: str, instant: str, host: Host | None = None) -> None:
        self._ready(host or self._host, sink).ask("roll_back", sink=self._path(sink), instant=instant)
        self._count("rolled back")

    def _roll_back_orphans(self, sink: str) -> None:
        for orphan in self._ready(self._host, sink).ask("view", sink=self._path(sink))["orphans"]:
            self._roll_back(sink, orphan)

    def _forget_open(self) -> None:
        """After a restore the open transaction cannot complete: its files may build on what is gone."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        outcome = self._complete(
            self._host, FIRST, pending.instant, pending.number, pending.ends, pending.written, expects_failure=True
        )
        self._note(f"  open {FIRST} {pending.number}: {outcome}")
        if outcome in LANDED:
            raise Broken(f"instant {pending.instant} from before a restore is complete")
        self._roll_back(FIRST, pending.instant)

    def _write_as_another(self, host: Host) -> None:
        changes = self._records.changes(2, 3, self._model.now.rows.values())
        by_key = {tuple(change.row[name] for name in self.profile.key): change for change in changes}
        schema = self.profile.columns(self._records.evolved)
        names = [column.split(" ")[0] for column in schema.split(", ")]
        # In a table of appends they are the record key.
        schema += ", _kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMP"
        origin = {"_kafka_topic": "another", "_kafka_partition": 0}
        rows = [
            {name: row.get(name) for name in names} | origin | {"_kafka_offset": row["at"], "_kafka_timestamp": None}
            for row in (change.row for change in by_key.values())
        ]
        if self.profile.operation == "upsert":
            schema += ", _hoodie_is_deleted BOOLEAN"
            rows = [
                {**row, "_hoodie_is_deleted": change.deletes} for row, change in zip(rows, by_key.values(), strict=True)
            ]
        operation = "upsert" if self.profile.operation == "upsert" else "bulk_insert"
        answer = self._ready(host).attempt(
            "upsert_as_another", sink=self._path(), rows=rows, operation=operation, schema=schema
        )
        if self._is_refused(answer):
            return
        self._count("commits of another writer")
        self._model.apply(by_key.values())
        self._overtake_open()

    def _is_refused(self, answer: Any) -> bool:
        """Whether Hudi has refused another writer's commit, which conflicts with others or with a pending rewrite."""
        if not failed(answer):
            return False
        self._note(f"  refused: {failed(answer)}")
        self._count("refused to another writer")
        if not any(name in failed(answer) for name in REFUSALS):
            raise Broken(f"another writer fails: {failed(answer)}")
        return True

    # Faults

    def _with_fault(self, host: Host, fault: Fault | None, command: str, **arguments: Any) -> Any:
        """Returns the answer; None if the process was killed or stopped: `self._host` is another one then."""
        if fault is None:
            return host.attempt(command, **arguments)
        self._count("faults planned")
        session = host.ask("session")
        watch = self._place.watch(fault.action, fault.moment, fault.kind)
        host.begin(command, **arguments)
        if not _comes(watch, host):
            self._count("moments that did not come")
            self._note(f"  not {fault}")
            self._place.allow()
            return host.answer()
        self._count(f"{fault.action}: {fault.moment}")
        try:
            answer = self._strike(host, fault.kind, session)
        finally:
            self._place.allow()
        is_met = fault.kind != REFUSE or failed(answer) or any(result["reason"] for result in answer)
        self._count(fault.kind if is_met else "refusals that nothing met")
        return answer

    def _strike(self, host: Host, kind: str, session: list[Any]) -> Any:
        if kind == REFUSE:
            self._place.refuse(full=self._random.random() < 0.5)
            return host.answer()
        if kind == KILL:
            self._lab.replace(host)
        elif kind in (PAUSE, DIES_LATE):
            host.pause()
        self._lab.expire(session)
        if kind == EXPIRE:
            if self._beside:
                # The process goes on meanwhile, and does not know yet that its lock is gone.
                self._act(self._beside, self._lab.other(host))
            return host.answer()
        self._host = self._lab.other(host)
        return None

    # Readers

    def _check(self, host: Host | None = None) -> None:
        """Compares whole rows, read in three ways, and the checkpoints with the model."""
        host = self._ready(host or self._host)
        expected = self._model.rows
        for metadata, reads_all in ((True, self.profile.metadata), (False, not self._hides_changes)):
            if reads_all:
                found = host.ask("rows", sink=self._path(), metadata=metadata)
                self._compare(f"Spark {'with' if metadata else 'without'} the metadata table", expected, found)
        self._compare_hudi_rs(expected)
        for name, state in self._model.now.sinks.items():
            found = self._ready(host, name).ask("view", sink=self._path(name))
            ends = {int(partition): end for partition, end in found["ends"].items()}
            if (found["number"], ends) != (state.number, state.ends):
                raise Broken(f"checkpoint of {name}: {found}, and not {state}")
        self._count("comparisons")

    def _compare_hudi_rs(self, expected: list[dict[str, Any]]) -> None:
        try:
            self._compare("hudi-rs", expected, self._place.read_by_rust())
        except NotRead as error:
            self._count(f"not read by hudi-rs: {error}")
        except Broken:
            if not self._place.hides_log_files:
                raise
            self._count("not read by hudi-rs: log files of archived commits")
        else:
            self._count("comparisons with hudi-rs")

    @property
    def _hides_changes(self) -> bool:
        """Whether readers that list storage may miss another writer's changes: Hudi counts their log files to the new
        base file of a transaction that is still open.
        """
        adds_to_base_files = self.profile.merges_on_read and self.profile.index == "record"
        return adds_to_base_files and self._pending is not None and self._pending.is_overtaken

    def _overtake_open(self) -> None:
        if self._pending is not None:
            self._pending.is_overtaken = True

    def _audit(self) -> None:
        """Compares every cell with the log by the auditor, for each sink."""
        for name in self._model.now.sinks:
            settings = load(self._sinks[name].properties, {})
            report = audit(
                settings.base_path,
                settings.name,
                TopicAccess(settings.bootstrap),
                storage=settings.storage,
                global_keys=settings.key_is_global,
                content=True,
                spark=_HostRows(self._ready(self._host), self._path(name)),
            )
            if not report.held:
                raise Broken(f"sink audit --content of {name}: {report.to_json()}")
            self._count("audits")

    def _compare(self, reader: str, expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> None:
        if differs := difference(expected, self._model.specified(readable(found))):
            raise Broken(f"{reader}: {differs}")

    # Surroundings

    def _state(self, sink: str) -> SinkState:
        return self._model.now.sinks.get(sink, SinkState())

    def _new_epoch(self, sink: str) -> None:
        self._sinks[sink].epoch += 1
        self._lab.set_epoch(sink, self._sinks[sink].epoch)

    def _path(self, sink: str = FIRST) -> str:
        return str(self._sinks[sink].properties)

    def _ready(self, host: Host, sink: str = FIRST) -> Host:
        """Returns the host, which has taken the sink with the columns of now."""
        if self._opened.get((host.name, sink)) != self._records.evolved:
            self._write_settings(sink)
            host.ask("open", properties=self._path(sink))
            self._opened[host.name, sink] = self._records.evolved
        return host

    def _write_settings(self, sink: str) -> None:
        setup = self._sinks[sink]
        settings = {
            "sink.name": sink,
            "zookeeper.connect": self._lab.zookeeper,
            "kafka.bootstrap.servers": self._lab.kafka,
            "kafka.topic.names": setup.topic[0],
            "target.base.path": self._place.base,
            **self._place.settings,
            "target.table.name": f"t{self.report.seed}",
            "schema.ddl": self.profile.columns(self._records.evolved),
            **self.profile.settings(),
        }
        setup.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    # Records

    def _send(self, sink: str) -> None:
        """Sends some changes to the sink's topic."""
        setup = self._sinks[sink]
        records: dict[int, list[Record]] = {}
        for change in self._records.changes(4, 9, self._model.now.rows.values()):
            partition = change.row["id"] % PARTITIONS
            setup.sent.setdefault(partition, []).append(change)
            records.setdefault(partition, []).append(self._records.record(change))
        for partition, some in records.items():
            self._lab.send(setup.topic[0], partition, some)


def _comes(sign: Callable[[], bool], host: Host) -> bool:
    """Waits until a sign comes, or the host has answered. Returns whether the sign came."""
    came = False

    def has_ended() -> bool:
        nonlocal came
        came = sign()
        return came or host.has_answered

    wait_until(has_ended, MOMENT_SECONDS)
    return came


@dataclass(frozen=True)
class _HostRows:
    """The rows of a sink's table as a host's Spark returns them, for the auditor where hudi-rs refuses a file group."""

    host: Host
    sink: str

    def write(self, folder: Path, metadata: bool, /) -> None:
        self.host.ask("write_rows", sink=self.sink, metadata=metadata, folder=str(folder))
