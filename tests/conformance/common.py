"""Helpers that the promises share: the command line, running ferry, counting, references, edited files.

A promise is a script with cases. A case holds, or raises Wrong with the reason. The last line is `N/M` and says how many held.
"""
import argparse
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait for work leave the processor to ferry
os.environ["PYTHONWARNINGS"] = "ignore"
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TESTDATA = ROOT / "testdata"


class Wrong(Exception):
    """A promise does not hold; the text says what was seen and what was expected."""


class Promise:
    """Runs cases, prints each with its seconds, and counts those that hold."""

    def __init__(self, description, count=None):
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--ferry", default=str(ROOT / "build/release/bin/ferry"), help="the program to test")
        parser.add_argument("--sample", action="store_true", help="fewer cases, for CI")
        parser.add_argument("--seed", type=int, default=1, help="of whatever is random")
        parser.add_argument("--only", default="", help="cases whose names have this text")
        if count:
            parser.add_argument("--count", type=int, default=count, help="draws")
        self.options = parser.parse_args()
        self.sample, self.seed = self.options.sample, self.options.seed
        self.held = self.count = 0
        self.notes = {}
        Ferry.binary = self.options.ferry
        self.scratch = tempfile.TemporaryDirectory(prefix="ferry-conformance-")
        self.folder = pathlib.Path(self.scratch.name)

    def wanted(self, name):
        return self.options.only in name

    def case(self, name, check, *arguments):
        """Counts check(*arguments), which returns a remark or None, and raises if the promise does not hold."""
        if not self.wanted(name):
            return
        self.count += 1
        start = time.time()
        try:
            remark = check(*arguments)
            self.held += 1
            print(f"ok    {name} ({time.time() - start:.1f} s){f': {remark}' if remark else ''}", flush=True)
        except Exception as error:  # whatever a peer throws is a case that does not hold
            why = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            print(f"WRONG {name} ({time.time() - start:.1f} s): {' '.join(why.split())[:400]}", flush=True)

    def note(self, what):
        """Counts something that the last line states beside N/M."""
        self.notes[what] = self.notes.get(what, 0) + 1

    def finish(self):
        self.scratch.cleanup()
        print(f"{self.held}/{self.count}" + "".join(f", {n} {what}" for what, n in self.notes.items()), flush=True)
        sys.exit(0 if self.held == self.count > 0 else 1)


class Ferry:
    """One finished run of the program: exit code, stdout, stderr."""

    binary = None

    def __init__(self, *words, stdin=None, timeout=600):
        self.words = [str(w) for w in words]
        try:
            done = subprocess.run([self.binary, *self.words], input=stdin, capture_output=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Wrong(f"ferry {self.words[0]} takes more than {timeout} s")
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")

    @property
    def why(self):
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1][:200] if lines else "nothing on stderr"

    def ends_with(self, *codes):
        if self.code not in codes:
            expected = " or ".join(map(str, codes))
            raise Wrong(f"ferry {self.words[0]} exits {self.code}, expected {expected}: {self.why}")
        return self

    @property
    def result(self):
        """What --json printed."""
        return json.loads(self.out)["result"]


def convert(source, out, *options):
    """Converts, and returns the folder or file that was made."""
    Ferry("convert", source, "-o", out, "--no-sync", "--quiet", *options).ends_with(0)
    return pathlib.Path(out)


def verify(bundle, *options):
    """Runs verify with --json; the exit code is for the caller to judge."""
    return Ferry("verify", bundle, "--json", *options).ends_with(0, 1, 2, 3, 4, 5, *range(6, 65))


def first_difference(result):
    """Where a report of verify sees the first difference, in words: weights, programs, f32 path, outputs."""
    for part in ("tensors", "programs"):
        if (result.get(part) or {}).get("different"):
            return f"{part}: {result[part]['different'][0]}"
    for name in ("f32_path", "own_weights", "in_f32"):
        inner = result.get(name) or {}
        inner = inner.get("in_f32", inner) if isinstance(inner, dict) else {}
        if inner.get("first_divergence"):
            return f"{name}: {inner['first_divergence']}"
    return f"outputs: {result.get('first_divergence')}"


# Models and references.


def english(words):
    """That many words of English prose: the paragraphs of the documents of this project."""
    text = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        for paragraph in path.read_text().split("\n\n"):
            if paragraph[:1].isalpha() and "|" not in paragraph:
                text += paragraph.split()
    return " ".join((text * (words // len(text) + 1))[:words])


def save_tiny(model, folder, std=0.3, seed=0):
    """Random weights, larger than those that a model starts with, so that every part matters; then saves the model."""
    import torch
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(1 + 0.1 * noise if "norm" in name and name.endswith("weight") else std * noise)
    model.eval()
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    return model


def tiny_llama(folder, seed=0, std=0.3, **changes):
    """A random llama of 2 layers in f32 as a Hugging Face folder."""
    import torch
    import transformers
    config = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=False,
                  bos_token_id=1, eos_token_id=2, attn_implementation="eager")
    config.update(changes)
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    return save_tiny(model, folder, std, seed)


def load(folder, dtype="float32"):
    """The model of transformers in a folder, with plain attention."""
    import torch
    import transformers
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation="eager").eval()


def reference(model, prompts, path, greedy=24, inner=True, f64=None):
    """Writes what transformers computes of prompts {name: ids} in the form that `verify --reference` reads.

    f64 is the same model in f64; inner: with hidden states and caches too.
    """
    import torch
    from safetensors.torch import save_file
    out = {}
    final_norm = getattr(model.base_model, "norm", None) if inner else None
    with torch.no_grad():
        for name, ids in prompts.items():
            ids = torch.tensor([ids])
            given = dict(attention_mask=torch.ones_like(ids))
            hook = final_norm and final_norm.register_forward_pre_hook(
                lambda _, inputs: out.__setitem__(f"{name}.last_layer_prenorm", inputs[0]))
            ran = model(ids, output_hidden_states=inner, use_cache=True, **given)
            if hook:
                hook.remove()
            out[f"{name}.input_ids"], out[f"{name}.logits"] = ids, ran.logits
            if inner:
                for i, state in enumerate(ran.hidden_states):
                    out[f"{name}.hidden_states.{i}"] = state
                for i, layer in enumerate(ran.past_key_values.layers):
                    out[f"{name}.cache.{i}.key"], out[f"{name}.cache.{i}.value"] = layer.keys, layer.values
            if greedy:
                answer = model.generate(ids, max_new_tokens=greedy, do_sample=False, eos_token_id=None,
                                        return_dict_in_generate=True, output_logits=True, **given)
                out[f"{name}.greedy_ids"] = answer.sequences[0, ids.shape[1]:]
                out[f"{name}.greedy_logits"] = torch.cat(answer.logits)
            if f64 is not None:
                out[f"{name}.logits_f64"] = f64(ids, **given).logits
    save_file({k: v.detach().clone().contiguous() for k, v in out.items()}, path)
    return path


# Files that are changed in place.


def safetensors_header(path):
    """The header of a safetensors file, and where its data begins."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)), 8 + size


def edit_tensor(path, name, change):
    """Replaces an f32 tensor of a safetensors file by what change(array) makes of it."""
    import numpy
    header, base = safetensors_header(path)
    begin, end = header[name]["data_offsets"]
    with open(path, "r+b") as file:
        file.seek(base + begin)
        values = numpy.frombuffer(bytearray(file.read(end - begin)), dtype="<f4").reshape(header[name]["shape"])
        changed = change(values)
        file.seek(base + begin)
        file.write((values if changed is None else changed).astype("<f4").tobytes())


def copy_folder(source, target):
    """A copy whose files can be changed."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    return pathlib.Path(target)
