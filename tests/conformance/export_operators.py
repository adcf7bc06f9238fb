"""Modules of single operators that official_export.py exports: the custom operators of the package, loops, transforms and distances."""
import torch
from torch import nn

from export_modules import Of


class WholeState(nn.Module):
    """The gated delta rule: results and the last state in one vector."""

    def __init__(self, name):
        super().__init__()
        self.operator = getattr(torch.ops.llama, name)

    def forward(self, *inputs):
        return torch.cat([part.flatten() for part in self.operator(*inputs)])


def delta_inputs(heads, states, steps, per_key):
    """Query, key, value, decay, beta and state; decays are what a sigmoid gives."""
    key, value = 8, 12
    decay = (2, states, steps, key) if per_key else (2, states, steps)
    return (torch.randn(2, heads, steps, key), torch.randn(2, states, steps, key) / key ** 0.5, torch.randn(2, states, steps, value),
            torch.rand(decay), torch.rand(2, states, steps), torch.randn(2, states, key, value))


class Decayed(nn.Module):
    """Keeps decay and beta between 0 and 1 for whatever inputs."""

    def __init__(self, name):
        super().__init__()
        self.rule = WholeState(name)

    def forward(self, query, key, value, decay, beta, state):
        return self.rule(query, key, value, decay.sigmoid(), beta.sigmoid(), state)


def operators():
    """{name: (module, inputs)}, the same for equal seeds."""
    from executorch.extension.llm.custom_ops import custom_ops, op_tile_crop_aot  # noqa: F401  register operators
    from torch._higher_order_ops.map import map as over_rows
    from torch._higher_order_ops.scan import scan
    torch.manual_seed(7)
    hadamard, crop = torch.ops.llama.fast_hadamard_transform, torch.ops.preprocess.tile_crop
    x, window = torch.randn(2, 6, 32), torch.hann_window(16)
    codes, places = torch.randint(-128, 128, (2, 40), dtype=torch.int32), torch.randint(0, 31, (2, 40), dtype=torch.int32)
    spectrum = lambda t: torch.stft(t, 16, 4, window=window, return_complex=True).abs()  # noqa: E731
    out = {}
    for name in ("gated_delta_rule", "channelwise_gated_delta_rule"):
        for heads, states, steps, per_key in ((3, 3, 1, False), (4, 2, 5, True), (6, 2, 7, False), (2, 2, 40, True)):
            out[f"{name}, {heads} of {states}, {steps}{', per key' if per_key else ''}"] = Decayed(name), delta_inputs(heads, states, steps, per_key)
    out.update({f"hadamard {width}": (Of(lambda t: hadamard(t)), (torch.randn(2, 3, width),)) for width in (1, 2, 64, 128, 28, 448)})
    out.update({f"{norm} {shift} {kind}": (Of(lambda t, a, b, f=f: f(a.to(kind), b.to(kind)).float() + 0 * t.sum()), (x, codes, places % bits))
                for norm, shift, f in (("shift", "left", torch.bitwise_left_shift), ("shift", "right", torch.bitwise_right_shift))
                for kind, bits in ((torch.int32, 31), (torch.int64, 31), (torch.int8, 7), (torch.uint8, 8))})
    out.update({f"cdist {p}": (Of(lambda a, b, p=p: torch.cdist(a, b, p=p)), (x, torch.randn(2, 5, 32))) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))})
    out.update({f"rfft of {n}": (Of(lambda t, n=n: torch.view_as_real(torch.fft.rfft(t[..., :n]))), (x,)) for n in (32, 30, 25, 23, 1)})
    out.update({f"irfft of {n}": (Of(lambda t, n=n: torch.fft.irfft(torch.fft.rfft(t), n=n)), (x,)) for n in (32,)})
    out.update(
        tile_crop=(Of(lambda t: crop(t, 4)), (torch.randn(3, 8, 8),)), one_tile=(Of(lambda t: crop(t, 8)), (torch.randn(3, 8, 8),)),
        cdist_batches=(Of(lambda a, b: torch.cdist(a, b)), (torch.randn(3, 1, 4, 8), torch.randn(2, 5, 8))), pdist=(Of(lambda a: torch.pdist(a[0])), (x,)),
        map=(Of(lambda t, y: over_rows(lambda a, b: (a * b).tanh(), t, y)), (x, torch.randn(6, 32))),
        scan=(Of(lambda t: scan(lambda c, a: ((c * 0.5 + a).tanh(), c * a), torch.zeros(6, 32), t)), (x,)),
        cond=(Of(lambda t: torch.cond(t.sum() > 0, lambda u: u + 1, lambda u: u * 2, (t,))), (x,)),
        rfft2=(Of(lambda t: torch.fft.rfft2(t, norm="ortho").abs()), (x,)), irfft2=(Of(lambda t: torch.fft.irfft2(torch.fft.rfft2(t), norm="forward")), (x,)),
        not_cond=(Of(lambda t: torch.cond(t.sum() > 1000, lambda u: u + 1, lambda u: u * 2, (t,))), (x,)), stft=(Of(spectrum), (torch.randn(64),)),
        log_mel=(Of(lambda t: (spectrum(t) ** 2 + 1e-3).log10()), (torch.randn(80),)))
    return {name: (module.eval(), inputs) for name, (module, inputs) in out.items()}
