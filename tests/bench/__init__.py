"""`python -m tests.bench`: the sink beside what a user would run instead, on one topic, on the same two cores.

Every peer gets the same CPUs, the same heap and the same records, and the clock never counts a process
that is still starting. What is measured and how is written into `docs/benchmarks.md` by the run itself.
"""
