"""Logs, metrics, redaction.

`logs` writes events as JSON, with what a thread is about; `metrics` and `metric_families` are Prometheus' text;
`backlog` measures age and trend of what waits. `redaction` keeps secrets out of all texts, `shown` control characters;
`failpoints` are places where tests stop a process.
"""
