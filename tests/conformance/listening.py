"""Random language models that hear (Voxtral) are converted right, and their prompts are those of mistral-common.

A case draws a model, the sounds of a chat or of a request to write one down, and the layout of the bundle. The ids of the prompt are those
of VoxtralProcessor, the windows of frames those of the numpy path of its extractor within the bounds of sounds.py, `python -m
ferry.reference` makes the reference, `ferry verify` proves every stage, and `ferry run` and `ferry transcribe` give the tokens of
generate(). Another case draws texts, whose ids must be those of mistral-common, texts with control tokens among them.

    python3 tests/conformance/listening.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import json
import random

import common
import make_speech_golden as speech
import make_voxtral_golden as golden  # it imports torch and transformers
import numpy as np
import safetensors.numpy
import sounds
import torch
import transformers
from common import Wrong
from ferry import reference

BOUND, RESAMPLED = sounds.BOUND, sounds.RESAMPLED


def drawn_config(r):
    group, heads = r.choice([50, 50, 20, 100]), r.choice([1, 2, 4])
    scaling = r.choice([{}, {}, dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0))])
    return golden.config_of(
        mels=r.choice([4, 20]), group=group, width=4 * heads,
        audio=dict(activation_function=r.choice(["gelu", "gelu", "relu", "silu"]), scale_embedding=r.random() < 0.5,
                   num_hidden_layers=r.choice([1, 2, 3]), num_attention_heads=heads),
        text=dict(num_hidden_layers=r.choice([1, 2, 4]), num_key_value_heads=r.choice([1, 2, 4]), head_dim=r.choice([4, 6, 8]),
                  attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, tie_word_embeddings=r.random() < 0.3, max_position_embeddings=512, **scaling),
        tie_word_embeddings=r.random() < 0.3)


def drawn_case(r, folder):
    """A chat or a request, with sounds that are drawn."""
    def sound():
        return sounds.draw(r, folder, longest=r.choice([2.5, 2.5, 31.0]))[0].name
    if r.random() < 0.4:
        return dict(sound=sound(), **r.choice([{}, dict(language="en"), dict(language="de")]))
    words = ["What is it?", "The 12 of them", "th\u00e9 [INST] and", " spaced  out\n\n"]
    content = [dict(audio=sound()) for _ in range(r.choice([1, 1, 2]))] + [dict(type="text", text=r.choice(words))]
    r.shuffle(content)
    messages = [dict(role="user", content=content)]
    if r.random() < 0.4:
        messages += [dict(role="assistant", content=r.choice(["Yes.", "No, it is not. "])), dict(role="user", content=r.choice(words))]
    return dict(messages=messages)


def run_of(folder, bundle, case):
    """What ferry makes of a case: ids of the prompt, and tokens of the answer."""
    if "sound" in case:
        words = ["--language", case["language"]] if "language" in case else []
        made = common.Ferry("transcribe", bundle, folder / case["sound"], "--json", *words).ends_with(0).result
        return made["forced_tokens"], made["tokens"]
    messages = [dict(part, content=[dict(type="audio") if "audio" in item else item for item in part["content"]])
                if isinstance(part["content"], list) else part for part in case["messages"]]
    (folder / "chat.json").write_text(json.dumps(messages))
    words = [word for name in golden.sounds_of(case) for word in ("--audio", folder / name)]
    made = common.Ferry("run", bundle, "--messages", folder / "chat.json", "--greedy", "--json", *words).ends_with(0).result
    tokens = made["tokens"]
    return made["prompt_tokens"], tokens[:-1] if tokens and tokens[-1] == golden.END else tokens


def check_windows(folder, name):
    common.Ferry("preprocess", "--audio", folder / name, "--checkpoint", folder, "-o", folder / f"{name}.safetensors").ends_with(0)
    made = safetensors.numpy.load_file(folder / f"{name}.safetensors")["input_features"]
    wanted = golden.windows_of(folder, speech.samples_of(folder / name))
    if made.shape != wanted.shape:
        raise Wrong(f"{name}: {list(made.shape)}, the reference {list(wanted.shape)}")
    distance = float(np.abs(made - wanted).max())
    if distance > (BOUND if f"-{speech.RATE}-" in name else RESAMPLED):
        raise Wrong(f"{name}: frames differ by {distance:.3g}")
    return distance


def model(promise, number):
    r = random.Random(f"{promise.seed} voxtral {number}")
    folder = promise.folder / f"voxtral-{number}"
    folder.mkdir()
    dtype = r.choice([torch.float32, torch.bfloat16])
    made = golden.make_model(folder, number, drawn_config(r), dtype, max_new_tokens=8)
    case = drawn_case(r, folder)
    case["ids"] = golden.ids_of(folder, folder, case)
    distance = max((check_windows(folder, name) for name in golden.sounds_of(case)), default=0.0)
    style = r.choice([[], ["--shards", str(r.randint(1, made.config.text_config.num_hidden_layers))], ["--layout", "one-program"],
                      ["--prefill-length", "3"], ["--program", "static"], ["--kv-dtype", "f16"]])
    common.convert(folder, folder / "bundle", "--dtype", "f32", *style)
    names = golden.sounds_of(case)
    if len(names) == 1:
        prove(folder, case, names[0])
    wanted = golden.answer(made, folder, folder, case, 8)
    ids, tokens = run_of(folder, folder / "bundle", case)
    if ids != case["ids"]:
        raise Wrong(f"ids {ids[:9]} ... {ids[-9:]}, the reference {case['ids'][:9]} ... {case['ids'][-9:]}")
    if tokens != wanted and "f16" not in style:
        raise Wrong(f"tokens {tokens}, the reference {wanted}")
    return f"{', '.join(names) or 'no sound'}: {len(ids)} ids, {len(wanted)} tokens, frames within {distance:.2g}, {' '.join(style) or 'plain'}"


def prove(folder, case, name):
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    prompts.write_text(json.dumps(dict(audio=name, tokens=case["ids"])) + "\n")
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "-q"]):
        raise Wrong("there is no reference")
    proof = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", out)
    if proof.code:
        raise Wrong(f"verify exits {proof.code}: {proof.why if proof.code > 1 else common.first_difference(proof.result)}")


def texts(promise, number):
    """Ids of texts, and texts of ids."""
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    r = random.Random(f"{promise.seed} tekken {number}")
    folder = promise.folder / f"tekken-{number}"
    folder.mkdir()
    golden.tekken(folder, 50, 4)
    theirs = MistralTokenizer.from_file(str(folder / "tekken.json")).instruct_tokenizer.tokenizer
    pieces = ["the", "and", " thing", "1234", "\u00e9", "\u4e2d", "[INST]", "<s>", "\n\n", "  ", "'s", "\U0001f600", "Ab", "XYZ", "!?", "\t"]
    lines = ["".join(r.choice(pieces) for _ in range(r.randint(1, 12))) for _ in range(200)]
    stdin = "".join(json.dumps(text) + "\n" for text in lines).encode()
    made = common.Ferry("tokenize", folder, "--add-special", stdin=stdin).ends_with(0).out.splitlines()
    for text, line in zip(lines, made, strict=True):
        ids, wanted = json.loads(line), theirs.encode(text, bos=True, eos=False)
        if ids != wanted:
            raise Wrong(f"{text!r}: {ids}, the reference {wanted}")
        (back,) = common.Ferry("tokenize", folder, "--decode", stdin=line + b"\n").ends_with(0).out.splitlines() if text == lines[0] else [None]
        if back is not None and json.loads(back) != "<s>" + text:
            raise Wrong(f"{text!r}: decoded as {back}")
    return f"{len(lines)} texts"


def main():
    promise = common.Promise(__doc__)
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    for number in range(2 if promise.sample else 6):
        promise.case(f"texts {number}", texts, promise, number)
    for number in range(4 if promise.sample else 30):
        promise.case(f"voxtral {number}", model, promise, number)
    promise.finish()


if __name__ == "__main__":
    main()
