"""On a worker's `PYTHONPATH` it turns the worker's clock back by a minute. Its JVM's clock is right.

A library that is preloaded (`faketime`) makes a JVM's waits end early, and some of Python's fail.
"""

import time

_now = time.time
time.time = lambda: _now() - 60.0
