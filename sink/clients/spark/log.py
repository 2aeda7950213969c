"""The file for the output of Spark, Hudi and the JVM.

Guarantee: the user and the user's group can read it, and no one else: the log may quote records, and a crash dumps the
JVM's memory into it. A file that exists keeps its mode; a link or a pipe in its place is refused. Raises ConfigError.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from coordination.errors import ConfigError
from sink.clients.host.regular_files import open_regular
from sink.clients.java.heap import EXIT_ON_OUT_OF_MEMORY
from sink.clients.java.installation import find_java
from sink.telemetry.shown import HIDDEN

_MODE = 0o640
_FATAL_ERRORS = 17
"""The first Java version that can write the dump of a crash to stderr, instead of a file in the working directory."""


def _for_java(characters: str) -> str:
    """Returns a class of characters as the value of a Java property that is a regular expression."""

    def escaped(character: str) -> str:
        return re.sub("(.{4})", r"\\\\u\1", character.encode("utf-16-be", "surrogatepass").hex())

    return "-".join("".join(map(escaped, part)) for part in characters.split("-"))


_LOG4J_LEVELS = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
# It warns once for every record when a task's reading thread is not Spark's own, as with mapInArrow.
logger.consumer.name = org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer
logger.consumer.level = error
appender.file.name = file
appender.file.layout.type = PatternLayout
# `%replace` hides from Log4j that `%ex` is in it.
appender.file.layout.alwaysWriteExceptions = false
# Values of records may be in them: what a terminal obeys, and a line feed of a message, is a question mark.
appender.file.layout.pattern = %d{ISO8601} %p %c{1} %replace{%m}{[HIDDEN]}{?}%n%replace{%ex}{[HIDDEN&&[^\\n]]}{?}
""".replace("HIDDEN", _for_java(HIDDEN))
_LOG4J_OUTPUT = f"""{_LOG4J_LEVELS}\
appender.file.type = Console
"""
_LOG4J_FILE = f"""{_LOG4J_LEVELS}\
appender.file.type = RollingFile
appender.file.fileName = PATH
appender.file.filePattern = PATH.%i
appender.file.filePermissions = rw-r-----
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 64MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""
_LOG4J_NOTHING = "rootLogger.level = off\n"


def log4j_configuration(spark_log: Path | None, rolls: bool = True) -> str:
    """Returns the configuration of Log4j. Unless `rolls`, it writes to the JVM's output, which `jvm_output` has opened:
    Log4j itself would follow a link that another user puts in the place of the file."""
    if spark_log is None:
        return _LOG4J_NOTHING
    return _LOG4J_FILE.replace("PATH", spark_log.absolute().as_posix()) if rolls else _LOG4J_OUTPUT


def crash_options(spark_log: Path | None) -> str:
    """Returns the JVM's options for its end: at once when memory runs out; after a crash without a core file, and with
    the dump of the crash in the log."""
    into_log = spark_log is not None and find_java().version >= _FATAL_ERRORS
    options = (EXIT_ON_OUT_OF_MEMORY, "-XX:-CreateCoredumpOnCrash", *(["-XX:+ErrorFileToStderr"] if into_log else []))
    return " ".join(options)


@contextmanager
def jvm_output(spark_log: Path | None) -> Iterator[IO[Any] | int]:
    """Opens the file for the JVM's stdout and stderr, or throws them away. Raises ConfigError."""
    if spark_log is None:
        yield subprocess.DEVNULL
        return
    try:
        spark_log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_regular(spark_log, os.O_RDWR | os.O_APPEND | os.O_CREAT, _MODE)
    except OSError as error:
        raise ConfigError(f"log.dir: {spark_log} cannot be written ({error.strerror}). Set another one.") from None
    with open(descriptor, "a+") as file:
        yield file
