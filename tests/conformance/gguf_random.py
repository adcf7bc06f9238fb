#!/usr/bin/env python3
"""Random configurations of every family as GGUF files: written, read again, and executed by llama.cpp.

  gguf_random.py --ferry PATH --seed 1 --count 200 [--only llama,gemma] [--keep DIR] [--no-llama]

Needs torch, transformers 5.23 and llama-cpp-python (environment.sh). A case is a tiny random checkpoint of one family
(llama_families.py and beside it), with a byte-level tokenizer. Ferry writes it as an f32 GGUF file, or refuses it by
name. Of a file that it writes,

- `--to hf` makes a checkpoint, in which transformers computes what it computes with the original (encoders are refused);
- `run --exact` (or `embed --states`, or `classify --logits` of its bundle) gives the same logits (or states) as transformers;
- llama.cpp computes them too, unless a note of ferry says where it differs.

A file whose metadata lack something that the documentation names is read with the config of the checkpoint instead, and
counted as such. Every case that does not hold is printed and kept; exit code 1 if there is one.
"""
import argparse
import collections
import concurrent.futures
import copy
import itertools
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import models  # noqa: E402: it imports torch and transformers
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import draw  # noqa: E402
import families  # noqa: E402
import other_families  # noqa: E402

CLOSE, CLOSE_TO_LLAMA, CLOSE_TO_ROUGH = 1e-4, 2e-3, 2e-2  # of the largest value
LEAST_MARGIN = 1e-4
F16 = 500  # how much coarser f16, in which llama.cpp keeps that table, is than a millionth
LEAST_LABEL = 0.05  # smaller outputs of a head are differences of numbers near to each other
TOKENS = 21
HYBRIDS = ("jamba", "lfm2", "lfm2_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "granitemoehybrid", "nemotron_h")
STATUSES = ("holds", "with config", "refused", "undecided", "wrong")


def tokenizer_of(size):
    """A byte-level tokenizer without words of its own: single letters, and pairs of them."""
    letters = [chr(0x100 + i) for i in range(min(size - 1, 120))]
    pairs = [(a, b) for a in letters for b in letters][:size - len(letters)]
    vocabulary = {text: i for i, text in enumerate([*letters, *(a + b for a, b in pairs)])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": [f"{a} {b}" for a, b in pairs]}}


class Wrong(Exception):
    pass


class Undecided(Exception):
    pass


class Usual(draw.Draw):
    """Most draws have the usual activation, which is the only one that files of most architectures can have."""

    def activation(self, usual):
        return usual if self.chance(0.9) else super().activation(usual)


class Case:
    def __init__(self, family, seed, folder):
        self.folder = pathlib.Path(folder)
        self.r = Usual(f"{seed}/{family}")
        name, arguments = other_families.FAMILIES[family](self.r)
        self.cls = getattr(transformers, name)
        if family == "encoder" and not (arguments.get("use_bidirectional_attention") or arguments.get("is_causal") is False):
            raise ValueError("a decoder without a head, which becomes no file")
        model = models.build(self.cls, arguments, seed)
        model.save_pretrained(folder)
        text = model.config.get_text_config()
        self.vocabulary = text.vocab_size
        self.folder.joinpath("tokenizer.json").write_text(json.dumps(tokenizer_of(self.vocabulary)))
        self.model = models.load(self.cls, folder)
        margins = models.Margins(self.model)
        self.labels = name.endswith("Classification")
        self.encodes = self.model.get_output_embeddings() is None
        length = min(TOKENS, getattr(text, "max_position_embeddings", TOKENS) or TOKENS)
        for _ in range(8):
            margins.least = float("inf")
            self.ids = [self.r.randrange(3, self.vocabulary - 8) for _ in range(length)]
            if self.labels or self.encodes:  # padding stands in no text of its own accord
                self.ids = [11 if i == getattr(text, "pad_token_id", None) else i for i in self.ids]
            self.truth = models.outputs(self.model, self.ids)
            self.decided = margins.least > LEAST_MARGIN and (not self.labels or float(self.truth.abs().max()) > LEAST_LABEL)
            if self.decided:
                break

    def distance(self, got):
        return float((got - self.truth).abs().max()) / max(float(self.truth.abs().max()), 1e-3)

    def compare(self, what, got, close=CLOSE):
        if got.shape != self.truth.shape:
            raise Wrong(f"{what}: shape {list(got.shape)}, not {list(self.truth.shape)}")
        error = self.distance(got)
        if not error <= close:
            raise Wrong(f"{what}: differs by {error:.1e}")

    def compare_llama(self, got, close):
        """What is far from transformers may be near to it with what llama.cpp 0.3.36 does otherwise, whatever a file says:
        GELU of f16 from a table of f16, and no epsilon of norms in qwen2vl, whose key it does not read."""
        try:
            return self.compare("llama.cpp", got, close)
        except Wrong:
            noise = self.noise()
            if not any([models.tabled_gelu(self.model), models.without_epsilon(self.model)]):
                raise
        self.truth = models.outputs(self.model, self.ids)
        if noise > CLOSE and close < self.distance(got) < F16 * noise:
            raise Undecided(f"a change of weights by 1e-6 moves outputs by {noise:.1e}")
        self.compare("llama.cpp, beside transformers with its table of GELU and its epsilon", got, close)

    def noise(self):
        """How far outputs move, in proportion to the largest, where each weight changes by a millionth."""
        torch.manual_seed(1)
        changed = copy.deepcopy(self.model)
        with torch.no_grad():
            for weight in changed.parameters():
                weight.mul_(1 + 1e-6 * torch.randn_like(weight))
        return self.distance(models.outputs(changed, self.ids))


def ferry(settings, *words):
    done = subprocess.run([settings.ferry, *map(str, words)], capture_output=True, timeout=120, text=True, errors="replace")
    return done.returncode, done.stderr.strip(), done.stdout


def ferry_outputs(settings, case, file, options):
    tokens = ",".join(map(str, case.ids))
    if case.labels:
        bundle = f"{file}.bundle"
        shutil.rmtree(bundle, ignore_errors=True)
        for words in (("convert", file, "-o", bundle, "--dtype", "f32", "--no-sync", *options),
                      ("classify", bundle, "--tokens", tokens, "--logits", "--json")):
            code, said, out = ferry(settings, *words)
            if code:
                raise Wrong(f"{words[0]} exits {code}: {families.first_line(said)}")
        return torch.tensor(json.loads(out)["result"]["texts"][0]["logits"])
    if case.encodes:
        code, said, out = ferry(settings, "embed", file, "--tokens", tokens, "--states", "--json", *options)
        if code:
            raise Wrong(f"embed exits {code}: {families.first_line(said)}")
        return torch.tensor(families.states_of(json.loads(out)))
    logits = []
    dump = f"{file}.logits"
    golden = f"{file}.golden"  # `verify` compares the logits of every position
    safetensors.torch.save_file({"short.input_ids": torch.tensor([case.ids]), "short.logits": case.truth[None].contiguous()}, golden)
    code, said, out = ferry(settings, "verify", file, "--reference", golden, "--json", *options)
    if code not in (0, 1):
        raise Wrong(f"verify exits {code}: {families.first_line(said)}")
    metrics = json.loads(out)["result"]["metrics"]
    return case.truth + metrics["max_abs"]


def llama_outputs(file, ids, mode):
    """What llama.cpp computes, in a process of its own: it ends its process where a file is wrong."""
    script = ("import sys,pickle,os;sys.path.insert(0,os.path.dirname(sys.argv[1]));import gguf_peers as g,numpy;"
              "f,ids,mode=pickle.loads(bytes.fromhex(sys.argv[2]));"
              "numpy.save(sys.argv[3],getattr(g,f'llama_{mode}')(f,ids))")
    target = f"{file}.npy"
    done = subprocess.run([sys.executable, "-c", script, os.path.abspath(__file__), pickle.dumps((str(file), ids, mode)).hex(), target],
                          capture_output=True, timeout=120, text=True)
    if done.returncode:
        raise Wrong(f"llama.cpp ends with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    import numpy
    return torch.tensor(numpy.load(target))


def checkpoint_outputs(settings, case, file, options):
    folder = f"{file}.hf"
    shutil.rmtree(folder, ignore_errors=True)
    code, said, _ = ferry(settings, "convert", file, "--to", "hf", "--dtype", "f32", "-o", folder, "--no-sync", *options)
    if code == 4 and "is an encoder, which becomes a bundle only" in said:  # of labels too
        return case.truth
    if code:
        raise Wrong(f"--to hf exits {code}: {families.first_line(said)}")
    kept = json.loads(pathlib.Path(folder, "config.json").read_text())["model_type"] == case.cls.config_class.model_type
    if not case.cls.__name__.endswith("ForConditionalGeneration"):  # a ministral3 whose queries do not grow is a mistral
        return models.outputs(models.load(case.cls if kept else transformers.AutoModelForCausalLM, folder), case.ids)
    try:
        return models.outputs(models.load(transformers.AutoModelForCausalLM, folder), case.ids)
    except ValueError:  # no class reads the text part alone
        return case.truth
    except TypeError:  # transformers 5.23 runs no Gemma 4 text model whose layers share keys and have no inputs of their own
        text = case.model.config.get_text_config()
        if not getattr(text, "num_kv_shared_layers", 0) or getattr(text, "hidden_size_per_layer_input", 0):
            raise
        return case.truth


def alone(case):
    """Whether no layer of a hybrid model attends, or all do: llama.cpp cannot load such models."""
    config = case.model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or [])
    attends = bool(kinds & {"full_attention", "attention"})
    recurs = bool(kinds & {"linear_attention", "mamba", "conv"})
    if config.model_type == "jamba":
        layers = [i % config.attn_layer_period == config.attn_layer_offset for i in range(config.num_hidden_layers)]
        attends, recurs = any(layers), not all(layers)
    return config.model_type in HYBRIDS and not (attends and recurs)


def judge(settings, case):
    """-> status and what is to be said about it"""
    file = case.folder.parent / "model.gguf"
    code, said, _ = ferry(settings, "convert", case.folder, "--to", "gguf", "--outtype", "f32", "--tokenizer-pre", "gpt-2", "-o", file, "--no-sync")
    if code == 4 and ("'" in said or "encoder, which" in said):
        return "refused", families.first_line(said)
    if code:
        return "wrong", f"convert exits {code}: {families.first_line(said)}"
    if not case.decided:
        return "undecided", ""
    differs = any(what in said for what in ("does not apply", "llama.cpp rounds", "long RoPE factors", "takes 32 and 1")) or alone(case)
    status, remark = "holds", ""
    try:
        try:
            case.compare("checkpoint", checkpoint_outputs(settings, case, file, []))
            case.compare("ferry", ferry_outputs(settings, case, file, []))
        except Wrong as wrong:
            status, remark = "with config", str(wrong)
            config = ["--config", case.folder / "config.json"]
            case.compare(f"checkpoint with config (without: {wrong})", checkpoint_outputs(settings, case, file, config))
            case.compare(f"ferry with config (without: {wrong})", ferry_outputs(settings, case, file, config))
        if settings.llama and not differs:
            close = CLOSE_TO_ROUGH if "approximates" in said else CLOSE_TO_LLAMA
            mode = "labels" if case.labels else "states" if case.encodes else "logits"
            case.compare_llama(llama_outputs(file, case.ids, mode).float(), close)
    except Wrong as wrong:
        return "wrong", f"{wrong} [{said[-300:]}]"
    except Undecided as undecided:
        return "undecided", str(undecided)
    return status, remark


def one(family, seed, settings):
    folder = tempfile.mkdtemp(prefix=f"gguf_{family}_{seed}_", dir=settings.work)
    try:
        case = Case(family, seed, f"{folder}/checkpoint")
    except Exception as error:  # transformers refuses what was drawn: not a case
        shutil.rmtree(folder)
        return family, None, f"{type(error).__name__}: {str(error)[:120]}", ""
    try:
        status, said = judge(settings, case)
    except Exception as error:
        status, said = "wrong", f"{type(error).__name__}: {str(error)[:300]}"
        if settings.trace:
            traceback.print_exc()
    if status != "wrong":
        shutil.rmtree(folder)
        return family, status, said, ""
    kept = os.path.join(settings.keep, f"{family}_{seed}")
    shutil.rmtree(kept, ignore_errors=True)
    os.makedirs(settings.keep, exist_ok=True)
    shutil.move(folder, kept)
    return family, status, said, kept


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", required=True, help="the program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="draws")
    parser.add_argument("--only", default="", help="families, with commas between them")
    parser.add_argument("--keep", default="gguf_failed", help="folder for cases that do not hold")
    parser.add_argument("--work", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="folder for files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-llama", dest="llama", action="store_false", help="leave llama.cpp out")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    parser.add_argument("--trace", action="store_true", help="print where an exception comes from")
    settings = parser.parse_args()
    settings.ferry, settings.keep = os.path.abspath(settings.ferry), os.path.abspath(settings.keep)
    return settings


def main():
    settings = arguments()
    only = settings.only.split(",") if settings.only else None
    names = [n for n in other_families.FAMILIES if (n in only if only else "classif" not in n)]
    table = collections.defaultdict(collections.Counter)
    cases = ((name, settings.seed * 1_000_003 + number) for number, name in enumerate(itertools.islice(itertools.cycle(names), settings.count)))
    with concurrent.futures.ProcessPoolExecutor(settings.jobs) as pool:
        for family, status, said, path in pool.map(one, *zip(*cases), itertools.repeat(settings)):
            if status is None:
                if settings.verbose:
                    print(f"not a case: {family}: {said}", flush=True)
                continue
            table[family][status] += 1
            if status == "wrong" or settings.verbose:
                print(f"{status}: {family}: {said}\n    {path}", flush=True)
    print(f"{'family':24s}" + "".join(f"{s:>13s}" for s in STATUSES))
    for family in sorted(table):
        print(f"{family:24s}" + "".join(f"{table[family][s]:13d}" for s in STATUSES))
    total = sum(table.values(), collections.Counter())
    print(f"{'all':24s}" + "".join(f"{total[s]:13d}" for s in STATUSES))
    print(f"{total['holds'] + total['with config'] + total['refused']}/{sum(total.values())}")
    return 1 if total["wrong"] or not total["holds"] else 0


if __name__ == "__main__":
    sys.exit(main())
