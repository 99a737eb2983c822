"""Who is not there."""


class Absent(Exception):
    """A contender that cannot take part."""
