#!/bin/bash
# Measures what a large model and a large batch cost (docs/scale.md). The checkpoints are files with holes, whose
# headers are right and whose weights are zeros, so that they take no space on the disk.
#
#   tests/scale.sh [BUILD_DIRECTORY] [WORK_DIRECTORY] [STEP...]
#
# Steps: `plan` plans a checkpoint of 1 TB, `part` writes 1/PARTS of its bundle (about 1 TB / PARTS on the disk),
# `hosts` lets HOSTS hosts, each with namespaces of its own (unshare), make and join the bundle of a checkpoint of
# HOST_LAYERS layers of Llama 3.1 8B (which takes twice its size on the disk), `batch` plans TASKS checkpoints and runs
# one task. Environment variables and their defaults: LAYERS=158, PARTS=300, HOSTS=8,
# HOST_LAYERS=12, TASKS=10000. The work directory is removed afterwards.
set -eu
build=${1:-build/release}
work=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
steps=${*:-plan part hosts batch}
layers=${LAYERS:-158} parts=${PARTS:-300} tasks=${TASKS:-10000}
hosts=${HOSTS:-8} host_layers=${HOST_LAYERS:-12}
ferry=$(realpath "$build/bin/ferry")
tiny=$(realpath "$(dirname "$0")/../testdata/llama3_tied")
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT

# The sizes are those of Llama 3.1 405B in bf16. With 158 layers instead of 126 the checkpoint has 1.02 TB.
hidden=16384 ffn=53248 kv=1024 heads=128 vocab=128256

# tensors FILE NAME ROWS COLUMNS...: makes a safetensors file with these tensors. COLUMNS 0 makes a vector.
tensors() {
  local file=$1 header='{' at=0 shape bytes separator=''
  shift
  while (($# > 0)); do
    if (($3 == 0)); then shape=$2 bytes=$(($2 * 2)); else shape=$2,$3 bytes=$(($2 * $3 * 2)); fi
    header+="$separator\"$1\":{\"dtype\":\"BF16\",\"shape\":[$shape],\"data_offsets\":[$at,$((at + bytes))]}"
    at=$((at + bytes)) separator=,
    shift 3
  done
  header+='}'
  while ((${#header} % 8 != 0)); do header+=' '; done
  local size=${#header} word=''
  for ((i = 0; i < 8; ++i)); do word+=$(printf '\\x%02x' $(((size >> (8 * i)) & 255))); done
  { printf '%b' "$word"; printf '%s' "$header"; } >"$file"
  truncate -s $((8 + size + at)) "$file"
}

# Makes a checkpoint with the shapes of the 405B model and a file for each layer.
make_large() {
  local dir=$1 files=$((layers + 1)) index='' total=0 file layer p
  mkdir -p "$dir"
  for ((layer = 0; layer <= layers; ++layer)); do
    file=$(printf 'model-%05d-of-%05d.safetensors' $((layer + 1)) $files)
    if ((layer == layers)); then
      tensors "$dir/$file" lm_head.weight $vocab $hidden model.embed_tokens.weight $vocab $hidden \
        model.norm.weight $hidden 0
      for p in lm_head.weight model.embed_tokens.weight model.norm.weight; do
        index+=",\"$p\":\"$file\""
      done
      continue
    fi
    p=model.layers.$layer
    tensors "$dir/$file" $p.input_layernorm.weight $hidden 0 $p.mlp.down_proj.weight $hidden $ffn \
      $p.mlp.gate_proj.weight $ffn $hidden $p.mlp.up_proj.weight $ffn $hidden \
      $p.post_attention_layernorm.weight $hidden 0 $p.self_attn.k_proj.weight $kv $hidden \
      $p.self_attn.o_proj.weight $hidden $hidden $p.self_attn.q_proj.weight $hidden $hidden \
      $p.self_attn.v_proj.weight $kv $hidden
    for part in input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm \
      self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj; do
      index+=",\"$p.$part.weight\":\"$file\""
    done
  done
  printf '{"metadata":{"total_size":%d},"weight_map":{%s}}' $total "${index#,}" \
    >"$dir/model.safetensors.index.json"
  cat >"$dir/config.json" <<JSON
{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_act":"silu",
 "hidden_size":$hidden,"intermediate_size":$ffn,"num_hidden_layers":$layers,
 "num_attention_heads":$heads,"num_key_value_heads":8,"vocab_size":$vocab,"rms_norm_eps":1e-05,
 "max_position_embeddings":131072,"tie_word_embeddings":false,"rope_theta":500000.0,
 "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
 "original_max_position_embeddings":8192,"rope_type":"llama3"}}
JSON
}

# Makes groups of 100 checkpoints, which all link to the same files.
make_hub() {
  local i name
  for ((i = 0; i < 100; ++i)); do
    printf -v name '%s/g000/m%02d' "$1" "$i"
    mkdir -p "$name"
    cp -l "$tiny/config.json" "$tiny/model.safetensors" "$name/" 2>/dev/null ||
      cp "$tiny/config.json" "$tiny/model.safetensors" "$name/"
  done
  for ((i = 1; i < tasks / 100; ++i)); do
    printf -v name '%s/g%03d' "$1" "$i"
    cp -rl "$1/g000" "$name"
  done
}

# measured LABEL COMMAND...: prints wall time, processor time and peak memory.
measured() {
  local label=$1
  shift
  if /usr/bin/env time --version >/dev/null 2>&1; then
    env time -f "$label: %e s wall, %U s user, %S s system, %M KiB" "$@" >"$work/out" 2>"$work/err" ||
      { cat "$work/err" >&2; exit 1; }
  else
    local TIMEFORMAT="$label: %R s wall, %U s user, %S s system"
    { time "$@" >"$work/out" 2>"$work/log"; } 2>"$work/err" || { cat "$work/log" >&2; exit 1; }
  fi
  tail -n 1 "$work/err"
}

# on_host N COMMAND...: runs the command as host N, which shares the file system with the others and nothing else.
on_host() {
  local name=host$1
  shift
  unshare --user --map-root-user --uts --ipc --pid --fork --net \
    sh -c 'hostname "$0" && exec "$@"' "$name" "$@"
}

# Every host makes its part of the bundle of $1 at the same time.
make_parts() {
  local host pids=''
  for ((host = 1; host <= hosts; ++host)); do
    on_host "$host" "$ferry" convert "$1" -o "$2/$host" --part "$host/$hosts" --max-file-size 1100MB --quiet &
    pids+=" $!"
  done
  for host in $pids; do wait "$host"; done
}

case " $steps " in *' plan '* | *' part '*)
  make_large "$work/large"
  echo "checkpoint: $(du --apparent-size -B1 -s "$work/large" | cut -f1) bytes, $(du -B1 -s "$work/large" | cut -f1) on the disk"
  ;;
esac
for step in $steps; do
  case $step in
    plan)
      measured "plan, dry run" "$ferry" convert "$work/large" -n --json --max-file-size 4.5GB
      measured "plan, dry run, 8da4w" "$ferry" convert "$work/large" -n --json --quantize 8da4w-g32 --max-file-size 4.5GB
      measured "inspect" "$ferry" inspect "$work/large" --json
      ;;
    part)
      mkdir -p "$work/parts"
      measured "part $parts/$parts" "$ferry" convert "$work/large" -o "$work/parts/$parts" \
        --part "$parts/$parts" --max-file-size 4.5GB
      du -B1 -s "$work/parts/$parts"
      rm -rf "$work/parts"
      ;;
    hosts)
      hidden=4096 ffn=14336 heads=32 layers=$host_layers
      make_large "$work/middle"
      echo "checkpoint: $(du --apparent-size -B1 -s "$work/middle" | cut -f1) bytes"
      mkdir -p "$work/parts"
      export -f make_parts on_host
      export ferry hosts
      measured "parts of $hosts hosts at a time" bash -ec 'make_parts "$@"' _ "$work/middle" "$work/parts"
      measured "join" "$ferry" convert "$work/middle" -o "$work/joined" --join "$work/parts" --max-file-size 1100MB
      measured "one run" "$ferry" convert "$work/middle" -o "$work/whole" --max-file-size 1100MB
      diff -r "$work/joined" "$work/whole" && echo "the joined bundle has the bytes of one run"
      rm -rf "$work/joined" "$work/whole" "$work/middle"
      ;;
    batch)
      make_hub "$work/hub"
      measured "batch plan of $tasks" "$ferry" batch plan "$work/hub" --out-dir "$work/bundles"
      mv "$work/out" "$work/plan.jsonl"
      echo "$(wc -l <"$work/plan.jsonl") lines, $(wc -c <"$work/plan.jsonl") bytes"
      measured "batch status" "$ferry" batch status "$work/plan.jsonl" || true
      measured "one task of $tasks" "$ferry" batch run "$work/plan.jsonl" --task $((tasks / 2))
      ;;
    *)
      echo "scale.sh: no step '$step'" >&2
      exit 2
      ;;
  esac
done
