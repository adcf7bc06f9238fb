"""Random processors and models of Qwen-VL for pictures.py: towers over images of any shape."""
import make_vision_golden as golden  # it imports torch and transformers
import transformers

PROCESSORS = dict(qwen2_vl="Qwen2VLProcessor", qwen2_5_vl="Qwen2_5_VLProcessor", qwen3_vl="Qwen3VLProcessor",
                  qwen3_vl_moe="Qwen3VLProcessor", qwen3_5="Qwen3VLProcessor", qwen3_5_moe="Qwen3VLProcessor")


def processor(name, r):
    """A processor with settings of its own."""
    least = r.choice([1, 56 * 56, 100 * 100])
    settings = dict(patch_size=r.choice([4, 14, 16]), merge_size=r.choice([1, 2, 3]), temporal_patch_size=r.choice([1, 2]),
                    size=dict(shortest_edge=least, longest_edge=least * r.choice([1, 2, 30])), resample=r.choice([1, 2, 3]),
                    image_mean=[r.choice([0.5, 0.485, 0.4]) for _ in range(3)])
    return golden.qwen(PROCESSORS[name], **settings)


def sections(r, pairs):
    """Three numbers of pairs of dimensions, which are all pairs."""
    first = r.randint(0, pairs)
    second = r.randint(0, pairs - first)
    return [first, second, pairs - first - second]


def model(name, r):
    cls, config, _ = golden.FAMILIES[name]()
    patch, merge, frames = r.choice([2, 4, 5]), r.choice([1, 2, 3]), r.choice([1, 2, 3])
    heads, depth = r.choice([1, 2, 3]), r.choice([1, 2, 4])
    width = heads * r.choice([4, 8, 12])
    tower = config["vision_config"]
    tower.update(depth=depth, num_heads=heads, patch_size=patch, spatial_merge_size=merge, temporal_patch_size=frames,
                 hidden_act=r.choice(["gelu", "silu", "quick_gelu", "gelu_pytorch_tanh"]))
    layers = r.choice([1, 2, 3])
    config["text_config"].update(num_hidden_layers=layers, tie_word_embeddings=r.random() < 0.3)
    if name.startswith("qwen3_5"):
        kinds = [r.choice(["linear_attention", "full_attention"]) for _ in range(layers)]
        config["text_config"]["layer_types"] = kinds if "full_attention" in kinds else ["full_attention", *kinds[1:]]
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"]
    rope = config["text_config"]["rope_parameters"]
    if name == "qwen2_vl":
        tower.update(embed_dim=width, mlp_ratio=r.choice([1, 2, 4]))
    else:
        tower.update(hidden_size=width, intermediate_size=r.choice([12, 20]))
    if name == "qwen2_5_vl":
        tower.update(window_size=patch * merge * r.choice([1, 2, 3, 8]) + r.choice([0, 1]),
                     fullatt_block_indexes=[i for i in range(depth) if r.random() < 0.4])
    if name.startswith("qwen3"):
        side = r.choice([1, 2, 5, 9])
        tower.update(num_position_embeddings=side * side)
        if name.startswith("qwen3_vl"):
            tower["deepstack_visual_indexes"] = r.sample(range(depth), r.randint(0, min(depth, layers)))
        rope["mrope_section"] = r.choice([sections(r, 8), [8, 8, 8], [2, 3, 1]])
    else:
        rope["mrope_section"] = sections(r, 4)
        if r.random() < 0.3:
            config["text_config"].update(use_sliding_window=True, sliding_window=r.choice([4, 20]), max_window_layers=layers // 2)
    if r.random() < 0.3:
        tower["rope_parameters"] = dict(rope_type="axial", rope_theta=r.choice([50.0, 1e5]))
    block = (patch * merge) ** 2
    return cls, config, golden.qwen(PROCESSORS[name], patch_size=patch, merge_size=merge, temporal_patch_size=frames,
                                    size=dict(shortest_edge=block * r.choice([1, 4]), longest_edge=block * r.choice([6, 17, 30])))
