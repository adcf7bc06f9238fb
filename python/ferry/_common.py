"""What the functions share: types of arguments and their values for the library."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: A path of a file or a folder.
Path = str | os.PathLike[str]

#: A WAV or FLAC file, or the samples of one channel and how many there are in a second. An array
#: of samples is float32 or float64 of one dimension.
Sound = Path | tuple["Sequence[float] | npt.NDArray[np.floating[Any]]", int]

#: A folder with the frames of a video as pictures, in the order of their names, and how many of them
#: a second has.
Video = tuple[Path, float]

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


def sound_of(sound: Sound) -> dict[str, Any]:
    """Returns a sound for the library."""
    if isinstance(sound, (str, os.PathLike)):
        return {"path": os.fspath(sound)}
    samples, rate = sound
    if isinstance(samples, (list, tuple)):
        samples = array("f", samples)
    return {"samples": samples, "rate": rate}


def sounds_of(sounds: Sound | Iterable[Sound]) -> list[dict[str, Any]]:
    """Accepts one sound too."""
    if isinstance(sounds, (str, os.PathLike)):
        return [sound_of(sounds)]
    if isinstance(sounds, tuple) and len(sounds) == 2 and isinstance(sounds[1], int):
        return [sound_of(sounds)]
    return [sound_of(sound) for sound in sounds]


def videos_of(videos: Video | Iterable[Video]) -> list[tuple[str, float]]:
    """Accepts one video too."""
    if isinstance(videos, tuple) and len(videos) == 2 and isinstance(videos[0], (str, os.PathLike)):
        videos = [videos]
    return [(os.fspath(folder), float(fps)) for folder, fps in videos]
