"""Loads the settings of sinks from a file or a directory, and the environment.

`load_configuration` returns settings that can be used, or raises `ConfigError` that names everything that is wrong at
once, each in one sentence with origin and remedy, and without a secret.
"""

from sink.config.every_field import ProcessSettings
from sink.config.fleet import Configuration, load_configuration
from sink.config.model import Settings
from sink.config.patterns import Misconfigured, TopicPattern, TopicProblem, expand

__all__ = [
    "Configuration",
    "Misconfigured",
    "ProcessSettings",
    "Settings",
    "TopicPattern",
    "TopicProblem",
    "expand",
    "load_configuration",
]
