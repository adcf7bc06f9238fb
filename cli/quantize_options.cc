#include "cli/quantize_options.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

#include "core/text.h"

namespace ferry::cli {
namespace {

using graph::EmbeddingQuantization;
using graph::LinearQuantization;
using Kind = LinearQuantization::Kind;

constexpr std::string_view kGrouped = "8da4w-g";
constexpr int64_t kDefaultGroup = 32;

std::optional<int64_t> whole_number(std::string_view text) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

std::optional<LinearQuantization> linear_of(std::string_view text) {
  if (text == "none") return LinearQuantization{};
  if (text == "8da4w") return LinearQuantization{Kind::k8da4w, kDefaultGroup};
  if (text == "8da8w") return LinearQuantization{Kind::k8da8w};
  if (text == "int8") return LinearQuantization{Kind::kInt8};
  if (!text.starts_with(kGrouped)) return std::nullopt;
  const auto group = whole_number(text.substr(kGrouped.size()));
  if (!group) return std::nullopt;
  return LinearQuantization{Kind::k8da4w, *group};
}

Result<LinearQuantization> parse_linear(const std::string& option, std::string_view text) {
  const auto linear = linear_of(text);
  if (!linear) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{} {}: expected 8da4w, 8da4w-gN, 8da8w, int8 or none", option, quoted(text)));
  }
  // XNNPACK's rule for groups of 4-bit codes.
  if (linear->kind == Kind::k8da4w && linear->group % 32 != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} {}: the group must be a multiple of 32", option, quoted(text)));
  }
  return *linear;
}

Result<EmbeddingQuantization> parse_embedding(std::string_view text) {
  if (text == "none") return EmbeddingQuantization{};
  if (text == "8") return EmbeddingQuantization{8, 0};
  if (text == "4") return EmbeddingQuantization{4, kDefaultGroup};
  const auto group = text.starts_with("4,") ? whole_number(text.substr(2)) : std::nullopt;
  if (!group || *group % 2 != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("--quantize-embedding {}: expected 4, 4,N with an even N, 8 or none",
                            quoted(text)));
  }
  return EmbeddingQuantization{4, *group};
}

Result<graph::QuantizeRule> parse_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("--quantize-rule {}: expected PATTERN=SCHEME", quoted(text)));
  }
  const auto linear =
      FERRY_TRY(parse_linear("--quantize-rule PATTERN=SCHEME", text.substr(equals + 1)));
  return graph::QuantizeRule{text.substr(0, equals), linear};
}

}  // namespace

void add_quantize_options(Verb& verb, QuantizeTexts& texts) {
  verb.option("--quantize SCHEME", texts.linears,
              "Weights of linear layers: 8da4w[-gN] (4 bits, groups of N, default 32) or 8da8w "
              "(8 bits), both with 8-bit activations, for runtimes with XNNPACK; int8 (8 bits, f32 "
              "activations); none (default)")
      .option("--quantize-embedding SCHEME", texts.embeddings,
              "Rows of the embedding: 4[,N] (4 bits, groups of N, default 32), 8 or none (default)")
      .option("--quantize-rule", texts.rules,
              "Another scheme for the linear weights that match: 'layers.*.feed_forward.w2=8da8w'; "
              "may be repeated, the last match decides")
      .choice("--quantize-method", texts.method, {"bf16-first", "hqq"},
              "How scales are chosen: by the least squared error after their rounding (default), "
              "or as the official exporter does");
}

Result<graph::QuantizeOptions> parse_quantize_options(const QuantizeTexts& texts) {
  graph::QuantizeOptions options;
  options.linears = FERRY_TRY(parse_linear("--quantize", texts.linears));
  options.embeddings = FERRY_TRY(parse_embedding(texts.embeddings));
  for (const std::string& rule : texts.rules) options.rules.push_back(FERRY_TRY(parse_rule(rule)));
  if (texts.method == "hqq") options.method = graph::ScaleMethod::kHqq;
  if (!texts.method.empty() && !options.quantizes()) {
    return fail(ErrorCode::kUsage, "--quantize-method: nothing is quantised; give --quantize");
  }
  return options;
}

}  // namespace ferry::cli
