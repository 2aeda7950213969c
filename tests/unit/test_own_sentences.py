"""No module recognises a sentence of this project by its words: what a caller has to tell apart has a type or a field.

The words of others, of Java, Spark, librdkafka or click, are recognised at the places that are listed here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = frozenset({"reason", "problem", "message", "sentence"})
"""Names of variables and fields that hold sentences."""
ERRORS = frozenset({"error", "cause", "failure", "refusal", "exception"})
METHODS = frozenset({"startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count"})
MATCHES = frozenset({"match", "search", "fullmatch", "findall", "finditer", "sub"})
OF_OTHERS = {
    "sink/bad_records/table.py": "Spark, of a path without a table",
    "sink/cli.py": "click, of a wrong argument",
    "sink/clients/java/kerberos.py": "Java, of a login",
    "sink/librdkafka.py": "librdkafka, of a build without Kerberos",
}
NO_RECOGNITION = {
    "sink/config/fleet.py": "says a problem of several sinks once",
    "sink/decode/cursors.py": "asks whether a row has failed for this reason, an object",
    "sink/config/build.py": "makes a sentence one line",
    "sink/clients/kafka/groups.py": "logs a reason once",
    "sink/runtime/process/discovery.py": "logs a reason once",
    "sink/runtime/turns/waiting.py": "logs a reason once",
}


def _is_sentence(node: ast.expr) -> bool:
    """Whether an expression is a sentence by its name: `reason`, `x.reason`, `str(error)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
        return any(isinstance(argument, ast.Name) and argument.id in ERRORS | NAMES for argument in node.args)
    return getattr(node, "id", getattr(node, "attr", "")) in NAMES


def _recognises(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        known = [operand for operand in (node.left, *node.comparators) if not isinstance(operand, ast.Constant)]
        return any(map(_is_sentence, known)) and not any(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        by_method = node.func.attr in METHODS and _is_sentence(node.func.value)
        return by_method or (node.func.attr in MATCHES and any(map(_is_sentence, node.args)))
    return False


def _recognised(text: str) -> Iterator[str]:
    yield from (ast.unparse(node) for node in ast.walk(ast.parse(text)) if _recognises(node))


def test_what_this_looks_for_is_found() -> None:
    """Each was in the code once."""
    for text in (
        "bad.reason.startswith('column ')",
        "str(error).removeprefix('schema: ')",
        "re.match('column', reason)",
        "repr(marker) in reason",
        "error.reason == ALWAYS_NULL",
        "UNCLEAR not in reason",
    ):
        assert [*_recognised(text)], text


def test_no_module_recognises_a_sentence_of_this_project() -> None:
    found = {
        str(path.relative_to(ROOT)): places
        for package in ("coordination", "sink")
        for path in sorted((ROOT / package).rglob("*.py"))
        if (places := [*_recognised(path.read_text())])
    }
    listed = OF_OTHERS | NO_RECOGNITION
    assert {path: places for path, places in found.items() if path not in listed} == {}
    assert listed.keys() - found.keys() == set(), "listed, and no longer there"
