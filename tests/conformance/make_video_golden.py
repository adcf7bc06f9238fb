"""Makes testdata/video: frames of a video, and what transformers' video processors and models make of them.

    python tests/conformance/make_video_golden.py

frames/*.png are the frames. rules.json has which frames are taken of videos, and their sizes, for settings of the processors; texts.json what
processors make of a chat with the frames. NAME/ has the processor files for the checkpoint testdata/vision/NAME, and in
golden.safetensors what `python -m ferry.reference` records of a prompt with one or two videos. A second run writes the same.
"""
import hashlib
import json
import pathlib
import shutil
import tempfile

import make_vision_golden as golden  # it imports torch and transformers
import numpy
import PIL.Image
import safetensors.torch
import torch
import transformers
import videos
from ferry import reference
from transformers.video_utils import VideoMetadata

FOLDER = golden.ROOT / "testdata" / "video"
COUNT, SIZE, FPS = 5, (30, 18), 2.5
QUESTION = "What happens?"
MARGIN = 0.01
MODELS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "gemma4", "llava_onevision")
# Tensors of a model that the others have too.
FEW = ("input_ids", "mm_token_type_ids", "pixel_values_videos", "video_grid_thw", "video_position_ids", "num_frames_per_video",
       "pixel_values", "image_grid_thw", "image_position_ids", "image_sizes", "second_per_grid_ts",
       "vision_last_hidden_state", "image_features", "logits", "greedy_ids")


def draw():
    """Frames in which a bright square moves over a slope, named so that numbers must be compared as numbers."""
    folder = FOLDER / "frames"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number in range(COUNT):
        y, x = numpy.mgrid[0:SIZE[1], 0:SIZE[0]]
        frame = numpy.stack([x * 8, y * 13, (x + y) * 3 + 20 * number], axis=-1).astype("uint8")
        frame[4:10, 5 * number:5 * number + 6] = [250, 240, 10 * number]
        PIL.Image.fromarray(frame).save(folder / f"{number + 8}.png", optimize=True)


def taken(processor, total, fps):
    """The frames that a processor takes; null where it fails."""
    metadata = VideoMetadata(total_num_frames=total, fps=fps, duration=total / fps)
    given = {name: getattr(processor, name, None) for name in processor.valid_kwargs.__annotations__}
    try:
        indices = processor.sample_frames(metadata=metadata, **given)
        frames = numpy.zeros((total, 1))[indices]
        return [int(i) for i in indices] if frames.ndim == 2 else None
    except Exception:  # whatever it throws
        return None


def rules():
    cases = []
    for name, settings in [
            ("Qwen2VLVideoProcessor", dict(fps=2)), ("Qwen2VLVideoProcessor", dict(num_frames=7)), ("Qwen2VLVideoProcessor", {}),
            ("Qwen2VLVideoProcessor", dict(fps=3, max_frames=10, min_frames=2)), ("Qwen3VLVideoProcessor", {}),
            ("Qwen3VLVideoProcessor", dict(fps=0.7, max_frames=9)), ("Qwen3VLVideoProcessor", dict(num_frames=3)),
            ("SmolVLMVideoProcessor", dict(video_sampling=dict(fps=1, max_frames=6, video_size=dict(longest_edge=64)))),
            ("SmolVLMVideoProcessor", dict(fps=2, num_frames=3)), ("InternVLVideoProcessor", dict(num_frames=4)),
            ("InternVLVideoProcessor", dict(fps=1, initial_shift=False)), ("InternVLVideoProcessor", dict(num_frames=3, initial_shift=1.5)),
            ("Gemma4VideoProcessor", {}), ("Gemma4VideoProcessor", dict(num_frames=None, fps=0.7)), ("LlavaOnevisionVideoProcessor", {}),
            ("LlavaOnevisionVideoProcessor", dict(num_frames=3))]:
        processor = getattr(transformers, name)(do_sample_frames=True, **json.loads(json.dumps(settings)))
        for total, fps in [(1, 24), (2, 2), (5, 2.5), (17, 3), (100, 29.97), (391, 30), (3000, 23.976)]:
            cases.append(dict(settings=dict(settings, video_processor_type=name, do_sample_frames=True), total=total, fps=fps,
                              frames=taken(processor, total, fps)))
    sizes = []
    for name, settings in [("Qwen2VLVideoProcessor", {}), ("Qwen2VLVideoProcessor", dict(cap_pixels_per_frame=True, max_video_tokens=900)),
                           ("Qwen3VLVideoProcessor", {}), ("Qwen3VLVideoProcessor", dict(cap_pixels_per_frame=True, max_video_tokens=200))]:
        processor = getattr(transformers, name)(**settings)
        for frames, width, height in [(2, 640, 360), (3, 27, 31), (5, 1, 150), (16, 1920, 1080), (33, 500, 2), (200, 64, 64), (1, 300, 200)]:
            side = processor.patch_size * processor.merge_size
            try:
                made = processor.resize(torch.zeros(1, frames, 1, height, width, dtype=torch.uint8), size=processor.size, resample=2, factor=side,
                                        temporal_factor=2, cap_pixels_per_frame=settings.get("cap_pixels_per_frame", False))
                size = [made.shape[-1], made.shape[-2]]
            except ValueError:
                size = None
            sizes.append(dict(settings=dict(settings, video_processor_type=name), frames=frames, width=width, height=height, size=size))
    (FOLDER / "rules.json").write_text(json.dumps(dict(taken=cases, sizes=sizes)) + "\n")


def small(name):
    """The processor of a family, whose videos have few rows."""
    processor = golden.FAMILIES[name]()[2]
    if name == "gemma4":
        processor.chat_template = videos.GEMMA_TEMPLATE
        processor.video_processor = transformers.Gemma4VideoProcessor(patch_size=2, pooling_kernel_size=2, num_frames=2)
        return processor
    if name == "llava_onevision":
        processor.chat_template = videos.PLAIN_TEMPLATE.replace("IMAGE", "'<image>'")
        processor.video_processor = transformers.LlavaOnevisionVideoProcessor(size=dict(height=20, width=20))
        return processor
    kind = type(processor.video_processor)
    most = 4000 if kind is transformers.Qwen3VLVideoProcessor else 600
    processor.video_processor = kind(patch_size=4, merge_size=2, temporal_patch_size=2, size=dict(shortest_edge=256, longest_edge=most))
    processor.chat_template = videos.QWEN_TEMPLATE
    return processor


def tiles(kind, images, movies, special, template, **names):
    words = golden.byte_tokenizer(special, pad_token="<pad>", **names)
    made = kind(images, words, movies, **(dict(image_seq_len=4) if kind is transformers.SmolVLMProcessor else dict(image_seq_length=4)))
    made.chat_template = template
    return made


def texts():
    """What processors make of a chat with the frames: ids, and digests of tensors."""
    settings = dict(max_image_size=dict(longest_edge=16), size=dict(longest_edge=40))
    square = dict(size=dict(height=16, width=16))
    made = dict(
        {name: small(name) for name in MODELS},
        smolvlm=tiles(transformers.SmolVLMProcessor, transformers.SmolVLMImageProcessor(**settings),
                      transformers.SmolVLMVideoProcessor(**settings, fps=1, num_frames=64),
                      ["<pad>", "<|im_start|>", "<end_of_utterance>", "<image>", "<fake_token_around_image>", "<global-img>"],
                      videos.PLAIN_TEMPLATE.replace("IMAGE", "'<image>'")),
        internvl=tiles(transformers.InternVLProcessor, transformers.GotOcr2ImageProcessor(**square), transformers.InternVLVideoProcessor(**square),
                       ["<pad>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"], videos.PLAIN_TEMPLATE.replace("IMAGE", "'<IMG_CONTEXT>'"),
                       start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>"))
    cases = {}
    for name, processor in made.items():
        folder = FOLDER / "processors" / name
        processor.save_pretrained(folder)
        chat, tensors = videos.processed(processor, [(FOLDER / "frames", FPS)], [])
        tensors = {key: torch.as_tensor(value).contiguous() for key, value in tensors.items() if key != "attention_mask"}
        cases[name] = dict(chat=chat, ids=tensors.pop("input_ids")[0].tolist(), tensors={
            key: dict(shape=list(value.shape), sha256=hashlib.sha256(value.numpy().tobytes()).hexdigest()) for key, value in tensors.items()})
    (FOLDER / "texts.json").write_text(json.dumps(dict(fps=FPS, cases=cases)) + "\n")


def model(name, beside=()):
    """Records a prompt with videos, and with images beside them."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / name
        shutil.copytree(golden.ROOT / "testdata" / "vision" / name, folder)
        small(name).save_pretrained(folder)
        frames = str(FOLDER / "frames")
        line = dict(name="all", text=QUESTION, videos=[dict(frames=frames, fps=FPS)] * (2 if name == "qwen2_vl" else 1),
                    images=[str(golden.IMAGES / image) for image in beside])
        (folder / "prompts.jsonl").write_text(json.dumps(line) + "\n")
        out = folder / "made.safetensors"
        if reference.main([str(folder), "-o", str(out), "--prompts", str(folder / "prompts.jsonl"), "--max-new", "8", "--no-f64", "-q"]):
            raise SystemExit("make_video_golden.py: there is no reference")
        tensors = safetensors.torch.load_file(out)
    top = tensors["all.greedy_logits"].topk(2).values
    print(f"{name}: {list(tensors['all.pixel_values_videos'].shape)}, {tensors['all.input_ids'].shape[1]} ids, margins of "
          f"{float((top[:, 0] - top[:, 1]).min()):.4f}")
    (FOLDER / name).mkdir(exist_ok=True)
    few = name in ("qwen2_vl", "gemma4") or beside
    kept = {key: value for key, value in tensors.items() if not few or key.split(".", 1)[1] in FEW}
    safetensors.torch.save_file(kept, FOLDER / name / ("images.safetensors" if beside else "golden.safetensors"))


def main():
    draw()
    rules()
    texts()
    for name in MODELS:
        model(name)
    for name in ("qwen2_5_vl", "gemma4", "llava_onevision"):
        model(name, ["tiny.png"])
    for path in FOLDER.rglob("*"):
        if path.is_file():
            path.chmod(0o644)


if __name__ == "__main__":
    main()
