#include "plan/options.h"

#include <fmt/format.h>

#include "core/text.h"
#include "plan/quantize_plan.h"

namespace ferry::plan {
namespace {

using graph::EmbeddingQuantization;
using graph::LinearQuantization;
using graph::ScaleMethod;

Failure wrong_scheme(const std::string& text, std::string_view what) {
  return fail(ErrorCode::kUsage, fmt::format("{}: {}", quoted(text), what));
}

constexpr std::string_view kGrouped = "8da4w-g";
constexpr int64_t kDefaultGroup = 32;

std::optional<int64_t> group_size(std::string_view text) {
  const std::optional<int64_t> number = whole_number(text);
  return number && *number >= 1 && *number <= INT32_MAX ? number : std::nullopt;
}

std::optional<LinearQuantization> linear_of(std::string_view text) {
  using Kind = LinearQuantization::Kind;
  if (text == "none") return LinearQuantization{};
  if (text == "8da4w") return LinearQuantization{Kind::k8da4w, kDefaultGroup};
  if (text == "8da8w") return LinearQuantization{Kind::k8da8w};
  if (text == "int8") return LinearQuantization{Kind::kInt8};
  if (text == "keep") return LinearQuantization{Kind::kKeep};
  if (!text.starts_with(kGrouped)) return std::nullopt;
  const auto group = group_size(text.substr(kGrouped.size()));
  if (!group) return std::nullopt;
  return LinearQuantization{Kind::k8da4w, *group};
}

Result<LinearQuantization> read_linear(const std::string& text) {
  const auto linear = linear_of(text);
  if (!linear) return wrong_scheme(text, "expected 8da4w, 8da4w-gN, 8da8w, int8, keep or none");
  // XNNPACK accepts groups of 4-bit codes only in multiples of 32.
  if (linear->kind == LinearQuantization::Kind::k8da4w && linear->group % 32 != 0) {
    return wrong_scheme(text, "the group must be a multiple of 32");
  }
  return *linear;
}

Result<EmbeddingQuantization> read_embedding(const std::string& text) {
  if (text == "none") return EmbeddingQuantization{};
  if (text == "8") return EmbeddingQuantization{8, 0};
  if (text == "4") return EmbeddingQuantization{4, kDefaultGroup};
  const auto group =
      text.starts_with("4,") ? group_size(std::string_view(text).substr(2)) : std::nullopt;
  if (group && *group % 2 == 0) return EmbeddingQuantization{4, *group};
  return wrong_scheme(text, "expected 4, 4,N with an even N, 8 or none");
}

}  // namespace

Result<graph::QuantizeRule> read_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return wrong_scheme(text, "expected PATTERN=SCHEME");
  }
  const auto scheme = FERRY_TRY(read_linear(text.substr(equals + 1)));
  return graph::QuantizeRule{text.substr(0, equals), scheme};
}

void describe_quantization(OptionVisitor& v, graph::QuantizeOptions& q) {
  v.text(
      {.name = "quantize",
       .value = "SCHEME",
       .help = "Weights of linear layers: 8da4w[-gN] (4 bits, groups of N, default 32) or 8da8w "
               "(8 bits), both with 8-bit activations, for runtimes with XNNPACK; int8 (8 bits, "
               "f32 activations); keep (the codes that a quantised checkpoint has); none (default)",
       .otherwise = "none",
       .outputs = kBundles,
       .place = 3},
      [&q](const std::string& text) -> Status {
        q.linears = FERRY_TRY(read_linear(text));
        return {};
      },
      [&q] { return std::vector{graph::name_of(q.linears)}; });
  v.text(
      {.name = "quantize-embedding",
       .value = "SCHEME",
       .help = "Rows of the embedding: 4[,N] (4 bits, groups of N, default 32), 8 or none "
               "(default)",
       .otherwise = "none",
       .outputs = kBundles,
       .place = 4},
      [&q](const std::string& text) -> Status {
        q.embeddings = FERRY_TRY(read_embedding(text));
        return {};
      },
      [&q] { return std::vector{graph::name_of(q.embeddings)}; });
  v.list(
      {.name = "quantize-rule",
       .help = "Another scheme for the linear weights that match: "
               "'layers.*.feed_forward.w2=8da8w'; may be repeated, the last match decides",
       .outputs = kBundles,
       .place = 5},
      [&q](const std::string& text) -> Status {
        q.rules.push_back(FERRY_TRY(read_rule(text)));
        return {};
      },
      [&q] {
        std::vector<std::string> texts;
        for (const graph::QuantizeRule& rule : q.rules) {
          texts.push_back(text_of(rule));
        }
        return texts;
      });
  v.words<ScaleMethod>(
      {.name = "quantize-method",
       .help = "How scales are chosen: by the least squared error after their rounding (default), "
               "or as the official exporter does",
       .place = q.quantizes() ? 6 : 0},
      q.method, {{{"bf16-first"}, ScaleMethod::kBf16First}, {{"hqq"}, ScaleMethod::kHqq}});
  // A manifest records the digest of the tokens instead of the file.
  v.value(
      {.name = "calibrate-weights",
       .value = "FILE",
       .help = "Choose the codes of linear layers for the least error of their outputs on a text: "
               "default (a text in the program), a text file, a file with the token ids of a "
               "sequence in each line, or a .jsonl file with a chat in each line",
       .outputs = kBundles,
       .place = 24},
      q.calibration);
}

}  // namespace ferry::plan
