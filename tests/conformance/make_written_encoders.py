"""Makes the checkpoints of encoders whose GGUF files are compared with those of llama.cpp: tiny random models with tokenizers.

    python tests/conformance/make_written_encoders.py [--testdata DIR]

Writes testdata/gguf_written/{bert,roberta,modernbert,xlm_roberta,embedding_gemma}: a WordPiece and the mean of states, a byte-level BPE and
the first token, twice, a SentencePiece Unigram and the mean, and the mean with two projections behind it. A second run writes the same.
"""
import argparse
import json
import os
import pathlib
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat sat on mat ##s ##ing , . sit run ##n ##er dog x ##y é 1 ##2 [unused1]".split()
LINES = ["the cat sat on the mat", "a dog runs, and sits.", "one two three four five six seven", "ships float on the blue sea"]


def word_piece(folder):
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.add_special_tokens(WORDS[:5])
    transformers.BertTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                                   mask_token="[MASK]", model_max_length=64).save_pretrained(folder)


def byte_level(folder):
    vocab = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = [("t", "h"), ("th", "e"), ("a", "n"), ("\u0120", "a"), ("\u0120", "the")]
    vocab += [left + right for left, right in merges] + ["<mask>"]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(vocab)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    transformers.RobertaTokenizerFast(tokenizer_object=made).save_pretrained(folder)


def unigram(folder):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    lines, rules = folder / "lines.txt", folder / "rules.tsv"
    lines.write_text("\n".join(LINES * 4))
    rules.write_text("9\t20\nA0\t20\n3000\t20\nFB01\t66 69\n")  # a few of the rules of nmt_nfkc, which are 240 kB
    sentencepiece.SentencePieceTrainer.train(input=str(lines), model_prefix=str(folder / "made"), vocab_size=60, model_type="unigram",
                                             hard_vocab_limit=False, normalization_rule_tsv=str(rules), minloglevel=2, num_threads=1)
    model = sentencepiece_model_pb2.ModelProto.FromString((folder / "made.model").read_bytes())
    for member in ("input", "model_prefix"):  # paths of this machine
        model.trainer_spec.ClearField(member)
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    (folder / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
    for path in (lines, rules, folder / "made.vocab", folder / "made.model"):
        path.unlink()
    (folder / "config.json").write_text(json.dumps(dict(model_type="xlm-roberta")))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="XLMRobertaTokenizer")))
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def dense(folder, name, shape):
    """A projection behind the pooling."""
    (folder / name).mkdir()
    (folder / name / "config.json").write_text(json.dumps(
        dict(in_features=shape[1], out_features=shape[0], bias=False, activation_function="torch.nn.modules.linear.Identity")))
    safetensors.torch.save_file({"linear.weight": torch.randn(shape) * 0.2}, folder / name / "model.safetensors")


def sentence(folder, pooling, projects=False):
    """The modules of sentence-transformers."""
    names = {"mean": "mean_tokens", "cls": "cls_token"}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 32, **{f"pooling_mode_{name}": kind == pooling for kind, name in names.items()}}))
    kinds = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling")]
    for name, shape in (("2_Dense", (48, 32)), ("3_Dense", (32, 48))) if projects else ():
        dense(folder, name, shape)
        kinds.append((name[0], name, "Dense"))
    kinds.append((str(len(kinds)), f"{len(kinds)}_Normalize", "Normalize"))
    (folder / "modules.json").write_text(json.dumps(
        [dict(idx=i, name=name, path=path, type=f"sentence_transformers.models.{kind}") for i, (name, path, kind) in enumerate(kinds)]))


CASES = {
    "bert": (transformers.BertModel, transformers.BertConfig, word_piece, "mean", dict(vocab_size=32, pad_token_id=0)),
    "roberta": (transformers.RobertaModel, transformers.RobertaConfig, byte_level, "cls",
                dict(vocab_size=266, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)),
    "modernbert": (transformers.ModernBertModel, transformers.ModernBertConfig, byte_level, "cls",
                   dict(vocab_size=266, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2, local_attention=8,
                        layer_norm_eps=1e-5, num_hidden_layers=4)),
    "xlm_roberta": (transformers.XLMRobertaModel, transformers.XLMRobertaConfig, unigram, "mean",
                    dict(type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)),
    "embedding_gemma": (transformers.Gemma3TextModel, transformers.Gemma3TextConfig, byte_level, "mean",
                        dict(vocab_size=266, num_hidden_layers=6, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8,
                             sliding_window=9, use_bidirectional_attention=True, pad_token_id=1, bos_token_id=0, eos_token_id=2)),
}


def make(folder, name):
    cls, config, tokenizer, pooling, more = CASES[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer(folder)
    if name == "xlm_roberta":
        more = dict(more, vocab_size=len(transformers.AutoTokenizer.from_pretrained(folder)))
    torch.manual_seed(7)
    model = cls(config(**{**SIZES, **more})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn_like(weight)
            weight.add_(noise * 0.1) if weight.dim() == 1 else weight.copy_(noise * 0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    sentence(folder, pooling, projects=name == "embedding_gemma")
    for path in folder.rglob("*.*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testdata", type=pathlib.Path, default=ROOT / "testdata", help="folder to write into")
    folder = parser.parse_args().testdata / "gguf_written"
    transformers.utils.logging.set_verbosity(60)
    for name in CASES:
        make(folder / name, name)


if __name__ == "__main__":
    main()
