"""Names of models mean the snapshots that huggingface_hub means.

huggingface_hub itself downloads models from a server of this script, so that the cache has its layout: branches, tags,
pull requests, GGUF files in folders. Then `ferry inspect NAME` must open the path that huggingface_hub returns, and `ferry
convert NAME` must make the bundle of the plain folder.
"""

import argparse
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.parse

TESTDATA = pathlib.Path(__file__).resolve().parents[2] / "testdata"


def commit_of(model, revision):
    return hashlib.sha1(f"{model} {revision}".encode()).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """The calls of the hub that a download makes; `models` maps names to revisions to files to bytes."""

    models = {}

    def log_message(self, *_):
        pass

    def find(self, model, revision):
        for name, files in self.models.get(model, {}).items():
            if revision in (name, commit_of(model, name)):
                return commit_of(model, name), files
        return None, {}

    def answer(self):
        parts = urllib.parse.unquote(self.path.split("?")[0]).strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) > 5 and parts[4] == "revision":
            model, revision = "/".join(parts[2:4]), urllib.parse.unquote("/".join(parts[5:]))
            commit, files = self.find(model, revision)
            siblings = [{"rfilename": name} for name in files]
            body = json.dumps({"id": model, "modelId": model, "sha": commit, "siblings": siblings, "private": False,
                               "downloads": 0, "likes": 0, "tags": []}).encode()
            return commit, body, {"Content-Type": "application/json"}
        if parts[:2] == ["api", "models"] and len(parts) > 5 and parts[4] == "tree":
            commit, files = self.find("/".join(parts[2:4]), "/".join(parts[5:]))
            body = json.dumps([{"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                               for name, data in files.items()]).encode()
            return commit, body, {"Content-Type": "application/json"}
        if len(parts) > 4 and parts[2] == "resolve":
            model, rest = "/".join(parts[:2]), parts[3:]
            for cut in range(1, len(rest)):
                commit, files = self.find(model, "/".join(rest[:cut]))
                name = "/".join(rest[cut:])
                if commit and name in files:
                    etag = hashlib.sha256(files[name]).hexdigest()
                    return commit, files[name], {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        return None, b"", {}

    def do_GET(self):
        commit, body, headers = self.answer()
        self.send_response(200 if commit else 404)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())
            if path.is_file() and path.name != "golden.safetensors"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ferry", required=True)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    ferry = str(pathlib.Path(parser.parse_args().ferry).resolve())

    with tempfile.TemporaryDirectory() as scratch:
        gguf = pathlib.Path(scratch, "m.gguf")
        subprocess.run([ferry, "-q", "convert", str(TESTDATA / "llama3_tied"), "--to", "gguf", "-o", str(gguf)], check=True)
        one, sharded = files_of(TESTDATA / "llama3_tied"), files_of(TESTDATA / "golden/qwen2")
        Hub.models = {
            "org/one": {"main": one, "v1.0": sharded, "refs/pr/1": one},
            "org/tagged": {"v2": one},
            "org/sharded": {"main": sharded},
            "org/m-GGUF": {"main": {"README.md": b"text", "m-Q8_0.gguf": gguf.read_bytes(),
                                    "BF16/m-BF16.gguf": gguf.read_bytes()}},
        }
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cache = os.path.join(scratch, "hub")
        os.environ.update(HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}", HF_HUB_CACHE=cache, HF_HUB_OFFLINE="0",
                          HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_XET="1")
        import huggingface_hub
        for model, revisions in Hub.models.items():
            for revision in revisions:
                huggingface_hub.snapshot_download(model, revision=revision)

        right = wrong = 0

        def expect(what, holds, shown=""):
            nonlocal right, wrong
            right, wrong = right + bool(holds), wrong + (not holds)
            print(f"{'ok' if holds else 'WRONG'} {what}{'' if holds else ': ' + str(shown)}")

        def inspect(name):
            done = subprocess.run([ferry, "inspect", name, "--json"], capture_output=True, text=True)
            document = json.loads(done.stdout)
            return document["result"]["path"] if document["ok"] else done.stderr

        def snapshot(model, revision=None):
            return huggingface_hub.snapshot_download(model, revision=revision, local_files_only=True)

        for model, revisions in Hub.models.items():
            if "GGUF" in model:
                continue
            for revision in revisions:
                commit = commit_of(model, revision)
                for name in (f"{model}@{revision}", f"{model}@{commit}", f"{model}@{commit[:8]}"):
                    path = inspect(name)
                    expect(name, path == snapshot(model, revision), path)
        for name in ("org/one", "org/sharded"):
            expect(name, inspect(name) == snapshot(name), inspect(name))
        for word, file in (("Q8_0", "m-Q8_0.gguf"), ("bf16", "BF16/m-BF16.gguf")):
            meant = huggingface_hub.try_to_load_from_cache("org/m-GGUF", file)
            for name in (f"org/m-GGUF:{word}", f"org/m-GGUF/{file}", f"org/m-GGUF:{file}"):
                expect(name, inspect(name) == meant, inspect(name))
        for name, folder in (("org/one", "llama3_tied"), ("org/one@v1.0", "golden/qwen2"), ("org/sharded", "golden/qwen2")):
            bundles = [pathlib.Path(scratch, f"{kind}{right}") for kind in "ab"]
            for source, bundle in zip((name, str(TESTDATA / folder)), bundles):
                subprocess.run([ferry, "-q", "convert", source, "-o", str(bundle)], check=True)
            expect(f"bundle of {name}", files_of(bundles[0]) == files_of(bundles[1]))
        # What is absent for the one is absent for the other.
        for model, revision in (("org/one", "v9"), ("org/none", "main"), ("org/tagged", "main")):
            try:
                there = snapshot(model, revision)
            except Exception:  # pylint: disable=broad-except
                there = None
            shown = inspect(f"{model}@{revision}")
            expect(f"absent {model}@{revision}", there is None and f"hf download {model} --revision {revision}" in shown, shown)
        blob = os.path.realpath(os.path.join(snapshot("org/one"), "model.safetensors"))
        os.remove(blob)
        shown = inspect("org/one")
        command = shown.split("to download the rest: ")[-1].split()
        expect("a missing blob", command[:3] == ["hf", "download", "org/one"], shown)
        # The command that the message has restores it.
        if len(command) == 5:
            huggingface_hub.snapshot_download(command[2], revision=command[4])
        expect("a downloaded blob", inspect("org/one") == snapshot("org/one"), inspect("org/one"))
        server.shutdown()
    print(f"{right}/{right + wrong}")
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
