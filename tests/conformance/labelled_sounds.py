"""Sounds become the frames of ParakeetFeatureExtractor, and random models that give labels of rows (Parakeet with CTC) are converted right.

A case draws a sound (sounds.py) and the settings of an extractor, and compares what `ferry preprocess --audio` writes with what the
extractor makes in f64, of the same samples: its own f32 has a transform whose rounding depends on the library. The bound is 1e-6 times
the larger of 1 and the greatest value where the file has the rate of the model, else 1e-4; the case says how far the f32 of the extractor is. Silence, which
a deviation of nearly nothing divides, is compared by its mask alone. Another case draws a model; `python -m ferry.reference` makes
its reference of a drawn sound, `ferry verify` proves every stage, and `ferry transcribe` gives the tokens and the text of the processor.

    python3 tests/conformance/labelled_sounds.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import random

import common
import make_label_golden as golden  # it imports torch and transformers
import make_speech_golden as speech
import numpy as np
import safetensors.numpy
import sounds
import torch
import transformers
from common import Wrong
from ferry import reference

RATE = golden.RATE
BOUND, RESAMPLED = 1e-6, 1e-4


class InF64:
    """The extractor with tensors of f64 in the place of those of f32, but for samples, filters and guards."""

    def __enter__(self):
        self.kept = torch.Tensor.to, torch.hann_window
        to, window = self.kept
        torch.Tensor.to = lambda t, *a, **o: to(t, *[torch.float64 if x is torch.float32 else x for x in a], **o)
        torch.hann_window = lambda *a, **o: window(*a, **o, dtype=torch.float64)

    def __exit__(self, *_):
        torch.Tensor.to, torch.hann_window = self.kept


def extractor_of(r):
    n_fft = r.choice([512, 512, 400, 256])
    return transformers.ParakeetFeatureExtractor(
        feature_size=r.choice([80, 80, 128, 20]), n_fft=n_fft, win_length=r.choice([n_fft, min(n_fft, 400), 240, 241]),
        hop_length=r.choice([160, 160, 100, 320]), preemphasis=r.choice([0.97, 0.97, 0.0, 0.5, None]))


def drawn(r, folder, least):
    """A sound with at least so many samples at the rate of the model."""
    while True:
        path, rate = sounds.draw(r, folder)
        samples = speech.samples_of(path)
        if len(samples) >= least:
            return path, rate, samples
        refused = common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", folder / "short.safetensors")
        if (folder / "preprocessor_config.json").exists() and refused.code != 2:
            raise Wrong(f"{path.name}: {len(samples)} samples are not refused")


def frames(promise, number):
    """What ferry makes of a sound is what the extractor makes, within the stated rounding."""
    r = random.Random(f"{promise.seed} normalized {number}")
    folder = promise.folder / f"normalized-{number}"
    folder.mkdir()
    extractor = extractor_of(r)
    extractor.save_pretrained(folder)
    path, rate, samples = drawn(r, folder, 2 * extractor.hop_length)
    common.Ferry("preprocess", "--audio", path, "--checkpoint", folder, "-o", folder / "made.safetensors").ends_with(0)
    made = safetensors.numpy.load_file(folder / "made.safetensors")
    in_f32 = extractor(samples, sampling_rate=RATE, return_tensors="np")
    filters = extractor.mel_filters
    with InF64():
        extractor.mel_filters = filters.double()
        wanted = extractor(samples.astype(np.float64), sampling_rate=RATE, return_tensors="np")
    if made["attention_mask"].dtype != bool or not np.array_equal(made["attention_mask"], in_f32.attention_mask):
        raise Wrong(f"{path.name}: another mask")
    if made["input_features"].shape != in_f32.input_features.shape or wanted.input_features.dtype != np.float64:
        raise Wrong(f"{path.name}: {made['input_features'].shape}, the reference {in_f32.input_features.shape}")
    if path.name.startswith("silence"):
        return f"{path.name}: {made['attention_mask'].sum()} frames of silence"
    most = max(1.0, float(np.abs(wanted.input_features).max()))
    distance, noise = (float(np.abs(x - wanted.input_features).max()) for x in (made["input_features"], in_f32.input_features))
    if distance > (BOUND if rate == RATE else RESAMPLED) * most:
        raise Wrong(f"{path.name} {extractor.to_dict()}: differs by {distance:.3g}, the extractor's f32 by {noise:.3g}")
    return f"{path.name}: {distance:.2g} from f64, the extractor's f32 {noise:.2g}"


def model_config(r, labels):
    heads = r.choice([1, 2, 4])
    stride, convolutions = r.choice([(2, 3), (2, 3), (2, 2), (2, 1), (3, 2), (1, 2)])
    mels = stride ** convolutions * r.choice([1, 2, 5])
    return golden.config(
        labels, hidden_size=heads * r.choice([4, 6, 10]), num_hidden_layers=r.choice([1, 2, 3]), num_attention_heads=heads,
        intermediate_size=r.choice([10, 32]), subsampling_conv_channels=r.choice([1, 4, 7]), num_mel_bins=mels,
        subsampling_factor=2 ** convolutions + (r.choice([0, 0, 1]) if convolutions > 1 else 0), subsampling_conv_stride=stride,
        subsampling_conv_kernel_size=r.choice([3, 3, 5, 1]) if stride == 2 else 3, conv_kernel_size=r.choice([1, 5, 9, 31]),
        attention_bias=r.random() < 0.6, convolution_bias=r.random() < 0.6, scale_input=r.random() < 0.5,
        hidden_act=r.choice(["silu", "silu", "relu", "gelu"]))


def model(promise, number):
    """A random model: all stages, and the transcript of a drawn sound."""
    r = random.Random(f"{promise.seed} parakeet {number}")
    folder = promise.folder / f"parakeet-{number}"
    folder.mkdir()
    words = golden.tokenizer(r.choice(["BPE", "Unigram"]), r.choice([12, 25, 33]))
    config = model_config(r, len(words))
    extractor = transformers.ParakeetFeatureExtractor(feature_size=config.encoder_config.num_mel_bins)
    made, processor = golden.make(folder, number, config, words, extractor, r.choice([torch.float32, torch.bfloat16]))
    path, rate, samples = drawn(r, folder, 320)
    out = folder / "golden.safetensors"
    if reference.main([str(folder), "-o", str(out), "--audio", str(path), "-q"]):
        raise Wrong("there is no reference")
    style = r.choice([[], ["--shards", str(r.randint(1, config.encoder_config.num_hidden_layers))], ["--layout", "one-program"],
                      ["--max-sound", str(r.choice([3, 120]))]])
    common.convert(folder, folder / "bundle", "--dtype", "f32", *style)
    proof = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", out)
    if proof.code:
        raise Wrong(f"verify exits {proof.code}: {proof.why if proof.code > 1 else common.first_difference(proof.result)}")
    run = common.Ferry("transcribe", folder / "bundle", path, "--json").ends_with(0)
    if path.name.startswith("silence"):  # its frames are rounding, which the reference multiplies
        return f"{path.name}: silence, {' '.join(style) or 'plain'}"
    tokens, text = golden.transcript(made, processor, samples)
    if run.result["tokens"] != tokens:
        raise Wrong(f"{path.name}: tokens {run.result['tokens'][:12]}, the reference {tokens[:12]}")
    if run.result["text"] != text:
        raise Wrong(f"{path.name}: text {run.result['text']!r}, the reference {text!r}")
    return f"{path.name}: {len(tokens)} tokens, {' '.join(style) or 'plain'}"


def main():
    promise = common.Promise(__doc__)
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    for number in range(4 if promise.sample else 24):
        promise.case(f"frames {number}", frames, promise, number)
    for number in range(3 if promise.sample else 30):
        promise.case(f"parakeet {number}", model, promise, number)
    promise.finish()


if __name__ == "__main__":
    main()
