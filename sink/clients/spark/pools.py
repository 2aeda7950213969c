"""Spark's pools and job groups: a pool decides which job gets the next free slot, a group which jobs are cancelled.

Both are properties of the calling thread: a job belongs to the last pool and group that its thread has entered.
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
"""A commit is a dozen small jobs, one after the other: each gets the next free slot, before any job of a write."""


def enter_commit_pool(spark: SparkSession) -> None:
    """Puts jobs of the calling thread into the pool of commits, and removes them from any job group."""
    for name in _GROUP:
        # A shared thread keeps the group of its last job, of another sink: cancelling that group would cancel this job.
        spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]
    spark.sparkContext.setLocalProperty(_POOL, COMMITS)


def enter_write_pool(spark: SparkSession, sink: str, instant: str, tasks: int) -> None:
    """Puts jobs of the calling thread into the sink's pool, and into the job group of a write. The pools of all sinks
    and of table services evenly share the slots that commits leave, for any number of jobs.
    """
    spark.sparkContext.setLocalProperty(_POOL, sink)
    group = _job_group(sink, instant)
    spark.sparkContext.setJobGroup(group, f"{sink}: {tasks} write tasks under {instant}", True)


def cancel_write(spark: SparkSession, sink: str, instant: str) -> None:
    """Cancels the jobs of a write, from any thread."""
    spark.sparkContext.cancelJobGroup(_job_group(sink, instant))


def _job_group(sink: str, instant: str) -> str:
    """Returns the group's id. The instant alone is unique for one table only, and a process may have more."""
    return f"{sink}: {instant}"
