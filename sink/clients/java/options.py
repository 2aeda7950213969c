"""JVM options for a worker with the Arrow engine, whose JVM plans and commits but sees no record.

Also picks the user's options that a short-lived JVM needs. Guarantee: the user's options win, because they come after
these. If the user chooses a garbage collector, this module adds none, because a JVM with two does not start. See
decision 37. Raises nothing but the ValueError of `split_options`.
"""

from __future__ import annotations

import os
import re
import shlex

_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_SERIAL = "-XX:+UseSerialGC"
_LATER_FULL_COMPILATION = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times the JVM's default thresholds, which loops over records in compaction and clustering still reach."""

_SECURITY = ("-Djavax.net.ssl.", "-Djava.security.", "-Dsun.security.")
_OPTION = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s\\'"])+""", re.DOTALL)
_QUOTED = re.compile(r"""\\(.)|'([^']*)'|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables from which every JVM takes options."""


def committing_jvm(*user_options: str) -> str:
    """Returns the options to put before `user_options`."""
    return f"{collector(*user_options)} {_LATER_FULL_COMPILATION}".strip()


def collector(*user_options: str) -> str:
    """Returns the option for the serial collector; empty if `user_options` or the environment choose a collector."""
    option_texts = (*user_options, *(os.environ.get(name, "") for name in _ENVIRONMENT))
    return "" if any(map(_COLLECTOR.search, option_texts)) else _SERIAL


def split_options(java_options: str) -> list[str]:
    """Splits a text of options as Spark's launcher does. Raises ValueError if a quotation mark is not closed."""
    if _OPTION.sub("", java_options).strip():
        raise ValueError("a quotation mark is not closed, or a backslash ends it. Close or double it.")
    return [_QUOTED.sub(_unquoted, option[0]) for option in _OPTION.finditer(java_options)]


def _unquoted(quoted: re.Match[str]) -> str:
    escaped, literal, text = quoted.groups()
    return str(escaped or literal or _ESCAPED.sub(r"\1", text or ""))


def security_properties(java_options: str) -> list[str]:
    """Returns the options that name certificates and a realm."""
    try:
        options = split_options(java_options)
    except ValueError:
        # A worker says what is wrong with them when it starts.
        return []
    return [shlex.quote(option) for option in options if option.startswith(_SECURITY)]
