"""librdkafka aborts a process in which a client's own thread destroys it, and Python collects garbage on any thread.
Each program here leaves a client in garbage with a question open, and lets librdkafka's thread collect it."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import gc, time
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from coordination.errors import Unavailable
from sink.audit.consumer import make_admin
from sink.clients.kafka.log import Log

NOWHERE = "127.0.0.1:1"
QUESTION = {TopicPartition("orders", number): OffsetSpec.latest() for number in range(100)}
sleep, collect_at_each_allocation = time.sleep, gc.enable

def forgotten():
    admin = AdminClient({"bootstrap.servers": NOWHERE, "log_level": 0})
    admin.list_offsets(QUESTION, request_timeout=1)
    return admin

def log():
    log = Log({"bootstrap.servers": NOWHERE})
    try:
        with log._asking() as admin:
            admin.list_offsets(QUESTION, request_timeout=1)
            raise Unavailable("no answer in time")
    except Unavailable:
        return log

def auditor():
    admin = make_admin({"bootstrap.servers": NOWHERE})
    admin.list_offsets(QUESTION, request_timeout=1)
    admin.close()
    return admin

def leave_garbage(thing):
    garbage = [thing]
    garbage.append(garbage)

gc.collect()
gc.disable()
leave_garbage(%s())
gc.set_threshold(1, 1, 1)
collect_at_each_allocation()
sleep(3)
print("alive", flush=True)
"""


def run(client: str) -> tuple[int, str]:
    result = subprocess.run([sys.executable, "-c", PROGRAM % client], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + (result.stderr if result.returncode else "")


def test_a_client_that_its_owner_forgets_with_a_question_open_aborts_the_process() -> None:
    """It fails once librdkafka no longer does: `Admin.close` may go then."""
    status, printed = run("forgotten")
    assert status == -signal.SIGABRT
    assert "called from librdkafka owned thread" in printed


def test_a_log_that_got_no_answer_leaves_nothing_that_librdkafka_may_collect() -> None:
    assert run("log") == (0, "alive\n")


def test_an_auditor_that_is_closed_leaves_nothing_that_librdkafka_may_collect() -> None:
    assert run("auditor") == (0, "alive\n")
