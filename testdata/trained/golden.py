#!/usr/bin/env python3
"""Writes what transformers computes from the sample: golden.safetensors (docs/verifying.md) and expected.json.

    python3 golden.py FOLDER

transformers 5.23.0, torch 2.13.0: on the CPU, eager attention, in f32 from the stored weights.
"""
import json
import math
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

PROMPTS = {  # name -> text, tokens to generate
    "short": ("And the LORD spake unto Moses, saying, Speak unto the children of Israel,", 16),
    "long": ("Now it came to pass in those days, that the king of Israel sent messengers unto", 24)}
WINDOW, STRIDE = 256, 128


class InDouble:
    """torch for the model's source, where f32 means f64."""
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def logits_in_double(folder, ids):
    single, modeling.torch, torch.Tensor.float = torch.Tensor.float, InDouble(), torch.Tensor.double
    try:
        model = load(folder).double()
        rotary = model.model.rotary_emb
        dim = 2 * len(rotary.inv_freq)
        theta = model.config.rope_parameters["rope_theta"]
        rotary.inv_freq = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        return model(input_ids=ids).logits
    finally:
        modeling.torch, torch.Tensor.float = torch, single


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def greedy(model, ids, count):
    """Without a cache: every token from the whole sequence before it."""
    rows = []
    for _ in range(count):
        rows.append(model(input_ids=ids, use_cache=False).logits[0, -1])
        ids = torch.cat([ids, rows[-1].argmax().view(1, 1)], dim=1)
    return ids[0, -count:], torch.stack(rows)


def states(model, ids):
    """Hidden states, caches and recurrent states after the prompt."""
    prenorm = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, args: prenorm.append(args[0]))
    out = model(input_ids=ids, use_cache=True, output_hidden_states=True)
    hook.remove()
    found = {f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}
    found["last_layer_prenorm"] = prenorm[0]
    cache = out.past_key_values
    for i, kind in enumerate(model.config.layer_types):
        if kind == "full_attention":
            found[f"cache.{i}.key"], found[f"cache.{i}.value"] = cache.layers[i].keys, cache.layers[i].values
        else:
            found[f"cache.{i}.conv_state"] = cache.get_conv_state(i, state_idx=0)
            found[f"cache.{i}.recurrent_state"] = cache.get_recurrent_state(i, state_idx=0)
    return found


def perplexity(model, ids):
    """docs/perplexity.md: windows from position 0; a token counts in the first window that has it."""
    nll, counted = [], 1
    for begin in range(0, len(ids), STRIDE):
        window = ids[begin:begin + WINDOW]
        scores = model(input_ids=window[None], use_cache=False).logits[0].double().log_softmax(-1)
        each = -scores[:-1].gather(1, window[1:, None])[:, 0]
        nll.append(each[counted - begin - 1:])
        counted = begin + len(window)
        if counted == len(ids):
            break
    return torch.cat(nll)


@torch.no_grad()
def main(folder):
    torch.set_num_threads(1)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), load(folder)
    golden, prompts = {}, []
    for name, (text, count) in PROMPTS.items():
        ids = tokenizer(text, return_tensors="pt").input_ids
        chosen, rows = greedy(model, ids, count)
        found = {"input_ids": ids, "logits": model(input_ids=ids, use_cache=False).logits,
                 "greedy_ids": chosen, "greedy_logits": rows}
        if not golden:
            found |= states(model, ids) | {"logits_f64": logits_in_double(folder, ids)}
        golden |= {f"{name}.{key}": value.contiguous() for key, value in found.items()}
        top = rows.topk(2).values
        print(name, len(ids[0]), "tokens; least margin", float((top[:, 0] - top[:, 1]).min()))
        print(text + "|" + tokenizer.decode(chosen))
        prompts.append({"name": name, "text": text, "continuation": tokenizer.decode(chosen)})
    save_file(golden, Path(folder, "golden.safetensors"))

    text = Path(folder, "held_out.txt").read_bytes().decode()
    ids = tokenizer(text, return_tensors="pt").input_ids[0]
    nll = perplexity(model, ids)
    mean = float(nll.mean())
    expected = {"transformers": transformers.__version__, "torch": torch.__version__, "prompts": prompts,
                "held_out": {"window": WINDOW, "stride": STRIDE, "tokens": len(ids), "predicted": len(nll),
                             "nll_mean": mean, "perplexity": math.exp(mean)}}
    Path(folder, "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
    print(expected["held_out"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
