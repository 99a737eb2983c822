"""The exception for a contender that cannot take part."""


class Absent(Exception):
    """A contender that cannot take part."""
