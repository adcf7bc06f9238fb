#!/usr/bin/env python3
"""Random configurations of every family, converted and executed by Ferry and judged by transformers.

  families.py --ferry PATH --seed 1 --count 200 [--only llama,gemma] [--keep DIR] [--verify]
  families.py --ferry PATH --again gemma3n_12000298,phi3_11000732     cases that were kept, made again

Needs torch and transformers 5.23 (environment.sh). A case is a tiny random checkpoint of one family.
Its config.json was drawn key by key, and perhaps written as transformers 4 or a stranger would; then
transformers reads the folder again, and what it computes is the truth, whatever the config says.

Ferry converts the folder to f32 and generates from two prompts. The logits that `run --dump-logits`
gives are compared with those of transformers for the same tokens, in f64. It is parity where

    |ferry - f64| <= 10 |f32 - f64| + 2e-5 max|f64|

with the largest differences of a prompt on both sides: f32 is transformers too, and its distance from
f64 is what rounding costs. Encoders are compared by the states of all tokens (`embed --states`), classifiers by their outputs (`classify --logits`).
Prompts whose experts are decided by less than 1e-5 are drawn again.

A refusal (exit 3 or 4) is counted as named where its line names a key of the config, present or left
out. Every case that is not at parity is printed and kept. The last line is N/M: cases at parity of
all cases. Exit code 1 if a case is wrong, crashes, or is refused without the name of a key.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
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
import other_families  # noqa: E402
import written_configs  # noqa: E402

MULTIPLE, FLOOR = 10.0, 2e-5
LEAST_MARGIN = 1e-5
MOST_NOISE = 1e-3  # of the largest value; more says that the two models of transformers are not the same
NEW_TOKENS = 10
TIMEOUT = 120
STATUSES = ("parity", "wrong", "refused, named", "refused, unnamed", "crash", "undecided")


def run(command):
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT, text=True, errors="replace")


def first_line(text):
    return next((line for line in text.splitlines() if line.strip()), "(nothing on stderr)")[:240]


def keys_of(value):
    """All keys of a config, at any depth."""
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys_of(v) for v in value.values()))


class Case:
    """One checkpoint in a folder of its own, with the model that transformers reads from it."""

    def __init__(self, family, seed, folder):
        self.family, self.folder = family, folder
        self.r = draw.Draw(f"{seed}/{family}")
        name, arguments = other_families.FAMILIES[family](self.r)
        cls = getattr(transformers, name)
        model = models.build(cls, arguments, seed)
        self.dtype = self.r.choices([torch.float32, torch.bfloat16, torch.float16], [6, 2, 2])[0]
        model.to(self.dtype).save_pretrained(folder, max_shard_size=self.r.choice(["5GB", "5GB", "60KB"]))
        path = pathlib.Path(folder, "config.json")
        config = json.loads(path.read_text())
        before = keys_of(config)
        self.changes = written_configs.rewrite(self.r, config)
        path.write_text(json.dumps(config, indent=1))
        self.keys = before | keys_of(config) | set(written_configs.DROPPED)
        self.model = models.load(cls, folder)
        self.twin = models.twin(self.model)
        self.margins = models.Margins(self.twin)
        self.labels = name.endswith("Classification")
        self.encodes = self.model.get_output_embeddings() is None or self.labels
        text = self.model.config.get_text_config()
        self.vocabulary = text.vocab_size
        self.layers = text.num_hidden_layers
        self.limit = min(getattr(text, "max_position_embeddings", 128) or 128, 128)
        rope = getattr(text, "rope_parameters", None) or {}
        self.switch = rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else None
        self.truth([3, 4, 5])  # raises where transformers cannot compute

    def truth(self, ids, first=0):
        """What transformers computes in f32 and in f64 from token number `first` on, as if each token came last."""
        if self.switch is not None and first < self.switch < len(ids):  # another RoPE for longer sequences
            parts = zip(self.compute(ids[:self.switch]), self.compute(ids))
            return [torch.cat((shorter, longer[self.switch:]))[first:] for shorter, longer in parts]
        return [out[first:] for out in self.compute(ids)]

    def compute(self, ids):
        plain = models.outputs(self.model, ids)
        self.margins.least = float("inf")
        with models.in_f64():
            exact = models.outputs(self.twin, ids)
        if not exact.isfinite().all():
            raise RuntimeError("outputs are not finite")
        return plain.double(), exact

    def prompts(self):
        for shortest, longest in ((1, 24), (30, 60)):
            length = min(self.r.randint(shortest, longest), self.most())
            yield [self.r.randrange(3, self.vocabulary - 8) for _ in range(length)]

    def most(self):
        """The most tokens of a program: an encoder has one set of RoPE factors (longrope)."""
        most = min(self.limit, 80)
        return min(most, self.switch) if self.encodes and self.switch else most

    def options(self):
        out = ["--context-length", str(self.most())]
        if self.encodes:
            return out + ["--program", "encoder"]
        if self.r.chance(0.3):
            out += ["--prefill-length", str(self.r.choice([1, 3, 7, 16]))]
        if self.r.chance(0.2):
            out += ["--shards", str(self.r.randint(1, self.layers))]
        return out


def ferry_outputs(ferry, case, bundle, ids):
    """The tokens whose outputs are to be compared, the number of the first such output, and the outputs."""
    tokens = ",".join(map(str, ids))
    if case.labels:
        got = run([ferry, "classify", bundle, "--tokens", tokens, "--logits", "--json"])
        if got.returncode:
            raise subprocess.CalledProcessError(got.returncode, "classify", stderr=got.stderr)
        logits = json.loads(got.stdout)["result"]["texts"][0]["logits"]
        return ids, 0, torch.tensor(logits, dtype=torch.float64)
    if case.encodes:
        got = run([ferry, "embed", bundle, "--tokens", tokens, "--states", "--json"])
        if got.returncode:
            raise subprocess.CalledProcessError(got.returncode, "embed", stderr=got.stderr)
        return ids, 0, torch.tensor(states_of(json.loads(got.stdout)), dtype=torch.float64)
    dump = f"{bundle}.{len(ids)}.safetensors"
    got = run([ferry, "run", bundle, "--tokens", tokens, "--max-new", str(NEW_TOKENS), "--ignore-eos", "--dump-logits",
               dump, "--json"])
    if got.returncode:
        raise subprocess.CalledProcessError(got.returncode, "run", stderr=got.stderr)
    made = safetensors.torch.load_file(dump)
    os.remove(dump)
    logits = made["logits"].reshape(-1, case.vocabulary)
    return ids + made["tokens"].reshape(-1).tolist()[:-1], len(ids) - 1, logits.double()


def judge_outputs(ferry, case, bundle):
    """-> status and what is to be said about it"""
    worst = ""
    for ids in case.prompts():
        for _ in range(6):
            ids, first, got = ferry_outputs(ferry, case, bundle, ids)
            plain, exact = case.truth(ids, first)
            if case.margins.least > LEAST_MARGIN:
                break
            ids = [case.r.randrange(3, case.vocabulary - 8) for _ in range(max(1, first))]
        else:
            return "undecided", "experts are decided by too little"
        if got.shape != exact.shape:
            return "wrong", f"outputs of shape {list(got.shape)}, not {list(exact.shape)}"
        error, noise = float((got - exact).abs().max()), float((plain - exact).abs().max())
        bound = MULTIPLE * noise + FLOOR * float(exact.abs().max())
        said = f"{len(ids)} tokens: {error:.1e} from f64, bound {bound:.1e}, f32 {noise:.1e}"
        if noise > MOST_NOISE * float(exact.abs().max()):
            return "undecided", said
        if not error <= bound:
            return "wrong", said
        worst = max(worst, said)
    return "parity", worst


def judge(ferry, case, bundle, verify):
    options = case.options()
    made = run([ferry, "convert", case.folder, "-o", bundle, "--dtype", "f32", "--no-sync", *options])
    line = first_line(made.stderr)
    if made.returncode in (3, 4):
        named = set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"'([^']*)'", line.split(": ", 1)[-1]))))
        return ("refused, named" if named & case.keys else "refused, unnamed"), line
    if made.returncode:
        return "crash", f"convert exits {made.returncode}: {line}"
    try:
        status, said = judge_outputs(ferry, case, bundle)
    except subprocess.CalledProcessError as error:
        return "crash", f"{error.cmd} exits {error.returncode}: {first_line(error.stderr)}"
    if verify:
        proved = run([ferry, "verify", bundle, "--checkpoint", case.folder])
        said += f"; verify --checkpoint exits {proved.returncode}"
    return status, f"{said} {' '.join(options)}"


def one(family, seed, settings):
    """-> family, status, what is to be said, path of the case"""
    folder = tempfile.mkdtemp(prefix=f"{family}_{seed}_", dir=settings.work)
    checkpoint = f"{folder}/checkpoint"
    try:
        case = Case(family, seed, checkpoint)
    except Exception as error:  # transformers refuses what was drawn: not a case
        shutil.rmtree(folder)
        if settings.trace:
            traceback.print_exc()
        return family, None, f"{type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''}", ""
    try:
        status, said = judge(settings.ferry, case, f"{folder}/bundle", settings.verify)
    except subprocess.TimeoutExpired as error:
        status, said = "crash", f"{error.cmd[1]} takes more than {TIMEOUT} s"
    said += f" [{'; '.join(case.changes)}; {str(case.dtype)[6:]}]"
    if status == "parity":
        shutil.rmtree(folder)
        return family, status, said, ""
    shutil.rmtree(f"{folder}/bundle", ignore_errors=True)
    os.makedirs(settings.keep, exist_ok=True)
    kept = os.path.join(settings.keep, os.path.basename(folder))
    shutil.rmtree(kept, ignore_errors=True)
    shutil.move(folder, kept)
    return family, status, said, f"{kept}/checkpoint"


def states_of(document):
    """The states [tokens,hidden] in an answer of `embed --states --json`."""
    result = document.get("result", document)
    return result["texts"][0]["states"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", required=True, help="the program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="cases")
    parser.add_argument("--only", default="", help="families, with commas between them")
    parser.add_argument("--again", default="", help="cases by their names, instead of --seed and --count")
    parser.add_argument("--keep", default="families_failed", help="folder for cases that are not at parity")
    parser.add_argument("--work", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="folder for files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verify", action="store_true", help="say what verify --checkpoint makes of each case too")
    parser.add_argument("--verbose", action="store_true", help="print cases at parity too")
    parser.add_argument("--trace", action="store_true", help="print why transformers refuses what was drawn")
    settings = parser.parse_args()
    if settings.again:
        settings.count = len(settings.again.split(","))
    settings.ferry, settings.keep = os.path.abspath(settings.ferry), os.path.abspath(settings.keep)
    return settings


def drawn(settings):
    """Families in turn, each with a seed of its own, without an end; or the cases of --again."""
    for case in filter(None, settings.again.split(",")):
        family, seed = re.match(r"(.*?)_(\d{5,})", case).groups()
        yield family, int(seed), settings
    if settings.again:
        return
    names = [n for n in other_families.FAMILIES if not settings.only or n in settings.only.split(",")]
    if not names:
        sys.exit("families.py: --only names no family")
    number = 0
    while True:
        for name in names:
            number += 1
            yield name, settings.seed * 1_000_003 + number, settings


def report(settings, outcome, table, drops):
    family, status, said, path = outcome
    if status is None:
        drops[f"{family}: {said}"] += 1
        return 0
    table[family][status] += 1
    if status != "parity" or settings.verbose:
        print(f"{status}: {family}: {said}\n    {path}", flush=True)
    return 1


def main():
    settings = arguments()
    table, drops, made = collections.defaultdict(collections.Counter), collections.Counter(), 0
    with concurrent.futures.ProcessPoolExecutor(settings.jobs) as pool:
        cases, tries = drawn(settings), 0
        while made < settings.count and tries < 3 * settings.count + 100:
            batch = list(itertools.islice(cases, min(settings.count - made, 50)))
            if not batch:
                break
            tries += len(batch)
            for outcome in pool.map(one, *zip(*batch)):
                made += report(settings, outcome, table, drops)
    for line, count in drops.most_common():
        print(f"not a case ({count} times): {line}")
    print(f"{'family':24s}" + "".join(f"{s:>18s}" for s in STATUSES))
    for family in sorted(table):
        print(f"{family:24s}" + "".join(f"{table[family][s]:18d}" for s in STATUSES))
    total = sum(table.values(), collections.Counter())
    print(f"{'all':24s}" + "".join(f"{total[s]:18d}" for s in STATUSES))
    print(f"{total['parity']}/{made}")
    return 1 if made == 0 or total["wrong"] + total["crash"] + total["refused, unnamed"] else 0


if __name__ == "__main__":
    sys.exit(main())
