#!/usr/bin/env python3
"""Trains the sample: a small Qwen3.5 text model of the King James Bible, from nothing.

    apt-get download bible-kjv bible-kjv-text        # 4.38 of Debian 12
    for p in bible-kjv*.deb; do dpkg -x $p .; done
    usr/bin/bible -p usr/lib -f Genesis1:1-Revelation22:21 > kjv.txt
    python3 train.py kjv.txt OUT                     # then: python3 golden.py OUT

Python 3.11, torch 2.13.0, transformers 5.23.0, tokenizers 0.23.3. Everything that is random comes from SEED.
Other processors and versions add in another order, hence end in another model.
The text is in the public domain (the translation is of 1611).
"""
import hashlib
import math
import re
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, Qwen3_5ForCausalLM, Qwen3_5TextConfig

TEXT_SHA256 = "cd45f0c9cedab8e4439bd6486c8952c77cc8b0ecc5d1f6ae3513f2039f47229d"
HELD_OUT = "Jonah"  # the model never sees this book
END = "<|endoftext|>"

SEED = 1
VOCABULARY = 2048
LENGTH, BATCH, STEPS, WARMUP = 256, 8, 1500, 50
MUON_RATE, ADAM_RATE = 0.007, 0.004

CONFIG = dict(
    vocab_size=VOCABULARY, hidden_size=128, intermediate_size=352, num_hidden_layers=4,
    layer_types=["linear_attention"] * 3 + ["full_attention"],
    num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    linear_num_key_heads=4, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                         mrope_section=[2, 1, 1], mrope_interleaved=True),
    max_position_embeddings=LENGTH, tie_word_embeddings=True,
    bos_token_id=None, eos_token_id=0, pad_token_id=0)

# The pattern of Qwen's own tokenizers.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


def books(path):
    """Name of a book -> its text: a line for each verse, a blank line between chapters."""
    raw = Path(path).read_bytes()
    if hashlib.sha256(raw).hexdigest() != TEXT_SHA256:
        sys.exit(f"{path}: not the text of bible-kjv-text 4.38")
    texts, last = {}, None
    for line in raw.decode("ascii").splitlines():
        book, chapter, verse = re.fullmatch(r"(\w+?)(\d+):\d+ (.*)", line).groups()
        if book not in texts:
            texts[book] = verse
        else:
            texts[book] += ("\n" if chapter == last else "\n\n") + verse
        last = chapter
    return texts


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return tokenizer


def new_model():
    torch.manual_seed(SEED)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**CONFIG))
    for layer in model.model.layers:
        if hasattr(layer, "linear_attn"):
            # Decays that remember 10 to 1000 tokens, as Mamba starts with. By default nearly nothing is remembered.
            heads = layer.linear_attn.num_v_heads
            step = torch.exp(torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)))
            layer.linear_attn.dt_bias.data = step + torch.log(-torch.expm1(-step))
            layer.linear_attn.A_log.data = torch.empty(heads).uniform_(1, 16).log()
    return model


def optimizers(model):
    """Muon for the matrices of the layers, AdamW for everything else."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n]
    others = [p for n, p in model.named_parameters() if not (p.ndim == 2 and "layers." in n)]
    return [torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.1, momentum=0.95,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)]


def rate(step):
    """Share of the full learning rate: it rises, then falls along a cosine."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def loss_of(model, windows):
    logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model, ids):
    return loss_of(model, ids[: len(ids) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)).item()


def train(model, ids, held_out):
    """Each pass goes over the text once, from an offset of its own, in windows in random order."""
    order = torch.Generator().manual_seed(SEED)
    queue = []
    steppers = optimizers(model)
    full = [s.param_groups[0]["lr"] for s in steppers]
    began = time.time()
    for step in range(STEPS):
        if len(queue) < BATCH:
            offset = int(torch.randint(LENGTH, (1,), generator=order))
            count = (len(ids) - 1 - offset) // LENGTH
            queue += [offset + LENGTH * int(i) for i in torch.randperm(count, generator=order)]
        starts, queue = queue[:BATCH], queue[BATCH:]
        with torch.autocast("cpu", torch.bfloat16):  # a fifth faster than f32 where the processor has AVX512-BF16
            loss = loss_of(model, torch.stack([ids[s:s + LENGTH + 1] for s in starts]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stepper, lr in zip(steppers, full):
            stepper.param_groups[0]["lr"] = lr * rate(step)
            stepper.step()
            stepper.zero_grad()
        if step % 25 == 0 or step + 1 == STEPS:
            print(f"step {step} loss {loss.item():.3f} held out {held_out_loss(model, held_out):.3f} "
                  f"seconds {time.time() - began:.0f}", flush=True)


def save(model, tokenizer, out):
    """Matrices in bf16; A_log and the norm inside linear attention stay f32, as in released checkpoints."""
    for name, parameter in model.named_parameters():
        if not name.endswith(("A_log", "linear_attn.norm.weight")):
            parameter.data = parameter.data.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.save_pretrained(out)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END,
                            model_max_length=LENGTH).save_pretrained(out)


def main(text, out):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    texts = books(text)
    held_out = texts.pop(HELD_OUT)
    tokenizer = train_tokenizer(texts.values())
    encode = lambda t: tokenizer.encode(t).ids
    ids = torch.tensor([i for t in texts.values() for i in encode(t) + encode(END)])
    print(f"{len(ids)} tokens, {sum(map(len, texts.values())) / len(ids):.2f} characters each")
    model = new_model()
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    train(model, ids, torch.tensor(encode(held_out)))
    Path(out).mkdir(parents=True, exist_ok=True)
    save(model, tokenizer, out)
    Path(out, "held_out.txt").write_text(held_out + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
