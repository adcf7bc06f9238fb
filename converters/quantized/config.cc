#include "converters/quantized/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "converters/config/json_fields.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr IntRange kBlockSizes = {1, int64_t{1} << 30};
constexpr IntRange kGroups = {-1, int64_t{1} << 30};
constexpr IntRange kBits = {1, 64};
constexpr const char* kKeys[] = {"quantization_config", "compression_config"};

// Keys that change no weight: how the codes were found, and how a runtime of the original
// multiplies.
constexpr std::string_view kInertMethodKeys[] = {"_load_in_4bit",
                                                 "_load_in_8bit",
                                                 "act_group_aware",
                                                 "activation_scheme",
                                                 "activation_scale_ub",
                                                 "amp",
                                                 "autoround_version",
                                                 "backend",
                                                 "batch_size",
                                                 "block_name_to_quantize",
                                                 "cache_block_outputs",
                                                 "damp_auto_increment",
                                                 "damp_percent",
                                                 "data_type",
                                                 "dataset",
                                                 "dequantize",
                                                 "disable_exllama",
                                                 "do_fuse",
                                                 "dynamic",
                                                 "enable_quanted_input",
                                                 "exllama_config",
                                                 "fuse_max_seq_len",
                                                 "global_compression_ratio",
                                                 "input_activations",
                                                 "iters",
                                                 "lm_head",
                                                 "lr",
                                                 "max_input_length",
                                                 "meta",
                                                 "minmax_lr",
                                                 "model_file_base_name",
                                                 "model_name_or_path",
                                                 "model_seqlen",
                                                 "module_name_preceding_first_block",
                                                 "modules_in_block_to_quantize",
                                                 "modules_to_fuse",
                                                 "mse",
                                                 "nsamples",
                                                 "observer",
                                                 "observer_kwargs",
                                                 "offload_to_disk",
                                                 "output_activations",
                                                 "pad_token_id",
                                                 "quantization_status",
                                                 "quantizer",
                                                 "run_compressed",
                                                 "scale_dtype",
                                                 "scale_fmt",
                                                 "seqlen",
                                                 "static_groups",
                                                 "sym",
                                                 "targets",
                                                 "tokenizer",
                                                 "true_sequential",
                                                 "use_cuda_fp16",
                                                 "use_exllama",
                                                 "version",
                                                 "zp_dtype",
                                                 "actorder",
                                                 "train_bs",
                                                 "gradient_accumulate_steps",
                                                 "low_gpu_mem_usage",
                                                 "super_bits",
                                                 "super_group_size",
                                                 "to_quant_block_names",
                                                 "desc_act"};

bool is_inert_method_key(std::string_view key) {
  return std::ranges::count(kInertMethodKeys, key) > 0;
}

Failure unsupported(const JsonFields& fields, std::string_view key, std::string_view what) {
  return fields.error(ErrorCode::kUnsupported, key, what);
}

// Refuses a field unless it says nothing: null, {} or [].
Status expect_empty(const JsonFields& fields, std::string_view key) {
  const nlohmann::json* value = fields.find(key);
  if (value == nullptr || (value->is_structured() && value->empty())) return {};
  return unsupported(fields, key, "is not supported");
}

Status expect_text(const JsonFields& fields, std::string_view key,
                   std::initializer_list<std::string_view> values) {
  const auto stated = FERRY_TRY(fields.text(key));
  if (!stated) return {};
  std::string lower = *stated;
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (std::ranges::count(values, std::string_view(lower)) > 0) return {};
  return unsupported(
      fields, key,
      fmt::format("is {}; supported is {}", quoted(*stated, 40), fmt::join(values, ", ")));
}

Status read_names(const JsonFields& fields, std::string_view key, std::vector<std::string>& out) {
  const nlohmann::json* list = fields.find(key);
  if (list == nullptr) return {};
  if (!list->is_array()) return fields.bad(key, "is not a list of names");
  for (const nlohmann::json& name : *list) {
    if (!name.is_string()) return fields.bad(key, "is not a list of names");
    out.push_back(name.get<std::string>());
  }
  return {};
}

// Reads the columns of a block. -1 stands for a whole row, which is 0 here.
Result<int64_t> group_columns(const JsonFields& fields) {
  const int64_t size = FERRY_TRY(fields.required("group_size", kGroups));
  if (size == 0) return fields.bad("group_size", "is 0");
  return std::max<int64_t>(size, 0);
}

Status read_bits(const JsonFields& fields, std::string_view key,
                 std::initializer_list<int64_t> supported, QuantizedScheme& scheme) {
  const int64_t bits = FERRY_TRY(fields.required(key, kBits));
  scheme.bits = static_cast<int>(bits);
  if (std::ranges::count(supported, bits) > 0) return {};
  return unsupported(fields, key,
                     fmt::format("is {}; supported is {}", bits, fmt::join(supported, ", ")));
}

Result<ScaleBlock> read_block(const JsonFields& fields, std::string_view key) {
  const auto sizes = FERRY_TRY(fields.integers(key, kBlockSizes));
  if (!sizes) return ScaleBlock{};
  if (sizes->size() != 2) return fields.bad(key, "is not two numbers");
  return ScaleBlock{(*sizes)[0], (*sizes)[1]};
}

// -- one function for each method

Status read_fp8(const JsonFields& fields, QuantizationConfig& out) {
  FERRY_RETURN_IF_ERROR(expect_text(fields, "fmt", {"e4m3"}));
  FERRY_RETURN_IF_ERROR(read_names(fields, "modules_to_not_convert", out.kept));
  FERRY_RETURN_IF_ERROR(read_names(fields, "ignored_layers", out.kept));
  out.schemes = {{.form = QuantizedForm::kScaled,
                  .is_float = true,
                  .block = FERRY_TRY(read_block(fields, "weight_block_size"))}};
  out.scale_suffix = "weight_scale_inv";
  return {};
}

Status read_fbgemm(const JsonFields& fields, QuantizationConfig& out) {
  FERRY_RETURN_IF_ERROR(read_names(fields, "modules_to_not_convert", out.kept));
  out.schemes = {{.form = QuantizedForm::kScaled, .is_float = true, .block = {1, 0}}};
  out.scale_suffix = "weight_scale";
  return {};
}

Status read_gptq(const JsonFields& fields, QuantizationConfig& out) {
  QuantizedScheme scheme = {.form = QuantizedForm::kGptq, .has_zero_points = true};
  FERRY_RETURN_IF_ERROR(read_bits(fields, "bits", {4, 8}, scheme));
  scheme.block = {1, FERRY_TRY(group_columns(fields))};
  for (const char* key : {"checkpoint_format", "format"}) {
    FERRY_RETURN_IF_ERROR(expect_text(fields, key, {"gptq", "gptq_v2"}));
  }
  FERRY_RETURN_IF_ERROR(expect_text(fields, "pack_dtype", {"int32"}));
  FERRY_RETURN_IF_ERROR(expect_empty(fields, "dynamic"));
  if (FERRY_TRY(fields.flag_or("is_marlin_format", false))) {
    return unsupported(fields, "is_marlin_format", "is true: not supported");
  }
  const auto format = FERRY_TRY(
      fields.text(fields.find("checkpoint_format") != nullptr ? "checkpoint_format" : "format"));
  out.zero_offset = format.value_or("gptq") == "gptq_v2" ? 0 : 1;
  out.needs_groups = FERRY_TRY(fields.flag_or("desc_act", false));
  out.schemes = {scheme};
  return {};
}

Status read_awq(const JsonFields& fields, QuantizationConfig& out) {
  QuantizedScheme scheme = {.form = QuantizedForm::kAwq, .has_zero_points = true};
  FERRY_RETURN_IF_ERROR(read_bits(fields, "bits", {4}, scheme));
  scheme.block = {1, FERRY_TRY(group_columns(fields))};
  FERRY_RETURN_IF_ERROR(expect_text(fields, "version", {"gemm"}));
  FERRY_RETURN_IF_ERROR(expect_text(fields, "format", {"gemm"}));
  FERRY_RETURN_IF_ERROR(expect_text(fields, "backend", {"autoawq", "auto"}));
  if (!FERRY_TRY(fields.flag_or("zero_point", true))) {
    return unsupported(fields, "zero_point", "is false: not supported");
  }
  FERRY_RETURN_IF_ERROR(read_names(fields, "modules_to_not_convert", out.kept));
  out.schemes = {scheme};
  return {};
}

// -- compressed-tensors

Result<ScaleBlock> block_of_strategy(const JsonFields& weights) {
  const std::string strategy = FERRY_TRY(weights.text("strategy")).value_or("tensor");
  if (strategy == "tensor") return ScaleBlock{0, 0};
  if (strategy == "channel") return ScaleBlock{1, 0};
  if (strategy == "group") {
    return ScaleBlock{1, FERRY_TRY(group_columns(weights))};
  }
  if (strategy == "block") return read_block(weights, "block_structure");
  return unsupported(
      weights, "strategy",
      fmt::format("is {}; supported are tensor, channel, group, block", quoted(strategy, 40)));
}

Result<QuantizedScheme> read_weights(const JsonFields& weights, const std::string& format) {
  QuantizedScheme scheme;
  FERRY_RETURN_IF_ERROR(expect_text(weights, "type", {"int", "float"}));
  scheme.is_float = FERRY_TRY(weights.text("type")).value_or("int") == "float";
  const bool packed = format == "pack-quantized";
  FERRY_RETURN_IF_ERROR(scheme.is_float ? read_bits(weights, "num_bits", {8}, scheme)
                                        : read_bits(weights, "num_bits", {4, 8}, scheme));
  if (packed && scheme.is_float)
    return unsupported(weights, "type", "is 'float' in pack-quantized");
  scheme.form = packed ? QuantizedForm::kPacked : QuantizedForm::kScaled;
  scheme.has_zero_points = !FERRY_TRY(weights.flag_or("symmetric", true));
  if (FERRY_TRY(weights.flag_or("dynamic", false))) {
    return unsupported(weights, "dynamic", "is true: weights without scales");
  }
  scheme.block = FERRY_TRY(block_of_strategy(weights));
  // A group size beside another strategy has no effect.
  (void)weights.find("group_size");
  (void)weights.find("block_structure");
  return scheme;
}

Status read_group(const JsonFields& group, const std::string& format, QuantizationConfig& out) {
  const std::string own = FERRY_TRY(group.text("format")).value_or(format);
  FERRY_RETURN_IF_ERROR(expect_text(
      group, "format", {"float-quantized", "int-quantized", "naive-quantized", "pack-quantized"}));
  const auto weights = FERRY_TRY(group.object("weights"));
  if (!weights)
    return unsupported(group, "weights",
                       "is missing: modules of which only the "
                       "activations are quantised");
  const QuantizedScheme scheme = FERRY_TRY(read_weights(*weights, own));
  if (std::ranges::count(out.schemes, scheme) == 0) out.schemes.push_back(scheme);
  return {};
}

Status read_compressed(const JsonFields& fields, QuantizationConfig& out) {
  FERRY_RETURN_IF_ERROR(expect_text(fields, "format",
                                    {"float-quantized", "int-quantized", "naive-quantized",
                                     "pack-quantized", "mixed-precision"}));
  const std::string format = FERRY_TRY(fields.text("format")).value_or("");
  FERRY_RETURN_IF_ERROR(expect_empty(fields, "sparsity_config"));
  FERRY_RETURN_IF_ERROR(expect_empty(fields, "transform_config"));
  FERRY_RETURN_IF_ERROR(read_names(fields, "ignore", out.kept));
  const nlohmann::json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    return fields.bad("config_groups", "is not an object with groups");
  }
  const JsonFields all = *FERRY_TRY(fields.object("config_groups"));
  for (const auto& [name, group] : groups->items()) {
    const auto one = FERRY_TRY(all.object(name));
    if (!one) return all.bad(name, "is null");
    FERRY_RETURN_IF_ERROR(read_group(*one, format, out));
  }
  out.scale_suffix = "weight_scale";
  if (fields.find("kv_cache_scheme") != nullptr) {
    out.note =
        "quantization_config.kv_cache_scheme has no effect: kv_dtype decides the dtype of caches";
  }
  return {};
}

// Names of modules that are left out have wildcards, and are not needed: codes have names of their
// own.
Status read_mxfp4(const JsonFields& fields, QuantizationConfig& out) {
  std::vector<std::string> unused;
  FERRY_RETURN_IF_ERROR(read_names(fields, "modules_to_not_convert", unused));
  out.schemes = {{.form = QuantizedForm::kBlocks, .bits = 4, .is_float = true}};
  return {};
}

// The head stays as it is: transformers leaves it out unless a list says otherwise.
Status read_bitnet(const JsonFields& fields, QuantizationConfig& out) {
  FERRY_RETURN_IF_ERROR(read_names(fields, "modules_to_not_convert", out.kept));
  if (fields.find("modules_to_not_convert") != nullptr &&
      out.kept != std::vector<std::string>{"lm_head"}) {
    return unsupported(fields, "modules_to_not_convert", "is not [\"lm_head\"]: not supported");
  }
  FERRY_RETURN_IF_ERROR(expect_text(fields, "linear_class", {"bitlinear", "autobitlinear"}));
  FERRY_RETURN_IF_ERROR(expect_text(fields, "quantization_mode", {"online", "offline"}));
  if (FERRY_TRY(fields.flag_or("use_rms_norm", false))) {
    return unsupported(fields, "use_rms_norm", "is true: not supported");
  }
  (void)fields.find("rms_norm_eps");
  out.divides = FERRY_TRY(fields.text("linear_class")).value_or("bitlinear") == "bitlinear";
  const bool online =
      !out.divides && FERRY_TRY(fields.text("quantization_mode")).value_or("offline") == "online";
  out.rounds_inputs = true;
  out.schemes = {{.form = online ? QuantizedForm::kRounded : QuantizedForm::kTernary, .bits = 2}};
  out.scale_suffix = "weight_scale";
  return {};
}

struct Method {
  std::string_view name;
  Status (*read)(const JsonFields&, QuantizationConfig&);
};
constexpr Method kMethods[] = {
    {"fp8", read_fp8},      {"fbgemm_fp8", read_fbgemm}, {"compressed-tensors", read_compressed},
    {"gptq", read_gptq},    {"awq", read_awq},           {"mxfp4", read_mxfp4},
    {"bitnet", read_bitnet}};

std::string method_names() {
  std::vector<std::string_view> names;
  for (const Method& method : kMethods) names.push_back(method.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Reads the dtype of the model that was quantised, as its config states it.
Result<std::optional<DType>> computed_dtype(const JsonFields& config) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}};
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto stated = FERRY_TRY(config.text(key));
    if (!stated || *stated == "auto") continue;
    std::string_view text = *stated;
    if (text.starts_with("torch.")) text.remove_prefix(6);
    for (const auto& [name, dtype] : kNames) {
      if (text == name) return std::optional(dtype);
    }
    return unsupported(
        config, key,
        fmt::format("is {}; supported are bfloat16, float16, float32", quoted(*stated, 40)));
  }
  return std::optional<DType>();
}

// The object that holds a quantization config: the outer one, or its text part.
struct Found {
  nlohmann::json* owner = nullptr;
  std::string path, key;
};

std::optional<Found> find_quantization(nlohmann::json& document) {
  const auto in = [](nlohmann::json& object, const std::string& path) -> std::optional<Found> {
    for (const char* key : kKeys) {
      const auto found = object.find(key);
      if (found != object.end() && !found->is_null()) return Found{&object, path, key};
    }
    return std::nullopt;
  };
  if (!document.is_object()) return std::nullopt;
  if (auto outer = in(document, "")) return outer;
  const auto text = document.find("text_config");
  if (text == document.end() || !text->is_object()) return std::nullopt;
  return in(*text, "text_config.");
}

}  // namespace

Result<std::optional<QuantizationConfig>> parse_quantization_config(const std::string& config_json,
                                                                    const std::string& name) {
  nlohmann::json document = FERRY_TRY(parse_json(config_json, name));
  const std::optional<Found> found = find_quantization(document);
  if (!found) return std::optional<QuantizationConfig>();
  const JsonFields owner(*found->owner, name, found->path);
  KeyLog log;
  JsonFields fields = *FERRY_TRY(owner.object(found->key));
  fields.record_in(log);
  QuantizationConfig out;
  out.method = FERRY_TRY(fields.text("quant_method")).value_or("");
  const auto* method = std::ranges::find(kMethods, std::string_view(out.method), &Method::name);
  if (method == std::end(kMethods)) {
    return unsupported(
        fields, "quant_method",
        fmt::format("is {}; supported are {}", quoted(out.method, 40), method_names()));
  }
  FERRY_RETURN_IF_ERROR(method->read(fields, out));
  const std::string path = found->path + found->key + ".";
  const auto unknown = unused_keys((*found->owner)[found->key], path, log, is_inert_method_key);
  if (!unknown.empty()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {} is not known of {}", name,
                                                     quoted(unknown.front()), out.method));
  }
  out.dtype = FERRY_TRY(computed_dtype(owner));
  if (!out.dtype) out.dtype = FERRY_TRY(computed_dtype(JsonFields(document, name, "")));
  return std::optional(std::move(out));
}

Result<std::string> without_quantization_config(const std::string& config_json,
                                                const std::string& name) {
  nlohmann::json document = FERRY_TRY(parse_json(config_json, name));
  while (const std::optional<Found> found = find_quantization(document)) {
    found->owner->erase(found->key);
  }
  return document.dump();
}

}  // namespace ferry::converters
