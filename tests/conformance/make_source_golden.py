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
         "  Two  spaces, and é "]
WORDS = ["the sea is blue", "ships float on the water", "why do they", "translate two three four five six seven eight nine ten one"]
VOCABULARY, START, END, PAD = 120, 0, 1, 0


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


def t5_config(cls, **more):
    return cls(vocab_size=VOCABULARY, d_model=24, d_kv=10, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3,
               relative_attention_num_buckets=8, relative_attention_max_distance=20, pad_token_id=PAD, eos_token_id=END,
               decoder_start_token_id=START, **more)


def randomise(model):
    """Weights that no initialisation makes equal or zero."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            size = 0.3 if "shared" in name else 1.0 if "bias" in name else 0.2 if ".q." in name else 0.6
            weight.add_(noise * 0.1) if weight.dim() == 1 else weight.copy_(noise * size)


FIXTURES = {
    "t5": (transformers.T5ForConditionalGeneration, lambda: t5_config(transformers.T5Config), t5_tokenizer,
           dict(max_length=18, bad_words_ids=[[7]])),
    "umt5": (transformers.UMT5ForConditionalGeneration, lambda: t5_config(transformers.UMT5Config, feed_forward_proj="gated-gelu"),
             t5_tokenizer, dict(max_new_tokens=15, forced_eos_token_id=END)),
}


def answers(model, folder):
    """What generate() answers by each text, greedily. Its cache has as many layers as the encoder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    made = []
    for text in TEXTS:
        given = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        out = model.generate(**given, use_cache=False, num_beams=1)[0].tolist()[1:]
        made.append(dict(text=text, source=given.input_ids[0].tolist(), tokens=out,
                         answer=tokenizer.decode(out, skip_special_tokens=True)))
    return made


def make(name):
    cls, config, tokenizer, generation = FIXTURES[name]
    folder = ROOT / "testdata/source" / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(folder)
    for seed in range(40):
        torch.manual_seed(seed)
        model = cls(config()).eval()
        randomise(model)
        model = model.to(torch.bfloat16)
        model.generation_config = transformers.GenerationConfig(
            **{**dict(decoder_start_token_id=START, eos_token_id=END, pad_token_id=PAD), **generation})
        model.save_pretrained(folder)
        made = answers(cls.from_pretrained(folder, dtype=torch.float32).eval(), folder)
        varied = sum(len(set(case["tokens"])) > 3 for case in made)
        print(f"seed {seed}: {varied} varied answers of {[len(case['tokens']) for case in made]} tokens", flush=True)
        if varied >= 3 and len({tuple(case["tokens"]) for case in made}) == len(made):
            break
    else:
        sys.exit("make_source_golden.py: no seed gives different answers")
    (folder / "answers.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    golden, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    golden.unlink(missing_ok=True)
    rows = [dict(source=case["source"], tokens=[model.generation_config.decoder_start_token_id] + case["tokens"][:6], name=f"text{i}")
            for i, case in enumerate(made[:2])]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if reference.main([str(folder), "-o", str(golden), "--prompts", str(prompts), "--max-new", "6", "--no-f64", "-q"]):
        sys.exit("make_source_golden.py: there is no reference")
    prompts.unlink()
    for path in folder.iterdir():
        path.chmod(0o644)
    make_golden.list_keys(folder, ROOT / "testdata/families" / name)


def main():
    transformers.utils.logging.set_verbosity(60)
    torch.set_grad_enabled(False)
    for name in sys.argv[1:] or FIXTURES:
        make(name)


if __name__ == "__main__":
    main()
