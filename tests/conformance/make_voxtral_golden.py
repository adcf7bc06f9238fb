"""Makes a tiny random Voxtral with its reference, and the prompts and answers of its processor and of generate().

    python tests/conformance/make_voxtral_golden.py

Writes testdata/speech/voxtral, testdata/sound/two_windows.wav and the keys of the model (testdata/families/voxtral). A second run
writes the same. Needs what make_speech_golden.py needs, and mistral-common.
"""
import base64
import io
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import make_golden  # noqa: E402
import make_speech_golden as golden  # noqa: E402
import numpy as np  # noqa: E402
import soundfile  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402

SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
           "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
           "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"] + [f"<SPECIAL_{i}>" for i in range(20, 24)] + ["[AUDIO]", "[BEGIN_AUDIO]"] + [
               f"<SPECIAL_{i}>" for i in range(26, 34)] + ["[TRANSCRIBE]"]
CONTROLS, WORDS = 40, [b"th", b"he", b"in", b"er", b"an", b" t", b" a", b" the", b"and", b"ing", b"12", b"\xc3\xa9"]
VOCABULARY = CONTROLS + 256 + len(WORDS)
AUDIO, END = 24, 2
PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def tekken(folder, group, mels):
    """A tokenizer of mistral-common whose windows of 30 seconds become 1500 / group placeholders."""
    tokens = [bytes([i]) for i in range(256)] + WORDS + [b"not used"]
    made = dict(
        config=dict(pattern=PATTERN, num_vocab_tokens=len(tokens), default_vocab_size=VOCABULARY, default_num_special_tokens=CONTROLS, version="v7"),
        vocab=[dict(rank=i, token_bytes=base64.b64encode(token).decode(), token_str=None) for i, token in enumerate(tokens)],
        special_tokens=[dict(rank=i, token_str=token, is_control=True) for i, token in enumerate(SPECIAL)],
        audio=dict(sampling_rate=16000, frame_rate=50 / group, chunk_length_s=30.0,
                   audio_encoding_config=dict(num_mel_bins=mels, hop_length=160, window_size=400)))
    (folder / "tekken.json").write_text(json.dumps(made, indent=1) + "\n")


def config_of(mels=4, group=50, width=8, audio=None, text=None, **outer):
    audio = {**dict(hidden_size=width, intermediate_size=width * group, num_hidden_layers=2, num_attention_heads=2, num_mel_bins=mels,
                    max_source_positions=1500), **(audio or {})}
    text = {**dict(model_type="llama", vocab_size=VOCABULARY, hidden_size=24, intermediate_size=40, num_hidden_layers=3,
                   num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=256, pad_token_id=11), **(text or {})}
    return transformers.VoxtralConfig(audio_config=audio, text_config=text, audio_token_id=AUDIO, **outer)


def make_model(folder, seed, config, dtype, **generation):
    torch.manual_seed(seed)
    model = transformers.VoxtralForConditionalGeneration(config).eval()
    golden.randomise(model)
    model = model.to(dtype)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=END, pad_token_id=11, **generation)
    model.save_pretrained(folder)
    mels = config.audio_config.num_mel_bins
    transformers.WhisperFeatureExtractor(feature_size=mels).save_pretrained(folder)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(dict(settings, processor_class="VoxtralProcessor"), indent=2) + "\n")
    tekken(folder, config.audio_config.intermediate_size // config.audio_config.hidden_size, mels)
    for path in folder.iterdir():
        path.chmod(0o644)
    return transformers.VoxtralForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def windows_of(folder, samples):
    """The frames of the extractor's numpy path for samples that are padded to whole windows: f32 [windows,mels,3000]."""
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    count = max(1, -(-len(samples) // extractor.n_samples))
    padded = np.pad(samples, (0, count * extractor.n_samples - len(samples))).astype(np.float32)
    frames = extractor._np_extract_fbank_features(padded[None], "cpu")[0].astype(np.float32)
    return np.ascontiguousarray(frames.reshape(frames.shape[0], count, -1).transpose(1, 0, 2))


def in_base64(path):
    """A WAV file at the rate of the model, in the form that needs no package for resampling."""
    file = io.BytesIO()
    soundfile.write(file, golden.samples_of(path), golden.RATE, format="WAV", subtype="FLOAT")
    return base64.b64encode(file.getvalue()).decode()


def message_of(sounds, part):
    """A message of the processor: sounds and texts."""
    content = part["content"]
    if isinstance(content, list):
        content = [dict(type="audio", base64=in_base64(sounds / item["audio"])) if "audio" in item else item for item in content]
    return dict(role=part["role"], content=content)


def ids_of(folder, sounds, case):
    processor = transformers.AutoProcessor.from_pretrained(folder)
    if "messages" in case:
        return processor.apply_chat_template([message_of(sounds, part) for part in case["messages"]])["input_ids"][0].tolist()
    options = dict(language=case["language"]) if case.get("language") else {}
    return processor.apply_transcription_request(audio=golden.samples_of(sounds / case["sound"]), sampling_rate=golden.RATE, format=["WAV"],
                                                 model_id="tiny", **options)["input_ids"][0].tolist()


def sounds_of(case):
    if "sound" in case:
        return [case["sound"]]
    return [item["audio"] for part in case["messages"] if isinstance(part["content"], list) for item in part["content"] if "audio" in item]


def answer(model, folder, sounds, case, count):
    """The greedy tokens behind a prompt, without that of the end."""
    ids = torch.tensor([case["ids"]])
    given = [windows_of(folder, golden.samples_of(sounds / name)) for name in sounds_of(case)]
    features = dict(input_features=torch.from_numpy(np.concatenate(given))) if given else {}
    tokens = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, **features)
    tokens = tokens[0, ids.shape[1]:].tolist()
    return tokens[:-1] if tokens and tokens[-1] == END else tokens


def user(*content):
    return dict(role="user", content=[dict(audio=item[1:]) if item.startswith("@") else dict(type="text", text=item) for item in content])


CASES = [dict(sound="mono_16.wav"), dict(sound="stereo_24.wav", language="en"), dict(sound="two_windows.wav", language="fr"),
         dict(messages=[user("@mono_16.wav", "What is said?")]),
         dict(messages=[user("@mono_16.wav", "@stereo_flac.flac", "Do they differ [/INST]?")]),
         dict(messages=[user("Before the sound", "@two_windows.wav")]),
         dict(messages=[user("@mono_16.wav"), dict(role="assistant", content="A tone.  "), user("And this one?", "@stereo_24.wav")]),
         dict(messages=[dict(role="user", content="The 12 and thé\n\nother words")]),
         dict(messages=[dict(role="system", content="Be short."), user("One", "two")])]


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    sounds, folder = golden.ROOT / "testdata/sound", golden.ROOT / "testdata/speech/voxtral"
    folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(sounds / "two_windows.wav", np.concatenate([golden.chirp(1000, 1, 0.5, n) for n in range(62)]), 1000, subtype="PCM_U8")
    for seed in range(100):
        model = make_model(folder, seed, config_of(), torch.bfloat16, max_new_tokens=12)
        made = [dict(case, ids=ids_of(folder, sounds, case)) for case in CASES]
        made = [dict(case, tokens=answer(model, folder, sounds, case, 12)) for case in made]
        varied = sum(len(set(case["tokens"])) > 4 for case in made)
        print(f"seed {seed}: {varied} varied answers", flush=True)
        if varied == len(made) and len({tuple(case["tokens"]) for case in made}) == len(made):
            break
    else:
        sys.exit("make_voxtral_golden.py: no seed gives different answers")
    (folder / "answers.json").write_text(json.dumps(made, indent=None, separators=(",", ":")).replace("},{\"s", "},\n{\"s").replace("},{\"m", "},\n{\"m") + "\n")
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    out.unlink(missing_ok=True)
    prompts.write_text("".join(json.dumps(row) + "\n" for row in (
        dict(name="audio1", audio="../../sound/mono_16.wav", tokens=made[3]["ids"]), dict(name="text", tokens=made[7]["ids"]))))
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "--no-f64", "-q"]):
        sys.exit("make_voxtral_golden.py: there is no reference")
    prompts.unlink()
    make_golden.list_keys(folder, golden.ROOT / "testdata/families/voxtral")


if __name__ == "__main__":
    main()
