"""Spark's pools and job groups: which jobs get the next free slot, and which are cancelled together.

Both are properties of the calling thread, so that each job is started under the last one that its thread has entered.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

_POOL = "spark.scheduler.pool"
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")

COMMITS = "commits"
ALLOCATIONS = f"""\
<?xml version="1.0"?>
<allocations>
  <pool name="{COMMITS}"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>64</minShare></pool>
</allocations>
"""
"""A commit is a dozen small jobs, one after the other: each gets the next slot that is free, before any write's."""


def enter_commit_pool(spark: SparkSession) -> None:
    """Puts jobs of the calling thread into the pool of commits, and into no job group."""
    for name in _GROUP:
        # A shared thread keeps the group of its job before, of another sink: to cancel that would cancel this.
        spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]
    spark.sparkContext.setLocalProperty(_POOL, COMMITS)


def enter_write_pool(spark: SparkSession, sink: str, instant: str, tasks: int) -> None:
    """Puts jobs of the calling thread into the sink's pool, and into the job group of a write. The pools of all sinks
    and of table services share what commits leave, evenly, however many jobs they have.
    """
    spark.sparkContext.setLocalProperty(_POOL, sink)
    group = _job_group(sink, instant)
    spark.sparkContext.setJobGroup(group, f"{sink}: {tasks} write tasks under {instant}", True)


def cancel_write(spark: SparkSession, sink: str, instant: str) -> None:
    """Cancels the jobs of a write, from any thread."""
    spark.sparkContext.cancelJobGroup(_job_group(sink, instant))


def _job_group(sink: str, instant: str) -> str:
    """The instant alone is unique only for one table, and a process may have more."""
    return f"{sink}: {instant}"
