"""The module ferry, held to the program, to NumPy, and to what transformers computed."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ferry
from conftest import TESTDATA

EXPECTED = json.loads((TESTDATA / "trained" / "expected.json").read_text())


def program(*words) -> dict:
    """Runs the program of the wheel, and returns its document."""
    command = [shutil.which("ferry"), *map(str, words), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=False).stdout)


def test_version_is_that_of_the_program():
    out = subprocess.run(["ferry", "--version"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == f"ferry {ferry.version()}"


def test_inspect_lists_what_safetensors_has(trained):
    raw = (trained / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__", None)
    found = ferry.inspect(trained)
    assert found.kind == "checkpoint"
    assert {t.name: list(t.shape) for t in found.tensors} == {
        name: entry["shape"] for name, entry in header.items()
    }


def test_convert_makes_what_the_program_makes(tmp_path, trained):
    made = ferry.convert(trained, tmp_path / "a", quantize="8da4w", embedding_bits=8,
                         quantize_rules={"output": "8da8w"})
    command = ["ferry", "convert", trained, "-o", tmp_path / "b", "--quantize", "8da4w",
               "--quantize-embedding", "8", "--quantize-rule", "output=8da8w", "--quiet"]
    subprocess.run(list(map(str, command)), check=True)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert made.bytes == sum(path.stat().st_size for path in (tmp_path / "a").iterdir())


def test_calibrated_codes_are_chosen_again_for_the_proof(tmp_path, trained):
    ids = tmp_path / "ids.txt"
    ids.write_text("\n".join(" ".join(str(3 + (i * 31 + j * 7) % 90) for j in range(32)) for i in range(4)))
    made = ferry.convert(trained, tmp_path / "a", quantize_budget="1200KB", calibrate_weights=ids)
    assert made.bytes <= 1_200_000
    assert ferry.verify(tmp_path / "a", checkpoint=trained, calibrate_weights=ids).tensors.different == ()
    with pytest.raises(ferry.UsageError, match="a text that the proof needs"):
        ferry.verify(tmp_path / "a", checkpoint=trained)


@pytest.mark.parametrize("form, name", [("gguf", "m.gguf"), ("hf", "hf"), ("safetensors", "st"),
                                        ("safetensors", "m.safetensors"), ("pth", "m.pth")])
def test_other_formats_are_files_or_folders_as_the_program_makes_them(tmp_path, form, name):
    source = TESTDATA / "golden" / "llama"
    ferry.convert(source, tmp_path / name, format=form)
    other = tmp_path / "program"
    other.mkdir()
    subprocess.run(["ferry", "convert", source, "--to", form, "-o", other / name, "--quiet"],
                   check=True)
    assert (tmp_path / name).is_dir() == (other / name).is_dir()
    if (tmp_path / name).is_file():
        assert (tmp_path / name).read_bytes() == (other / name).read_bytes()


def test_run_streams_what_transformers_wrote(bundle):
    opened = ferry.open(bundle)
    for case in EXPECTED["prompts"]:
        tokens = len(ferry.Tokenizer(opened).encode(case["continuation"]))
        pieces = list(ferry.run(opened, case["text"], max_new_tokens=tokens))
        assert "".join(pieces) == case["continuation"]
        assert len(pieces) > 3


def test_tokens_texts_and_chats_are_prompts(bundle):
    opened = ferry.open(bundle)
    tokens = ferry.Tokenizer(opened).encode("And it came to pass")
    by_text = opened.generate("And it came to pass", max_new_tokens=8)
    assert opened.generate(tokens, max_new_tokens=8).tokens == by_text.tokens
    assert by_text.stop == "max_new"
    assert ferry.Tokenizer(opened).decode(by_text.tokens) == by_text.text
    with pytest.raises(ferry.Error, match="chat"):  # the sample has no template
        opened.generate([{"role": "user", "content": "Hello"}])


def test_an_encoder_decoder_answers_as_transformers_does(tmp_path):
    source = TESTDATA / "source" / "marian"
    ferry.convert(source, tmp_path / "b", dtype="f32", one_program=True, max_source=40)
    opened = ferry.open(tmp_path / "b")
    for case in json.loads((source / "answers.json").read_text()):
        answer = opened.generate(case["text"], max_new_tokens=len(case["tokens"]))
        assert list(answer.tokens) == case["tokens"] and answer.text == case["answer"]
        assert answer.prompt_tokens == len(case["source"])
    with pytest.raises(ferry.UsageError, match="encoder-decoder"):
        opened.generate([{"role": "user", "content": "Hello"}])


def test_a_sequence_without_an_end(tmp_path):
    source = TESTDATA / "golden" / "llama"
    ferry.convert(source, tmp_path / "b", attention_sink=(4, 8))
    answer = ferry.open(tmp_path / "b").generate([5, 1], max_new_tokens=50, ignore_end_tokens=True)
    assert len(answer.tokens) == 50
    ferry.convert(source, tmp_path / "t", attention_sink=(4, 8), sink_text_positions=True)
    assert ferry.check(tmp_path / "t").ok
    with pytest.raises(ferry.UsageError, match="sink_text_positions"):
        ferry.convert(source, tmp_path / "u", sink_text_positions=True)
    with pytest.raises(ferry.UsageError, match="attention_sink"):
        ferry.convert(source, tmp_path / "c", attention_sink=(0, 8))


def test_pictures_of_one_size(tmp_path):
    source = TESTDATA / "vision" / "qwen3_vl"
    ferry.convert(source, tmp_path / "b", image_size=(40, 32), one_program=True)
    assert ferry.check(tmp_path / "b").ok
    with pytest.raises(ferry.UsageError, match="image_size"):
        ferry.convert(source, tmp_path / "c", image_size=(40, 32))


def test_an_iterator_that_is_closed_ends_the_answer(bundle):
    opened = ferry.open(bundle)
    pieces = opened.stream("And it came to pass", max_new_tokens=4000, ignore_end_tokens=True)
    next(pieces)
    start = time.monotonic()
    pieces.close()
    assert time.monotonic() - start < 2
    assert opened.generate("And", max_new_tokens=2).tokens


def test_logits_are_those_of_the_reference(bundle, trained):
    raw = (trained / "golden.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])

    def tensor(name, dtype):
        begin, end = header[name]["data_offsets"]
        values = np.frombuffer(raw[8 + size + begin : 8 + size + end], dtype)
        return values.reshape(header[name]["shape"])

    prompt = next(name for name in header if name.endswith("input_ids"))
    stem = prompt[: -len("input_ids")]
    tokens = tensor(prompt, np.int64 if header[prompt]["dtype"] == "I64" else np.int32).ravel()
    expected = tensor(stem + "logits", np.float32).reshape(-1, 2048)[-1]
    logits = ferry.open(bundle).logits([int(t) for t in tokens])
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_an_adapter_has_the_answer_of_its_reference(tmp_path):
    adapters = TESTDATA / "adapters"
    ferry.convert(TESTDATA / "golden" / "llama", tmp_path / "b", dtype="f32", all_logits=True,
                  adapters={"formal": adapters / "formal", "short": adapters / "short"})
    plain = ferry.open(tmp_path / "b")
    assert plain.info.adapters == ("formal", "short") and plain.info.adapter == ""
    tokens = [1, 17, 42, 17, 42]
    answers = set()
    for name in ("", "formal", "short"):
        chosen = plain.with_adapter(name)
        assert chosen.info.adapter == name
        answer = chosen.generate(tokens, max_new_tokens=8, ignore_end_tokens=True).tokens
        answers.add(tuple(answer))
        guessed = ferry.open(tmp_path / "b", lookup=4).with_adapter(name)
        assert guessed.generate(tokens, max_new_tokens=8, ignore_end_tokens=True).tokens == answer
        if name:
            golden = adapters / f"{name}.golden.safetensors"
            assert ferry.verify(chosen, reference=golden).verdict == "parity"
    assert len(answers) == 3
    in_fewer_bits = ferry.open(tmp_path / "b", kv_bits="8").generate(tokens, max_new_tokens=8, ignore_end_tokens=True)
    assert len(in_fewer_bits.tokens) == 8
    with pytest.raises(ferry.UsageError, match="kv_bits"):
        ferry.open(tmp_path / "b", kv_bits="2").generate(tokens)
    drafted = ferry.open(tmp_path / "b", draft=plain)
    assert tuple(drafted.generate(tokens, max_new_tokens=8, ignore_end_tokens=True).tokens) in answers
    several = ferry.open(tmp_path / "b", parallel=2)
    prompts = [tokens, tokens[:2], tokens[1:]]
    alone = [plain.generate(prompt, max_new_tokens=8, ignore_end_tokens=True) for prompt in prompts]
    seen: list[int] = []
    together = several.generate_all(
        prompts, max_new_tokens=8, ignore_end_tokens=True,
        progress=lambda what, done, total: seen.append(done) or True,
    )
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]
    assert seen == [1, 2, 3]
    with pytest.raises(ferry.UsageError, match="prompt 1: "):
        several.generate_all([tokens, [10**6]])
    with pytest.raises(ferry.UsageError) as raised:
        ferry.open(tmp_path / "b", parallel=65).generate(tokens)
    assert raised.value.field == "parallel"
    with pytest.raises(ferry.UsageError) as raised:
        plain.with_adapter("other")
    assert raised.value.field == "adapter"


def test_adapters_are_added_and_removed(tmp_path):
    adapters = TESTDATA / "adapters"
    bundle = tmp_path / "b"
    ferry.convert(TESTDATA / "golden" / "llama", bundle, dtype="f32",
                  adapters={"formal": adapters / "formal"})
    added = ferry.add_adapter(bundle, adapters / "formal", "other")
    assert (added.name, added.path) == ("other", "adapter-other.ptd")
    assert added.bytes == (bundle / added.path).stat().st_size
    listed = ferry.list_adapters(bundle)
    assert [adapter.name for adapter in listed.adapters] == ["formal", "other"]
    assert listed.dtype == "f32" and listed.adapters[1] == added
    assert all(slot.rank == 4 for slot in listed.factors if not slot.embedding)
    chosen = ferry.open(bundle).with_adapter("other")
    golden = adapters / "formal.golden.safetensors"
    assert ferry.verify(chosen, reference=golden).verdict == "parity"
    with pytest.raises(ferry.ExistsError):
        ferry.add_adapter(bundle, adapters / "formal", "other")
    ferry.add_adapter(bundle, adapters / "formal", "other", overwrite=True)
    ferry.remove_adapter(bundle, "other")
    with pytest.raises(ferry.UsageError):
        ferry.remove_adapter(bundle, "other")
    with pytest.raises(ferry.UsageError) as raised:
        ferry.add_adapter(bundle, adapters / "formal", "a/b")
    assert raised.value.field == "name"
    with pytest.raises(TypeError):
        ferry.remove_adapter(bundle, "formal", key="key.pem")
    assert ferry.open(bundle).info.adapters == ("formal",)


def test_embed_gives_the_vectors_of_sentence_transformers(encoder):
    cases = json.loads((encoder.parent / "checkpoint" / "texts.json").read_text())
    bundle = ferry.open(encoder)
    for case in cases:
        vector = bundle.embed(case["text"], prompt_name=case["prompt"])
        np.testing.assert_allclose(vector, case["embedding"], atol=1e-5)
    texts = [case["text"] for case in cases if not case["prompt"]]
    vectors = ferry.embed(bundle, texts)
    assert vectors.shape == (len(texts), len(cases[0]["embedding"]))
    assert vectors.dtype == np.float32


def test_verify_says_yes_and_no(tmp_path, bundle, trained):
    proved = ferry.verify(bundle, checkpoint=trained)
    assert proved.parity and proved.verdict == "parity"
    assert proved.programs_equal and not proved.tensors.different
    source = tmp_path / "other"
    shutil.copytree(trained, source)
    weights = source / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1  # one bit of one weight
    weights.write_bytes(raw)
    wrong = ferry.verify(bundle, checkpoint=source)
    assert wrong.verdict == "no parity" and len(wrong.tensors.different) == 1


def test_audit_accounts_for_every_byte(bundle):
    document = ferry.audit(bundle)
    assert document.totals.bytes == sum(p.stat().st_size for p in bundle.iterdir())
    assert document.document["totals"] == program("audit", bundle)["result"]["totals"]


def test_sign_and_check(tmp_path, trained):
    keys = TESTDATA / "signing_keys"
    public = keys / "p256.pub.pem"
    ferry.convert(trained, tmp_path / "b")
    private = tmp_path / "key.pem"
    private.write_bytes((keys / "p256.pem").read_bytes())
    private.chmod(0o600)
    signed = ferry.sign(tmp_path / "b", private)
    assert signed.files > 4 and pathlib.Path(signed.signature).name == "model.sig"
    checked = ferry.check(tmp_path / "b", public_key=public)
    assert checked.ok and checked.signature.ok
    data = next((tmp_path / "b").glob("*.ptd"))
    raw = bytearray(data.read_bytes())
    raw[len(raw) // 2] ^= 1
    data.write_bytes(raw)
    damaged = ferry.check(tmp_path / "b", public_key=public)
    assert not damaged.ok and not damaged.signature.ok
    assert data.name in damaged.problems[0].message


@pytest.mark.parametrize("call, kind, field", [
    (lambda d: ferry.inspect(d / "absent"), FileNotFoundError, ""),
    (lambda d: ferry.convert(TESTDATA / "trained", d), FileExistsError, ""),
    (lambda d: ferry.plan(TESTDATA / "trained", quantize="q4"), ValueError, "quantize"),
    (lambda d: ferry.plan(TESTDATA / "trained", dtype="f8"), ValueError, "dtype"),
    (lambda d: ferry.plan(TESTDATA / "trained", shards=99), ferry.UsageError, ""),
    (lambda d: ferry.plan(""), ferry.UsageError, "source"),
])
def test_errors_have_a_kind_and_a_field(tmp_path, call, kind, field):
    with pytest.raises((kind, ferry.IoError)) as raised:
        call(tmp_path)
    assert isinstance(raised.value, ferry.Error)
    assert raised.value.field == field or field == ""
    assert "\n" not in str(raised.value)


def test_unknown_options_are_type_errors(trained, bundle):
    with pytest.raises(TypeError):
        ferry.plan(trained, no_such_option=1)
    with pytest.raises(TypeError, match="no_such_option"):
        ferry.open(bundle).generate("a", no_such_option=1)


def test_progress_is_told_and_may_stop_the_work(tmp_path, trained):
    told = []
    ferry.convert(trained, tmp_path / "a", progress=lambda what, done, total: told.append((what, done, total)))
    assert told and all(done <= total for _, done, total in told)

    def stop(*_):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        ferry.convert(trained, tmp_path / "b", progress=stop)
    assert not (tmp_path / "b").exists()


def test_threads_share_nothing_that_breaks(bundle):
    results = []

    def work():
        results.append("".join(ferry.run(bundle, "In the beginning", max_new_tokens=6)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and len(set(results)) == 1


def test_control_c_stops_the_work(bundle):
    code = f"""
import ferry, sys
b = ferry.open({str(bundle)!r})
print("ready", flush=True)
try:
    while True: b.generate("And", max_new_tokens=2000, ignore_end_tokens=True)
except KeyboardInterrupt:
    print(len(b.generate("And", max_new_tokens=3, ignore_end_tokens=True).tokens))
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=20)[0] == "3\n"
    assert child.returncode == 0
