"""Whether the table may be changed at this moment. Pure, but for one look at the clock of the JVM."""

from __future__ import annotations

from coordination.errors import Unavailable
from sink.hudi.client import HudiClient
from sink.hudi.instants import ActiveTimeline


def require_moment(hudi: HudiClient, snapshot: ActiveTimeline) -> None:
    """Raises Unavailable while a restore is pending, which would keep what is completed now although it goes back
    behind it, and while this host's clock is behind the newest completion: readers that follow the timeline would miss
    what is completed now. The caller holds the table lock. Raises what py4j raises.
    """
    if snapshot.pending_restores:
        raise Unavailable(
            f"{hudi.base_path}: restore {', '.join(snapshot.pending_restores)} of the table is pending: the sink goes"
            " on when it is complete. Finish it with the program that planned it"
        )
    now = hudi.instant_now()
    if now <= snapshot.newest_completion:
        raise Unavailable(
            f"{hudi.base_path}: the newest completion is of {snapshot.newest_completion}, and it is {now} here: the"
            " clock of this host, or the time zone of its JVM, is behind that of another worker. Set it right"
        )
