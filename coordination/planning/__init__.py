"""Pure functions: offsets, slices, write tasks, who writes which.

`planner.next_step` decides what the next transaction is. Behind it `offsets` reconciles each partition with its log,
`batches` and `slicing` cut what is new, `write_tasks` groups slices, `assignment` gives them to workers. `continuity`,
`log_continuity` and `schema_identity` hold what was read against what was recorded; `tolerance` limits bad records;
`relanding` plans repairs.
"""
