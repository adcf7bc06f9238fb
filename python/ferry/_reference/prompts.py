"""Prompts: read from a file, or built in; each becomes token ids, and with images what a processor makes of them."""
import dataclasses
import json
import pathlib
import re

from .errors import BAD_INPUT, IO, UNSUPPORTED, USAGE, Refused, one_line

TEXTS = {
    "prose": "The theory of relativity states that the speed of light in vacuum is the same for all observers, and therefore",
    "code": "import numpy as np\n\ndef softmax(x):\n    e = np.exp(x - x.max())\n    return",
}
CHAT = "Write a short poem about the sea, and explain why ships float."
QUESTION = "What is in this picture?"
KEYS = ("name", "source", "text", "pair", "tokens", "types", "messages", "image", "images", "video", "videos", "audio", "audios")
MOST_BYTES = 64 << 20
# What a processor makes that a model takes.
TENSORS = ("input_ids", "pixel_values", "pixel_attention_mask", "spatial_shapes", "image_position_ids", "image_grid_thw", "image_sizes", "batch_num_images",
           "token_type_ids", "mm_token_type_ids", "pixel_values_videos", "video_grid_thw", "second_per_grid_ts", "video_position_ids",
           "num_frames_per_video")


@dataclasses.dataclass
class Prompt:
    """One of text, tokens and messages is set; `where` is what an error names."""
    name: str
    where: str
    text: str | None = None
    tokens: list | None = None
    messages: list | None = None
    pair: str | None = None
    types: list | None = None
    images: list = dataclasses.field(default_factory=list)
    videos: list = dataclasses.field(default_factory=list)  # folders of frames, and how many of them a second has
    audio: str | None = None  # the first of audios
    audios: list = dataclasses.field(default_factory=list)
    source: list | None = None


def read(path):
    """The prompts of a file: a text in each line, or a JSON object in each line if the first one begins with '{'."""
    try:
        data = pathlib.Path(path).read_bytes()[:MOST_BYTES + 1]
    except OSError as error:
        raise Refused(IO, f"{path}: {error.strerror}")
    if len(data) > MOST_BYTES:
        raise Refused(BAD_INPUT, f"{path}: has more than {MOST_BYTES >> 20} MiB")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise Refused(BAD_INPUT, f"{path}: offset {error.start}: is not UTF-8")
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise Refused(BAD_INPUT, f"{path}: there is no prompt")
    as_json = rows[0][1].lstrip().startswith("{")
    made = [from_json(path, number, line) if as_json else Prompt(f"line{number}", f"{path}: line {number}", text=line)
            for number, line in rows]
    names = {}
    for prompt in made:
        if prompt.name in names:
            raise Refused(BAD_INPUT, f"{prompt.where}: the name {prompt.name!r} is that of {names[prompt.name]} too")
        names[prompt.name] = prompt.where
    return made


def from_json(path, number, line):
    where = f"{path}: line {number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise Refused(BAD_INPUT, f"{where}: is not JSON: {error}")
    if not isinstance(row, dict):
        raise Refused(BAD_INPUT, f"{where}: expected an object with one of text, tokens, messages")
    for key in row:
        if key not in KEYS:
            raise Refused(BAD_INPUT, f"{where}: unknown key {key!r}; known are {', '.join(KEYS)}")
    given = [key for key in ("text", "tokens", "messages") if key in row]
    others = ("image", "images", "video", "videos", "audio", "audios", "source")
    if len(given) > 1 or not (given or any(key in row for key in others)):
        raise Refused(BAD_INPUT, f"{where}: expected one of text, tokens, messages; has {' and '.join(given) or 'none'}")
    name = row.get("name", f"line{number}")
    if not isinstance(name, str) or not name or not name.isprintable() or any(c in name for c in "./ "):
        raise Refused(BAD_INPUT, f"{where}: name: expected a word without '.' and '/'")
    prompt = Prompt(name, where, row.get("text"), row.get("tokens"), row.get("messages"))
    prompt.pair, prompt.types, prompt.source = row.get("pair"), row.get("types"), row.get("source")
    check_types(prompt)
    check_pair(prompt)
    prompt.images = paths_in(row, "image", where, pathlib.Path(path).parent)
    prompt.videos = videos_in(row, where, pathlib.Path(path).parent)
    prompt.audios = paths_in(row, "audio", where, pathlib.Path(path).parent)
    prompt.audio = prompt.audios[0] if prompt.audios else None
    sees = prompt.images or prompt.videos
    if sees and prompt.tokens is not None:
        raise Refused(BAD_INPUT, f"{where}: tokens: an image or a video needs text or messages")
    if sees and not given:
        prompt.text = QUESTION
    return prompt


def paths_in(row, kind, where, folder):
    """The files of a row: those of a list, and a single one behind them."""
    given = row.get(f"{kind}s", [])
    given = given + ([row[kind]] if kind in row else []) if isinstance(given, list) else None
    if given is None or not all(isinstance(path, str) for path in given):
        raise Refused(BAD_INPUT, f"{where}: {kind}s: expected paths of files")
    return [str(folder / path) for path in given]


def videos_in(row, where, folder):
    given = row.get("videos", []) + ([row["video"]] if "video" in row else []) if isinstance(row.get("videos", []), list) else None
    if given is None or not all(isinstance(video, dict) and set(video) == {"frames", "fps"} and isinstance(video["frames"], str)
                                and type(video["fps"]) in (int, float) and 0.001 <= video["fps"] <= 10000 for video in given):
        raise Refused(BAD_INPUT, f'{where}: videos: expected {{"frames": FOLDER, "fps": frames of a second}}')
    return [(str(folder / video["frames"]), video["fps"]) for video in given]


def check_types(prompt):
    if prompt.text is not None and (not isinstance(prompt.text, str) or not prompt.text):
        raise Refused(BAD_INPUT, f"{prompt.where}: text: expected a string that is not empty")
    if prompt.tokens is not None and not (isinstance(prompt.tokens, list) and prompt.tokens and all(
            type(i) is int for i in prompt.tokens)):
        raise Refused(BAD_INPUT, f"{prompt.where}: tokens: expected a list of token ids")
    if prompt.source is not None and not (isinstance(prompt.source, list) and prompt.source and all(
            type(i) is int for i in prompt.source)):
        raise Refused(BAD_INPUT, f"{prompt.where}: source: expected a list of token ids")
    if prompt.messages is not None and not (isinstance(prompt.messages, list) and prompt.messages and all(
            isinstance(m, dict) and isinstance(m.get("role"), str) for m in prompt.messages)):
        raise Refused(BAD_INPUT, f"{prompt.where}: messages: expected a list of objects with role and content")


def check_pair(prompt):
    if prompt.pair is not None and (not isinstance(prompt.pair, str) or prompt.text is None):
        raise Refused(BAD_INPUT, f"{prompt.where}: pair: expected the second text of a pair, beside text")
    if prompt.types is not None and not (isinstance(prompt.types, list) and prompt.tokens is not None
                                         and len(prompt.types) == len(prompt.tokens)
                                         and all(type(i) is int for i in prompt.types)):
        raise Refused(BAD_INPUT, f"{prompt.where}: types: expected a list with one for each of tokens")


def of_image(path, number):
    return Prompt(f"image{number}", path, text=QUESTION, images=[path])


def of_audio(path, number):
    return Prompt(f"audio{number}", path, audio=path, audios=[path])


def built_in(source):
    """Three texts if the model has a tokenizer, else two rows of pseudo-random ids, short enough for it."""
    if source.hears:
        return [Prompt(name, f"built-in prompt {name}") for name in ("noise", "silence")]
    if source.reads and source.tokenizer is None:
        return [Prompt(f"random{n}", f"built-in prompt random{n}", source=pseudo_random(source, n)) for n in (9, 24)]
    if source.tokenizer is None:
        return [Prompt(f"random{n}", f"built-in prompt random{n}", tokens=pseudo_random(source, n)) for n in (9, 24)]
    made = [Prompt(name, f"built-in prompt {name}", text=text) for name, text in TEXTS.items()]
    if getattr(source.tokenizer, "chat_template", None) and not (source.encodes or source.reads):
        made.append(Prompt("chat", "built-in prompt chat", messages=[dict(role="user", content=CHAT)]))
    return made


def pseudo_random(source, count):
    """Ids that depend on the size of the vocabulary alone, and name no image."""
    ids, state = [], 1
    while len(ids) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        token = min(3, source.vocabulary - 1) + (state >> 33) % max(1, source.vocabulary - 3)
        if token != source.image_token:
            ids.append(token)
    return ids


def encode(prompt, source):
    """-> inputs of the model {name: tensor}, with input_ids i64 [1,T]"""
    import torch
    if len(prompt.audios) > 1 and (not source.hears_whole or source.granite):
        raise Refused(UNSUPPORTED, f"{prompt.where}: audios: several sounds in one prompt of {source.model_type} are not supported")
    if source.hears:
        from .sound import encode_sound
        return encode_sound(prompt, source)
    if source.listens and (prompt.audio is not None or prompt.messages is not None or prompt.text is not None):
        from .listening import encode_listening
        return encode_listening(prompt, source)
    if source.hears_whole and prompt.audio is not None and not prompt.images:
        from .listening import encode_whole
        return encode_whole(prompt, source)
    if source.reads:
        from .reading import encode_source
        return encode_source(prompt, source)
    if prompt.source is not None:
        raise Refused(UNSUPPORTED, f"{prompt.where}: source: {source.model_type} has no encoder for it")
    if prompt.audio is not None and not (source.hears_whole and prompt.images):
        raise Refused(UNSUPPORTED, f"{prompt.where}: audio: Ferry converts no audio encoder of {source.model_type}")
    if prompt.images or prompt.videos:
        return encode_images(prompt, source)
    if prompt.tokens is not None:
        ids = prompt.tokens
    elif source.tokenizer is None:
        raise Refused(USAGE, f"{prompt.where}: {source.name} has no tokenizer; state prompts as {{\"tokens\": [...]}}")
    else:
        if source.labels:
            return dict(source.tokenizer(prompt.text, prompt.pair, return_tensors="pt", return_attention_mask=False))
        ids = ids_of(prompt, source)
    if not ids:
        raise Refused(BAD_INPUT, f"{prompt.where}: the tokenizer makes no token of it")
    wrong = next((i for i in ids if not 0 <= i < source.vocabulary), None)
    if wrong is not None:
        raise Refused(BAD_INPUT, f"{prompt.where}: token {wrong} is not in the vocabulary of {source.vocabulary}")
    if source.image_token is not None and source.image_token in ids:
        raise Refused(BAD_INPUT, f"{prompt.where}: token {source.image_token} stands for an image or a sound, and none is given")
    typed = {} if prompt.types is None else dict(token_type_ids=torch.tensor([prompt.types]))
    return dict(input_ids=torch.tensor([ids]), **typed)


def ids_of(prompt, source):
    try:
        if prompt.messages is None:
            return list(source.tokenizer(prompt.text).input_ids)
        if not getattr(source.tokenizer, "chat_template", None):
            raise Refused(BAD_INPUT, f"{prompt.where}: messages: {source.name} has no chat template")
        text = source.tokenizer.apply_chat_template(prompt.messages, tokenize=False, add_generation_prompt=True)
        return list(source.tokenizer(text, add_special_tokens=False).input_ids)
    except Refused:
        raise
    except Exception as error:  # whatever templates and tokenizers throw
        raise Refused(BAD_INPUT, f"{prompt.where}: {one_line(error)}")


def encode_images(prompt, source):
    if not source.sees:
        raise Refused(UNSUPPORTED, f"{prompt.where}: image: Ferry converts no vision tower of {source.model_type}")
    processor = source.processor()
    pictures = [picture(prompt, path) for path in prompt.images]
    videos = [video(prompt, *given) for given in prompt.videos]
    sounds = sounds_beside(prompt, source, processor) if prompt.audios else []
    tokens = [processor.image_token] * len(pictures) + [getattr(processor, "video_token", "")] * len(videos)
    tokens += [getattr(processor, "audio_token", "")] * len(sounds)
    there = prompt.text is not None and any(token and token in prompt.text for token in tokens)
    if prompt.messages is None and not there and processor.chat_template:
        content = [dict(type="image") for _ in pictures] + [dict(type="video") for _ in videos]
        content += [dict(type="audio") for _ in sounds] + [dict(type="text", text=prompt.text)]
        prompt = dataclasses.replace(prompt, messages=[dict(role="user", content=content)])
    try:
        if prompt.messages is not None:
            text = processor.apply_chat_template(prompt.messages, add_generation_prompt=True, tokenize=False)
        else:
            # Places in three dimensions need tokens between two images.
            placed = hasattr(source.model.model, "rope_deltas")
            marks = [f"<|vision_start|>{token}<|vision_end|>" if placed else token for token in tokens]
            text = prompt.text if there else "".join(marks) + prompt.text
        given = dict(images=[pictures]) if pictures else {}
        if sounds:
            given.update(audio=sounds)
        if videos:
            given.update(videos=[frames for frames, _ in videos], video_metadata=[metadata for _, metadata in videos])
            made = processor.video_processor
            fixed = getattr(made, "fps", None) or getattr(made, "num_frames", None)
            if type(processor).__name__ == "SmolVLMProcessor" and fixed:  # as its apply_chat_template() does
                given.update(do_sample_frames=True)
        made = processor(text=[text], return_tensors="pt", add_special_tokens=False, **given)
    except Exception as error:
        raise Refused(BAD_INPUT, f"{prompt.where}: {one_line(error)}")
    # Ferry writes masks of i64 only.
    inputs = {name: made[name] if made[name].is_floating_point() else made[name].long() for name in TENSORS if name in made}
    if sounds:
        from .listening import without_padding
        inputs.update(without_padding(made))
    return inputs


def sounds_beside(prompt, source, processor):
    """The samples of sounds beside images."""
    from .sound import read
    if source.granite or not source.sees:
        raise Refused(UNSUPPORTED, f"{prompt.where}: audio: {source.model_type} takes no images beside it")
    return [read(prompt, processor.feature_extractor.sampling_rate, path) for path in prompt.audios]


def picture(prompt, path):
    """The picture as Ferry reads it: turned by its EXIF orientation, in RGB."""
    import PIL.Image
    import PIL.ImageOps
    try:
        with PIL.Image.open(path) as image:
            return PIL.ImageOps.exif_transpose(image).convert("RGB")
    except FileNotFoundError:
        raise Refused(IO, f"{prompt.where}: {path}: no such file")
    except Exception as error:
        raise Refused(BAD_INPUT, f"{prompt.where}: {path}: is no image that Pillow reads: {one_line(error)}")


def by_number(name):
    """A key that compares numbers in names as numbers."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split("([0-9]+)", name) if part], name


def video(prompt, folder, fps):
    """-> frames u8 [frames,3,height,width], and what transformers wants to know of them"""
    import numpy
    import transformers.video_utils
    try:
        names = sorted((path.name for path in pathlib.Path(folder).iterdir() if not path.name.startswith(".")), key=by_number)
    except OSError as error:
        raise Refused(IO, f"{prompt.where}: {folder}: {error.strerror}")
    frames = [numpy.asarray(picture(prompt, str(pathlib.Path(folder) / name))) for name in names]
    if not frames or any(frame.shape != frames[0].shape for frame in frames):
        raise Refused(BAD_INPUT, f"{prompt.where}: {folder}: expected frames of one size")
    # With the channels behind, transformers takes frames of 1 or 3 pixels of height for others.
    return numpy.stack(frames).transpose(0, 3, 1, 2), transformers.video_utils.VideoMetadata(
        total_num_frames=len(frames), fps=fps, duration=len(frames) / fps, width=frames[0].shape[1], height=frames[0].shape[0],
        frames_indices=list(range(len(frames))))
