#include "dialects/keras/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/text.h"
#include "dialects/keras/backbones.h"

namespace ferry::converters {
namespace {

constexpr std::string_view kConfigKey = "config";

const std::vector<KerasBackbone>& backbones() {
  static const std::vector<KerasBackbone> table = [] {
    std::vector<KerasBackbone> all;
    for (const auto part :
         {keras_gemmas(), keras_llamas(), keras_moes(), keras_hybrids(), keras_gpts()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return table;
}

Result<const KerasBackbone*> find_backbone(const JsonFields& outer) {
  const auto class_name = FERRY_TRY(outer.text("class_name"));
  if (!class_name) return outer.bad("class_name", "is missing");
  const std::string registered = FERRY_TRY(outer.text("registered_name")).value_or(*class_name);
  for (const KerasBackbone& backbone : backbones()) {
    if (*class_name != backbone.class_name) continue;
    // Another package may register a class of the same name, which is another model.
    for (const std::string_view package : {"", "keras_hub>", "keras_nlp>"}) {
      if (registered == std::string(package) + *class_name) return &backbone;
    }
    return unsupported_keras(outer, "registered_name",
                             fmt::format("is {}, not a class of KerasHub", quoted(registered)));
  }
  return unsupported_keras(outer, "class_name",
                           fmt::format("is {}, which is not supported; supported are {}",
                                       quoted(*class_name), fmt::join(keras_classes(), ", ")));
}

// These options are no numbers of the model, or (dropout) have no effect after training.
constexpr std::string_view kInertOptions[] = {"name", "trainable", "dtype", "dropout"};

// An option that the translator has not read may change the output, unless it is off.
Status refuse_unknown_options(const nlohmann::json& config, const KerasBackbone& backbone,
                              const JsonFields& fields, const KeyLog& read) {
  for (const auto& [key, value] : config.items()) {
    const bool known = read.contains(fmt::format("{}.{}", kConfigKey, key)) ||
                       std::ranges::find(kInertOptions, key) != std::end(kInertOptions) ||
                       std::ranges::find(backbone.inert, key) != backbone.inert.end();
    if (known || value.is_null() || value == false) continue;
    return unsupported_keras(
        fields, key,
        fmt::format("is not known for {}, and may change the output", backbone.class_name));
  }
  return {};
}

// Quantised dtype policies have names such as "int8_from_float32". The option holds one policy, or
// a map of policies by layer.
Status refuse_keras_quantization(const JsonFields& config) {
  const nlohmann::json* dtype = config.find("dtype");
  if (dtype == nullptr) return {};
  const std::string text = dtype->dump();
  if (text.find("_from_") == std::string::npos && text.find("Quantized") == std::string::npos) {
    return {};
  }
  return unsupported_keras(config, "dtype", "is quantised: only float presets are supported");
}

}  // namespace

std::vector<std::string_view> keras_classes() {
  std::vector<std::string_view> names;
  for (const KerasBackbone& backbone : backbones()) names.push_back(backbone.class_name);
  return names;
}

bool is_keras_config(const std::string& config_json) {
  const Result<nlohmann::json> document = parse_json(config_json, "config");
  return document && document->is_object() && !document->contains("model_type") &&
         document->contains("class_name") && document->contains(kConfigKey);
}

Result<std::string> hugging_face_config_of_keras(const std::string& config_json, bool own_head,
                                                 const std::string& name) {
  const nlohmann::json document = FERRY_TRY(parse_json(config_json, name));
  if (!document.is_object()) return bad_input(name + ": not a JSON object");
  JsonFields outer(document, name, "");
  KeyLog read;
  outer.record_in(read);
  const KerasBackbone* backbone = FERRY_TRY(find_backbone(outer));
  const auto config = FERRY_TRY(outer.object(kConfigKey));
  if (!config) return outer.bad(kConfigKey, "is missing");
  FERRY_RETURN_IF_ERROR(refuse_keras_quantization(*config));
  const KerasJson made = FERRY_TRY(backbone->translate(*config, own_head));
  FERRY_RETURN_IF_ERROR(refuse_unknown_options(document[kConfigKey], *backbone, *config, read));
  return made.dump(2) + "\n";
}

}  // namespace ferry::converters
