#!/usr/bin/env bash
# Shows Ferry's main job on the embedded sample, a small Qwen3.5 that was trained on the King James Bible. The
# model becomes a two-shard bundle, generates English, and is compared with outputs of Hugging Face transformers.
# Then it is quantised, and both bundles predict a text that is not in the training data. Each step shows its
# command.
set -euo pipefail
cd "$(dirname "$0")"
./build.sh release ferry

PATH=$PWD/build/release/bin:$PATH
sample=testdata/trained exact=build/demo/f32.bundle small=build/demo/8da4w.bundle
prompt="And it came to pass"
mkdir -p build/demo

# Shows a command as a user would type it, and runs it.
step() {
  printf '\n$'
  for word in "$@"; do
    case $word in *' '*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac
  done
  printf '\n'
  "$@"
}

step ferry convert $sample -o $exact --dtype f32 --shards 2 --reference $sample/golden.safetensors --overwrite
step ferry run $exact --prompt "$prompt" --max-new 60 --quiet
step ferry verify $exact
step ferry convert $sample -o $small --quantize 8da4w --quantize-embedding 8 --overwrite
step ferry run $small --prompt "$prompt" --max-new 60 --temperature 0.6 --seed 1 --quiet
step ferry verify $small --perplexity $sample/held_out.txt --text --against $exact
