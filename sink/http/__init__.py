"""The worker's HTTP server: addresses whose status code is the answer, the fleet as JSON, metrics, and a page.

`server.HttpServer` serves what a `facts.WorkerFacts` tells of the process, and what `fleet.FleetWatch` reads of the
fleet: from ZooKeeper and Kafka, in threads of its own, and only while a client asks. Guarantee: nothing that is sent
to the server stops or delays what the worker does beyond the share of one core that the server may take.
"""
