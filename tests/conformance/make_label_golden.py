"""Makes the golden checkpoint of a model that gives labels of rows of a sound (Parakeet with CTC), and what transformers computes of it.

    PYTHONPATH=python python3 tests/conformance/make_label_golden.py

Writes testdata/speech/parakeet, testdata/families/parakeet and testdata/sound/normalized_mel.safetensors. sounds.py draws random models
with the functions of this file.
"""
import json
import pathlib
import sys

import make_golden
import make_speech_golden as speech
import numpy as np
import safetensors.numpy
import tokenizers
import torch
import transformers
from ferry import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATE = speech.RATE
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "sings", "of", "spring", "tides"]
NAMES = ["mono_16.wav", "stereo_24.wav", "stereo_flac.flac", "long.wav"]


def tokenizer(kind, size):
    """Pieces of a SentencePiece model and, behind them, the blank."""
    marked = ["▁" + word for word in WORDS] + sorted(set("".join(WORDS))) + ["▁", ",", "."]
    pieces = ["<unk>"] + marked[:size - 1]
    if kind == "Unigram":
        model = tokenizers.models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], unk_id=0)
    else:
        model = tokenizers.models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], unk_token="<unk>")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    made.decoder = tokenizers.decoders.Metaspace(replacement="▁", prepend_scheme="always")
    return transformers.ParakeetTokenizer(tokenizer_object=made, unk_token="<unk>", pad_token="<pad>")


def config(labels, **changed):
    """A small model whose last label is the blank."""
    encoder = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40, subsampling_conv_channels=6,
                   num_mel_bins=16, conv_kernel_size=5, subsampling_factor=4)
    return transformers.ParakeetCTCConfig(vocab_size=labels, pad_token_id=labels - 1, encoder_config={**encoder, **changed})


def randomise(model):
    """Weights and statistics that no initialisation makes equal or zero."""
    for name, value in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith("running_var"):
            value.copy_(torch.rand_like(value) + 0.5)
        elif value.is_floating_point() and not name.endswith("inv_freq"):
            noise = torch.randn_like(value)
            value.add_(noise * 0.1) if value.dim() == 1 else value.copy_(noise * (0.6 if "head" in name else 0.25))


def make(folder, seed, made_config, words, extractor, dtype=torch.bfloat16):
    """Saves a model with random weights and its processor; returns what from_pretrained() makes of them."""
    torch.manual_seed(seed)
    model = transformers.ParakeetForCTC(made_config).eval()
    randomise(model)
    model.to(dtype).save_pretrained(folder)
    transformers.ParakeetProcessor(extractor, words).save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return transformers.ParakeetForCTC.from_pretrained(folder, dtype=torch.float32).eval(), transformers.AutoProcessor.from_pretrained(folder)


def transcript(model, processor, samples):
    """The labels that generate() gives, those of the text, and the text."""
    inputs = processor(samples, sampling_rate=RATE)
    labels = model.generate(**inputs)
    blank = processor.tokenizer.pad_token_id
    row = labels[0].tolist()
    tokens = [label for i, label in enumerate(row) if (i == 0 or label != row[i - 1]) and label != blank]
    return tokens, processor.batch_decode(labels, skip_special_tokens=True)[0]


def make_features(folder):
    """Frames and masks of the extractor, by transformers in f32, of some files."""
    samples = safetensors.numpy.load_file(folder / "samples.safetensors")
    made = {}
    for name, options in (("mono_16.wav", {}), ("stereo_flac.flac", dict(feature_size=40, preemphasis=None, n_fft=400))):
        found = transformers.ParakeetFeatureExtractor(**options)(samples[name], sampling_rate=RATE, return_tensors="np")
        made[name], made[name + ".mask"] = np.ascontiguousarray(found.input_features), found.attention_mask
    safetensors.numpy.save_file(made, folder / "normalized_mel.safetensors")
    (folder / "normalized_mel.safetensors").chmod(0o644)


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    sounds, folder = ROOT / "testdata/sound", ROOT / "testdata/speech/parakeet"
    folder.mkdir(parents=True, exist_ok=True)
    make_features(sounds)
    words = tokenizer("BPE", 24)
    for seed in range(200):
        model, processor = make(folder, seed, config(len(words)), words, transformers.ParakeetFeatureExtractor(feature_size=16))
        made = [dict(sound=name, **dict(zip(("tokens", "text"), transcript(model, processor, speech.samples_of(sounds / name)))))
                for name in NAMES]
        counts = [len(set(case["tokens"])) for case in made]
        print(f"seed {seed}: {counts} tokens", flush=True)
        if counts[0] > 2 and counts[-1] > 5 and min(counts) > 0 and len({case["text"] for case in made}) == len(NAMES):
            break
    else:
        sys.exit("make_label_golden.py: no seed gives different transcripts")
    (folder / "transcripts.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    golden = folder / "golden.safetensors"
    golden.unlink(missing_ok=True)
    if reference.main([str(folder), "-o", str(golden), "--audio", str(sounds / "mono_16.wav"), "-q"]):
        sys.exit("make_label_golden.py: there is no reference")
    make_golden.list_keys(folder, ROOT / "testdata/families/parakeet")


if __name__ == "__main__":
    main()
