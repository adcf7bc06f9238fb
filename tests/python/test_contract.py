"""Results have the members and the values of the documents that the program prints."""

import dataclasses
import json
import pathlib
import shutil
import subprocess

import pytest

import ferry
from conftest import TESTDATA

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schemas"


def program(*words) -> dict:
    """Returns the result in the document of the program."""
    command = ["ferry", *map(str, words), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=False).stdout)["result"]


def compare(ours, theirs, left_out=(), where="") -> int:
    """Compares the members of a dataclass that the document has too. Returns how many they are."""
    count = 0
    for field in dataclasses.fields(ours):
        place = f"{where}.{field.name}"
        value = getattr(ours, field.name)
        if place in left_out or field.name == "document":
            continue
        if field.name not in theirs:  # the document leaves empty members out
            assert value in ("", (), 0, None), place
            continue
        other = theirs[field.name]
        count += 1
        if dataclasses.is_dataclass(value):
            count += compare(value, other, left_out, place)
        elif isinstance(value, tuple):
            assert len(value) == len(other), place
            for mine, its in zip(value, other):
                if dataclasses.is_dataclass(mine):
                    count += compare(mine, its, left_out, place)
                else:
                    assert mine == its, place
        elif isinstance(value, float):
            assert value == pytest.approx(other, rel=1e-12), place
        else:
            assert value == other, place
    return count


@pytest.mark.parametrize("what", ["trained", "bundle", "program"])
def test_inspect(what, trained, bundle):
    path = {"trained": trained, "bundle": bundle, "program": next(bundle.glob("*.pte"))}[what]
    found, document = ferry.inspect(path), program("inspect", path)
    for program_document in document["programs"]:
        for method in program_document["methods"]:  # the library has less of these
            method["planned_bytes"] = sum(method["planned_bytes"])
            method["delegates"] = [delegate["backend"] for delegate in method["delegates"]]
    assert compare(found, document) > 10


def test_plan_and_convert(tmp_path, trained):
    planned = ferry.plan(trained, dtype="f16")
    assert compare(planned, program("convert", trained, "-n", "--dtype", "f16")) > 50
    made = ferry.convert(trained, tmp_path / "a", dtype="f16")
    document = program("convert", trained, "-o", tmp_path / "b", "--dtype", "f16")
    assert made.path == str(tmp_path / "a")
    # The document has notes of the writing too, and the size of a manifest with other times in it.
    assert compare(made, document, (".path", ".notes")) > 50


def test_audit(bundle):
    found, document = ferry.audit(bundle, digests=True), program("audit", bundle, "--digests")
    assert compare(found, document) > 100
    assert found.document == document


def test_verify(bundle, trained):
    found = ferry.verify(bundle)
    document = program("verify", bundle)
    names = {layer["name"] for layer in document["layers"]}
    assert names == {layer.name for layer in found.layers}
    elsewhere = (".first_divergence", ".layers", ".cases.greedy_match", ".cases.greedy_total")
    assert compare(found, document, elsewhere) > 10
    assert sum(case.greedy_match for case in found.cases) == document["metrics"]["greedy_match"]
    found = ferry.verify(bundle, checkpoint=trained)
    document = program("verify", bundle, "--checkpoint", trained)
    assert compare(found.tensors, document["tensors"]) == 3
    assert found.programs_equal is (not document["programs"]["different"])


def test_sign_and_check(tmp_path, bundle):
    for name in "ab":
        shutil.copytree(bundle, tmp_path / name)
    key = tmp_path / "key.pem"
    key.write_bytes((TESTDATA / "signing_keys" / "p256.pem").read_bytes())
    key.chmod(0o600)
    signed = ferry.sign(tmp_path / "a", key)
    document = program("sign", tmp_path / "b", "--key", key)
    assert compare(signed, document, (".path", ".signature")) > 4
    public = TESTDATA / "signing_keys" / "p256.pub.pem"
    for damaged in (False, True):
        if damaged:
            config = tmp_path / "a" / "config.json"
            config.write_bytes(config.read_bytes() + b" ")
        checked = ferry.check(tmp_path / "a", public_key=public)
        document = program("check", tmp_path / "a", "--public-key", public)
        assert checked.ok is not damaged
        # The document counts files by what became of them, and lists all of them.
        elsewhere = (".files", ".bytes", ".differences")
        assert compare(checked.signature, document["signature"], elsewhere) > 3
        changed = [file["name"] for file in document["files"] if file["status"] == "changed"]
        assert [line.split(":")[0] for line in checked.signature.differences] == changed
        assert compare(checked, document["bundle"], (".signature",)) > 3


@pytest.mark.parametrize("path", [TESTDATA / "trained", TESTDATA / "golden" / "llama"])
def test_check_of_a_checkpoint(path):
    assert compare(ferry.check(path), program("check", path), (".signature",)) >= 4


def test_run(bundle):
    stream = ferry.run(bundle, "And it came to pass", max_new_tokens=9)
    tokens = [piece.token for piece in stream if piece.token >= 0]
    document = program("run", bundle, "--prompt", "And it came to pass", "--max-new", 9, "--greedy")
    if document is None:  # a program that has no such option is always greedy
        document = program("run", bundle, "--prompt", "And it came to pass", "--max-new", 9)
    assert list(stream.result.tokens) == tokens == document["tokens"]
    assert stream.result.stop == document["stop"] == "max_new"


def test_stops_are_words_of_the_schema(bundle):
    schema = json.loads((SCHEMAS / "run.json").read_text())
    words = schema["$defs"]["answer"]["properties"]["stop"]["enum"]
    opened = ferry.open(bundle)
    text = opened.generate("And it came to pass", max_new_tokens=20).text
    found = {
        opened.generate("And it came to pass", max_new_tokens=1).stop,
        opened.generate("And it came to pass", stops=text[8:12]).stop,
        opened.generate("And", max_new_tokens=10**6, ignore_end_tokens=True).stop,
    }
    assert found == {"max_new", "stop_text", "context"} and found <= set(words)


def test_errors(tmp_path):
    broken = tmp_path / "model.safetensors"
    broken.write_bytes(b"\x08\0\0\0\0\0\0\0[1, 2]  ")
    for path, kind in [(broken, "bad_input"), (tmp_path / "absent", "io")]:
        with pytest.raises(ferry.Error) as raised:
            ferry.inspect(path)
        document = json.loads(
            subprocess.run(["ferry", "inspect", path, "--json"], capture_output=True).stdout
        )
        assert raised.value.kind == kind == document["error"]["code"]
        assert raised.value.code == document["exit"]
        assert raised.value.message == document["error"]["message"]
