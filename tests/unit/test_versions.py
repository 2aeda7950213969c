"""This version goes on with a tree of the version before, and neither version's workers join the other's.

The trees under tests/data/format-1 were recorded with that version, in each phase of a transaction over two partitions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import Corrupt
from coordination.state import codec, tree, versions
from coordination.state.codec import decode_checkpoint
from coordination.state.control import Control, RequestAuthor
from coordination.state.messages import Begin, Complete, ReadLog, RollBack
from coordination.state.model import PROTOCOL, InstantState, Member, Phase, Slice, TopicPartition
from coordination.state.tree import Node
from sink.layout.file_ids import file_id
from tests.simulation.table import SINK, TABLE, SimInstant
from tests.unit.machine_kit import SOURCE, Driver, Environment, new_term

RECORDED = Path(__file__).parents[1] / "data" / "format-1"
ADDED = TopicPartition(SOURCE.topic, 1)
SLICES = [
    Slice("orders", partition, start, end, "id-orders-1", 0)
    for partition, start, end in ((0, 0, 25), (0, 25, 50), (1, 0, 25), (1, 25, 30))
]


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


def environment_from(name: str) -> Environment:
    """Returns two workers of this version in the recorded tree, over the table as it was then."""
    env, document = Environment(), recorded(name)
    recorded_nodes = {path: Node(data.encode(), version) for path, (data, version) in document["nodes"].items()}
    worker_nodes = {path: node for path, node in env.keeper.nodes.items() if path.startswith(f"{tree.WORKERS}/")}
    env.keeper._commit({**recorded_nodes, **worker_nodes})
    env.keeper.bootstrap("config")
    env.log.add(ADDED)
    env.log.partitions[ADDED].end = 30
    for instant, state in document["instants"].items():
        env.table.instants[instant] = SimInstant(instant, 1, 1, None, 0, state=InstantState[state])
    if document["checkpoint"] is not None:
        env.table.newest = decode_checkpoint(document["checkpoint"])
        env.table.commits.append(env.table.instants["i00001"])
    return env


def committed(env: Environment, term: Driver) -> Complete:
    """Lets both workers write the open transaction, and commits it."""
    while not isinstance(term.requested_operation, Complete):
        if term.requested_operation is None:
            for t in env.view.transactions:
                if t.header.phase is Phase.STARTED and not t.statuses:
                    env.report(t.header.number)
            term.keeper_changed()
            term.tick(0.25)
        else:
            term.answer(term.perform(term.requested_operation))
    complete = term.requested_operation
    term.answer(term.perform(complete))
    term.until("settle")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    return complete


def file_ids_of(complete: Complete) -> list[str]:
    return sorted(json.loads(stat)["fileId"] for stat in complete.stats)


LEGACY_IDS = sorted(
    json.loads(stat)["fileId"]
    for path, (data, _) in recorded("prepared")["nodes"].items()
    if path.startswith(f"{tree.transaction_path(1)}/status/")
    for stat in json.loads(data)["stats"]
)
"""File ids that the version before gave its files."""


@pytest.mark.parametrize("phase", ["planned", "started", "aborted", "settled"])
def test_what_the_version_before_left_unwritten_is_re_formed_with_its_slices_and_file_ids(phase: str) -> None:
    env = environment_from(phase)
    complete = committed(env, new_term(env))
    assert [result.slice for result in complete.checkpoint.results] == SLICES
    assert file_ids_of(complete) == LEGACY_IDS
    assert env.view.states[SOURCE].end == 50
    assert env.view.states[ADDED].end == 30


@pytest.mark.parametrize("phase", ["started", "aborted"])
def test_what_the_version_before_began_is_rolled_back_first(phase: str) -> None:
    env = environment_from(phase)
    term = new_term(env)
    assert term.until(RollBack).instant == "i00001"
    assert env.transaction().header.phase is Phase.ABORTED


def test_what_the_version_before_had_decided_is_committed_as_it_was_written() -> None:
    env = environment_from("prepared")
    term = new_term(env)
    complete = term.until(Complete)
    assert (complete.instant, complete.number) == ("i00001", 1)
    assert [result.slice for result in complete.checkpoint.results] == SLICES
    assert file_ids_of(complete) == LEGACY_IDS


def test_what_the_version_before_had_committed_is_settled_and_the_next_batch_is_grouped() -> None:
    env = environment_from("committed")
    term = new_term(env)
    term.until(Begin)
    assert env.view.ledger.committed == 1
    (planned,) = env.view.states[SOURCE].open
    assert planned.task_records is not None
    assert all(not task.legacy for task in env.view.transactions[-1].plan.all_tasks)


def test_a_legacy_task_has_the_file_id_that_the_version_before_gave_it() -> None:
    env = environment_from("planned")
    tasks = env.transaction().plan.all_tasks
    assert all(task.legacy for task in tasks)
    assert sorted(file_id(TABLE, SINK, task, "", 0) for task in tasks) == LEGACY_IDS


def test_a_range_of_the_version_before_is_written_again_as_it_was() -> None:
    (path,) = (path for path in recorded("planned")["nodes"] if path.startswith("partitions/orders/"))
    before = json.loads(recorded("planned")["nodes"][path][0])
    states = codec.decode_states(json.dumps(before).encode(), path, 0)
    rewritten = json.loads(codec.encode_states(states))
    assert rewritten["states"] == before["states"]
    assert (before["format"], rewritten["format"]) == (1, PROTOCOL)


def test_a_legacy_batch_that_is_divided_is_grouped_from_then_on_under_new_file_ids() -> None:
    env = environment_from("settled")
    env.keeper.write([tree.ledger_op(env.view, tree.Ledger(1, 0, {1: 3}, (), env.view.ledger.history))])
    complete = committed(env, new_term(env))
    assert not set(file_ids_of(complete)) & set(LEGACY_IDS)
    assert max(task.size for task in _tasks(complete)) <= 25 // 2


def _tasks(complete: Complete) -> Any:
    return [task for stat in complete.stats for task in codec.decode_tasks(json.loads(stat)["tasks"])]


def test_a_checkpoint_in_the_table_keeps_the_format_that_older_tools_read() -> None:
    text = codec.encode_checkpoint(decode_checkpoint(recorded("committed")["checkpoint"]))
    assert text == recorded("committed")["checkpoint"]


def test_a_worker_refuses_to_join_a_live_one_of_the_version_before_and_says_whom_to_stop() -> None:
    members = [codec.decode_member(data.encode(), path) for path, data in recorded("members").items()]
    assert [(member.protocol, member.cores) for member in members] == [(1, 1), (1, 1)]
    assert versions.refusal([Member("c:1", "host-c", 1, "2")]) is None
    refusal = versions.refusal([*members, Member("c:1", "host-c", 1, "2")])
    assert refusal is not None
    assert "a on host (version 1), b on host (version 1)" in refusal
    assert "Stop all of them first" in refusal


def test_the_version_before_cannot_read_a_member_of_this_one_nor_a_tree_that_it_has_led() -> None:
    """The version before reads documents of format 1, and takes all others for those of a newer version."""
    env = environment_from("settled")
    assert env.view.info is not None
    assert env.view.info.protocol == 1
    term = new_term(env)
    term.until("stamp configuration")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    member = env.keeper.nodes[tree.member_path("a:1")].data
    for data in (env.keeper.nodes[tree.KEEPER].data, member):
        assert json.loads(data)["format"] == PROTOCOL
    assert env.view.info.uuid == "tree-1"


def test_a_tree_of_the_version_before_asks_for_nothing_and_can_be_paused() -> None:
    env = environment_from("settled")
    assert env.view.control == Control()
    env.keeper.write([tree.control_op(env.view, env.view.control.pause(RequestAuthor("me", 1.0)))])
    term = new_term(env)
    term.idle()
    term.tick(10.0)
    assert (type(term.requested_operation), env.view.transactions) == (ReadLog, ())


def test_a_member_of_a_newer_version_is_not_read() -> None:
    data = codec.encode_member(Member("c:1", "host-c", 1, "3", protocol=PROTOCOL + 1))
    with pytest.raises(Corrupt, match="by a newer version"):
        codec.decode_member(data, "workers/c:1")
