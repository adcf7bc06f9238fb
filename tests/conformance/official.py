"""The official ExecuTorch runtime of the Python package: programs of bundles in it, and single programs.

The runtime ends the process on some errors, so it runs in a process of its own, which is started again after such an end.
"""
import concurrent.futures
import json
import multiprocessing
import pathlib

from common import Wrong

MASKED = {"f32": -65535.0, "bf16": -65536.0, "f16": -65504.0}


class Runtime:
    """Calls functions in the process that has the official runtime."""

    def __init__(self):
        self.pool = None

    def __call__(self, function, *arguments, timeout=600):
        if self.pool is None:
            self.pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=load_runtime)
        try:
            return self.pool.submit(function, *arguments).result(timeout)
        except concurrent.futures.process.BrokenProcessPool:
            self.close()
            raise Wrong("the official runtime ends its process")
        except concurrent.futures.TimeoutError:
            self.close()
            raise Wrong(f"the official runtime takes more than {timeout} s")

    def close(self):
        if self.pool:
            for process in list((self.pool._processes or {}).values()):
                process.kill()
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None


def load_runtime():
    """Everything below runs in the other process; its messages would hide ours."""
    global torch, portable_lib
    import logging
    import os
    logging.disable(logging.WARNING)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    import torch
    from executorch.extension.pybindings import portable_lib
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  registers operators
    import executorch.kernels.quantized  # noqa: F401
    torch.set_num_threads(2)


def tokenizer_of_ids(vocab_size):
    """A tokenizer.json in which the text of a token is its id, such as <5>."""
    texts = [{"id": i, "content": f"<{i}>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": False} for i in range(vocab_size)]
    return json.dumps({
        "version": "1.0", "added_tokens": texts, "normalizer": None, "post_processor": None, "decoder": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {text["content"]: text["id"] for text in texts}, "merges": []}})


def answer(folder, parts, count):
    """The text of ExecuTorch's TextLLMRunner or MultimodalRunner with a bundle of one program.

    A prompt of text is a list of token ids; one with pictures or sounds is a list of such lists, of arrays of pixels [3,height,width]
    and of frames [1,mels,frames].
    """
    import importlib
    import sys
    import executorch.extension.llm as llm
    sys.path.insert(0, str(pathlib.Path(list(llm.__path__)[0]) / "runner"))
    runner = importlib.import_module("_llm_runner")
    config = runner.GenerationConfig()
    config.temperature, config.max_new_tokens, config.echo = 0, count, False
    files = [str(folder / name) for name in ("model.pte", "tokenizer.json", "model.ptd")]
    if isinstance(parts[0], int):
        pieces = []
        runner.TextLLMRunner(*files).generate("".join(f"<{i}>" for i in parts), config, pieces.append)
        return "".join(pieces)
    def made(part):
        if isinstance(part, list):
            return runner.make_token_input(part)
        return (runner.make_image_input if part.shape[0] == 3 else runner.make_audio_input)(torch.from_numpy(part))
    inputs = [made(part) for part in parts]
    return runner.MultimodalRunner(*files).generate_text(inputs, config)


def load_program(path, data=None):
    return portable_lib._load_program(str(path), data_path=str(data) if data else None,
                                      program_verification=portable_lib.Verification.InternalConsistency)


def merged(files, out):
    """One .ptd of several: the loader of the package takes a single one."""
    from executorch.exir._serialize._cord import Cord
    from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer
    serializer, buffers, entries = FlatTensorSerializer(), [], {}
    for file in files:
        part = serializer.deserialize(Cord(pathlib.Path(file).read_bytes()))
        for key, entry in part.named_data.items():
            if key not in entries:
                entries[key] = DataEntry(len(buffers), entry.alignment, entry.tensor_layout)
                buffers.append(part.buffers[entry.buffer_index])
    out.write_bytes(bytes(serializer.serialize(DataPayload(buffers, entries))))
    return out


class Bundle:
    """The programs of a bundle by the role of their component; values pass from one to the next by their names."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifest = json.loads((self.folder / "manifest.json").read_text())
        self.model = self.manifest["model"]
        self.parts = {c["role"]: [(p, self.load(p), {}) for p in c["programs"]] for c in self.manifest["components"]}

    def load(self, program):
        data = [self.folder / name for name in program["data_files"]]
        if len(data) > 1:
            data = [merged(data, self.folder / (program["file"] + ".merged"))]
        return load_program(self.folder / program["file"], data[0] if data else None)

    def ports(self, role, method, way):
        return {port["name"]: port for program, *_ in self.parts[role] for m in program["methods"] if m["name"] == method
                for port in m[way]}

    def methods(self, role):
        return [m["name"] for m in self.parts[role][0][0]["methods"]]

    def call(self, role, method, values):
        """Executes a method of all programs of a component; values {name: tensor} has their outputs then."""
        for program, loaded, methods in self.parts[role]:
            if method not in methods:
                # Where components share a program, forward of each has the name of its role.
                shared = sum(p["file"] == program["file"] for programs in self.parts.values() for p, *_ in programs) > 1
                methods[method] = loaded.load_method(role if shared and method == "forward" else method)
            ports = next(m for m in program["methods"] if m["name"] == method)
            outputs = methods[method].call(tuple(values[port["name"]] for port in ports["inputs"]))
            values.update({port["name"]: value for port, value in zip(ports["outputs"], outputs)})
        return values


def rows(logits):
    return logits.to(torch.float32).reshape(-1, logits.shape[-1]).clone()


def stateful_logits(folder, ids, pixels=None, again=False):
    """Logits of every position: token by token, and of the last one after the whole prompt in calls as long as they may be.

    again: after the method has run other tokens, so that what is left in caches and memory must not matter.
    """
    bundle = Bundle(folder)
    embedded = embeddings(bundle, ids, pixels)
    # A later program may take embeddings that the first one passes on.
    inputs = bundle.ports("text_decoder", "forward", "inputs")
    port = "tokens" if "tokens" in inputs else "embeddings"
    most = inputs[port]["shape"][1]

    def forward(begin, end, tokens=ids, rows_of=embedded):
        given = torch.tensor([tokens[begin:end]]) if rows_of is None else rows_of[:, begin:end].contiguous()
        values = {port: given, "input_pos": torch.tensor([begin])}
        if "rope_positions" in inputs:  # a text has one position in all three dimensions
            values["rope_positions"] = torch.arange(begin, end).repeat(3, 1)
        if "deepstack_features" in inputs:  # of images, which a text has none of
            layers, _, width = inputs["deepstack_features"]["shape"]
            values["deepstack_features"] = torch.zeros(layers, end - begin, width)
        return rows(bundle.call("text_decoder", "forward", values)["logits"])

    if again:
        other = [(7 * token + 13) % bundle.model["vocab_size"] for token in ids]
        forward(0, min(most, len(ids)), other, None if embedded is None else embedded.flip(1) * 3 + 1)
    for begin in range(0, len(ids), most):
        whole = forward(begin, min(begin + most, len(ids)))
    return torch.cat([forward(i, i + 1) for i in range(len(ids))]).numpy(), whole[-1:].numpy()


def picture_logits(folder, ids, pixels, shapes=None):
    """Logits of a prompt with pictures, and their features. All of the prompt is one call.

    shapes: rows and columns of the patches of each picture, where a picture is a list of patches.
    """
    bundle = Bundle(folder)
    features = []
    for i, picture in enumerate(torch.from_numpy(pixels)):
        values = {"pixel_values": picture[None].clone()}
        if shapes is not None:
            values["spatial_shapes"] = torch.tensor([shapes[i]])
        made = bundle.call("vision_encoder", "forward", values)["image_features"][0].clone()
        features.append(made if shapes is None else made[:len(made) * shapes[i][0] * shapes[i][1] // len(picture)])
    return logits_with(bundle, ids, features)


def tiled_logits(folder, source, ids, pixels, sizes):
    """Logits of a prompt with pictures of several tiles, and their rows, which transformers puts together. All of the prompt is one call.

    pixels: [pictures, tiles, 3, side, side]; sizes: height and width of each picture in pixels.
    """
    import types

    import transformers
    bundle, config = Bundle(folder), transformers.AutoConfig.from_pretrained(source)
    pack = getattr(transformers, config.architectures[0].replace("ForConditionalGeneration", "Model")).pack_image_features
    features = []
    for size, tiles in zip(torch.tensor(sizes), torch.from_numpy(pixels)):
        made = torch.cat([bundle.call("vision_encoder", "forward", {"pixel_values": tile[None].clone()})["image_features"].clone()
                          for tile in tiles if tile.any()])
        words = dict(vision_feature_select_strategy=config.vision_feature_select_strategy) if config.model_type == "llava_next" else dict(
            vision_aspect_ratio=config.vision_aspect_ratio)
        features += pack(types.SimpleNamespace(config=config), [made[:, :-1]], [size], image_newline=made[0, -1], **words)[0]
    return logits_with(bundle, ids, features)


def logits_with(bundle, ids, features):
    """Logits of a prompt with these rows of pictures, in one call."""
    tokens, token = torch.tensor([ids]), bundle.model["image_token_id"]
    rows_of = bundle.call("token_embedding", "forward", {"tokens": tokens})["embeddings"].clone()
    places = [i for i, t in enumerate(ids) if t == token]
    rows_of[0, places] = torch.cat(features)
    ends, at = list(range(1, len(ids) + 1)), 0
    for rows in map(len, features):
        ends[places[at]:places[at] + rows] = [places[at] + rows] * rows
        at += rows
    values = {"embeddings": rows_of, "input_pos": torch.tensor([0]), "attention_end": torch.tensor([ends]), "layer_tokens": tokens}
    inputs = bundle.ports("text_decoder", "forward", "inputs")
    logits = bundle.call("text_decoder", "forward", {name: values[name] for name in inputs})["logits"]
    return logits[0].numpy(), torch.cat(features).numpy()


def embeddings(bundle, ids, pixels):
    """Rows of tokens and images, where the decoder takes them; None where it takes tokens."""
    if "token_embedding" not in bundle.parts:
        return None
    most = bundle.ports("token_embedding", "forward", "inputs")["tokens"]["shape"][1]
    out = torch.cat([bundle.call("token_embedding", "forward", {"tokens": torch.tensor([ids[i:i + most]])})["embeddings"].clone()
                     for i in range(0, len(ids), most)], 1)
    if pixels is not None:
        tiles = torch.from_numpy(pixels).reshape(-1, *pixels.shape[-3:])
        features = torch.cat([bundle.call("vision_encoder", "forward", {"pixel_values": tile[None].clone()})["image_features"].clone()
                              for tile in tiles]).reshape(-1, out.shape[-1])
        token = bundle.model["image_token_id"]
        if token is None:
            token = next(t for t in ids if ids.count(t) == len(features))
        out[0, [i for i, t in enumerate(ids) if t == token]] = features.to(out.dtype)
    return out


def encoder_states(folder, texts):
    """Last hidden states of texts, each in a call of its own, and all of them in one call where the program has a method for it."""
    bundle = Bundle(folder)
    calls = [{"tokens": torch.tensor([ids])} for ids in texts]
    out = [rows(bundle.call("text_encoder", "forward", values)["last_hidden_state"]) for values in calls]
    if "forward_texts" in bundle.methods("text_encoder"):
        values = dict(tokens=torch.tensor([[token for ids in texts for token in ids]]),
                      text_ids=torch.tensor([[i for i, ids in enumerate(texts) for _ in ids]]),
                      position_ids=torch.tensor([[i for ids in texts for i in range(len(ids))]]),
                      last_tokens=torch.tensor([[len(ids) for ids in texts]]).cumsum(1) - 1)
        out.append(rows(bundle.call("text_encoder", "forward_texts", values)["last_hidden_state"]))
    return [part.numpy() for part in out]


def sound_labels(folder, frames):
    """The outputs of the labels for the rows of a sound."""
    given = {"input_features": torch.from_numpy(frames)}
    return Bundle(folder).call("audio_encoder", "forward", given)["token_logits"].numpy()


def encoded_logits(folder, role, ids, given):
    """Logits of the last token, in one call and token by token, for frames or samples of a sound, or the ids of a text."""
    bundle = Bundle(folder)
    port = next(iter(bundle.ports(role, "forward", "inputs")))
    values = bundle.call(role, "forward", {port: torch.from_numpy(given)})
    cross = {name: value.clone() for name, value in values.items() if name != port}

    def forward(begin, end):
        given = dict(cross, tokens=torch.tensor([ids[begin:end]]), input_pos=torch.tensor([begin]))
        return rows(bundle.call("text_decoder", "forward", given)["logits"])[-1].numpy()
    return [forward(0, len(ids)), [forward(i, i + 1) for i in range(len(ids))][-1]]


def static_logits(folder, ids, in_chunks):
    """Logits of every position of a static bundle in f32, with caches kept here: token by token, or the prompt in chunks."""
    bundle = Bundle(folder)
    inputs = bundle.ports("text_decoder", "kv_forward", "inputs")
    state = {n: torch.zeros(p["shape"]) for n, p in inputs.items() if "state_" in n}
    columns = {n: [] for n in inputs if n.startswith(("k_cache_", "v_cache_"))}
    size, out, at = bundle.model["context_length"], [], 0
    window = None
    if "window_mask" in inputs:
        window = int(bundle.parts["text_decoder"][0][1].load_method("get_sliding_window").call(())[0])
    chunk = bundle.ports("text_decoder", "prefill_forward", "inputs")["tokens"]["shape"][1] if in_chunks else 0
    while at < len(ids):
        left = len(ids) - at
        method = "prefill_forward" if chunk and (left >= chunk or not state and left > 1) else "kv_forward"
        length = bundle.ports("text_decoder", method, "inputs")["tokens"]["shape"][1]
        n, pad = min(length, left), max(0, length - left)
        values = dict(state, tokens=torch.tensor([ids[at:at + n] + [0] * pad], dtype=torch.int32),
                      input_pos=torch.tensor([[*range(at, at + n)] + [at + n - 1] * pad], dtype=torch.int32),
                      attention_mask=mask(at, n, length, size, None), window_mask=mask(at, n, length, size, window))
        for name, known in columns.items():
            values[name] = torch.zeros(bundle.ports("text_decoder", method, "inputs")[name]["shape"])
            if known:
                axis = 3 if name[0] == "k" else 2
                values[name].narrow(axis, 0, at).copy_(torch.cat(known, axis))
        bundle.call("text_decoder", method, values)
        out.append(rows(values["logits"])[:n])
        for name, known in columns.items():
            new = values[f"new_{name[0]}_{name.split('_')[-1]}"]
            known.append(new.narrow(3 if name[0] == "k" else 2, 0, n).clone())
        state = {name: values["new_" + name].clone() for name in state}
        at += n
    return torch.cat(out).numpy()


def mask(at, n, length, size, window):
    """Added to scores: 0 attends. The last `length` columns are the tokens of the call, those before them the cache."""
    cached = size - length
    out = torch.full((length, size), MASKED["f32"])
    for row in range(length):
        position = at + min(row, n - 1)
        first = 0 if window is None else max(0, position - window + 1)
        out[row, first:min(at, cached)] = 0.0
        out[row, cached + max(0, first - at):cached + min(row, n - 1) + 1] = 0.0
    return out.reshape(1, 1, length, size)


def outputs_of(path, calls, data=None, method="forward", last=()):
    """Outputs of each call (a list of arrays) of a method of any program, as arrays. `last`: inputs that have their channels last in memory."""
    forward = load_program(path, data).load_method(method)
    def given(place, value):
        tensor = torch.from_numpy(value.copy())
        return tensor.to(memory_format=torch.channels_last) if place in last else tensor
    return [[o.clone().contiguous().numpy() for o in forward.call(tuple(given(*item) for item in enumerate(call))) if hasattr(o, "numpy")]
            for call in calls]
