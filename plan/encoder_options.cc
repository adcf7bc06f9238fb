#include "plan/encoder_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/longrope.h"
#include "plan/options.h"

namespace ferry::plan {
namespace {

using converters::ProgramStyle;

constexpr int64_t kDefaultTextLength = 2048;

}  // namespace

Status settle_style(const ConvertOptions& options, const std::string& config_name,
                    converters::ModelConfig& config) {
  const ProgramStyle otherwise = config.two_way ? ProgramStyle::kEncoder : ProgramStyle::kStateful;
  config.is_encoder = options.style.value_or(otherwise) == ProgramStyle::kEncoder;
  if (config.two_way && !config.is_encoder) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: tokens attend to later ones too (is_causal, "
                    "use_bidirectional_attention), which programs of style encoder alone do",
                    config_name));
  }
  if (!config.is_encoder) return {};
  if (config.vision_family != nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("--program encoder: {} takes images", config.model_type));
  }
  if (std::ranges::all_of(config.layer_types, converters::is_attention)) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("--program encoder: {} has layers without attention", config.model_type));
}

int64_t default_text_length(const converters::ModelConfig& config) {
  const int64_t stated = config.sentence ? config.sentence->max_tokens.value_or(kDefaultTextLength)
                                         : kDefaultTextLength;
  return std::min({config.max_positions, stated, kDefaultTextLength});
}

Result<converters::BuildOptions> settle_encoder(const ConvertOptions& options,
                                                const converters::ModelConfig& config,
                                                converters::BuildOptions build) {
  FERRY_RETURN_IF_ERROR(check_encoder_options(options));
  build.style = ProgramStyle::kEncoder;
  build.prefill_length = build.context_length;
  const auto limit = converters::longrope_switch(config.rope, build);
  if (!limit) return build;
  return fail(ErrorCode::kUsage,
              fmt::format("--program encoder: sequences of more than {} tokens have other RoPE "
                          "factors (longrope), which an encoder cannot switch; give "
                          "--context-length {} or less",
                          *limit, *limit));
}

}  // namespace ferry::plan
