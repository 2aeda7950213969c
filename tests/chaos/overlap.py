"""Two faults at once: the second begins before the first is repaired."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.chaos import nemesis
from tests.chaos.arena import SESSION_SECONDS, Arena
from tests.chaos.stores import DISK

LASTING = (nemesis.kill_zookeepers, nemesis.stop_kafka, nemesis.refuse_writes, nemesis.cut_off, nemesis.pause_worker)
"""Faults that last for some seconds."""
SECOND = (nemesis.kill_worker, nemesis.kill_worker, nemesis.kill_half, *LASTING)


def two_at_once(arena: Arena, chance: Random) -> str | None:
    # A store on a network is disturbed too: by half of the first faults.
    of_store = () if arena.shape.store == DISK else (nemesis.disturb_store,) * len(LASTING)
    first = chance.choice((*LASTING, *of_store))
    second = chance.choice([fault for fault in (*SECOND, *of_store) if fault is not first])
    pause, *seeds = chance.uniform(0, SESSION_SECONDS / 2), chance.random(), chance.random()
    with arena.coordinator_pinned(), ThreadPoolExecutor(1) as pool:
        first_run = pool.submit(first, arena, Random(seeds[0]))
        time.sleep(pause)
        is_late = first_run.done()
        second_description = second(arena, Random(seeds[1]))
        first_description = first_run.result()
    if first_description is None or second_description is None:
        return first_description or second_description
    return f"{first_description}; {'after' if is_late else 'meanwhile'}: {second_description}"
