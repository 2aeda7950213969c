"""Options of a JVM that plans and commits and sees no record: that of a worker that writes with the Arrow engine.

Guarantee: what the user names wins, as it stands behind these; a collector of the user's takes the place of this one,
for a JVM with two does not start. Decision 37. Raises nothing on purpose.
"""

from __future__ import annotations

import os
import re

_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_SERIAL = "-XX:+UseSerialGC"
_COMPILE_FOR_GOOD_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times the JVM's own thresholds: what compaction and clustering repeat for each record still reaches them."""


_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Where every JVM looks for options."""


def committing_jvm(*user_options: str) -> str:
    """The options to stand before `given`, those of the user's settings."""
    return f"{collector(*user_options)} {_COMPILE_FOR_GOOD_LATER}".strip()


def collector(*user_options: str) -> str:
    """The option for a collector of one thread; empty if `given` or the environment names a collector."""
    named = (*user_options, *(os.environ.get(name, "") for name in _ENVIRONMENT))
    return "" if any(map(_COLLECTOR.search, named)) else _SERIAL
