"""A real trained model, end to end: SmolLM2-135M-Instruct with its tokenizer, chat template and text.

- `verify` proves right bundles of every precision and style (exit code 0), also of long English prompts in f32.
- Of a quantised bundle outputs alone prove too little: `verify` with a reference alone does not exit with 0.
- Tokens, chats, perplexity and greedy answers are those of transformers.
- With keys and values in fewer bits the perplexity is that of transformers with a cache that rounds as `kernels/cache_codes.h` says.
"""
import json
import random
import sys

import common
from common import Ferry, Wrong, convert, first_difference, verify

BUNDLES = {
    "f32": ["--dtype", "f32"],
    "bf16": ["--dtype", "bf16"],
    "f16": ["--dtype", "f16"],
    "two shards": ["--dtype", "f32", "--shards", "2"],
    "static": ["--dtype", "f32", "--program", "static", "--context-length", "256"],
    "8da4w": ["--quantize", "8da4w-g32", "--quantize-embedding", "8"],
    "8da8w": ["--quantize", "8da8w", "--quantize-embedding", "8"],
    "int8": ["--quantize", "int8", "--quantize-embedding", "8"],
}
SAMPLE = ("f32", "bf16", "8da4w")
QUANTISED = ("8da4w", "8da8w", "int8")


def main():
    promise = common.Promise(__doc__)
    import smollm2
    source = smollm2.folder()
    model, tokenizer = common.load(source), smollm2.tokenizer()
    prompts = smollm2.prompts(tokenizer)
    golden = common.reference(model, dict(list(prompts.items())[:1 if promise.sample else 3]), promise.folder / "golden.safetensors")

    for name in SAMPLE if promise.sample else BUNDLES:
        if promise.wanted(f"verify {name}") or name == "f32":
            bundle = convert(source, promise.folder / name.replace(" ", "-"), *BUNDLES[name])
        promise.case(f"verify {name}: checkpoint and reference", proved, bundle, "--checkpoint", source, "--reference", golden)
        if name in QUANTISED:
            promise.case(f"verify {name}: reference alone is no proof", not_proved, bundle, "--reference", golden)
    f32 = promise.folder / "f32"
    promise.case("verify f32: reference alone", proved, f32, "--reference", golden)
    for tokens in (512,) if promise.sample else (512, 2000):
        promise.case(f"verify f32: {tokens} tokens of English", long_prompt, promise, f32, model, tokenizer, tokens)

    promise.case("tokenizer", tokens_of_texts, f32, tokenizer, strings(promise))
    promise.case("chat template", chats, f32, tokenizer)
    promise.case("perplexity", perplexity, promise, f32, model, tokenizer)
    for bits in ("8", "4") if promise.sample else ("8", "8,4", "4"):
        promise.case(f"keys and values in {bits} bits", fewer_bits, promise, f32, model, tokenizer, bits)
    promise.case("greedy answers", greedy, f32, model, tokenizer, *((2, 24) if promise.sample else (20, 64)))
    promise.finish()


def proved(bundle, *options):
    ran = verify(bundle, *options)
    result = json.loads(ran.out)["result"] if ran.out else None
    if ran.code != 0:
        raise Wrong(f"verify exits {ran.code}, {first_difference(result) if result else ran.why}")
    return f"max_abs {result['metrics']['max_abs']:.2e}"


def not_proved(bundle, *options):
    ran = verify(bundle, *options)
    if ran.code == 0:
        raise Wrong("verify exits 0")
    return f"exit code {ran.code}"


def long_prompt(promise, bundle, model, tokenizer, tokens):
    """A prompt of as many tokens as a page of English, of several pages."""
    ids = tokenizer(common.english(tokens)).input_ids[:tokens]
    path = promise.folder / f"long-{tokens}.safetensors"
    common.reference(model, {"long": ids}, path, greedy=8, inner=False)
    remark = proved(bundle, "--reference", path)
    path.unlink()
    return remark


def strings(promise):
    """Prose, code, numbers, many scripts, white space, emoji, special tokens, and random mixtures of them."""
    pieces = common.english(400).split() + [
        "def f(x):\n    return x", "  ", "\t", "\n\n", "\r\n", "1234567", "3.14", "0x1F", "don't", "I'LL", "naïve", "Straße",
        "Привет мир", "你好,世界", "こんにちは", "안녕하세요", "مرحبا", "שלום", "नमस्ते", "👍🏽", "👨‍👩‍👧", "🇩🇪", "e\u0301", "\u00a0", "\u200b", "ﬁ",
        "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start", "https://example.org/a?b=c&d=%20", "A" * 50, "!!!???...", "$€£"]
    choose = random.Random(promise.seed)
    mixed = ["".join(choose.choice(pieces) + choose.choice(["", " ", " ", "  ", "\n"]) for _ in range(choose.randint(1, 12)))
             for _ in range(200 if promise.sample else 900)]
    return pieces + mixed


def tokens_of_texts(bundle, tokenizer, texts):
    """Ids of every text, and texts of these ids."""
    lines = "".join(json.dumps(text) + "\n" for text in texts).encode()
    ours = [json.loads(line) for line in Ferry("tokenize", bundle, stdin=lines).ends_with(0).out.splitlines()]
    theirs = [tokenizer(text).input_ids for text in texts]
    wrong = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    if wrong or len(ours) != len(theirs):
        raise Wrong(f"{len(wrong)} of {len(texts)} texts: {texts[wrong[0]]!r} is {ours[wrong[0]]}, expected {theirs[wrong[0]]}")
    lines = "".join(json.dumps(ids) + "\n" for ids in theirs).encode()
    ours = [json.loads(line) for line in Ferry("tokenize", bundle, "--decode", stdin=lines).ends_with(0).out.splitlines()]
    decoded = [tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in theirs]
    wrong = [i for i, (a, b) in enumerate(zip(ours, decoded)) if a != b]
    if wrong:
        raise Wrong(f"{len(wrong)} of {len(texts)} lists of ids: {theirs[wrong[0]]} is {ours[wrong[0]]!r}, expected {decoded[wrong[0]]!r}")
    return f"{len(texts)} texts, both ways"


def chats(bundle, tokenizer):
    """The template that the model came with, of chats with and without a system message, and of long ones."""
    user, answer, system = (lambda text, role=role: dict(role=role, content=text) for role in ("user", "assistant", "system"))
    messages = [[user("Hello")], [system("Be brief."), user("What is 2+2?")], [user("Hi"), answer("Hello!"), user("  Why? \n")],
                [system(""), user("x")], [user("<|im_end|> {{ 1 }} {% raw %}")],
                [item for i in range(8) for item in (user(f"Question {i}"), answer(f"Answer {i}"))]]
    asked = [dict(messages=m, add_generation_prompt=g) for m in messages for g in (True, False)]
    lines = "".join(json.dumps(a) + "\n" for a in asked).encode()
    ours = [json.loads(line) for line in Ferry("tokenize", bundle, "--chat", stdin=lines).ends_with(0).out.splitlines()]
    theirs = [tokenizer.apply_chat_template(a["messages"], tokenize=False, add_generation_prompt=a["add_generation_prompt"]) for a in asked]
    wrong = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    if wrong or len(ours) != len(theirs):
        raise Wrong(f"{len(wrong)} of {len(asked)} chats: {ours[wrong[0]]!r}, expected {theirs[wrong[0]]!r}")
    return f"{len(asked)} chats"


def perplexity(promise, bundle, model, tokenizer):
    """exp of the mean NLL in windows of 256 tokens with a stride of 128, as the documentation of transformers has it."""
    import torch
    window, stride = 256, 128
    text = common.english(200 if promise.sample else 800)
    (promise.folder / "text.txt").write_text(text)
    ours = Ferry("verify", bundle, "--perplexity", promise.folder / "text.txt", "--text", "--window", window, "--stride", stride,
                 "--json").ends_with(0).result["perplexity"]
    ours = ours["perplexity"] if isinstance(ours, dict) else ours
    ids, total, counted, end = torch.tensor([tokenizer(text).input_ids]), 0.0, 0, 0
    for begin in range(0, ids.shape[1], stride):
        stop = min(begin + window, ids.shape[1])
        with torch.no_grad():
            logits = model(ids[:, begin:stop]).logits[0, :-1].double()
        losses = torch.nn.functional.cross_entropy(logits, ids[0, begin + 1:stop], reduction="none")
        losses = losses[max(0, end - begin - 1):]
        total, counted, end = total + losses.sum().item(), counted + len(losses), stop
        if stop == ids.shape[1]:
            break
    theirs = float(torch.tensor(total / counted, dtype=torch.float64).exp())
    if not abs(ours - theirs) <= 1e-5 * theirs:
        raise Wrong(f"{ours}, transformers has {theirs}")
    return f"{ours:.6f}, transformers {theirs:.6f}"


def coded(rows, bits):
    """The numbers that codes of `bits` bits stand for, of rows of 64 values."""
    import torch
    turn = torch.ones(1, 1)
    while len(turn) < rows.shape[-1]:
        turn = torch.cat([torch.cat([turn, turn], 1), torch.cat([turn, -turn], 1)])
    turn = turn / len(turn) ** 0.5
    groups = (rows @ turn).unflatten(-1, (-1, 32))
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    scale = (largest.abs() / 127 if bits == 8 else largest / -8).half().float()
    codes = (groups / scale).round().clamp(-127, 127) if bits == 8 else (groups / scale).round().clamp(-8, 7)
    return (codes * scale).flatten(-2) @ turn


def fewer_bits(promise, bundle, model, tokenizer, bits):
    """Mean NLL and KL divergence of one window. Sums of transformers have another order, so that some codes differ: the NLL of both differs
    by the noise of so many tokens, the KL divergence by less."""
    import torch
    from transformers import DynamicCache
    text = common.english(150 if promise.sample else 600)
    (promise.folder / "short.txt").write_text(text)
    ids = torch.tensor([tokenizer(text).input_ids])
    ours = Ferry("verify", bundle, "--perplexity", promise.folder / "short.txt", "--text", "--window", ids.shape[1], "--kv-bits", bits,
                 "--against", bundle, "--json").ends_with(0).result
    of_keys, of_values = (int(n) for n in (bits.split(",") * 2)[:2])

    class Cache(DynamicCache):
        def update(self, keys, values, *more, **options):
            return super().update(coded(keys, of_keys), coded(values, of_values), *more, **options)

    with torch.no_grad():
        plain, rounded = (torch.log_softmax(model(ids, past_key_values=cache, use_cache=True).logits[0, :-1].double(), -1)
                          for cache in (DynamicCache(), Cache()))
    nll = -rounded.gather(1, ids[0, 1:, None]).mean().item()
    loss = (plain.exp() * (plain - rounded)).sum(-1).mean().item()
    noise = (2 * loss / (ids.shape[1] - 1)) ** 0.5
    if not (abs(ours["nll_mean"] - nll) <= 3 * noise and abs(ours["kl_mean"] - loss) <= 0.2 * loss):
        raise Wrong(f"NLL {ours['nll_mean']:.5f}, KL {ours['kl_mean']:.5f}; transformers has {nll:.5f} and {loss:.5f}")
    return f"NLL {ours['nll_mean']:.5f}, transformers {nll:.5f}; KL {ours['kl_mean']:.5f}, {loss:.5f}"


def greedy(bundle, model, tokenizer, count, length):
    """Answers of `run`, token by token; a tie of two logits in f32 may go either way."""
    import torch
    words, agreed = common.english(40 * count).split(), 0
    for i in range(count):
        ids = tokenizer(" ".join(words[40 * i:40 * i + 8 + i])).input_ids
        ours = Ferry("run", bundle, "--tokens", ",".join(map(str, ids)), "--max-new", length, "--ignore-eos", "--quiet",
                     "--json").ends_with(0).result["tokens"]
        answer = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                                max_new_tokens=length, eos_token_id=None, return_dict_in_generate=True, output_logits=True)
        theirs = answer.sequences[0, len(ids):].tolist()
        at = next((k for k, (a, b) in enumerate(zip(ours, theirs)) if a != b), length)
        if at < length:
            best = answer.logits[at][0].topk(2).values
            if best[0] - best[1] > 1e-3:
                raise Wrong(f"prompt {i}: token {at} is {ours[at]}, expected {theirs[at]} by {best[0] - best[1]:.1e}")
        agreed += at
    return f"{agreed} of {count * length} tokens"


if __name__ == "__main__":
    sys.exit(main())
