"""Projectors: the files are those of the program, and two files answer as their checkpoint does."""

import subprocess

import pytest

import ferry
from conftest import TESTDATA

SOURCE = TESTDATA / "vision" / "llava"
CHAT = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The text decoder, which the program writes because its tokenizer has no known name, and the projector."""
    folder = tmp_path_factory.mktemp("pair")
    words = ["--to", "gguf", "--outtype", "f32", "--tokenizer-pre", "gpt-2", "--quiet"]
    subprocess.run(["ferry", "convert", SOURCE, "-o", folder / "text.gguf", *words], check=True)
    ferry.convert(SOURCE, folder / "mmproj.gguf", format="mmproj", gguf_type="f32")
    return folder / "text.gguf", folder / "mmproj.gguf"


def test_the_file_is_that_of_the_program(tmp_path, pair):
    words = ["--to", "mmproj", "--outtype", "f32", "--quiet"]
    subprocess.run(["ferry", "convert", SOURCE, "-o", tmp_path / "mmproj.gguf", *words], check=True)
    assert (tmp_path / "mmproj.gguf").read_bytes() == pair[1].read_bytes()


def test_two_files_answer_as_the_checkpoint(tmp_path, pair):
    picture = TESTDATA / "media" / "images" / "alpha.png"
    ferry.convert(SOURCE, tmp_path / "whole", dtype="f32")
    # A projector says nothing of the processor, whose files are beside the config.
    files = {"mmproj": pair[1], "config": SOURCE / "config.json"}
    ferry.convert(pair[0], tmp_path / "made", **files, dtype="f32")
    answers = {
        opened.generate(CHAT, images=picture, max_new_tokens=6, ignore_end_tokens=True).tokens
        for opened in (
            ferry.open(tmp_path / "whole"),
            ferry.open(tmp_path / "made"),
            ferry.open(pair[0], **files, exact=True),
        )
    }
    assert len(answers) == 1


def test_what_does_not_fit_is_refused(tmp_path, bundle, pair):
    with pytest.raises(ferry.UsageError, match="projectors are") as raised:
        ferry.plan(SOURCE, format="mmproj", gguf_type="q4_0")
    assert raised.value.field == "gguf_type"
    for name in ("mmproj", "config"):
        with pytest.raises(ferry.UsageError, match="GGUF") as raised:
            ferry.open(bundle, **{name: pair[1]})
        assert raised.value.field == name
