"""Makes a tiny random Gemma 4 that sees and hears with its reference, and the prompts and answers of its processor and of generate().

    python tests/conformance/make_gemma4_sound_golden.py

Writes testdata/speech/gemma4, the keys of the model (testdata/families/gemma4_sounds) and testdata/sound/usm_mel.safetensors, frames
of the feature extractor. A second run writes the same. Needs what make_speech_golden.py and make_vision_golden.py need.
"""
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import make_golden  # noqa: E402
import make_speech_golden as speech  # noqa: E402
import make_vision_golden as vision  # noqa: E402: it imports torch and transformers
import models  # noqa: E402
import numpy as np  # noqa: E402
import PIL.Image  # noqa: E402
import safetensors.numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402

AUDIO, END = 6, 2
TURNS = vision.TURNS.replace("{%% else %%}", "{%% elif c.type == 'audio' %%}{{ '<|audio|>' }}{%% else %%}")
CLIPPED = ("input_min", "input_max", "output_min", "output_max")


def extractor(**settings):
    return transformers.Gemma4AudioFeatureExtractor(**{**dict(feature_size=16), **settings})


def processor(sound=None, template="{{ bos_token }}" + TURNS % "<|image|>"):
    made = vision.gemma4_processor(template)
    made.feature_extractor = sound or extractor()
    return made


def audio_config(**changed):
    return {**dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, subsampling_conv_channels=[16, 4], output_proj_dims=20), **changed}


def config_of(audio=None, text=None, sees=True, **outer):
    layers = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    text = vision.gemma4_text(**{**dict(num_hidden_layers=4, layer_types=layers, sliding_window=12, num_kv_shared_layers=2,
                                        hidden_size_per_layer_input=12, max_position_embeddings=1024), **(text or {})})
    return dict(text_config=text, vision_config=vision.gemma4_tower() if sees else None, audio_config=audio or audio_config(),
                **vision.gemma4_ids(), **outer)


def make_model(folder, seed, config, dtype, sound=None, **generation):
    """A model whose limits of linear layers are near enough to hold some values."""
    model = models.build(transformers.Gemma4ForConditionalGeneration, config, seed)
    noise = torch.Generator().manual_seed(seed)
    for name, value in model.named_buffers():
        if name.endswith(CLIPPED):
            drawn = 1.0 + 2.0 * float(torch.rand((), generator=noise))
            value.fill_(-drawn if name.endswith("min") else drawn)
    model = model.to(dtype)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=END, pad_token_id=0, **generation)
    model.save_pretrained(folder)
    processor(sound).save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return models.load(transformers.Gemma4ForConditionalGeneration, folder)


class InF64:
    """The extractor transforms in f64; what it gives is rounded to f32 once."""

    def __enter__(self):
        self.rfft = np.fft.rfft
        np.fft.rfft = lambda frames, **options: self.rfft(frames.astype(np.float64), **options)

    def __exit__(self, *_):
        np.fft.rfft = self.rfft


def files_of(case, kind):
    """The files of a case in order; `kind` is audio or image."""
    if "messages" not in case:
        return case.get(kind, [])
    return [item[kind] for part in case["messages"] for item in part["content"] if kind in item]


def typed(messages):
    """Messages whose items have no files."""
    return [dict(part, content=[item if "text" in item else dict(type=next(iter(item))) for item in part["content"]]) for part in messages]


def inputs_of(made, sounds, case):
    """What the processor makes of a case. Frames are transformed in f64."""
    samples = [speech.samples_of(sounds / name) for name in files_of(case, "audio")]
    pictures = [PIL.Image.open(vision.IMAGES / name).convert("RGB") for name in files_of(case, "image")]
    if "messages" in case:
        text = made.apply_chat_template(typed(case["messages"]), add_generation_prompt=True, tokenize=False)
    else:
        text = made.image_token * len(pictures) + made.audio_token * len(samples) + case["prompt"]
    given = dict(text=[text], add_special_tokens="messages" not in case, return_tensors="pt")
    if samples:
        given["audio"] = samples
    if pictures:
        given["images"] = [pictures]
    with InF64():
        return made(**given)


def answer(model, inputs, count):
    """The greedy tokens behind a prompt, without that of the end."""
    tokens = model.generate(**inputs, do_sample=False, max_new_tokens=count)[0, inputs["input_ids"].shape[1]:].tolist()
    return tokens[:-1] if tokens and tokens[-1] == END else tokens


def user(*content):
    def item(words):
        kind = {"@": "audio", "#": "image"}.get(words[:1])
        return {kind: words[1:]} if kind else dict(type="text", text=words)
    return dict(role="user", content=[item(words) for words in content])


CASES = [dict(messages=[user("@mono_16.wav", "What is said?")]),
         dict(messages=[user("Do ", "@stereo_24.wav", " and ", "@noise_flac.flac", " differ?")]),
         dict(messages=[user("#noise.png", "@mono_8.wav", "Do they fit?")]),
         dict(messages=[user("@mono_16.wav"), dict(role="assistant", content=[dict(type="text", text="A tone.")]),
                        user("And ", "#tiny.png", " or ", "@stereo_flac.flac", "?")]),
         dict(prompt="Which sound?", audio=["mono_16.wav", "mono_8.wav"]),
         dict(prompt=" and the picture", audio=["mono_8.wav"], image=["tiny.png"]),
         dict(messages=[user("No sound")])]


def make_frames(sounds):
    """Frames of three sounds with settings of the feature extractor that tests/media/usm_mel_test.cc states."""
    other = dict(feature_size=12, frame_length_ms=32.0, hop_length_ms=12.5, fft_overdrive=True, preemphasis=0.97, input_scale_factor=3.0, mel_floor=1e-4,
                 min_frequency=125.0, max_frequency=7600.0, per_bin_mean=[0.25 * i for i in range(12)], per_bin_stddev=[1 + 0.5 * i for i in range(12)])
    drawn = {"mono_16.wav": {}, "stereo_flac.flac": other, "float_32.wav": dict(other, preemphasis_htk_flavor=False)}
    with InF64():
        frames = {name: extractor(**settings)([speech.samples_of(sounds / name)], return_tensors="np")["input_features"][0]
                  for name, settings in drawn.items()}
    safetensors.numpy.save_file(frames, sounds / "usm_mel.safetensors")
    (sounds / "usm_mel.safetensors").chmod(0o644)


# Tensors that tell whether a prompt with a picture and a sound is that of the reference.
BESIDE = ("input_ids", "mm_token_type_ids", "pixel_values", "image_position_ids", "input_features", "image_features", "audio_features", "logits", "greedy_ids")


def make_beside(folder):
    """A reference of a picture and a sound in one prompt."""
    out, prompts = folder / "images.safetensors", folder / "prompts.jsonl"
    out.unlink(missing_ok=True)
    prompts.write_text(json.dumps(dict(name="both", audio="../../sound/mono_8.wav", image="../../media/images/tiny.png", text="Do they fit?")) + "\n")
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "--no-f64", "-q"]):
        sys.exit("make_gemma4_sound_golden.py: there is no reference")
    prompts.unlink()
    tensors = safetensors.numpy.load_file(out)
    safetensors.numpy.save_file({name: value for name, value in tensors.items() if name.split(".", 1)[1] in BESIDE}, out)
    out.chmod(0o644)


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    sounds, folder = speech.ROOT / "testdata/sound", speech.ROOT / "testdata/speech/gemma4"
    folder.mkdir(parents=True, exist_ok=True)
    make_frames(sounds)
    for seed in range(100):
        model = make_model(folder, seed, config_of(), torch.bfloat16, max_new_tokens=10)
        made = transformers.AutoProcessor.from_pretrained(folder)
        inputs = [inputs_of(made, sounds, case) for case in CASES]
        answers = [dict(case, ids=given["input_ids"][0].tolist(), tokens=answer(model, given, 10)) for case, given in zip(CASES, inputs)]
        varied = sum(len(set(case["tokens"])) > 3 for case in answers)
        print(f"seed {seed}: {varied} varied answers", flush=True)
        if varied == len(answers) and len({tuple(case["tokens"]) for case in answers}) == len(answers):
            break
    else:
        sys.exit("make_gemma4_sound_golden.py: no seed gives different answers")
    (folder / "answers.json").write_text("[" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in answers) + "]\n")
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    out.unlink(missing_ok=True)
    prompts.write_text("".join(json.dumps(row) + "\n" for row in (
        dict(name="audio1", audio="../../sound/mono_16.wav", tokens=answers[0]["ids"]), dict(name="text", tokens=answers[6]["ids"]))))
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "--no-f64", "-q"]):
        sys.exit("make_gemma4_sound_golden.py: there is no reference")
    prompts.unlink()
    make_beside(folder)
    make_golden.list_keys(folder, speech.ROOT / "testdata/families/gemma4_sounds")


if __name__ == "__main__":
    main()
