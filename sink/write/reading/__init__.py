"""Kafka's records, read exactly by the slices of a write task, as Arrow batches with digests and anchors."""
