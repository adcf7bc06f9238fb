"""Projectors: the files in which llama.cpp keeps the vision encoder of a model, beside its text decoder.

- The text decoder and the projector that ferry writes of a random model become the programs and weights that the checkpoint becomes,
  byte for byte, and compute what transformers computes.
- The rows that llama.cpp makes of a picture with our projector are those of transformers; of a tower of CLIP those of a tower whose
  class token is behind the patches, where llama.cpp puts it.

    python3 tests/conformance/projectors.py --ferry build/release/bin/ferry [--sample] [--seed N] [--only TEXT]
"""
import contextlib
import ctypes
import hashlib
import json
import random
import unittest.mock

import common
import make_vision_golden as golden  # it imports torch and transformers
import numpy
import PIL.Image
import torch
import transformers
from common import Wrong
from gguf_peers import silent
from pictures import MODELS
from transformers.models.clip.modeling_clip import CLIPVisionEmbeddings


def idefics3_model(r):
    """Idefics3 with a tokenizer of bytes; pictures become tiles with their row and column."""
    heads, patch, factor, blocks = r.choice([1, 2, 4]), r.choice([2, 4]), r.choice([1, 2]), r.choice([2, 3])
    side = patch * factor * blocks
    special = ["<pad>", "<bos>", "<eos>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>",
               "<start_of_turn>", "<end_of_turn>"] + [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    words = golden.byte_tokenizer(special, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
    config = dict(
        text_config=golden.text_sizes(model_type="llama", vocab_size=len(special) + 256, max_position_embeddings=512),
        vision_config=dict(hidden_size=heads * 8, num_attention_heads=heads, intermediate_size=20, num_hidden_layers=r.choice([2, 3]),
                           image_size=side, patch_size=patch),
        scale_factor=factor, image_token_id=3, tie_word_embeddings=False)
    pixels = transformers.Idefics3ImageProcessor(size=dict(longest_edge=2 * side), max_image_size=dict(longest_edge=side))
    return transformers.Idefics3ForConditionalGeneration, config, transformers.Idefics3Processor(
        pixels, words, image_seq_len=blocks * blocks, chat_template="{{ bos_token }}" + golden.TURNS % "<image>")


def plain(family, config, processor):
    """Gives the model what readers of GGUF assume of its family."""
    tower, words = config["vision_config"], config["text_config"]
    if family in ("gemma3", "lfm2_vl", "gemma4"):
        tower["hidden_activation" if family == "gemma4" else "hidden_act"] = "gelu_pytorch_tanh"
    if family == "gemma3":
        words["layer_types"] = ["sliding_attention"] * words["num_hidden_layers"]
    if family == "gemma4":
        tower["rope_parameters"] = dict(rope_type="axial", rope_theta=100.0)
        words["use_bidirectional_attention"] = "vision"
        config.pop("audio_config", None)
    if family == "lfm2_vl":
        config["projector_hidden_act"] = "gelu"
    if family in ("mistral3", "llava_pixtral"):
        config.update(vision_feature_layer=-1, projector_hidden_act="gelu")
        tower.pop("rope_parameters", None)
        if family == "mistral3":
            config["text_config"] = golden.text_sizes(model_type="mistral", sliding_window=None, rms_norm_eps=1e-5, head_dim=12)
    if family == "llava":
        seen, last = tower["model_type"] == "clip_vision_model", tower["num_hidden_layers"] + 1
        which = config["vision_feature_layer"]
        which = sorted({layer % last for layer in (which if isinstance(which, list) else [which])})
        strategy = "default" if seen else "full"
        config.update(vision_feature_layer=which, vision_feature_select_strategy=strategy, multimodal_projector_bias=True,
                      projector_hidden_act="gelu", text_config=golden.text_sizes(model_type="llama", head_dim=12))
        processor.vision_feature_select_strategy = strategy
        if not seen or tower["hidden_act"] == "gelu_pytorch_tanh":
            tower["hidden_act"] = "quick_gelu" if seen else "gelu_pytorch_tanh"
        if tower["num_attention_heads"] == 1:  # the names of these linears are swapped
            tower["intermediate_size"] = tower["hidden_size"]
    if family.startswith("qwen"):
        tower.pop("rope_parameters", None)
        tower["temporal_patch_size"] = tower["spatial_merge_size"] = 2
        for part in (processor.image_processor, processor.video_processor):
            part.temporal_patch_size = part.merge_size = 2
        tower["hidden_act"] = dict(qwen2_vl="quick_gelu", qwen2_5_vl="silu").get(family, "gelu_pytorch_tanh")
        words["use_sliding_window"] = False
        if "deepstack_visual_indexes" in tower:
            tower["deepstack_visual_indexes"] = sorted(tower["deepstack_visual_indexes"])
        if family == "qwen2_5_vl":
            every = min(2, tower["depth"])
            tower.update(window_size=112, fullatt_block_indexes=list(range(every - 1, tower["depth"], every)))
    return config


def drawn(promise, family, number):
    r = random.Random(f"{promise.seed} {family} projector {number}")
    cls, config, processor = (idefics3_model if family == "idefics3" else MODELS[family])(r)
    return cls, plain(family, config, processor), processor


def digests(bundle):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in bundle.iterdir() if path.suffix in (".pte", ".ptd")}


class Refused(Exception):
    """GGUF cannot say what the model is."""


def files_of(folder, source):
    """The two files of a checkpoint. The tokenizer of bytes has no name; one that splits nothing else stands for it."""
    made = common.Ferry("convert", source, "-o", folder / "text.gguf", "--to", "gguf", "--outtype", "f32", "--tokenizer-pre", "gpt-2")
    if made.ends_with(0, 4).code == 4:
        raise Refused(made.why)
    common.convert(source, folder / "mmproj.gguf", "--to", "mmproj", "--outtype", "f32")
    return folder / "text.gguf", folder / "mmproj.gguf"


def saved(promise, family, number, name):
    folder = promise.folder / f"{name}-{family}-{number}"
    source = folder / "checkpoint"
    source.mkdir(parents=True)
    cls, config, processor = drawn(promise, family, number)
    processor.save_pretrained(source)
    model = golden.models.build(cls, config, number)
    if family == "gemma3":  # files have this matrix in f16
        matrix = model.model.multi_modal_projector.mm_input_projection_weight
        matrix.data = matrix.data.bfloat16().float()
    model.save_pretrained(source)
    return folder, source, model


def pair(promise, family, number):
    folder, source, _ = saved(promise, family, number, "pair")
    try:
        text, projector = files_of(folder, source)
    except Refused as why:
        return f"refused: {why}"
    options = ["--dtype", "f32", "--inputs", "images", "--prefill-length", "128"]
    # The most patches of a tile are those of the processor, of which a projector says nothing.
    stated = ["--config", source / "config.json"] if family in ("lfm2_vl", "gemma4") else []
    made = common.convert(text, folder / "pair", "--mmproj", projector, *options, *stated)
    wanted = common.convert(source, folder / "whole", *options)
    # -exp(A_log) of recurrent layers loses a bit.
    other = {name for name, digest in digests(wanted).items() if digests(made).get(name) != digest and not (
        family.startswith("qwen3_5") and name.startswith("decoder") and name.endswith(".ptd"))}
    if other:
        raise Wrong(f"other programs or weights: {sorted(other)}")
    golden.record(source, folder / "golden.safetensors")
    result = common.verify(made, "--checkpoint", text, "--mmproj", projector, "--reference", folder / "golden.safetensors", *stated)
    if result.code:
        raise Wrong(f"verify exits {result.code}: {result.why if result.code > 1 else common.first_difference(result.result)}")
    common.Ferry("verify", projector, "--checkpoint", source).ends_with(0)
    return None


class Projector:
    """A projector in llama.cpp's library for pictures."""

    def __init__(self, text, projector):
        import llama_cpp
        from llama_cpp import mtmd_cpp
        self.mtmd, self.llama = mtmd_cpp, llama_cpp
        with silent():
            self.model = llama_cpp.Llama(str(text), n_ctx=512, n_gpu_layers=0, verbose=False)
            options = mtmd_cpp.mtmd_context_params_default()
            options.use_gpu, options.n_threads, options.print_timings = False, 2, False
            self.context = mtmd_cpp.mtmd_init_from_file(str(projector).encode(), self.model.model, options)
        if not self.context:
            raise Wrong("llama.cpp does not open the projector")

    def rows(self, picture, width):
        """The features of a picture, [rows, width]."""
        mtmd = self.mtmd
        pixels = numpy.ascontiguousarray(picture, dtype=numpy.uint8)
        bitmap = mtmd.mtmd_bitmap_init(pixels.shape[1], pixels.shape[0], pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))
        chunks = mtmd.mtmd_input_chunks_init()
        words = mtmd.mtmd_input_text()
        words.text, words.add_special, words.parse_special = mtmd.mtmd_default_marker(), False, True
        words.text_len = len(words.text)
        with silent():
            code = mtmd.mtmd_tokenize(self.context, chunks, ctypes.byref(words), (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap), 1)
        if code:
            raise Wrong(f"llama.cpp does not tokenize: {code}")
        rows = []
        for i in range(mtmd.mtmd_input_chunks_size(chunks)):
            chunk = mtmd.mtmd_input_chunks_get(chunks, i)
            if mtmd.mtmd_input_chunk_get_type(chunk) != mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE:
                continue
            with silent():
                if mtmd.mtmd_encode_chunk(self.context, chunk):
                    raise Wrong("llama.cpp does not encode the picture")
            count = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
            rows.append(numpy.array(mtmd.mtmd_get_output_embd(self.context)[:count * width], dtype="f8").reshape(count, width))
        return numpy.concatenate(rows)


def pictured(model, processor, noise):
    """The features that transformers makes of a picture that no one resizes, [rows, width]."""
    inputs = processor.image_processor(images=[PIL.Image.fromarray(noise)], return_tensors="pt")
    with torch.no_grad():
        made = model.get_image_features(**inputs)
    made = made if torch.is_tensor(made) or isinstance(made, (list, tuple)) else made.pooler_output
    made = torch.cat(list(made)) if isinstance(made, (list, tuple)) else made
    return made.reshape(-1, model.config.text_config.hidden_size).double().numpy()


def class_token_behind(embeddings, pixel_values, interpolate_pos_encoding=False):
    """The embeddings of CLIP as llama.cpp orders them: the class token is behind the patches, and has their last position."""
    patches = embeddings.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
    rows = torch.cat([patches, embeddings.class_embedding.expand(len(patches), 1, -1)], dim=1)
    return rows + embeddings.position_embedding(embeddings.position_ids)


def features(promise, family, number):
    """The rows of llama.cpp are those of transformers; of Pixtral it puts [IMG_BREAK] between the rows of a picture."""
    folder, source, model = saved(promise, family, number, "features")
    path = source / "tokenizer.json"
    words = json.loads(path.read_text())
    words["model"]["vocab"]["ab"] = len(words["model"]["vocab"])
    words["model"]["merges"] = [["a", "b"]]  # llama.cpp wants some
    path.write_text(json.dumps(words))
    text, projector = files_of(folder, source)
    tower = model.config.vision_config
    side = tower.image_size if family in ("gemma3", "llava") else 4 * tower.patch_size
    noise = numpy.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=numpy.uint8)
    _, _, processor = drawn(promise, family, number)
    seen = family == "llava" and tower.model_type == "clip_vision_model"
    with unittest.mock.patch.object(CLIPVisionEmbeddings, "forward", class_token_behind) if seen else contextlib.nullcontext():
        theirs = pictured(model, processor, noise)
    ours = Projector(text, projector).rows(noise, theirs.shape[1])
    if family == "llava_pixtral":
        token = processor.tokenizer.convert_tokens_to_ids("[IMG_BREAK]")
        between = model.get_input_embeddings().weight[token].detach().double().numpy()
        if abs(ours[4::5] - between).max() > 1e-6 * abs(between).max():
            raise Wrong("the rows of the picture are not apart")
        ours = numpy.delete(ours, slice(4, None, 5), axis=0)
    if ours.shape != theirs.shape:
        raise Wrong(f"{ours.shape} rows, transformers has {theirs.shape}")
    worst = abs(ours - theirs).max() / abs(theirs).max()
    # The linear of Gemma 3 is f16 there; the tables of GELU are too.
    if not worst < 1e-2:
        raise Wrong(f"off by {worst:.1e} of the largest number")
    return f"off by {worst:.1e} of the largest number{', the class token behind the patches' if seen else ''}"


PICTURED = ("gemma3", "llava", "llava_pixtral")  # tiny towers of other kinds are too small for its kernels
FAMILIES = ("idefics3", "gemma3", "gemma4", "lfm2_vl", "llava", "llava_pixtral", "mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl",
            "qwen3_vl_moe", "qwen3_5")


def main():
    promise = common.Promise(__doc__)
    for family in FAMILIES:
        if family != "idefics3" and family not in MODELS:
            continue
        for number in range(1 if promise.sample else 6):
            promise.case(f"{family} {number}", pair, promise, family, number)
    try:
        import llama_cpp  # noqa: F401
    except ImportError:
        promise.note("without llama.cpp")
    else:
        for family in PICTURED:
            for number in range(1 if promise.sample else 6):
                promise.case(f"{family} in llama.cpp {number}", features, promise, family, number)
    promise.finish()


if __name__ == "__main__":
    main()
