"""Values, messages and znodes.

`model` has the vocabulary: transactions, partitions, slices, checkpoints, views of log and table. `failures` says how a
task can fail and why a sink halts, `messages` what goes into a machine and comes out, `phases` which phase follows
which, `control` what operators ask for. `tree` has the paths and writes of the znodes, `reading` makes views of them,
`codec` text; `versions` keeps other formats out.
"""
