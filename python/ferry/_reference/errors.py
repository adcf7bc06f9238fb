"""Refusals: one line and the exit code, which are those of the program `ferry`."""

USAGE, BAD_INPUT, UNSUPPORTED, IO, EXISTS = 2, 3, 4, 5, 6


class Refused(Exception):
    """Ends the command with one line and this exit code."""

    def __init__(self, code, why):
        super().__init__(why)
        self.code = code


def one_line(error, most=300):
    """An exception of another package in one line: the first one that says something."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    return f"{type(error).__name__}: {text[:most]}"
