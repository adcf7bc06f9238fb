#include "cli/convert_options.h"

#include <fmt/format.h>

#include <charconv>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/numbers.h"
#include "converters/assemble.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "proof/calibration.h"

namespace ferry::cli {
namespace {

Result<uint64_t> parse_file_size(const std::string& text) {
  if (const std::optional<uint64_t> bytes = parse_size(text)) return *bytes;
  return fail(
      ErrorCode::kUsage,
      fmt::format(
          "--max-file-size {}: expected whole bytes, such as 500M or 2GiB: a number with K, M, "
          "G, T (powers of 1000), or KiB, MiB, GiB, TiB (of 1024), or nothing behind it",
          quoted(text)));
}

// The two styles keep keys and values in different dtypes.
Status check_kv_dtype(const std::string& dtype, bool is_static) {
  const bool only_static = dtype == "bf16" || dtype == "u16" || dtype == "u8";
  if (is_static ? dtype != "i8" : !only_static) return {};
  return fail(ErrorCode::kUsage, fmt::format("--kv-dtype {}: only with --program {}", dtype,
                                             is_static ? "stateful" : "static"));
}

// Options that programs of one style only have.
Status check_style(const ConvertLine& options) {
  const bool is_static = options.program == kStaticStyle;
  const std::pair<const char*, bool> only_static[] = {
      {"--attention sha", options.attention == "sha"},
      {"--softmax masked", options.softmax == "masked"},
      {"--rotate r3", options.rotate == "r3"},
      {"--mask-dtype", !options.mask_dtype.empty()},
      {"--logits-dtype", !options.logits_dtype.empty()},
      {"--calibrate", !options.calibrate.empty()},
      {"--calibrate-prefill", !options.calibrate_prefill.empty()},
      {"--decode-length", options.convert.decode_length.has_value()},
      {"--shards-in-one-file", options.convert.shards_in_one_file}};
  for (const auto& [name, given] : only_static) {
    if (!given || is_static) continue;
    return fail(ErrorCode::kUsage, fmt::format("{}: only with --program static", name));
  }
  if (!options.kv_dtype.empty()) FERRY_RETURN_IF_ERROR(check_kv_dtype(options.kv_dtype, is_static));
  if (options.program == kEncoderStyle && !options.logits.empty()) {
    return fail(ErrorCode::kUsage, "--logits: encoders give states");
  }
  if (is_static && options.logits == "last") {
    return fail(ErrorCode::kUsage, "--logits last: static programs give the logits of every token");
  }
  if (is_static && !options.init_buffers.empty()) {
    return fail(ErrorCode::kUsage, "--init-buffers: static programs have no mutable buffers");
  }
  return {};
}

// How static programs attend, and the dtypes of their inputs and outputs.
Status settle_static(ConvertLine& options) {
  plan::ConvertOptions& c = options.convert;
  if (options.program == kStatefulStyle) c.style = converters::ProgramStyle::kStateful;
  if (options.program == kStaticStyle) c.style = converters::ProgramStyle::kStatic;
  if (options.program == kEncoderStyle) c.style = converters::ProgramStyle::kEncoder;
  c.single_head_attention = options.attention == "sha";
  if (options.softmax == "masked") c.softmax = converters::SoftmaxStyle::kMasked;
  if (options.rotate == "r3") c.rotation = converters::Rotation::kR3;
  if (!options.kv_dtype.empty()) {
    (options.program == kStaticStyle ? c.ports.cache : c.kv_cache) =
        *dtype_from_name(options.kv_dtype);
  }
  if (!options.mask_dtype.empty()) c.ports.mask = *dtype_from_name(options.mask_dtype);
  if (!options.logits_dtype.empty()) c.ports.logits = *dtype_from_name(options.logits_dtype);
  if (!options.calibrate_prefill.empty() && !is_encoded(c.ports.cache)) {
    return fail(ErrorCode::kUsage, "--calibrate-prefill: --kv-dtype is not u8 or u16");
  }
  if (options.calibrate.empty() || proof::needs_calibration(c)) return {};
  return fail(ErrorCode::kUsage, "--calibrate: no --kv-dtype or --logits-dtype is u8 or u16");
}

std::optional<graph::WeightDType> weight_dtype_of(std::string_view name) {
  if (name == "keep") return graph::WeightDType::kKeep;
  if (name == "f32") return graph::WeightDType::kF32;
  if (name == "f16") return graph::WeightDType::kF16;
  if (name == "bf16") return graph::WeightDType::kBF16;
  return std::nullopt;
}

// "vision_encoder=f16,text_decoder=bf16". plan_conversion() knows the roles.
Status settle_component_dtypes(ConvertLine& options) {
  if (options.component_dtype.empty()) return {};
  std::string_view rest = options.component_dtype;
  for (bool more = true; more;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    more = item.size() < rest.size();
    rest.remove_prefix(item.size() + (more ? 1 : 0));
    const size_t equals = item.find('=');
    const std::string role(item.substr(0, equals));
    const auto dtype =
        equals == std::string_view::npos ? std::nullopt : weight_dtype_of(item.substr(equals + 1));
    if (!dtype || role.empty()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--component-dtype {}: expected ROLE=keep|f32|f16|bf16, separated by "
                              "commas",
                              quoted(options.component_dtype)));
    }
    if (!options.convert.component_dtypes.emplace(role, *dtype).second) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--component-dtype: {} is given twice", quoted(role)));
    }
  }
  return {};
}

void add_program_options(Verb& verb, ConvertLine& o) {
  verb.group("Programs")
      .choice("--program", o.program, {"stateful", "static", "encoder"},
              "Caches inside of the program, or fixed shapes with caches, masks and positions as "
              "inputs and outputs, or states of a whole text instead of logits; default: encoder "
              "for models whose tokens attend to later ones, else stateful")
      .option(
          "--context-length", o.convert.context_length,
          "Positions of the caches, or tokens of a text; default: the smaller of the config and "
          "4096 (encoder: 2048)")
      .option("--prefill-length", o.convert.prefill_length,
              "Tokens in one call; default: the smaller of the context and 512 (static: of half "
              "the context and 128)")
      .choice(
          "--kv-dtype", o.kv_dtype, {"f32", "f16", "bf16", "u16", "u8", "i8"},
          "Dtype of the KV caches: f32, f16 or i8 (stateful); f32, f16, bf16, u16 or u8 (static)")
      .choice("--logits", o.logits, {"last", "all"},
              "Logits of the last token (default) or of all; static programs give those of all")
      .choice("--init-buffers", o.init_buffers, {"none", "state", "all"},
              "Mutable buffers whose initial contents are stored; default: none")
      .option("--shards", o.shards, "Programs to cut the decoder into");
}

void add_static_options(Verb& verb, ConvertLine& o) {
  verb.group("Static programs")
      .flag("--shards-in-one-file", o.convert.shards_in_one_file,
            "The shards are parts of one program, with llama::fallback between them")
      .choice("--attention", o.attention, {"mha", "sha"},
              "All heads in one projection, or a projection for each head")
      .choice("--softmax", o.softmax, {"plain", "masked"},
              "The mask is added to scores, or masked scores are 20 below the smallest one of "
              "their row")
      .choice("--rotate", o.rotate, {"none", "r3"},
              "Multiply queries and keys by a Hadamard matrix after RoPE (SpinQuant's R3)")
      .option("--decode-length", o.convert.decode_length,
              "Tokens in one call of kv_forward; default: 1; more for lookahead decoding")
      .choice("--mask-dtype", o.mask_dtype, {"f32", "f16", "bf16", "u16", "u8"},
              "Dtype of the attention masks")
      .choice("--logits-dtype", o.logits_dtype, {"f32", "f16", "bf16", "u16", "u8"},
              "Dtype of the logits")
      .option("--calibrate FILE", o.calibrate,
              "Prompts that the encodings of u16 and u8 are found with, a text file with the token "
              "ids of one prompt in each line; default: 4 fixed prompts")
      .option("--calibrate-prefill FILE", o.calibrate_prefill,
              "Prompts for the u8 or u16 caches of prefill_forward, which then have encodings of "
              "their own; default: those of kv_forward");
}

void add_source_options(Verb& verb, ConvertLine& o) {
  verb.group("The checkpoint")
      .option("--config FILE", o.convert.config, "config.json to use instead of the checkpoint's")
      .option(
          "--lora DIR", o.convert.lora,
          "Adapter to merge into the weights: adapter_config.json and adapter_model.safetensors "
          "as peft writes them")
      .choice("--packed-layout", o.packed_layout, {"own", "concatenated", "interleaved"},
              "Rows of packed q, k, v and gate, up: as the model family has them, part after part, "
              "or in turn per key-value head or row")
      .option("--allow-unmapped GLOB", o.convert.allow_unmapped,
              "Keys that may stay unused (may be repeated)");
}

// Options of GGUF files.
Status check_gguf(const ConvertLine& o) {
  if (o.max_file_tensors < 0) {
    return fail(ErrorCode::kUsage, "--max-file-tensors: must not be negative");
  }
  const std::pair<const char*, bool> only_gguf[] = {{"--outtype", o.outtype != "auto"},
                                                    {"--name", !o.name.empty()},
                                                    {"--tokenizer-pre", !o.tokenizer_pre.empty()},
                                                    {"--max-file-tensors", o.max_file_tensors > 0}};
  for (const auto& [name, given] : only_gguf) {
    if (given && o.to != "gguf") {
      return fail(ErrorCode::kUsage, fmt::format("{}: only with --to gguf", name));
    }
  }
  if (o.to != "gguf" || o.dtype == "keep") return {};
  return fail(ErrorCode::kUsage, "--dtype: with --to gguf give --outtype");
}

// Options that other outputs than bundles have nothing for. A bundled program is a stateful one.
Status check_export(const ConvertLine& o) {
  FERRY_RETURN_IF_ERROR(check_gguf(o));
  if (o.to == "bundle") return {};
  const plan::ConvertOptions& c = o.convert;
  const bool program = o.to == "bpte";
  const std::pair<const char*, bool> refused[] = {
      {"--component-dtype", !o.component_dtype.empty()},
      {"--quantize", o.quantize.linears != "none"},
      {"--quantize-embedding", o.quantize.embeddings != "none"},
      {"--quantize-rule", !o.quantize.rules.empty()},
      {"--program", !o.program.empty() && o.program != kStatefulStyle},
      {"--shards", o.shards != 1},
      {"--reference", !program && !c.reference.empty()},
      {"--context-length", !program && c.context_length.has_value()},
      {"--prefill-length", !program && c.prefill_length.has_value()},
      {"--kv-dtype", !program && !o.kv_dtype.empty()},
      {"--logits", !program && !o.logits.empty()},
      {"--init-buffers", !program && !o.init_buffers.empty()}};
  for (const auto& [name, given] : refused) {
    if (!given) continue;
    return fail(ErrorCode::kUsage, fmt::format("{}: not with --to {}", name, o.to));
  }
  return {};
}

}  // namespace

std::optional<convert::ExportOptions> export_options(const ConvertLine& line) {
  const auto format = convert::export_format_of(line.to);
  if (!format) return std::nullopt;
  return convert::ExportOptions{.convert = line.convert,
                                .format = *format,
                                .out = line.out,
                                .type = line.outtype,
                                .model_name = line.name,
                                .pre_tokenizer = line.tokenizer_pre,
                                .max_tensors = static_cast<uint64_t>(line.max_file_tensors)};
}

namespace {

// "2/8".
std::optional<packer::BundlePart> part_of(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto number_in = [](std::string_view digits) -> size_t {
    size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : 0;
  };
  const std::string_view view = text;
  const packer::BundlePart part{.number = number_in(view.substr(0, slash)),
                                .count = number_in(view.substr(slash + 1))};
  constexpr size_t kMostParts = 65536;
  const bool is_part = part.number > 0 && part.number <= part.count && part.count <= kMostParts;
  return is_part ? std::optional(part) : std::nullopt;
}

// kUsage where one of the others is given too.
Status check_beside(std::string_view name,
                    std::initializer_list<std::pair<const char*, bool>> others) {
  for (const auto& [other, given] : others) {
    if (given) return fail(ErrorCode::kUsage, fmt::format("{}: not with {}", name, other));
  }
  return {};
}

Status settle_parts(ConvertLine& o) {
  if (o.part.empty() && o.join.empty()) return {};
  FERRY_RETURN_IF_ERROR(check_beside(o.part.empty() ? "--join" : "--part",
                                     {{"--join", !o.part.empty() && !o.join.empty()},
                                      {"--dry-run", o.dry_run},
                                      {"--if-changed", o.if_changed},
                                      {"--to", o.to != "bundle"}}));
  if (o.part.empty()) return {};
  o.one_part = part_of(o.part);
  if (o.one_part) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("--part {}: expected I/N, such as 1/8 to 8/8", quoted(o.part, 40)));
}

// What is kept for a later run, and parts for another host, must be on the disk.
Status check_no_sync(const ConvertLine& o) {
  if (!o.no_sync) return {};
  return check_beside("--no-sync", {{"--dry-run", o.dry_run},
                                    {"--resume", o.resume},
                                    {"--part", !o.part.empty()},
                                    {"--join", !o.join.empty()}});
}

}  // namespace

Status settle(ConvertLine& options) {
  plan::ConvertOptions& c = options.convert;
  if (options.out.empty() && !options.dry_run) {
    return fail(ErrorCode::kUsage, "-o OUT is required, unless with --dry-run");
  }
  if (options.resume && options.dry_run) {
    return fail(ErrorCode::kUsage, "--resume: a dry run writes nothing");
  }
  FERRY_RETURN_IF_ERROR(settle_parts(options));
  FERRY_RETURN_IF_ERROR(check_no_sync(options));
  if (options.if_changed && options.out.empty()) {
    return fail(ErrorCode::kUsage, "--if-changed needs -o OUT");
  }
  FERRY_RETURN_IF_ERROR(check_export(options));
  if (options.shards < 1 || options.shards > 10000) {
    return fail(ErrorCode::kUsage, "--shards must be from 1 to the number of layers");
  }
  c.shards = static_cast<int32_t>(options.shards);
  if (!options.max_file_size.empty()) {
    c.max_file_bytes = FERRY_TRY(parse_file_size(options.max_file_size));
  }
  c.all_logits = options.logits == "all";
  FERRY_RETURN_IF_ERROR(check_style(options));
  FERRY_RETURN_IF_ERROR(settle_static(options));
  c.dtype = *weight_dtype_of(options.dtype);
  FERRY_RETURN_IF_ERROR(settle_component_dtypes(options));
  c.quantize = FERRY_TRY(parse_quantize_options(options.quantize));
  c.packed_layout = converters::packed_layout_of(options.packed_layout);  // "own" is none
  c.buffers.mode = options.init_buffers == "all"     ? graph::BufferInit::kAll
                   : options.init_buffers == "state" ? graph::BufferInit::kState
                                                     : graph::BufferInit::kNone;
  return {};
}

void add_convert_options(Verb& verb, ConvertLine& o) {
  verb.positional("SRC", o.convert.source,
                  "Checkpoint: a directory, an index, or a tensor file: safetensors, PyTorch, "
                  "GGUF, Keras HDF5")
      .option("-o,--out OUT", o.out, "Bundle directory to make; with --to also a file")
      .choice("--to", o.to, {"bundle", "safetensors", "hf", "pth", "bpte", "gguf"},
              "What is made: programs and weights, or files of weights for other tools "
              "(docs/exporting.md)")
      .flag("-n,--dry-run", o.dry_run, "Plan only; --json prints the plan")
      .flag("--overwrite", o.overwrite, "Replace an existing bundle, or what --to makes")
      .flag("--resume", o.resume,
            "Keep what is done when stopped or killed, and go on with what such a run has left")
      .flag(
          "--no-sync", o.no_sync,
          "Do not wait until the output is on the disk: the end of the process leaves all of it or "
          "nothing, a power failure may leave a part")
      .option("--part I/N", o.part,
              "Write only the data files of one of N parts, to a directory of its own; for several "
              "hosts (docs/scale.md)")
      .option("--join DIR", o.join,
              "Make the bundle of the parts in DIR: moves their data files, checks all digests and "
              "writes the rest")
      .flag("--if-changed", o.if_changed,
            "Leave an output as it is that converting again would make the same, and replace any "
            "other; reads the checkpoint to know, and files of other formats")
      .option("--reference FILE", o.convert.reference,
              "Reference to embed, for verify (safetensors or HDF5)")
      .option("--max-file-size SIZE", o.max_file_size, "Split weight files: 500M, 2GiB, ...")
      .choice("--outtype", o.outtype, {"auto", "f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m"},
              "Of --to gguf: how matrices are stored; auto: as in the checkpoint")
      .option("--name NAME", o.name, "Of --to gguf: general.name")
      .option("--tokenizer-pre NAME", o.tokenizer_pre,
              "Of --to gguf: tokenizer.ggml.pre, where the tokenizer is none that is known")
      .option("--max-file-tensors N", o.max_file_tensors, "Of --to gguf: tensors of a file")
      .group("Weights")
      .choice("--dtype", o.dtype, {"keep", "f32", "f16", "bf16"}, "Dtype of the matrices")
      .option("--component-dtype ROLE=DTYPE,...", o.component_dtype,
              "Dtypes of single components: vision_encoder=f16,text_decoder=bf16");
  add_quantize_options(verb, o.quantize);
  add_program_options(verb, o);
  add_static_options(verb, o);
  add_source_options(verb, o);
}

}  // namespace ferry::cli
