"""Numbers Spark's tasks so that no two processes give a task the same number.

Hudi names a file by its instant and the partition, stage and number of its task. Spark counts stages and tasks from
zero in each JVM, so that two processes which carry out one plan would write files of the same name, and a late task of
the first would replace a file that the second has committed. Guarantee: after `number_tasks_anew` the numbers of two
JVMs overlap with a chance of one in a billion a file. Raises what py4j raises.
"""

from __future__ import annotations

import secrets
from typing import Any

from pyspark import SparkContext

FIRST_TASK = 2**30
"""The highest number of a first task: Hudi reads the number from a file's name as an int."""


def number_tasks_anew(context: SparkContext) -> None:
    """Has the context number its next task by chance, and those after it from there."""
    gateway: Any = context._gateway
    jvm, scheduler = gateway.jvm, context._jsc.sc().taskScheduler()
    # py4j turns Spark's counter, a Number, into a Python int: a method handle changes it where it is.
    lookup, none = jvm.java.lang.invoke.MethodHandles.publicLookup(), gateway.new_array(jvm.java.lang.Class, 0)
    counter = lookup.unreflect(scheduler.getClass().getMethod("nextTaskId", none))
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = jvm.java.lang.Long.TYPE
    atomic = jvm.java.lang.Class.forName("java.util.concurrent.atomic.AtomicLong")
    add = lookup.unreflect(atomic.getMethod("addAndGet", types))
    filters = gateway.new_array(jvm.java.lang.invoke.MethodHandle, 1)
    filters[0] = counter
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = scheduler, secrets.randbelow(FIRST_TASK)
    jvm.java.lang.invoke.MethodHandles.filterArguments(add, 0, filters).invokeWithArguments(arguments)
