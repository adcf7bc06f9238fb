"""Language models that other exporters lowered, in ferry run and in the official runtime: their tokens are equal.

Two exporters: the static cache of transformers (one token a call, input_ids and cache_position) and ExecuTorch's own export_llm
(custom SDPA or not, portable or XNNPACK, codes of 4 bits). The models are random. A prompt of six tokens, then twelve greedy ones.
Programs that round activations are compared over the first four.
"""
import json
import pathlib

import common
import official
from common import Ferry, Wrong

PROMPT, NEW = [5, 17, 33, 60, 2, 8], 12
BASE = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 96, "hidden_dim": 64, "norm_eps": 1e-5}
# name: model class, parameters, XNNPACK, options
LLMS = {
    "llama3_2, portable": ("llama3_2", {"use_scaled_rope": True, "rope_theta": 500000.0, "rope_scale_factor": 32}, False, {}),
    "llama3_2, plain attention": ("llama3_2", {"rope_theta": 500000.0}, True, {"sdpa": False}),
    "llama3, experts": ("llama3", {"moe": True, "num_experts": 4, "num_activated_experts": 2}, False, {}),
    "phi_4_mini, portable": ("phi_4_mini", {"use_hf_rope": True, "partial_rotary_factor": 0.75}, False, {}),
    "phi_4_mini, 4 bits": ("phi_4_mini", {"use_hf_rope": True, "partial_rotary_factor": 0.75}, True,
                           {"quantization": {"qmode": "8da4w", "group_size": 32, "embedding_quantize": "8,0"}}),
    "qwen3, XNNPACK": ("qwen3_0_6b", {"use_hf_rope": True, "use_qk_norm": True, "qk_norm_before_rope": True, "head_dim": 16}, True, {}),
}


def export_llm(folder, kind, changes, xnnpack, options):
    """A random model in the form of export_llm, and its program."""
    import torch
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.extension.llm.export.config.llm_config import LlmConfig
    from omegaconf import OmegaConf
    parameters = BASE | changes
    (folder / "params.json").write_text(json.dumps(parameters))
    torch.manual_seed(1)
    weights = construct_transformer(ModelArgs(max_seq_len=32, max_context_len=32, **parameters)).state_dict()
    drawn = {name: torch.randn_like(w) * 0.3 if w.dim() > 1 else 1 + 0.1 * torch.randn_like(w) for name, w in weights.items()}
    torch.save(drawn, folder / "model.pth")
    config = {
        "base": {"model_class": kind, "checkpoint": str(folder / "model.pth"), "params": str(folder / "params.json"),
                 "metadata": '{"get_bos_id": 1, "get_eos_ids": [2]}'},
        "model": {"use_kv_cache": True, "use_sdpa_with_kv_cache": options.get("sdpa", True), "enable_dynamic_shape": True},
        "export": {"max_seq_length": 32, "max_context_length": 32, "output_name": "model", "output_dir": str(folder)},
        "backend": {"xnnpack": {"enabled": xnnpack, "extended_ops": True}},
        "quantization": options.get("quantization", {}),
    }
    export_llama(OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(LlmConfig), OmegaConf.create(config))))
    return folder / "model.pte"


def static_cache(folder, kind, xnnpack):
    """A random model of transformers with its static cache, by transformers' own export."""
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
    exported = TorchExportableModuleForDecoderOnlyLM(model).export(input_ids=torch.ones((1, 1), dtype=torch.long),
                                                                   cache_position=torch.arange(1))
    methods = {"get_max_seq_len": 32, "use_kv_cache": True, "get_vocab_size": 96, "enable_dynamic_shape": False,
               "get_bos_id": 1, "get_eos_ids": [2]}
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()] if xnnpack else None, constant_methods=methods)
    (folder / "model.pte").write_bytes(lowered.to_executorch().buffer)
    return folder / "model.pte"


def official_tokens(path):
    """Runs in the process of the official runtime."""
    import torch
    from executorch.extension.pybindings import portable_lib
    program = portable_lib._load_program(path)
    method, tokens = program.load_method("forward"), list(PROMPT)
    for at in range(len(PROMPT) + NEW - 1):
        logits = method.call((torch.tensor([[tokens[at]]]), torch.tensor([at])))[0]
        if at >= len(PROMPT) - 1:
            tokens.append(int(logits.reshape(-1, logits.shape[-1])[-1].argmax()))
    return tokens[len(PROMPT):]


def same_tokens(promise, runtime, name, make, count):
    folder = promise.folder / str(promise.count)
    folder.mkdir()
    path = make(folder)
    wanted = runtime(official_tokens, str(path))
    run = Ferry("run", "--text-decoder", path, "--tokens", ",".join(map(str, PROMPT)), "--max-new", NEW, "--ignore-eos", "--greedy",
                "--json").ends_with(0)
    if run.result["tokens"][:count] != wanted[:count]:
        raise Wrong(f"tokens {run.result['tokens']}, the official runtime gives {wanted}")
    return f"{pathlib.Path(path).stat().st_size} B, {count} tokens"


def main():
    promise = common.Promise(__doc__)
    runtime = official.Runtime()
    for kind in ("llama",) if promise.sample else ("llama", "qwen3", "gemma3_text", "phi3", "smollm3"):
        for xnnpack in (False, True):
            promise.case(f"static cache, {kind}, {'XNNPACK' if xnnpack else 'portable'}", same_tokens, promise, runtime,
                         f"{kind} {xnnpack}", lambda folder: static_cache(folder, kind, xnnpack), NEW)
    for name, (kind, changes, xnnpack, options) in {} if promise.sample else LLMS.items():
        promise.case(f"export_llm, {name}", same_tokens, promise, runtime, name,
                     lambda folder: export_llm(folder, kind, changes, xnnpack, options), 4 if "quantization" in options else NEW)
    runtime.close()
    promise.finish()


if __name__ == "__main__":
    main()
