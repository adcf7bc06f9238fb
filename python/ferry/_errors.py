"""The exceptions of the package."""

from __future__ import annotations


class Error(Exception):
    """An error of Ferry.

    ``message`` is one line: the file, what is wrong with it, and where. ``details`` has one more
    line for each offender, where a check reports all of them. ``field`` is the option that has a
    wrong value, and ``place`` the file that the error is about; both are empty where they are not
    known. ``exit_code`` is that of the program ``ferry`` for the same error.
    """

    exit_code: int = 70

    def __init__(
        self,
        message: str,
        details: tuple[str, ...] = (),
        field: str = "",
        place: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.field = field
        self.place = place


class UsageError(Error, ValueError):
    """The request is invalid or contradictory."""

    exit_code = 2


class BadInputError(Error, ValueError):
    """A file is malformed, hostile or incomplete."""

    exit_code = 3


class UnsupportedError(Error, NotImplementedError):
    """The input is well formed, but its family, dtype or feature is not implemented."""

    exit_code = 4


class IoError(Error, OSError):
    """The operating system refused: no such file, disk full, permission denied."""

    exit_code = 5

    def __init__(self, message: str, *more: object) -> None:
        Error.__init__(self, message, *more)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.message


class ExistsError(IoError, FileExistsError):
    """The output exists already."""

    exit_code = 6


class InterruptedError(Error):
    """The work was asked to stop."""

    exit_code = 128


_KINDS = {
    kind.exit_code: kind
    for kind in (UsageError, BadInputError, UnsupportedError, IoError, ExistsError, InterruptedError)
}


def make_error(code: int, message: str, details: list[str], field: str, place: str) -> Error:
    """Returns the exception for an error of the library. ``_native`` calls this."""
    return _KINDS.get(code, Error)(message, tuple(details), field, place)
