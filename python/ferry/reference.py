"""Makes a reference: what transformers computes of a model, as `ferry verify --reference` reads it.

    python -m ferry.reference MODEL -o golden.safetensors
    python -m ferry.reference MODEL -o golden.safetensors --prompts prompts.txt --max-new 32
    ferry convert MODEL -o BUNDLE --reference golden.safetensors && ferry verify BUNDLE

MODEL is a folder, or a name in the local Hugging Face cache. docs/verifying.md lists what the file has.
Needs torch and transformers 5.23; everything is computed on the processor.
"""
import argparse
import contextlib
import json
import os
import sys
import time

from ._reference import output, prompts
from ._reference.errors import BAD_INPUT, IO, USAGE, Refused, one_line

TRANSFORMERS = "5.23"
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
GREEDY_TOKENS = 16
PROMPTS_FILE = """\
FILE has a prompt in each line: a text, or a JSON object where the first line begins with '{':

  {"text": "Once upon a time"}
  {"tokens": [1, 450, 4996]}
  {"messages": [{"role": "user", "content": "Hello"}], "name": "chat"}
  {"image": "cat.jpg", "text": "What is this?"}
  {"video": {"frames": "frames", "fps": 2}, "text": "What happens?"}
  {"audio": "talk.wav"}
  {"audio": "talk.wav", "tokens": [50258, 50259, 50359, 50363]}
  {"audios": ["talk.wav", "answer.wav"], "text": "Do they agree?"}
  {"source": [37, 1712, 19, 1131, 5, 1], "tokens": [0, 644]}

Paths of images, folders of frames and sounds are relative to the folder of FILE. name is the prefix of the prompt's tensors (default: lineN).
Without FILE there are three built-in prompts; for a model without a tokenizer, two rows of pseudo-random ids; for a model of speech, noise and silence. The
tokens of a sound are by default those that its generation config forces, without a language. For an encoder-decoder text, or the
ids of source, are what its encoder reads; tokens are the first of its decoder, by default decoder_start_token_id.

exit codes: 0 done, 2 usage, 3 bad input, 4 unsupported, 5 input or output failed, 6 the output exists and is no reference
"""


def arguments(words):
    parser = argparse.ArgumentParser(prog="python -m ferry.reference", description=__doc__, epilog=PROMPTS_FILE,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.error = lambda why: (_ for _ in ()).throw(Refused(USAGE, f"{why} (--help)"))
    parser.add_argument("model", metavar="MODEL", help="folder, or OWNER/NAME[@REVISION] in the local Hugging Face cache")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="safetensors file to write; replaces a reference")
    parser.add_argument("--prompts", metavar="FILE", help="prompts, a line each; see below")
    parser.add_argument("--image", action="append", default=[], metavar="FILE",
                        help="a prompt that asks what this image shows; may be repeated")
    parser.add_argument("--audio", action="append", default=[], metavar="FILE",
                        help="a prompt with this sound, for a model that hears; may be repeated")
    parser.add_argument("--max-new", type=int, metavar="N",
                        help=f"greedy tokens of each prompt, 0 for none (default {GREEDY_TOKENS}, or what the model has positions for)")
    parser.add_argument("--dtype", choices=DTYPES, default="f32",
                        help="in which weights are held and outputs computed (default f32, which the bounds of verify are for)")
    parser.add_argument("--no-f64", action="store_true", help="leave out logits_f64")
    parser.add_argument("--program", choices=("decoder", "encoder"),
                        help="as of the bundle (default: what the config and modules.json say)")
    parser.add_argument("--threads", type=int, default=1, metavar="N",
                        help="of torch; the last bits of sums depend on it (default 1)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors alone")
    made = parser.parse_args(words)
    if made.max_new is not None and not 0 <= made.max_new <= 65536:
        raise Refused(USAGE, f"--max-new: {made.max_new} is not in 0 to 65536")
    if not 1 <= made.threads <= 1024:
        raise Refused(USAGE, f"--threads: {made.threads} is not in 1 to 1024")
    return made


def return_large_blocks():
    """Has glibc give every freed megabyte back: layers in f64 come and go, and else leave holes as large as the model."""
    import ctypes
    m_mmap_threshold = -3
    with contextlib.suppress(OSError, AttributeError, TypeError):  # no glibc
        ctypes.CDLL(None).mallopt(m_mmap_threshold, 1 << 20)


def import_peers(threads):
    """Imports torch and transformers with settings that keep them quiet and the results the same."""
    return_large_blocks()
    for name, value in dict(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1",
                            TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1").items():
        os.environ.setdefault(name, value)
    import logging
    import warnings
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        import torch
        import transformers
    except ImportError as error:
        raise Refused(IO, f"torch and transformers are needed: pip install torch 'transformers=={TRANSFORMERS}.*' ({one_line(error)})")
    transformers.utils.logging.set_verbosity(60)
    transformers.utils.logging.disable_progress_bar()
    torch.set_grad_enabled(False)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # which would write matrices that have shapes only
    return torch, transformers


def new_tokens(source, prompt, tokens, wanted):
    """How many greedy tokens a prompt gets; refuses a prompt that the model has no positions for."""
    if source.encodes:
        wanted = 0
    least = tokens + (wanted or 0)
    if source.positions is not None and least > source.positions:
        more = f" and {wanted} to generate" if wanted else ""
        raise Refused(BAD_INPUT, f"{prompt.where}: {tokens} tokens{more}, but the model has {source.positions} positions "
                                 "(max_position_embeddings)")
    if wanted is not None:
        return wanted
    return GREEDY_TOKENS if source.positions is None else min(GREEDY_TOKENS, source.positions - tokens)


class Reference:
    """Records prompts one after another into a spool."""

    def __init__(self, source, options):
        from ._reference import double, pooling, record, sound
        self.source, self.options = source, options
        self.recorder = sound.LabelRecorder(source) if source.labels_sound else record.Recorder(source)
        self.pooling = pooling.modules_of(source) if source.encodes else []
        self.twin = double.Twin(source.model) if not (options.no_f64 or source.encodes) else None

    def add(self, prompt, inputs, count, spool):
        put = lambda name, tensor: spool.add(f"{prompt.name}.{name}", tensor)  # noqa: E731
        try:
            out, cache = self.recorder.prompt(inputs, put)
            check_finite(prompt, out)
            if self.pooling:
                for module in self.pooling:
                    out = module(out)
                put("sentence_embedding", out)
            said = f"{prompt.name}: {out.shape[1]} rows" if self.source.labels_sound else f"{prompt.name}: {inputs['input_ids'].shape[1]} tokens"
            if count:
                ids = self.recorder.greedy(inputs, out, cache, count, put)
                said += f", {len(ids)} greedy{self.text_of(ids)}"
            if self.twin:
                exact = self.twin(**self.recorder.named(inputs)).logits
                put("logits_f64", exact)
                said += f"; {self.options.dtype} is {float((out.double() - exact).abs().max()):.1e} from f64"
            return said
        except Refused:
            raise
        except Exception as error:  # whatever a model of transformers throws
            raise Refused(BAD_INPUT, f"{prompt.where}: transformers cannot compute it: {one_line(error)}")

    def text_of(self, ids):
        return f" {json.dumps(self.source.tokenizer.decode(ids), ensure_ascii=False)}" if self.source.tokenizer else ""


def check_finite(prompt, out):
    if not out.isfinite().all():
        raise Refused(BAD_INPUT, f"{prompt.where}: an output is not finite")


def metadata(source, options, read, torch, transformers):
    return dict(format="pt", transformers=transformers.__version__, torch=torch.__version__,
                model=os.path.basename(os.path.normpath(source.name)) if os.path.isdir(source.name) else source.name,
                model_type=source.model_type, model_class=type(source.model).__name__, dtype=options.dtype,
                attention="eager", threads=str(options.threads),
                prompts=json.dumps({prompt.name: prompt_text(prompt) for prompt in read}, ensure_ascii=False))


def prompt_text(prompt):
    return prompt.text if prompt.text is not None else prompt.messages or "tokens"


def run(words):
    options = arguments(words)
    output.check(options.out)
    read = prompts.read(options.prompts) if options.prompts else []
    read += [prompts.of_image(path, n) for n, path in enumerate(options.image, 1)]
    read += [prompts.of_audio(path, n) for n, path in enumerate(options.audio, 1)]
    say = (lambda line: None) if options.quiet else (lambda line: print(f"ferry.reference: {line}", file=sys.stderr, flush=True))
    start = time.monotonic()
    torch, transformers = import_peers(options.threads)
    if not transformers.__version__.startswith(TRANSFORMERS + "."):
        say(f"transformers is {transformers.__version__}; Ferry is held to {TRANSFORMERS}")
    from ._reference.source import Source
    source = Source(options.model, DTYPES[options.dtype], options.program)
    read = read or prompts.built_in(source)
    ready = []
    for prompt in read:
        inputs = prompts.encode(prompt, source)
        tokens = 0 if source.labels_sound else inputs["input_ids"].shape[1]
        ready.append((prompt, inputs, new_tokens(source, prompt, tokens, options.max_new)))
    reference, spool = Reference(source, options), output.Spool(options.out)
    for prompt, inputs, count in ready:
        say(reference.add(prompt, inputs, count, spool))
    spool.finish(metadata(source, options, read, torch, transformers))
    say(f"{options.out}: {len(read)} prompts, {len(spool.header)} tensors, {spool.bytes / 1e6:.1f} MB; "
        f"{time.monotonic() - start:.1f} s, {most_memory()} MB of memory at most")


def most_memory():
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(words=None):
    try:
        run(sys.argv[1:] if words is None else words)
        return 0
    except Refused as refused:
        print(f"ferry.reference: {refused}", file=sys.stderr)
        return refused.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
