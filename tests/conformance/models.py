"""Tiny random models of transformers, in f32 and in f64."""
import contextlib
import copy
import logging
import math
import re
import warnings

logging.disable(logging.WARNING)  # what other packages say when they are imported

import torch  # noqa: E402
import transformers  # noqa: E402

warnings.filterwarnings("ignore")
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity(60)
torch.set_num_threads(1)
torch.set_grad_enabled(False)

# Norms that multiply by 1 + weight.
ONE_PLUS = re.compile("^(Qwen3_5.*|Qwen3Next|RecurrentGemma|Gemma(?!4).*)RMSNorm$")


def random_parameter(name, parameter, owner, cls, noise):
    """Values that make every part of the model matter, of the shape of `parameter`."""
    leaf, kind = name.rsplit(".", 1)[-1], type(owner).__name__
    if leaf == "A_log":
        return torch.rand(parameter.shape, generator=noise) * 3.7 - 3
    if leaf == "recurrent_param":
        return torch.rand(parameter.shape, generator=noise) * 7 - 6
    normal = torch.randn(parameter.shape, generator=noise)
    if leaf == "dt_bias":
        return normal * 0.7
    if leaf in ("sinks", "A"):
        return normal
    if leaf == "bias" or leaf.endswith("_bias"):
        return normal * 0.1
    if leaf == "D":
        return 1 + 0.2 * normal
    if parameter.dim() == 1:
        return normal * 0.2 + (0 if ONE_PLUS.match(kind) else 1)
    if "conv" in name:
        return normal * 0.4
    if leaf == "position_embedding_table":
        return normal * 0.3
    if "Embedding" in kind or "wte" in name:
        return normal * (0.05 if "Gemma" in cls else 0.15)
    if "Router" in kind or name.endswith(("shared_expert_gate.weight", "mlp.gate.weight")):
        return normal * 0.35
    return normal * min(0.3, max(0.05, 1.25 / math.sqrt(parameter.shape[-1])))


def randomise(model, seed):
    owners = {}
    for module_name, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            owners[f"{module_name}.{name}" if module_name else name] = module
    noise = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        value = random_parameter(name, parameter, owners[name], type(model).__name__, noise)
        parameter.copy_(value.to(parameter.dtype))
    for name, buffer in model.named_buffers():
        if "bias" in name:  # which chooses experts
            buffer.copy_(torch.randn(buffer.shape, generator=noise) * 0.1)
        if name.endswith("std_scale"):  # of features
            buffer.copy_(0.2 + 0.4 * torch.rand(buffer.shape, generator=noise))
        if name.endswith((".input_min", ".output_min", ".input_max", ".output_max")):  # limits that some values reach
            limit = 1 + torch.rand(buffer.shape, generator=noise)
            buffer.copy_(-limit if name.endswith("_min") else limit)
        if name.endswith("layer_scalar"):
            buffer.copy_(0.6 + 0.8 * torch.rand(buffer.shape, generator=noise))
    model.tie_weights()


def eager(model):
    # The eager attention of Falcon adds its ALiBi twice, the default one once, as the model was trained.
    if getattr(model.config, "alibi", False):
        model.config._attn_implementation = "sdpa"
    else:
        model.set_attn_implementation("eager")
    if any(type(m).__name__.endswith("Experts") for m in model.modules()):
        model.set_experts_implementation("eager")
    return model.eval()


def build(cls, config, seed):
    model = eager(cls(cls.config_class(**copy.deepcopy(config))).float())
    tower = getattr(model.config, "vision_config", None)
    if getattr(tower, "model_args", None):  # timm writes into the lists of blocks that it is given
        tower.model_args = copy.deepcopy(config["vision_config"]["model_args"])
    randomise(model, seed)
    if hasattr(model, "generation_config"):
        model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return model


@contextlib.contextmanager
def in_f64():
    """Code that asks for f32 gets f64."""
    kept = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept[:3]
        torch.set_default_dtype(kept[3])


def load(cls, directory):
    """The model in f32, as a user of transformers gets it."""
    model, info = cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                      output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if info.get(kind):
            raise RuntimeError(f"{kind}: {sorted(info[kind])[:2]}")
    return eager(model.float())


def twin(model):
    """The same model in f64."""
    config, head = copy.deepcopy(model.config), model.get_output_embeddings()
    if head is not None and head.weight is not model.get_input_embeddings().weight:
        config.tie_word_embeddings = False  # a checkpoint with a head of its own has both, whatever its config says
    with in_f64():
        other = type(model)(config).double()
    other.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    return eager(other)


class Margins:
    """The least distance between scores that decides which experts a token passes through."""

    def __init__(self, model):
        self.least = math.inf
        for module in model.modules():
            if type(module).__name__ == "DbrxFFN":
                module.router.top_k = module.top_k
            if type(module).__name__.endswith("TopKGating"):  # JetMoE
                module.register_forward_hook(lambda gate, _, outputs: self.narrow(outputs[-1].double(), gate.top_k))
            elif "Router" in type(module).__name__ or type(module).__name__.endswith("Gate"):
                module.register_forward_hook(self.see)

    def see(self, router, inputs, outputs):
        # Llama 4's router gives scores of 0 where an expert is not chosen, and the logits beside them.
        if not isinstance(outputs, torch.Tensor):
            outputs = outputs[1 if type(router).__name__ == "Llama4Router" else 0]
        scores = outputs.double()
        scores = scores.reshape(-1, scores.shape[-1])
        bias = getattr(router, "e_score_correction_bias", inputs[1] if len(inputs) > 1 else None)
        if bias is not None:
            scores = scores.sigmoid() + bias.double()
        elif hasattr(router, "moe_statics"):  # ERNIE
            scores = scores.softmax(-1) + router.moe_statics.e_score_correction_bias.double().squeeze()
        if hasattr(router, "input_jitter_noise"):  # SparseMixer
            self.near(scores, 2 * router.router_jitter_noise)
        taken = getattr(router, "top_k", None) or getattr(getattr(router, "config", None), "top_k_experts", 1)
        self.narrow(scores, taken)
        groups, chosen = getattr(router, "num_group", None), getattr(router, "topk_group", None)
        if groups and chosen and groups > 1 and scores.shape[-1] % groups == 0:
            grouped = scores.view(scores.shape[0], groups, -1)
            best = grouped.max(-1).values if bias is None else grouped.topk(2, -1).values.sum(-1)
            self.narrow(best, chosen)

    def near(self, scores, limit):
        """Scores are near the best one, or not, by their distance from it in proportion to the larger of the two."""
        for _ in range(2):
            best = scores.max(-1, keepdim=True)
            apart = (best.values - scores) / scores.abs().clamp(min=best.values)
            distances = (apart - limit).abs()[(apart > 0) & apart.isfinite()]
            self.least = min([self.least, *distances.tolist()])
            scores = scores.scatter(-1, best.indices, -math.inf)

    def narrow(self, scores, taken):
        if taken < scores.shape[-1]:
            ordered = scores.sort(-1, descending=True).values
            self.least = min(self.least, float((ordered[:, taken - 1] - ordered[:, taken]).min()))


def outputs(model, ids):
    """Logits [tokens,vocabulary] of a decoder, last hidden states [tokens,hidden] of any other model."""
    result = model(input_ids=torch.tensor([ids]), use_cache=False) if hasattr(model, "lm_head") or \
        model.get_output_embeddings() is not None else model(input_ids=torch.tensor([ids]))
    return (result.logits if "logits" in result else result.last_hidden_state)[0]


def tabled_gelu(model):
    """Makes the MLPs of a model round the inputs and outputs of GELU to f16, as the table of llama.cpp does; whether there are any."""
    def table(x):
        near = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, near))
    found = False
    for module in model.modules():
        for name in ("act_fn", "activation_fn", "act"):
            if type(getattr(module, name, None)).__name__ in ("GELUTanh", "NewGELUActivation"):
                module._modules.pop(name)
                object.__setattr__(module, name, table)
                found = True
    return found


def without_epsilon(model):
    """Takes the epsilon out of the norms of a Qwen2-VL's text model; whether there are any."""
    norms = [m for m in model.modules() if type(m).__name__ in ("Qwen2VLRMSNorm", "Qwen2_5_VLRMSNorm")]
    for norm in norms:
        norm.variance_epsilon = 0
    return bool(norms)
