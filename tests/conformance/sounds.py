"""Sounds of every kind become the input of transformers' feature extractor, and random models of speech are converted right.

A case draws a sound (rate, channels, length, file format, noise, silence, clipping, steps) and the settings of an extractor, and
compares what `ferry preprocess --audio` writes with what WhisperFeatureExtractor makes by its numpy path of the samples that
libsndfile reads and torchaudio resamples, in f64, because its rounding in f32 is 60 to 80 dB above that of frames. The bound is 1e-6
where the file has the rate of the model, else 1e-5; the case says how far the torch path and torchaudio in f32 are. Another case draws a Whisper; `python -m ferry.reference`
makes its reference of a drawn sound, `ferry verify` proves every stage, and `ferry transcribe` gives the tokens of generate().
For Moonshine a case draws a sound whose samples must be those of Wav2Vec2FeatureExtractor, normalised or not, bit for bit at the rate
of the model, and another draws a model, as for Whisper.

    python3 tests/conformance/sounds.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import json
import random
import struct

import common
import make_speech_golden as golden  # it imports torch and transformers
import numpy as np
import safetensors.numpy
import soundfile
import torch
import transformers
from common import Wrong
from ferry import reference
from ferry._reference import sound as reference_sound

RATE = golden.RATE
RATES = [8000, 11025, 16000, 16000, 16000, 22050, 24000, 32000, 44100, 48000, 96000]
FORMS = [("wav", "PCM_U8"), ("wav", "PCM_16"), ("wav", "PCM_24"), ("wav", "PCM_32"), ("wav", "FLOAT"), ("wav", "DOUBLE"),
         ("flac", "PCM_16"), ("flac", "PCM_24"), ("flac", "PCM_S8")]
BOUND, RESAMPLED = 1e-6, 1e-5


def draw(r, folder, longest=2.5):
    """A sound in a random file format."""
    extension, subtype = r.choice(FORMS)
    rate, channels = r.choice(RATES), r.choice([1, 1, 2, 2, 3, 6, 8, 8 if extension == "flac" else 11])
    count = max(1, int(rate * r.choice([0, 0.003, 0.2, 0.77, longest]) + r.choice([1, r.randint(0, 160)])))
    noise = np.random.default_rng(r.randrange(1 << 30))
    t = np.arange(count)[:, None] / rate
    kinds = {"silence": np.zeros((count, channels)), "noise": noise.uniform(-1, 1, (count, channels)),
             "clipped": np.clip(3 * np.sin(2 * np.pi * 440 * t) + np.zeros((1, channels)), -1, 1),
             "chirp": 0.5 * np.sin(2 * np.pi * (80 + 700 * t) * t * np.arange(1, channels + 1)),
             "step": np.where(t > count / rate / 2, 0.9, 0.0) + np.zeros((1, channels))}
    kind = r.choice(list(kinds))
    path = folder / f"{kind}-{rate}-{channels}-{subtype}.{extension}"
    options = dict(format="WAVEX") if extension == "wav" and r.random() < 0.3 else {}
    soundfile.write(path, kinds[kind], rate, subtype=subtype, **options)
    return path, rate


def chunk_of(samples, extractor):
    length = extractor.n_samples
    return np.pad(samples[:length], (0, max(0, length - len(samples))))


def frames(promise, number):
    """What ferry makes of a sound is what the extractor makes, within the stated rounding."""
    r = random.Random(f"{promise.seed} sound {number}")
    folder = promise.folder / f"sound-{number}"
    folder.mkdir()
    path, rate = draw(r, folder)
    extractor = transformers.WhisperFeatureExtractor(feature_size=r.choice([80, 128]), chunk_length=r.choice([1, 2, 30]))
    extractor.save_pretrained(folder)
    common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", folder / "made.safetensors").ends_with(0)
    made = safetensors.numpy.load_file(folder / "made.safetensors")["input_features"]
    samples = golden.samples_of(path)
    wanted = extractor._np_extract_fbank_features(chunk_of(samples, extractor)[None], "cpu").astype(np.float32)
    in_f32 = reference_sound.read(type("Prompt", (), dict(audio=str(path), where=path.name)), RATE)
    by_f32 = extractor._np_extract_fbank_features(chunk_of(in_f32, extractor)[None], "cpu")
    by_torch = extractor(samples, sampling_rate=RATE, return_tensors="np").input_features
    if made.shape != wanted.shape:
        raise Wrong(f"{list(made.shape)}, the reference {list(wanted.shape)}")
    distance, noise = float(np.abs(made - wanted).max()), float(np.abs(by_torch - wanted).max())
    if distance > (BOUND if rate == RATE else RESAMPLED):
        raise Wrong(f"{path.name}: differs by {distance:.3g}, its torch path by {noise:.3g}")
    return (f"{path.name}: {distance:.2g} from the numpy path, {noise:.2g} between it and the torch path, "
            f"{float(np.abs(by_f32 - wanted).max()):.2g} by torchaudio in f32 (samples {float(np.abs(in_f32 - samples).max()):.2g})")


def waveform(promise, number):
    """The samples that ferry makes of a sound are those of the extractor, normalised or not."""
    r = random.Random(f"{promise.seed} waveform {number}")
    folder = promise.folder / f"waveform-{number}"
    folder.mkdir()
    path, rate = draw(r, folder)
    normalize = r.random() < 0.5
    transformers.Wav2Vec2FeatureExtractor(do_normalize=normalize, return_attention_mask=r.random() < 0.5).save_pretrained(folder)
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", folder / "made.safetensors").ends_with(0)
    made = safetensors.numpy.load_file(folder / "made.safetensors")["input_values"]
    wanted = extractor(golden.samples_of(path), sampling_rate=RATE, return_tensors="np").input_values
    if made.shape != wanted.shape:
        raise Wrong(f"{list(made.shape)}, the reference {list(wanted.shape)}")
    # A resampled sound is rounded from sums in f64 in another order. Silence is divided by nearly nothing.
    distance = float(np.abs(made - wanted).max())
    if distance > (0 if rate == RATE else RESAMPLED * max(1.0, float(np.abs(wanted).max()))):
        raise Wrong(f"{path.name}: differs by {distance:.3g}")
    return f"{path.name}: {made.shape[1]} samples{' normalised' if normalize else ''}, {distance:.2g} from the extractor's"


def wav_chunk(tag, data):
    return tag + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2)


def odd_wav(r):
    """A WAV of any number of channels and samples, among other chunks, in either form of its header."""
    code, bits = r.choice([(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
    channels, count = r.choice([1, 2, 7, 8, 9, 130, 255]), r.choice([1, 2, 3, 50])
    values = np.random.default_rng(r.randrange(1 << 30)).normal(0, r.choice([0.3, 3, 1e30, 1e-40]), (count, channels))
    data = values.astype(f"<f{bits // 8}").tobytes() if code == 3 else r.randbytes(count * channels * bits // 8)
    frame, extended = channels * bits // 8, r.random() < 0.5
    header = struct.pack("<HHIIHH", 0xFFFE if extended else code, channels, RATE, RATE * frame, frame, bits)
    if extended:
        header += struct.pack("<HHIH", 22, r.choice([bits, bits - 4]), r.choice([0, 3]), code) + bytes.fromhex("000000001000800000aa00389b71")
    others = [wav_chunk(b"JUNK", r.randbytes(5)), wav_chunk(b"LIST", b"INFOISFT\4\0\0\0abcd"), wav_chunk(b"fact", count.to_bytes(4, "little"))]
    before = [part for part in others if r.random() < 0.3]
    body = b"WAVE" + b"".join([*before[:1], wav_chunk(b"fmt ", header), *before[1:], wav_chunk(b"data", data), wav_chunk(b"id3 ", b"12345")])
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def odd(promise, number):
    """Samples of odd files are those that libsndfile reads and numpy means, bit for bit, or the file is refused by name."""
    r = random.Random(f"{promise.seed} odd {number}")
    folder = promise.folder / f"odd-{number}"
    folder.mkdir()
    transformers.Wav2Vec2FeatureExtractor(do_normalize=False).save_pretrained(folder)
    for file in range(20):
        path = folder / f"{file}.wav"
        path.write_bytes(odd_wav(r))
        common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", f"{path}.safetensors").ends_with(0)
        made, wanted = safetensors.numpy.load_file(f"{path}.safetensors")["input_values"][0], golden.samples_of(path)
        if made.shape != wanted.shape or not np.array_equal(made, wanted):
            raise Wrong(f"{path.name}: {soundfile.info(path)} {np.abs(made - wanted).max() if made.shape == wanted.shape else made.shape}")
    for kind in ("AIFF", "AU", "CAF", "W64", "RF64", "OGG", "WAV"):  # the last with A-law
        path = folder / f"other.{kind.lower()}"
        soundfile.write(path, np.zeros((400, 2)), RATE, format=kind, subtype=dict(OGG="VORBIS", WAV="ALAW").get(kind, "PCM_16"))
        common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", f"{path}.safetensors").ends_with(4)


def moonshine(r, folder, seed):
    """A random Moonshine. Its heads rotate an even number of dimensions."""
    heads = r.choice([1, 2, 4])
    head, part = r.choice([(4, 1.0), (8, 0.5), (12, 0.9), (12, None), (6, 0.7), (10, 0.62)])
    rope = {} if part is None else dict(partial_rotary_factor=part)
    scaling = r.choice([{}, {}, dict(rope_type="linear", factor=2.0), dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0,
                        high_freq_factor=4.0, original_max_position_embeddings=16)])
    if part is not None:
        rope["rope_theta"] = r.choice([10000.0, 500.0])
        rope = dict(rope_parameters=dict(rope_type="default") | rope | scaling)
    config = golden.moonshine_config(
        hidden_size=heads * head, intermediate_size=r.choice([10, 36]), encoder_num_hidden_layers=r.choice([1, 2, 3]),
        decoder_num_hidden_layers=r.choice([1, 2, 4]), encoder_num_attention_heads=heads, decoder_num_attention_heads=heads,
        max_position_embeddings=r.choice([24, 48]), attention_bias=r.random() < 0.5,
        encoder_hidden_act=r.choice(["gelu", "gelu", "relu", "silu"]), decoder_hidden_act=r.choice(["silu", "silu", "gelu", "relu"]),
        pad_head_dim_to_multiple_of=r.choice([None, 8]), tie_word_embeddings=r.random() < 0.7,
        **rope)
    generation = r.choice([{}, dict(max_length=None), dict(max_new_tokens=9), dict(suppress_tokens=[30, 85, 102]),
                           dict(begin_suppress_tokens=[85, golden.END]), dict(eos_token_id=[golden.END, 102, 7])])
    return golden.make_moonshine(folder, seed, config, r.choice([torch.float32, torch.bfloat16]), r.random() < 0.4, **generation)


def moonshine_model(promise, number):
    """A random Moonshine: all stages, and the transcript of a drawn sound."""
    r = random.Random(f"{promise.seed} moonshine {number}")
    folder = promise.folder / f"moonshine-{number}"
    folder.mkdir()
    made = moonshine(r, folder, number)
    path = long_enough(r, folder)
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    tokens = [golden.START] + [r.randrange(golden.LETTERS) for _ in range(r.choice([0, 3, 9]))]
    prompts.write_text(json.dumps(dict(audio=path.name, tokens=tokens)) + "\n")
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "-q"]):
        raise Wrong("there is no reference")
    style = r.choice([[], ["--shards", str(r.randint(1, made.config.decoder_num_hidden_layers))], ["--layout", "one-program"],
                      ["--prefill-length", "2"], ["--max-sound", str(r.choice([3, 600]))]])
    common.convert(folder, folder / "bundle", "--dtype", "f32", *style)
    proof = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", out)
    if proof.code:
        raise Wrong(f"verify exits {proof.code}: {proof.why if proof.code > 1 else common.first_difference(proof.result)}")
    wanted = golden.plain_tokens(made, folder, golden.samples_of(path))
    run = common.Ferry("transcribe", folder / "bundle", path, "--json").ends_with(0)
    if run.result["tokens"] != wanted:
        raise Wrong(f"{path.name}: tokens {run.result['tokens'][:12]}, the reference {wanted[:12]}")
    return f"{path.name}: {len(wanted)} tokens, {' '.join(style) or 'plain'}"


def long_enough(r, folder):
    """A sound of which the convolutions make at least one row."""
    while True:
        path, _ = draw(r, folder)
        if len(golden.samples_of(path)) >= 895:
            return path


def whisper(r, folder, seed):
    """A random Whisper with the tokenizer and the generation config of the fixture."""
    chunk, mels = r.choice([1, 2]), r.choice([4, 20])
    heads, encoder_heads = r.choice([1, 2, 4]), r.choice([1, 2, 4])
    width = 8 * r.choice([1, 2, 3])
    config = transformers.WhisperConfig(
        vocab_size=golden.LETTERS + len(golden.SPECIAL) + len(golden.TIMES), num_mel_bins=mels, encoder_layers=r.choice([1, 2, 3]),
        decoder_layers=r.choice([1, 2, 4]), encoder_attention_heads=encoder_heads, decoder_attention_heads=heads, d_model=width,
        encoder_ffn_dim=r.choice([12, 40]), decoder_ffn_dim=r.choice([12, 40]), max_source_positions=50 * chunk,
        max_target_positions=r.choice([20, 48]), activation_function=r.choice(["gelu", "relu", "silu"]),
        scale_embedding=r.random() < 0.5, pad_token_id=golden.END, bos_token_id=golden.END, eos_token_id=golden.END,
        decoder_start_token_id=golden.START, begin_suppress_tokens=None)
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    golden.randomise(model)
    model.generation_config = transformers.GenerationConfig(
        begin_suppress_tokens=[32, golden.END], suppress_tokens=[1, 2], bos_token_id=golden.END, eos_token_id=golden.END,
        pad_token_id=golden.END, decoder_start_token_id=golden.START, is_multilingual=True,
        lang_to_id={"<|de|>": golden.GERMAN, "<|en|>": golden.ENGLISH},
        task_to_id=dict(translate=golden.TRANSLATE, transcribe=golden.TRANSCRIBE), no_timestamps_token_id=golden.MARK,
        max_initial_timestamp_index=r.choice([None, 10]), max_length=r.choice([12, 48]))
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=chunk).save_pretrained(folder)
    golden.tokenizer(folder)
    return transformers.WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def model(promise, number):
    """A random Whisper: all stages, and the transcript of a drawn sound."""
    r = random.Random(f"{promise.seed} whisper {number}")
    folder = promise.folder / f"whisper-{number}"
    folder.mkdir()
    made = whisper(r, folder, number)
    path, _ = draw(r, folder)
    out = folder / "golden.safetensors"
    if reference.main([str(folder), "-o", str(out), "--audio", str(path), "--max-new", "6", "-q"]):
        raise Wrong("there is no reference")
    style = r.choice([[], ["--shards", str(r.randint(1, made.config.decoder_layers))], ["--layout", "one-program"], ["--prefill-length", "2"]])
    common.convert(folder, folder / "bundle", "--dtype", "f32", *style)
    proof = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", out)
    if proof.code:
        raise Wrong(f"verify exits {proof.code}: {proof.why if proof.code > 1 else common.first_difference(proof.result)}")
    return transcript(r, made, folder, path)


def transcript(r, made, folder, path):
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    samples = golden.samples_of(path)
    whole = len(samples) > extractor.n_samples
    given = samples if whole else chunk_of(samples, extractor)
    features = torch.from_numpy(extractor._np_extract_fbank_features(given[None], "cpu").astype(np.float32))
    options = r.choice([{}, dict(language="de"), dict(language="en", task="translate"), dict(task="transcribe")])
    timestamps = r.random() < 0.5
    wanted = made.generate(features, return_timestamps=timestamps or whole, return_segments=True, **options)
    words = [word for name, value in options.items() for word in (f"--{name}", value)] + (["--timestamps"] if timestamps else [])
    run = common.Ferry("transcribe", folder / "bundle", path, "--json", *words).ends_with(0)
    tokens = wanted["sequences"][0].tolist()
    if run.result["tokens"] != tokens:
        raise Wrong(f"{path.name} {options}: tokens {run.result['tokens'][:12]}, the reference {tokens[:12]}")
    ends = [round(float(s["end"]), 4) for s in wanted["segments"][0]]
    if [round(s["end"], 4) for s in run.result["segments"]] != ends:
        raise Wrong(f"{path.name} {options}: segments end at other times than {json.dumps(ends)}")
    return f"{path.name}: {len(tokens)} tokens in {len(ends)} segments"


def main():
    promise = common.Promise(__doc__)
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    for number in range(6 if promise.sample else 20):
        promise.case(f"sound {number}", frames, promise, number)
    for number in range(2 if promise.sample else 20):
        promise.case(f"odd sounds {number}", odd, promise, number)
    for number in range(2 if promise.sample else 10):
        promise.case(f"whisper {number}", model, promise, number)
    for number in range(4 if promise.sample else 12):
        promise.case(f"waveform {number}", waveform, promise, number)
    for number in range(3 if promise.sample else 30):
        promise.case(f"moonshine {number}", moonshine_model, promise, number)
    promise.finish()


if __name__ == "__main__":
    main()
