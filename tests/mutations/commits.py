"""Mutations of checkpoints and of the digests in them."""

from __future__ import annotations

import json
from typing import Any

from sink.audit.report import FindingKind
from tests.mutations.cells import cell
from tests.mutations.edit import Edited, Metadata, metadata_of


def _checkpoint(document: Metadata) -> tuple[str, Any]:
    [key] = [key for key in document["extraMetadata"] if key.startswith("sink.checkpoint.")]
    return key, json.loads(document["extraMetadata"][key])


@cell("checkpoint", "missing", "appends", FindingKind.BROKEN_CHAIN)
def checkpoint_missing(edited: Edited) -> str:
    commit = edited.own_commits()[-2]
    key, checkpoint = _checkpoint(metadata_of(commit))
    edited.change_commit(commit, lambda document: document["extraMetadata"].pop(key))
    return f"transaction {checkpoint['number'] + 1} "


@cell("checkpoint", "extra", "appends", FindingKind.REPEATED_NUMBER)
def checkpoint_extra(edited: Edited) -> str:
    """A rewrite has the checkpoint of a transaction, with its ranges."""
    [rewrite] = [commit for commit in edited.commits() if commit not in edited.own_commits()][-1:]
    key, checkpoint = _checkpoint(metadata_of(edited.own_commits()[-1]))
    edited.change_commit(rewrite, lambda document: document["extraMetadata"].update({key: json.dumps(checkpoint)}))
    return f"number {checkpoint['number']} is in commits"


@cell("checkpoint", "altered", "appends", FindingKind.END_MISMATCH)
def checkpoint_altered(edited: Edited) -> str:
    def raise_end(checkpoint: Metadata) -> None:
        checkpoint["ends"]["orders"]["0"][0] += 1

    commit = edited.own_commits()[-1]
    edited.change_checkpoint(commit, raise_end)
    return f"(commit {commit.name[:17]}): orders-0 ends at"


@cell("checkpoint", "stale", "appends", FindingKind.REPEATED_NUMBER)
def checkpoint_stale(edited: Edited) -> str:
    before, newest = edited.own_commits()[-2:]
    _, checkpoint = _checkpoint(metadata_of(before))
    edited.change_checkpoint(newest, lambda document: document.update(checkpoint))
    return f"number {checkpoint['number']} is in commits"


def _change_digest(edited: Edited, digest: str) -> str:
    commit = edited.own_commits()[-1]

    def change(checkpoint: Metadata) -> None:
        checkpoint["results"][0][6] = digest

    edited.change_checkpoint(commit, change)
    _, checkpoint = _checkpoint(metadata_of(commit))
    topic, partition, start, end = checkpoint["results"][0][:4]
    return f"{topic}-{partition}[{start}, {end})"


@cell("digest", "missing", "appends", FindingKind.DIGEST)
def digest_missing(edited: Edited) -> str:
    return _change_digest(edited, "0")


@cell("digest", "extra", "appends", FindingKind.DIGEST)
def digest_extra(edited: Edited) -> str:
    """The digest of another slice is added to it."""
    _, checkpoint = _checkpoint(metadata_of(edited.own_commits()[-1]))
    first, second = (int(result[6], 16) for result in checkpoint["results"][:2])
    return _change_digest(edited, f"{(first + second) % 2**64:x}")


@cell("digest", "altered", "appends", FindingKind.DIGEST)
def digest_altered(edited: Edited) -> str:
    _, checkpoint = _checkpoint(metadata_of(edited.own_commits()[-1]))
    return _change_digest(edited, f"{int(checkpoint['results'][0][6], 16) ^ 1:x}")


@cell("digest", "stale", "appends", FindingKind.DIGEST)
def digest_stale(edited: Edited) -> str:
    _, checkpoint = _checkpoint(metadata_of(edited.own_commits()[-2]))
    return _change_digest(edited, checkpoint["results"][0][6])
