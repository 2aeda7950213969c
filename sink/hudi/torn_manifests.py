"""Deletes what a process has left of a timeline's history that died while it archived.

On HDFS and local disks Hudi writes a manifest under a name of its own and renames it. If it dies in between, Hudi 1.2
takes that name for a manifest's number from then on: each later archiving fails at its last step, which joins and
removes files of the history. Guarantee: under the table lock, which each archiving holds, nobody writes such a file.
Raises what py4j raises.
"""

from __future__ import annotations

import re

from sink.hudi.java_objects import HudiObjects

_TORN = re.compile(r"(?:manifest_\d+|_version_)\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def delete_torn_manifests(hudi: HudiObjects, timeline: str) -> None:
    """`timeline`: its directory, relative to the table. The caller holds the table lock."""
    history = f"{timeline}/history"
    for name in filter(_TORN.fullmatch, hudi.names(history)):
        hudi.storage().deleteFile(hudi.path(f"{history}/{name}"))
