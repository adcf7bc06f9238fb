"""Makes a tiny random Granite Speech with its reference, and the prompts and answers of its processor and of generate().

    python tests/conformance/make_granite_speech_golden.py

Writes testdata/speech/granite and testdata/speech/granite_plus, the keys of the models (testdata/families/granite_speech and
granite_speech_plus) and testdata/sound/paired_mel.safetensors, frames of the feature extractor. A second run writes the same. Needs
what make_speech_golden.py needs, and torchaudio.
"""
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import make_golden  # noqa: E402
import make_speech_golden as speech  # noqa: E402
import make_vision_golden as vision  # noqa: E402: it imports torch and transformers
import models  # noqa: E402
import safetensors.numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402

AUDIO, END = 3, 2
SPECIAL = ["<pad>", "<bos>", "<eos>", "<|audio|>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"]
TURNS = ("{% for m in messages %}{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}")
CLASSES = {"granite_speech": transformers.GraniteSpeechForConditionalGeneration,
           "granite_speech_plus": transformers.GraniteSpeechPlusForConditionalGeneration}


def extractor(**settings):
    return transformers.GraniteSpeechFeatureExtractor(**{**dict(n_mels=8, projector_window_size=6, projector_downsample_rate=2), **settings})


def processor(sound=None, template=TURNS):
    words = vision.byte_tokenizer(SPECIAL, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", audio_token="<|audio|>")
    assert words.convert_tokens_to_ids("<|audio|>") == AUDIO
    return transformers.models.granite_speech.GraniteSpeechProcessor(sound or extractor(), words, chat_template=template)


def text_config(**changed):
    return {**vision.text_sizes(), **dict(model_type="granite", embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.3,
                                          logits_scaling=2.0, max_position_embeddings=1024), **changed}


def encoder_config(**changed):
    return {**dict(input_dim=16, num_layers=4, hidden_dim=24, feedforward_mult=2, num_heads=3, dim_head=6, output_dim=10, context_size=20,
                   max_pos_emb=32, conv_kernel_size=5), **changed}


def projector_config(**changed):
    return {**dict(model_type="blip_2_qformer", hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
                   encoder_hidden_size=24), **changed}


def config_of(kind="granite_speech", encoder=None, projector=None, text=None, **outer):
    return dict(model_type=kind, text_config=text or text_config(), encoder_config=encoder or encoder_config(),
                projector_config=projector or projector_config(),
                **{**dict(audio_token_index=AUDIO, window_size=6, downsample_rate=2, has_lora_adapter=False), **outer})


def plus_config():
    return config_of("granite_speech_plus", encoder_config(cat_hidden_layers=[0, 2], num_layers=5, conv_kernel_size=4, dim_head=None),
                     projector_config(encoder_hidden_size=72, cross_attention_frequency=1, num_hidden_layers=2, hidden_act="gelu_new"))


def make_model(folder, seed, config, dtype, sound=None, **generation):
    """A model whose batch norms have statistics that matter."""
    model = models.build(CLASSES[config["model_type"]], config, seed)
    noise = torch.Generator().manual_seed(seed)
    for name, value in model.named_buffers():
        if name.endswith("running_mean"):
            value.copy_(0.3 * torch.randn(value.shape, generator=noise))
        if name.endswith("running_var"):
            value.copy_(0.3 + torch.rand(value.shape, generator=noise))
    model = model.to(dtype)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=END, pad_token_id=0, **generation)
    model.save_pretrained(folder)
    made = processor(sound)
    made.save_pretrained(folder)
    state_mels(folder, made.audio_processor)
    for path in folder.iterdir():
        path.chmod(0o644)
    return models.load(CLASSES[config["model_type"]], folder)


def state_mels(folder, sound):
    """Adds the settings of the frames under the names that the extractor reads; it saves them under others."""
    path = folder / "processor_config.json"
    stated = json.loads(path.read_text())
    kept = sound.melspec_kwargs
    stated["audio_processor"].update({name: kept[name] for name in ("n_fft", "win_length", "hop_length", "n_mels")})
    path.write_text(json.dumps(stated, indent=2) + "\n")


def frames_in_f64(sound, samples):
    """What the extractor gives of samples f32 [N], with a transform and logarithms in f64: f64 [pairs,2 mels]."""
    mel = sound.mel_filters
    spectrum = torch.stft(torch.from_numpy(samples).double(), mel.n_fft, mel.hop_length, mel.win_length,
                          window=torch.hann_window(mel.win_length, dtype=torch.float64), center=True, pad_mode="reflect", return_complex=True)
    logs = (spectrum.abs().square().T @ mel.mel_scale.fb.double()).clip(min=1e-10).log10()
    logs = torch.maximum(logs, logs.max() - 8.0) / 4 + 1
    return logs[:len(logs) // 2 * 2].reshape(-1, 2 * logs.shape[1]).numpy()


def files_of(case):
    return case.get("audio", [])


def inputs_of(made, sounds, case):
    """What the processor makes of a case: texts have a mark for each sound."""
    samples = [speech.samples_of(sounds / name) for name in files_of(case)]
    if "messages" in case:
        text = made.apply_chat_template(case["messages"], add_generation_prompt=True, tokenize=False)
    else:
        text = made.audio_token * len(samples) + case["prompt"]
    return made(text=[text], **(dict(audio=samples) if samples else {}), return_tensors="pt")


def answer(model, inputs, count):
    """The greedy tokens behind a prompt, without that of the end."""
    tokens = model.generate(**inputs, do_sample=False, max_new_tokens=count)[0, inputs["input_ids"].shape[1]:].tolist()
    return tokens[:-1] if tokens and tokens[-1] == END else tokens


def user(text):
    return dict(role="user", content=text)


CASES = [dict(messages=[user("<|audio|>What is said?")], audio=["mono_16.wav"]),
         dict(messages=[user("Do <|audio|> and <|audio|> differ?")], audio=["mono_8.wav", "mono_8.wav"]),
         dict(messages=[user("<|audio|><|audio|>?")], audio=["mono_8.wav", "mono_8.wav"]),
         dict(messages=[user("<|audio|>"), dict(role="assistant", content="A tone."), user("And now?")], audio=["stereo_24.wav"]),
         dict(prompt="Which sound?", audio=["float_32.wav"]),
         dict(messages=[user("Is <|audio|> longer than <|audio|>?")], audio=["mono_8.wav", "mono_16.wav"]),
         dict(messages=[user("No sound")])]


def make_frames(sounds):
    """Frames of three sounds with settings of the feature extractor that tests/media/paired_mel_test.cc states."""
    drawn = {"mono_16.wav": {}, "stereo_flac.flac": dict(n_mels=20, n_fft=400, win_length=300, hop_length=90),
             "float_32.wav": dict(n_mels=13, n_fft=256, win_length=256, hop_length=200)}
    frames = {name: frames_in_f64(transformers.GraniteSpeechFeatureExtractor(**settings), speech.samples_of(sounds / name)).astype("float32")
              for name, settings in drawn.items()}
    safetensors.numpy.save_file(frames, sounds / "paired_mel.safetensors")
    (sounds / "paired_mel.safetensors").chmod(0o644)


def make_fixture(sounds, folder, family, config, cases):
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(100):
        model = make_model(folder, seed, config, torch.bfloat16, max_new_tokens=10)
        made = transformers.AutoProcessor.from_pretrained(folder)
        inputs = [inputs_of(made, sounds, case) for case in cases]
        answers = [dict(case, ids=given["input_ids"][0].tolist(), tokens=answer(model, given, 10)) for case, given in zip(cases, inputs)]
        varied = sum(len(set(case["tokens"])) > 3 for case in answers)
        print(f"seed {seed}: {varied} varied answers", flush=True)
        if varied == len(answers) and len({tuple(case["tokens"]) for case in answers}) == len(answers):
            break
    else:
        sys.exit("make_granite_speech_golden.py: no seed gives different answers")
    (folder / "answers.json").write_text("[" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in answers) + "]\n")
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    out.unlink(missing_ok=True)
    prompts.write_text("".join(json.dumps(row) + "\n" for row in (
        dict(name="audio1", audio="../../sound/mono_16.wav", tokens=answers[0]["ids"]), dict(name="text", tokens=answers[-1]["ids"]))))
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "--no-f64", "-q"]):
        sys.exit("make_granite_speech_golden.py: there is no reference")
    prompts.unlink()
    make_golden.list_keys(folder, family)


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    sounds, data = speech.ROOT / "testdata/sound", speech.ROOT / "testdata"
    make_frames(sounds)
    make_fixture(sounds, data / "speech/granite", data / "families/granite_speech", config_of(tie_word_embeddings=False), CASES)
    make_fixture(sounds, data / "speech/granite_plus", data / "families/granite_speech_plus", plus_config(), [CASES[0], CASES[-1]])


if __name__ == "__main__":
    main()
