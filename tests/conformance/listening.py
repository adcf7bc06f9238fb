"""Random language models that hear (Voxtral, Gemma 3n, Gemma 4, Granite Speech) are converted right, and their prompts are those of mistral-common and of the processor.

A case draws a model, the sounds of a chat or of a request to write one down, and the layout of the bundle. The ids of the prompt are those
of VoxtralProcessor, the windows of frames those of the numpy path of its extractor within the bounds of sounds.py, `python -m
ferry.reference` makes the reference, `ferry verify` proves every stage, and `ferry run` and `ferry transcribe` give the tokens of
generate(). Another case draws texts, whose ids must be those of mistral-common, texts with control tokens among them.

For Gemma 4 a case draws an audio encoder, the settings of a feature extractor, a vision tower or none, and a prompt with sounds and
pictures; ids, frames and tokens are those of its processor and of generate() with frames of padding. Frames are compared with the
extractor's, whose transform is in f64 then, within 1e-6 times the larger of 1 and the greatest value (1e-4 where a sound is resampled);
the case says how far the extractor's own f32 is. Another case has sounds at the limits of length.

For Gemma 3n, which needs timm, a case draws an audio encoder, the settings of a feature extractor, the rows of a sound, and a prompt with
one sound, or with several of different lengths; token ids with embeddings of their own are in its texts. Where rows of the encoder see
later ones, sounds of different lengths must be refused.

For Granite Speech and Granite Speech Plus a case draws an encoder, a projector, the settings of a feature extractor, a text decoder of
granite or granitemoehybrid, and a prompt with one sound, or with sounds of one length; some have an adapter (peft) beside them, which is
merged, or which a prompt with sounds has and one without has not. Frames are compared with the extractor's in f64, within the same bounds.

    python3 tests/conformance/listening.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import json
import random

import common
import listening_granite
import make_gemma3n_sound_golden as gemma3n
import make_gemma4_sound_golden as gemma4
import make_speech_golden as speech
import make_vision_golden as vision
import make_voxtral_golden as golden  # it imports torch and transformers
import numpy as np
import safetensors.numpy
import soundfile
import sounds
import torch
import transformers
from common import Wrong
from ferry import reference

BOUND, RESAMPLED = sounds.BOUND, sounds.RESAMPLED


def drawn_config(r):
    group, heads = r.choice([50, 50, 20, 100]), r.choice([1, 2, 4])
    scaling = r.choice([{}, {}, dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0))])
    return golden.config_of(
        mels=r.choice([4, 20]), group=group, width=4 * heads,
        audio=dict(activation_function=r.choice(["gelu", "gelu", "relu", "silu"]), scale_embedding=r.random() < 0.5,
                   num_hidden_layers=r.choice([1, 2, 3]), num_attention_heads=heads),
        text=dict(num_hidden_layers=r.choice([1, 2, 4]), num_key_value_heads=r.choice([1, 2, 4]), head_dim=r.choice([4, 6, 8]),
                  attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, tie_word_embeddings=r.random() < 0.3, max_position_embeddings=512, **scaling),
        tie_word_embeddings=r.random() < 0.3)


def drawn_case(r, folder):
    """A chat or a request, with sounds that are drawn."""
    def sound():
        return sounds.draw(r, folder, longest=r.choice([2.5, 2.5, 31.0]))[0].name
    if r.random() < 0.4:
        return dict(sound=sound(), **r.choice([{}, dict(language="en"), dict(language="de")]))
    words = ["What is it?", "The 12 of them", "th\u00e9 [INST] and", " spaced  out\n\n"]
    content = [dict(audio=sound()) for _ in range(r.choice([1, 1, 2]))] + [dict(type="text", text=r.choice(words))]
    r.shuffle(content)
    messages = [dict(role="user", content=content)]
    if r.random() < 0.4:
        messages += [dict(role="assistant", content=r.choice(["Yes.", "No, it is not. "])), dict(role="user", content=r.choice(words))]
    return dict(messages=messages)


def run_of(folder, bundle, case):
    """What ferry makes of a case: ids of the prompt, and tokens of the answer."""
    if "sound" in case:
        words = ["--language", case["language"]] if "language" in case else []
        made = common.Ferry("transcribe", bundle, folder / case["sound"], "--json", *words).ends_with(0).result
        return made["forced_tokens"], made["tokens"]
    messages = [dict(part, content=[dict(type="audio") if "audio" in item else item for item in part["content"]])
                if isinstance(part["content"], list) else part for part in case["messages"]]
    (folder / "chat.json").write_text(json.dumps(messages))
    words = [word for name in golden.sounds_of(case) for word in ("--audio", folder / name)]
    made = common.Ferry("run", bundle, "--messages", folder / "chat.json", "--greedy", "--json", *words).ends_with(0).result
    tokens = made["tokens"]
    return made["prompt_tokens"], tokens[:-1] if tokens and tokens[-1] == golden.END else tokens


def check_windows(folder, name):
    common.Ferry("preprocess", "--audio", folder / name, "--checkpoint", folder, "-o", folder / f"{name}.safetensors").ends_with(0)
    made = safetensors.numpy.load_file(folder / f"{name}.safetensors")["input_features"]
    wanted = golden.windows_of(folder, speech.samples_of(folder / name))
    if made.shape != wanted.shape:
        raise Wrong(f"{name}: {list(made.shape)}, the reference {list(wanted.shape)}")
    distance = float(np.abs(made - wanted).max())
    if distance > (BOUND if f"-{speech.RATE}-" in name else RESAMPLED):
        raise Wrong(f"{name}: frames differ by {distance:.3g}")
    return distance


def model(promise, number):
    r = random.Random(f"{promise.seed} voxtral {number}")
    folder = promise.folder / f"voxtral-{number}"
    folder.mkdir()
    dtype = r.choice([torch.float32, torch.bfloat16])
    made = golden.make_model(folder, number, drawn_config(r), dtype, max_new_tokens=8)
    case = drawn_case(r, folder)
    case["ids"] = golden.ids_of(folder, folder, case)
    distance = max((check_windows(folder, name) for name in golden.sounds_of(case)), default=0.0)
    style = r.choice([[], ["--shards", str(r.randint(1, made.config.text_config.num_hidden_layers))], ["--layout", "one-program"],
                      ["--prefill-length", "3"], ["--program", "static"], ["--kv-dtype", "f16"]])
    common.convert(folder, folder / "bundle", "--dtype", "f32", *style)
    names = golden.sounds_of(case)
    if len(names) == 1:
        prove(folder, case, names)
    wanted = golden.answer(made, folder, folder, case, 8)
    ids, tokens = run_of(folder, folder / "bundle", case)
    if ids != case["ids"]:
        raise Wrong(f"ids {ids[:9]} ... {ids[-9:]}, the reference {case['ids'][:9]} ... {case['ids'][-9:]}")
    if tokens != wanted and "f16" not in style:
        raise Wrong(f"tokens {tokens}, the reference {wanted}")
    return f"{', '.join(names) or 'no sound'}: {len(ids)} ids, {len(wanted)} tokens, frames within {distance:.2g}, {' '.join(style) or 'plain'}"


def prove(folder, case, names, pictures=()):
    """A reference of sounds, or of some with pictures, is proved."""
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    line = dict(audios=names, tokens=case["ids"])
    if pictures:
        line = dict(audios=names, images=[str(vision.IMAGES / picture) for picture in pictures], text=case.get("prompt", "What?"))
        if "messages" in case:
            line["messages"] = gemma4.typed(case["messages"])
            del line["text"]
    prompts.write_text(json.dumps(line) + "\n")
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "-q"]):
        raise Wrong("there is no reference")
    proof = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", out)
    if proof.code:
        raise Wrong(f"verify exits {proof.code}: {proof.why if proof.code > 1 else common.first_difference(proof.result)}")
    stages = {layer["name"] for layer in proof.result["layers"]}
    skipped = [case["skipped"] for case in proof.result["cases"] if case.get("skipped")]
    if skipped or not {"audio_features"} | ({"image_features"} if pictures else set()) <= stages:
        raise Wrong(f"not every stage is compared: {skipped or sorted(stages)}")


def texts(promise, number):
    """Ids of texts, and texts of ids."""
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    r = random.Random(f"{promise.seed} tekken {number}")
    folder = promise.folder / f"tekken-{number}"
    folder.mkdir()
    golden.tekken(folder, 50, 4)
    theirs = MistralTokenizer.from_file(str(folder / "tekken.json")).instruct_tokenizer.tokenizer
    pieces = ["the", "and", " thing", "1234", "\u00e9", "\u4e2d", "[INST]", "<s>", "\n\n", "  ", "'s", "\U0001f600", "Ab", "XYZ", "!?", "\t"]
    lines = ["".join(r.choice(pieces) for _ in range(r.randint(1, 12))) for _ in range(200)]
    stdin = "".join(json.dumps(text) + "\n" for text in lines).encode()
    made = common.Ferry("tokenize", folder, "--add-special", stdin=stdin).ends_with(0).out.splitlines()
    for text, line in zip(lines, made, strict=True):
        ids, wanted = json.loads(line), theirs.encode(text, bos=True, eos=False)
        if ids != wanted:
            raise Wrong(f"{text!r}: {ids}, the reference {wanted}")
        (back,) = common.Ferry("tokenize", folder, "--decode", stdin=line + b"\n").ends_with(0).out.splitlines() if text == lines[0] else [None]
        if back is not None and json.loads(back) != "<s>" + text:
            raise Wrong(f"{text!r}: decoded as {back}")
    return f"{len(lines)} texts"


def drawn_extractor(r, mels):
    means = [r.uniform(-5, 0) for _ in range(mels)] if r.random() < 0.3 else None
    deviations = [r.uniform(0.5, 2) for _ in range(mels)] if r.random() < 0.3 else None
    return dict(feature_size=mels, frame_length_ms=r.choice([20.0, 20.0, 32.0, 25.0, 16.1]), hop_length_ms=r.choice([10.0, 10.0, 20.0, 12.5]),
                min_frequency=r.choice([0.0, 0.0, 125.0]), max_frequency=r.choice([8000.0, 8000.0, 7600.0]), preemphasis=r.choice([0.0, 0.0, 0.97]),
                preemphasis_htk_flavor=r.random() < 0.5, fft_overdrive=r.random() < 0.3, input_scale_factor=r.choice([1.0, 1.0, 0.37, 300.0]),
                mel_floor=r.choice([1e-3, 1e-3, 1e-5]), per_bin_mean=means, per_bin_stddev=deviations)


def drawn_gemma3n(r):
    """A config, and the settings of its extractor."""
    heads, mels = r.choice([1, 2, 4]), r.choice([8, 16, 21])
    kernels = [[r.choice([3, 3, 1, 4]), r.choice([3, 3, 2])] for _ in range(2)]
    steps = [[r.choice([2, 2, 1, 3]), r.choice([2, 2, 1])] for _ in range(2)]
    reduction = r.choice([4, 4, 1, 3])
    audio = gemma3n.audio_config(
        hidden_size=heads * r.choice([2, 4, 6, 16]), conf_num_attention_heads=heads, conf_num_hidden_layers=r.choice([1, 2, 3]),
        input_feat_size=mels, sscp_conv_channel_size=[r.choice([3, 6]), r.choice([4, 5])], sscp_conv_kernel_size=kernels,
        sscp_conv_stride_size=steps, sscp_conv_group_norm_eps=r.choice([1e-3, 0.1]), conf_reduction_factor=reduction,
        conf_conv_kernel_size=r.choice([5, 5, 1, 8]), conf_residual_weight=r.choice([0.5, 0.5, 1.3]),
        conf_attention_chunk_size=r.choice([12, 12, 1, 5, 40]), conf_attention_context_left=r.choice([13, 13, 0, 1, 6, 41]),
        conf_attention_context_right=r.choice([0, 0, 1, 4, 20]), conf_attention_logit_cap=r.choice([50.0, 50.0, 1.5]),
        rms_norm_eps=r.choice([1e-6, 1e-3]), gradient_clipping=r.choice([1e10, 1e10, 1.0]))
    layers = r.choice([gemma3n.IMAGES, gemma3n.IMAGES, gemma3n.VOCABULARY, 270])
    text = gemma3n.text_config(vocab_size_per_layer_input=layers, max_position_embeddings=2048, sliding_window=r.choice([12, 200]),
                               num_kv_shared_layers=r.choice([0, 2]))
    hop = r.choice([10.0, 10.0, 20.0, 12.5])
    longest = int(2.6 * 1000 / hop) + 2
    own = -(-(-(-(-(-longest // steps[0][0]) // steps[1][0]))) // reduction)
    rows = r.choice([188, own, own + 7])
    settings = drawn_extractor(r, mels)
    settings.update(hop_length_ms=hop, frame_length_ms=r.choice([32.0, 32.0, 20.0, 16.1, 8.0]))
    config = gemma3n.config_of(audio=audio, text=text, audio_soft_tokens_per_image=rows)
    if r.random() < 0.5:  # else its tower is of another architecture, and left out
        blocks = [[vision.edge(8, 2)], [vision.inverted(8, 2, 3, 5), vision.mobile_attention(8, kv_stride=2), vision.inverted(8)]]
        seen = gemma3n.seeing_config(blocks, 2)
        config.update({key: seen[key] for key in ("vision_config", "vision_soft_tokens_per_image")})
    return config, settings, rows


def drawn_gemma4(r):
    heads = r.choice([1, 2, 4])
    bins = r.choice([1, 4, 8])
    audio = gemma4.audio_config(
        hidden_size=heads * r.choice([2, 4, 6, 16]), num_attention_heads=heads, num_hidden_layers=r.choice([1, 2, 3]),
        hidden_act=r.choice(["silu", "silu", "gelu", "relu"]), subsampling_conv_channels=[4 * bins + r.choice([0, 0, 3]), r.choice([4, 6])],
        conv_kernel_size=r.choice([5, 5, 1, 8]), residual_weight=r.choice([0.5, 0.5, 1.3]), attention_chunk_size=r.choice([12, 12, 1, 5, 40]),
        attention_context_left=r.choice([13, 13, 2, 6, 41]), attention_context_right=r.choice([0, 0, 1, 4, 20]),
        attention_logit_cap=r.choice([50.0, 50.0, 1.5]), use_clipped_linears=r.random() < 0.6, rms_norm_eps=r.choice([1e-6, 1e-3]),
        gradient_clipping=r.choice([1e10, 1e10, 1.0]), output_proj_dims=r.choice([20, 32]))
    inputs = r.choice([12, 12, 0])  # without which the class of the reference takes no shared layers
    text = dict(use_bidirectional_attention=r.choice([None, None, "vision"]), hidden_size_per_layer_input=inputs,
                num_kv_shared_layers=r.choice([0, 2]) if inputs else 0, max_position_embeddings=2048, sliding_window=r.choice([12, 200]))
    return gemma4.config_of(audio=audio, text=text, sees=r.random() < 0.6), 4 * bins


def gemma4_sound(r, folder, longest):
    """A sound of which there is a frame; shorter ones must be refused."""
    while True:
        path = sounds.draw(r, folder, longest=longest)[0]
        if len(speech.samples_of(path)) > 2000:
            return path.name
        if len(speech.samples_of(path)) <= 120:
            common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", folder / "short.safetensors").ends_with(2)


def drawn_prompt(r, folder, sees):
    """Sounds, pictures and texts, in a chat or without."""
    words = ["What is it?", "The 12 of them", "th\u00e9 and", " spaced  out\n\n"]
    files = [gemma4_sound(r, folder, r.choice([2.5, 2.5, 12.0])) for _ in range(r.choice([1, 1, 1, 2]))]
    pictures = [r.choice(["noise.png", "tiny.png"])] if sees and r.random() < 0.5 else []
    if r.random() < 0.25:
        return dict(prompt=r.choice(words), audio=files, image=pictures)
    content = [dict(audio=name) for name in files] + [dict(image=name) for name in pictures] + [dict(type="text", text=r.choice(words))]
    r.shuffle(content)
    messages = [dict(role="user", content=content)]
    if r.random() < 0.3:
        messages += [dict(role="assistant", content=[dict(type="text", text="Yes.")]), gemma4.user(r.choice(words))]
    return dict(messages=messages)


def gemma4_words(folder, case):
    """The options of ferry run for a case."""
    words = [word for name in gemma4.files_of(case, "audio") for word in ("--audio", folder / name)]
    words += [word for name in gemma4.files_of(case, "image") for word in ("--image", vision.IMAGES / name)]
    if "messages" not in case:
        return ["--prompt", case["prompt"], *words]
    (folder / "chat.json").write_text(json.dumps(gemma4.typed(case["messages"])))
    return ["--messages", folder / "chat.json", *words]


def check_frames(folder, extractor, name):
    common.Ferry("preprocess", "--audio", folder / name, "--checkpoint", folder, "-o", folder / f"{name}.safetensors").ends_with(0)
    made = safetensors.numpy.load_file(folder / f"{name}.safetensors")
    samples = speech.samples_of(folder / name)
    in_f32 = extractor([samples], return_tensors="np")
    with gemma4.InF64():
        wanted = extractor([samples], return_tensors="np")
    if made["input_features"].shape != wanted["input_features"].shape:
        raise Wrong(f"{name}: {made['input_features'].shape}, the reference {wanted['input_features'].shape}")
    if not np.array_equal(made["input_features_mask"], wanted["input_features_mask"]):
        raise Wrong(f"{name}: another mask")
    scale = max(1.0, float(np.abs(wanted["input_features"]).max()))
    distance = float(np.abs(made["input_features"] - wanted["input_features"]).max())
    if distance > scale * (1e-6 if f"-{speech.RATE}-" in name else 1e-4):
        raise Wrong(f"{name}: frames differ by {distance:.3g}")
    return distance, float(np.abs(in_f32["input_features"] - wanted["input_features"]).max())


def save_gemma4(folder, r, config, mels):
    settings = drawn_extractor(r, mels)
    made = gemma4.make_model(folder, r.randrange(1 << 30), config, r.choice([torch.float32, torch.bfloat16]), sound=gemma4.extractor(**settings),
                             max_new_tokens=8)
    state_lengths(folder, settings)
    return made


def state_lengths(folder, settings):
    """Adds the lengths of frames and hops, which are not saved."""
    stated = json.loads((folder / "processor_config.json").read_text())
    stated["feature_extractor"].update({key: settings[key] for key in ("frame_length_ms", "hop_length_ms")})
    (folder / "processor_config.json").write_text(json.dumps(stated, indent=2))


def gemma4_answer(folder, case, count=8):
    """The tokens that ferry answers a case with, whose prompt must have the ids of the case."""
    result = common.Ferry("run", folder / "bundle", *gemma4_words(folder, case), "--greedy", "--max-new", str(count), "--json").ends_with(0).result
    if result["prompt_tokens"] != case["ids"]:
        raise Wrong(f"ids {result['prompt_tokens'][:20]} ..., the reference {case['ids'][:20]} ...")
    tokens = result["tokens"]
    return tokens[:-1] if tokens and tokens[-1] == gemma4.END else tokens


def gemma4_model(promise, number):
    r = random.Random(f"{promise.seed} gemma4 {number}")
    folder = promise.folder / f"gemma4-{number}"
    folder.mkdir()
    config, mels = drawn_gemma4(r)
    made = save_gemma4(folder, r, config, mels)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    sees = config["vision_config"] is not None
    case = drawn_prompt(r, folder, sees)
    names = gemma4.files_of(case, "audio")
    distances = [check_frames(folder, processor.feature_extractor, name) for name in names]
    inputs = gemma4.inputs_of(processor, folder, case)
    case["ids"] = inputs["input_ids"][0].tolist()
    style = r.choice([[], ["--shards", str(r.randint(1, 4))], ["--layout", "one-program", "--inputs", "sounds"], ["--prefill-length", "150"],
                      ["--program", "static", "--context-length", "1024"], ["--kv-dtype", "f16"]])
    if gemma4.files_of(case, "image") and "one-program" in style:
        style = []
    common.convert(folder, folder / "bundle", "--dtype", "f32", *(["--context-length", "2048"] if "--context-length" not in style else []), *style)
    prove(folder, case, names, gemma4.files_of(case, "image"))
    wanted = gemma4.answer(made, inputs, 8)
    tokens = gemma4_answer(folder, case)
    if tokens != wanted and "f16" not in style:
        raise Wrong(f"tokens {tokens}, the reference {wanted}")
    far, rounding = max(d[0] for d in distances), max(d[1] for d in distances)
    return (f"{', '.join(names)}: {len(case['ids'])} ids, {len(wanted)} tokens, frames within {far:.2g} (f32 of the extractor {rounding:.2g}), "
            f"{' '.join(style) or 'plain'}")


def gemma3n_model(promise, number):
    r = random.Random(f"{promise.seed} gemma3n {number}")
    folder = promise.folder / f"gemma3n-{number}"
    folder.mkdir()
    config, settings, rows = drawn_gemma3n(r)
    sees = "vision_soft_tokens_per_image" in config
    made = gemma3n.make_model(folder, r.randrange(1 << 30), config, r.choice([torch.float32, torch.bfloat16]), sound=gemma3n.extractor(**settings),
                              rows=rows, pixels=dict(side=32, tokens=4) if sees else None, max_new_tokens=8)
    state_lengths(folder, settings)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    name = gemma4_sound(r, folder, 2.5)
    far, rounding = check_frames(folder, processor.feature_extractor, name)
    # Sounds of one prompt are padded to the longest; where rows see later ones, they must be equally long.
    causal = config["audio_config"]["conf_attention_context_right"] == 0
    others = [gemma4_sound(r, folder, 2.5) for _ in range(r.choice([1, 1, 2]))] if causal else [name]
    words = r.choice(["What is it?", "The <end_of_image> 12", "th\u00e9 <end_of_audio>"])
    case = r.choice([dict(messages=[gemma4.user("@" + name, words)]), dict(prompt=words, audio=[name]),
                     dict(messages=[gemma4.user("@" + name, "and", *["@" + other for other in others], words)])])
    if sees and r.random() < 0.7:
        picture = r.choice(["noise.png", "tiny.png"])
        more = others if r.random() < 0.4 else []
        case = r.choice([dict(messages=[gemma4.user("#" + picture, "@" + name, *["@" + other for other in more], words)]),
                         dict(prompt=words, audio=[name] + more, image=[picture])])
    inputs = gemma4.inputs_of(processor, folder, case)
    case["ids"] = inputs["input_ids"][0].tolist()
    style = r.choice([[], ["--shards", str(r.randint(1, 4))], ["--layout", "one-program", "--max-sound", "3"], ["--prefill-length", "150"],
                      ["--program", "static", "--context-length", "1024"], ["--kv-dtype", "f16"]])
    common.convert(folder, folder / "bundle", "--dtype", "f32", *(["--context-length", "2048"] if "--context-length" not in style else []), *style)
    prove(folder, case, gemma4.files_of(case, "audio"), gemma4.files_of(case, "image"))
    wanted = gemma4.answer(made, inputs, 8)
    tokens = gemma4_answer(folder, case)
    if tokens != wanted and "f16" not in style:
        raise Wrong(f"tokens {tokens}, the reference {wanted}")
    if not causal:
        near = -(-len(speech.samples_of(folder / name)) // 128) == 47
        soundfile.write(folder / "other.wav", np.zeros(9000 if near else 6000), 16000)
        common.Ferry("run", folder / "bundle", "--audio", folder / name, "--audio", folder / "other.wav", "--chat", "a").ends_with(4)
    return (f"{', '.join(gemma4.files_of(case, 'audio'))}: {len(case['ids'])} ids, {rows} rows, {len(gemma4.files_of(case, 'image'))} pictures, {len(wanted)} tokens, "
            f"frames within {far:.2g} (f32 of the extractor {rounding:.2g}), {' '.join(style) or 'plain'}")


def gemma3n_lengths(promise):
    """Sounds at the limits of length with the sizes of released models, and longer ones, which are cut."""
    r = random.Random(f"{promise.seed} gemma3n lengths")
    folder = promise.folder / "gemma3n-lengths"
    folder.mkdir()
    made = gemma3n.make_model(folder, 3, gemma3n.config_of(), torch.float32, max_new_tokens=4)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    common.convert(folder, folder / "bundle", "--dtype", "f32")
    noise = np.random.default_rng(r.randrange(1 << 30))
    counts = (513, 640, 641, 2561, 8000, 100_000, 479_873, 480_000, 480_001, 533_333)
    for count in counts:
        name = f"noise-16000-{count}.wav"
        soundfile.write(folder / name, noise.uniform(-0.5, 0.5, count), 16000, subtype="FLOAT")
        check_frames(folder, processor.feature_extractor, name)
        case = dict(messages=[gemma4.user("@" + name, "What?")])
        inputs = gemma4.inputs_of(processor, folder, case)
        case["ids"] = inputs["input_ids"][0].tolist()
        tokens, wanted = gemma4_answer(folder, case, 4), gemma4.answer(made, inputs, 4)
        if tokens != wanted:
            raise Wrong(f"{count} samples: {tokens}, the reference {wanted}")
    soundfile.write(folder / "short.wav", np.zeros(512), 16000)
    common.Ferry("run", folder / "bundle", "--audio", folder / "short.wav", "--chat", "a").ends_with(2)
    return f"samples of sounds: {counts}"


def gemma4_lengths(promise):
    """Sounds at the limits of length: one frame, one row more, 30 seconds, and longer ones, which are cut."""
    r = random.Random(f"{promise.seed} gemma4 lengths")
    folder = promise.folder / "gemma4-lengths"
    folder.mkdir()
    made = gemma4.make_model(folder, 3, gemma4.config_of(text=dict(max_position_embeddings=2048)), torch.float32, max_new_tokens=4)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    common.convert(folder, folder / "bundle", "--dtype", "f32", "--context-length", "2048")
    noise = np.random.default_rng(r.randrange(1 << 30))
    rows = []
    for count in (161, 320, 321, 800, 801, 801 + 160 * 48, 479_873, 480_000, 480_001, 533_333):
        name = f"noise-16000-{count}.wav"
        soundfile.write(folder / name, noise.uniform(-0.5, 0.5, count), 16000, subtype="FLOAT")
        check_frames(folder, processor.feature_extractor, name)
        case = dict(messages=[gemma4.user("@" + name, "What?")])
        inputs = gemma4.inputs_of(processor, folder, case)
        result = common.Ferry("run", folder / "bundle", *gemma4_words(folder, case), "--greedy", "--max-new", "4", "--json").ends_with(0).result
        wanted = gemma4.answer(made, inputs, 4)
        tokens = result["tokens"][:-1] if result["tokens"][-1] == gemma4.END else result["tokens"]
        if result["prompt_tokens"] != inputs["input_ids"][0].tolist() or tokens != wanted:
            raise Wrong(f"{count} samples: {tokens}, the reference {wanted}")
        rows.append(result["prompt_tokens"].count(gemma4.AUDIO))
    soundfile.write(folder / "short.wav", np.zeros(160), 16000)
    common.Ferry("run", folder / "bundle", "--audio", folder / "short.wav", "--chat", "a").ends_with(2)
    return f"rows of sounds: {rows}"


def main():
    promise = common.Promise(__doc__)
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    for number in range(2 if promise.sample else 6):
        promise.case(f"texts {number}", texts, promise, number)
    for number in range(4 if promise.sample else 30):
        promise.case(f"voxtral {number}", model, promise, number)
    promise.case("gemma3n lengths", gemma3n_lengths, promise)
    for number in range(4 if promise.sample else 40):
        promise.case(f"gemma3n {number}", gemma3n_model, promise, number)
    promise.case("gemma4 lengths", gemma4_lengths, promise)
    for number in range(4 if promise.sample else 40):
        promise.case(f"gemma4 {number}", gemma4_model, promise, number)
    promise.case("granite lengths", listening_granite.lengths, promise)
    for number in range(5 if promise.sample else 50):
        promise.case(f"granite {number}", listening_granite.model, promise, number, prove)
    promise.finish()


if __name__ == "__main__":
    main()
