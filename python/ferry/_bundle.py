"""Bundles: answers, vectors and proofs."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from ferry import _native
from ferry._common import (
    Path,
    Progress,
    Sound,
    Video,
    path_of,
    paths_of,
    sound_of,
    sounds_of,
    texts_of,
    videos_of,
)
from ferry._errors import UsageError
from ferry._results import BundleInfo, Generation, Transcription, Verification, build

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: A text, token ids, or the messages of a chat.
Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]

#: How a bundle of static programs decodes; all modes give equal tokens.
Mode = Literal["default", "kv", "hybrid", "lookahead"]

# How many pieces may wait for the reader of a stream, while the next ones are computed.
_MOST_WAITING = 8


class GenerateOptions(TypedDict, total=False):
    """Keywords of :func:`run`, :meth:`Bundle.stream`, :meth:`Bundle.generate` and
    :meth:`Bundle.generate_all`.

    - ``max_new_tokens``: 256 by default
    - ``temperature``: 0 by default, which always takes the likeliest token
    - ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty``, ``seed``: of sampling
    - ``stops``: texts that end the answer before the first of them
    - ``ignore_end_tokens``: goes on behind the tokens that end an answer
    - ``images``: files of images, for vision-language models
    - ``videos``: for vision-language models, pairs of a folder, with the frames of a video as
      pictures, and how many of them a second has
    - ``sounds``: files of sound, or pairs of samples and their rate, for models that hear
    """

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    stops: str | Iterable[str]
    ignore_end_tokens: bool
    images: Path | Iterable[Path]
    videos: Video | Iterable[Video]
    sounds: Sound | Iterable[Sound]


class TranscribeOptions(TypedDict, total=False):
    """Keywords of :func:`transcribe` and :meth:`Bundle.transcribe`.

    - ``language``: such as "en"; otherwise it is detected
    - ``task``: "transcribe" or "translate"
    - ``timestamps``: the times of segments; sound longer than a window always has them
    """

    language: str
    task: str
    timestamps: bool
    progress: Progress


class EmbedOptions(TypedDict, total=False):
    """Keywords of :func:`embed` and :meth:`Bundle.embed`.

    - ``prompt``: is put before each text; otherwise ``prompt_name`` selects one of the bundle
    - ``truncate``: cuts texts that are too long, which are errors otherwise
    - ``width``: keeps only the first values of a vector
    - ``normalize``: scales vectors to length 1
    """

    prompt: str
    prompt_name: str
    truncate: bool
    width: int
    normalize: bool
    progress: Progress


class Piece(str):
    """A piece of an answer: the text that a token completes, which may be empty."""

    #: The id of the token; -1 for text that was held back until the end.
    token: int

    def __new__(cls, text: str, token: int) -> Piece:
        piece = super().__new__(cls, text)
        piece.token = token
        return piece


class Stream(Iterator[Piece]):
    """The pieces of an answer, as they are computed. Closing it ends the answer; so does the end of
    a ``with`` block, and dropping the stream."""

    def __init__(self, pieces: Generator[Piece, None, None], result: list[Generation]) -> None:
        self._pieces = pieces
        self._result = result

    def __next__(self) -> Piece:
        return next(self._pieces)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the answer, and returns when no work is left."""
        self._pieces.close()

    @property
    def result(self) -> Generation | None:
        """The whole answer, once the stream has ended."""
        return self._result[0] if self._result else None


class Tokenizer:
    """The tokenizer of a checkpoint, a bundle, or a single file.

    >>> words = Tokenizer("testdata/trained")
    >>> words.decode(words.encode("And it came to pass"))
    'And it came to pass'
    """

    def __init__(self, source: Path | Bundle) -> None:
        if isinstance(source, Bundle):
            self._handle = _native.tokenizer_of(source._handle)
        else:
            self._handle = _native.load_tokenizer(path_of(source))

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Returns token ids; ``add_special`` adds those that begin and end a text."""
        return self._handle.encode(text, add_special)

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        """Returns the text of token ids."""
        return self._handle.decode(list(tokens), skip_special)

    def find(self, token: str) -> int | None:
        """Returns the id of a token, or None."""
        return self._handle.find(token)


class Bundle:
    """An open bundle, from :func:`open`. One answer at a time: other threads wait for it."""

    def __init__(
        self,
        handle: _native.Bundle,
        threads: int,
        options: Mapping[str, object] | None = None,
        draft: Bundle | None = None,
    ) -> None:
        self._handle = handle
        self._threads = threads
        self._options = dict(options or {})
        self._draft = draft
        self._model: _native.Model | None = None
        self._embedder: _native.Embedder | None = None
        self._transcriber: _native.Transcriber | None = None
        self._busy = threading.Lock()
        self._owner: int | None = None  # the thread whose answer is not complete
        self.info: BundleInfo = build(BundleInfo, handle.info())

    def __repr__(self) -> str:
        return f"<ferry.Bundle {self.info.path!r}: {self.info.model_type}>"

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the bundle (docs/bundle_format.md)."""
        return dict(json.loads(self._handle.manifest_json()))

    def with_adapter(self, name: str) -> Bundle:
        """Returns the bundle with one of its adapters (``info.adapters``); "" chooses none. Both
        share the files. Answers, vectors and proofs of the new one are those of the adapter."""
        chosen = self._handle.with_adapter(name)
        return Bundle(chosen, self._threads, self._options, self._draft)

    def text_file(self, name: str) -> str:
        """Returns a file that was copied into the bundle, such as "tokenizer.json"."""
        return self._handle.text_file(name)

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Renders a chat by the template of the checkpoint, as transformers does. ``variables``
        such as ``tools`` become variables of the template."""
        chat = {"add_generation_prompt": True, **variables, "messages": list(messages)}
        return _native.render_chat(self._handle, json.dumps(chat))

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Generation:
        """Answers a prompt. A prompt that continues the previous one computes only the new tokens.

        >>> open("sample.bundle").generate("And it came to pass", max_new_tokens=3).stop
        'max_new'
        """
        wanted, how = _request(prompt, options)
        with self._turn():
            return build(Generation, self._loaded().generate(wanted, how, None))

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Returns the answer to a prompt piece by piece."""
        wanted, how = _request(prompt, options)
        result: list[Generation] = []
        return Stream(self._pieces(wanted, how, result), result)

    def generate_all(
        self,
        prompts: Iterable[Prompt],
        *,
        progress: Progress | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]:
        """Answers prompts, as many at a time as ``parallel`` of :func:`open` says. Answers are in
        the order of the prompts, and those of :meth:`generate`. With ``parallel`` prompts have no
        images, sounds and videos.

        >>> bundle = open("sample.bundle", parallel=2)
        >>> answers = bundle.generate_all(["And it", "The king"], max_new_tokens=3)
        >>> [answer.stop for answer in answers]
        ['max_new', 'max_new']
        """
        requests = [_request(prompt, options) for prompt in prompts]
        how = requests[0][1] if requests else {}
        with self._turn():
            made = self._loaded().generate_all([wanted for wanted, _ in requests], how, progress)
        return [build(Generation, answer) for answer in made]

    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Returns the logits after the last of the tokens, which begin at position 0."""
        with self._turn():
            model = self._loaded()
            model.restart()
            return model.forward(list(tokens))

    def embed(
        self, texts: str | Iterable[str], **options: Unpack[EmbedOptions]
    ) -> npt.NDArray[np.float32]:
        """Returns vectors of texts, f32: [texts, width], or [width] for a single text."""
        how: dict[str, Any] = dict(options)
        progress = how.pop("progress", None)
        with self._turn():
            if self._embedder is None:
                self._embedder = _native.load_embedder(self._handle, None, self._threads)
            rows = self._embedder.embed(texts_of(texts), how, progress)
        return rows[0] if isinstance(texts, str) else rows

    def transcribe(self, sound: Sound, **options: Unpack[TranscribeOptions]) -> Transcription:
        """Returns the text of speech. ``sound`` is a WAV or FLAC file, or the samples of one
        channel and their rate."""
        how: dict[str, Any] = dict(options)
        progress = how.pop("progress", None)
        with self._turn():
            if self._transcriber is None:
                self._transcriber = _native.load_transcriber(self._handle, None, self._threads)
            made = self._transcriber.transcribe(sound_of(sound), how, progress)
            return build(Transcription, made)

    def _loaded(self) -> _native.Model:
        if self._model is None:
            draft = self._draft._handle if self._draft else None
            self._model = _native.load_model(self._handle, self._options, draft, self._threads)
        return self._model

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._owner == threading.get_ident():
            raise UsageError("this bundle is in the middle of an answer: end or close its stream")
        with self._busy:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    def _pieces(
        self, prompt: dict[str, Any], options: dict[str, Any], result: list[Generation]
    ) -> Generator[Piece, None, None]:
        """A thread generates. It does not get far ahead of the reader."""
        with self._turn():
            model = self._loaded()
            pieces: queue.Queue[Piece | None] = queue.Queue(_MOST_WAITING)
            closed = threading.Event()
            failure: list[BaseException] = []

            def put(piece: Piece | None) -> bool:
                while not closed.is_set() and threading.main_thread().is_alive():
                    try:
                        pieces.put(piece, timeout=0.1)
                    except queue.Full:
                        continue
                    return True
                return False

            def work() -> None:
                try:
                    answer = model.generate(
                        prompt, options, lambda token, text: put(Piece(text, token))
                    )
                    result.append(build(Generation, answer))
                except BaseException as error:  # noqa: BLE001 - it is raised again below
                    failure.append(error)
                put(None)

            thread = threading.Thread(target=work, name="ferry")
            thread.start()
            try:
                while (piece := pieces.get()) is not None:
                    yield piece
            except BaseException:
                closed.set()
                model.interrupt()
                raise
            finally:
                thread.join()
                model.clear_interrupt()
            if failure:
                raise failure[0]


def open(  # noqa: A001 - ferry.open() reads well
    path: Path,
    *,
    config: Path | None = None,
    mmproj: Path | None = None,
    check_digests: bool = True,
    exact: bool = False,
    mode: Mode = "default",
    lookup: int = 0,
    draft: Path | Bundle | None = None,
    parallel: int = 1,
    kv_bits: str = "",
    progress: Progress | None = None,
    threads: int = 0,
) -> Bundle:
    """Opens a bundle, or a GGUF file, which is converted in memory.

    ``config`` and ``mmproj`` are for a GGUF file: a config.json where its metadata are incomplete,
    and the projector with its vision encoder. ``check_digests`` hashes every byte first. ``exact`` computes with the matrices of a GGUF file
    as f32, which :func:`ferry.verify` needs, and products of bf16 in f32. ``lookup`` guesses up to that many tokens at a time
    from earlier ones, ``draft`` with a smaller bundle of the same vocabulary: answers are the same,
    and sooner where guesses are right; a bundle needs ``all_logits`` of :func:`convert` for it.
    ``parallel`` is how many answers :meth:`Bundle.generate_all` makes at a time, 1 to 64: one pass
    over the weights serves all of them, and each has caches of its own. ``kv_bits`` holds keys and values
    in fewer bits: "8", "4", or "8,4" for keys and values.
    ``threads`` is for all work with the bundle; 0 means as many as the process may use.

    >>> open("sample.bundle").info.model_type
    'qwen3_5_text'
    """
    options = {
        "path": path_of(path),
        "config": path_of(config),
        "mmproj": path_of(mmproj),
        "check_digests": check_digests,
        "exact": exact,
        "all_logits": lookup > 0 or draft is not None,
    }
    guesser = draft if draft is None or isinstance(draft, Bundle) else open(draft, threads=threads)
    handle = _native.open(options, progress, threads)
    return Bundle(handle, threads, {"mode": mode, "lookup": lookup, "parallel": parallel, "kv_bits": kv_bits}, guesser)


def run(
    bundle: Path | Bundle,
    prompt: Prompt,
    **options: Unpack[GenerateOptions],
) -> Stream:
    """Returns the answer to a prompt piece by piece. For ``options`` see :class:`GenerateOptions`.

    >>> "".join(run("sample.bundle", "And it came to pass", max_new_tokens=12))
    ', when the people saw that the people had heard the voice'
    """
    return _opened(bundle).stream(prompt, **options)


def embed(
    bundle: Path | Bundle, texts: str | Iterable[str], **options: Unpack[EmbedOptions]
) -> npt.NDArray[np.float32]:
    """Returns vectors of texts, f32: [texts, width], or [width] for a single text. For ``options``
    see :class:`EmbedOptions`."""
    return _opened(bundle).embed(texts, **options)


def transcribe(
    bundle: Path | Bundle, sound: Sound, **options: Unpack[TranscribeOptions]
) -> Transcription:
    """Returns the text of speech. ``sound`` is a WAV or FLAC file, or the samples of one channel and
    their rate. For ``options`` see :class:`TranscribeOptions`."""
    return _opened(bundle).transcribe(sound, **options)


def verify(
    bundle: Path | Bundle,
    *,
    reference: Path | None = None,
    checkpoint: Path | None = None,
    config: Path | None = None,
    lora: Path | None = None,
    mmproj: Path | None = None,
    calibrate_weights: Path | None = None,
    against: Path | None = None,
    images: str | Iterable[str] = (),
    tolerance: float | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
    threads: int = 0,
) -> Verification:
    """Compares what a bundle computes with a reference, its checkpoint or another bundle.

    A difference is no error: the verdict says so. ``calibrate_weights`` is the file that the
    bundle was calibrated with, unless that was "default".

    >>> verify("sample.bundle", checkpoint="testdata/trained").verdict
    'parity'
    """
    opened = _opened(bundle, exact=True)
    options = {
        "reference": path_of(reference),
        "checkpoint": path_of(checkpoint),
        "config": path_of(config),
        "lora": path_of(lora),
        "mmproj": path_of(mmproj),
        "calibrate_weights": path_of(calibrate_weights),
        "against": path_of(against),
        "images": texts_of(images),
        "tolerance": tolerance,
        "memory": memory,
    }
    found = _native.verify(opened._handle, options, progress, threads)
    return build(Verification, found, path=opened.info.path)


def _opened(bundle: Path | Bundle, *, exact: bool = False) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else open(bundle, exact=exact)


def _request(
    prompt: Prompt, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the prompt and the options for the library."""
    how = dict(options)
    if "stops" in how:
        how["stops"] = texts_of(how["stops"])
    files = {
        "images": paths_of(how.pop("images", ())),
        "sounds": sounds_of(how.pop("sounds", ())),
        "videos": videos_of(how.pop("videos", ())),
    }
    if isinstance(prompt, str):
        return {"text": prompt, **files}, how
    items = list(prompt)
    if items and isinstance(items[0], Mapping):
        chat = {"messages": items, "add_generation_prompt": True}
        return {"chat_json": json.dumps(chat), **files}, how
    return {"tokens": items, **files}, how
