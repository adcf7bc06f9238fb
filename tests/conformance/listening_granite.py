"""Cases of listening.py for Granite Speech."""
import json
import random

import common
import make_granite_speech_golden as granite
import make_speech_golden as speech
import make_vision_golden as vision  # it imports torch and transformers
import numpy as np
import safetensors.numpy
import soundfile
import sounds
import torch
import transformers
from common import Wrong


def drawn(r):
    """A config, and the settings of its extractor."""
    kind, heads, width, layers = r.choice(["granite_speech", "granite_speech_plus"]), r.choice([1, 2, 3]), r.choice([12, 24]), r.choice([1, 2, 3, 4, 5])
    mels, window, rate = r.choice([4, 8, 13]), *r.choice([(6, 2), (15, 5), (4, 4), (5, 1), (1, 1), (7, 7)])
    block = r.choice([20, 20, 1, 7, 50])
    joined = r.choice([None, sorted(r.sample(range(layers), r.randint(1, layers)))]) if kind == "granite_speech_plus" else None
    encoder = granite.encoder_config(
        input_dim=2 * mels, num_layers=layers, hidden_dim=width, num_heads=heads, dim_head=r.choice([None, 4, 10]), feedforward_mult=r.choice([1, 3]),
        output_dim=r.choice([3, 40]), context_size=block, max_pos_emb=block + r.choice([0, 1, 30]), conv_kernel_size=r.choice([15, 5, 4, 1]),
        conv_expansion_factor=r.choice([1, 2]), **(dict(cat_hidden_layers=joined) if joined else {}))
    queries = r.choice([1, 2, 4])
    projector = granite.projector_config(
        hidden_size=queries * r.choice([4, 12]), num_attention_heads=queries, num_hidden_layers=r.choice([1, 2, 3]),
        cross_attention_frequency=r.choice([1, 2, 2, 3]), encoder_hidden_size=width * (1 + len(joined or [])), hidden_act=r.choice(["gelu", "gelu", "relu", "silu"]),
        layer_norm_eps=r.choice([1e-12, 1e-3]), use_qformer_text_input=r.random() < 0.2)
    if r.random() < 0.3:
        text = dict(vision.text_sizes(num_hidden_layers=2), model_type="granitemoehybrid", layer_types=[r.choice(["mamba", "attention"]), "attention"],
                    shared_intermediate_size=40, num_local_experts=r.choice([0, 4]), num_experts_per_tok=2, mamba_n_heads=4, mamba_d_head=24, mamba_d_state=8,
                    mamba_n_groups=1, mamba_expand=2, mamba_chunk_size=16, embedding_multiplier=2.0, position_embedding_type=r.choice(["rope", None]),
                    max_position_embeddings=1024)
    else:
        text = granite.text_config(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, embedding_multiplier=r.choice([1.0, 3.0, 12.0]))
    settings = dict(n_mels=mels, n_fft=r.choice([512, 512, 400, 256]), hop_length=r.choice([160, 160, 100, 320]), projector_window_size=window,
                    projector_downsample_rate=rate)
    settings["win_length"] = r.choice([400, settings["n_fft"], 200]) if settings["n_fft"] >= 400 else 200
    return granite.config_of(kind, encoder, projector, text, window_size=window, downsample_rate=rate, tie_word_embeddings=r.random() < 0.5), settings


def check_pairs(folder, sound, name):
    """How far frames are from those of the extractor in f64, and how far its own are."""
    common.Ferry("preprocess", "--audio", folder / name, "--checkpoint", folder, "-o", folder / f"{name}.safetensors").ends_with(0)
    made = safetensors.numpy.load_file(folder / f"{name}.safetensors")["input_features"][0]
    samples = speech.samples_of(folder / name)
    wanted, in_f32 = granite.frames_in_f64(sound, samples), sound(torch.from_numpy(samples))["input_features"][0].numpy()
    if made.shape != wanted.shape or made.shape != in_f32.shape:
        raise Wrong(f"{name}: {made.shape}, the reference {in_f32.shape}")
    distance = float(np.abs(made - wanted).max())
    if distance > max(1.0, float(np.abs(wanted).max())) * (1e-6 if f"-{speech.RATE}-" in name else 1e-4):
        raise Wrong(f"{name}: frames differ by {distance:.3g}")
    return distance, float(np.abs(in_f32 - wanted).max())


def long_sound(r, folder, longest, least):
    """A sound of which there is a pair of frames; shorter ones must be refused."""
    while True:
        path = sounds.draw(r, folder, longest=longest)[0]
        if len(speech.samples_of(path)) > 2000:
            return path.name
        if len(speech.samples_of(path)) < least:
            common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", folder / "short.safetensors").ends_with(2)


def tokens_of(folder, case, *options, count=8):
    """The ids of a prompt as ferry makes them, and the tokens of its answer."""
    words = [word for name in granite.files_of(case) for word in ("--audio", folder / name)]
    if "messages" in case:
        (folder / "chat.json").write_text(json.dumps(case["messages"]))
        words += ["--messages", folder / "chat.json"]
    else:
        words += ["--prompt", case["prompt"]]
    result = common.Ferry("run", folder / "bundle", *words, *options, "--greedy", "--max-new", str(count), "--json").ends_with(0).result
    tokens = result["tokens"]
    return result["prompt_tokens"], tokens[:-1] if tokens and tokens[-1] == granite.END else tokens


def with_adapter(r, folder, made):
    """Writes an adapter beside the checkpoint, with which the reference loads it."""
    import peft
    made.add_adapter(peft.LoraConfig(r=r.choice([2, 5]), lora_alpha=r.choice([4, 9]), target_modules=["q_proj", "v_proj"]))
    noise = torch.Generator().manual_seed(r.randrange(1 << 30))
    for name, parameter in made.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=noise) * 0.3
    made.save_pretrained(str(folder / "saved"))
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).write_bytes((folder / "saved" / name).read_bytes())
    stated = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(dict(stated, base_model_name_or_path=str(folder))))
    return type(made).from_pretrained(folder, dtype=torch.float32).eval()


def model(promise, number, prove):
    r = random.Random(f"{promise.seed} granite {number}")
    folder = promise.folder / f"granite-{number}"
    folder.mkdir()
    config, settings = drawn(r)
    made = granite.make_model(folder, r.randrange(1 << 30), config, r.choice([torch.float32, torch.bfloat16]), sound=granite.extractor(**settings),
                              max_new_tokens=8)
    hybrid = config["text_config"]["model_type"] == "granitemoehybrid"
    adapted = not hybrid and r.random() < 0.3
    if adapted:
        made = with_adapter(r, folder, made)
        common.Ferry("convert", folder, "-o", folder / "bundle").ends_with(4)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    name = long_sound(r, folder, r.choice([2.5, 2.5, 9.0]), settings["n_fft"] // 2 + 1)
    far, rounding = check_pairs(folder, processor.audio_processor, name)
    words = r.choice(["What is it?", "The 12 of them", "th\u00e9 and", " spaced  out\n\n"])
    other = long_sound(r, folder, 2.5, settings["n_fft"] // 2 + 1)
    case = r.choice([dict(messages=[granite.user("<|audio|>" + words)], audio=[name]), dict(prompt=words, audio=[name]),
                     dict(messages=[granite.user(words + "<|audio|>"), dict(role="assistant", content="Yes."), granite.user("And?")], audio=[name]),
                     dict(messages=[granite.user("<|audio|><|audio|>" + words)], audio=[name, name]),
                     dict(messages=[granite.user("<|audio|>" + words + "<|audio|>")], audio=r.choice([[name, other], [other, name]]))])
    inputs = granite.inputs_of(processor, folder, case)
    if inputs["input_ids"].shape[1] > 1000:  # the context has 1024 positions
        case = dict(messages=[granite.user("<|audio|>" + words)], audio=[other])
        inputs = granite.inputs_of(processor, folder, case)
    case["ids"] = inputs["input_ids"][0].tolist()
    style = r.choice([[], ["--shards", "2"], ["--layout", "one-program", "--max-sound", "20"], ["--prefill-length", "150"],
                      ["--program", "static", "--context-length", "1024"], ["--kv-dtype", "f16"]])
    apart = adapted and style == []
    adapter = ["--adapters", f"speech={folder}"] if apart else ["--lora", folder] if adapted else []
    common.convert(folder, folder / "bundle", "--dtype", "f32", *(["--context-length", "1024"] if "--context-length" not in style else []), *style, *adapter)
    if len(granite.files_of(case)) == 1 and not adapted:
        prove(folder, case, granite.files_of(case))
    wanted = granite.answer(made, inputs, 8)
    ids, tokens = tokens_of(folder, case, *(["--adapter", "speech"] if apart else []))
    if ids != case["ids"]:
        raise Wrong(f"ids {ids[:20]} ..., the reference {case['ids'][:20]} ...")
    if tokens != wanted and "f16" not in style:
        raise Wrong(f"tokens {tokens}, the reference {wanted}")
    if apart:
        plain = dict(messages=[granite.user(words)])
        ids, tokens = tokens_of(folder, plain)
        if tokens != granite.answer(made, granite.inputs_of(processor, folder, plain), 8):
            raise Wrong("without a sound the base answers otherwise")
    return (f"{config['model_type']}, {config['text_config']['model_type']}, {name}: {len(case['ids'])} ids, {len(wanted)} tokens, frames within {far:.2g} "
            f"(f32 of the extractor {rounding:.2g}), {' '.join(style) or 'plain'}{', adapter' if adapted else ''}")


def lengths(promise):
    """Sounds at the limits of length: the least, whole blocks and windows, and one row more."""
    r = random.Random(f"{promise.seed} granite lengths")
    folder = promise.folder / "granite-lengths"
    folder.mkdir()
    made = granite.make_model(folder, 3, granite.config_of(tie_word_embeddings=False), torch.float32, max_new_tokens=4)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    common.convert(folder, folder / "bundle", "--dtype", "f32", "--max-sound", "30", "--context-length", "1024")
    noise = np.random.default_rng(r.randrange(1 << 30))
    rows = []
    for count in (257, 319, 320, 479, 480, 1759, 1760, 2079, 2080, 6239, 6240, 6559, 6560, 100_000, 479_679, 479_680, 479_999):
        name = f"noise-16000-{count}.wav"
        soundfile.write(folder / name, noise.uniform(-0.5, 0.5, count), 16000, subtype="FLOAT")
        check_pairs(folder, processor.audio_processor, name)
        case = dict(messages=[granite.user("<|audio|>What?")], audio=[name])
        inputs = granite.inputs_of(processor, folder, case)
        ids, tokens = tokens_of(folder, case, count=4)
        wanted = granite.answer(made, inputs, 4)
        if ids != inputs["input_ids"][0].tolist() or tokens != wanted:
            raise Wrong(f"{count} samples: {tokens}, the reference {wanted}")
        rows.append(ids.count(granite.AUDIO))
    for count in (256, 480_001 + 320):
        soundfile.write(folder / "wrong.wav", np.zeros(count), 16000)
        common.Ferry("run", folder / "bundle", "--audio", folder / "wrong.wav", "--chat", "a").ends_with(2)
    return f"rows of sounds: {rows}"
