"""Makes a tiny random Gemma 3n that hears with its reference, and the prompts and answers of its processor and of generate().

    python tests/conformance/make_gemma3n_sound_golden.py

Writes testdata/speech/gemma3n, the keys of the model (testdata/families/gemma3n_sounds) and testdata/sound/usm_mel_gemma3n.safetensors,
frames of the feature extractor. The weights of the vision tower, which Ferry drops, are left out of the fixture. A second run writes the
same. Needs what make_gemma4_sound_golden.py needs, and timm.
"""
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import make_gemma4_sound_golden as gemma4  # noqa: E402
import make_golden  # noqa: E402
import make_speech_golden as speech  # noqa: E402
import make_vision_golden as vision  # noqa: E402: it imports torch and transformers
import models  # noqa: E402
import safetensors  # noqa: E402
import safetensors.numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402

SPECIAL = ["<pad>", "<bos>", "<eos>", "<start_of_image>", "<start_of_audio>", "<start_of_turn>", "<end_of_turn>", "<unused>"]
IMAGES, SOUNDS, VOCABULARY = 264, 266, 272  # the first ids of the tables of images and sounds, behind the bytes
END, AUDIO, ROWS = 2, 267, 188
TURNS = "{{ bos_token }}" + gemma4.TURNS.replace("<|audio|>", "<audio_soft_token>") % "<image_soft_token>"


def extractor(**settings):
    return transformers.Gemma3nAudioFeatureExtractor(**{**dict(feature_size=16), **settings})


def processor(sound=None, template=TURNS, rows=ROWS, side=32, tokens=256, **pixels):
    words = vision.byte_tokenizer(SPECIAL, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", boi_token="<start_of_image>",
                                  boa_token="<start_of_audio>", eoi_token="<end_of_image>", image_token="<image_soft_token>",
                                  eoa_token="<end_of_audio>", audio_token="<audio_soft_token>")
    assert words.audio_token_id == AUDIO, words.audio_token_id
    pixels = transformers.SiglipImageProcessor(size=dict(height=side, width=side), **pixels)
    return transformers.Gemma3nProcessor(sound or extractor(), pixels, words, chat_template=template, audio_seq_length=rows,
                                         image_seq_length=tokens)


def audio_config(**changed):
    return {**dict(hidden_size=16, conf_num_hidden_layers=2, conf_num_attention_heads=2, sscp_conv_channel_size=[6, 4], input_feat_size=16,
                   vocab_size=VOCABULARY - SOUNDS, vocab_offset=SOUNDS), **changed}


def text_config(**changed):
    layers = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    return {**dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=[40] * 4, num_hidden_layers=4, num_attention_heads=2,
                   num_key_value_heads=1, head_dim=16, max_position_embeddings=1024, layer_types=layers, sliding_window=12,
                   num_kv_shared_layers=2, hidden_size_per_layer_input=12, vocab_size_per_layer_input=IMAGES, altup_num_inputs=3,
                   laurel_rank=8, activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0], bos_token_id=1, eos_token_id=2, pad_token_id=0),
            **changed}


def config_of(audio=None, text=None, vision=None, **outer):
    tower = {**dict(architecture="test_efficientnet", hidden_size=24, vocab_size=4, vocab_offset=IMAGES), **(vision or {})}
    return {**dict(text_config=text or text_config(), vision_config=tower, audio_config=audio or audio_config(), boi_token_id=3,
                   boa_token_id=4, eoi_token_id=264, image_token_id=265, eoa_token_id=266, audio_token_id=AUDIO), **outer}


def seeing_config(blocks, side=2, **arguments):
    """The config of a model with a tower of these blocks, which makes side x side rows of a picture."""
    tower = dict(architecture="mobilenetv5_300m_enc", hidden_size=2048,
                 model_args=dict(dict(block_args=blocks, stem_size=8, msfa_output_resolution=side), **arguments))
    return config_of(vision=tower, vision_soft_tokens_per_image=side * side)


def make_model(folder, seed, config, dtype, sound=None, rows=ROWS, pixels=None, **generation):
    model = models.build(transformers.Gemma3nForConditionalGeneration, config, seed).to(dtype)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=END, pad_token_id=0, **generation)
    model.save_pretrained(folder)
    processor(sound, rows=rows, **(pixels or {})).save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return models.load(transformers.Gemma3nForConditionalGeneration, folder)


CASES = [dict(messages=[gemma4.user("@mono_16.wav", "What is said?")]),
         dict(messages=[gemma4.user("Do ", "@mono_8.wav", " and ", "@mono_8.wav", " differ?")]),
         dict(messages=[gemma4.user("@mono_16.wav"), dict(role="assistant", content=[dict(type="text", text="A tone.")]),
                        gemma4.user("And now?")]),
         dict(prompt="Which sound?", audio=["stereo_24.wav"]),
         dict(messages=[gemma4.user("No sound, but <end_of_image> and <end_of_audio>")])]


# Sounds of different lengths, which the processor pads to the longest.
LENGTHS = [dict(messages=[gemma4.user("@mono_8.wav", " or ", "@mono_16.wav", "?")]),
           dict(prompt=" of them", audio=["mono_16.wav", "float_32.wav", "stereo_24.wav"])]


BOTH = [dict(messages=[gemma4.user("#noise.png", "@mono_8.wav", "Do they fit?")]),
        dict(messages=[gemma4.user("@mono_16.wav"), dict(role="assistant", content=[dict(type="text", text="A tone.")]),
                       gemma4.user("And ", "#tiny.png", " or ", "#noise.png", "?")]),
        dict(prompt=" and the picture", audio=["mono_8.wav"], image=["tiny.png"]),
        dict(messages=[gemma4.user("No picture, but <end_of_image> and <start_of_image>")])]


def write_answers(folder, cases, model, made, sounds):
    """answers.json: the ids of each case and the tokens of generate()."""
    inputs = [gemma4.inputs_of(made, sounds, case) for case in cases]
    answers = [dict(case, ids=given["input_ids"][0].tolist(), tokens=gemma4.answer(model, given, 10)) for case, given in zip(cases, inputs)]
    (folder / "answers.json").write_text("[" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in answers) + "]\n")
    return answers


def make_lengths(folder, model, made, sounds):
    """lengths.json and lengths.safetensors: answers to sounds of different lengths, and the tensors of the encoder for some."""
    inputs = [gemma4.inputs_of(made, sounds, case) for case in LENGTHS]
    answers = [dict(case, ids=given["input_ids"][0].tolist(), tokens=gemma4.answer(model, given, 10)) for case, given in zip(LENGTHS, inputs)]
    (folder / "lengths.json").write_text("[" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in answers) + "]\n")
    out, prompts = folder / "lengths.safetensors", folder / "prompts.jsonl"
    out.unlink(missing_ok=True)
    names = ["../../sound/mono_8.wav", "../../sound/mono_16.wav"]
    prompts.write_text(json.dumps(dict(name="sounds", audios=names, tokens=answers[0]["ids"])) + "\n")
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "4", "--no-f64", "-q"]):
        sys.exit("make_gemma3n_sound_golden.py: there is no reference")
    prompts.unlink()
    tensors = safetensors.numpy.load_file(out)
    kept = ("input_ids", "logits", "input_features", "input_features_mask", "audio_features", "greedy_ids", "encoder_last_hidden_state")
    safetensors.numpy.save_file({name: value for name, value in tensors.items() if name.split(".", 1)[1] in kept
                                 or name.split(".")[1] == "encoder_hidden_states"}, out)
    out.chmod(0o644)


def answer_both(folder):
    """What a checkpoint with both towers answers to pictures and sounds."""
    model = models.load(transformers.Gemma3nForConditionalGeneration, folder)
    write_answers(folder, BOTH, model, transformers.AutoProcessor.from_pretrained(folder), speech.ROOT / "testdata/sound")


def make_frames(sounds):
    """Frames of three sounds with settings of the feature extractor that tests/media/usm_mel_test.cc states."""
    other = dict(feature_size=12, frame_length_ms=20.0, hop_length_ms=12.5, fft_overdrive=False, preemphasis=0.0, input_scale_factor=3.0,
                 mel_floor=1e-3, min_frequency=0.0, max_frequency=8000.0, per_bin_mean=[0.25 * i for i in range(12)],
                 per_bin_stddev=[1 + 0.5 * i for i in range(12)])
    drawn = {"mono_16.wav": {}, "stereo_flac.flac": other, "float_32.wav": dict(preemphasis_htk_flavor=False)}
    with gemma4.InF64():
        frames = {name: extractor(**settings)([speech.samples_of(sounds / name)], return_tensors="np")["input_features"][0]
                  for name, settings in drawn.items()}
    safetensors.numpy.save_file(frames, sounds / "usm_mel_gemma3n.safetensors")
    (sounds / "usm_mel_gemma3n.safetensors").chmod(0o644)


def drop_tower(folder):
    """Takes the weights of the vision tower out of the checkpoint."""
    path = folder / "model.safetensors"
    with safetensors.safe_open(path, "pt") as file:
        kept = {key: file.get_tensor(key) for key in file.keys() if not key.startswith("model.vision_tower.")}
        about = file.metadata()
    safetensors.torch.save_file(kept, path, about)
    path.chmod(0o644)


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    sounds, folder = speech.ROOT / "testdata/sound", speech.ROOT / "testdata/speech/gemma3n"
    folder.mkdir(parents=True, exist_ok=True)
    make_frames(sounds)
    for seed in range(100):
        model = make_model(folder, seed, config_of(), torch.bfloat16, max_new_tokens=10)
        made = transformers.AutoProcessor.from_pretrained(folder)
        answers = write_answers(folder, CASES, model, made, sounds)
        varied = sum(len(set(case["tokens"])) > 3 for case in answers)
        print(f"seed {seed}: {varied} varied answers", flush=True)
        if varied == len(answers) and len({tuple(case["tokens"]) for case in answers}) == len(answers):
            break
    else:
        sys.exit("make_gemma3n_sound_golden.py: no seed gives different answers")
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    out.unlink(missing_ok=True)
    prompts.write_text("".join(json.dumps(row) + "\n" for row in (
        dict(name="audio1", audio="../../sound/mono_16.wav", tokens=answers[0]["ids"]), dict(name="text", tokens=answers[4]["ids"]))))
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "--no-f64", "-q"]):
        sys.exit("make_gemma3n_sound_golden.py: there is no reference")
    prompts.unlink()
    make_lengths(folder, model, made, sounds)
    make_golden.list_keys(folder, speech.ROOT / "testdata/families/gemma3n_sounds")
    drop_tower(folder)


if __name__ == "__main__":
    main()
