"""Sound: transcripts and prompts are those of the program, from files and from samples."""

import array
import json
import wave

import numpy as np
import pytest

import ferry
from conftest import TESTDATA
from test_contract import compare, program

SPEECH, SOUNDS = TESTDATA / "speech", TESTDATA / "sound"
WAV = SOUNDS / "mono_16.wav"
ASKED = "What is said?"


@pytest.fixture(scope="module")
def hearing(tmp_path_factory):
    """A bundle of a language model that hears."""
    path = tmp_path_factory.mktemp("hearing") / "bundle"
    ferry.convert(SPEECH / "voxtral", path, dtype="f32")
    return path


def samples_of(path):
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2") / 32768, file.getframerate()


@pytest.mark.parametrize("options", [{}, {"language": "de", "task": "translate", "timestamps": True}])
def test_transcripts_are_those_of_the_program(speech, options):
    heard = ferry.transcribe(speech, WAV, **options)
    words = [f"--{name}={value}" for name, value in options.items() if value is not True]
    document = program("transcribe", speech, WAV, *words, *(["--timestamps"] if "timestamps" in options else []))
    assert compare(heard, document, (".encode_seconds", ".decode_seconds")) > 10
    assert heard.segments and heard.duration > 0.1


@pytest.mark.parametrize("kind", ["float64", "float32", "strided", "list", "array"])
def test_samples_are_a_sound(speech, kind):
    samples, rate = samples_of(WAV)
    given = {
        "float64": samples,
        "float32": samples.astype("f4"),
        "strided": np.stack([samples, 0 * samples], axis=1).astype("f4")[:, 0],
        "list": samples.tolist(),
        "array": array.array("f", samples),
    }[kind]
    opened = ferry.open(speech)
    assert opened.transcribe((given, rate)).tokens == opened.transcribe(WAV).tokens


def test_what_is_no_sound_is_refused(speech, bundle):
    opened = ferry.open(speech)
    samples, rate = samples_of(WAV)
    for wrong in ((samples * 32768).astype("i2"), samples.reshape(-1, 2), "text"):
        with pytest.raises(TypeError):
            opened.transcribe((wrong, rate))
    with pytest.raises(ferry.UnsupportedError, match="999 Hz"):
        opened.transcribe((samples, 999))
    with pytest.raises(ferry.BadInputError, match="sample 3 is not finite"):
        opened.transcribe((np.where(np.arange(len(samples)) == 3, np.nan, samples), rate))
    with pytest.raises(ferry.UsageError):
        opened.transcribe(([], rate))
    with pytest.raises(ferry.UsageError, match="the model has") as raised:
        opened.transcribe(WAV, language="fr")
    assert raised.value.field == "language"
    with pytest.raises(ferry.IoError) as raised:
        opened.transcribe(SOUNDS / "none.wav")
    assert raised.value.path == str(SOUNDS / "none.wav")
    with pytest.raises(ferry.UsageError):
        ferry.transcribe(bundle, WAV)
    with pytest.raises(ferry.UsageError, match="takes none") as raised:
        ferry.open(bundle).generate("And", sounds=WAV)
    assert raised.value.field == "sounds"


def test_progress_stops_a_transcript(speech):
    class Enough(Exception):
        pass

    def stop(*_):
        raise Enough

    opened = ferry.open(speech)
    with pytest.raises(Enough):
        opened.transcribe(WAV, progress=stop)
    told = []
    opened.transcribe(WAV, progress=lambda *words: told.append(words))
    assert told and told[0][0] == "transcribing"


def test_chats_with_sounds_are_answered_as_by_the_reference(hearing):
    opened = ferry.open(hearing)
    answers = json.loads((SPEECH / "voxtral" / "answers.json").read_text())
    for case in (case for case in answers if "messages" in case):
        messages, sounds = case["messages"], []
        for message in messages:
            for item in message["content"] if isinstance(message["content"], list) else []:
                if "audio" in item:
                    sounds.append(SOUNDS / item.pop("audio"))
                    item["type"] = "audio"
        made = opened.generate(messages, sounds=sounds, max_new_tokens=12)
        assert list(made.tokens)[: len(case["tokens"])] == case["tokens"]
        assert made.prompt_tokens == len(case["ids"])


def test_samples_in_a_chat(hearing):
    chat = [{"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": ASKED}]}]
    opened = ferry.open(hearing)
    answers = [
        opened.generate(chat, sounds=sounds, max_new_tokens=8).tokens
        for sounds in (WAV, [WAV], samples_of(WAV), [samples_of(WAV)])
    ]
    assert len(set(answers)) == 1
    assert "".join(ferry.run(opened, ASKED, sounds=WAV, max_new_tokens=4))
    with pytest.raises(ferry.BadInputError, match="1 sounds, 0 are given"):
        opened.generate(chat)
