"""All faults, with their weights."""

from __future__ import annotations

from tests.chaos.nemesis import (
    Fault,
    cut_off,
    disturb_store,
    edit_zookeeper,
    elect_uncleanly,
    empty_zookeeper,
    evolve,
    kill_half,
    kill_worker,
    kill_zookeepers,
    lose_log_end,
    pause_worker,
    recreate_topic,
    redirect_to_another_cluster,
    refuse_writes,
    rolling_restart,
    stop_kafka,
    truncate_log,
    write_as_another,
)
from tests.chaos.overlap import two_at_once
from tests.chaos.points import kill_at_failpoint

FAULTS: tuple[tuple[Fault, int], ...] = (
    (two_at_once, 8),
    (kill_at_failpoint, 8),
    (kill_worker, 4),
    (kill_half, 2),
    (pause_worker, 3),
    (cut_off, 4),
    (kill_zookeepers, 2),
    (empty_zookeeper, 1),
    (stop_kafka, 1),
    (refuse_writes, 2),
    (rolling_restart, 1),
    (truncate_log, 1),
    (recreate_topic, 1),
    (lose_log_end, 1),
    (elect_uncleanly, 3),
    (redirect_to_another_cluster, 6),
    (edit_zookeeper, 1),
    (evolve, 4),
    (write_as_another, 6),
)
FAULTS_OF_A_STORE: tuple[tuple[Fault, int], ...] = (*FAULTS, (disturb_store, 12))
"""Faults for tables that are not on a disk."""
