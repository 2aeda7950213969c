"""Status, verbs, reset, adoption, validation: commands and workers share them.

`status` and `health` judge one reading of a sink, `observed_sink.ObservedSink`; `remedies` says what to do.
`control.SinkControl` asks a running sink for something. `reset` and `adoption` move offsets; `operator_commit` is the
coordinator's place for commands that commit. `validation` tries a configuration on its servers, `inference` proposes
one.
"""
