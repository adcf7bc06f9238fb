"""Pictures of every kind, and random models that take them, give what transformers' processors and models give.

A case draws pictures (mode, size, ratio, file format, EXIF orientation; odd files and animations too) and settings of a processor, and compares the tensors
that `ferry preprocess` writes with those of the processor, byte for byte. Another case draws a model of a family whose vision
tower is built on demand; `python -m ferry.reference` makes its reference and `ferry verify` proves every stage.

    python3 tests/conformance/pictures.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import copy
import json
import random

import common
import make_gemma3n_sound_golden as gemma3n_golden
import make_vision_golden as golden  # it imports torch and transformers
import odd_pictures
import PIL.Image
import PIL.ImageOps
import qwen_models
import safetensors.torch
import torch
import transformers
from common import Wrong

FORMATS = {"png": ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"], "jpg": ["RGB", "L", "CMYK"], "webp": ["RGB", "RGBA"],
           "gif": ["P", "L"], "bmp": ["RGB"], "ppm": ["RGB", "L"]}


def draw(r, folder):
    """A picture of coarse and fine noise in a random file format."""
    kind = r.choice(list(FORMATS))
    mode = r.choice(FORMATS[kind])
    longer, ratio = r.randint(1, r.choice([50, 700, 1600])), r.choice([1, 1.1, 1.3, 2, 3.7, 9, 40])
    size = (longer, max(1, int(longer / ratio)))
    size = size if r.random() < 0.5 else size[::-1]
    noise = torch.Generator().manual_seed(r.randrange(1 << 30))
    coarse = torch.randint(0, 256, (5, 4, 3), dtype=torch.uint8, generator=noise).numpy()
    picture = PIL.Image.fromarray(coarse).resize(size, PIL.Image.Resampling.BICUBIC)
    fine = torch.randint(0, 256, (size[1], size[0], 3), dtype=torch.uint8, generator=noise).numpy()
    picture = PIL.Image.blend(picture, PIL.Image.fromarray(fine), r.random() * 0.5)
    if mode == "I;16":
        picture = PIL.Image.fromarray((torch.from_numpy(fine[..., 0].astype("int32")) * r.choice([1, 3])).numpy().astype("uint16"))
    elif mode == "P":
        picture = picture.quantize(32)
    else:
        picture = picture.convert(mode)
    exif = picture.getexif()
    if kind in ("jpg", "png", "webp") and r.random() < 0.5:
        exif[0x0112] = r.randint(1, 8)
    path = folder / f"{r.randrange(1 << 30)}.{kind if kind != 'ppm' else 'ppm' if mode == 'RGB' else 'pgm'}"
    moving = dict(save_all=True, append_images=[picture.rotate(180)]) if kind in ("png", "webp", "gif") and r.random() < 0.3 else {}
    picture.save(path, **(dict(exif=exif) if exif else {}), **(dict(lossless=True) if kind == "webp" else {}), **moving)
    return path


def gemma3(r):
    """A processor with settings of its own, options of ferry, and what they are to the processor."""
    processor = golden.FAMILIES["gemma3"]()[2]
    pixels = processor.image_processor
    side = r.choice([32, 56, 224])
    pixels.size = dict(height=side, width=side)
    pixels.resample = r.choice([1, 2, 3])
    pixels.image_mean = [r.choice([0.5, 0.485, 0.4]) for _ in range(3)]
    return (processor, ["--pan-and-scan"], dict(do_pan_and_scan=True)) if r.random() < 0.5 else (processor, [], {})


def gemma3n(r):
    normal = r.random() < 0.5
    return gemma3n_golden.processor(
        side=r.choice([32, 48, 224, 768]), tokens=r.choice([1, 16, 256]), resample=r.choice([1, 2, 3]), do_normalize=normal,
        image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)]), [], {}


def gemma4(r):
    patch, pool = r.choice([2, 3, 4, 8]), r.choice([1, 2, 3])
    normal = r.random() < 0.3
    return golden.gemma4_processor(
        patch_size=patch, pooling_kernel_size=pool, max_soft_tokens=r.choice([70, 140, 280]), resample=r.choice([1, 2, 3]),
        do_normalize=normal, **(dict(image_mean=[0.5, 0.4, 0.485], image_std=[0.5, 0.3, 0.25]) if normal else {})), [], {}


def lfm2_vl(r):
    processor = golden.FAMILIES["lfm2_vl"]()[2]
    pixels = processor.image_processor
    patch, merge = r.choice([2, 4, 8]), r.choice([1, 2, 3])
    most = r.choice([4, 12, 64])
    least, tiles = r.choice([(2, 4), (2, 3), (3, 4), (4, 4), (1, 1)])
    words = pixels.to_dict() | dict(
        encoder_patch_size=patch, downsample_factor=merge, max_image_tokens=most, min_image_tokens=r.choice([1, most // 2, most // 4]),
        tile_size=patch * merge * r.choice([1, 2, 4]), min_tiles=least, max_tiles=tiles, do_image_splitting=r.random() < 0.8,
        use_thumbnail=r.random() < 0.7, max_pixels_tolerance=r.choice([1.0, 2.0, 2.5]), resample=r.choice([1, 2, 3]),
        image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)])
    made = transformers.Lfm2VlImageProcessor(**{key: value for key, value in words.items() if key != "image_processor_type"})
    return transformers.Lfm2VlProcessor(made, processor.tokenizer, chat_template=processor.chat_template), [], {}


def other_backend(processor):
    """The processor that computes with Pillow what this one computes with torchvision; None where transformers has none."""
    made = getattr(transformers, type(processor.image_processor).__name__ + "Pil", None)
    if made is None:
        return None
    other = copy.copy(processor)
    other.image_processor = made(**{key: value for key, value in processor.image_processor.to_dict().items()
                                    if key not in ("image_processor_type", "_processor_class", "processor_class")})
    return other


def gemma3_model(r):
    cls, config, processor = golden.FAMILIES["gemma3"]()
    side = r.choice([1, 2, 4])
    patch, block = r.choice([2, 3, 4]), r.choice([1, 2, 3])
    heads = r.choice([1, 2, 4])
    config["vision_config"] = golden.siglip(
        hidden_size=heads * r.choice([4, 8]), num_attention_heads=heads, intermediate_size=r.choice([12, 20]),
        num_hidden_layers=r.choice([1, 2, 3]), image_size=side * block * patch, patch_size=patch,
        hidden_act=r.choice(["gelu", "gelu_pytorch_tanh", "relu"]), layer_norm_eps=r.choice([1e-6, 1e-3]),
        vision_use_head=r.random() < 0.5)
    layers = [r.choice(["sliding_attention", "full_attention"]) for _ in range(r.choice([1, 2, 4]))]
    config["text_config"].update(num_hidden_layers=len(layers), layer_types=layers, sliding_window=r.choice([3, 8, 40]))
    config["mm_tokens_per_image"] = side * side
    config["tie_word_embeddings"] = r.random() < 0.5
    pixels = transformers.Gemma3ImageProcessor(size=dict(height=side * block * patch, width=side * block * patch))
    return cls, config, transformers.Gemma3Processor(pixels, processor.tokenizer, chat_template=processor.chat_template,
                                                     image_seq_length=side * side)


def drawn_stage(r, channels):
    """Blocks of a stage of a tower of timm: the first has its stride, the last is no attention."""
    def inverted(stride=1):
        kernels = dict(start=r.choice([0, 3, 4, 5]), mid=r.choice([0, 0, 3, 5]), end=r.choice([0, 0, 3]))
        if stride > 1 and not any(kernels.values()):
            kernels["start"] = 2
        return golden.inverted(channels, stride, ratio=r.choice([1.0, 2.0, 2.3]), **kernels)

    def other():
        if r.random() < 0.5:
            return golden.mobile_attention(channels, r.choice([1, 2, 3]), r.choice([3, 4, 8]), r.choice([1, 2, 3]), r.choice([1, 3, 4]))
        return golden.edge(channels, 1, r.choice([1, 3, 4])) if r.random() < 0.3 else inverted()
    first = golden.edge(channels, 2, r.choice([2, 3, 5]), r.choice([1.0, 2.0])) if r.random() < 0.4 else inverted(2)
    made = [first, *[other() for _ in range(r.choice([0, 1, 2, 3]))]]
    for block in made[1:]:
        block["noskip"] = r.random() < 0.2
    return made + ([inverted()] if made[-1]["block_type"] == "mqa" else [])


def gemma3n_model(r):
    """A tower of random stages over pictures of any size, of which all, some or one are put together."""
    stages = [drawn_stage(r, r.choice([8, 16])) for _ in range(r.choice([1, 2, 3, 4]))]
    side, size = r.choice([1, 2, 3, 4]), r.choice([32, 48, 61, 97])
    count = len(stages) + 1
    more = r.choice([{}, {}, dict(msfa_indices=sorted(r.sample(range(count), r.randint(1, count)))), dict(msfa_indices=r.randint(1, count)),
                     dict(stem_bias=False, layer_scale_init_value=None), dict(channel_multiplier=r.choice([0.5, 1.5])),
                     dict(stem_size=12, fix_stem=True)])
    config = gemma3n_golden.seeing_config(stages, side, **more)
    config["vision_config"]["rms_norm_eps"] = r.choice([1e-6, 1e-3])
    return transformers.Gemma3nForConditionalGeneration, config, gemma3n_golden.processor(side=size, tokens=side * side)


def gemma4_model(r):
    cls, config, _ = golden.FAMILIES["gemma4"]()
    patch, pool, heads, dim = r.choice([2, 3]), r.choice([2, 3]), r.choice([1, 2, 4]), r.choice([4, 8, 12])
    config["vision_config"] = golden.gemma4_tower(
        hidden_size=r.choice([16, 24, 32]), num_attention_heads=heads, num_key_value_heads=r.choice([k for k in (1, 2, 4) if heads % k == 0]),
        head_dim=dim, intermediate_size=r.choice([12, 20]), num_hidden_layers=r.choice([1, 2, 3]), patch_size=patch,
        pooling_kernel_size=pool, position_embedding_size=70 * pool + r.choice([0, 9]), use_clipped_linears=r.random() < 0.5,
        standardize=r.random() < 0.5, hidden_activation=r.choice(["gelu", "gelu_pytorch_tanh", "silu"]),
        rms_norm_eps=r.choice([1e-6, 1e-3]), rope_parameters=dict(rope_type="axial", rope_theta=r.choice([100.0, 10000.0])))
    layers = [r.choice(["sliding_attention", "full_attention"]) for _ in range(r.choice([1, 2, 4]))]
    if r.random() < 0.5:
        layers = ["sliding_attention", "full_attention"] + layers
    shared = r.choice([n for n in range(len(layers)) if set(layers[len(layers) - n:] + ["full_attention"]) <= set(layers[:len(layers) - n])
                       or n == 0])
    layers[-1] = "full_attention"
    config["text_config"].update(
        num_hidden_layers=len(layers), layer_types=layers, sliding_window=r.choice([3, 8, 40, 250]), num_kv_shared_layers=shared,
        hidden_size_per_layer_input=8 if shared else r.choice([0, 0, 8]),  # the reference shares nothing without
        use_bidirectional_attention=r.choice([None, "vision"]),
        final_logit_softcapping=r.choice([None, 30.0]), pad_token_id=r.choice([0, 7]), use_double_wide_mlp=r.random() < 0.3)
    if r.random() < 0.3:
        config["text_config"].update(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=24)
    if r.random() < 0.3:  # whose weights are left out
        config["audio_config"] = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, subsampling_conv_channels=[4, 4],
                                      output_proj_dims=24)
    return cls, config, golden.gemma4_processor(patch_size=patch, pooling_kernel_size=pool)


def lfm2_vl_model(r):
    cls, config, processor = golden.FAMILIES["lfm2_vl"]()
    patch, merge = r.choice([2, 3, 4]), r.choice([1, 2, 3])
    heads = r.choice([1, 2, 4])
    config["vision_config"] = golden.siglip2(
        hidden_size=heads * r.choice([4, 8]), num_attention_heads=heads, intermediate_size=r.choice([12, 20]),
        num_hidden_layers=r.choice([1, 2, 3]), num_patches=r.choice([1, 4, 9, 36]), patch_size=patch,
        hidden_act=r.choice(["gelu", "gelu_pytorch_tanh", "relu"]), layer_norm_eps=r.choice([1e-6, 1e-3]),
        vision_use_head=r.random() < 0.5)
    layers = ["full_attention"] + [r.choice(["conv", "full_attention"]) for _ in range(r.choice([1, 2]))]
    config["text_config"].update(num_hidden_layers=len(layers), layer_types=layers)
    if r.random() < 0.3:
        config["text_config"].update(model_type="lfm2_moe", moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2,
                                     num_dense_layers=1)
    config.update(downsample_factor=merge, tie_word_embeddings=r.random() < 0.7, projector_hidden_size=r.choice([24, 40]),
                  projector_bias=r.random() < 0.5, projector_use_layernorm=r.random() < 0.5,
                  projector_hidden_act=r.choice(["gelu", "silu"]))
    pixels = transformers.Lfm2VlImageProcessor(
        encoder_patch_size=patch, downsample_factor=merge, tile_size=patch * merge * r.choice([2, 3]), min_image_tokens=2,
        max_image_tokens=r.choice([6, 12]), max_tiles=r.choice([2, 4]), use_thumbnail=r.random() < 0.7)
    return cls, config, transformers.Lfm2VlProcessor(pixels, processor.tokenizer, chat_template=processor.chat_template)


def llava(r):
    processor = golden.FAMILIES["llava"]()[2]
    side = r.choice([16, 33, 56])
    words = dict(resample=r.choice([1, 2, 3]), image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)])
    kind = r.choice([transformers.CLIPImageProcessor, transformers.LlavaImageProcessor, transformers.SiglipImageProcessor])
    if kind is transformers.SiglipImageProcessor or r.random() < 0.2:
        words |= dict(size=dict(height=side, width=side), do_center_crop=False)
    else:
        words |= dict(size=dict(shortest_edge=max(1, side + r.choice([-5, 0, 7]))), crop_size=dict(height=side, width=side))
    if kind is transformers.LlavaImageProcessor:
        words |= dict(do_pad=r.random() < 0.5)
    strategy = r.choice(["default", "full"])
    return transformers.LlavaProcessor(
        kind(**words), processor.tokenizer, patch_size=r.choice([4, 7]), vision_feature_select_strategy=strategy,
        num_additional_image_tokens=r.choice([0, 1]), chat_template=processor.chat_template), [], {}


def llava_model(r):
    cls, config, processor = golden.FAMILIES["llava"]()
    patch, side, heads, layers = r.choice([2, 4]), r.choice([2, 3]), r.choice([1, 2, 4]), r.choice([1, 2, 4])
    sizes = dict(hidden_size=heads * r.choice([4, 8]), num_attention_heads=heads, intermediate_size=r.choice([12, 20]),
                 num_hidden_layers=layers, image_size=side * patch, patch_size=patch, layer_norm_eps=r.choice([1e-6, 1e-3]),
                 hidden_act=r.choice(["quick_gelu", "gelu", "gelu_pytorch_tanh"]))
    seen = r.random() < 0.6
    config["vision_config"] = golden.clip(**sizes) if seen else golden.siglip(**sizes, vision_use_head=r.random() < 0.5)
    which = [r.randint(1, layers) - r.choice([0, layers + 1]) for _ in range(r.choice([1, 1, 2]))]
    strategy = r.choice(["default", "full"])
    config.update(vision_feature_layer=which if len(which) > 1 else which[0], vision_feature_select_strategy=strategy,
                  multimodal_projector_bias=r.random() < 0.5, projector_hidden_act=r.choice(["gelu", "silu"]),
                  tie_word_embeddings=r.random() < 0.3)
    config["text_config"].update(model_type=r.choice(["llama", "mistral", "qwen2", "qwen3", "phi3"]), head_dim=12)
    if config["text_config"]["model_type"] == "phi3":
        config["text_config"].pop("head_dim")
    pixels = transformers.CLIPImageProcessor(size=dict(shortest_edge=side * patch),
                                             crop_size=dict(height=side * patch, width=side * patch))
    return cls, config, transformers.LlavaProcessor(
        pixels, processor.tokenizer, patch_size=patch, vision_feature_select_strategy=strategy,
        num_additional_image_tokens=int(seen), chat_template=processor.chat_template)


def pinpoints(r, tile, most=4):
    """Resolutions of whole tiles, in no order."""
    return [[tile * r.randint(1, most), tile * r.randint(1, most)] for _ in range(r.choice([1, 3, 6, 12]))]


def llava_next(r):
    processor = golden.FAMILIES["llava_next"]()[2]
    tile = r.choice([8, 16, 33, 56])
    size = r.choice([dict(shortest_edge=tile), dict(height=tile, width=tile)])
    patch, strategy = r.choice([3, 4, 7]), r.choice(["default", "full"])
    more = 1 if tile < 2 * patch else r.choice([0, 1])  # the whole picture has tokens
    words = dict(resample=r.choice([1, 2, 3]), image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)], size=size,
                 crop_size=dict(height=tile, width=tile), do_center_crop=r.random() < 0.7, image_grid_pinpoints=pinpoints(r, tile))
    return transformers.LlavaNextProcessor(
        transformers.LlavaNextImageProcessor(**words), processor.tokenizer, patch_size=patch,
        vision_feature_select_strategy=strategy, num_additional_image_tokens=more,
        chat_template=processor.chat_template), [], {}


def tiled_tower(r, seen, **more):
    """A tower of CLIP, or of SigLIP, of few patches, which may leave pixels at the edge."""
    patch, side, heads, layers = r.choice([2, 4]), r.choice([2, 3]), r.choice([1, 2, 4]), r.choice([1, 2, 4])
    sizes = dict(hidden_size=heads * r.choice([4, 8]), num_attention_heads=heads, intermediate_size=r.choice([12, 20]),
                 num_hidden_layers=layers, image_size=side * patch + r.choice([0, patch - 1]), patch_size=patch,
                 layer_norm_eps=r.choice([1e-6, 1e-3]), hidden_act=r.choice(["quick_gelu", "gelu", "gelu_pytorch_tanh"]), **more)
    return golden.clip(**sizes) if seen else golden.siglip(**sizes, vision_use_head=r.random() < 0.5)


def llava_next_model(r):
    cls, config, processor = golden.FAMILIES["llava_next"]()
    seen = r.random() < 0.6
    tower = config["vision_config"] = tiled_tower(r, seen)
    tile, layers = tower["image_size"], tower["num_hidden_layers"]
    which = [r.randint(1, layers) - r.choice([0, layers + 1]) for _ in range(r.choice([1, 1, 2]))]
    strategy, sizes = "default" if seen else "full", pinpoints(r, tile, 3)
    config.update(vision_feature_layer=which if len(which) > 1 else which[0], vision_feature_select_strategy=strategy,
                  multimodal_projector_bias=r.random() < 0.5, projector_hidden_act=r.choice(["gelu", "silu"]),
                  tie_word_embeddings=r.random() < 0.3, image_grid_pinpoints=sizes)
    config["text_config"].update(model_type=r.choice(["llama", "mistral", "qwen2", "qwen3"]), head_dim=12, max_position_embeddings=512)
    pixels = transformers.LlavaNextImageProcessor(size=dict(shortest_edge=tile), crop_size=dict(height=tile, width=tile),
                                                  image_grid_pinpoints=sizes)
    return cls, config, transformers.LlavaNextProcessor(
        pixels, processor.tokenizer, patch_size=tower["patch_size"], vision_feature_select_strategy=strategy,
        num_additional_image_tokens=int(seen), chat_template=processor.chat_template)


def llava_onevision(r):
    processor = golden.FAMILIES["llava_onevision"]()[2]
    tile = r.choice([8, 16, 33, 56, 384])
    words = dict(resample=r.choice([1, 2, 3]), image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)],
                 size=dict(height=tile, width=tile))
    if tile < 384:
        words["image_grid_pinpoints"] = pinpoints(r, tile, 6)
    return transformers.LlavaOnevisionProcessor(
        transformers.LlavaOnevisionImageProcessor(**words), processor.tokenizer, processor.video_processor,
        num_image_tokens=r.choice([4, 9, 10, 27 * 27]), vision_feature_select_strategy=r.choice(["default", "full"]),
        vision_aspect_ratio=f"anyres_max_{r.choice([1, 2, 4, 9])}", chat_template=processor.chat_template), [], {}


def llava_onevision_model(r):
    cls, config, processor = golden.FAMILIES["llava_onevision"]()
    seen, most = r.random() < 0.2, f"anyres_max_{r.choice([1, 2, 3])}"
    tower = config["vision_config"] = tiled_tower(r, seen)
    tile, layers = tower["image_size"], tower["num_hidden_layers"]
    which = [r.randint(1, layers) - r.choice([0, layers + 1]) for _ in range(r.choice([1, 1, 2]))]
    strategy, sizes = "default" if seen else "full", pinpoints(r, tile, 3)
    config.update(vision_feature_layer=which if len(which) > 1 else which[0], vision_feature_select_strategy=strategy,
                  multimodal_projector_bias=r.random() < 0.5, projector_hidden_act=r.choice(["gelu", "silu"]),
                  tie_word_embeddings=r.random() < 0.3, image_grid_pinpoints=sizes, vision_aspect_ratio=most)
    config["text_config"].update(model_type=r.choice(["qwen2", "qwen2", "llama", "qwen3"]), max_position_embeddings=512)
    pixels = transformers.LlavaOnevisionImageProcessor(size=dict(height=tile, width=tile), image_grid_pinpoints=sizes)
    side = tile // tower["patch_size"]
    return cls, config, transformers.LlavaOnevisionProcessor(
        pixels, processor.tokenizer, processor.video_processor, num_image_tokens=side * side + int(seen),
        vision_feature_select_strategy=strategy, vision_aspect_ratio=most, chat_template=processor.chat_template)


def granite_vision_model(r):
    cls, config, processor = llava_next_model(r)
    config["text_config"] = golden.FAMILIES["granite_vision"]()[1]["text_config"] | dict(
        embedding_multiplier=r.choice([1.0, 0.5, 12.0]), attention_multiplier=r.choice([0.1, 0.5]), residual_multiplier=r.choice([0.2, 1.0]),
        logits_scaling=r.choice([1.0, 8.0]), max_position_embeddings=512, tie_word_embeddings=config["tie_word_embeddings"])
    return cls, config, processor


def pixtral(r):
    patch, merge = r.choice([2, 7, 14, 16]), r.choice([1, 2, 3])
    processor = golden.pixtral_processor(merge, patch)
    size = r.choice([dict(longest_edge=r.choice([64, 300, 1024])), dict(height=r.choice([50, 200]), width=r.choice([40, 300]))])
    made = transformers.PixtralImageProcessor(size=size, resample=r.choice([1, 2, 3]),
                                              image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)])
    return transformers.PixtralProcessor(made, processor.tokenizer, patch_size=patch, spatial_merge_size=merge,
                                         chat_template=processor.chat_template), [], {}


def pixtral_tower(r, **more):
    heads = r.choice([1, 2, 4])
    return golden.pixtral(hidden_size=heads * r.choice([4, 8, 12]), num_attention_heads=heads, intermediate_size=r.choice([12, 20]),
                          num_hidden_layers=r.choice([1, 2, 3]), hidden_act=r.choice(["gelu", "silu"]),
                          **(dict(rope_parameters=dict(rope_type="axial", rope_theta=r.choice([50.0, 1e5]))) if r.random() < 0.3 else {}),
                          **more)


def mistral3_model(r):
    cls, config, _ = golden.FAMILIES["mistral3"]()
    patch, merge = r.choice([2, 3, 4]), r.choice([1, 2, 3])
    tower = config["vision_config"] = pixtral_tower(r, patch_size=patch)
    layers = tower["num_hidden_layers"]
    config.update(spatial_merge_size=merge, multimodal_projector_bias=r.random() < 0.5, projector_hidden_act=r.choice(["gelu", "silu"]),
                  vision_feature_layer=r.choice([-1, -1, [-1], r.randint(1, layers)]), tie_word_embeddings=r.random() < 0.5)
    if r.random() < 0.5:
        config["text_config"] = golden.text_sizes(model_type="ministral3", head_dim=16, sliding_window=None, rope_parameters=dict(
            rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=1.0, mscale=1.0,
            mscale_all_dim=1.0, llama_4_scaling_beta=r.choice([0.1, 0.5])))
    elif r.random() < 0.5:
        config["text_config"]["sliding_window"] = r.choice([5, 40])
    return cls, config, golden.pixtral_processor(merge, patch, patch * merge * r.choice([3, 5, 6]))


def llava_pixtral_model(r):
    cls, config, _ = golden.FAMILIES["llava_pixtral"]()
    patch = r.choice([3, 4])
    tower = config["vision_config"] = pixtral_tower(r, patch_size=patch)
    layers = tower["num_hidden_layers"]
    which = [r.randint(1, layers) - r.choice([0, layers + 1]) for _ in range(r.choice([1, 1, 2]))]
    config.update(vision_feature_layer=which if len(which) > 1 else which[0], multimodal_projector_bias=r.random() < 0.5,
                  projector_hidden_act=r.choice(["gelu", "silu"]), tie_word_embeddings=r.random() < 0.3)
    return cls, config, golden.pixtral_processor(1, patch, patch * r.choice([4, 7]))


def paligemma(r):
    processor = golden.FAMILIES["paligemma"]()[2]
    side = r.choice([16, 33, 56])
    pixels = transformers.SiglipImageProcessor(size=dict(height=side, width=side), resample=r.choice([1, 2, 3]),
                                               image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)])
    pixels.image_seq_length = r.choice([1, 16, 49])
    return transformers.PaliGemmaProcessor(pixels, processor.tokenizer, chat_template=processor.chat_template), [], {}


def paligemma_model(r):
    cls, config, _ = golden.FAMILIES[r.choice(["paligemma", "paligemma2"])]()
    side, patch, heads = r.choice([1, 2, 4]), r.choice([2, 3, 4]), r.choice([1, 2, 4])
    config["vision_config"] = golden.siglip(
        hidden_size=heads * r.choice([4, 8]), num_attention_heads=heads, intermediate_size=r.choice([12, 20]),
        num_hidden_layers=r.choice([1, 2, 3]), image_size=side * patch, patch_size=patch,
        hidden_act=r.choice(["gelu", "gelu_pytorch_tanh", "relu"]), layer_norm_eps=r.choice([1e-6, 1e-3]),
        vision_use_head=r.random() < 0.5)
    if config["text_config"]["model_type"] == "gemma2":
        layers = [r.choice(["sliding_attention", "full_attention"]) for _ in range(r.choice([1, 2, 4]))]
        config["text_config"].update(num_hidden_layers=len(layers), layer_types=layers)
    config["tie_word_embeddings"] = r.random() < 0.5
    return cls, config, golden.paligemma_processor(side * patch, patch)


# Pictures that the reference cannot process either, or by no rule.
REFUSED = ("are the most of the processor", "the reference has no rule for the choice", "is too narrow to become")
# Families whose pictures keep their shape, and which have no static programs for that.
ANY_SHAPE = (*qwen_models.PROCESSORS, "mistral3", "llava_pixtral")

PROCESSORS = dict(gemma3=gemma3, gemma3n=gemma3n, gemma4=gemma4, lfm2_vl=lfm2_vl, llava=llava, llava_next=llava_next, llava_onevision=llava_onevision, paligemma=paligemma, pixtral=pixtral, **{name: lambda r, name=name: (qwen_models.processor(name, r), [], {})
                                    for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")})
MODELS = dict(gemma3=gemma3_model, gemma3n=gemma3n_model, gemma4=gemma4_model, lfm2_vl=lfm2_vl_model, llava=llava_model, llava_next=llava_next_model, llava_onevision=llava_onevision_model, granite_vision=granite_vision_model, llava_pixtral=llava_pixtral_model,
              mistral3=mistral3_model, paligemma=paligemma_model,
              **{name: lambda r, name=name: qwen_models.model(name, r) for name in qwen_models.PROCESSORS})
STATIC = ["--program", "static", "--context-length", "200"]


def pixels(promise, family, number):
    """What ferry makes of pictures is what the processor makes, byte for byte."""
    r = random.Random(f"{promise.seed} {family} {number}")
    folder = promise.folder / f"{family}-{number}"
    folder.mkdir()
    processor, options, asked = PROCESSORS[family](r)
    processor.save_pretrained(folder)
    other = other_backend(processor)
    backend = r.choice(["torchvision", "pil"] if other else ["torchvision"])
    processor = processor if backend == "torchvision" else other
    paths = [draw(r, folder) for _ in range(r.choice([1, 1, 2]))]
    chat = [dict(role="user", content=[golden.text("a "), *[golden.IMAGE] * len(paths), golden.text(" b")])]
    (folder / "chat.json").write_text(json.dumps(dict(messages=chat, add_generation_prompt=True)))
    run = common.Ferry("preprocess", *paths, "--checkpoint", folder, "--messages", folder / "chat.json", "-o",
                       folder / "made.safetensors", "--backend", backend, *options)
    if run.code == 4 and any(reason in run.why for reason in REFUSED):
        return f"refused: {run.why}"
    run.ends_with(0)
    pictures = [PIL.ImageOps.exif_transpose(PIL.Image.open(path)).convert("RGB") for path in paths]
    words = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    wanted = processor(text=[words], images=[pictures], return_tensors="pt", add_special_tokens=False, **asked)
    made = safetensors.torch.load_file(folder / "made.safetensors")
    for name in sorted((set(wanted) | set(made)) - {"attention_mask", "labels"}):
        if name not in made or name not in wanted:
            raise Wrong(f"{name}: only one of the two has it")
        if made[name].shape != wanted[name].shape:
            raise Wrong(f"{name}: {list(made[name].shape)}, the reference {list(wanted[name].shape)}")
        if not torch.equal(made[name], wanted[name].to(made[name].dtype)):
            raise Wrong(f"{name}: differs by {float((made[name].double() - wanted[name].double()).abs().max()):.3g} at most")
    return f"{backend}, {', '.join(path.suffix[1:] for path in paths)}: {list(made['pixel_values'].shape)}"


def model(promise, family, number):
    """A random model of the family: all stages, in a random style of program."""
    r = random.Random(f"{promise.seed} {family} model {number}")
    folder = promise.folder / f"{family}-model-{number}"
    folder.mkdir()
    cls, config, processor = MODELS[family](r)
    processor.save_pretrained(folder)
    golden.models.build(cls, config, number).save_pretrained(folder)
    golden.record(folder, folder / "golden.safetensors")
    style = r.choice([[], ["--shards", "1", "--kv-dtype", "f32"], STATIC])
    if style is STATIC and family in ANY_SHAPE:
        style = ["--prefill-length", "7"]
    if style is STATIC and family == "gemma4":  # a call has an image of 70 rows, and the cache the others
        style = ["--program", "static", "--context-length", "256", "--prefill-length", "72"]
    common.convert(folder, folder / "bundle", "--dtype", "f32", "--inputs", "images", *style)
    made = common.verify(folder / "bundle", "--checkpoint", folder, "--reference", folder / "golden.safetensors")
    if made.code:
        raise Wrong(f"verify exits {made.code}: {made.why if made.code > 1 else common.first_difference(made.result)}")
    stages = {layer["name"] for layer in made.result["layers"]}
    skipped = [case["skipped"] for case in made.result["cases"] if case.get("skipped")]
    # Features of earlier layers need not have the last one.
    last = "vision_hidden_states.0" if "vision_feature_layer" in config else "vision_last_hidden_state"
    if skipped or not {last, "image_features", "hidden_states.0"} <= stages:
        raise Wrong(f"not every stage is compared: {skipped or sorted(stages)}")


def main():
    promise = common.Promise(__doc__)
    for number in range(2 if promise.sample else 50):
        promise.case(f"odd pictures {number}", odd_pictures.case, promise, number)
    for family in PROCESSORS:
        for number in range(4 if promise.sample else 20):
            promise.case(f"{family}, pictures {number}", pixels, promise, family, number)
    for family in MODELS:
        for number in range(2 if promise.sample else 10):
            promise.case(f"{family}, model {number}", model, promise, family, number)
    promise.finish()


if __name__ == "__main__":
    main()
