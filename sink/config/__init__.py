"""Loads the settings of sinks from a file or a directory, and the environment.

`load` and `load_fleet` return settings that can be used, or raise `ConfigError` that names everything that is wrong at
once, each in one sentence with origin and remedy, and without a secret.
"""

from sink.config.every_field import ProcessSettings
from sink.config.fleet import Fleet, load, load_fleet
from sink.config.model import Settings
from sink.config.patterns import Misconfigured, TopicPattern, TopicProblem, expand

__all__ = [
    "Fleet",
    "Misconfigured",
    "ProcessSettings",
    "Settings",
    "TopicPattern",
    "TopicProblem",
    "expand",
    "load",
    "load_fleet",
]
