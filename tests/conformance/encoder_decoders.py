"""Random encoder-decoders are converted right: every stage of encoder and decoder, and the tokens of generate().

A case draws the config of a T5, mT5, UMT5, Marian or T5Gemma, weights, which tables the checkpoint stores, and what the generation
config says. Adapters of peft are merged as peft merges them. `python -m ferry.reference` makes the reference, `ferry verify` proves every stage with options that are drawn too, and
`ferry run` gives the tokens of generate(). Cases of words train models of SentencePiece for a MarianTokenizer; ids and decoded texts
are those of transformers.

    python3 tests/conformance/encoder_decoders.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import json
import random

import common
import make_speech_golden as golden  # it imports torch and transformers
import safetensors.torch
import torch
import transformers
from common import Wrong
from ferry import reference

PAD, END, START, BEGIN = 0, 1, 0, 2
VOCABULARY = 90


def t5(r, kind):
    """A random T5, mT5 or UMT5."""
    cls = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}[kind]
    layers = r.choice([1, 2, 3])
    buckets = r.choice([4, 7, 8, 12, 32])
    projection = r.choice(["relu", "relu", "gated-gelu", "gated-gelu", "gated-silu", "silu", "gelu", "gated-relu", "gelu_new"])
    config = getattr(transformers, f"{cls}Config")(
        vocab_size=VOCABULARY, d_model=r.choice([16, 24, 40]), d_kv=r.choice([4, 8, 14]), d_ff=r.choice([20, 36]), num_layers=layers,
        num_decoder_layers=r.choice([None, 1, 2, 4]), num_heads=r.choice([1, 2, 3]), relative_attention_num_buckets=buckets,
        relative_attention_max_distance=r.choice([buckets // 2 + 1, 20, 24, 128]), feed_forward_proj=projection,
        layer_norm_epsilon=r.choice([1e-6, 1e-5]), pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=START,
        **r.choice([{}, {}, dict(tie_word_embeddings=False)]))
    return getattr(transformers, f"{cls}ForConditionalGeneration"), config


def marian(r, kind):
    """A random Marian."""
    width = r.choice([12, 24, 40])
    heads = [count for count in (1, 2, 3, 4) if width % count == 0]
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY, d_model=width, max_position_embeddings=r.choice([48, 64]), encoder_layers=r.choice([1, 2, 3]),
        decoder_layers=r.choice([1, 2, 4]), encoder_ffn_dim=r.choice([10, 36]), decoder_ffn_dim=r.choice([10, 36]),
        encoder_attention_heads=r.choice(heads), decoder_attention_heads=r.choice(heads), scale_embedding=r.random() < 0.5,
        activation_function=r.choice(["swish", "relu", "gelu"]), pad_token_id=VOCABULARY - 1, eos_token_id=END,
        forced_eos_token_id=None, decoder_start_token_id=START)
    return transformers.MarianMTModel, config


def gemma_part(r, least):
    """What the config of the encoder or the decoder of a T5Gemma may say."""
    heads, layers = r.choice([1, 2, 4]), r.choice([1, 2, 3])
    more = r.choice([{}, {}, dict(layer_types=r.choices(["sliding_attention", "full_attention"], k=layers)),
                     dict(rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=3.0)), dict(head_dim=heads * 6)])
    return {**dict(vocab_size=VOCABULARY, hidden_size=heads * r.choice([8, 10, 12]), intermediate_size=r.choice([20, 36]),
                   num_hidden_layers=layers, num_attention_heads=heads, head_dim=r.choice([4, 6, 14]),
                   num_key_value_heads=r.choice([count for count in (1, 2, 4) if heads % count == 0]),
                   sliding_window=r.choice([least, 2, 5, 9, 4096]), query_pre_attn_scalar=r.choice([3, 16, 256]),
                   attn_logit_softcapping=r.choice([None, 0.7, 50.0]), final_logit_softcapping=r.choice([None, 2.0, 30.0]),
                   attention_bias=r.random() < 0.3, hidden_activation=r.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "gelu", "silu"]),
                   rms_norm_eps=r.choice([1e-6, 1e-5]), max_position_embeddings=r.choice([64, 128]), pad_token_id=PAD, eos_token_id=END,
                   bos_token_id=BEGIN), **more}


def t5gemma(r, kind):
    """A random T5Gemma, whose encoder and decoder have sizes of their own. With a window of one token the cache of transformers forgets
    nothing."""
    config = transformers.T5GemmaConfig(encoder=gemma_part(r, 1), decoder=gemma_part(r, 2), vocab_size=VOCABULARY,
                                        **r.choice([{}, {}, dict(tie_word_embeddings=False)]))
    return transformers.T5GemmaForConditionalGeneration, config


DRAWN = {"t5": t5, "mt5": t5, "umt5": t5, "marian": marian, "t5gemma": t5gemma}


def start_of(kind):
    """The token that the decoder of such a model begins with. T5Gemma masks PAD where there is no cache."""
    return BEGIN if kind == "t5gemma" else START


def generation(r, kind):
    """What a generation config may say of the tokens."""
    more = r.choice([{}, {}, dict(bad_words_ids=[[5], [7, 9], [END]]), dict(forced_eos_token_id=END),
                     dict(forced_bos_token_id=11), dict(suppress_tokens=[3, 4, 60]), dict(begin_suppress_tokens=[END, 17]),
                     dict(forced_bos_token_id=11, begin_suppress_tokens=[11, 20]), dict(eos_token_id=[END, 30, 31]),
                     dict(repetition_penalty=1.4), dict(bad_words_ids=[[i, j] for i in range(2, 40) for j in (2, 40, 41)])])
    length = r.choice([dict(max_length=r.choice([3, 14, 20])), dict(max_new_tokens=r.choice([1, 7, 15]))])
    start = dict(bos_token_id=BEGIN) if kind == "t5gemma" else dict(decoder_start_token_id=START)
    return transformers.GenerationConfig(**{**dict(pad_token_id=PAD, eos_token_id=END), **start, **length, **more})


def store_head(r, folder):
    """A checkpoint of T5Gemma may store the head beside the table of the decoder or in its place."""
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    table, head = "model.decoder.embed_tokens.weight", "lm_head.out_proj.weight"
    if head in weights:
        return ["a head of its own"]
    how = r.choice(["equal head", "other head", "head alone"])
    weights[head] = weights[table].clone()
    if how == "other head":
        weights[head] += torch.randn_like(weights[head].float()).to(weights[head].dtype) * 0.2
    if how == "head alone":
        del weights[table]
    safetensors.torch.save_file(weights, path, {"format": "pt"})
    return [how]


def store_tables(r, folder):
    """A checkpoint may store the tables of encoder, decoder and head, equal to the shared one or other ones."""
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    shared = next(name for name in weights if name.endswith("shared.weight"))
    prefix = shared[:-len("shared.weight")]
    names = {f"{prefix}encoder.embed_tokens.weight", f"{prefix}decoder.embed_tokens.weight", "lm_head.weight"}
    said = []
    for name in sorted(names):
        how = r.choice(["absent", "absent", "equal", "other"])
        if how != "absent":
            weights[name] = weights[shared].clone()
            said.append(f"{how} {name}")
        if how == "other":
            weights[name] += torch.randn_like(weights[name].float()).to(weights[name].dtype) * 0.2
    # The positions of Marian, which are sines where they are not stored, and its bias, which is zeros then.
    if prefix and r.random() < 0.5:
        for part in r.choice([["encoder"], ["decoder"], ["encoder", "decoder"]]):
            size = weights[shared].shape[1], json.loads((folder / "config.json").read_text())["max_position_embeddings"]
            weights[f"{prefix}{part}.embed_positions.weight"] = torch.randn(size[1], size[0])
            said.append(f"positions of the {part}")
    if "final_logits_bias" in weights:
        if r.random() < 0.3:
            del weights["final_logits_bias"]
            said.append("no bias")
        else:
            weights["final_logits_bias"] = torch.randn_like(weights["final_logits_bias"].float()) * 0.3
    safetensors.torch.save_file(weights, path, {"format": "pt"})
    return said


def make(r, folder, kind, seed):
    """Saves a random checkpoint; returns the model that transformers reads of it."""
    cls, config = DRAWN[kind](r, kind)
    torch.manual_seed(seed)
    model = cls(config).eval()
    golden.randomise(model)
    model = model.to(r.choice([torch.float32, torch.bfloat16]))
    model.generation_config = generation(r, kind)
    model.save_pretrained(folder)
    store = store_head if kind == "t5gemma" else store_tables
    said = store(r, folder) if r.random() < 0.5 else []
    return cls.from_pretrained(folder, dtype=torch.float32).eval(), said


def style_of(r, layers):
    return r.choice([[], [], ["--shards", str(r.randint(1, layers))], ["--layout", "one-program"], ["--prefill-length", "2"],
                     ["--logits", "all"], ["--max-source", "40"], ["--context-length", "30"], ["--kv-dtype", "f16"],
                     ["--kv-dtype", "i8"], ["--quantize", "8da8w"], ["--quantize", "8da4w", "--quantize-embedding", "8"],
                     ["--dtype", "bf16"], ["--dtype", "f16"]])


def layers_of(config):
    if config.model_type == "t5gemma":
        return config.decoder.num_hidden_layers
    return getattr(config, "num_decoder_layers", None) or config.decoder_layers


def proved(folder, bundle, out):
    proof = common.verify(bundle, "--checkpoint", folder, "--reference", out)
    if proof.code:
        raise Wrong(f"verify exits {proof.code}: {proof.why if proof.code > 1 else common.first_difference(proof.result)}")


def answer(model, ids):
    """Tokens of generate() behind the start. Its cache has as many layers as the encoder, but that of T5Gemma, which masks PAD
    without one."""
    caches = model.config.model_type == "t5gemma"
    given = torch.tensor([ids])
    made = model.generate(given, attention_mask=torch.ones_like(given), use_cache=caches, do_sample=False, num_beams=1)[0].tolist()[1:]
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    first = next((i for i, token in enumerate(made) if token in ends), None)
    return made if first is None else made[:first + 1]


def case(promise, kind, number):
    r = random.Random(f"{promise.seed} {kind} {number}")
    folder = promise.folder / f"{kind}-{number}"
    folder.mkdir()
    model, said = make(r, folder, kind, number)
    texts = [[r.randrange(2, VOCABULARY) for _ in range(count)] for count in (1, r.choice([5, 23]), r.choice([31, 40]))]
    firsts = [[start_of(kind)] + [r.randrange(2, VOCABULARY) for _ in range(r.choice([0, 0, 3, 9]))] for _ in texts]
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(dict(source=text, tokens=first)) + "\n" for text, first in zip(texts, firsts)))
    if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", "6", "-q"]):
        raise Wrong("there is no reference")
    style = style_of(r, layers_of(model.config))
    exact = [] if "--quantize" in style or "--dtype" in style else ["--dtype", "f32"]
    common.convert(folder, folder / "bundle", *exact, *style)
    proved(folder, folder / "bundle", out)
    common.convert(folder, folder / "plain", "--dtype", "f32")
    for text in texts:
        wanted = answer(model, text)
        run = common.Ferry("run", folder / "plain", "--tokens", ",".join(map(str, text)), "--json").ends_with(0)
        if run.result["tokens"] != wanted:
            raise Wrong(f"{said}: tokens {run.result['tokens'][:12]}, the reference {wanted[:12]}")
    return f"{' '.join(style) or 'plain'}{''.join(', ' + one for one in said)}"


MATRICES = {"t5": ("q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo"), "t5gemma": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")}


def adapted(promise, kind, number):
    """An adapter of peft for matrices of encoder and decoder, merged by `convert --lora` as peft merges it."""
    import peft
    r = random.Random(f"{promise.seed} adapter {kind} {number}")
    folder = promise.folder / f"adapter-{kind}-{number}"
    folder.mkdir()
    model, said = make(r, folder, kind, number)
    matrices = MATRICES.get(kind, MATRICES["t5"])
    some = r.sample(matrices, r.randint(2, len(matrices)))
    if kind != "t5gemma":  # an MLP has one of two forms
        some = [*{*some, r.choice(["q", "v"])}]
    adapter = peft.get_peft_model(model, peft.LoraConfig(r=r.choice([1, 3, 8]), lora_alpha=r.choice([4, 16]), target_modules=some,
                                                         task_type="SEQ_2_SEQ_LM", init_lora_weights=False, use_rslora=r.random() < 0.3))
    adapter.save_pretrained(folder / "adapter")
    merged = adapter.merge_and_unload().eval()
    if kind == "t5gemma" and not merged.config.tie_word_embeddings:  # transformers leaves a head out that is equal to the table
        merged.lm_head.out_proj.weight = torch.nn.Parameter(merged.lm_head.out_proj.weight.clone())
    merged.save_pretrained(folder / "merged")
    out, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    prompts.write_text(json.dumps(dict(source=[r.randrange(3, VOCABULARY) for _ in range(11)], tokens=[start_of(kind), 7, 12])) + "\n")
    if reference.main([str(folder / "merged"), "-o", str(out), "--prompts", str(prompts), "--max-new", "3", "-q"]):
        raise Wrong("there is no reference")
    common.convert(folder, folder / "bundle", "--dtype", "f32", "--lora", folder / "adapter")
    proof = common.verify(folder / "bundle", "--reference", out)
    if proof.code:
        raise Wrong(f"{said}: verify exits {proof.code}: {proof.why}")
    return f"{len(some)} kinds of matrices"


def sentencepiece_texts(r, texts):
    """Texts that a tokenizer of Marian may get: words, codes of languages, special tokens, blanks of every kind, any characters."""
    words = [word for text in texts for word in text.split()]

    def some(count):
        return [r.choice(words) for _ in range(count)]

    def characters():
        return "".join(chr(r.choice([r.randrange(32, 127), r.randrange(160, 1000), r.randrange(0x3000, 0x3100), r.randrange(0x1F300, 0x1F600),
                                     r.randrange(0xFF00, 0xFFEF), r.randrange(0x2000, 0x2070), r.randrange(0x300, 0x370)]))
                       for _ in range(r.randrange(1, 30)))
    kinds = [characters, lambda: r.choice([">>fra<< ", ">>deu<<", ">>xx<< ", ">>", ">><<", "a >>fra<< ", ">>a b<<"]) + " ".join(some(6)),
             lambda: r.choice(["  ", "\t", " \u3000 ", ""]) + "  ".join(some(5)) + r.choice(["  ", "", " \t"]),
             lambda: " ".join(r.choice(words + ["</s>", "<unk>", "<pad>", "</s>x", "<s>"]) for _ in range(8)),
             lambda: " ".join(some(r.randrange(1, 60)))]
    return [text for text in (r.choice(kinds)() for _ in range(1500)) if not set(text) & set("\n\r")]


def marian_words(promise, number):
    """Ids and texts of a MarianTokenizer with models that SentencePiece has just trained."""
    import sentencepiece
    r = random.Random(f"{promise.seed} words {number}")
    folder = promise.folder / f"words-{number}"
    folder.mkdir()
    lines = [line for path in sorted((common.ROOT / "docs").glob("*.md")) for line in path.read_text().split("\n") if len(line) > 20]
    lines = r.sample(lines, 1500)
    options = dict(normalization_rule_name=r.choice(["nmt_nfkc", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "identity"]),
                   add_dummy_prefix=r.random() < 0.8, remove_extra_whitespaces=r.random() < 0.8, character_coverage=r.choice([0.98, 0.9995]))
    for name in ("source", "target"):
        (folder / "lines.txt").write_text("\n".join(lines if name == "source" else [line[::-1] for line in lines]))
        sentencepiece.SentencePieceTrainer.train(input=str(folder / "lines.txt"), model_prefix=str(folder / name),
                                                 vocab_size=r.choice([300, 800]), model_type="unigram", minloglevel=2, **options)
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    models = [sentencepiece.SentencePieceProcessor(str(folder / f"{name}.spm")) for name in ("source", "target")]
    pieces = sorted({m.id_to_piece(i) for m in models for i in range(m.get_piece_size())} - {"<s>", "</s>", "<unk>", "<pad>"})
    r.shuffle(pieces)
    words = ["</s>", "<unk>"] + pieces[r.choice([0, 30]):] + [">>fra<<", ">>deu<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="MarianTokenizer", source_lang="en", target_lang="fr")))
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    texts = sentencepiece_texts(r, lines)
    made = common.Ferry("tokenize", folder, "--add-special", stdin="".join(json.dumps(text) + "\n" for text in texts).encode()).ends_with(0)
    for text, ids in zip(texts, map(json.loads, made.out.splitlines()), strict=True):
        if ids != tokenizer(text).input_ids:
            raise Wrong(f"{options}: {text!r}: {tokenizer.convert_ids_to_tokens(ids)[:20]}, the reference {tokenizer.tokenize(text)[:20]}")
    for skips in (False, True):
        rows = [[r.choice([0, 1, len(words) - 1, r.randrange(len(words)), token, token]) for token in tokenizer(text).input_ids]
                for text in texts[:500]]
        made = common.Ferry("tokenize", folder, "--decode", *["--skip-special"] * skips,
                            stdin="".join(json.dumps(row) + "\n" for row in rows).encode()).ends_with(0)
        for row, text in zip(rows, map(json.loads, made.out.splitlines()), strict=True):
            if text != tokenizer.decode(row, skip_special_tokens=skips):
                raise Wrong(f"{options}: {row}: {text!r}, the reference {tokenizer.decode(row, skip_special_tokens=skips)!r}")
    return f"{len(texts)} texts, {options}"


def main():
    promise = common.Promise(__doc__)
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    for kind in DRAWN:
        for number in range(3 if promise.sample else 25):
            promise.case(f"{kind} {number}", case, promise, kind, number)
    for kind in ("t5", "mt5", "umt5", "t5gemma"):
        for number in range(1 if promise.sample else 6):
            promise.case(f"adapter of {kind} {number}", adapted, promise, kind, number)
    for number in range(2 if promise.sample else 12):
        promise.case(f"words {number}", marian_words, promise, number)
    promise.finish()


if __name__ == "__main__":
    main()
