"""The worker's HTTP server: addresses whose status code is the answer, the fleet as JSON, metrics, and a page.

`server.WorkerHttp` serves the facts of the process from `facts.WorkerFacts`, and the state of the fleet from
`fleet.FleetWatch`, which reads ZooKeeper and Kafka in threads of its own, and only while a client asks. Guarantee: no
request stops the worker, and all requests together delay it by no more than the server's share of one core.
"""
