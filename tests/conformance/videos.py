"""Videos, as folders of frames, become what transformers' video processors make of them, and models that take them are right.

A case draws frames and settings of a video processor, and compares the tensors that `ferry preprocess --video` writes with those of
the processor, byte for byte; what the processor refuses is refused. Another case draws a model; `python -m ferry.reference` makes its
reference, `ferry verify` proves every stage, and `ferry run --video` gives its tokens. Beside the videos there may be pictures, but not with
SmolVLM and InternVL, whose frames are pixel_values too.

    python3 tests/conformance/videos.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import json
import random

import common
import make_gemma4_sound_golden as gemma4_sounds
import make_vision_golden as golden  # it imports torch and transformers
import PIL.Image
import pictures
import qwen_models
import safetensors.torch
import torch
import transformers
import transformers.models.smolvlm.processing_smolvlm as smolvlm_processing
from common import Wrong
from ferry._reference import prompts as reference_prompts
from transformers.video_utils import VideoMetadata

VIDEO = {"type": "video"}
QWEN_TEMPLATE = golden.QWEN_TEMPLATE.replace(
    "{% else %}{{ c.text }}", "{% elif c.type == 'video' %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}{% else %}{{ c.text }}")
PLAIN_TEMPLATE = ("{% for m in messages %}{{ m.role + ': ' }}{% for c in m.content %}{% if c.type == 'image' %}{{ IMAGE }}{% elif c.type == "
                  "'video' %}{{ '<video>' }}{% else %}{{ c.text }}{% endif %}{% endfor %}{{ '\n' }}{% endfor %}")
GEMMA_TEMPLATE = "{{ bos_token }}" + (PLAIN_TEMPLATE.replace("IMAGE", "'<|image|>'").replace("<video>", "<|video|>"))
SMALL = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
         "nineteen").split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def num2words(number):
    """Numbers below 100, as the package of this name writes them, which the environment lacks."""
    tens = "" if number < 20 else TENS[number // 10 - 2]
    return tens if tens and number % 10 == 0 else f"{tens}{'-' if tens else ''}{SMALL[number % 10 if tens else number]}"


smolvlm_processing.num2words = num2words


def draw(r, folder, most=1100, counts=(1, 40), ratios=(1, 1.1, 1.7, 3, 9, 150, 250)):
    """A folder of frames of one size, and how many a second has."""
    longer, ratio = r.randint(1, r.choice([40, 300, most])), r.choice(ratios)
    size = (longer, max(1, int(longer / ratio)))
    size = size if r.random() < 0.5 else size[::-1]
    noise = torch.Generator().manual_seed(r.randrange(1 << 30))
    least, frames = counts
    count = min(frames, r.choice([least, least + 1, r.randint(least, frames)]))
    kind, digits = r.choice(["png", "jpg", "bmp"]), r.choice([1, 5])
    folder.mkdir()
    for number in range(count):
        coarse = torch.randint(0, 256, (5, 4, 3), dtype=torch.uint8, generator=noise).numpy()
        picture = PIL.Image.fromarray(coarse).resize(size, PIL.Image.Resampling.BICUBIC)
        picture.save(folder / f"frame {number + 1:0{digits}}.{kind}")
    return folder, r.choice([1, 2, 2.5, 24, 29.97, 30, 0.1])


def sampling(r):
    """How frames are sampled."""
    if r.random() < 0.5:
        return dict(do_sample_frames=r.random() < 0.3, fps=r.choice([None, 2]))
    return dict(do_sample_frames=True, **r.choice([dict(fps=r.choice([0.3, 1, 2, 7])), dict(num_frames=r.choice([1, 3, 8, 50]))]))


def qwen(name, r):
    kind = qwen_models.PROCESSORS[name]
    least = r.choice([1, 56 * 56, 100 * 100])
    settings = dict(patch_size=r.choice([4, 14, 16]), merge_size=r.choice([1, 2, 3]), temporal_patch_size=r.choice([1, 2, 3]),
                    resample=r.choice([1, 2, 3]), image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)])
    pixels = dict(shortest_edge=least, longest_edge=least * r.choice([1, 2, 30]))
    made = golden.qwen(kind, size=pixels, **settings)
    videos = getattr(transformers, "Qwen3VLVideoProcessor" if "Qwen3" in kind else "Qwen2VLVideoProcessor")
    if "Qwen3" in kind:
        pixels["longest_edge"] *= r.choice([1, 10, 100])
    caps = dict(cap_pixels_per_frame=r.choice([True, False]), max_video_tokens=r.choice([4, 64, 768])) if r.random() < 0.4 else {}
    made.video_processor = videos(size=pixels, min_frames=r.choice([1, 4]), max_frames=r.choice([6, 768]), **settings, **sampling(r), **caps)
    made.chat_template = QWEN_TEMPLATE
    return made


def smolvlm(r):
    side = r.choice([16, 32, 64])
    special = ["<pad>", "<|im_start|>", "<end_of_utterance>", "<image>", "<fake_token_around_image>", "<global-img>"]
    words = golden.byte_tokenizer(special, eos_token="<end_of_utterance>", pad_token="<pad>")
    settings = dict(resample=r.choice([1, 2, 3]), image_mean=[r.choice([0.5, 0.4]) for _ in range(3)], max_image_size=dict(longest_edge=side),
                    size=dict(longest_edge=r.choice([side, 4 * side, 100])))
    sampled = r.random() < 0.6
    one = {} if sampled else r.choice([{}, {}, dict(fps=1), dict(num_frames=2), dict(fps=2, num_frames=3)])
    videos = transformers.SmolVLMVideoProcessor(
        **settings, **one, **(dict(video_sampling=dict(fps=r.choice([1, 2]), max_frames=r.choice([3, 64]), video_size=dict(longest_edge=77)))
                       if sampled else {}))
    made = transformers.SmolVLMProcessor(transformers.SmolVLMImageProcessor(**settings), words, videos, image_seq_len=r.choice([1, 4, 9]))
    made.chat_template = PLAIN_TEMPLATE.replace("IMAGE", "'<image>'")
    return made


def internvl(r):
    side = r.choice([16, 28, 64])
    special = ["<pad>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"]
    words = golden.byte_tokenizer(special, eos_token="<|im_end|>", pad_token="<pad>", start_image_token="<img>", end_image_token="</img>",
                                  context_image_token="<IMG_CONTEXT>", video_token="<video>")
    settings = dict(size=dict(height=side, width=side), resample=r.choice([1, 2, 3]), image_mean=[r.choice([0.5, 0.4]) for _ in range(3)])
    how = sampling(r)
    if how["do_sample_frames"]:
        how["initial_shift"] = r.choice([True, False, 0, 1, 1.5])
    made = transformers.InternVLProcessor(transformers.GotOcr2ImageProcessor(**settings), words,
                                          transformers.InternVLVideoProcessor(**settings, **how), image_seq_length=r.choice([1, 4, 16]))
    made.chat_template = PLAIN_TEMPLATE.replace("IMAGE", "'<IMG_CONTEXT>'")
    return made


def even_sampling(r):
    """Settings of the classes that sample as the base class does, most of which it does not refuse."""
    how = r.choice([dict(do_sample_frames=False), dict(num_frames=1), dict(num_frames=r.choice([2, 3, 8, 32])), {}, dict(num_frames=None),
                    dict(num_frames=None, fps=r.choice([0.3, 1, 2, 7])), dict(num_frames=2, fps=2)])
    return how if "do_sample_frames" in how else dict(how, do_sample_frames=True)


def gemma4_videos(r, patch, pool, tokens):
    normal = r.random() < 0.5
    return transformers.Gemma4VideoProcessor(
        patch_size=patch, pooling_kernel_size=pool, max_soft_tokens=tokens, resample=r.choice([1, 2, 3]), do_normalize=normal,
        **(dict(image_mean=[0.5, 0.4, 0.485], image_std=[0.5, 0.3, 0.25]) if normal and r.random() < 0.5 else {}), **even_sampling(r))


def gemma4(r):
    patch, pool = r.choice([2, 4, 8, 16]), r.choice([1, 2, 3])
    made = golden.gemma4_processor(GEMMA_TEMPLATE, patch_size=patch, pooling_kernel_size=pool)
    made.video_processor = gemma4_videos(r, r.choice([patch, 3]), pool, r.choice([70, 70, 140]))
    return made


def llava_onevision(r):
    made, _, _ = pictures.llava_onevision(r)
    side = r.choice([8, 33, 56, 384])
    made.video_processor = transformers.LlavaOnevisionVideoProcessor(
        size=dict(height=side, width=side), resample=r.choice([1, 2, 3]), image_mean=[r.choice([0.5, 0.4]) for _ in range(3)],
        **even_sampling(r))
    made.chat_template = PLAIN_TEMPLATE.replace("IMAGE", "'<image>'")
    return made


PROCESSORS = dict(**{name: lambda r, name=name: qwen(name, r) for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")},
                  smolvlm=smolvlm, internvl=internvl, gemma4=gemma4, llava_onevision=llava_onevision)


def family_of_tiles(family):
    """Whether frames are pixel_values, as images are."""
    return family in ("smolvlm", "internvl")


def family_samples(processor):
    """Whether apply_chat_template() of SmolVLM asks for sampling."""
    made = processor.video_processor
    return isinstance(processor, transformers.SmolVLMProcessor) and (getattr(made, "fps", None) or getattr(made, "num_frames", None))


def processed(processor, drawn, pictures):
    """What the processor makes of folders of frames; as its apply_chat_template() does for a chat with them."""
    videos = [reference_prompts.video(reference_prompts.Prompt("a case", ""), folder, fps) for folder, fps in drawn]
    chat = [dict(role="user", content=[golden.text("a "), *[golden.IMAGE] * len(pictures), *[VIDEO] * len(videos), golden.text(" b")])]
    words = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    given = dict(images=[pictures]) if pictures else {}
    if family_samples(processor):
        given["do_sample_frames"] = True
    return chat, processor(text=[words], videos=[frames for frames, _ in videos], return_tensors="pt", add_special_tokens=False,
                           video_metadata=[metadata for _, metadata in videos], **given)


def frames(promise, family, number):
    """What ferry makes of frames is what the processor makes, byte for byte; what it refuses is refused."""
    r = random.Random(f"{promise.seed} {family} {number}")
    folder = promise.folder / f"{family}-{number}"
    folder.mkdir()
    processor = PROCESSORS[family](r)
    processor.save_pretrained(folder)
    fps = None
    drawn = []
    for video in range(1 if family_of_tiles(family) else r.choice([1, 1, 2])):
        path, own = draw(r, folder / f"video{video}")
        fps = fps or own
        drawn.append((path, fps))
    pictures, paths = [], []
    if not family_of_tiles(family) and r.random() < 0.3:
        paths = [golden.IMAGES / "small.bmp"]
        pictures = [PIL.Image.open(paths[0]).convert("RGB")]
    chat = [dict(role="user", content=[golden.text("a "), *[golden.IMAGE] * len(paths), *[VIDEO] * len(drawn), golden.text(" b")])]
    (folder / "chat.json").write_text(json.dumps(dict(messages=chat, add_generation_prompt=True)))
    words = [word for path, _ in drawn for word in ("--video", path)]
    run = common.Ferry("preprocess", *paths, *words, "--video-fps", fps, "--checkpoint", folder, "--messages", folder / "chat.json", "-o",
                       folder / "made.safetensors")
    try:
        _, wanted = processed(processor, drawn, pictures)
    except Exception as error:  # whatever transformers throws
        if run.code != 3:
            raise Wrong(f"exits {run.code}, where the reference says {type(error).__name__}: {error}")
        return f"refused: {run.why[-80:]}; the reference: {type(error).__name__}"
    run.ends_with(0)
    made = safetensors.torch.load_file(folder / "made.safetensors")
    wanted = {name: torch.as_tensor(value) for name, value in wanted.items()}
    for name in sorted((set(wanted) | set(made)) - {"attention_mask"}):
        if name not in made or name not in wanted:
            raise Wrong(f"{name}: only one of the two has it")
        if made[name].shape != wanted[name].shape:
            raise Wrong(f"{name}: {list(made[name].shape)}, the reference {list(wanted[name].shape)}")
        if not torch.equal(made[name], wanted[name].to(made[name].dtype)):
            raise Wrong(f"{name}: differs by {float((made[name].double() - wanted[name].double()).abs().max()):.3g} at most")
    values = made.get("pixel_values_videos", made.get("pixel_values"))
    return f"{[len(list(path.iterdir())) for path, _ in drawn]} frames: {list(values.shape)}, {made['input_ids'].shape[1]} ids"


def qwen_model(family, r):
    cls, config, processor = qwen_models.model(family, r)
    if family == "qwen2_5_vl":
        config["vision_config"]["tokens_per_second"] = r.choice([1, 2, 4, 25])
    config["text_config"]["max_position_embeddings"] = 1024
    processor.chat_template = QWEN_TEMPLATE
    pixels = processor.image_processor
    block = (pixels.patch_size * pixels.merge_size) ** 2
    more = dict(fps=r.choice([1, 2, 5])) if family.startswith("qwen3") else {}
    scale = 8 if family.startswith("qwen3") else 1
    processor.video_processor = type(processor.video_processor)(
        patch_size=pixels.patch_size, merge_size=pixels.merge_size, temporal_patch_size=pixels.temporal_patch_size, **more,
        size=dict(shortest_edge=block * r.choice([1, 4]), longest_edge=scale * block * r.choice([6, 17])))
    return cls, config, processor, pixels.temporal_patch_size


def tile_text(kind, **more):
    return golden.text_sizes(model_type=kind, hidden_size=32, intermediate_size=40, max_position_embeddings=2048, **more)


def smolvlm_model(r):
    processor = smolvlm(r)
    side, patch, scale = 16, r.choice([2, 4]), r.choice([1, 2])
    for made in (processor.image_processor, processor.video_processor):
        made.max_image_size = dict(longest_edge=side)
    made = processor.video_processor
    if bool(getattr(made, "fps", None)) != bool(getattr(made, "num_frames", None)):  # of which the reference fails with one
        made.fps, made.num_frames = 1, 3
    processor.image_seq_len = (side // patch // scale) ** 2
    tower = dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3, image_size=side, patch_size=patch)
    config = dict(text_config=tile_text("llama"), vision_config=tower, image_token_id=3, scale_factor=scale, pad_token_id=0)
    return transformers.SmolVLMForConditionalGeneration, config, processor, 1


def internvl_model(r):
    processor = internvl(r)
    side, patch = 16, r.choice([2, 4])
    for made in (processor.image_processor, processor.video_processor):
        made.size = dict(height=side, width=side)
    processor.video_processor.do_sample_frames = False
    processor.image_seq_length = (side // patch // 2) ** 2
    tower = dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3, image_size=[side, side], patch_size=[patch, patch])
    config = dict(text_config=tile_text("qwen2"), vision_config=tower, image_token_id=4, image_seq_length=processor.image_seq_length,
                  downsample_ratio=0.5)
    return transformers.InternVLForConditionalGeneration, config, processor, 1


def gemma4_model(r):
    cls, config, processor = pictures.gemma4_model(r)
    pixels = processor.image_processor
    patch, pool, most = pixels.patch_size, pixels.pooling_kernel_size, r.choice([70, 140])
    config["vision_config"]["position_embedding_size"] = 140 * pool
    config["text_config"]["max_position_embeddings"] = 2048
    processor = golden.gemma4_processor(GEMMA_TEMPLATE, patch_size=patch, pooling_kernel_size=pool, max_soft_tokens=most)
    processor.video_processor = gemma4_videos(r, patch, pool, r.choice([70, 140]))
    processor.video_processor.num_frames, processor.video_processor.fps = r.choice([(1, None), (None, 0.05), (None, None)])
    return cls, config, processor, 1


def llava_onevision_model(r):
    cls, config, processor = pictures.llava_onevision_model(r)
    config["video_token_index"] = processor.video_token_id
    config["text_config"]["max_position_embeddings"] = 1024
    side = config["vision_config"]["image_size"]
    processor.video_processor = transformers.LlavaOnevisionVideoProcessor(size=dict(height=side, width=side))
    processor.chat_template = PLAIN_TEMPLATE.replace("IMAGE", "'<image>'")
    return cls, config, processor, 1


MODELS = dict(smolvlm=smolvlm_model, internvl=internvl_model, gemma4=gemma4_model, llava_onevision=llava_onevision_model,
              **{name: lambda r, name=name: qwen_model(name, r) for name in qwen_models.PROCESSORS})


def model(promise, family, number):
    """A random model of the family: all stages of prompts with videos, and the tokens of its answers."""
    r = random.Random(f"{promise.seed} {family} model {number}")
    folder = promise.folder / f"{family}-model-{number}"
    folder.mkdir()
    cls, config, processor, group = MODELS[family](r)
    processor.save_pretrained(folder)
    golden.models.build(cls, config, number).save_pretrained(folder)
    rows, fps = [], None
    counts = (group, 9) if family != "llava_onevision" else (3, 3)  # whose videos have equal numbers of frames
    for name in ("one", "two")[:2 if not family_of_tiles(family) and r.random() < 0.5 else 1]:
        path, own = draw(r, folder / name, most=100, counts=counts, ratios=(1, 1.3, 3, 9))
        fps = fps or own
        rows.append(str(path))
    question = "What happens?"
    beside = family.startswith("qwen") or family in ("gemma4", "llava_onevision")
    pictures = [golden.IMAGES / name for name in r.choice([["tiny.png"], ["tiny.png", "noise.png"]])] if beside and r.random() < 0.5 else []
    line = dict(name="all", text=question, images=[str(path) for path in pictures], videos=[dict(frames=path, fps=fps) for path in rows])
    (folder / "prompts.jsonl").write_text(json.dumps(line) + "\n")
    if golden.reference.main([str(folder), "-o", str(folder / "golden.safetensors"), "--prompts", str(folder / "prompts.jsonl"), "--max-new", "6",
                              "--no-f64", "-q"]):
        raise Wrong("there is no reference")
    # The rows of a frame of Gemma 4 are tokens of one call where they attend to each other.
    style = r.choice([[], ["--prefill-length", "150" if family == "gemma4" else "7"], ["--shards", "1"]])
    inputs = ["--inputs", "images"] if family.startswith(("qwen", "gemma4")) else []
    common.convert(folder, folder / "bundle", "--dtype", "f32", *inputs, *style)
    made = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", folder / "golden.safetensors")
    if made.code:
        raise Wrong(f"verify exits {made.code}: {made.why if made.code > 1 else common.first_difference(made.result)}")
    stages = {layer["name"] for layer in made.result["layers"]}
    skipped = [case["skipped"] for case in made.result["cases"] if case.get("skipped")]
    # The last state of the tower of LLaVA-OneVision is behind layers that are not built.
    last = set() if family == "llava_onevision" else {"vision_last_hidden_state"}
    if skipped or not last | {"vision_hidden_states.0", "image_features", "hidden_states.0"} <= stages:
        raise Wrong(f"not every stage is compared: {skipped or sorted(stages)}")
    wanted = safetensors.torch.load_file(folder / "golden.safetensors")
    words = [word for path in rows for word in ("--video", path)] + [word for path in pictures for word in ("--image", path)]
    run = common.Ferry("run", folder / "bundle", *words, "--video-fps", fps, "--chat", question, "--max-new", "6", "--ignore-eos",
                       "--greedy", "--json").ends_with(0)
    if run.result["prompt_tokens"] != wanted["all.input_ids"][0].tolist():
        raise Wrong(f"the prompt is {run.result['prompt_tokens']}, the reference's {wanted['all.input_ids'][0].tolist()}")
    if "all.greedy_ids" not in wanted:
        return "the reference gives a placeholder"
    tokens = wanted["all.greedy_ids"].tolist()
    margins = wanted["all.greedy_logits"].topk(2).values
    clear = float((margins[:, 0] - margins[:, 1]).min()) > 1e-3
    if clear and run.result["tokens"][:len(tokens)] != tokens:
        raise Wrong(f"run gives {run.result['tokens']}, the reference {tokens}")
    return f"{len(rows)} video{'s' if len(rows) > 1 else ''}{f' and {len(pictures)} pictures' if pictures else ''}, {wanted['all.input_ids'].shape[1]} ids{'' if clear else ', tokens near to each other'}"


def beside_sounds(promise, number):
    """A Gemma 4 with a video, a picture and two sounds of different lengths in one chat: all stages, and the tokens of its answer."""
    r = random.Random(f"{promise.seed} gemma4 sounds {number}")
    folder = promise.folder / f"gemma4-sounds-{number}"
    folder.mkdir()
    gemma4_sounds.make_model(folder, number, gemma4_sounds.config_of(sees=True), torch.float32, max_new_tokens=6)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    pixels = processor.image_processor
    processor.video_processor = transformers.Gemma4VideoProcessor(patch_size=pixels.patch_size, pooling_kernel_size=pixels.pooling_kernel_size, num_frames=2)
    processor.chat_template = processor.chat_template.replace("{% elif c.type == 'audio'", "{% elif c.type == 'video' %}{{ '<|video|>' }}{% elif c.type == 'audio'")
    processor.save_pretrained(folder)
    frames, fps = draw(r, folder / "frames", most=60, counts=(2, 5), ratios=(1, 1.3))
    content = [dict(type=kind) for kind in ("audio", "image", "video", "audio")] + [dict(type="text", text="What?")]
    r.shuffle(content)
    chat = [dict(role="user", content=content)]
    sounds = [str(golden.ROOT / "testdata/sound" / name) for name in r.sample(["mono_8.wav", "mono_16.wav", "stereo_24.wav"], 2)]
    picture = str(golden.IMAGES / "tiny.png")
    (folder / "chat.json").write_text(json.dumps(chat))
    line = dict(name="all", audios=sounds, videos=[dict(frames=str(frames), fps=fps)], images=[picture], messages=chat)
    (folder / "prompts.jsonl").write_text(json.dumps(line) + "\n")
    if golden.reference.main([str(folder), "-o", str(folder / "golden.safetensors"), "--prompts", str(folder / "prompts.jsonl"), "--max-new", "6", "-q"]):
        raise Wrong("there is no reference")
    common.convert(folder, folder / "bundle", "--dtype", "f32")
    made = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", folder / "golden.safetensors")
    if made.code or not {"image_features", "audio_features"} <= {layer["name"] for layer in made.result["layers"]}:
        raise Wrong(f"verify exits {made.code}: {made.why if made.code > 1 else common.first_difference(made.result)}")
    words = ["--video", frames, "--video-fps", fps, "--image", picture] + [word for path in sounds for word in ("--audio", path)]
    run = common.Ferry("run", folder / "bundle", *words, "--messages", folder / "chat.json", "--max-new", "6", "--ignore-eos", "--greedy", "--json").ends_with(0)
    wanted = safetensors.torch.load_file(folder / "golden.safetensors")
    if run.result["prompt_tokens"] != wanted["all.input_ids"][0].tolist():
        raise Wrong("the prompt is another than the reference's")
    tokens = wanted["all.greedy_ids"].tolist() if "all.greedy_ids" in wanted else []
    if run.result["tokens"][:len(tokens)] != tokens:
        raise Wrong(f"run gives {run.result['tokens']}, the reference {tokens}")
    return f"{wanted['all.input_ids'].shape[1]} ids, {len(tokens)} tokens"


def main():
    promise = common.Promise(__doc__)
    for family in PROCESSORS:
        for number in range(4 if promise.sample else 20):
            promise.case(f"{family}, frames {number}", frames, promise, family, number)
    for family in MODELS:
        for number in range(2 if promise.sample else 10):
            promise.case(f"{family}, model {number}", model, promise, family, number)
    for number in range(1 if promise.sample else 4):
        promise.case(f"gemma4, beside sounds {number}", beside_sounds, promise, number)
    promise.finish()


if __name__ == "__main__":
    main()
