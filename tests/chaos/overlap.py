"""Two faults at once: the second begins while the first has not been made good again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.chaos import nemesis
from tests.chaos.arena import SESSION_SECONDS, Arena
from tests.chaos.stores import DISK

LASTING = (nemesis.kill_zookeepers, nemesis.stop_kafka, nemesis.refuse_writes, nemesis.cut_off, nemesis.pause_worker)
"""They take a while."""
SECOND = (nemesis.kill_worker, nemesis.kill_worker, nemesis.kill_half, *LASTING)


def two_at_once(arena: Arena, chance: Random) -> str | None:
    # A store on a network has faults of its own, half of the time.
    of_store = () if arena.shape.store == DISK else (nemesis.disturb_store,) * len(LASTING)
    first = chance.choice((*LASTING, *of_store))
    second = chance.choice([fault for fault in (*SECOND, *of_store) if fault is not first])
    pause, *seeds = chance.uniform(0, SESSION_SECONDS / 2), chance.random(), chance.random()
    with arena.nobody_asked(), ThreadPoolExecutor(1) as pool:
        begun = pool.submit(first, arena, Random(seeds[0]))
        time.sleep(pause)
        late = begun.done()
        done = second(arena, Random(seeds[1]))
        before = begun.result()
    if before is None or done is None:
        return before or done
    return f"{before}; {'after' if late else 'meanwhile'}: {done}"
