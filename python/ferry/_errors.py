"""The exceptions of the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_MOST_NOTES = 20


class Error(Exception):
    """An error of Ferry.

    ``message`` is one line: the file, what is wrong with it, and where. ``details`` has one more
    line for each offender, where a check reports all of them. ``field`` is the keyword that has a
    wrong value, and ``path`` the file that the error is about; both are empty where they are not
    known. ``code`` is the exit code of the program ``ferry`` for the same error, and ``kind`` the
    ``error.code`` of its JSON document.
    """

    code: int = 70
    kind: str = "internal"

    def __init__(
        self, message: str, details: Sequence[str] = (), field: str = "", path: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)
        self.field = field
        self.path = path
        for line in self.details[:_MOST_NOTES]:  # a traceback shows notes
            self.add_note(line)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Callable[..., Error], tuple[object, ...]]:
        return make_error, (self.code, self.message, self.details, self.field, self.path)


class UsageError(Error, ValueError):
    """The request is invalid or contradictory."""

    code = 2
    kind = "usage"


class BadInputError(Error, ValueError):
    """A file is malformed, hostile or incomplete."""

    code = 3
    kind = "bad_input"


class UnsupportedError(Error, NotImplementedError):
    """The input is well formed, but its family, dtype or feature is not implemented."""

    code = 4
    kind = "unsupported"


class IoError(Error, OSError):
    """The operating system refused: no such file, disk full, permission denied."""

    code = 5
    kind = "io"

    # OSError would take a second argument for its own.
    def __init__(
        self, message: str, details: Sequence[str] = (), field: str = "", path: str = ""
    ) -> None:
        Error.__init__(self, message, details, field, path)


class ExistsError(IoError, FileExistsError):
    """The output exists already."""

    code = 6
    kind = "exists"


class InterruptedError(Error):  # noqa: A001 - the name of the library
    """The work was asked to stop."""

    code = 128
    kind = "interrupted"


_CLASSES: dict[int, type[Error]] = {
    error.code: error
    for error in (
        UsageError,
        BadInputError,
        UnsupportedError,
        IoError,
        ExistsError,
        InterruptedError,
    )
}


def make_error(
    code: int, message: str, details: Sequence[str] = (), field: str = "", path: str = ""
) -> Error:
    """Returns the exception for an error of the library. ``_native`` calls this."""
    return _CLASSES.get(code, Error)(message, details, field, path)
