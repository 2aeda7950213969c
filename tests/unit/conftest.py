"""Property tests judge results, never how fast a loaded machine is.

They try the same cases everywhere; `HYPOTHESIS_PROFILE=explore` tries new ones.
"""

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow]

settings.register_profile("unit", deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.register_profile("explore", deadline=None, suppress_health_check=SLOW, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))
