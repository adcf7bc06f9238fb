"""Folders and bundles that the tests share. FERRY_TESTDATA is the folder testdata of the sources."""

import os
import pathlib
import shutil

import pytest

import ferry

TESTDATA = pathlib.Path(
    os.environ.get("FERRY_TESTDATA", pathlib.Path(__file__).resolve().parents[2] / "testdata")
)


@pytest.fixture(scope="session")
def trained() -> pathlib.Path:
    """The checkpoint of the trained sample."""
    return TESTDATA / "trained"


@pytest.fixture(scope="session")
def bundle(tmp_path_factory, trained) -> pathlib.Path:
    """A bundle of it in f32, with its reference."""
    path = tmp_path_factory.mktemp("bundles") / "sample.bundle"
    ferry.convert(trained, path, dtype="f32", reference=trained / "golden.safetensors")
    return path


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> pathlib.Path:
    """A bundle that gives vectors of texts; beside it, its checkpoint."""
    folder = tmp_path_factory.mktemp("encoders")
    source = folder / "checkpoint"
    shutil.copytree(TESTDATA / "encoder" / "embedding_gemma", source)
    shutil.copy(TESTDATA / "tokenizer" / "gemma" / "tokenizer.json", source)
    ferry.convert(source, folder / "bundle", dtype="f32")
    return folder / "bundle"


@pytest.fixture(scope="session")
def speech(tmp_path_factory) -> pathlib.Path:
    """A bundle of a model of speech."""
    path = tmp_path_factory.mktemp("speech") / "bundle"
    ferry.convert(TESTDATA / "speech" / "whisper", path, dtype="f32")
    return path


@pytest.fixture
def documented(tmp_path, bundle, encoder, speech, monkeypatch) -> pathlib.Path:
    """A folder in which the examples of the documents work."""
    (tmp_path / "testdata").symlink_to(TESTDATA)
    (tmp_path / "sample.bundle").symlink_to(bundle)
    (tmp_path / "encoder.bundle").symlink_to(encoder)
    (tmp_path / "speech.bundle").symlink_to(speech)
    monkeypatch.chdir(tmp_path)
    return tmp_path
