"""Models of transformers with random weights, each with its inputs, that official_export.py exports: a few layers, a few channels."""
import torch
from torch import nn

LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
PICTURES = {**LAYERS, "image_size": 64, "patch_size": 16}
STAGES = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}


class First(nn.Module):
    """The first output of a model, or what `pick` takes of all."""

    def __init__(self, model, pick=lambda outputs: outputs[0]):
        super().__init__()
        self.model, self.pick = model.eval(), pick

    def forward(self, *inputs):
        return self.pick(self.model(*inputs))


def models():
    """{name: (module, inputs)}, the same for equal seeds."""
    import transformers as t
    torch.manual_seed(3)
    image, pooled = torch.randn(1, 3, 64, 64), lambda outputs: outputs.pooler_output
    pictures = {
        "resnet": First(t.ResNetModel(t.ResNetConfig(embedding_size=8, layer_type="basic", **STAGES)), pooled),
        "regnet": First(t.RegNetModel(t.RegNetConfig(embedding_size=8, groups_width=8, **STAGES)), pooled),
        "convnext": First(t.ConvNextModel(t.ConvNextConfig(image_size=64, **STAGES))),
        "convnextv2": First(t.ConvNextV2Model(t.ConvNextV2Config(image_size=64, **STAGES))),
        "vit": First(t.ViTModel(t.ViTConfig(**PICTURES))),
        "deit": First(t.DeiTModel(t.DeiTConfig(**PICTURES))),
        "beit": First(t.BeitModel(t.BeitConfig(use_relative_position_bias=True, **PICTURES))),
        "dinov2": First(t.Dinov2Model(t.Dinov2Config(**{k: v for k, v in PICTURES.items() if k != "intermediate_size"}))),
        "dinov3": First(t.DINOv3ViTModel(t.DINOv3ViTConfig(**PICTURES))),
        "swin": First(t.SwinModel(t.SwinConfig(image_size=64, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4))),
    }
    from executorch.extension.audio.mel_spectrogram import WhisperAudioProcessor
    out = {name: (model, (image,)) for name, model in pictures.items()}
    out["log-mel frames of whisper"] = WhisperAudioProcessor(max_audio_len=1).eval(), (torch.randn(16000),)
    return out
