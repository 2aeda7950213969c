"""The coordinator and the participant, as machines that ask for effects.

`coordinator.Coordinator` and `participant.Participant` take an event and return effects. A coordinator's rules are in
`housekeeping` (is this term valid), `advance` (a transaction's next phase), `opening` (the next transaction) and
`control` (operators); `term` is what they share: readings, memory, and the one way to write. `recovery` compares
ZooKeeper with the table, `transactions` says what an open transaction needs, `writes` plans multis. Pure.
"""
