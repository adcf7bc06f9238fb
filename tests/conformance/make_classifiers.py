"""Makes testdata/classifier: tiny random classifiers, and what transformers computes of them.

    python tests/conformance/make_classifiers.py

Each folder has a checkpoint of f16, and golden.safetensors by `python -m ferry.reference`. Folders with a tokenizer have
answers.json too: what the pipelines of transformers, or CrossEncoder of sentence-transformers, answer. A second run writes the
same. Needs torch, transformers 5.23 and sentence-transformers (environment.sh).
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import models  # noqa: E402: it imports torch and transformers
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402

OUT = ROOT / "testdata" / "classifier"
BERT = dict(vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64)
DECODER = dict(vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=64, head_dim=8)
ENTITIES = {0: "O", 1: "B-PER", 2: "I-PER", 3: "LOC"}
DISTIL = dict(vocab_size=64, dim=24, hidden_dim=32, n_layers=2, n_heads=4, max_position_embeddings=64)
CASES = {
    "bert": ("BertForSequenceClassification", dict(BERT, num_labels=3)),
    "bert_tokens": ("BertForTokenClassification", dict(BERT, id2label=ENTITIES)),
    "roberta": ("RobertaForSequenceClassification", dict(BERT, num_labels=1, max_position_embeddings=66)),
    "mpnet": ("MPNetForSequenceClassification", dict(BERT, num_labels=2, max_position_embeddings=66)),
    "distilbert": ("DistilBertForSequenceClassification", dict(DISTIL, num_labels=3, problem_type="multi_label_classification")),
    "nomic_bert": ("NomicBertForSequenceClassification", dict(BERT, num_labels=1, problem_type="regression")),
    "deberta_v2": ("DebertaV2ForSequenceClassification", dict(
        BERT, num_labels=3, relative_attention=True, position_buckets=8, pos_att_type="p2c|c2p", type_vocab_size=2)),
    "modernbert": ("ModernBertForSequenceClassification", dict(
        BERT, num_labels=2, classifier_pooling="mean", classifier_bias=True, norm_bias=True, local_attention=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)),
    "modernbert_tokens": ("ModernBertForTokenClassification", dict(
        BERT, num_labels=3, classifier_activation="relu", local_attention=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2)),
    "eurobert": ("EuroBertForSequenceClassification", dict(DECODER, num_labels=3, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                                            mask_token_id=3)),
    "qwen3": ("Qwen3ForSequenceClassification", dict(DECODER, num_labels=2, pad_token_id=5, bos_token_id=1, eos_token_id=2)),
    "llama_tokens": ("LlamaForTokenClassification", dict(DECODER, num_labels=3)),
    "gpt2": ("GPT2ForSequenceClassification", dict(vocab_size=64, n_embd=24, n_layer=2, n_head=4, n_positions=64, num_labels=2,
                                                   bos_token_id=1, eos_token_id=2)),
}
TYPED = ("bert", "deberta_v2", "nomic_bert")
TEXTS = ["Mars is red.", "a bed, a cab", "Café 中 bad", "x"]
PAIRS = [["which planet is red?", "Mars is red."], ["a", "b a c"], ["a cab", "a bed and a cab and a bed and a cab"]]


def prompts_of(name):
    noise = torch.Generator().manual_seed(7)
    for label, count in (("short", 9), ("long", 33)):
        ids = torch.randint(6, 64, (count,), generator=noise).tolist()
        if name == "qwen3" and label == "long":
            ids[-2:] = [5, 5]  # the padding token
        row = dict(name=label, tokens=ids)
        if name in TYPED:
            row["types"] = [0] * (count // 3) + [1] * (count - count // 3)
        yield json.dumps(row)


def record(folder, name):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(prompts_of(name)))
        file.flush()
        out = folder / "golden.safetensors"
        out.unlink(missing_ok=True)
        if reference.main([str(folder), "-o", str(out), "--prompts", file.name, "-q"]):
            sys.exit("make_classifiers.py: there is no reference")


def with_tokenizer(folder, **more):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "testdata" / "encoder" / "bert" / name, folder)
    if more:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(more))


def plain(value):
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def answers(folder, name):
    """What a user of the checkpoint gets."""
    kept = {}
    if name == "bert":
        ask = transformers.pipeline("text-classification", model=str(folder), device="cpu", dtype=torch.float32)
        kept["texts"] = [[text, ask(text, top_k=None)] for text in TEXTS]
        kept["pairs"] = [[pair, ask(dict(text=pair[0], text_pair=pair[1]), top_k=None)] for pair in PAIRS]
        kept["cut"] = [[pair, ask(dict(text=pair[0], text_pair=pair[1]), top_k=None, truncation=True, max_length=16)]
                       for pair in PAIRS]
        kept["ids"] = [dict(ask.tokenizer(*pair)) for pair in PAIRS]
    if name == "bert_tokens":
        for how in ("none", "simple", "first", "average", "max"):
            ask = transformers.pipeline("token-classification", model=str(folder), device="cpu", dtype=torch.float32,
                                        aggregation_strategy=how)
            kept[how] = [[text, ask(text)] for text in TEXTS]
    return plain(kept)


def make(name, cls, config):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = json.loads((ROOT / "testdata/encoder/bert/config.json").read_text())["vocab_size"]
    if name in ("bert", "bert_tokens"):
        config = dict(config, vocab_size=vocabulary)
    cls = getattr(transformers, cls)
    models.build(cls, config, 7).to(torch.float16).save_pretrained(folder)
    if name in ("bert", "bert_tokens"):
        with_tokenizer(folder)
    record(folder, name)
    made = answers(folder, name)
    if made:
        (folder / "answers.json").write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    wanted = sys.argv[1:] or CASES
    for case in wanted:
        make(case, *CASES[case])
