"""Property tests judge results, never how fast a loaded machine is.

They try the same cases everywhere: 30 of each in `make test`, 100 in `make test-all` (`HYPOTHESIS_PROFILE=full`).
`HYPOTHESIS_PROFILE=explore` tries new ones.
"""

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow]

settings.register_profile("unit", deadline=None, suppress_health_check=SLOW, derandomize=True, max_examples=20)
settings.register_profile("full", settings.get_profile("unit"), max_examples=100)
settings.register_profile("explore", deadline=None, suppress_health_check=SLOW, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))
