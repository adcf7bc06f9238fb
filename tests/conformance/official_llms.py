"""Language models that other exporters lowered, in ferry run and in the official runtime: their tokens are equal.

Two exporters: the static cache of transformers (one token a call, or up to 31, input_ids and cache_position) and ExecuTorch's own export_llm
(custom SDPA or not, portable or XNNPACK, codes of 4 bits, caches of 8). The models are random. A prompt of six tokens, then twelve
greedy ones. Programs that round activations are compared over the first four.

Programs of ferry convert --attention-sink have the logits of export_llm's with the same sink and window, within the noise of f32, in
calls of one token and of a window, over five turns of the ring; and the tokens of ferry run are those of both. With --sink-positions text
they have, in the official runtime, the logits of transformers under a mask of the sink and the window.

Programs of export_llm are also verified with their checkpoint, which is transformers': parity, and no parity where a row of the
checkpoint, a norm or two layers are changed.
"""
import json
import pathlib
import shutil

import common
import llm_models
import official
from common import Ferry, Wrong, convert

PROMPT, NEW = [5, 17, 33, 60, 2, 8], 20
SINK_NEW = 114  # five turns of a ring of 24
CODES = {"qmode": "8da4w", "group_size": 32, "embedding_quantize": "8,0"}
# kind of program: whether it is lowered to XNNPACK, and what export_llm's configuration says of model and quantisation
KINDS = {
    "XNNPACK": (True, {}, {}),
    "8da4w": (True, {}, CODES),
    "portable": (False, {}, {}),
    "plain attention": (True, {"use_sdpa_with_kv_cache": False}, {}),
    "8da4w, plain attention": (True, {"use_sdpa_with_kv_cache": False}, CODES),
    "8da4w, caches of 8 bits": (True, {"quantize_kv_cache": True}, CODES),
}
EVERY = ("XNNPACK", "8da4w")  # kinds for every model; llama3_2 has all


def experts(folder):
    """A random model with experts in the form of export_llm, which no class of transformers has, and its portable program."""
    import torch
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs
    parameters = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 96, "hidden_dim": 64, "norm_eps": 1e-5, "moe": True,
                  "num_experts": 4, "num_activated_experts": 2}
    (folder / "params.json").write_text(json.dumps(parameters))
    torch.manual_seed(1)
    weights = construct_transformer(ModelArgs(max_seq_len=32, max_context_len=32, **parameters)).state_dict()
    torch.save({name: torch.randn_like(w) * 0.3 if w.dim() > 1 else 1 + 0.1 * torch.randn_like(w) for name, w in weights.items()},
               folder / "model.pth")
    llm_models.MODELS["experts"] = (None, None, "llama3", None, None)
    return llm_models.export("experts", folder, False, {}, {})


def exported(promise, runtime, name, kind):
    """Tokens of the program, its verdict, and the verdicts with changed checkpoints."""
    xnnpack, model, quantization = KINDS[kind]
    folder = promise.folder / f"{name}-{kind}".replace(" ", "_")
    folder.mkdir()
    llm_models.save(name, folder, promise.seed)
    path = llm_models.export(name, folder, xnnpack, model, quantization)
    compare_tokens(runtime, path, 4 if quantization else NEW)
    verified = Ferry("verify", "--text-decoder", path, "--checkpoint", folder / "checkpoint", "--json").ends_with(0).result
    if quantization and not verified["own_weights"]["in_f32"]["parity"]:
        raise Wrong("not held to its own weights")
    found = [change(folder) for change in (a_row, a_norm, exchanged_layers)]
    for what, changed in found:
        verdict = Ferry("verify", "--text-decoder", path, "--checkpoint", changed, "--json")
        if verdict.code != 1:
            raise Wrong(f"{what}: verify exits {verdict.code}, expected 1")
    return f"{path.stat().st_size} B, {verified['tensors']['compared']} matrices, {len(found)} changes found"


def changed(folder, what, edit):
    """The checkpoint after edit(tensors)."""
    import safetensors.torch
    out = folder / what.replace(" ", "_")
    shutil.copytree(folder / "checkpoint", out)
    tensors = safetensors.torch.load_file(out / "model.safetensors")
    edit(tensors)
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, out / "model.safetensors", {"format": "pt"})
    return what, out


def a_row(folder):
    def edit(tensors):
        tensors[next(k for k in sorted(tensors) if ".layers.1." in k and tensors[k].dim() == 2)][5] *= 1.05
    return changed(folder, "a row times 1.05", edit)


def a_norm(folder):
    def edit(tensors):
        tensors[next(k for k in sorted(tensors) if "norm" in k and ".layers.1." in k)] += 0.05
    return changed(folder, "a norm plus 0.05", edit)


def exchanged_layers(folder):
    def edit(tensors):
        for key in [k for k in tensors if ".layers.0." in k]:
            other = key.replace(".layers.0.", ".layers.2.")
            if other in tensors and tensors[other].shape == tensors[key].shape:
                tensors[key], tensors[other] = tensors[other], tensors[key]
    return changed(folder, "layers 0 and 2 exchanged", edit)


def static_cache(folder, kind, xnnpack, length):
    """A random model of transformers with its static cache, by transformers' own export: calls of one token, or up to `length`."""
    import torch
    import transformers
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM
    more = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]} if kind == "gemma3_text" else {}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0, **more)
    model = common.save_tiny(transformers.AutoModelForCausalLM.from_config(config), folder / "checkpoint")
    model.generation_config.update(use_cache=True, cache_implementation="static", max_length=32,
                                   cache_config={"batch_size": 1, "max_cache_len": 32, "device": "cpu"})
    example, shapes = min(5, length), None
    if length > 1:
        tokens = torch.export.Dim("tokens", min=1, max=length)
        shapes = {"input_ids": {1: tokens}, "cache_position": {0: tokens}}
    exported = TorchExportableModuleForDecoderOnlyLM(model).export(input_ids=torch.ones((1, example), dtype=torch.long),
                                                                   cache_position=torch.arange(example), dynamic_shapes=shapes)
    methods = {"get_max_seq_len": 32, "use_kv_cache": True, "get_vocab_size": 96, "enable_dynamic_shape": length > 1,
               "get_bos_id": 1, "get_eos_ids": [2]}
    with torch.no_grad():
        lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()] if xnnpack else None, constant_methods=methods)
    (folder / "model.pte").write_bytes(lowered.to_executorch().buffer)
    return folder / "model.pte"


def attention_sink(folder, seed, xnnpack):
    """A program that attends to the first four tokens and to the last 16; PROMPT and NEW have more."""
    llm_models.save("llama3_2", folder, seed)
    return llm_models.export("llama3_2", folder, xnnpack, {"use_attention_sink": "4,16"}, {})


def own_sink(promise, runtime, name, xnnpack):
    """The official program and ours of one checkpoint, in the official runtime, and ours in ferry run."""
    folder = promise.folder / str(promise.count)
    folder.mkdir()
    llm_models.save(name, folder, promise.seed)
    path = llm_models.export(name, folder, xnnpack, {"use_attention_sink": "4,12"}, {}, call=12)
    convert(folder / "checkpoint", folder / "bundle", "--dtype", "f32", "--attention-sink", "4,12")
    tokens = runtime(official_tokens, str(path), SINK_NEW)
    ids, worst = PROMPT + tokens, 0
    for length in (1, 12):
        theirs, ours = runtime(sink_logits, str(path), str(folder / "bundle"), ids, length)
        worst = max(worst, abs(theirs - ours).max() / abs(theirs).max())
    if not worst < 1e-5:
        raise Wrong(f"logits differ by {worst:.1e}")
    run = Ferry("run", folder / "bundle", "--tokens", ",".join(map(str, PROMPT)), "--max-new", SINK_NEW, "--ignore-eos", "--greedy", "--json")
    if run.ends_with(0).result["tokens"] != tokens:
        raise Wrong(f"tokens {run.result['tokens']}, the official runtime gives {tokens}")
    return f"logits within {worst:.1e} over {len(ids)} tokens"


def masked_logits(checkpoint, ids, sink, window):
    """Logits of transformers where a token attends to the first `sink` tokens and the last `window`; positions end as the model's do."""
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    at = torch.arange(len(ids))
    places = torch.where(at < sink, at, sink + (at - sink) % (model.config.max_position_embeddings - sink))
    distance = at[:, None] - at[None]
    seen = (distance >= 0) & ((distance < window) | (at < sink)[None])
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), attention_mask=mask[None, None], position_ids=places[None], use_cache=False).logits[0].numpy()


def text_positions(promise, runtime, name):
    """Our program with --sink-positions text in the official runtime, beyond the positions of the model, and transformers."""
    folder = promise.folder / str(promise.count)
    folder.mkdir()
    llm_models.save(name, folder, promise.seed)
    options = ("--dtype", "f32", "--attention-sink", "4,12", "--sink-positions", "text")
    bundle = convert(folder / "checkpoint", folder / "bundle", *options)
    ids = [(7 * i * i + 13 * i + 5) % 96 for i in range(140)]
    expected = masked_logits(folder / "checkpoint", ids, 4, 12)
    worst = 0
    for length in (1, 12):
        ours = runtime(own_logits, str(bundle), ids, length)
        last = [min(begin + length, len(ids)) - 1 for begin in range(0, len(ids), length)]
        worst = max(worst, abs(ours - expected[last]).max() / abs(expected).max())
    if not worst < 1e-5:
        raise Wrong(f"logits differ by {worst:.1e}")
    return f"logits within {worst:.1e} over {len(ids)} tokens"


def own_logits(bundle, ids, length):
    """Logits behind every call of a bundle. Runs in the process of the official runtime."""
    import torch
    ours, out = official.Bundle(bundle), []
    for begin in range(0, len(ids), length):
        values = {"tokens": torch.tensor([ids[begin:begin + length]]), "input_pos": torch.tensor([begin])}
        out.append(official.rows(ours.call("text_decoder", "forward", values)["logits"])[-1])
    return torch.stack(out).numpy()


def sink_in_runner(promise, runtime, positions):
    """ExecuTorch's TextLLMRunner goes on as long as it is asked to, with the tokens of ferry run; the prompt is longer than the caches."""
    folder = promise.folder / str(promise.count)
    folder.mkdir()
    llm_models.save("llama3_2", folder, promise.seed)
    checkpoint = folder / "checkpoint"
    (checkpoint / "tokenizer.json").write_text(official.tokenizer_of_ids(96))
    options = ("--dtype", "f32", "--attention-sink", "4,12", "--sink-positions", positions, "--layout", "one-program", "--overwrite")
    ids = [(7 * i * i + 13 * i + 5) % 96 for i in range(40)]
    run = Ferry("run", convert(checkpoint, folder / "bundle", *options), "--tokens", ",".join(map(str, ids)), "--max-new", SINK_NEW, "--greedy",
                "--ignore-eos", "--json").ends_with(0)
    end = min(set(range(96)) - set(run.result["tokens"]))  # no token of the answer
    for name in ("config.json", "generation_config.json"):
        (checkpoint / name).write_text(json.dumps(json.loads((checkpoint / name).read_text()) | {"eos_token_id": end}))
    text = runtime(official.answer, convert(checkpoint, folder / "bundle", *options), ids, SINK_NEW)
    tokens = [int(token) for token in text.replace("<", " ").replace(">", " ").split()]
    if tokens != run.result["tokens"]:
        raise Wrong(f"tokens {tokens}, ferry run gives {run.result['tokens']}")
    return f"{len(tokens)} tokens behind {len(ids)}"


def sink_logits(path, bundle, ids, length):
    """Logits behind every call of `length` tokens, of the official program and of a bundle. Runs in the process of the official runtime."""
    import torch
    theirs, out = official.load_program(path).load_method("forward"), []
    for begin in range(0, len(ids), length):
        out.append(official.rows(theirs.call((torch.tensor([ids[begin:begin + length]]), torch.tensor([begin])))[0])[-1])
    return torch.stack(out).numpy(), own_logits(bundle, ids, length)


def official_tokens(path, new=NEW):
    """Runs in the process of the official runtime."""
    import torch
    from executorch.extension.pybindings import portable_lib
    program = portable_lib._load_program(path)
    method, tokens = program.load_method("forward"), list(PROMPT)
    for at in range(len(PROMPT) + new - 1):
        logits = method.call((torch.tensor([[tokens[at]]]), torch.tensor([at])))[0]
        if at >= len(PROMPT) - 1:
            tokens.append(int(logits.reshape(-1, logits.shape[-1])[-1].argmax()))
    return tokens[len(PROMPT):]


def compare_tokens(runtime, path, count):
    wanted = runtime(official_tokens, str(path))
    run = Ferry("run", "--text-decoder", path, "--tokens", ",".join(map(str, PROMPT)), "--max-new", NEW, "--ignore-eos", "--greedy",
                "--json").ends_with(0)
    if run.result["tokens"][:count] != wanted[:count]:
        raise Wrong(f"tokens {run.result['tokens']}, the official runtime gives {wanted}")


def same_tokens(promise, runtime, make):
    folder = promise.folder / str(promise.count)
    folder.mkdir()
    path = make(folder)
    compare_tokens(runtime, path, NEW)
    return f"{pathlib.Path(path).stat().st_size} B"


def main():
    promise = common.Promise(__doc__)
    runtime = official.Runtime()
    for kind in ("llama",) if promise.sample else ("llama", "qwen3", "gemma3_text", "phi3", "smollm3"):
        for xnnpack in (False, True):
            for length in (1, 31):
                name = f"static cache, {kind}, {'XNNPACK' if xnnpack else 'portable'}, calls of {length}"
                promise.case(name, same_tokens, promise, runtime, lambda folder: static_cache(folder, kind, xnnpack, length))
    for xnnpack in (True,) if promise.sample else (False, True):
        name = f"attention sink, {'XNNPACK' if xnnpack else 'portable'}"
        promise.case(name, same_tokens, promise, runtime, lambda folder: attention_sink(folder, promise.seed, xnnpack))
    for name in ("llama3_2",) if promise.sample else ("llama3_2", "qwen2_5", "qwen3", "phi_4_mini"):
        for xnnpack in (False,) if promise.sample else (False, True):
            kind = "XNNPACK" if xnnpack else "portable"
            promise.case(f"attention sink of ferry convert, {name}, {kind}", own_sink, promise, runtime, name, xnnpack)
        promise.case(f"attention sink of ferry convert, positions in the text, {name}", text_positions, promise, runtime, name)
    for positions in ("caches", "text"):
        promise.case(f"attention sink of ferry convert, positions in the {positions}, TextLLMRunner", sink_in_runner, promise, runtime, positions)
    for name in () if promise.sample else llm_models.MODELS:
        for kind in KINDS if name == "llama3_2" else EVERY:
            promise.case(f"export_llm, {name}, {kind}", exported, promise, runtime, name, kind)
    if not promise.sample:
        promise.case("export_llm, experts", same_tokens, promise, runtime, experts)
    runtime.close()
    promise.finish()


if __name__ == "__main__":
    main()
