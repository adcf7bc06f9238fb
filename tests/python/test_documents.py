"""The examples of the module and of docs/python.md do what they say."""

import doctest
import importlib
import pathlib
import re
import shutil

import pytest

from conftest import TESTDATA

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


@pytest.mark.parametrize("name, least", [("_bundle", 5), ("_convert", 2), ("_files", 3)])
def test_examples_in_the_module(documented, name, least):
    failed, count = doctest.testmod(importlib.import_module(f"ferry.{name}"))
    assert count >= least and failed == 0


def test_examples_in_the_document(documented, capsys):
    """A block of text behind a block of Python is what it prints."""
    key = documented / "key.pem"
    shutil.copy(TESTDATA / "signing_keys" / "p256.pem", key)
    key.chmod(0o600)
    shutil.copy(TESTDATA / "signing_keys" / "p256.pub.pem", documented / "key.pub.pem")
    names, count = {}, 0
    for code, expected in BLOCK.findall(DOCUMENT.read_text()):
        exec(compile(code, str(DOCUMENT), "exec"), names)  # noqa: S102 - our own document
        printed = capsys.readouterr().out
        assert not expected or printed == expected
        count += 1
    assert count >= 5
