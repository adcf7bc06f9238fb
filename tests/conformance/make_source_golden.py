"""Makes the fixtures of encoder-decoders: tiny random checkpoints with tokenizers, references, and answers of generate().

    python tests/conformance/make_source_golden.py [NAME...]

Writes testdata/source/NAME and the keys of the model (testdata/families/NAME). A second run writes the same. Needs torch and
transformers 5.23 (environment.sh).
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import make_golden  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402

TEXTS = ["translate: The sea is blue.", "Why do ships float?", "one two three four five six seven eight nine ten",
         "  Two  spaces, and é ", ">>fra<< The sea"]
WORDS = ["the sea is blue", "ships float on the water", "why do they", "translate two three four five six seven eight nine ten one"]
VOCABULARY, START, END, PAD = 120, 0, 1, 0
GEMMA_VOCABULARY, GEMMA_START = 82, 2


def t5_tokenizer(folder):
    """A Unigram of a few words, in the form of T5's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    pieces = sorted({piece for line in WORDS for word in line.split()
                     for piece in ("▁" + word, word[:2], word[-2:], *word, "▁")})
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(piece, -1.0 - 0.01 * i - 1.0 / len(piece)) for i, piece in enumerate(pieces)]
    vocab = vocab[:VOCABULARY - 4]
    made = Tokenizer(models.Unigram(vocab, unk_id=2))
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    made.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>",
                                         unk_token="<unk>").save_pretrained(folder)


def t5_pieces(folder):
    """A SentencePiece model of T5's kind, and what transformers makes of it."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    lines, rules = folder / "lines.txt", folder / "rules.tsv"
    lines.write_text("\n".join((WORDS + TEXTS) * 4))
    rules.write_text("9\t20\nA0\t20\n3000\t20\nFB01\t66 69\n")  # a few of the rules of nmt_nfkc, which are 240 kB
    sentencepiece.SentencePieceTrainer.train(
        input=str(lines), model_prefix=str(folder / "spiece"), vocab_size=80, model_type="unigram", character_coverage=1.0, num_threads=1,
        hard_vocab_limit=False, normalization_rule_tsv=str(rules), minloglevel=2, pad_id=PAD, eos_id=END, unk_id=2, bos_id=-1)
    model = sentencepiece_model_pb2.ModelProto.FromString((folder / "spiece.model").read_bytes())
    for member in ("input", "model_prefix"):  # paths of this machine
        model.trainer_spec.ClearField(member)
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    (folder / "spiece.model").write_bytes(model.SerializeToString())
    for path in (lines, rules, folder / "spiece.vocab"):
        path.unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="T5Tokenizer", extra_ids=0)))
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def gemma_bytes(letters):
    """The bytes of TEXTS that are in no letter."""
    return sorted({byte for text in TEXTS for letter in text if letter not in [*letters, " "] for byte in letter.encode()})


def gemma_tokenizer(folder):
    """A BPE of a few words with bytes, in the form of Gemma's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    words = ["▁" + word for line in WORDS for word in line.split()]
    letters = sorted({letter for word in words for letter in word})
    vocab = special + [f"<0x{byte:02X}>" for byte in gemma_bytes(letters)] + letters
    merges = []
    for word in dict.fromkeys(words):
        for end in range(2, min(len(word), 4) + 1):
            pair = word[:end - 1], word[end - 1]
            if pair not in merges and word[:end] not in vocab:
                merges.append(pair)
                vocab.append(word[:end])
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(vocab)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", 2)])
    made.add_special_tokens(special)
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>",
                                         unk_token="<unk>").save_pretrained(folder)
    return made.get_vocab_size()


def marian_tokenizer(folder):
    """SentencePiece models of a few words, and a vocabulary that numbers the pieces of both otherwise."""
    import sentencepiece
    sizes = {}
    for name, lines in (("source", WORDS + TEXTS), ("target", [line[::-1] for line in WORDS])):
        text = folder / f"{name}.txt"
        text.write_text("\n".join(lines * 4))
        rules = folder / "rules.tsv"  # a few of the rules of nmt_nfkc, which are 240 kB
        rules.write_text("".join(f"{a}\t{b}\n" for a, b in (("9", "20"), ("A0", "20"), ("3000", "20"), ("FB01", "66 69"), ("AD", ""),
                                                            ("65 301", "E9"), ("FF54", "74"))))
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / name), vocab_size=60, model_type="unigram", character_coverage=1.0,
            hard_vocab_limit=False, normalization_rule_tsv=str(rules), minloglevel=2, num_threads=1)
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        (folder / f"{name}.vocab").unlink()
        text.unlink()
        rules.unlink()
        model = sentencepiece.SentencePieceProcessor(str(folder / f"{name}.spm"))
        sizes[name] = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    pieces = sorted({piece for both in sizes.values() for piece in both} - {"<s>", "</s>", "<unk>"})
    pieces = pieces[1:VOCABULARY - 4]  # one piece is not in the vocabulary
    words = ["</s>", "<unk>"] + pieces + [">>fra<<", "<pad>"]
    words[-1:-1] = [f"unused{i}" for i in range(VOCABULARY - len(words))]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}, ensure_ascii=False, indent=0) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        dict(tokenizer_class="MarianTokenizer", source_lang="en", target_lang="fr", model_max_length=512), indent=1) + "\n")


def marian_config():
    return transformers.MarianConfig(
        vocab_size=VOCABULARY, d_model=24, max_position_embeddings=64, encoder_layers=2, decoder_layers=3, encoder_ffn_dim=40,
        decoder_ffn_dim=36, encoder_attention_heads=4, decoder_attention_heads=3, scale_embedding=True, activation_function="swish",
        pad_token_id=VOCABULARY - 1, eos_token_id=0, decoder_start_token_id=VOCABULARY - 1, forced_eos_token_id=None)


def t5gemma_config():
    """Encoder and decoder of other sizes, windows shorter than the texts, and softcaps that matter."""
    common = dict(vocab_size=GEMMA_VOCABULARY, max_position_embeddings=64, attention_bias=True, attn_logit_softcapping=1.5)
    encoder = dict(common, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                   head_dim=6, sliding_window=3, query_pre_attn_scalar=5)
    decoder = dict(common, hidden_size=16, intermediate_size=28, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                   head_dim=10, sliding_window=4, query_pre_attn_scalar=8, final_logit_softcapping=4.0)
    return transformers.T5GemmaConfig(encoder=encoder, decoder=decoder, vocab_size=GEMMA_VOCABULARY)


def t5_config(cls, **more):
    usual = dict(d_model=24, d_ff=40, num_layers=2, num_decoder_layers=3, relative_attention_max_distance=20)
    return cls(vocab_size=VOCABULARY, d_kv=10, num_heads=3, relative_attention_num_buckets=8,
               pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=START, **{**usual, **more})


def randomise(model):
    """Weights that no initialisation makes equal or zero."""
    marian, gemma = (model.config.model_type == kind for kind in ("marian", "t5gemma"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:
                continue
            noise = torch.randn_like(weight)
            if gemma:
                weight.add_(noise * 0.2) if weight.dim() == 1 else weight.copy_(noise * (0.1 if "embed" in name else 0.4))
                continue
            if marian:
                weight.add_(noise * 0.3) if weight.dim() == 1 else weight.copy_(noise)
                continue
            size = 0.3 if "shared" in name else 1.0 if "bias" in name else 0.2 if ".q." in name else 0.6
            weight.add_(noise * 0.1) if weight.dim() == 1 else weight.copy_(noise * size)


def add_head(folder):
    """A head of its own, which the class ties whatever its config says, unless the checkpoint has one."""
    from safetensors.torch import load_file, save_file
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = torch.randn_like(weights["shared.weight"].float()).to(torch.bfloat16) * 0.3
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


FIXTURES = {
    "t5": (transformers.T5ForConditionalGeneration, lambda: t5_config(transformers.T5Config), t5_tokenizer,
           dict(max_length=18, bad_words_ids=[[7]])),
    "t5_gated": (transformers.T5ForConditionalGeneration,
                 lambda: t5_config(transformers.T5Config, feed_forward_proj="gated-gelu", tie_word_embeddings=False, d_model=32, d_ff=64,
                                   num_layers=3, num_decoder_layers=2, relative_attention_max_distance=128), t5_pieces, dict(max_new_tokens=14)),
    "umt5": (transformers.UMT5ForConditionalGeneration, lambda: t5_config(transformers.UMT5Config, feed_forward_proj="gated-gelu"),
             t5_tokenizer, dict(max_new_tokens=15, forced_eos_token_id=END)),
    "t5gemma": (transformers.T5GemmaForConditionalGeneration, t5gemma_config, gemma_tokenizer,
                dict(max_new_tokens=12, decoder_start_token_id=None, bos_token_id=GEMMA_START, suppress_tokens=[PAD, *range(4, 15)])),
    "marian": (transformers.MarianMTModel, marian_config, marian_tokenizer,
               dict(max_length=16, bad_words_ids=[[VOCABULARY - 1]], forced_eos_token_id=0, eos_token_id=0, pad_token_id=VOCABULARY - 1,
                    decoder_start_token_id=VOCABULARY - 1)),
}


def answers(model, folder):
    """What generate() answers by each text, greedily. Its cache has as many layers as the encoder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    made = []
    for text in TEXTS:
        given = tokenizer(text, return_tensors="pt")
        out = model.generate(given.input_ids, use_cache=False, num_beams=1)[0].tolist()[1:]
        made.append(dict(text=text, source=given.input_ids[0].tolist(), tokens=out,
                         answer=tokenizer.decode(out, skip_special_tokens=True)))
    return made


EDGES = ["", " ", "  the  sea ", "\tthe\u3000sea\u00a0", "\ufb01ve", "e\u0301", "\uff54en", "\u00ad", "the\u00adsea", "\u2581", "\u2581\u2581 sea", ">>fra<<",
         ">>fra<< ", ">>fra<<the", ">>xx<< sea", ">> sea", ">>a b<< sea", "the >>fra<< sea", "<unk>", "the</s>sea", "</s> the", "<pad> sea <pad>",
         "<s> the", "sea\u4e2d\u6587sea", "\U0001f600 two", "\u4e2d \u6587", "seaseasea", "thethe tenten"]


def write_texts(folder):
    """Ids of texts, and texts of ids, by MarianTokenizer."""
    import random
    tokenizer, r = transformers.AutoTokenizer.from_pretrained(folder), random.Random(1)
    texts = EDGES + TEXTS + ["".join(r.choice([*"seahtwon fiv.?-", " ", "\u2581", "\u00e9"]) for _ in range(r.randrange(1, 40))) for _ in range(40)]
    rows = [dict(text=text, ids=tokenizer(text).input_ids) for text in texts]
    for _ in range(40):
        ids = [r.choice([0, 1, VOCABULARY - 1, r.randrange(VOCABULARY), r.randrange(VOCABULARY)]) for _ in range(r.randrange(1, 12))]
        rows.append(dict(ids=ids))
    for row in rows:
        row.update(whole=tokenizer.decode(row["ids"]), plain=tokenizer.decode(row["ids"], skip_special_tokens=True))
    (folder / "texts.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def make(name):
    cls, config, tokenizer, generation = FIXTURES[name]
    folder = ROOT / "testdata/source" / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(folder)
    for seed in range(40):
        torch.manual_seed(seed)
        model = cls(config()).eval()
        randomise(model)
        if name == "marian":
            model.final_logits_bias = torch.randn_like(model.final_logits_bias) * 0.1
        model = model.to(torch.bfloat16)
        model.generation_config = transformers.GenerationConfig(
            **{**dict(decoder_start_token_id=START, eos_token_id=END, pad_token_id=PAD), **generation})
        model.save_pretrained(folder)
        if name == "t5_gated":
            add_head(folder)
        made = answers(cls.from_pretrained(folder, dtype=torch.float32).eval(), folder)
        varied = sum(len(set(case["tokens"])) > 3 for case in made)
        print(f"seed {seed}: {varied} varied answers of {[len(case['tokens']) for case in made]} tokens", flush=True)
        if varied >= (0 if name == "marian" else 3) and len({tuple(case["tokens"]) for case in made}) == len(made):
            break
    else:
        sys.exit("make_source_golden.py: no seed gives different answers")
    (folder / "answers.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    golden, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    golden.unlink(missing_ok=True)
    said = model.generation_config
    start = said.bos_token_id if said.decoder_start_token_id is None else said.decoder_start_token_id
    rows = [dict(source=case["source"], tokens=[start] + case["tokens"][:6], name=f"text{i}")
            for i, case in enumerate(made[:2])]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if reference.main([str(folder), "-o", str(golden), "--prompts", str(prompts), "--max-new", "6", "--no-f64", "-q"]):
        sys.exit("make_source_golden.py: there is no reference")
    prompts.unlink()
    if name == "marian":
        write_texts(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    if name != "t5_gated":  # whose head the class does not need
        make_golden.list_keys(folder, ROOT / "testdata/families" / name)


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    for name in sys.argv[1:] or FIXTURES:
        make(name)


if __name__ == "__main__":
    main()
