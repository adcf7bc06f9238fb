"""Prompts of encoder-decoders: a text or ids for the encoder, and the first tokens of the decoder."""
from .errors import BAD_INPUT, UNSUPPORTED, USAGE, Refused


def encode_source(prompt, source):
    """-> source_ids i64 [1,S], what the encoder reads, and input_ids i64 [1,T], the first tokens of the decoder"""
    import torch
    if prompt.messages is not None or prompt.images or prompt.audio is not None or prompt.pair is not None:
        raise Refused(BAD_INPUT, f"{prompt.where}: an encoder-decoder takes text, or source and tokens")
    ids = prompt.source
    if ids is None and prompt.text is None:
        raise Refused(BAD_INPUT, f"{prompt.where}: expected text, or source: the ids that the encoder reads")
    if ids is None:
        if source.tokenizer is None:
            raise Refused(USAGE, f"{prompt.where}: {source.name} has no tokenizer; state prompts as {{\"source\": [...]}}")
        ids = list(source.tokenizer(prompt.text).input_ids)
    first = prompt.tokens or [start_of(prompt, source)]
    for name, known, table in (("source", ids, source.source_vocabulary), ("tokens", first, source.vocabulary)):
        wrong = next((i for i in known if not 0 <= i < table), None)
        if wrong is not None or not known:
            raise Refused(BAD_INPUT, f"{prompt.where}: {name}: {wrong if known else 'nothing'} is not in the vocabulary of {table}")
    return dict(source_ids=torch.tensor([ids]), input_ids=torch.tensor([first]))


def start_of(prompt, source):
    config = source.model.generation_config
    for token in (config.decoder_start_token_id, config.bos_token_id):
        if isinstance(token, int):
            return token
    raise Refused(UNSUPPORTED, f"{prompt.where}: tokens: the model states no decoder_start_token_id")
