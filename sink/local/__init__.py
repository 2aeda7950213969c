"""The place that `packages` had before: kept for a version, for who types it."""
