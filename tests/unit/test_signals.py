"""A signal asks for an end or a reload, whatever the thread holds that it interrupts."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "sink").rglob("*.py"))
WITHOUT_A_LOCK = {"os.write", "os.getpid", "os._exit", "bytes"}
"""Calls that a handler may make: they take no lock of Python, and none of the logger."""

HOLDS_THE_LOCK = """
import os, signal, sys, threading, time
from sink.runtime.process.launch import handled_signals

signals = handled_signals()
event = signals.reload if sys.argv[1] == "HUP" else signals.stop
with event._cond:
    os.kill(os.getpid(), getattr(signal, "SIG" + sys.argv[1]))
    time.sleep(0.3)
    assert not event._flag
print("set" if event.wait(20) else "never set", flush=True)
os._exit(0)
"""
WAITS_IN_C = """
import os, signal, sys, threading, time
from sink.runtime.process.launch import handled_signals

signals = handled_signals()
os.kill(os.getpid(), signal.SIGTERM)
assert signals.stop.wait(20)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(20)
"""
FORKS = """
import os, signal, time
from sink.runtime.process.launch import handled_signals

signals = handled_signals()
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(7)
os.waitpid(child, 0)
print("set" if signals.stop.wait(0.5) else "not set", flush=True)
os._exit(0)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_a_signal_is_served_though_its_thread_holds_the_lock_of_the_event(name: str) -> None:
    result = run(HOLDS_THE_LOCK, name)
    assert result.stdout == "set\n", result.stderr


def test_a_second_signal_ends_the_process_at_once() -> None:
    assert run(WAITS_IN_C).returncode == 128 + 15


def test_a_signal_to_a_forked_child_asks_nothing_of_its_parent() -> None:
    assert run(FORKS).stdout == "not set\n"


def _handlers() -> Iterator[tuple[str, ast.AST]]:
    """Yields the place and body of each function that a file of the product gives to `signal.signal`."""
    for file in FILES:
        tree = ast.parse(file.read_text())
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal":
                handler = node.args[1]
                place = f"{file.relative_to(ROOT)}: {ast.unparse(handler)}"
                if isinstance(handler, ast.Lambda):
                    yield place, handler
                elif isinstance(handler, ast.Name) and handler.id in functions:
                    yield place, functions[handler.id]


def test_no_signal_handler_takes_a_lock() -> None:
    handlers = list(_handlers())
    calls = {
        f"{place}: {ast.unparse(node.func)}"
        for place, body in handlers
        for node in ast.walk(body)
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in WITHOUT_A_LOCK
    }
    assert calls == set()
    assert len(handlers) >= 2
