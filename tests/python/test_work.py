"""Work in the background: other threads go on, Ctrl-C and closing end it, nothing is left half done."""

import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import ferry
from conftest import TESTDATA

LONG = {"max_new_tokens": 100_000, "ignore_end_tokens": True}


def test_other_threads_go_on(bundle):
    """A thread counts while the library works, so the lock of the interpreter is free."""
    opened, done, counted = ferry.open(bundle, threads=1), threading.Event(), [0]

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    opened.generate("And it came to pass", max_new_tokens=200, ignore_end_tokens=True)
    done.set()
    thread.join()
    assert counted[0] > 10


def test_a_stream_does_not_get_far_ahead(bundle):
    opened = ferry.open(bundle)
    with opened.stream("And it came to pass", **LONG) as stream:
        next(stream)
        time.sleep(0.3)
        assert opened._loaded().position < 40
    assert stream.result is None or stream.result.stop == "interrupted"


def test_one_answer_at_a_time(bundle):
    opened = ferry.open(bundle)
    stream = opened.stream("And it came to pass", max_new_tokens=50)
    next(stream)
    with pytest.raises(ferry.UsageError, match="stream"):
        opened.generate("In the beginning")
    del stream  # ends the answer
    assert opened.generate("In the beginning", max_new_tokens=2).stop == "max_new"


def test_a_thread_waits_for_the_answer_of_another(bundle):
    opened = ferry.open(bundle)
    stream = opened.stream("And it came to pass", max_new_tokens=5)
    next(stream)
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(opened.generate("In the beginning", max_new_tokens=2))
    )
    thread.start()
    time.sleep(0.1)
    assert not answers
    list(stream)
    thread.join(timeout=20)
    assert len(answers) == 1


def test_a_stream_tells_what_is_wrong_with_its_options(bundle):
    with pytest.raises(ferry.UsageError) as raised:
        list(ferry.run(bundle, "And", temperature=-1))
    assert raised.value.field == "temperature"
    with pytest.raises(TypeError, match="no_such_option"):
        list(ferry.run(bundle, "And", no_such_option=1))


def test_an_unfinished_stream_does_not_keep_the_interpreter(bundle):
    code = f"""
import ferry
stream = ferry.run({str(bundle)!r}, "And", **{LONG!r})
print(next(stream).token >= 0)
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (child.returncode, child.stdout, child.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("work", [
    "for piece in b.stream('And', max_new_tokens=100_000, ignore_end_tokens=True): pass",
    "ferry.verify(b, checkpoint=trained)",
    "ferry.convert(trained, out, overwrite=True, quantize='8da4w', hqq=True)",
    "ferry.check(bundle)",
])
def test_control_c(tmp_path, bundle, trained, work):
    code = f"""
import ferry
bundle, trained, out = {str(bundle)!r}, {str(trained)!r}, {str(tmp_path / "out")!r}
b = ferry.open(bundle)
try:
    print("ready", flush=True)
    while True: {work if not work.startswith("for") else "list(b.stream('And', max_new_tokens=5000, ignore_end_tokens=True))"}
except KeyboardInterrupt:
    print(b.generate("And", max_new_tokens=3).stop, ferry.check(trained).ok)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.25)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=20)[0] == "max_new True\n"
    assert child.returncode == 0
    left = [path.name for path in tmp_path.iterdir()]
    assert left in ([], ["out"])  # a complete bundle or none, and no stage


def test_progress_comes_with_the_name_of_the_work(tmp_path, bundle):
    told = set()
    ferry.check(bundle, progress=lambda what, done, total: told.add(what))
    assert told == {"checking"}


def test_an_exception_of_progress_comes_back(bundle):
    class Enough(Exception):
        pass

    def stop(what, done, total):
        raise Enough(what)

    for work in (ferry.check, ferry.verify, lambda path, **how: ferry.audit(path, digests=True, **how)):
        with pytest.raises(Enough):
            work(bundle, progress=stop)


def test_hdf5_files_are_read_in_a_child(tmp_path):
    files = sorted((TESTDATA / "keras").rglob("*.h5")) or sorted(TESTDATA.rglob("*.h5"))
    assert ferry.inspect(files[0]).tensors


def test_errors_can_be_pickled(tmp_path):
    for work in (
        lambda: ferry.inspect(tmp_path / "absent"),
        lambda: ferry.plan(TESTDATA / "trained", dtype="f8"),
        lambda: ferry.convert(TESTDATA / "trained", tmp_path),
    ):
        with pytest.raises(ferry.Error) as raised:
            work()
        copy = pickle.loads(pickle.dumps(raised.value))
        assert type(copy) is type(raised.value)
        assert vars(copy) == vars(raised.value) and str(copy) == str(raised.value)
