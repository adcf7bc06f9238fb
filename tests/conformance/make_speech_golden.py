"""Makes the fixtures of sound: files with the samples that libsndfile and torchaudio give, log-mel frames, and a tiny random
Whisper with its reference and with transcripts of generate(); with the argument moonshine a Moonshine of the files that are there.

    python tests/conformance/make_speech_golden.py [moonshine]

Writes testdata/sound and testdata/speech/whisper, and the keys of the model (testdata/families/whisper); or testdata/speech/moonshine
and its keys. A second run writes the same. Needs torch, torchaudio, soundfile and transformers 5.23 (environment.sh).
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import make_golden  # noqa: E402
import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import soundfile  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402
from torchaudio.functional import resample  # noqa: E402

RATE, MELS, CHUNK = 16000, 8, 1
LETTERS = 256
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|de|>", "<|en|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>"]
TIMES = [f"<|{i * 0.02:.2f}|>" for i in range(51)]
END, START, GERMAN, ENGLISH, TRANSLATE, TRANSCRIBE, MARK = range(LETTERS, LETTERS + len(SPECIAL))
# Name, rate, channels, seconds, subtype of libsndfile.
FILES = [("mono_16", 16000, 1, 0.4, "PCM_16"), ("stereo_24", 44100, 2, 0.1, "PCM_24"), ("mono_8", 8000, 1, 0.3, "PCM_U8"),
         ("float_32", 48000, 1, 0.05, "FLOAT"), ("five_32", 22050, 5, 0.05, "PCM_32"), ("double_64", 11025, 2, 0.05, "DOUBLE")]
FLACS = [("stereo_flac", 32000, 2, 0.1, "PCM_16"), ("noise_flac", 16000, 1, 0.05, "PCM_24")]
MANY = [("eleven_16", 16000, 11, 0.01, "PCM_16")]  # so many channels are summed in lanes


def chirp(rate, channels, seconds, seed):
    """A tone that rises, another start of it in each channel, and a little noise."""
    t = np.arange(int(rate * seconds)) / rate
    noise = np.random.default_rng(seed)
    rows = [0.6 * np.sin(2 * np.pi * (200 + 150 * c + 900 * t) * t) + 0.02 * noise.standard_normal(len(t)) for c in range(channels)]
    return np.stack(rows, axis=1)


def samples_of(path):
    """Samples at 16 kHz: libsndfile reads and numpy takes the mean in f32, torchaudio resamples in f64."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    samples = samples.T.mean(axis=0) if samples.shape[1] > 1 else samples[:, 0]
    return samples if rate == RATE else resample(torch.from_numpy(samples).double(), rate, RATE).float().numpy()


def make_files(folder):
    """Files, and their samples."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = {}
    for n, (name, rate, channels, seconds, subtype) in enumerate(FILES + FLACS + MANY):
        kind = "flac" if (name, rate, channels, seconds, subtype) in FLACS else "wav"
        path = folder / f"{name}.{kind}"
        written = chirp(rate, channels, seconds, n)
        if name == "noise_flac":
            written = np.random.default_rng(n).uniform(-1, 1, written.shape)
        options = dict(format="WAVEX") if name == "five_32" else {}
        soundfile.write(path, written, rate, subtype=subtype, **options)
        samples[path.name] = samples_of(path)
    safetensors.numpy.save_file(samples, folder / "samples.safetensors")


def make_normalized(folder):
    """The input values of some files as Wav2Vec2FeatureExtractor normalises them."""
    samples = safetensors.numpy.load_file(folder / "samples.safetensors")
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True)
    made = {name: extractor(samples[name], sampling_rate=RATE, return_tensors="np").input_values[0]
            for name in ("five_32.wav", "mono_8.wav", "noise_flac.flac")}
    safetensors.numpy.save_file(made, folder / "normalized.safetensors")


def make_features(folder):
    """The frames of one second of a file by the numpy path of the extractor, with 80 and 128 mels."""
    samples = safetensors.numpy.load_file(folder / "samples.safetensors")["mono_16.wav"]
    frames = {}
    for mels in (80, 128):
        extractor = transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=CHUNK)
        padded = np.pad(samples, (0, RATE * CHUNK - len(samples)))
        frames[f"mel{mels}"] = extractor._np_extract_fbank_features(padded[None], "cpu")[0].astype(np.float32)
    safetensors.numpy.save_file(frames, folder / "features.safetensors")


def tokenizer(folder, times=TIMES):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    made.add_tokens([AddedToken(word, normalized=False) for word in times])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast",
                                                                  eos_token=SPECIAL[0]), indent=2) + "\n")


def make_model(folder, seed):
    config = transformers.WhisperConfig(
        vocab_size=LETTERS + len(SPECIAL) + len(TIMES), num_mel_bins=MELS, encoder_layers=2, decoder_layers=3, encoder_attention_heads=2,
        decoder_attention_heads=4, d_model=24, encoder_ffn_dim=40, decoder_ffn_dim=36, max_source_positions=50 * CHUNK,
        max_target_positions=32, pad_token_id=END, bos_token_id=END, eos_token_id=END, decoder_start_token_id=START,
        begin_suppress_tokens=None)
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
            else:
                weight.copy_(torch.randn_like(weight) * (0.5 if "embed" in name else 0.25))
    model = model.to(torch.bfloat16)
    model.generation_config = transformers.GenerationConfig(
        begin_suppress_tokens=[32, END], suppress_tokens=[1, 2, START], bos_token_id=END, eos_token_id=END, pad_token_id=END,
        decoder_start_token_id=START, is_multilingual=True, lang_to_id={"<|de|>": GERMAN, "<|en|>": ENGLISH},
        task_to_id=dict(translate=TRANSLATE, transcribe=TRANSCRIBE), no_timestamps_token_id=MARK, max_initial_timestamp_index=10,
        max_length=24, return_timestamps=False)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=MELS, chunk_length=CHUNK).save_pretrained(folder)
    tokenizer(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return transformers.WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


CASES = [dict(sound="mono_16.wav"), dict(sound="mono_16.wav", language="de", task="translate"),
         dict(sound="mono_16.wav", timestamps=True), dict(sound="stereo_24.wav", language="en"),
         dict(sound="stereo_flac.flac", task="translate", timestamps=True), dict(sound="long.wav"), dict(sound="long.wav", language="de")]


def randomise(model):
    """Weights that no initialisation makes equal or zero."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            weight.add_(noise * 0.1) if weight.dim() == 1 else weight.copy_(noise * (0.5 if "embed" in name else 0.25))


def moonshine_config(**changed):
    return transformers.MoonshineConfig(**{**dict(
        vocab_size=LETTERS + len(SPECIAL), hidden_size=24, intermediate_size=20, encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=3, encoder_num_attention_heads=2, decoder_num_attention_heads=2, max_position_embeddings=32,
        bos_token_id=START, eos_token_id=END, decoder_start_token_id=START, pad_token_id=None), **changed})


def make_moonshine(folder, seed, config, dtype, normalize=False, **generation):
    """A Moonshine with random weights."""
    torch.manual_seed(seed)
    model = transformers.MoonshineForConditionalGeneration(config).eval()
    randomise(model)
    model = model.to(dtype)
    model.generation_config = transformers.GenerationConfig(
        **{**dict(bos_token_id=START, eos_token_id=END, decoder_start_token_id=START, max_length=24), **generation})
    model.save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(do_normalize=normalize, return_attention_mask=True).save_pretrained(folder)
    tokenizer(folder, times=[])
    for path in folder.iterdir():
        path.chmod(0o644)
    return transformers.MoonshineForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def plain_tokens(model, folder, samples):
    """Tokens of the plain generate() behind the first one, without that of the end."""
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    given = extractor(samples, sampling_rate=RATE, return_tensors="pt")
    tokens = model.generate(**given)[0].tolist()[1:]
    ends = model.generation_config.eos_token_id
    return tokens[:-1] if tokens and tokens[-1] in (ends if isinstance(ends, list) else [ends]) else tokens


def golden_moonshine(folder, sounds):
    folder.mkdir(parents=True, exist_ok=True)
    names = ["mono_16.wav", "stereo_24.wav", "stereo_flac.flac", "long.wav"]
    for seed in range(100):
        model = make_moonshine(folder, seed, moonshine_config(attention_bias=True), torch.bfloat16)
        made = [dict(sound=name, tokens=plain_tokens(model, folder, samples_of(sounds / name))) for name in names]
        varied = sum(len(set(case["tokens"])) > 4 for case in made)
        print(f"seed {seed}: {varied} varied transcripts", flush=True)
        if varied == len(names) and len({tuple(case["tokens"]) for case in made}) == len(names):
            break
    else:
        sys.exit("make_speech_golden.py: no seed gives different transcripts")
    (folder / "transcripts.json").write_text(json.dumps(made, indent=1) + "\n")
    golden, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    golden.unlink(missing_ok=True)
    prompts.write_text(json.dumps(dict(audio="../../sound/mono_16.wav", tokens=[START] + made[0]["tokens"][:5], name="audio1")) + "\n")
    if reference.main([str(folder), "-o", str(golden), "--prompts", str(prompts), "--max-new", "8", "--no-f64", "-q"]):
        sys.exit("make_speech_golden.py: there is no reference")
    prompts.unlink()
    make_golden.list_keys(folder, ROOT / "testdata/families/moonshine")


def transcripts(model, folder, sounds):
    """Tokens and segments of generate(), and the first tokens that it forced."""
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    made = []
    for case in CASES:
        samples = samples_of(sounds / case["sound"])
        whole = len(samples) > RATE * CHUNK
        # The extractor's own numpy path, so that torch's rounding of near ties decides no token.
        padded = samples if whole else np.pad(samples, (0, RATE * CHUNK - len(samples)))
        features = torch.from_numpy(extractor._np_extract_fbank_features(padded[None].astype(np.float32), "cpu").astype(np.float32))
        options = {name: case[name] for name in ("language", "task") if name in case}
        out = model.generate(features, return_timestamps=case.get("timestamps", False) or whole, return_segments=True, **options)
        segments = [dict(start=round(float(s["start"]), 6), end=round(float(s["end"]), 6), tokens=s["tokens"].tolist())
                    for s in out["segments"][0]]
        made.append(dict(case, tokens=out["sequences"][0].tolist(), segments=segments))
    return made


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    sounds, folder = ROOT / "testdata/sound", ROOT / "testdata/speech/whisper"
    if sys.argv[1:] == ["moonshine"]:
        return golden_moonshine(ROOT / "testdata/speech/moonshine", sounds)
    folder.mkdir(parents=True, exist_ok=True)
    make_files(sounds)
    soundfile.write(sounds / "long.wav", np.concatenate([chirp(8000, 1, 0.9, n) for n in range(3)]), 8000, subtype="PCM_U8")
    make_features(sounds)
    make_normalized(sounds)
    for seed in range(100):
        model = make_model(folder, seed)
        made = transcripts(model, folder, sounds)
        varied = sum(len(set(case["tokens"])) > 4 for case in made)
        print(f"seed {seed}: {varied} varied transcripts, {[len(case['segments']) for case in made]} segments", flush=True)
        if varied >= 5 and len(made[-1]["segments"]) > 3:
            break
    else:
        sys.exit("make_speech_golden.py: no seed gives transcripts with several segments")
    (folder / "transcripts.json").write_text(json.dumps(made, indent=1) + "\n")
    golden = folder / "golden.safetensors"
    golden.unlink(missing_ok=True)
    if reference.main([str(folder), "-o", str(golden), "--audio", str(sounds / "mono_16.wav"), "--max-new", "8", "--no-f64", "-q"]):
        sys.exit("make_speech_golden.py: there is no reference")
    make_golden.list_keys(folder, ROOT / "testdata/families/whisper")


if __name__ == "__main__":
    main()
