"""Small torch modules, each with its inputs, that official_export.py exports: what models on devices consist of."""
import torch
from torch import nn
from torch.nn import functional as F


class Of(nn.Module):
    """A module of a function of its inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    """Causal attention with RoPE, written out or by scaled_dot_product_attention."""

    def __init__(self, size, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size)

    def forward(self, x):
        batch, length, size = x.shape
        head = size // self.heads
        q, k, v = (t.view(batch, length, self.heads, head).transpose(1, 2) for t in self.qkv(x).split(size, -1))
        angle = torch.arange(length)[:, None] / 100 ** (torch.arange(head // 2) / (head // 2))
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        turn = lambda t: t * cos + torch.cat([-t[..., head // 2:], t[..., :head // 2]], -1) * sin  # noqa: E731
        q, k = turn(q), turn(k)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / head ** 0.5 + torch.full((length, length), -1e9).triu(1)
            y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, size))


class GatedMLP(nn.Module):
    def __init__(self, size, inner, act):
        super().__init__()
        self.gate, self.up, self.down, self.act = nn.Linear(size, inner), nn.Linear(size, inner), nn.Linear(inner, size), act

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.first, self.attention = RMSNorm(size), Attention(size, 4, False)
        self.second, self.mlp = RMSNorm(size), GatedMLP(size, 2 * size, F.silu)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Counter(nn.Module):
    """State that lasts from call to call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(4))

    def forward(self, x):
        self.sum.add_(x)
        return self.sum * 2


def modules():
    """{name: (module, inputs)}, the same for equal seeds."""
    torch.manual_seed(5)
    x, image = torch.randn(2, 6, 32), torch.randn(1, 8, 12, 12)
    y, ids = torch.randn(2, 6, 32), torch.tensor([[1, 5, 2], [0, 9, 3]])
    unary = dict(relu=F.relu, gelu=F.gelu, gelu_tanh=lambda t: F.gelu(t, approximate="tanh"), silu=F.silu, sigmoid=torch.sigmoid,
                 tanh=torch.tanh, exp=torch.exp, sqrt_abs=lambda t: t.abs().sqrt(), rsqrt=lambda t: (t * t + 1).rsqrt(), log=lambda t: (t.abs() + 1).log(),
                 sin=torch.sin, cos=torch.cos, neg=torch.neg, softplus=F.softplus, mish=F.mish, elu=F.elu, leaky_relu=F.leaky_relu,
                 hardswish=F.hardswish, hardtanh=F.hardtanh, clamp=lambda t: t.clamp(-0.5, 0.7), floor=torch.floor, ceil=torch.ceil, square=torch.square,
                 softmax=lambda t: t.softmax(-1), log_softmax=lambda t: t.log_softmax(-1), softmax_middle=lambda t: t.softmax(1), mean=lambda t: t.mean(-1), mean_all=lambda t: t.mean((1, 2)),
                 sum=lambda t: t.sum(1), amax=lambda t: t.amax(-1), argmax=lambda t: t.argmax(-1), var=lambda t: t.var(-1), cumsum=lambda t: t.cumsum(1),
                 topk=lambda t: tuple(t.topk(3, -1)), sort=lambda t: tuple(t.sort(-1)), transpose=lambda t: t.transpose(1, 2) * 1, reshape=lambda t: t.reshape(4, 96) + 1, slice=lambda t: t[:, 1:5, ::2] * 2,
                 pad=lambda t: F.pad(t, (1, 2)), roll=lambda t: t.roll(1, 1), flip=lambda t: t.flip(1), tril=lambda t: t.tril(), repeat=lambda t: t.repeat(1, 2, 1), where=lambda t: torch.where(t > 0, t, t * 0.1), to_half=lambda t: t.half().float() + 1)
    binary = dict(add=torch.add, sub=torch.sub, mul=torch.mul, div=lambda a, b: a / (b * b + 1), minimum=torch.minimum, maximum=torch.maximum,
                  bmm=lambda a, b: a @ b.transpose(1, 2), cat=lambda a, b: torch.cat([a, b], 1), stack=lambda a, b: torch.stack([a, b], 1), broadcast=lambda a, b: a[:, :1] + b[:1],
                  pow=lambda a, b: (a.abs() + 0.1) ** b, einsum=lambda a, b: torch.einsum("bld,bmd->blm", a, b))
    out = {name: (Of(f), (x,)) for name, f in unary.items()}
    out.update({name: (Of(f), (x, y)) for name, f in binary.items()})
    out.update(
        linear=(nn.Linear(32, 24), (x,)), linear_no_bias=(nn.Linear(32, 24, bias=False), (x,)), layer_norm=(nn.LayerNorm(32), (x,)), rms_norm=(RMSNorm(32), (x,)),
        embedding=(nn.Embedding(10, 16), (ids,)), gather=(Of(lambda t, i: t.gather(-1, i)), (x[0, :2], ids)), index=(Of(lambda t, i: t[i]), (x[0], ids % 6)),
        mlp=(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)), (x,)), gated_mlp=(GatedMLP(32, 48, F.silu), (x,)),
        attention=(Attention(32, 4, False), (x,)), attention_fused=(Attention(32, 4, True), (x,)), block=(Block(32), (x,)), two_blocks=(nn.Sequential(Block(32), Block(32)), (x,)),
        state=(Counter(), (torch.randn(4),)), conv1d=(nn.Conv1d(6, 8, 3, padding=1), (x,)), conv2d=(nn.Conv2d(8, 4, 3, padding=1), (image,)),
        depthwise=(nn.Conv2d(8, 8, 3, groups=8, stride=2), (image,)), conv_transpose=(nn.ConvTranspose2d(8, 4, 2, stride=2), (image,)), batch_norm=(nn.BatchNorm2d(8), (image,)), group_norm=(nn.GroupNorm(2, 8), (image,)),
        max_pool=(nn.MaxPool2d(2), (image,)), avg_pool=(nn.AvgPool2d(3, 2), (image,)), adaptive_pool=(nn.AdaptiveAvgPool2d(1), (image,)), upsample=(nn.Upsample(scale_factor=2), (image,)), bilinear=(nn.Upsample(scale_factor=2, mode="bilinear"), (image,)))
    last = torch.channels_last
    out.update(
        channels_last=(nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU()), (image.to(memory_format=last),)),
        channels_last_inside=(nn.Sequential(Of(lambda t: t.to(memory_format=last)), nn.Conv2d(8, 4, 3), Of(lambda t: t.contiguous() + 1)), (image,)),
        channels_last_flat=(nn.Sequential(nn.Conv2d(8, 4, 3, 3), nn.Flatten(), nn.Linear(64, 5)), (image.to(memory_format=last),)),
        channels_last_joined=(Of(lambda a, b: torch.cat([a * 2, b.clone(memory_format=last)], 1)), (image.to(memory_format=last), image)),
        mixed_cat=(Of(lambda a, b: torch.cat([a > 0, b], 1)), (x, y)), topk_middle=(Of(lambda t: tuple(t.topk(2, 1))), (x,)))
    return {name: (module.eval(), inputs) for name, (module, inputs) in out.items()}
