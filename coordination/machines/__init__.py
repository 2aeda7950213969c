"""The coordinator and the participant, as machines that ask for effects."""
