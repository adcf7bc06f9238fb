#include "dialects/gguf/model/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "converters/config/json_fields.h"
#include "core/text.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/encoder.h"
#include "dialects/gguf/model/layer_numbers.h"
#include "dialects/gguf/model/reading.h"
#include "dialects/gguf/model/written_keys.h"

namespace ferry::converters {
namespace {

constexpr IntRange kTokenIdRange = {0, INT32_MAX};

// Returns the model type of the text part of a config, or nothing where it does not say.
std::string text_type_of(const std::string& config) {
  const auto whole = nlohmann::json::parse(config, nullptr, false);
  if (!whole.is_object()) return {};
  const auto part = whole.find("text_config");
  const nlohmann::json& text = part != whole.end() && part->is_object() ? *part : whole;
  const auto type = text.find("model_type");
  return type != text.end() && type->is_string() ? type->get<std::string>() : std::string();
}

// A ministral3 whose queries do not grow has no sign of its own: the type in the user's config
// tells it from a mistral.
Result<const GgufArchitecture*> architecture_of(const JsonFields& fields,
                                                const TensorSource& source,
                                                const std::string& user_type) {
  const auto type = FERRY_TRY(fields.text("general.type")).value_or("model");
  if (type == "mmproj") {
    return fields.error(ErrorCode::kUnsupported, "general.type",
                        "is mmproj: a projector, which --mmproj takes beside a text decoder");
  }
  if (type != "model") {
    return fields.error(ErrorCode::kUnsupported, "general.type",
                        fmt::format("is {}: only models can be converted", quoted(type)));
  }
  const auto name = FERRY_TRY(fields.text("general.architecture"));
  if (!name) return fields.bad("general.architecture", "is missing");
  const GgufKeys keys = {fields, *name + "."};
  const GgufTensorNames tensors = gguf_tensor_names(source);
  const std::vector<const GgufArchitecture*> all = find_gguf_architectures(*name);
  const auto said = std::ranges::find_if(all, [&](const GgufArchitecture* one) {
    return one->sign == GgufSign::kGrowingQueries && one->model_type == user_type;
  });
  if (said != all.end()) return *said;
  for (const GgufArchitecture* one : all) {
    const GgufReading file = {.keys = &keys, .architecture = one, .tensors = &tensors};
    if (has_gguf_sign(file, one->sign)) return one;
  }
  return fields.error(
      ErrorCode::kUnsupported, "general.architecture",
      fmt::format("is {}; supported are {}", quoted(*name), gguf_architecture_names()));
}

// Returns the text of generation_config.json with the token ids and the settings of sampling of the
// metadata; empty where there are none.
Result<std::string> generation_config(const nlohmann::json& metadata, const std::string& name) {
  const JsonFields fields(metadata, name, "");
  nlohmann::json out = nlohmann::json::object();
  const auto bos = FERRY_TRY(fields.integer("tokenizer.ggml.bos_token_id", kTokenIdRange));
  const auto pad = FERRY_TRY(fields.integer("tokenizer.ggml.padding_token_id", kTokenIdRange));
  if (bos) out["bos_token_id"] = *bos;
  if (pad) out["pad_token_id"] = *pad;
  std::set<int64_t> ends;
  for (const char* key : {"eos", "eot", "eom"}) {
    const auto id =
        FERRY_TRY(fields.integer(fmt::format("tokenizer.ggml.{}_token_id", key), kTokenIdRange));
    if (id) ends.insert(*id);
  }
  if (!ends.empty()) out["eos_token_id"] = ends;
  FERRY_RETURN_IF_ERROR(read_gguf_sampling(metadata, name, out));
  return out.empty() ? std::string() : out.dump(2) + "\n";
}

}  // namespace

Result<AdoptedGguf> adopt_gguf(const TensorSource& source, const nlohmann::json& metadata,
                               const std::string& user_config, const std::string& user_name) {
  const std::string path = printable(source.path());
  const GgufArchitecture* architecture =
      FERRY_TRY(architecture_of(JsonFields(metadata, path, ""), source, text_type_of(user_config)));
  GgufConfig config = FERRY_TRY(make_gguf_config({.architecture = architecture,
                                                  .metadata = &metadata,
                                                  .tensors = &source,
                                                  .user_config = user_config,
                                                  .user_name = user_name}));
  AdoptedGguf out;
  out.tokenizer = FERRY_TRY(make_gguf_tokenizer(metadata, path));
  out.generation = FERRY_TRY(generation_config(metadata, path));
  out.tensors = FERRY_TRY(key_gguf_tensors(source, *architecture, config.parsed));
  FERRY_RETURN_IF_ERROR(
      add_layer_numbers(source, *architecture, config.parsed, metadata, out.tensors));
  const std::string prefix = std::string(architecture->name) + ".";
  out.sentence = FERRY_TRY(read_gguf_sentence({{metadata, path, ""}, prefix}, source));
  out.config = std::move(config.text);
  out.config_name = std::move(config.name);
  return out;
}

}  // namespace ferry::converters
