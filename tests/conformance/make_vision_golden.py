"""Makes the fixture of a vision-language family: a tiny random checkpoint with its processor, and what transformers computes.

    python tests/conformance/make_vision_golden.py gemma3

Writes testdata/vision/NAME: the checkpoint in bf16, the files of the processor with a tokenizer of bytes, cases.json (the chats
and their pictures, which are in testdata/media/images) and golden.safetensors, which is what `python -m ferry.reference`
records of them; and testdata/families/NAME (config and keys). The weights are those of the first seed whose greedy tokens are
decided by margins of at least MARGIN. A second run writes the same. Needs torch, torchvision and transformers 5.23.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import models  # noqa: E402: it imports torch and transformers
import safetensors.torch  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402
from make_golden import list_keys  # noqa: E402

GREEDY = 8
MARGIN = 0.01
MARGINS = {"gemma3n": 0.0025}  # whose logits are nearer to each other
SEEDS = 60
IMAGES = ROOT / "testdata" / "media" / "images"
# Tensors that are kept of a chat that is not the first.
OF_OTHERS = ("input_ids", "pixel_values", "pixel_attention_mask", "spatial_shapes", "image_position_ids", "token_type_ids", "image_grid_thw",
             "image_sizes", "batch_num_images", "mm_token_type_ids", "logits", "greedy_ids")


def text(words):
    return {"type": "text", "text": words}


IMAGE = {"type": "image"}
CHATS = {
    "one": (["noise.png"], [{"role": "user", "content": [IMAGE, text("What is it?")]}]),
    "two": (["wide_6x1.png", "tiny.png"], [
        {"role": "user", "content": [text("See "), IMAGE, text(" here.")]},
        {"role": "assistant", "content": [text("A thing.")]},
        {"role": "user", "content": [text("And "), IMAGE, text("?")]}]),
}


def byte_tokenizer(special, **names):
    """A token for each byte behind those of `special`; `names` are attributes such as image_token."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    ids = {token: i for i, token in enumerate(special + alphabet)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=[], fuse_unk=False))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in special])
    known = {name: names.pop(name) for name in ("bos_token", "eos_token", "pad_token") if name in names}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, extra_special_tokens=names, **known)


def siglip(**more):
    return dict(dict(model_type="siglip_vision_model", hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                     num_attention_heads=2, image_size=32, patch_size=4, vision_use_head=False), **more)


def text_sizes(**more):
    return dict(dict(vocab_size=272, hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0), **more)


TURNS = ("{%% for m in messages %%}{{ '<start_of_turn>' + m.role + '\\n' }}{%% for c in m.content %%}{%% if c.type == 'image' %%}"
         "{{ '%s' }}{%% else %%}{{ c.text }}{%% endif %%}{%% endfor %%}{{ '<end_of_turn>\\n' }}{%% endfor %%}"
         "{%% if add_generation_prompt %%}{{ '<start_of_turn>assistant\\n' }}{%% endif %%}")


def gemma3():
    special = ["<pad>", "<bos>", "<eos>", "<start_of_image>", "<end_of_image>", "<image_soft_token>", "<start_of_turn>",
               "<end_of_turn>"]
    words = byte_tokenizer(special, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", boi_token="<start_of_image>",
                           eoi_token="<end_of_image>", image_token="<image_soft_token>")
    pixels = transformers.Gemma3ImageProcessor(size=dict(height=32, width=32))
    template = "{{ bos_token }}" + TURNS % "<start_of_image>"
    # The window is shorter than an image.
    config = dict(text_config=text_sizes(head_dim=16, sliding_window=12, query_pre_attn_scalar=16,
                                         layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
                  vision_config=siglip(), mm_tokens_per_image=16, boi_token_index=3, eoi_token_index=4, image_token_index=5)
    return transformers.Gemma3ForConditionalGeneration, config, transformers.Gemma3Processor(
        pixels, words, chat_template=template, image_seq_length=16)


def inverted(channels, stride=1, start=0, mid=0, end=0, ratio=2.0):
    """A block of a tower of timm as its arguments state it; likewise below."""
    return dict(block_type="uir", out_chs=channels, stride=stride, act_layer=None, dw_kernel_size_start=start, dw_kernel_size_mid=mid,
                dw_kernel_size_end=end, exp_ratio=ratio, se_ratio=0.0, noskip=False)


def edge(channels, stride=1, kernel=3, ratio=2.0):
    return dict(block_type="er", out_chs=channels, stride=stride, act_layer=None, exp_kernel_size=kernel, pw_kernel_size=1, exp_ratio=ratio,
                force_in_chs=0, se_ratio=0.0, noskip=False)


def mobile_attention(channels, heads=2, size=4, kv_stride=1, kernel=3):
    return dict(block_type="mqa", out_chs=channels, stride=1, act_layer=None, dw_kernel_size=kernel, num_heads=heads, key_dim=size,
                value_dim=size, kv_stride=kv_stride, noskip=False)


def gemma3n():
    # The stages of the released tower with fewer blocks and channels; pictures of 64 pixels a side make 4 rows.
    import make_gemma3n_sound_golden as whole
    blocks = [[edge(8, 2), edge(8)], [inverted(8, 2, 3, 5, ratio=6.0), inverted(8, 1, 5)],
              [inverted(8, 2, 5, 5), mobile_attention(8, kv_stride=2), inverted(8, end=3)],
              [inverted(16, 2, 5, 5), mobile_attention(16, heads=3), inverted(16)]]
    return (transformers.Gemma3nForConditionalGeneration, whole.seeing_config(blocks),
            whole.processor(rows=whole.ROWS, side=64, tokens=4))


def gemma4_processor(template="{{ bos_token }}" + TURNS % "<|image|>", **pixels):
    """Pictures of 2 x 2 pixels a patch, 2 x 2 patches a token, 70 tokens at most."""
    special = ["<pad>", "<bos>", "<eos>", "<|image|>", "<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>", "<|video|>",
               "<start_of_turn>", "<end_of_turn>"]
    words = byte_tokenizer(special, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", image_token="<|image|>",
                           boi_token="<|image>", eoi_token="<image|>", audio_token="<|audio|>", boa_token="<|audio>",
                           eoa_token="<audio|>")
    settings = dict(dict(patch_size=2, pooling_kernel_size=2, max_soft_tokens=70), **pixels)
    return transformers.Gemma4Processor(transformers.Gemma4AudioFeatureExtractor(), transformers.Gemma4ImageProcessor(**settings), words,
                                        transformers.Gemma4VideoProcessor(), chat_template=template)


def gemma4_ids():
    return dict(image_token_id=3, boi_token_id=4, eoi_token_id=5, audio_token_id=6, boa_token_id=7, eoa_token_index=8,
                video_token_id=9)


def gemma4_tower(**more):
    return dict(dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     head_dim=8, patch_size=2, pooling_kernel_size=2, position_embedding_size=150), **more)


def gemma4_text(**more):
    return text_sizes(head_dim=16, global_head_dim=24, vocab_size_per_layer_input=272, **more)


def gemma4():
    # Layers have inputs of their own; images attend to each other in the layers with windows, which are shorter than an image.
    # The last two layers share keys and values.
    layers = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    config = dict(text_config=gemma4_text(num_hidden_layers=4, layer_types=layers, sliding_window=12, num_kv_shared_layers=2,
                                          hidden_size_per_layer_input=12, use_bidirectional_attention="vision"),
                  vision_config=gemma4_tower(use_clipped_linears=True, standardize=True), audio_config=None, **gemma4_ids())
    return transformers.Gemma4ForConditionalGeneration, config, gemma4_processor()


def siglip2(**more):
    return dict(dict(model_type="siglip2_vision_model", hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                     num_attention_heads=2, patch_size=4, num_patches=25, vision_use_head=False), **more)


def lfm2_vl():
    # Pictures of more than 2 x 16 tokens of 8 x 8 pixels become 2 to 4 tiles of 24 x 24 and a thumbnail.
    grid = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5) if row * column <= 4]
    special = ["<pad>", "<bos>", "<eos>", "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<start_of_turn>",
               "<end_of_turn>"] + grid
    words = byte_tokenizer(special, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", image_token="<image>",
                           image_start_token="<|image_start|>", image_end_token="<|image_end|>",
                           image_thumbnail="<|img_thumbnail|>")
    pixels = transformers.Lfm2VlImageProcessor(encoder_patch_size=4, tile_size=24, min_image_tokens=4, max_image_tokens=12,
                                               max_tiles=4)
    config = dict(text_config=text_sizes(model_type="lfm2", vocab_size=280, hidden_size=32, intermediate_size=48,
                                         block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention", "conv"]),
                  vision_config=siglip2(), image_token_id=3, projector_hidden_size=40)
    return transformers.Lfm2VlForConditionalGeneration, config, transformers.Lfm2VlProcessor(
        pixels, words, chat_template="{{ bos_token }}" + TURNS % "<image>")


def clip(**more):
    return dict(dict(model_type="clip_vision_model", hidden_size=32, intermediate_size=40, num_hidden_layers=3,
                     num_attention_heads=2, image_size=32, patch_size=8, projection_dim=16), **more)


def llava():
    words = byte_tokenizer(["<pad>", "<bos>", "<eos>", "<image>", "<start_of_turn>", "<end_of_turn>"], bos_token="<bos>",
                           eos_token="<eos>", pad_token="<pad>", image_token="<image>")
    pixels = transformers.CLIPImageProcessor(size=dict(shortest_edge=36), crop_size=dict(height=32, width=32))
    config = dict(text_config=text_sizes(model_type="llama"), vision_config=clip(), image_token_index=3)
    return transformers.LlavaForConditionalGeneration, config, transformers.LlavaProcessor(
        pixels, words, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template="{{ bos_token }}" + TURNS % "<image>")


def tiled_words():
    return byte_tokenizer(["<pad>", "<bos>", "<eos>", "<image>", "<start_of_turn>", "<end_of_turn>"], bos_token="<bos>", eos_token="<eos>",
                          pad_token="<pad>", image_token="<image>")


def llava_next():
    # Tiles of 20 pixels have 3 x 3 features, of patches of 6; the edge is left over.
    sizes = [[20, 40], [40, 20], [40, 40], [20, 60]]
    pixels = transformers.LlavaNextImageProcessor(size=dict(shortest_edge=20), crop_size=dict(height=20, width=20), image_grid_pinpoints=sizes)
    config = dict(text_config=text_sizes(model_type="mistral", hidden_size=32, head_dim=8, sliding_window=None), vision_config=clip(image_size=20, patch_size=6),
                  image_token_index=3, image_grid_pinpoints=sizes)
    return transformers.LlavaNextForConditionalGeneration, config, transformers.LlavaNextProcessor(
        pixels, tiled_words(), patch_size=6, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template="{{ bos_token }}" + TURNS % "<image>")


def llava_onevision():
    # Tiles of 20 pixels have 3 x 3 features, of patches of 6; pictures of more than 2 tiles are reduced.
    sizes = [[20, 20], [20, 40], [40, 20], [40, 40], [60, 60], [20, 80]]
    words = byte_tokenizer(["<pad>", "<bos>", "<eos>", "<image>", "<start_of_turn>", "<end_of_turn>", "<video>"], bos_token="<bos>",
                           eos_token="<eos>", pad_token="<pad>", image_token="<image>", video_token="<video>")
    pixels = transformers.LlavaOnevisionImageProcessor(size=dict(height=20, width=20), image_grid_pinpoints=sizes)
    config = dict(text_config=text_sizes(model_type="qwen2", hidden_size=32), vision_config=siglip(image_size=20, patch_size=6),
                  image_token_index=3, video_token_index=6, image_grid_pinpoints=sizes, vision_aspect_ratio="anyres_max_2")
    return transformers.LlavaOnevisionForConditionalGeneration, config, transformers.LlavaOnevisionProcessor(
        pixels, words, transformers.LlavaOnevisionVideoProcessor(), num_image_tokens=9, vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_2", chat_template=TURNS % "<image>")


def granite_vision():
    # Four states of SigLIP side by side; the decoder multiplies rows of images and of text alike.
    sizes = [[20, 40], [40, 20], [40, 40], [20, 60]]
    pixels = transformers.LlavaNextImageProcessor(size=dict(height=20, width=20), crop_size=dict(height=20, width=20), image_grid_pinpoints=sizes)
    config = dict(text_config=text_sizes(model_type="granite", hidden_size=32, embedding_multiplier=6.0, attention_multiplier=0.3,
                                         residual_multiplier=0.4, logits_scaling=2.0, tie_word_embeddings=True),
                  vision_config=siglip(image_size=20, patch_size=6, num_hidden_layers=4), image_token_index=3, image_grid_pinpoints=sizes,
                  vision_feature_layer=[-4, -3, -2, -1], vision_feature_select_strategy="full", tie_word_embeddings=True)
    return transformers.LlavaNextForConditionalGeneration, config, transformers.LlavaNextProcessor(
        pixels, tiled_words(), patch_size=6, vision_feature_select_strategy="full", chat_template="{{ bos_token }}" + TURNS % "<image>")


def pixtral(**more):
    return dict(dict(model_type="pixtral", hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
                     patch_size=4, image_size=48), **more)


def pixtral_processor(merge, patch=4, longest=48):
    words = byte_tokenizer(["<pad>", "<s>", "</s>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]", "[/INST]"], bos_token="<s>",
                           eos_token="</s>", pad_token="<pad>")
    pixels = transformers.PixtralImageProcessor(size=dict(longest_edge=longest), patch_size=patch)
    return transformers.PixtralProcessor(pixels, words, patch_size=patch, spatial_merge_size=merge,
                                         chat_template="{{ bos_token }}" + TURNS.replace("<start_of_turn>", "[INST]").replace(
                                             "<end_of_turn>", "[/INST]") % "[IMG]")


def mistral3():
    # Blocks of 2 x 2 patches of 4 pixels; the longer side has 48 pixels at most.
    config = dict(text_config=text_sizes(model_type="mistral", head_dim=16, sliding_window=None, rms_norm_eps=1e-4),
                  vision_config=pixtral(), image_token_index=3)
    return transformers.Mistral3ForConditionalGeneration, config, pixtral_processor(2)


def llava_pixtral():
    config = dict(text_config=text_sizes(model_type="mistral", head_dim=16, sliding_window=None), vision_config=pixtral(num_hidden_layers=3),
                  image_token_index=3, vision_feature_layer=[1, -1], vision_feature_select_strategy="full")
    return transformers.LlavaForConditionalGeneration, config, pixtral_processor(1, longest=32)


def paligemma_processor(side, patch):
    words = byte_tokenizer(["<pad>", "<bos>", "<eos>", "<image>", "<start_of_turn>", "<end_of_turn>"], bos_token="<bos>",
                           eos_token="<eos>", pad_token="<pad>", image_token="<image>")
    pixels = transformers.SiglipImageProcessor(size=dict(height=side, width=side))
    pixels.image_seq_length = (side // patch) ** 2
    return transformers.PaliGemmaProcessor(pixels, words, chat_template=TURNS % "<image>")


def paligemma(text="gemma", **more):
    # Positions count from 1; the tokens of a prompt attend to each other. The 1152 tokens that the processor adds are no part of the model.
    config = dict(text_config=text_sizes(model_type=text, hidden_size=32, head_dim=16, **more),
                  vision_config=siglip(patch_size=8), image_token_index=3, projection_dim=32, vocab_size=272, hidden_size=32)
    return transformers.PaliGemmaForConditionalGeneration, config, paligemma_processor(32, 8)


def paligemma2():
    return paligemma("gemma2", query_pre_attn_scalar=16, sliding_window=256, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"])


QWEN_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ c.text }}"
    "{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def qwen(processor, **pixels):
    """A processor of Qwen-VL: patches of 4 pixels in blocks of 2 x 2, 1600 pixels of a picture at most."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    words = byte_tokenizer(special, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    settings = dict(dict(patch_size=4, merge_size=2, temporal_patch_size=2, size=dict(shortest_edge=256, longest_edge=1600)), **pixels)
    videos = getattr(transformers, "Qwen3VLVideoProcessor" if "Qwen3" in processor else "Qwen2VLVideoProcessor")
    return getattr(transformers, processor)(transformers.Qwen2VLImageProcessor(**settings), words,
                                            videos(patch_size=4, merge_size=2, temporal_patch_size=2), chat_template=QWEN_TEMPLATE)


def qwen_ids():
    return dict(image_token_id=5, video_token_id=6, vision_start_token_id=3, vision_end_token_id=4)


def qwen_tower(**more):
    return dict(dict(depth=3, hidden_size=24, intermediate_size=28, num_heads=2, patch_size=4, spatial_merge_size=2,
                     temporal_patch_size=2, out_hidden_size=32), **more)


def qwen_text(sections, **more):
    rope = dict(rope_type="default", rope_theta=10000.0, mrope_section=sections)
    return text_sizes(hidden_size=32, intermediate_size=40, rope_parameters=rope, **more)


def qwen2_5_vl():
    # Windows of 2 x 2 blocks, but for the second layer. The sections are of unequal size.
    config = dict(text_config=qwen_text([1, 1, 2]),
                  vision_config=qwen_tower(window_size=16, fullatt_block_indexes=[1]), **qwen_ids())
    return transformers.Qwen2_5_VLForConditionalGeneration, config, qwen("Qwen2_5_VLProcessor")


def qwen2_vl():
    config = dict(text_config=qwen_text([2, 1, 1]),
                  vision_config=dict(depth=2, embed_dim=24, hidden_size=32, mlp_ratio=2, num_heads=2, patch_size=4,
                                     spatial_merge_size=2, temporal_patch_size=2), **qwen_ids())
    return transformers.Qwen2VLForConditionalGeneration, config, qwen("Qwen2VLProcessor")


def qwen3_vl():
    # Layers 0 and 2 of the tower go to the first two of three layers, in this order; the table of positions is 5 x 5.
    config = dict(text_config=qwen_text([3, 3, 2], head_dim=16),
                  vision_config=qwen_tower(num_position_embeddings=25, deepstack_visual_indexes=[2, 0]), **qwen_ids())
    return transformers.Qwen3VLForConditionalGeneration, config, qwen("Qwen3VLProcessor", image_mean=[0.5] * 3, image_std=[0.5] * 3)


def qwen3_vl_moe():
    cls, config, processor = qwen3_vl()
    config["text_config"].update(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, decoder_sparse_step=1)
    return transformers.Qwen3VLMoeForConditionalGeneration, config, processor


def qwen3_5():
    # Gated DeltaNet, attention, Gated DeltaNet; RoPE turns half of a head.
    config = dict(text_config=dict(qwen_text([2, 1, 1], head_dim=16, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                                             linear_value_head_dim=8)),
                  vision_config=qwen_tower(num_position_embeddings=16), **qwen_ids())
    config["text_config"]["rope_parameters"]["partial_rotary_factor"] = 0.5
    return transformers.Qwen3_5ForConditionalGeneration, config, qwen("Qwen3VLProcessor")


def qwen3_5_moe():
    cls, config, processor = qwen3_5()
    config["text_config"].update(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=20)
    return transformers.Qwen3_5MoeForConditionalGeneration, config, processor


FAMILIES = {family.__name__: family for family in (
    gemma3, gemma3n, gemma4, granite_vision, lfm2_vl, llava, llava_next, llava_onevision, llava_pixtral, mistral3, paligemma, paligemma2, qwen3_5, qwen3_5_moe, qwen2_5_vl, qwen2_vl, qwen3_vl, qwen3_vl_moe)}


def requests(folder):
    """The chats as lines of a file of prompts."""
    rows = [dict(name=name, messages=messages, images=[str(IMAGES / image) for image in images])
            for name, (images, messages) in CHATS.items()]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def record(folder, out):
    out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        prompts = requests(pathlib.Path(temporary))
        if reference.main([str(folder), "-o", str(out), "--prompts", str(prompts), "--max-new", str(GREEDY), "--no-f64", "-q"]):
            sys.exit("make_vision_golden.py: there is no reference")
    return safetensors.torch.load_file(out)


def least_margin(tensors):
    logits = [tensors[name] for name in tensors if name.endswith(".greedy_logits")]
    top = torch.cat(logits).topk(2).values
    whole = all(len(rows) == GREEDY for rows in logits)
    return float((top[:, 0] - top[:, 1]).min()) if whole else 0.0


def make(name, testdata):
    cls, config, processor = FAMILIES[name]()
    folder = testdata / "vision" / name
    folder.mkdir(parents=True, exist_ok=True)
    processor.save_pretrained(folder)
    golden = folder / "golden.safetensors"
    for seed in range(SEEDS):
        models.build(cls, config, seed).to(torch.bfloat16).save_pretrained(folder)
        tensors = record(folder, golden)
        least = least_margin(tensors)
        if least >= MARGINS.get(name, MARGIN):
            break
    else:
        sys.exit(f"make_vision_golden.py: no seed below {SEEDS} decides all tokens clearly")
    print(f"seed {seed}: margins of {least:.4f}")
    kept = {key: value for key, value in tensors.items() if key.startswith("one.") or key.split(".", 1)[1] in OF_OTHERS}
    safetensors.torch.save_file(kept, golden)
    cases = {case: dict(images=images, messages=messages) for case, (images, messages) in CHATS.items()}
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    if name == "gemma3n":
        import make_gemma3n_sound_golden as whole
        whole.answer_both(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    list_keys(folder, testdata / "families" / (name + "_images"))


def make_grids(testdata):
    """testdata/vision/grids.json: what transformers makes of the shapes of images, and of images in sequences."""
    import transformers.vision_utils as vision
    images = []
    for rows, columns, merge, window, table in [(2, 2, 2, 0, 0), (6, 10, 2, 2, 3), (10, 6, 2, 3, 1), (9, 3, 3, 2, 4), (5, 7, 1, 4, 9)]:
        shape = torch.tensor([[1, rows, columns]])
        case = dict(rows=rows, columns=columns, merge=merge, window=window, table=table)
        places = vision.get_vision_position_ids(shape, merge)
        order, ends = torch.arange(rows * columns // merge**2), torch.tensor([0, rows * columns])
        if window:
            order, ends = vision.get_vision_window_index(shape, merge, window * merge * 4, 4)
        numbers = torch.repeat_interleave(torch.arange(len(ends) - 1), ends.diff().long())
        arrange = lambda values: values.reshape(len(order), merge**2, -1)[order].reshape(rows * columns, -1)  # noqa: E731
        case.update(blocks=order.tolist(), positions=arrange(places).T.flatten().tolist(), windows=numbers.tolist())
        if table:
            taps, weights = vision.get_vision_interpolation_indices_and_weights(shape, table, align_corners=True,
                                                                                spatial_merge_size=merge)
            case.update(table_rows=arrange(taps).T.flatten().tolist(), table_weights=arrange(weights).T.flatten().tolist())
        images.append(case)
    model = transformers.Qwen2VLModel(transformers.Qwen2VLConfig(**FAMILIES["qwen2_vl"]()[1]))
    sequences = []
    for shapes, texts in [([(4, 6)], [3, 2]), ([(2, 2), (10, 4), (4, 4)], [0, 1, 5, 4]), ([(2, 8), (8, 2)], [2, 1, 0])]:
        types = []
        for (rows, columns), words in zip(shapes, texts):
            types += [0] * words + [1] * (rows * columns // 4)
        types += [0] * texts[-1]
        ids = torch.tensor([types])
        positions, _ = model.get_rope_index(ids, mm_token_type_ids=ids, image_grid_thw=torch.tensor([[1, *shape] for shape in shapes]))
        sequences.append(dict(types=types, blocks=[[rows // 2, columns // 2] for rows, columns in shapes],
                              positions=positions[:, 0].tolist()))
    (testdata / "vision" / "grids.json").write_text(json.dumps(dict(images=images, sequences=sequences)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*FAMILIES, "grids"])
    parser.add_argument("--testdata", type=pathlib.Path, default=ROOT / "testdata", help="folder to write into")
    words = parser.parse_args()
    make_grids(words.testdata) if words.name == "grids" else make(words.name, words.testdata)


if __name__ == "__main__":
    main()
