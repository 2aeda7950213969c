"""The schema registry: access, questions with patience, and what is remembered of unknown ids."""
