"""The place that `orders` had before: kept for a version, for who types it."""
