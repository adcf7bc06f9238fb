"""GGUF files of ferry in llama.cpp, and those of llama.cpp in ferry.

- llama.cpp computes with our f32 file of a real model what transformers computes, and reads our tokenizer as Hugging Face does.
- Our quantised files are byte for byte those that llama.cpp's quantiser makes of our f32 file, with an importance matrix and without
  one; of f16, bf16 and q8_0, which its converter writes, all tensors are.
- Values of every type that llama.cpp quantises to are read as its own Python package reads them.
- Quantised files compute in ferry what transformers computes with the same file.
- Files of encoders give in llama.cpp the tokens and vectors of transformers.
- Files of random models of several families compute in llama.cpp what transformers computes with the checkpoint.
- Files of random T5 and mT5 compute in llama.cpp and in ferry what transformers computes, and are cut as by SentencePiece there.
- A checkpoint that `--to hf` makes of a file has the tensors that transformers wants, and the logits of the original.
"""
import contextlib
import ctypes
import json
import os

import numpy

import common
from common import Wrong, convert, verify

WRITTEN = {"f16": 1, "bf16": 32, "q8_0": 7, "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12, "q3_k_l": 13, "q4_0": 2, "q4_1": 3, "q4_k_s": 14,
           "q4_k_m": 15, "q5_0": 8, "q5_1": 9, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30}
WITH_IMATRIX = {**{name: number for name, number in WRITTEN.items() if name not in ("f16", "bf16", "q8_0")}, "q2_k_s": 21}
READ = {"q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_m": 12, "q4_k_s": 14, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30}
# Fixtures without a tokenizer. Most are of families whose GGUF files state the size of the vocabulary: of others llama.cpp takes
# it from the tokens alone.
FAMILIES = ("golden/llama", "golden/llama_bias_mqa", "golden/granite", "gguf_written/llama4", "golden/dbrx", "golden/falcon_h1",
            "gguf_written/minicpm3", "golden/apertus")

# Fixtures whose files have tensors in another form than transformers reads, and others with experts.
BACK = ("golden/gpt_oss", "gguf_written/granitemoe", "gguf_written/llama4", "golden/afmoe_fourth", "golden/dbrx", "golden/dots1",
        "golden/ernie4_5_moe_plain", "golden/exaone_moe", "golden/gemma4_moe", "golden/granitemoeshared", "golden/hunyuan_v1_moe",
        "golden/jamba", "golden/minimax_m2", "golden/qwen3_5_moe")
# Files that no class for text alone reads, and such as have no id for padding, which their classes have beyond small vocabularies.
NO_CLASS = ("qwen2vl", "glm", "glm4", "umt5")
# Checkpoints of encoders with tokenizers, and the pre-tokenizer that is stated, because no digest of a tiny tokenizer is known.
WRITTEN_ENCODERS = {"bert": "jina-v2-en", "roberta": "gpt-2", "modernbert": "gpt-2", "xlm_roberta": None}
ENCODERS = ("bert", "roberta", "nomic_bert", "jina_embeddings_v3", "modernbert", "eurobert", "embedding_gemma")


@contextlib.contextmanager
def silent():
    """llama.cpp writes to the streams of the process."""
    kept = os.dup(1), os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        for number, stream in enumerate(kept, 1):
            os.dup2(stream, number)
            os.close(stream)
        os.close(nothing)


def llama(path, length=256, **more):
    """A file in llama.cpp, with caches and logits in f32, and with the numbers of YaRN that the file states."""
    import llama_cpp
    with silent():
        return llama_cpp.Llama(str(path), n_ctx=length, n_batch=length, logits_all=True, type_k=0, type_v=0, n_threads=2, verbose=False,
                               yarn_beta_fast=-1.0, yarn_beta_slow=-1.0, yarn_attn_factor=-1.0, **more)


def llama_logits(path, ids):
    model = llama(path)
    with silent():
        model.eval(ids)
    return numpy.array(model.scores[:len(ids)], dtype="f8")


def batch_of(ids):
    import llama_cpp
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, True
    return batch


def embedded(path, ids, pooling, labels=False):
    """What the embedding mode of llama.cpp gives: a vector for each token without pooling, else one; of a head its outputs."""
    import llama_cpp
    model = llama(path, embedding=True, pooling_type=pooling)
    batch = batch_of(ids)
    with silent():
        if llama_cpp.llama_encode(model.ctx, batch) and llama_cpp.llama_decode(model.ctx, batch):
            raise Wrong("llama.cpp does not execute the encoder")
    width, context = llama_cpp.llama_model_n_embd(model.model), model.ctx
    if pooling == 0:
        rows = [llama_cpp.llama_get_embeddings_ith(context, i)[:width] for i in range(len(ids))]
    else:
        counts = llama_cpp.llama_model_n_cls_out if labels else getattr(llama_cpp, "llama_model_n_embd_out", llama_cpp.llama_model_n_embd)
        width = counts(model.model)
        rows = llama_cpp.llama_get_embeddings_seq(context, 0)[:width]
    llama_cpp.llama_batch_free(batch)
    return numpy.array(rows, dtype="f8")


def llama_states(path, ids):
    return embedded(path, ids, 0)


def llama_labels(path, ids):
    """The outputs of a head of labels."""
    return embedded(path, ids, -1, labels=True)


def llama_vector(path, ids):
    """The pooled vector of the file's own kind, brought to a length of 1."""
    vector = embedded(path, ids, -1)
    return vector / numpy.linalg.norm(vector)


def means(imatrix):
    """The numbers of an importance matrix, as llama-quantize takes them."""
    import gguf
    tensors = {t.name: numpy.array(t.data, dtype=numpy.float32) for t in gguf.GGUFReader(imatrix).tensors}
    found = {}
    for name in sorted(name.removesuffix(".in_sum2") for name in tensors if name.endswith(".in_sum2")):
        counts = tensors[name + ".counts"].reshape(-1, 1)
        sums = tensors[name + ".in_sum2"].reshape(len(counts), -1)
        found[name] = numpy.where(counts > 0, sums / numpy.maximum(counts, 1), 1).astype(numpy.float32).ravel()
    return found


def quantise(source, target, file_type, imatrix=None):
    """What llama-quantize does."""
    import llama_cpp
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.nthread = file_type, 2
    if imatrix:
        numbers = means(imatrix)
        entries = (llama_cpp.llama_model_imatrix_data * (len(numbers) + 1))()  # the last one has no name
        for entry, (name, values) in zip(entries, numbers.items()):
            entry.name, entry.size = name.encode(), values.size
            entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        options.imatrix = entries
    with silent():
        code = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(options))
    if code:
        raise Wrong(f"llama.cpp does not quantise: {code}")
    return target


def original_logits(model, ids):
    import torch
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().numpy()


def real_logits(source, f32, ids):
    """The bound is the noise of f32: 4 times what transformers itself is from f64."""
    model = common.load(source)
    ours, theirs, exact = llama_logits(f32, ids), original_logits(model, ids), original_logits(model.double(), ids)
    noise, worst = abs(theirs - exact).max(), abs(ours - exact).max()
    if not worst <= 4 * noise:
        raise Wrong(f"{worst:.2e} from f64, transformers is {noise:.2e} from it")
    return f"{worst:.2e} from f64, transformers {noise:.2e}"


def tokens(f32, tokenizer, texts):
    model = llama(f32)
    wrong = [t for t in texts if model.tokenize(t.encode(), add_bos=False, special=True) != tokenizer(t).input_ids]
    if wrong:
        raise Wrong(f"{len(wrong)} of {len(texts)} texts, such as {wrong[0]!r}")
    return f"{len(texts)} texts"


def same_file(promise, source, f32, name, imatrix=None):
    more = ("--imatrix", imatrix) if imatrix else ()
    ours = convert(source, promise.folder / "ours.gguf", "--to", "gguf", "--outtype", name, "--name", "real", "--overwrite", *more)
    theirs = quantise(f32, promise.folder / "theirs.gguf", {**WRITTEN, **WITH_IMATRIX}[name], imatrix)
    a, b = ours.read_bytes(), theirs.read_bytes()
    if a != b and name in ("q8_0", "f16", "bf16"):  # the quantiser adds keys that the converter does not write
        return same_tensors(ours, theirs)
    if a != b:
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        raise Wrong(f"{len(a)} and {len(b)} bytes, different from byte {at} on")
    return f"{len(a)} bytes"


def same_tensors(ours, theirs):
    import gguf
    ours, theirs = ({t.name: (t.tensor_type, t.data.tobytes()) for t in gguf.GGUFReader(path).tensors} for path in (ours, theirs))
    wrong = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    if wrong:
        raise Wrong(f"{len(wrong)} of {len(theirs)} tensors differ, such as {wrong[0]}")
    return f"{len(ours)} tensors"


def same_values(promise, f32, name):
    """What `--to hf` makes of each tensor beside gguf.dequantize of llama.cpp; q and k are in another order there."""
    import gguf
    from safetensors.numpy import load_file
    quantised = quantise(f32, promise.folder / "theirs.gguf", READ[name])
    ours = load_file(next(convert(quantised, promise.folder / "hf", "--to", "hf", "--dtype", "f32", "--overwrite").glob("*.safetensors")))
    theirs = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(quantised).tensors}
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    inner = {"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k"}
    for key, value in ours.items():
        if key.startswith("model.layers."):
            number, rest = key.removeprefix("model.layers.").split(".", 1)
            names[key] = f"blk.{number}.{inner[rest.removesuffix('.weight')]}.weight"
        want = theirs[names[key]].reshape(value.shape)
        if "q_proj" in key or "k_proj" in key:  # rotation pairs back into halves
            heads = want.shape[0] // 64
            want = want.reshape(heads, 32, 2, -1).swapaxes(1, 2).reshape(want.shape)
        if not numpy.array_equal(value, want):
            raise Wrong(f"{key} differs by {abs(value - want).max():.2e}")
    return f"{len(ours)} tensors bit-equal"


def same_outputs(promise, source, name, ids):
    """`verify FILE.gguf` against transformers with the weights of the same file."""
    import transformers
    file = convert(source, promise.folder / "quantised.gguf", "--to", "gguf", "--outtype", name, "--overwrite")
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32", attn_implementation="eager").eval()
    golden = common.reference(model, {"plain": ids}, promise.folder / "golden.safetensors", greedy=8, inner=False)
    ran = verify(file, "--reference", golden)
    if ran.code:
        raise Wrong(f"verify exits {ran.code}: {ran.why}")
    return f"max_abs {ran.result['metrics']['max_abs']:.2e}"


def byte_level(size):
    """A tokenizer of letters that stand for bytes, and two of them together."""
    texts = [chr(0x100 + i) for i in range(size - 1)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate([*texts, texts[0] + texts[1]])},
                      "merges": [f"{texts[0]} {texts[1]}"]}}


def with_tokens(source, folder):
    """A copy of a checkpoint with a tokenizer, for files that do not state the size of the vocabulary."""
    size = common.safetensors_header(source / "model.safetensors")[0]
    rows = next(entry["shape"][0] for name, entry in size.items() if name.endswith(("wte.weight", "embed_tokens.weight")))
    common.copy_folder(source, folder)
    (folder / "tokenizer.json").write_text(json.dumps(byte_level(rows)))
    return folder


def family(promise, name):
    """A tiny golden checkpoint in llama.cpp; its exponentials and tables are less exact than those of torch."""
    from safetensors.numpy import load_file
    source = common.TESTDATA / name
    golden = load_file(source / "golden.safetensors")
    options = []
    if name == "golden/dbrx":
        source, options = with_tokens(source, promise.folder / "with_tokens"), ["--tokenizer-pre", "gpt-2"]
    file = convert(source, promise.folder / f"{source.name}.gguf", "--to", "gguf", "--outtype", "f32", *options)
    return in_llama(file, golden)


def read_alone(name):
    """A file of testdata of a family that Ferry reads and does not write."""
    from safetensors.numpy import load_file
    file = common.TESTDATA / "gguf" / "families" / f"{name}.gguf"
    return in_llama(file, load_file(file.with_suffix(".golden.safetensors")))


def vectors(name):
    """The vector of a text is that of transformers, but for llama.cpp's approximation of GELU."""
    from safetensors.numpy import load_file
    file = common.TESTDATA / "gguf" / "families" / f"{name}.gguf"
    golden, worst = load_file(file.with_suffix(".golden.safetensors")), 0
    for prompt in ("short", "long"):
        ids = golden[f"{prompt}.input_ids"][0].tolist()
        worst = max(worst, abs(llama_vector(file, ids) - golden[f"{prompt}.sentence_embedding"][0]).max())
    if not worst <= 1e-3:
        raise Wrong(f"vectors differ by {worst:.2e}")
    return f"max_abs {worst:.2e}"


def written_vectors(promise, name):
    """The file of an encoder: llama.cpp cuts texts as transformers does, and gives the same vectors but for its approximation of GELU."""
    import torch
    import transformers
    source, pre = common.TESTDATA / "gguf_written" / name, WRITTEN_ENCODERS[name]
    file = convert(source, promise.folder / f"{name}.gguf", "--to", "gguf", "--outtype", "f32", *(["--tokenizer-pre", pre] if pre else []))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    encoder = transformers.AutoModel.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    takes_first = json.loads((source / "1_Pooling/config.json").read_text())["pooling_mode_cls_token"]
    reader, worst = llama(file, vocab_only=True), 0
    for text in ("the cat sat on the mat", "a dog runs, and sits.", "The blue sea"):
        ids = tokenizer(text).input_ids
        with silent():
            cut = reader.tokenize(text.encode(), add_bos=True, special=True)
        if cut != ids:
            raise Wrong(f"{text!r} is {cut}, in transformers {ids}")
        with torch.no_grad():
            states = encoder(torch.tensor([ids])).last_hidden_state[0].double().numpy()
        vector = states[0] if takes_first else states.mean(0)
        worst = max(worst, abs(llama_vector(file, ids) - vector / numpy.linalg.norm(vector)).max())
    if not worst <= 1e-3:
        raise Wrong(f"vectors differ by {worst:.2e}")
    return f"max_abs {worst:.2e}"


def answer_logits(path, source, answer):
    """Of an encoder-decoder: the logits behind each token of an answer to a text."""
    import llama_cpp
    model = llama(path)
    with silent():
        if llama_cpp.llama_encode(model.ctx, batch_of(source)) or llama_cpp.llama_decode(model.ctx, batch_of(answer)):
            raise Wrong("llama.cpp does not execute the encoder-decoder")
    width = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model.model))
    return numpy.array([llama_cpp.llama_get_logits_ith(model.ctx, i)[:width] for i in range(len(answer))], dtype="f8")


def add_pieces(folder, size):
    """A SentencePiece model of T5's kind, of fewer pieces than there are tokens."""
    import sentencepiece
    (folder / "lines.txt").write_text("\n".join(common.english(40).split(". ")))
    sentencepiece.SentencePieceTrainer.train(input=str(folder / "lines.txt"), model_prefix=str(folder / "spiece"), vocab_size=size, minloglevel=2,
                                             model_type="unigram", hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    for name in ("lines.txt", "spiece.vocab"):
        (folder / name).unlink()
    return sentencepiece.SentencePieceProcessor(str(folder / "spiece.model"))


def encoder_decoder(promise, kind, number):
    """A random T5 as a file: what llama.cpp, ferry and the checkpoint made of the file compute."""
    import random

    import encoder_decoders as drawn
    import models
    import torch
    from ferry import reference
    refused = 0
    while True:  # most draws are of activations or distances that llama.cpp does not compute
        r = random.Random(f"{promise.seed} gguf {kind} {number} {refused}")
        folder = promise.folder / f"gguf-{kind}-{number}-{refused}"
        folder.mkdir()
        model, said = drawn.make(r, folder, kind, number)
        file = promise.folder / f"{folder.name}.gguf"
        cut = add_pieces(folder, drawn.VOCABULARY - 5)
        ran = common.Ferry("convert", folder, "--to", "gguf", "--outtype", "f32", "-o", file)
        if ran.code == 0:
            break
        refused += 1
        if ran.code != 4 or "'" not in ran.why or refused == 200:
            raise Wrong(f"convert exits {ran.code}: {ran.why}")
    source, answer = ([r.randrange(3, drawn.VOCABULARY) for _ in range(count)] for count in (r.choice([5, 23, 150]), r.choice([1, 9])))
    answer[0] = 0
    found = answer_logits(file, source, answer)

    def distance():
        with torch.no_grad():
            expected = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([answer])).logits[0].double().numpy()
        return abs(found - expected).max() / abs(expected).max()
    worst = distance()
    bound = 2e-2 if "approximates" in ran.err else 2e-3
    if not worst <= bound and models.tabled_gelu(model):
        worst = distance()
    if not worst <= bound:
        raise Wrong(f"{said}: logits differ by {worst:.1e} of the largest in llama.cpp")
    golden, prompts = folder / "golden.safetensors", folder / "prompts.jsonl"
    prompts.write_text(json.dumps(dict(source=source, tokens=answer)) + "\n")
    reference.main([str(folder), "-o", str(golden), "--prompts", str(prompts), "--max-new", "4", "-q"])
    again = verify(file, "--reference", golden)
    if again.code:
        raise Wrong(f"{said}: verify exits {again.code}: {again.why}")
    text = r.choice(common.english(40).split(". "))[:60]
    read = llama(file, vocab_only=True)
    with silent():
        ids = read.tokenize(text.encode(), add_bos=True, special=False)
    if ids != cut.encode(text) + [1]:
        raise Wrong(f"{text!r} is {ids}, of SentencePiece {cut.encode(text)}")
    return f"{worst:.1e} of the largest logit in llama.cpp; {refused} refused by name"


def gemma3n(promise):
    """A file with the sizes that llama.cpp knows by heart, in llama.cpp and in ferry."""
    import make_gguf_gemma3n as made
    import models
    import safetensors.torch
    import transformers
    model = models.build(transformers.Gemma3nForCausalLM, made.RELEASED, 0)
    file, golden = promise.folder / "gemma3n.gguf", promise.folder / "gemma3n.golden.safetensors"
    folder = promise.folder / "gemma3n"
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(byte_level(model.config.vocab_size)))
    convert(folder, file, "--to", "gguf", "--outtype", "f32", "--tokenizer-pre", "gpt-2")
    outputs = made.golden(model)
    safetensors.torch.save_file(outputs, golden)
    ran = verify(file, "--reference", golden)
    if ran.code:
        raise Wrong(f"verify exits {ran.code}: {ran.why}")
    ids, expected = outputs["short.input_ids"][0].tolist(), outputs["short.logits"][0].numpy()
    # llama.cpp takes another deviation of activations, which single tokens of 25 random layers feel more than others.
    usual = numpy.median(abs(llama_logits(file, ids) - expected).max(1)) / abs(expected).max()
    if not usual <= 5e-2:
        raise Wrong(f"logits of half of the tokens differ by {usual:.2e} of the largest and more")
    return f"{usual:.2e} of the largest logit"


def as_checkpoint(promise, file, golden):
    """A file that became a checkpoint, in transformers; every tensor has the name that it wants."""
    import models
    import transformers
    folder = convert(file, promise.folder / "back", "--to", "hf", "--dtype", "f32", "--overwrite")
    ids, expected = golden["short.input_ids"][0].tolist(), golden["short.logits"][0]
    worst = abs(models.outputs(models.load(transformers.AutoModelForCausalLM, folder), ids).numpy() - expected).max()
    if not worst <= 1e-4 * max(1, abs(expected).max()):
        raise Wrong(f"logits differ by {worst:.2e}")
    return f"max_abs {worst:.2e}"


def back(promise, name):
    """A golden checkpoint as a file, and the file as a checkpoint."""
    from safetensors.numpy import load_file
    source = common.TESTDATA / name
    file = convert(source, promise.folder / f"{source.name}.gguf", "--to", "gguf", "--outtype", "f32", "--overwrite")
    return as_checkpoint(promise, file, load_file(source / "golden.safetensors"))


def peers_file(promise, file):
    from safetensors.numpy import load_file
    return as_checkpoint(promise, file, load_file(file.with_suffix(".golden.safetensors")))


def in_llama(file, golden):
    ids, expected = golden["short.input_ids"][0].tolist(), golden["short.logits"][0]
    worst = abs(llama_logits(file, ids) - expected).max()
    if not worst <= 1e-3 * max(1, abs(expected).max()):
        raise Wrong(f"logits differ by {worst:.2e}")
    return f"max_abs {worst:.2e}"


def main():
    promise = common.Promise(__doc__)
    import smollm2
    from real_model import strings
    source, tokenizer = smollm2.folder(), smollm2.tokenizer()
    ids = smollm2.prompts(tokenizer)["plain"]
    f32 = convert(source, promise.folder / "real.gguf", "--to", "gguf", "--outtype", "f32", "--name", "real")
    promise.case("real model, f32: logits", real_logits, source, f32, ids)
    promise.case("real model: tokens", tokens, f32, tokenizer, strings(promise)[:300])
    for name in ("q8_0", "q4_k_m") if promise.sample else WRITTEN:
        promise.case(f"written as {name}: the bytes of llama.cpp", same_file, promise, source, f32, name)
    imatrix = promise.folder / "imatrix.gguf"
    text = promise.folder / "text.txt"
    text.write_text(common.english(600))
    common.Ferry("imatrix", source, "--text", text, "-o", imatrix).ends_with(0)
    for name in ("iq4_xs",) if promise.sample else WITH_IMATRIX:
        promise.case(f"written as {name} with an importance matrix: the bytes of llama.cpp", same_file, promise, source, f32, name, imatrix)
    for name in ("q6_k",) if promise.sample else READ:
        promise.case(f"read from {name}: the values of llama.cpp", same_values, promise, f32, name)
    for name in ("q4_0",) if promise.sample else ("q8_0", "q4_0", "q4_k_m"):
        promise.case(f"outputs of {name}: those of transformers", same_outputs, promise, source, name, ids)
    for name in FAMILIES:
        promise.case(f"family {name} in llama.cpp", family, promise, name)
    for name in BACK[:3] if promise.sample else BACK:
        promise.case(f"{name} as a file and back in transformers", back, promise, name)
    for file in sorted((common.TESTDATA / "gguf" / "families").glob("deepseek*.gguf" if promise.sample else "*.gguf")):
        if file.stem not in NO_CLASS + ENCODERS:
            promise.case(f"{file.name} as a checkpoint in transformers", peers_file, promise, file)
    promise.case("gemma3n in llama.cpp", gemma3n, promise)
    for kind in ("t5", "mt5"):
        for number in range(2 if promise.sample else 8):
            promise.case(f"{kind} {number} in llama.cpp", encoder_decoder, promise, kind, number)
    for name in ENCODERS:
        promise.case(f"vectors of {name} in llama.cpp", vectors, name)
    for name in WRITTEN_ENCODERS:
        promise.case(f"written {name} in llama.cpp", written_vectors, promise, name)
    for name in ("falcon_h1", "nemotron_h", "nemotron_h_moe"):
        promise.case(f"file of {name} in llama.cpp", read_alone, name)
    promise.finish()


if __name__ == "__main__":
    main()
