"""What the functions share: types of arguments and their values for the library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

#: A path of a file or a folder.
Path = str | os.PathLike[str]

#: Receives the name of the current work, how much of it is done, and how much there is. An exception
#: that it raises stops the work, which then leaves nothing half written, and comes back to the
#: caller. Other threads than the caller's may make the calls, one at a time.
Progress = Callable[[str, int, int], object]


def path_of(path: Path | None) -> str:
    return "" if path is None else os.fspath(path)


def paths_of(paths: Path | Iterable[Path]) -> list[str]:
    """Accepts one path too."""
    if isinstance(paths, (str, os.PathLike)):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]


def texts_of(texts: str | Iterable[str]) -> list[str]:
    """Accepts one text too."""
    return [texts] if isinstance(texts, str) else list(texts)
