"""Prompts of language models that hear (Voxtral, Gemma 3n, Gemma 4, Granite Speech): sounds become windows of frames, or all their frames, and placeholders in the prompt."""
import numpy as np

from .errors import BAD_INPUT, IO, Refused, one_line
from .sound import made, read

QUESTION = "What is said?"


def encode_listening(prompt, source):
    """-> input_features f32 [windows,mels,frames] where there is a sound, and input_ids i64 [1,T]

    Tokens are taken as they are, with the placeholders; texts and messages go through mistral-common.
    """
    import torch
    if prompt.images or prompt.pair is not None:
        raise Refused(BAD_INPUT, f"{prompt.where}: {source.model_type} takes audio with text, messages or tokens")
    features = windows_of(prompt, source) if prompt.audio is not None else None
    ids = prompt.tokens or ids_of(prompt, source)
    wrong = next((i for i in ids if not 0 <= i < source.vocabulary), None)
    if wrong is not None:
        raise Refused(BAD_INPUT, f"{prompt.where}: token {wrong} is not in the vocabulary of {source.vocabulary}")
    rows = 0 if features is None else features.shape[0] * rows_of_window(source)
    if ids.count(source.image_token) != rows:
        raise Refused(BAD_INPUT, f"{prompt.where}: {ids.count(source.image_token)} placeholders of {rows} rows of sound")
    sound = {} if features is None else dict(input_features=torch.from_numpy(features))
    return dict(input_ids=torch.tensor([ids]), **sound)


def rows_of_window(source):
    audio = source.config.audio_config
    return audio.max_source_positions * audio.hidden_size // audio.intermediate_size


def windows_of(prompt, source):
    """The frames of the sound, padded to whole windows, by the numpy path of the extractor."""
    extractor = source.feature_extractor()
    rate = extractor.sampling_rate
    samples = read(prompt, rate) if prompt.audio else made(prompt.name, rate)
    count = max(1, -(-len(samples) // extractor.n_samples))
    padded = np.pad(samples, (0, count * extractor.n_samples - len(samples))).astype(np.float32)
    frames = extractor._np_extract_fbank_features(padded[None], "cpu")[0].astype(np.float32)
    return np.ascontiguousarray(frames.reshape(frames.shape[0], count, -1).transpose(1, 0, 2))


def ids_of(prompt, source):
    content = [dict(type="audio", path=prompt.audio)] if prompt.audio else []
    content.append(dict(type="text", text=prompt.text or QUESTION))
    messages = prompt.messages or [dict(role="user", content=content)]
    try:
        import mistral_common  # noqa: F401
    except ImportError as error:
        raise Refused(IO, f"{prompt.where}: texts of this model need the package mistral-common; else state tokens ({one_line(error)})")
    try:
        return source.processor().apply_chat_template(messages)["input_ids"][0].tolist()
    except Refused:
        raise
    except Exception as error:  # whatever processors throw
        raise Refused(BAD_INPUT, f"{prompt.where}: {one_line(error)}")


def encode_whole(prompt, source):
    """-> input_features f32 [sounds,frames,mels], of one sound without the frames of padding, input_features_mask, and input_ids i64 [1,T]

    Tokens are taken as they are, with the placeholders; texts and messages go through the processor.
    """
    import torch
    if prompt.images or prompt.pair is not None:
        raise Refused(BAD_INPUT, f"{prompt.where}: {source.model_type} takes audio with text, messages or tokens")
    processor = source.processor()
    extractor = processor.audio_processor if source.granite else processor.feature_extractor
    samples = [read(prompt, extractor.sampling_rate, path) for path in prompt.audios]
    try:
        made = extractor(torch.from_numpy(samples[0])) if source.granite else extractor(samples, return_tensors="pt")
    except Exception as error:  # whatever extractors throw
        raise Refused(BAD_INPUT, f"{prompt.where}: {one_line(error)}")
    inputs = dict(input_features=made["input_features"]) if source.granite else without_padding(made)
    frames = [made["input_features"].shape[1]] if source.granite else inputs["input_features_mask"].sum(1).tolist()
    if not all(frames):
        raise Refused(BAD_INPUT, f"{prompt.where}: {prompt.audios[frames.index(0)]}: is too short for a frame")
    ids = prompt.tokens or whole_ids_of(prompt, source, processor, samples)
    wrong = next((i for i in ids if not 0 <= i < source.vocabulary), None)
    if wrong is not None:
        raise Refused(BAD_INPUT, f"{prompt.where}: token {wrong} is not in the vocabulary of {source.vocabulary}")
    rows = sum(rows_of_frames(source.config, count) for count in frames)
    placeholders = ids.count(source.config.audio_token_id)
    if placeholders != rows:
        raise Refused(BAD_INPUT, f"{prompt.where}: {placeholders} placeholders of {rows} rows of sound")
    # The mask of Granite Speech is for rows of the decoder, of which one sound has no others.
    return dict(inputs, input_ids=torch.tensor([ids]))


def without_padding(made):
    """The frames and their mask, without frames that are padding of all sounds."""
    frames = int(made["input_features_mask"].sum(1).max())
    return dict(input_features=made["input_features"][:, :frames].contiguous(), input_features_mask=made["input_features_mask"][:, :frames].bool())


def rows_of_frames(config, frames):
    if hasattr(config, "window_size"):
        return -(-frames // config.window_size) * (config.window_size // config.downsample_rate)
    return config.audio_soft_tokens_per_image if config.model_type == "gemma3n" else -(-frames // 4)


def whole_ids_of(prompt, source, processor, samples):
    token, text = processor.audio_token, prompt.text or QUESTION
    messages = prompt.messages
    if messages is None and processor.chat_template:
        content = token + text if source.granite else [dict(type="audio")] * len(samples) + [dict(type="text", text=text)]
        messages = [dict(role="user", content=content)]
    try:
        if messages is not None:
            text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        elif token not in text:
            text = token * len(samples) + text
        return processor(text=[text], audio=samples, return_tensors="pt", add_special_tokens=messages is None)["input_ids"][0].tolist()
    except Exception as error:  # whatever processors throw
        raise Refused(BAD_INPUT, f"{prompt.where}: {one_line(error)}")
