"""Videos, as folders of frames with their rate, in prompts of a vision-language model."""

import json
import pathlib
import shutil
import struct

import pytest

import ferry
from conftest import TESTDATA

VIDEO = (TESTDATA / "video" / "frames", 2.5)


def ids_of(path: pathlib.Path, name: str) -> list[int]:
    """A tensor of i64 of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    first, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return list(struct.unpack(f"<{(end - first) // 8}q", data[8 + size + first : 8 + size + end]))


@pytest.fixture(scope="module")
def sees(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("videos")
    source = folder / "checkpoint"
    shutil.copytree(TESTDATA / "vision" / "qwen2_5_vl", source)
    for file in (TESTDATA / "video" / "processors" / "qwen2_5_vl").iterdir():
        shutil.copy(file, source)
    ferry.convert(source, folder / "bundle", dtype="f32", images=True)
    return folder / "bundle"


def test_an_answer_to_a_video_is_that_of_the_reference(sees):
    content = [{"type": "video"}, {"type": "text", "text": "What happens?"}]
    bundle = ferry.open(sees)
    answer = bundle.generate(
        [{"role": "user", "content": content}], videos=VIDEO, max_new_tokens=8, ignore_end_tokens=True
    )
    golden = TESTDATA / "video" / "qwen2_5_vl" / "golden.safetensors"
    assert list(answer.tokens) == ids_of(golden, "all.greedy_ids")
    assert answer.prompt_tokens == len(ids_of(golden, "all.input_ids"))
    # Several, and with a text, before which they come.
    assert bundle.generate("And?", videos=[VIDEO, VIDEO], max_new_tokens=1).tokens


def test_wrong_videos_are_refused(sees, bundle):
    opened = ferry.open(sees)
    with pytest.raises(ferry.BadInputError, match="0 frames a second"):
        opened.generate("a", videos=(VIDEO[0], 0))
    with pytest.raises(ferry.UnsupportedError, match="films are not decoded"):
        opened.generate("a", videos=(TESTDATA / "media" / "unsupported" / "gif.gif", 2))
    with pytest.raises(ferry.UsageError, match="videos"):
        opened.generate([1, 2], videos=VIDEO)
    with pytest.raises(ferry.UsageError, match="videos"):
        ferry.open(bundle).generate("a", videos=VIDEO)
