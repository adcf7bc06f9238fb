"""Recorder: what a model computes of a prompt, under the names of docs/verifying.md."""
import contextlib
import math

import torch

from .caches import put_caches
from .source import decoder_of, layers_of, tower_of


def first_tensor(value):
    """The tensor of what a module returned: itself, the last hidden state, or the first of a tuple."""
    if torch.is_tensor(value):
        return value
    return value["last_hidden_state"] if "last_hidden_state" in value else value[0]


def input_of(arguments, options):
    return arguments[0] if arguments else options["hidden_states"]


def by_image(states):
    """States of a tower as [images,rows,width]; patches of images of any shape are rows of one."""
    return states[None] if states.dim() == 2 else states


def by_blocks(model, inputs):
    """A function that puts the patches of a tower of Pixtral, row after row, into the order of the blocks that become a token."""
    merge = getattr(model.config, "spatial_merge_size", 1)
    sizes = inputs.get("image_sizes")
    if sizes is None or merge == 1:
        return by_image
    patch, order, first = model.config.vision_config.patch_size, [], 0
    for height, width in sizes.tolist():
        rows, columns = height // patch, width // patch
        grid = torch.arange(first, first + rows * columns).view(rows // merge, merge, columns // merge, merge)
        order.append(grid.transpose(1, 2).flatten())
        first += rows * columns
    order = torch.cat(order)
    return lambda states: states[:, order]


def route_of(router, out):
    """The logits of a router and the experts that it chose. That of Llama 4 returns scores, 0 for other experts, and logits."""
    if len(out) == 2:
        return out[1], out[1].topk(router.top_k, dim=-1).indices
    return out[0], out[2]


class Joined(dict):
    """Tensors of a tower that a model calls for images and then for videos: lists of [1,rows of all,width]."""

    def __call__(self, name, value):
        self.setdefault(name, []).append(value.clone().reshape(1, -1, value.shape[-1]))


class Packed:
    """A hook on a method of a model that puts rows together from features: `rows` finds them in what it returns."""

    def __init__(self, model, method, rows, features):
        self.model, self.method, pack = model, method, getattr(model, method)

        def packed(*arguments, **options):
            made = pack(*arguments, **options)
            features.append(rows(made)[None])
            return made
        setattr(model, method, packed)

    def remove(self):
        delattr(self.model, self.method)


class Recorder:
    """Executes a model in its own dtype; `put(name, tensor)` gets every tensor when it is there."""

    def __init__(self, source):
        self.source, self.model = source, source.model
        self.decoder = decoder_of(self.model)
        self.layers = layers_of(self.decoder, source.layers)
        self.routers = {router: i for i, layer in enumerate(self.layers) for router in layer.modules()
                        if type(router).__name__.endswith("Router") and hasattr(router, "top_k")}

    def named(self, inputs):
        """The inputs under the names of forward(): where there is an encoder, the tokens are those of the decoder."""
        if not self.source.attends:
            return inputs
        names = {"input_ids": "decoder_input_ids", "source_ids": "input_ids"}
        given = {names.get(name, name): value for name, value in inputs.items()}
        if "source_ids" in inputs:  # without a mask T5Gemma leaves out tokens that are pad_token_id
            given["attention_mask"] = torch.ones_like(inputs["source_ids"])
        return given

    @contextlib.contextmanager
    def hooks(self):
        kept = []
        try:
            yield kept
        finally:
            for hook in kept:
                hook.remove()

    def prompt(self, inputs, put):
        """Everything of the prompt itself; returns logits [1,T,V] (encoders: states [1,T,E]) and the cache behind it."""
        seen, features = {}, []
        if hasattr(getattr(self.model, "model", None), "rope_deltas"):
            self.model.model.rope_deltas = None  # those of an earlier prompt
        with self.hooks() as hooks:
            self.watch_text(hooks, seen)
            if "pixel_values" in inputs or "pixel_values_videos" in inputs:
                both = "pixel_values" in inputs and "pixel_values_videos" in inputs
                joined = Joined() if both else put
                self.watch_images(hooks, joined, features, by_blocks(self.model, inputs))
            if self.source.attends:
                self.watch_encoder(hooks, put)
            if (self.source.listens or self.source.hears_whole) and "input_features" in inputs:
                self.watch_sound(hooks, self.joining(inputs, put))
            cache = None if self.source.encodes else self.cache()
            given = dict(inputs, use_cache=False) if cache is None else dict(inputs, use_cache=True, past_key_values=cache)
            if self.source.encodes and "use_cache" not in accepted(self.model):
                given.pop("use_cache")
            ran = self.model(**self.named(given))
        for name, value in inputs.items():
            if name != "input_features_mask":
                put(name, value)
            elif len(value) > 1:  # one sound has no padding
                put(name, value.long())
        if "pixel_values" in inputs and "pixel_values_videos" in inputs:
            for name, values in joined.items():
                put(name, torch.cat(values, dim=1))
        if features:  # a connector that is called for each tile gives different numbers of rows
            put("image_features", torch.cat(features, dim=0 if len(features) == 1 else 1))
        self.put_states({name: value for name, value in seen.items() if name != "last_hidden_state"}, put)
        if self.source.labels:
            put("last_hidden_state", seen["last_hidden_state"])
            put(self.source.labels, ran.logits)
            return ran.logits, None
        if self.source.encodes:
            put("last_hidden_state", ran.last_hidden_state)
            return ran.last_hidden_state, None
        put("logits", ran.logits)
        if cache is not None:
            put_caches(getattr(cache, "self_attention_cache", cache), self.source.config.get_text_config(), put)
        # Some models, such as the first GPT, leave the cache empty.
        kept = cache is not None and not self.turns_anew() and not self.limits_steps() and cache.get_seq_length() > 0
        return ran.logits, cache if kept else None

    def watch_text(self, hooks, seen):
        width = self.source.config.get_text_config().hidden_size
        for i, layer in enumerate(self.layers):
            def before(_, arguments, options, i=i):
                seen[f"hidden_states.{i}"] = input_of(arguments, options)
            hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(self.layers[-1].register_forward_hook(
            lambda _, __, out: seen.__setitem__("last_layer_prenorm", first_tensor(out))))
        hooks.append(self.decoder.register_forward_hook(
            lambda _, __, out: first_tensor(out).shape[-1] == width and seen.__setitem__(
                f"hidden_states.{self.source.layers}", first_tensor(out)) or None))
        if self.source.labels:
            hooks.append(self.decoder.register_forward_hook(
                lambda _, __, out: seen.__setitem__("last_hidden_state", first_tensor(out))))
        for router, i in self.routers.items():
            def routed(router, __, out, i=i):
                logits, chosen = route_of(router, out)
                seen[f"router_logits.{i}"], seen[f"router_experts.{i}"] = logits[None], chosen[None]
            hooks.append(router.register_forward_hook(routed))

    def put_states(self, seen, put):
        streams = next(iter(seen.values())).dim() == 4
        for name, value in seen.items():
            if streams and value.dim() == 4:  # Gemma 3n: of several streams the first; behind the last layer it is their mean
                if name == "last_layer_prenorm":
                    continue
                value = value[0]
            put(name, value)

    def watch_images(self, hooks, put, features, by_image):
        tower, connector = tower_of(self.model)
        if self.source.model_type == "gemma3n":
            self.watch_blocks(hooks, put, tower)
            return
        for i, layer in enumerate(layers_of(tower)):
            def before(_, arguments, options, i=i):
                put(f"vision_hidden_states.{i}", by_image(input_of(arguments, options)))
            hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(tower.register_forward_hook(
            lambda _, __, out: put("vision_last_hidden_state", by_image(first_tensor(out)))))
        if connector is None:  # the tower gives features too, in the order of the image
            hooks.append(tower.register_forward_hook(lambda _, __, out: put("image_features", out.pooler_output[None])))
            return
        packer = getattr(self.model, "model", self.model)
        if hasattr(packer, "pack_image_features"):
            hooks.append(Packed(packer, "pack_image_features", lambda made: torch.cat(made[0]), features))
            if hasattr(packer, "get_video_features"):
                hooks.append(Packed(packer, "get_video_features", lambda made: made.pooler_output.flatten(0, 1), features))
            return
        hooks.append(connector.register_forward_hook(
            lambda _, __, out: features.append(out.reshape(1 if out.dim() == 2 else out.shape[0], -1, out.shape[-1]))))

    def watch_blocks(self, hooks, put, tower):
        """The blocks of a tower of convolutions, of whose pictures [images,channels,H,W] the pixels are rows."""
        for i, block in enumerate(block for stage in tower.timm_model.blocks for block in stage):
            def before(_, arguments, i=i):
                put(f"vision_hidden_states.{i}", arguments[0].flatten(2).transpose(1, 2))
            hooks.append(block.register_forward_pre_hook(before))
        # transformers multiplies the output in its place.
        hooks.append(tower.register_forward_hook(
            lambda _, __, out: put("vision_last_hidden_state", first_tensor(out).flatten(2).transpose(1, 2).clone())))
        # The embedder makes rows of tokens too.
        hooks.append(self.model.model.register_forward_hook(lambda _, __, out: put("image_features", out.image_hidden_states)))

    def joining(self, inputs, put):
        """A function that puts tensors of an encoder; of several sounds, the rows of all that are no padding, behind each other."""
        mask = inputs.get("input_features_mask")
        if mask is None or len(mask) == 1:
            return put
        shown, audio, padded = mask.sum(1).tolist(), self.source.config.audio_config, self.source.model_type == "gemma3n"
        row = math.prod(step[0] for step in audio.sscp_conv_stride_size) if padded else 4
        last = row * audio.conf_reduction_factor if padded else row

        def joined(name, value):
            each = row if name.startswith("encoder_hidden_states.") else last
            rows = [value.shape[1] if count == mask.shape[1] or padded and name == "audio_features" else -(-count // each) for count in shown]
            put(name, torch.cat([one[:kept] for one, kept in zip(value, rows)])[None])
        return joined

    def watch_sound(self, hooks, put):
        """An encoder whose windows, or whose frames of one sound, become rows of the decoder."""
        base = self.model.model
        tower = base.encoder if self.source.granite else base.audio_tower
        for i, layer in enumerate(layers_of(tower)):
            def before(_, arguments, options, i=i):
                put(f"encoder_hidden_states.{i}", input_of(arguments, options))
            hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        windows = []

        def behind(_, __, out):
            windows.append(first_tensor(out).shape[0])
            put("encoder_last_hidden_state", first_tensor(out))
        hooks.append(tower.register_forward_hook(behind))
        if self.source.model_type == "gemma3n":  # whose embedder makes rows of tokens too
            hooks.append(base.register_forward_hook(lambda _, __, out: put("audio_features", out.audio_hidden_states)))
            return
        connector = base.projector if self.source.granite else base.embed_audio if self.source.hears_whole else base.multi_modal_projector
        hooks.append(connector.register_forward_hook(
            lambda _, __, out: put("audio_features", out.reshape(windows[-1], -1, out.shape[-1]))))

    def watch_encoder(self, hooks, put):
        encoder = self.model.get_encoder()
        for i, layer in enumerate(layers_of(encoder)):
            def before(_, arguments, options, i=i):
                put(f"encoder_hidden_states.{i}", input_of(arguments, options))
            hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))

        def behind(_, __, out):
            self.encoded = out
            put("encoder_last_hidden_state", first_tensor(out))
        hooks.append(encoder.register_forward_hook(behind))

    def cache(self):
        """An empty cache that keeps every position, also where a window would forget those before it."""
        import transformers
        from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
        if self.source.attends:
            return transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
        cache = transformers.DynamicCache(config=self.source.config.get_text_config())
        cache.layers = [DynamicLayer() if type(layer) is DynamicSlidingWindowLayer else layer for layer in cache.layers]
        return cache

    def turns_anew(self):
        """Whether RoPE depends on the length of the text: then a cache keeps keys that a longer text would not have."""
        rope = getattr(self.source.config.get_text_config(), "rope_parameters", None) or {}
        kinds = [rope] + [value for value in rope.values() if isinstance(value, dict)]
        return any(kind.get("rope_type") in ("longrope", "dynamic") for kind in kinds)

    def limits_steps(self):
        """Whether Mamba-2 layers limit their time steps: transformers does so for a whole text, but not for a token behind a cache."""
        return any(tuple(module.time_step_limit) != (0, float("inf")) for module in self.model.modules()
                   if getattr(module, "time_step_limit", None) is not None)

    def greedy(self, inputs, logits, cache, count, put):
        """The continuation by the largest logit, whatever token it is, but for a placeholder of images."""
        ids, rows, routes = [], [], {}
        with self.hooks() as hooks:
            for router, i in self.routers.items():
                def routed(router, __, out, i=i):
                    routes.setdefault(i, []).append(route_of(router, out)[1][-1:])  # without a cache, of the whole text
                hooks.append(router.register_forward_hook(routed))
            row = logits[0, -1].clone()
            while len(ids) < count:
                token = int(row.argmax())
                if token == self.source.image_token:
                    break
                ids.append(token)
                rows.append(row)
                if len(ids) < count:
                    row = self.next_row(inputs, ids, cache)
        if ids:
            put("greedy_ids", torch.tensor(ids))
            put("greedy_logits", torch.stack(rows))
        for i, chosen in routes.items():
            if len(chosen) >= len(ids) - 1 > 0:
                put(f"greedy_router_experts.{i}", torch.cat(chosen[:len(ids) - 1])[None])
        return ids

    def next_row(self, inputs, ids, cache):
        if self.source.attends:
            return self.model(encoder_outputs=self.encoded, decoder_input_ids=torch.tensor([ids[-1:]]), past_key_values=cache,
                              use_cache=True).logits[0, -1]
        if cache is not None:
            return self.model(input_ids=torch.tensor([ids[-1:]]), past_key_values=cache, use_cache=True).logits[0, -1]
        whole = torch.cat([inputs["input_ids"], torch.tensor([ids])], dim=1)
        if "mm_token_type_ids" in inputs:
            types = inputs["mm_token_type_ids"]
            inputs = dict(inputs, mm_token_type_ids=torch.cat([types, types.new_zeros(1, len(ids))], dim=1))
        return self.model(**dict(inputs, input_ids=whole), use_cache=False).logits[0, -1].clone()


def accepted(model):
    import inspect
    parameters = inspect.signature(model.forward).parameters
    return set(parameters) | ({"use_cache"} if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else set())
