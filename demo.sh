#!/usr/bin/env bash
# The main job on the embedded sample: a tiny Qwen3.5 checkpoint becomes a two-shard bundle, is run, and
# is compared with what Hugging Face transformers computed from it.
set -euo pipefail
cd "$(dirname "$0")"
./build.sh release ferry

ferry=build/release/bin/ferry
sample=testdata/qwen3_5_text
bundle=build/demo/qwen3_5_text.bundle
mkdir -p build/demo
"$ferry" convert "$sample" -o "$bundle" --shards 2 --reference "$sample/golden.safetensors" --overwrite
"$ferry" run "$bundle" --tokens 1,17,42,99 --max-new 16
"$ferry" verify "$bundle"
