"""Random configurations of classifiers: those of a family, with labels."""
import encoder_families

PROBLEMS = (None, None, "multi_label_classification", "regression")


def with_labels(r, name, config, tokens):
    """The class of transformers and the config of a classifier of texts, or of tokens."""
    config = dict(config, id2label={i: f"label {i}" for i in range(r.choice([1, 2, 3, 5, 9]))})
    if not tokens:
        config["problem_type"] = r.choice(PROBLEMS)
    kind = "ForTokenClassification" if tokens else "ForSequenceClassification"
    return name.replace("ForCausalLM", "").replace("LMHeadModel", "").removesuffix("Model") + kind, config


def encoder(draw, tokens):
    def drawn(r):
        name, config = draw(r)
        config.pop("is_decoder", None)
        if name == "ModernBertModel":
            config.update(classifier_pooling=r.choice(["cls", "mean"]), classifier_bias=r.chance(0.5),
                          classifier_activation=r.choice(["gelu", "relu", "silu"]), pad_token_id=0)
        if name == "EuroBertModel":
            config.update(classifier_pooling=r.choice(["bos", "mean", "late"]), mask_token_id=3)
        return with_labels(r, name, config, tokens)
    return drawn


def decoder(draw, tokens):
    def drawn(r):
        name, config = draw(r)
        config["pad_token_id"] = r.choice([None, 0, 5])
        return with_labels(r, name, config, tokens)
    return drawn


def classifiers(decoders):
    """Families by name: NAME_texts and NAME_tokens of every encoder, and of some decoders."""
    made = {}
    for name, draw in encoder_families.ENCODERS.items():
        made.update({f"{name}_texts": encoder(draw, False), f"{name}_tokens": encoder(draw, True)})
    for name in ("llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "gpt2", "gpt_neox", "falcon", "bloom"):
        made.update({f"{name}_texts": decoder(decoders[name], False), f"{name}_tokens": decoder(decoders[name], True)})
    return made
