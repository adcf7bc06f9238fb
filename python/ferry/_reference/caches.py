"""Caches of transformers in the form that docs/verifying.md states: keys, values and states of each layer."""
import torch

# Families whose RoPE turns neighbouring dimensions (0 and 1, 2 and 3, ...) and leaves them where they are. Bundles have
# first all even ones and then all odd ones, in weights and caches; scores do not depend on this order.
PAIRED = ("codegen", "cohere", "cohere2", "cohere2_moe", "ernie4_5", "ernie4_5_moe", "glm", "glm4", "gptj", "helium", "deepseek_v2",
          "llama4_text", "moonshine")
# Bundles have one dimension more in keys and values, the bias of the key.
BIASED = ("doge",)
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3")


def put_caches(cache, config, put):
    """put(name, tensor) for everything that the layers of a cache keep; `config` is that of the text model."""
    for i, layer in enumerate(cache.layers):
        keys = getattr(layer, "keys", None)
        if keys is not None and keys.numel() and config.model_type not in BIASED:
            if config.model_type in LATENT:  # the cache of transformers has the latent vector as keys, the turned part as values
                put(f"cache.{i}.key", torch.cat([halves(config, layer.values), keys], dim=-1))
            else:
                put(f"cache.{i}.key", halves(config, keys))
                put(f"cache.{i}.value", widened(layer.values, keys.shape[-1]))
        for name in ("conv_state", "recurrent_state"):
            state = getattr(layer, f"{name}s", {0: None})[0]
            if state is not None:
                put(f"cache.{i}.{name}", state)


def widened(values, size):
    """Values narrower than keys (MiMo), followed by zeros."""
    return torch.nn.functional.pad(values, (0, size - values.shape[-1])) if values.shape[-1] < size else values


def halves(config, keys):
    """Keys [1,heads,T,dim] of paired families: of the dimensions that RoPE turns first the even and then the odd ones."""
    if config.model_type == "nanochat":  # turns the other way: bundles have the halves of a head swapped
        return keys.roll(keys.shape[-1] // 2, -1)
    if config.model_type not in PAIRED:
        return keys
    turned = turned_dimensions(config, keys.shape[-1])
    return torch.cat([keys[..., 0:turned:2], keys[..., 1:turned:2], keys[..., turned:]], dim=-1)


def turned_dimensions(config, head_dim):
    if config.model_type == "llama4_text":  # whatever partial_rotary_factor says
        return head_dim
    rope = getattr(config, "rope_parameters", None) or {}
    stated = getattr(config, "rotary_dim", None)  # CodeGen, GPT-J
    return stated or int(head_dim * rope.get("partial_rotary_factor", 1.0))
