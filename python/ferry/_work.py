"""Runs work of the library so that Ctrl-C stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ferry import _native

T = TypeVar("T")

#: Receives the name of the current work, how much of it is done, and how much there is. An
#: exception that it raises stops the work, which then leaves nothing half written.
Progress = Callable[[str, int, int], object]

_SIGINT = 2
_engines: dict[int, _native.Engine] = {}
_lock = threading.Lock()


def engine(threads: int | None = None) -> _native.Engine:
    """Returns the threads that do the work: as many as the process may use, or ``threads``."""
    wanted = 0 if threads is None else threads
    with _lock:
        if wanted not in _engines:
            _engines[wanted] = _native.Engine(wanted)
        return _engines[wanted]


def run(work: Callable[[], T]) -> T:
    """Returns what ``work`` returns. The interpreter sees signals only between instructions of its
    main thread, so the work has a thread of its own, and the main thread waits for it."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: list[T] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            result.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failure.append(error)

    thread = threading.Thread(target=target, name="ferry")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
    except BaseException:
        _native.interrupt_all(_SIGINT)
        thread.join()
        _native.clear_interrupt_request()
        raise
    if failure:
        raise failure[0]
    return result[0]
