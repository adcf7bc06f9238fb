"""sentence_embedding: one vector of the states of a text, as the modules of a sentence-transformers folder say."""
import pathlib

import torch

from .errors import BAD_INPUT, UNSUPPORTED, Refused
from .source import read_json

ACTIVATIONS = {"Identity": torch.nn.Identity, "Tanh": torch.nn.Tanh, "ReLU": torch.nn.ReLU, "GELU": torch.nn.GELU,
               "Sigmoid": torch.nn.Sigmoid, "SiLU": torch.nn.SiLU}
MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def pool(mode, states):
    """states [1,T,E] -> [1,E]"""
    tokens = states.shape[1]
    if mode == "cls_token":
        return states[:, 0]
    if mode == "lasttoken":
        return states[:, -1]
    if mode == "max_tokens":
        return states.max(1).values
    if mode == "weightedmean_tokens":
        weights = torch.arange(1, tokens + 1, dtype=states.dtype)[:, None]
        return (states * weights).sum(1) / weights.sum()
    return states.sum(1) / (tokens if mode == "mean_tokens" else tokens ** 0.5)


def modules_of(source):
    """The modules behind the transformer as functions of [1,T,E] or [1,D]."""
    made = []
    for module in source.modules if isinstance(source.modules, list) else ():
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        folder = source.folder / pathlib.PurePosixPath(module.get("path") or ".")
        if kind == "Pooling":
            made.append(pooling(folder / "config.json"))
        elif kind == "Dense":
            made.append(dense(folder))
        elif kind == "Normalize":
            made.append(lambda x: torch.nn.functional.normalize(x, p=2, dim=1))
        elif kind not in ("Transformer", "Dropout"):
            raise Refused(UNSUPPORTED, f"{source.folder / 'modules.json'}: type: unknown module {kind!r}")
    return made


def pooling(path):
    config = read_json(path)
    stated = config.get("pooling_mode")
    if isinstance(stated, str):
        names = {"cls": "cls_token", "lasttoken": "lasttoken"}
        modes = [names.get(stated, stated if stated in MODES else f"{stated}_tokens")]
    else:
        modes = [mode for mode in MODES if config.get(f"pooling_mode_{mode}")]
    if len(modes) != 1 or modes[0] not in MODES:
        raise Refused(UNSUPPORTED, f"{path}: pooling_mode: expected one of {', '.join(MODES)}")
    return lambda states: pool(modes[0], states)


def dense(folder):
    config = read_json(folder / "config.json")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
    if name not in ACTIVATIONS:
        raise Refused(UNSUPPORTED, f"{folder / 'config.json'}: activation_function: unknown {name!r}")
    weights = weights_of(folder)
    try:
        weight, bias = weights["linear.weight"].float(), weights.get("linear.bias")
    except KeyError:
        raise Refused(BAD_INPUT, f"{folder}: has no linear.weight")
    activate = ACTIVATIONS[name]()
    return lambda x: activate(torch.nn.functional.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype)))


def weights_of(folder):
    import safetensors.torch
    if (folder / "model.safetensors").exists():
        return safetensors.torch.load_file(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").exists():
        return torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    raise Refused(BAD_INPUT, f"{folder}: has neither model.safetensors nor pytorch_model.bin")
