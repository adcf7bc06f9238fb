"""Sounds of prompts for models of speech: files, noise and silence become frames or samples by the model's own extractor."""
import numpy as np

from .errors import BAD_INPUT, IO, Refused, one_line

NOISE_SECONDS = 3


def encode_sound(prompt, source):
    """-> input_features f32 [1,mels,frames] or input_values f32 [1,samples], and input_ids i64 [1,T], the first tokens

    For labels of rows: input_features f32 [1,frames,mels] and its attention_mask, without tokens.
    """
    import torch
    if prompt.text is not None or prompt.messages is not None or prompt.images:
        raise Refused(BAD_INPUT, f"{prompt.where}: a model of speech takes audio and tokens alone")
    if source.labels_sound:
        if prompt.tokens is not None:
            raise Refused(BAD_INPUT, f"{prompt.where}: {source.model_type} takes no tokens")
        return dict(features_of(prompt, source))
    ids = prompt.tokens or forced_tokens(source)
    wrong = next((i for i in ids if not 0 <= i < source.vocabulary), None)
    if wrong is not None:
        raise Refused(BAD_INPUT, f"{prompt.where}: token {wrong} is not in the vocabulary of {source.vocabulary}")
    name = source.model.main_input_name
    return {"input_ids": torch.tensor([ids]), name: features_of(prompt, source)[name]}


def features_of(prompt, source):
    """What the extractor of the model makes of the sound."""
    extractor = source.feature_extractor()
    rate = extractor.sampling_rate
    samples = read(prompt, rate) if prompt.audio is not None else made(prompt.name, rate)
    return extractor(samples, sampling_rate=rate, return_tensors="pt")


class LabelRecorder:
    """Records an encoder that gives labels: the frames and rows that the masks show, because the others have no effect on them."""

    def __init__(self, source):
        self.source, self.model = source, source.model

    def prompt(self, inputs, put):
        """Returns the outputs of the labels [1,rows,labels], and no cache."""
        from .record import input_of
        seen, hooks, encoder = {}, [], self.model.encoder
        for i, layer in enumerate(encoder.layers):
            def before(_, arguments, options, i=i):
                seen[f"encoder_hidden_states.{i}"] = input_of(arguments, options)
            hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))

        def behind(_, __, out):
            seen["encoder_last_hidden_state"], seen["mask"] = out.last_hidden_state, out.attention_mask
        hooks.append(encoder.register_forward_hook(behind))
        try:
            seen["token_logits"] = self.model(**inputs).logits
        finally:
            for hook in hooks:
                hook.remove()
        rows = int(seen.pop("mask").sum())
        put("input_features", inputs["input_features"][:, :int(inputs["attention_mask"].sum())])
        for name, value in seen.items():
            put(name, value[:, :rows])
        return seen["token_logits"][:, :rows], None


def forced_tokens(source):
    """The start, the forced tokens that are stated, and the mark that there are no timestamps."""
    config = source.model.generation_config
    stated = getattr(config, "forced_decoder_ids", None) or []
    ids = [config.decoder_start_token_id] + [token for _, token in stated if token is not None]
    mark = getattr(config, "no_timestamps_token_id", None)
    return ids if mark is None or ids[-1] == mark else ids + [mark]


def made(name, rate):
    """Noise of a fixed seed, or silence."""
    samples = np.zeros(NOISE_SECONDS * rate, np.float32)
    if name == "noise":
        samples += np.random.default_rng(1).standard_normal(len(samples)).astype(np.float32) * np.float32(0.1)
    return samples


def read(prompt, rate, path=None):
    """The mean of the channels, at the rate of the model: resampled as the pipeline of transformers does."""
    try:
        import soundfile
    except ImportError as error:
        raise Refused(IO, f"{prompt.where}: sounds need the package soundfile ({one_line(error)})")
    path = path or prompt.audio
    try:
        samples, stored_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except FileNotFoundError:
        raise Refused(IO, f"{prompt.where}: {path}: no such file")
    except Exception as error:
        raise Refused(BAD_INPUT, f"{prompt.where}: {path}: is no sound that libsndfile reads: {one_line(error)}")
    samples = samples.T.mean(axis=0) if samples.shape[1] > 1 else samples[:, 0]
    if stored_rate == rate:
        return samples
    try:
        import torch
        from torchaudio.functional import resample
    except ImportError as error:
        raise Refused(IO, f"{prompt.where}: a sound at {stored_rate} Hz needs the package torchaudio ({one_line(error)})")
    return resample(torch.from_numpy(samples), stored_rate, rate).numpy()
