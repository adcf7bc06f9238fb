"""Bundles of ferry compute in the official ExecuTorch runtime what the original computes.

- Programs in f32 of every family, stateful, in shards and static, and of vision-language models: logits are those of
  transformers (the goldens of testdata) within 1e-4, or 1e-3 for models with the delta rule.
- Encoder-decoders in f32: encoder and decoder, by the goldens, in shards and as one program.
- Models of speech in f32: encoder and decoder, by the goldens, and of a sound that has fewer rows than the prompt has tokens; an
  encoder that gives labels, by the golden and of shorter sounds.
- A real model in f32: within 4 times the distance of transformers in f32 from transformers in f64.
- Programs that quantise activations or caches: the official runtime and ferry differ by no more than 3 times what either of them
  moves when every norm weight of the model is moved by one unit in the last place of f32. Rounding makes such programs chaotic, so
  no fixed bound says what two right runtimes may differ by.
- Unmodified bundles of one program (--layout one-program) in f32: the TextLLMRunner and the MultimodalRunner of the package answer
  with the tokens of transformers.
- Programs in half precision: by no more than half of what they move when that unit is one of their precision.
"""
import json
import pathlib
import random
import shutil

import numpy

import common
import official
from common import Ferry, Wrong, convert, copy_folder, edit_tensor, safetensors_header

STYLES = {
    "stateful": [],
    "two shards": ["--shards", "2"],
    "static": ["--program", "static", "--context-length", "64", "--prefill-length", "8"],
    "static, heads apart": ["--program", "static", "--context-length", "64", "--prefill-length", "8", "--attention", "sha"],
}
# Static programs state the context by masks of attention, which are of windows and not of chunks; states beside attention, and gates,
# biases of keys, values and routed queries of their own have no heads.
REFUSED = {
    "static": {"mamba", "mamba2", "falcon_mamba", "llama4_text"},
    "static, heads apart": {"mamba", "mamba2", "falcon_mamba", "falcon_h1", "zamba2", "afmoe", "afmoe_fourth", "llama4_text", "doge", "jetmoe",
                            "mimo_v2_flash"},
}
ROUNDING = {
    "bf16": ["--dtype", "bf16"],
    "f16": ["--dtype", "f16"],
    "8da4w": ["--quantize", "8da4w", "--quantize-embedding", "8"],
    "8da8w": ["--quantize", "8da8w", "--quantize-embedding", "8"],
    "int8, embedding 4": ["--quantize", "int8", "--quantize-embedding", "4"],
    "i8 caches": ["--dtype", "f32", "--kv-dtype", "i8"],
}
UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11}  # of programs that compute in half precision, relative


def tensor(path, name):
    """A tensor of a safetensors file, or None."""
    from safetensors.numpy import load_file
    return load_file(path).get(name)


def in_f32(promise, runtime, source, style):
    """A golden checkpoint of testdata in one style."""
    golden = source / "golden.safetensors"
    prompt = "short" if "short.logits" in safetensors_header(golden)[0] else "a"
    ids, expected = tensor(golden, f"{prompt}.input_ids")[0].tolist(), tensor(golden, f"{prompt}.logits")[0]
    options = list(STYLES[style])
    if source.name in REFUSED.get(style, ()):
        Ferry("convert", source, "-o", promise.folder / "none", "--quiet", *options).ends_with(4)
        promise.note("refused by name")
        return "refused by name"
    if source.name == "phi4_mini" and "static" in style:  # a static program has one set of RoPE factors
        options[options.index("64")] = "24"
    bundle = convert(source, promise.folder / f"{source.name}-{style.replace(' ', '-')}", "--dtype", "f32", *options)
    bound = 1e-3 if source.name.startswith(("qwen3_5", "qwen3_next")) else 1e-4
    worst = 0.0
    if style.startswith("static"):
        for in_chunks in (False, True):
            worst = max(worst, abs(runtime(official.static_logits, bundle, ids, in_chunks) - expected).max())
    else:
        for again in (False, True):
            each, whole = runtime(official.stateful_logits, bundle, ids, tensor(golden, f"{prompt}.pixel_values"), again)
            worst = max(worst, abs(each - expected).max(), abs(whole - expected[-1:]).max())
    if not worst <= bound:
        raise Wrong(f"logits differ by {worst:.2e}, at most {bound:.0e} expected")
    return f"max_abs {worst:.2e}"


def pictures_in_f32(promise, runtime, source):
    """A golden checkpoint whose images are lists of patches or of several tiles, or whose rows attend to each other: features and logits."""
    from safetensors.numpy import load_file
    golden = load_file(source / "golden.safetensors")
    ids, pixels = golden["one.input_ids"][0].tolist(), golden["one.pixel_values"]
    shapes = golden.get("one.spatial_shapes")
    if "one.image_position_ids" in golden:  # of columns and rows
        shapes = golden["one.image_position_ids"].max(axis=1)[:, ::-1] + 1
    bundle = convert(source, promise.folder / f"{source.name}-pictures", "--dtype", "f32", "--inputs", "images", "--logits", "all",
                     "--prefill-length", str(len(ids)), "--context-length", "200")
    if "one.image_sizes" in golden:
        logits, features = runtime(official.tiled_logits, bundle, source, ids, pixels, golden["one.image_sizes"].tolist())
    else:
        logits, features = runtime(official.picture_logits, bundle, ids, pixels, None if shapes is None else shapes.tolist())
    width = features.shape[-1]
    worst = max(abs(logits - golden["one.logits"][0]).max(), abs(features - golden["one.image_features"].reshape(-1, width)).max())
    if not worst <= 1e-4:
        raise Wrong(f"features and logits differ by {worst:.2e}, at most 1e-4 expected")
    return f"max_abs {worst:.2e}"


def encoder_in_f32(promise, runtime, source):
    """An encoder of testdata: its prompts alone, and together in one call."""
    golden = source / "golden.safetensors"
    names = [name[:-len(".input_ids")] for name in safetensors_header(golden)[0] if name.endswith(".input_ids")]
    expected = [tensor(golden, f"{name}.last_hidden_state")[0] for name in names]
    texts = [tensor(golden, f"{name}.input_ids")[0].tolist() for name in names]
    bundle = convert(source, promise.folder / f"{source.name}-encoder", "--dtype", "f32", "--program", "encoder",
                     "--context-length", "40")
    got = runtime(official.encoder_states, bundle, texts)
    if len(got) > len(texts):
        expected.append(numpy.concatenate(expected))
    worst = max(abs(ours - theirs).max() for ours, theirs in zip(got, expected, strict=True))
    if not worst <= 1e-4:
        raise Wrong(f"states differ by {worst:.2e}, at most 1e-4 expected")
    return f"max_abs {worst:.2e}, {len(got) - len(texts)} calls of several texts"


def labels_in_f32(promise, runtime, style, longest):
    """A model that gives labels of rows, of all of the golden's frames or of the first ones."""
    import torch
    import transformers
    source = common.TESTDATA / "speech/parakeet"
    golden = source / "golden.safetensors"
    frames, expected = tensor(golden, "audio1.input_features"), tensor(golden, "audio1.token_logits")
    if longest is not None:
        frames = frames[:, :longest].copy()
        model = transformers.ParakeetForCTC.from_pretrained(source, dtype=torch.float32).eval()
        with torch.no_grad():
            expected = model(torch.from_numpy(frames), attention_mask=torch.ones(1, longest, dtype=torch.bool)).logits.numpy()
    bundle = convert(source, promise.folder / f"parakeet-{'-'.join(style)}{longest}", "--dtype", "f32", *style)
    got = runtime(official.sound_labels, bundle, frames)
    if got.shape != expected.shape:
        raise Wrong(f"labels {got.shape}, expected {expected.shape}")
    worst = abs(got - expected).max()
    if not worst <= 1e-4:
        raise Wrong(f"labels differ by {worst:.2e}, at most 1e-4 expected")
    return f"max_abs {worst:.2e}"


def sound_in_f32(promise, runtime, source, style, longest):
    """A model of speech, of all of the golden's sound or of its beginning, which may have fewer rows than the prompt has tokens."""
    import torch
    import transformers
    golden = source / "golden.safetensors"
    name = next(n for n in ("input_values", "input_features") if f"audio1.{n}" in safetensors_header(golden)[0])
    sound, ids = tensor(golden, f"audio1.{name}"), tensor(golden, "audio1.input_ids")
    expected = tensor(golden, "audio1.logits")[0, -1]
    if longest is not None:
        sound = sound[:, :longest].copy()
        model = transformers.AutoModelForSpeechSeq2Seq.from_pretrained(source, dtype=torch.float32).eval()
        with torch.no_grad():
            given = {name: torch.from_numpy(sound), "decoder_input_ids": torch.from_numpy(ids)}
            expected = model(**given).logits[0, -1].numpy()
    bundle = convert(source, promise.folder / f"{source.name}-{'-'.join(style)}{longest}", "--dtype", "f32", *style)
    got = runtime(official.encoded_logits, bundle, "audio_encoder", ids[0].tolist(), sound)
    worst = max(abs(ours - expected).max() for ours in got)
    if not worst <= 1e-4:
        raise Wrong(f"logits differ by {worst:.2e}, at most 1e-4 expected")
    return f"max_abs {worst:.2e}"


def source_in_f32(promise, runtime, source, style):
    """An encoder-decoder of testdata: both programs, for the two texts of the golden.

    A golden whose own noise is larger than the bound is held to 3 times that noise: what transformers in f32 is from f64.
    """
    golden = source / "golden.safetensors"
    bundle = convert(source, promise.folder / f"{source.name}-source-{'-'.join(style)}", "--dtype", "f32", *style)
    worst, bound = 0.0, 1e-4
    for name in ("text0", "text1"):
        ids, sources = tensor(golden, f"{name}.input_ids"), tensor(golden, f"{name}.source_ids")
        expected = tensor(golden, f"{name}.logits")[0, -1]
        got = runtime(official.encoded_logits, bundle, "source_encoder", ids[0].tolist(), sources)
        far = max(abs(ours - expected).max() for ours in got)
        if not far <= bound:
            bound = max(bound, 3 * abs(logits_in_f64(source, sources, ids) - expected).max())
        worst = max(worst, far)
    if not worst <= bound:
        raise Wrong(f"logits differ by {worst:.2e}, at most {bound:.2e} expected")
    return f"max_abs {worst:.2e}, bound {bound:.2e}"


def logits_in_f64(source, sources, ids):
    """Of transformers, behind the last token of an answer."""
    import torch
    import transformers
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(source, dtype=torch.float64).eval()
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(sources), decoder_input_ids=torch.from_numpy(ids)).logits[0, -1].numpy()


def real_in_f32(promise, runtime, source, ids):
    """SmolLM2-135M: the bound is the noise of the original."""
    import torch
    with torch.no_grad():
        expected = common.load(source)(torch.tensor([ids])).logits[0].double().numpy()
        exact = common.load(source).double()(torch.tensor([ids])).logits[0].numpy()
    bundle = convert(source, promise.folder / "real-f32", "--dtype", "f32", "--context-length", "128")
    each, whole = runtime(official.stateful_logits, bundle, ids)
    noise = abs(expected - exact).max()
    worst = max(abs(each - exact).max(), abs(whole - exact[-1:]).max())
    if not worst <= 4 * noise:
        raise Wrong(f"{worst:.2e} from f64, transformers in f32 is {noise:.2e} from it")
    return f"{worst:.2e} from f64, transformers in f32 {noise:.2e}"


def ferry_logits(bundle, ids, folder):
    """Logits of every position by `ferry execute`, token by token."""
    script, out = folder / "script", folder / "outputs"
    script.write_text("".join(f"i:{token}@1,1 i:{at}@1\n" for at, token in enumerate(ids)))
    out.mkdir(exist_ok=True)
    program = next(bundle.glob("decoder-*.pte"))
    data = [word for path in sorted(bundle.glob("*.ptd")) for word in ("--data", path)]
    Ferry("execute", program, *data, "--script", script, "--outdir", out, "--quiet").ends_with(0)
    return numpy.stack([numpy.fromfile(out / f"run{i}_out0.bin", dtype="<f4").reshape(-1) for i in range(len(ids))])


def moved(source, target, choose, unit):
    """A copy of a checkpoint in f32 whose norm weights are each moved by one unit in the last place, up or down."""
    def move(values):
        if unit:
            return values * numpy.float32(1 + choose.choice((-unit, unit)))
        return numpy.nextafter(values, numpy.float32(choose.choice((-numpy.inf, numpy.inf))))

    folder = copy_folder(source, target)
    for path in folder.glob("*.safetensors"):
        for name, entry in safetensors_header(path)[0].items():
            if "norm" in name and name.endswith("weight") and entry["dtype"] == "F32":
                edit_tensor(path, name, move)
    return folder


def rounding(promise, runtime, source, ids, name, times):
    """Both runtimes on the same program, beside what one unit in the last place does to each."""
    options, unit = ROUNDING[name], UNITS.get(name)
    choose = random.Random(promise.seed)
    official_ones, ours = [], []
    for i in range(times + 1):
        folder = moved(source, promise.folder / "moved", choose, unit) if i else source
        bundle = convert(folder, promise.folder / "rounding", *options, "--context-length", "128", "--overwrite")
        official_ones.append(runtime(official.stateful_logits, bundle, ids)[0])
        ours.append(ferry_logits(bundle, ids, promise.folder))
        if i:
            shutil.rmtree(folder)
    rms = lambda a, b: float(numpy.sqrt(numpy.mean((a.astype("f8") - b) ** 2)))  # noqa: E731
    noise = max(rms(run[i], run[0]) for run in (official_ones, ours) for i in range(1, times + 1))
    between, size = rms(ours[0], official_ones[0]), rms(official_ones[0], 0 * official_ones[0])
    if not between <= (0.5 if unit else 3) * noise + 1e-6 * size:
        raise Wrong(f"the runtimes differ by {between:.2e} (rms), one unit in the last place moves them by {noise:.2e}")
    return f"differ by {between:.2e} (rms), noise {noise:.2e}, logits {size:.2f}"


def list_shape(golden, prompt):
    """The rows and columns of the first picture of a prompt, if it is a list of patches."""
    if f"{prompt}.spatial_shapes" in golden:
        return golden[f"{prompt}.spatial_shapes"][0].tolist()
    if f"{prompt}.image_position_ids" in golden:
        return (golden[f"{prompt}.image_position_ids"][0].max(axis=0)[::-1] + 1).tolist()
    return None


def planes_of(golden, prompt, config):
    """The planes [3,height,width] of the first picture of a prompt."""
    pixels = golden[f"{prompt}.pixel_values"]
    grids = golden.get(f"{prompt}.image_grid_thw")
    vision = config["vision_config"]
    shape = list_shape(golden, prompt)
    if shape is not None:
        (rows, columns), patch = shape, vision["patch_size"]
        patches = pixels[0, :rows * columns].reshape(rows, columns, patch, patch, 3)
        return numpy.ascontiguousarray(
            patches.transpose(4, 0, 2, 1, 3).reshape(3, rows * patch, columns * patch))
    if grids is None:
        return pixels.reshape(-1, *pixels.shape[-3:])[0]
    patch, merge, frames = vision["patch_size"], vision["spatial_merge_size"], vision["temporal_patch_size"]
    rows, columns = grids[0, 1:] // merge
    blocks = pixels.reshape(rows, columns, merge, merge, 3, frames, patch, patch)[..., 0, :, :]
    return numpy.ascontiguousarray(
        blocks.transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, rows * merge * patch, columns * merge * patch))


def name_row_marks(source, folder):
    """The ids of the tokens behind rows of a picture, which the processor in `folder` names `<ID>` afterwards; {} if there are none."""
    path = folder / "processor_config.json"
    processor = json.loads(path.read_text()) if path.exists() else {}
    if processor.get("processor_class") != "PixtralProcessor":
        return {}
    ids = {token["content"]: token["id"] for token in json.loads((source / "tokenizer.json").read_text())["added_tokens"]}
    marks = {field: ids[processor[field]] for field in ("image_break_token", "image_end_token")}
    path.write_text(json.dumps(processor | {field: f"<{id}>" for field, id in marks.items()}))
    return marks


def in_runner(promise, runtime, source, options):
    """The runners of the package answer by an unmodified bundle of one program with the tokens of transformers."""
    from safetensors.numpy import load_file
    golden = load_file(source / "golden.safetensors")
    config = json.loads((source / "config.json").read_text())
    vocab_size = config.get("text_config", config)["vocab_size"]
    # A checkpoint with a tokenizer whose texts are the ids.
    folder = promise.folder / f"{source.name}-runner"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("tokenizer*", "golden*"), dirs_exist_ok=True)
    (folder / "tokenizer.json").write_text(official.tokenizer_of_ids(vocab_size))
    marks = name_row_marks(source, folder)
    bundle = convert(folder, promise.folder / f"{source.name}-bundle", "--layout", "one-program", *options, "--overwrite")
    prompt = next(name for name in ("short", "one", "audio1") if f"{name}.input_ids" in golden)
    ids = golden[f"{prompt}.input_ids"][0].tolist()
    if f"{prompt}.pixel_values" in golden:
        placeholder = config.get("image_token_id", config.get("image_token_index"))
        first, rows = ids.index(placeholder), golden[f"{prompt}.image_features"].shape[1]
        if marks:
            rows = ids.index(marks["image_end_token"]) + 1 - first
        ids = [ids[:first], planes_of(golden, prompt, config), ids[first + rows:]]
    if f"{prompt}.audio_features" in golden:
        first, rows = ids.index(config["audio_token_id"] if "audio_token_id" in config else config["audio_token_index"]), golden[f"{prompt}.audio_features"].shape[1]
        ids = [ids[:first], golden[f"{prompt}.input_features"][:1], ids[first + rows:]]
    wanted = golden[f"{prompt}.greedy_ids"].tolist()
    ends = json.loads((bundle / "manifest.json").read_text())["model"]["eos_ids"]
    end = next((i for i, token in enumerate(wanted) if token in ends), len(wanted))
    text = runtime(official.answer, bundle, ids, len(wanted))
    got = [int(token) for token in text.replace("<", " ").replace(">", " ").split()]
    # The runner does not ask whether the first token ends the answer.
    if got != wanted[:len(got)] or len(got) < min(end + 1, len(wanted)):
        raise Wrong(f"tokens {got}, transformers has {wanted}")
    return f"{len(got)} tokens"


def main():
    promise = common.Promise(__doc__)
    runtime = official.Runtime()
    goldens = sorted(path.parent for path in (common.TESTDATA / "golden").glob("*/golden.safetensors"))
    for source in goldens:
        for style in STYLES:
            promise.case(f"{source.name}, {style}", in_f32, promise, runtime, source, style)
    for golden in sorted((common.TESTDATA / "encoder").glob("*/golden.safetensors")):
        promise.case(f"{golden.parent.name}, encoder", encoder_in_f32, promise, runtime, golden.parent)
    for name, longest in (("whisper", None), ("moonshine", None), ("moonshine", 1700)):
        for style in ([], ["--shards", "2"]):
            promise.case(f"{name}, sound {longest or 'whole'} {' '.join(style)}", sound_in_f32, promise, runtime,
                         common.TESTDATA / "speech" / name, style, longest)
    for longest in (None, 23, 9):
        for style in ([], ["--shards", "2"]):
            promise.case(f"parakeet, sound {longest or 'whole'} {' '.join(style)}", labels_in_f32, promise, runtime, style, longest)
    for golden in sorted((common.TESTDATA / "source").glob("*/golden.safetensors")):
        for style in ([], ["--shards", "2"], ["--layout", "one-program"]):
            promise.case(f"{golden.parent.name}, texts {' '.join(style)}", source_in_f32, promise, runtime, golden.parent, style)
    for name in ("smolvlm",) if promise.sample else ("smolvlm", "internvl3_hf", "internvl3_opengvlab"):
        promise.case(f"{name}, images", in_f32, promise, runtime, common.TESTDATA / "vision" / name, "stateful")
    for name in ("gemma3", "gemma3n", "gemma4", "granite_vision", "lfm2_vl", "llava_next", "llava_onevision"):
        promise.case(f"{name}, images", pictures_in_f32, promise, runtime, common.TESTDATA / "vision" / name)

    for source in [path for path in goldens if not promise.sample or path.name in ("llama", "qwen3")]:
        if "short.greedy_ids" not in safetensors_header(source / "golden.safetensors")[0]:
            continue
        promise.case(f"{source.name}, TextLLMRunner", in_runner, promise, runtime, source, ["--dtype", "f32"])
    any_shape = ["--image-size", "32x32"]
    for name, size in (("smolvlm", []), ("internvl3_hf", []), ("llava", []), ("gemma3", []), ("gemma3n", []), ("qwen2_vl", any_shape),
                       ("qwen2_5_vl", any_shape), ("qwen3_vl", any_shape), ("qwen3_vl_moe", any_shape),
                       ("qwen3_5", any_shape), ("gemma4", any_shape), ("mistral3", any_shape),
                       ("llava_pixtral", any_shape), ("lfm2_vl", ["--image-size", "24x24"])):
        promise.case(f"{name}, MultimodalRunner", in_runner, promise, runtime, common.TESTDATA / "vision" / name,
                     ["--dtype", "f32", "--inputs", "images", *size])
    promise.case("voxtral, MultimodalRunner", in_runner, promise, runtime, common.TESTDATA / "speech" / "voxtral", ["--dtype", "f32"])
    for name in ("gemma3n", "gemma4", "granite", "granite_plus"):
        promise.case(f"{name} with sound, MultimodalRunner", in_runner, promise, runtime, common.TESTDATA / "speech" / name,
                     ["--dtype", "f32", "--inputs", "sounds", "--max-sound", "4"])

    tiny = promise.folder / "tiny"
    common.tiny_llama(tiny, promise.seed, hidden_size=64, intermediate_size=128, num_hidden_layers=4, head_dim=16)
    ids = [(17 * i + 5) % 96 for i in range(24)]
    for name in ROUNDING:
        promise.case(f"random llama, {name}", rounding, promise, runtime, tiny, ids, name, 4 if promise.sample else 8)

    import smollm2
    source = smollm2.folder()
    ids = smollm2.prompts(smollm2.tokenizer())["plain"]
    promise.case("real model, f32", real_in_f32, promise, runtime, pathlib.Path(source), ids)
    for name in ("8da4w",) if promise.sample else ("8da4w", "8da8w", "bf16"):
        promise.case(f"real model, {name}", rounding, promise, runtime, source, ids, name, 1 if promise.sample else 4)
    runtime.close()
    promise.finish()


if __name__ == "__main__":
    main()
