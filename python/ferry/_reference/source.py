"""Source: the folder of a model, the class of transformers that computes it, its tokenizer and its processor."""
import json
import os
import pathlib
import re

from .errors import BAD_INPUT, IO, UNSUPPORTED, Refused, one_line

# Vision-language models whose towers Ferry converts; of others it converts the text decoder.
SEEING = ("smolvlm", "idefics3", "internvl", "gemma3", "gemma3n", "gemma4", "lfm2_vl", "llava", "llava_next", "llava_onevision", "mistral3", "paligemma", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5",
          "qwen3_5_moe")
# Models of speech: an audio encoder, and a text decoder that attends to its output.
HEARING = ("whisper", "moonshine")
# Models of speech whose encoder gives labels for rows of a sound (CTC), without a decoder.
LABELLING = ("parakeet_ctc",)
# Language models whose text decoder takes rows of sound in the place of placeholders.
LISTENING = ("voxtral",)
# Those whose processor takes sounds of any length, and in some of them images too, where the config states an audio encoder.
HEARING_WHOLE = ("gemma3n", "gemma4", "granite_speech", "granite_speech_plus")
# Models with a text encoder, and a text decoder that attends to its output.
READING = ("t5", "mt5", "umt5", "marian", "t5gemma")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
CLASSIFIER = re.compile("For(Sequence|Token)Classification$")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")


def find(name):
    """The folder of a model: a local one, or its snapshot in the local Hugging Face cache (OWNER/NAME[@REVISION])."""
    path = pathlib.Path(name)
    if path.is_dir():
        return path
    if path.exists():
        raise Refused(UNSUPPORTED, f"{name}: expected the folder of a model, not a file of it")
    if not HUB_NAME.fullmatch(name) or name.startswith("."):
        raise Refused(IO, f"{name}: no such folder")
    import huggingface_hub
    repository, _, revision = name.partition("@")
    try:
        return pathlib.Path(huggingface_hub.snapshot_download(repository, revision=revision or None,
                                                              local_files_only=True))
    except Exception:  # each version of the package has exceptions of its own for what is not there
        flag = f" --revision {revision}" if revision else ""
        raise Refused(IO, f"{name}: is neither a folder nor in the local Hugging Face cache; get it with: "
                          f"hf download {repository}{flag}")


def read_json(path):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(IO, f"{path}: {error.strerror}")
    except ValueError as error:
        raise Refused(BAD_INPUT, f"{path}: is not JSON: {error}")
    return value


class Source:
    """A model in one dtype, with plain attention and plain experts, as a user of transformers gets it."""

    def __init__(self, name, dtype, program=None):
        import transformers
        self.name, self.folder = name, find(name)
        stated = read_json(self.folder / "config.json")
        self.model_type = stated.get("model_type") if isinstance(stated, dict) else None
        if not isinstance(self.model_type, str):
            raise Refused(BAD_INPUT, f"{self.folder / 'config.json'}: model_type: expected a string")
        if self.model_type == "internvl_chat":
            raise Refused(UNSUPPORTED, f"{self.folder / 'config.json'}: model_type: transformers reads no 'internvl_chat'; "
                                       "make the reference of the same model in the layout of transformers ('internvl')")
        try:
            self.config = transformers.AutoConfig.from_pretrained(self.folder, local_files_only=True)
        except Exception as error:
            raise Refused(UNSUPPORTED, f"{self.folder / 'config.json'}: {one_line(error)}")
        architectures = stated.get("architectures")
        self.architecture = architectures[0] if isinstance(architectures, list) and architectures else None
        self.modules = read_json(self.folder / "modules.json") if (self.folder / "modules.json").exists() else None
        found = CLASSIFIER.search(str(self.architecture))
        self.labels = {"Sequence": "class_logits", "Token": "token_logits"}[found[1]] if found else None
        self.labels_sound = self.model_type in LABELLING
        self.encodes = self.labels_sound or ((program == "encoder") if program else self.looks_like_encoder())
        self.sees = self.model_type in SEEING and not self.encodes
        self.hears = self.labels_sound or (self.model_type in HEARING and not self.encodes)
        self.reads = self.model_type in READING and not self.encodes
        self.listens = self.model_type in LISTENING and not self.encodes
        self.hears_whole = self.model_type in HEARING_WHOLE and not self.encodes and any(
            getattr(self.config, part, None) is not None for part in ("audio_config", "encoder_config"))
        self.granite = self.model_type in ("granite_speech", "granite_speech_plus")
        self.attends = (self.hears or self.reads) and not self.labels_sound
        self.image_token, self.positions = None, None
        if self.labels_sound:
            self.labels = "token_logits"
        self.model = self.load(dtype)
        if self.labels_sound:
            self.layers, self.vocabulary = self.config.encoder_config.num_hidden_layers, self.config.vocab_size
            self.tokenizer = None
            return
        text = self.config.get_text_config()
        own = getattr(self.config, "num_decoder_layers", getattr(self.config, "decoder_layers", None))
        self.layers = own if own is not None and self.attends else text.num_hidden_layers
        self.positions = getattr(self.config, "max_target_positions", None) if self.model_type == "whisper" else getattr(text, "max_position_embeddings", None)
        table = decoder_of(self.model).get_input_embeddings() if self.attends else self.model.get_input_embeddings()
        self.vocabulary = table.num_embeddings
        self.source_vocabulary = self.model.get_encoder().get_input_embeddings().num_embeddings if self.reads else None
        token = getattr(self.config, "image_token_id", getattr(self.config, "image_token_index", None))
        token = getattr(self.config, "audio_token_id", None) if self.listens or self.granite else token
        self.image_token = token if isinstance(token, int) else None
        self.tokenizer = self.load_tokenizer()

    def looks_like_encoder(self):
        """Whether `ferry convert` makes an encoder of it, or sentence-transformers does."""
        text = self.config.get_text_config()
        if self.labels:
            return True
        if self.model_type in READING:
            return False
        two_ways = self.model_type == "gemma3_text" and getattr(text, "use_bidirectional_attention", None) is True
        return bool(self.modules is not None or two_ways or getattr(text, "is_causal", True) is False
                    or re.search("(?<!LMHead)Model$", str(self.architecture)))

    def load(self, dtype):
        import torch
        import transformers
        if self.encodes and not self.labels:
            cls = transformers.AutoModel
        elif hasattr(transformers, str(self.architecture)):
            cls = getattr(transformers, self.architecture)
        else:
            cls = transformers.AutoModelForCausalLM
        options = {}
        quantised = getattr(self.config, "quantization_config", None)
        if quantised is not None:
            options = self.dequantising(quantised)
        try:
            model, info = cls.from_pretrained(self.folder, dtype=dtype, attn_implementation="eager", local_files_only=True,
                                              output_loading_info=True, **options)
        except ImportError as error:
            raise Refused(UNSUPPORTED, f"{self.folder}: transformers needs another package for it: {one_line(error)}")
        except OSError as error:
            raise Refused(IO, f"{self.folder}: {one_line(error)}")
        except Exception as error:
            raise Refused(BAD_INPUT, f"{self.folder}: transformers does not load it: {one_line(error)}")
        missing = sorted(key for key in info.get("missing_keys") or () if not key.startswith("pooler."))
        wrong = sorted(map(str, info.get("mismatched_keys") or ())) + list(info.get("error_msgs") or ())
        if missing or wrong:
            why = f"lacks {len(missing)} weights, first {missing[0]}" if missing else f"does not fit its config: {wrong[0]}"
            raise Refused(BAD_INPUT, f"{self.folder}: the checkpoint {why}")
        tower = getattr(model.config, "vision_config", None)
        if getattr(tower, "model_args", None):  # timm writes into the lists of blocks that it is given
            tower.model_args = self.config.vision_config.model_args
        return plain(model.to(getattr(torch, dtype)) if not quantised else model.to(dtype=getattr(torch, dtype)))

    def dequantising(self, quantised):
        """Options by which transformers gives the weights of a quantised checkpoint as plain ones."""
        import transformers
        settings = quantised if isinstance(quantised, dict) else quantised.to_dict()
        method = settings.get("quant_method")
        classes = {"mxfp4": "Mxfp4Config", "fp8": "FineGrainedFP8Config"}
        if method in classes:
            return dict(quantization_config=getattr(transformers, classes[method])(dequantize=True))
        if method == "compressed-tensors":
            return dict(quantization_config=transformers.CompressedTensorsConfig(run_compressed=False))
        if method == "bitnet":  # the model rounds its inputs too, so that no plain weights are the same model
            return {}
        raise Refused(UNSUPPORTED, f"{self.folder / 'config.json'}: quantization_config: transformers gives no plain weights "
                                   f"of {method!r}; make the reference of the checkpoint that was quantised")

    def load_tokenizer(self):
        import transformers
        if self.listens:  # mistral-common's, which the processor asks for where a prompt needs it
            return None
        if not any((self.folder / name).exists() for name in TOKENIZERS):
            return None
        try:
            return transformers.AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        except Exception as error:
            raise Refused(BAD_INPUT, f"{self.folder}: transformers does not load the tokenizer: {one_line(error)}")

    def processor(self):
        import transformers
        try:
            return transformers.AutoProcessor.from_pretrained(self.folder, local_files_only=True)
        except Exception as error:
            raise Refused(IO, f"{self.folder}: transformers does not load the processor of images: {one_line(error)}")

    def feature_extractor(self):
        import transformers
        try:
            return transformers.AutoFeatureExtractor.from_pretrained(self.folder, local_files_only=True)
        except Exception as error:
            raise Refused(IO, f"{self.folder}: transformers does not load the feature extractor of sound: {one_line(error)}")


def plain(model):
    """Attention and experts by plain torch operations, whose sums do not depend on kernels."""
    # The eager attention of Falcon adds its ALiBi twice, the default one once, as the model was trained.
    if getattr(model.config, "alibi", False):
        model.config._attn_implementation = "sdpa"
    else:
        model.set_attn_implementation("eager")
    if any(type(module).__name__.endswith("Experts") for module in model.modules()):
        model.set_experts_implementation("eager")
    return model.eval().requires_grad_(False)


def decoder_of(model):
    """The module that has the layers of the text decoder or encoder."""
    if CLASSIFIER.search(type(model).__name__):
        return getattr(model, model.base_model_prefix)
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    return decoder if decoder is not None else model


def layers_of(module, count=None):
    """The layers of a decoder or a tower: the first list of modules, or the first one that has so many."""
    import torch
    for inner in module.modules():
        if isinstance(inner, torch.nn.ModuleList) and len(inner) and (count is None or len(inner) == count):
            return inner
    raise Refused(UNSUPPORTED, f"{type(module).__name__}: has no list of {count or 'any'} layers")


def tower_of(model):
    """The vision tower and the connector of a vision-language model; None for a connector inside of the tower."""
    base = getattr(model, "model", model)
    if hasattr(base, "visual"):
        return base.visual, None
    find_one = lambda *names: next(getattr(base, name) for name in names if hasattr(base, name))  # noqa: E731
    return find_one("vision_model", "vision_tower"), find_one("connector", "multi_modal_projector", "embed_vision")
