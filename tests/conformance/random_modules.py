"""Random torch modules of several operators, each with its inputs, for random_exports.py.

A draw is a list of steps. A step computes one value of values before it; which steps are possible follows from their shapes and dtypes, and
those that torch refuses are drawn again.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

ANY = [torch.relu, F.gelu, F.silu, torch.sigmoid, torch.tanh, torch.neg, torch.abs, torch.sin, torch.cos, torch.erf, torch.atan, torch.asinh, torch.sign,
       F.elu, F.leaky_relu, F.hardswish, F.hardsigmoid, F.hardtanh, F.softplus, F.mish, F.selu, F.relu6, F.softsign, F.logsigmoid, F.tanhshrink,
       torch.floor, torch.ceil, torch.round, torch.trunc, torch.square, torch.isnan, torch.isinf, torch.logical_not,
       lambda t: F.gelu(t, approximate="tanh"), lambda t: t.clamp(-0.5, 0.7), lambda t: t.clamp(min=0.1), lambda t: t.abs().sqrt(),
       lambda t: (t.abs() + 1).rsqrt(), lambda t: (t.abs() + 1).reciprocal(), lambda t: t.abs().log1p(), lambda t: t.clamp(max=3).exp(),
       lambda t: t.clamp(max=3).expm1(), lambda t: (t.abs() + 0.1).log(), lambda t: (t.abs() + 0.1).log2(), lambda t: t.tanh().acos(),
       lambda t: t.tanh().mul(0.9).atanh(), lambda t: t.sigmoid().logit(), lambda t: t * 2.5 - 1, lambda t: 1.5 - t, lambda t: t / 3,
       lambda t: t ** 2, lambda t: t ** 3, lambda t: (t.abs() + 0.1) ** 0.3, lambda t: 2 ** t.clamp(max=3), lambda t: t.remainder(0.7),
       lambda t: t.fmod(0.7), lambda t: t.clamp(-3, 3).sinh(), lambda t: t.clamp(-3, 3).cosh(), lambda t: (t.abs() + 1).acosh(),
       lambda t: t.tanh().asin(), torch.zeros_like, torch.ones_like, lambda t: torch.full_like(t, 0.3), torch.clone,
       lambda t: t > 0.1, lambda t: t <= 0, lambda t: t != 0, lambda t: t.masked_fill(t > 0.5, -1.0)]
WHOLE = [torch.neg, torch.abs, torch.bitwise_not, lambda t: t + 3, lambda t: t * 2, lambda t: t // 3, lambda t: t % 5, lambda t: t > 2, lambda t: t == 1,
         lambda t: t.float(), lambda t: t.float() * 0.1, lambda t: t & 3, lambda t: t | 5, lambda t: t ^ 6, lambda t: t.clamp(1, 4), lambda t: t / 2,
         lambda t: t.to(torch.int32), lambda t: t.to(torch.int64), lambda t: t << 1, lambda t: t >> 1, torch.sign]
TRUTH = [torch.logical_not, lambda t: t.float(), lambda t: t.to(torch.int64), lambda t: ~t, lambda t: t.any(-1), lambda t: t.all(-1), lambda t: t.float().mean(-1)]
PAIRS = [torch.add, torch.sub, torch.mul, torch.minimum, torch.maximum, torch.atan2, lambda a, b: a / (b * b + 1), lambda a, b: torch.add(a, b, alpha=0.5),
         lambda a, b: torch.sub(a, b, alpha=2), lambda a, b: (a.abs() + 0.1) ** b.tanh(), lambda a, b: torch.where(a > b, a, b * 0.5), torch.gt, torch.eq,
         torch.le, lambda a, b: torch.fmod(a, b.abs() + 1), lambda a, b: torch.remainder(a, b.abs() + 1), lambda a, b: torch.floor_divide(a, b.abs() + 1),
         lambda a, b: torch.lerp(a, b, 0.3), lambda a, b: torch.logical_and(a > 0, b > 0), lambda a, b: torch.logical_xor(a > 0, b > 0),
         lambda a, b: torch.div(a, b.abs() + 1, rounding_mode="trunc"), lambda a, b: a.clamp(min=b)]


class Drawn(nn.Module):
    """Steps one after the other; the outputs are the values that no step takes, at most three of them."""

    def __init__(self, steps, outputs):
        super().__init__()
        self.steps, self.outputs = steps, outputs
        self.layers = nn.ModuleList(f for f, _ in steps if isinstance(f, nn.Module))

    def forward(self, *inputs):
        values = list(inputs)
        for function, places in self.steps:
            values.append(function(*(values[i] for i in places)))
        return tuple(values[i] for i in self.outputs)


class Draw:
    """Draws with a seeded generator of Python."""

    def __init__(self, choose):
        self.choose = choose

    def dim(self, t):
        return self.choose.randrange(-t.dim(), t.dim())

    def dims(self, t):
        return self.choose.sample(range(t.dim()), self.choose.randint(1, t.dim()))

    def some(self, items):
        return self.choose.choice(items)

    def yes(self, chance=0.5):
        return self.choose.random() < chance

    def elementwise(self, t):
        return self.some(ANY if t.is_floating_point() else TRUTH if t.dtype == torch.bool else WHOLE)

    def reduction(self, t):
        dim, dims, keep = self.dim(t), self.dims(t), self.yes()
        correction = self.some((0, 1))
        return self.some((lambda u: u.sum(dims, keepdim=keep), lambda u: u.mean(dims, keepdim=keep), lambda u: u.amax(dims, keepdim=keep),
                          lambda u: u.amin(dims, keepdim=keep), lambda u: u.var(dims, correction=correction, keepdim=keep), lambda u: u.argmax(dim, keepdim=keep),
                          lambda u: u.argmin(dim, keepdim=keep), lambda u: u.prod(dim, keepdim=keep), lambda u: u.std(dims, correction=0, keepdim=keep),
                          lambda u: u.max(dim, keepdim=keep)[0], lambda u: u.min(dim, keepdim=keep)[1], lambda u: u.logsumexp(dims, keepdim=keep),
                          lambda u: u.norm(dim=dim, keepdim=keep), lambda u: u.sum(), lambda u: u.max(), lambda u: u.mean(), lambda u: u.cumsum(dim),
                          lambda u: u.softmax(dim), lambda u: u.log_softmax(dim), lambda u: (u > 0).any(dim, keepdim=keep), lambda u: u.argmax()))

    def shape(self, t):
        dim, size = self.dim(t), t.shape
        at, count = self.choose.randrange(size[dim]), size[dim]
        length, step, other = self.choose.randint(1, count - at), self.some((1, 1, 2, 3)), self.dim(t)
        order, shift = self.choose.sample(range(t.dim()), t.dim()), self.choose.randint(-3, 3)
        new = self.factors(t.numel())
        times = [self.some((1, 1, 2)) for _ in size]
        pads = [self.choose.randint(0, 2) for _ in range(2 * self.choose.randint(1, t.dim()))]
        places = torch.tensor([self.choose.randrange(count) for _ in range(self.choose.randint(1, 5))])
        value = self.some((0, 0.5, -2))
        every = [slice(None)] * (dim % t.dim())
        return self.some((lambda u: u.permute(order), lambda u: u.transpose(dim, other), lambda u: u.reshape(new), lambda u: u.unsqueeze(dim),
                          lambda u: u.narrow(dim, at, length), lambda u: u[(*every, slice(at, None, step))], lambda u: u.select(dim, at), lambda u: u.flip(dim),
                          lambda u: u.roll(shift, dim), lambda u: u.repeat(times), lambda u: F.pad(u, pads, value=value), lambda u: u.split(max(1, count // 2), dim)[-1],
                          lambda u: u.chunk(2, dim)[0], lambda u: u.unbind(dim)[at], lambda u: u.index_select(dim, places), lambda u: u[(*every, places)],
                          lambda u: u.tril(shift), lambda u: u.triu(shift), lambda u: u.flatten(), lambda u: u.squeeze(), lambda u: u.unsqueeze(0).expand(2, *size),
                          lambda u: u.topk(min(2, count), dim)[0], lambda u: u.repeat_interleave(2, dim), lambda u: u.diagonal(0, dim, other),
                          lambda u: u.index_add(dim, places % count, u.index_select(dim, places)), lambda u: u.unfold(dim, min(2, count), 1), lambda u: u.movedim(dim, other),
                          lambda u: F.pad(u, [min(1, size[-1] - 1)] * 2, mode="reflect"), lambda u: F.pad(u, [1, 2], mode="replicate"),
                          lambda u: u.gather(dim, torch.zeros([min(2, s) for s in size], dtype=torch.int64)), lambda u: u.select_scatter(u.select(dim, at) * 0, dim, at),
                          lambda u: u.slice_scatter(u.narrow(dim, at, length) * 0, dim, at, at + length)))

    def factors(self, count):
        out = []
        while count > 1 and len(out) < 3:
            part = self.some([d for d in range(1, count + 1) if count % d == 0])
            out.append(part)
            count //= part
        return [*out, count]

    def layer(self, t):
        """A module with weights for the last dimension, or for the channels of a row or an image."""
        last, out = t.shape[-1], self.choose.randint(1, 9)
        kinds = [lambda: nn.Linear(last, out, bias=self.yes()), lambda: nn.LayerNorm(last), lambda: nn.GLU() if last % 2 == 0 else nn.Identity(),
                 lambda: nn.RMSNorm(last)]
        if t.dim() in (3, 4):
            channels, side = t.shape[1], min(t.shape[2:])
            groups = self.some([g for g in range(1, channels + 1) if channels % g == 0])
            kernel, two = self.choose.randint(1, min(3, side)), t.dim() == 4
            with_steps = dict(stride=self.some((1, 2)), padding=self.some((0, kernel // 2)))
            kinds += [lambda: (nn.Conv2d if two else nn.Conv1d)(channels, groups * self.choose.randint(1, 3), kernel, groups=groups, bias=self.yes(), **with_steps),
                      lambda: nn.GroupNorm(groups, channels), lambda: nn.PReLU(channels), lambda: (nn.BatchNorm2d if two else nn.BatchNorm1d)(channels),
                      lambda: (nn.AvgPool2d if two else nn.AvgPool1d)(kernel, **with_steps), lambda: (nn.MaxPool2d if two else nn.MaxPool1d)(kernel, **with_steps),
                      lambda: nn.InstanceNorm2d(channels, affine=True) if two else nn.InstanceNorm1d(channels)]
            if two:
                kinds += [lambda: nn.ConvTranspose2d(channels, groups * 2, kernel, stride=self.some((1, 2)), groups=groups), lambda: nn.Upsample(scale_factor=2),
                          lambda: nn.Upsample(size=(self.choose.randint(1, 9), 5), mode="bilinear", align_corners=self.yes()), lambda: nn.AdaptiveAvgPool2d(self.some((1, 2))),
                          lambda: nn.Conv2d(channels, channels * 2, kernel, groups=channels, dilation=self.some((1, 2)), padding=kernel - 1), lambda: nn.ZeroPad2d((1, 0, 2, 1)),
                          lambda: nn.PixelShuffle(2) if channels % 4 == 0 else nn.PixelUnshuffle(1), lambda: nn.Conv2d(channels, 4, 1).to(memory_format=torch.channels_last)]
        return self.some(kinds)()

    def step(self, values):
        """A function, and the places of the values that it takes."""
        place = self.choose.randrange(max(0, len(values) - 4), len(values))
        t = values[place]
        if t.numel() == 0 or t.numel() > 20000:
            return None
        kind = self.choose.random()
        if kind < 0.25 or t.dim() == 0:
            return self.elementwise(t), [place]
        if kind < 0.45:
            other = self.choose.randrange(len(values))
            joined = [torch.matmul, lambda a, b: a @ b.transpose(-1, -2), lambda a, b: torch.cat([a, b], -1), lambda a, b: torch.stack([a, b], 1), lambda a, b: torch.cat([b, a], 0)]
            return self.some(PAIRS + joined), [place, other]
        if kind < 0.75:
            return self.shape(t), [place]
        if not t.is_floating_point():
            return self.elementwise(t), [place]
        if kind < 0.87:
            return self.reduction(t), [place]
        if kind < 0.91:
            other = self.some((torch.float16, torch.float32, torch.int64, torch.int32, torch.float64))
            return (lambda u: u.to(other).to(torch.float32)) if self.yes() else (lambda u: (u.half() * 2).float()), [place]
        return self.layer(t).eval(), [place]


def drawn(choose):
    """(module, inputs, names of the dimensions that may vary). `choose` is a random.Random."""
    torch.manual_seed(choose.randrange(1 << 30))
    draw = Draw(choose)
    shape = [choose.randint(1, 8) for _ in range(draw.some((1, 2, 2, 3, 3, 4, 4)))]
    inputs = [torch.randn(shape)]
    if draw.yes(0.6):
        inputs.append(torch.randn([s if draw.yes(0.8) else 1 for s in shape[draw.choose.randrange(len(shape)):]]))
    if draw.yes(0.15):
        inputs.append(torch.randint(0, 9, shape))
    if draw.yes(0.2) and len(shape) == 4:
        inputs[0] = inputs[0].to(memory_format=torch.channels_last)
    values, steps, wanted = list(inputs), [], choose.randint(3, 12)
    for _ in range(60):
        step = draw.step(values)
        if step is None:
            continue
        try:
            with torch.no_grad():
                value = step[0](*(values[i] for i in step[1]))
        except Exception:  # shapes or dtypes that torch refuses
            continue
        if not isinstance(value, torch.Tensor) or value.numel() == 0 or not math.isfinite(value.double().abs().max()) or value.double().abs().max() > 1e6:
            continue
        steps.append(step)
        values.append(value)
        if len(steps) == wanted:
            break
    taken = {i for _, places in steps for i in places}
    outputs = [i for i in range(len(inputs), len(values)) if i not in taken][-3:]
    return Drawn(steps, outputs).eval(), tuple(inputs)
