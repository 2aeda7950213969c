"""Each wait of the product has a bound: in its own call, or in the list of those that have none there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "data" / "waits.tsv"
"""A line for each wait without a bound of its own: file, function, call, what bounds it, and who ends it."""
FILES = sorted(
    file
    for package in ("coordination", "sink")
    for file in (ROOT / package).rglob("*.py")
    if "devtools" not in file.parts  # demo and equipment of tests: no worker runs it
)
WAITS = {"wait", "join", "result", "recv", "communicate"}
"""Methods that wait for ever if they are called without an argument."""
OF_KAZOO = {"create", "set", "get", "delete", "exists", "ensure_path", "get_children", "stop"}
"""kazoo waits for the answer, and while it has no connection for the next one."""
POOLS = {"ThreadPoolExecutor", "new_pool"}
"""A `with` of a pool waits for its last job."""
RUNS = {"subprocess.run", "subprocess.check_output", "subprocess.check_call"}

Wait = tuple[str, str, str]


def waits_in(source: str) -> Iterator[tuple[str, str]]:
    """Yields function and call of each wait that gives no bound."""
    tree = ast.parse(source)
    modules = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    modules |= {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    yield from _waits(tree, "", modules)


def _waits(node: ast.AST, function: str, modules: set[str]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _waits(child, f"{function}.{child.name}".lstrip("."), modules)
            continue
        if isinstance(child, ast.Call) and _is_unbounded(child, modules):
            yield function, ast.unparse(child)
        if isinstance(child, ast.withitem) and isinstance(child.context_expr, ast.Call):
            opened = child.context_expr
            if ast.unparse(opened.func).rpartition(".")[2] in POOLS:
                yield function, f"with {ast.unparse(opened)}"
        yield from _waits(child, function, modules)


def _is_unbounded(call: ast.Call, modules: set[str]) -> bool:
    text = ast.unparse(call.func)
    named = {keyword.arg for keyword in call.keywords}
    if text in RUNS:
        return "timeout" not in named
    if text == "os.read":
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    method, receiver = call.func.attr, ast.unparse(call.func.value)
    is_bare = not call.args and not call.keywords
    if method in WAITS:
        return is_bare
    if method == "acquire":
        return is_bare
    if method == "wait_for":
        return len(call.args) < 2 and "timeout" not in named
    if method == "get" and is_bare:
        # Others are Java's Optional and context variables.
        return bool(modules & {"queue", "kazoo", "multiprocessing"})
    return method in OF_KAZOO and receiver.endswith("client") and "kazoo" in modules


def found() -> list[Wait]:
    return sorted(
        (str(file.relative_to(ROOT)), function, call) for file in FILES for function, call in waits_in(file.read_text())
    )


def listed() -> list[tuple[str, ...]]:
    return [tuple(line.split("\t")) for line in LIST.read_text().splitlines()[1:]]


def test_every_wait_without_a_bound_of_its_own_is_listed_with_bound_and_owner() -> None:
    rows = listed()
    assert [row for row in rows if len(row) != 5 or not all(part.strip() for part in row)] == []
    waits = found()
    assert sorted(set(waits) - {row[:3] for row in rows}) == [], "not listed"
    assert sorted({row[:3] for row in rows} - set(waits)) == [], "listed, and gone"
    assert len({row[:3] for row in rows}) == len(rows)
    assert len(waits) >= 20


def test_the_list_is_in_order() -> None:
    assert listed() == sorted(listed())


def test_nothing_that_the_main_loop_calls_is_listed() -> None:
    """The loop that feeds the watchdog waits for nothing but its own half second."""
    loop = {
        "WorkerProcess._supervise",
        "WorkerProcess._watch",
        "WorkerProcess._warm_commits",
        "WorkerProcess._tell_ready",
    }
    loop |= {f"HostedSinks.{name}" for name in ("begin_missing", "reload", "take_up_reload", "require_a_sink")}
    loop |= {f"Sink.{name}" for name in ("poll", "leave", "leave_to_others", "follows")} | {"ZooKeeperSession.poll"}
    assert [row[:3] for row in listed() if row[1] in loop] == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("event.wait()", True),
        ("event.wait(5)", False),
        ("thread.join()", True),
        ("', '.join(names)", False),
        ("thread.join(timeout=3)", False),
        ("lock.acquire()", True),
        ("lock.acquire(timeout=3)", False),
        ("lock.acquire(blocking=False)", False),
        ("future.result()", True),
        ("future.result(3)", False),
        ("condition.wait_for(check)", True),
        ("condition.wait_for(check, 3)", False),
        ("import queue\nquestions.get()", True),
        ("import queue\nquestions.get(timeout=1)", False),
        ("optional.get()", False),
        ("from kazoo.client import KazooClient\nself._client.create(path)", True),
        ("from kazoo.client import KazooClient\nself._client.create_async(path).get(timeout=3)", False),
        ("table.set(1)", False),
        ("subprocess.run(command)", True),
        ("subprocess.run(command, timeout=3)", False),
        ("with ThreadPoolExecutor(3) as pool: pass", True),
    ],
)
def test_a_wait_is_recognised(source: str, is_found: bool) -> None:
    assert bool(list(waits_in(source))) is is_found
