"""Draw: a random generator with the choices that the configurations of many families share."""
import random

ATTENTION = ("sliding_attention", "full_attention")
# The part of the rows that each kind of RoPE has: default, linear, llama3, yarn, dynamic.
EVERY_ROPE = (45, 13, 20, 12, 10)
PLAIN_ROPE = (80, 10, 10, 0, 0)
ACTIVATIONS = {"silu": 8, "gelu": 8, "gelu_pytorch_tanh": 8, "gelu_new": 4, "relu": 3, "swish": 3, "relu2": 2,
               "gelu_fast": 1, "gelu_python": 1}


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


class Draw(random.Random):
    """A random generator with the choices that many families share."""

    def chance(self, probability):
        return self.random() < probability

    def theta(self):
        return self.choice([10000.0, 10000, 500000.0, 1000000, 8_000_000.0, 13333.7, 100.5, 75000.0])

    def window(self):
        return self.choice([1, 2, 4, 7, 8, 13, 16, 21, 32, 64, 4096])

    def activation(self, usual):
        names = list(ACTIVATIONS)
        return usual if self.chance(0.6) else self.choices(names, [ACTIVATIONS[n] for n in names])[0]

    def layer_types(self, count, first, second, probability=0.5):
        return [first if self.chance(probability) else second for _ in range(count)]

    def heads(self, own_head_dim):
        """hidden size, heads, key heads and the size of a head"""
        head_dim = self.choice([8, 12, 16, 20, 24, 32])
        heads = self.choice([1, 2, 3, 4, 4, 5, 6, 8])
        if own_head_dim and self.chance(0.6):
            wide = [n for n in (8, 10, 12, 16, 20, 24, 32, 48, 64) if 40 <= heads * n <= 104]
            hidden = heads * self.choice(wide or [64])
        else:
            while heads * head_dim > 128:
                heads = max(1, heads // 2)
            hidden = heads * head_dim
        return hidden, heads, self.choice(divisors(heads)), head_dim

    def base(self, own_head_dim=True, usual="silu", layers=None, states_head_dim=True):
        hidden, heads, key_heads, head_dim = self.heads(own_head_dim)
        config = dict(
            vocab_size=self.choice([101, 128, 200, 257]), hidden_size=hidden,
            intermediate_size=self.choice([48, 72, 100, 33]),
            num_hidden_layers=layers or self.choice([1, 2, 3, 3, 4]), num_attention_heads=heads,
            num_key_value_heads=key_heads, max_position_embeddings=self.choice([128, 256, 512, 2048, 131072]),
            rms_norm_eps=self.choice([1e-5, 1e-6, 1e-5, 1e-3, 1.5625e-7]), hidden_act=self.activation(usual),
            tie_word_embeddings=self.chance(0.5), bos_token_id=1, eos_token_id=2, pad_token_id=0)
        if states_head_dim and (own_head_dim or self.chance(0.5)):
            config["head_dim"] = head_dim
        return config, head_dim

    def rope(self, config, partial=None, weights=EVERY_ROPE, head_dim=None):
        kind = self.choices(["default", "linear", "llama3", "yarn", "dynamic"], weights)[0]
        if kind == "dynamic" and head_dim is not None and head_dim * (partial or 1) <= 2:
            kind = "default"
        rope = dict(rope_type=kind, rope_theta=self.theta())
        if kind in ("linear", "dynamic"):
            rope["factor"] = self.choice([2.0, 4.0, 8.0, 1.5])
        if kind == "llama3":
            rope.update(factor=self.choice([8.0, 32.0, 4.0]), low_freq_factor=self.choice([1.0, 1.0, 2.0]),
                        high_freq_factor=self.choice([4.0, 4.0, 3.5, 8.0]),
                        original_max_position_embeddings=self.choice([24, 48, 64, 128]))
        if kind == "yarn":
            rope.update(factor=self.choice([2.0, 4.0, 40.0]),
                        original_max_position_embeddings=config["max_position_embeddings"] // 2)
            if self.chance(0.4):
                rope["attention_factor"] = 1.1
            if self.chance(0.3):
                rope.update(beta_fast=24.0, beta_slow=2.0)
        if partial is not None:
            rope["partial_rotary_factor"] = partial
        config["rope_parameters"] = rope
        return rope

    def partial(self, head_dim, *choices):
        """A part of a head that has an even number of dimensions."""
        part = self.choice(choices)
        turned = int(head_dim * part)
        return part if turned > 0 and turned % 2 == 0 else 1.0

    def partial_rope(self, config, head_dim, *choices, weights=EVERY_ROPE):
        return self.rope(config, self.partial(head_dim, *choices), weights, head_dim)

    def experts(self, config, *, names=("num_experts", "num_experts_per_tok"), most=8):
        """Sizes of routed experts, which have silu; returns their number."""
        config["hidden_act"] = "silu"
        count = self.choice([n for n in (2, 3, 4, 6, 8) if n <= most])
        config.update({names[0]: count, names[1]: self.randint(1, count)})
        return count


def swap(config, old, new):
    config[new] = config.pop(old)


def without(config, *keys):
    for key in keys:
        config.pop(key, None)
