#include <fmt/format.h>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters {

// Maps the names in transformers' activations.py to the operators that compute them.
Result<Activation> read_activation(const JsonFields& fields, std::string_view key,
                                   std::string_view otherwise) {
  constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_python", Activation::kGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_python_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_accurate", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kRelu2},
  };
  const std::string name = FERRY_TRY(fields.text(key)).value_or(std::string(otherwise));
  for (const auto& [known, activation] : kNames) {
    if (known == name) return activation;
  }
  return fields.error(
      ErrorCode::kUnsupported, key,
      fmt::format("is {}; silu, gelu, gelu_pytorch_tanh, relu and relu2 are supported",
                  quoted(name)));
}

}  // namespace ferry::converters
