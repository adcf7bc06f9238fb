#include "proof/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "converters/assemble.h"
#include "converters/blocks/static_ports.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "proof/checkpoint_execution.h"

namespace ferry::proof {
namespace {

constexpr int64_t kDefaultPrompts = 4;
constexpr int64_t kDefaultTokens = 64;
// An encoding is wider than the observed range by this factor, because other prompts have larger
// values. 16 bits have codes to spare.
constexpr double kMarginU16 = 2.0, kMarginU8 = 1.1;

// The least and the greatest value of a tensor. The range contains 0.
struct Range {
  float least = 0, greatest = 0;
  void add(std::span<const float> values) {
    for (const float value : values) {
      least = std::min(least, value);
      greatest = std::max(greatest, value);
    }
  }
  // The scale is an f32, as programs use it.
  Encoding encoding(DType dtype) const {
    const auto codes = static_cast<double>(largest_code(dtype));
    const double margin = dtype == DType::kU16 ? kMarginU16 : kMarginU8;
    const double width = margin * (static_cast<double>(greatest) - static_cast<double>(least));
    const double scale = std::max(width / codes, double{std::numeric_limits<float>::min()} * codes);
    Encoding encoding;
    encoding.scale = static_cast<float>(scale);
    const double zero = std::nearbyint(-margin * static_cast<double>(least) / encoding.scale);
    encoding.zero_point = static_cast<int64_t>(std::clamp(zero, 0.0, codes));
    return encoding;
  }
};

// Any odd constants would do. They are fixed, so that every conversion of a checkpoint gives equal
// bytes.
Prompts default_prompts(int64_t vocab_size, int64_t context_length) {
  Prompts prompts(kDefaultPrompts);
  uint64_t state = 0x9e3779b97f4a7c15;
  for (std::vector<int64_t>& prompt : prompts) {
    prompt.resize(static_cast<size_t>(std::min(kDefaultTokens, context_length)));
    for (int64_t& id : prompt) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      id = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab_size));
    }
  }
  return prompts;
}

Status check_prompts(const Prompts& prompts, int64_t vocab_size, int64_t context_length) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (std::ssize(prompts[i]) > context_length) {
      return fail(ErrorCode::kUsage,
                  fmt::format("calibration prompt {} has {} tokens, the context {}", i + 1,
                              prompts[i].size(), context_length));
    }
    for (const int64_t id : prompts[i]) {
      if (id >= 0 && id < vocab_size) continue;
      return fail(ErrorCode::kUsage, fmt::format("calibration prompt {}: token {} is outside of "
                                                 "the vocabulary of {}",
                                                 i + 1, id, vocab_size));
    }
  }
  return {};
}

// Plans the model in f32 with caches inside the program, for calls of `call_length` tokens.
Result<plan::Conversion> plan_f32(const plan::ConvertOptions& options,
                                  std::optional<int64_t> call_length, bool is_encoder = false) {
  plan::ConvertOptions plain;
  plain.source = options.source;
  plain.config = options.config;
  plain.lora = options.lora;
  plain.dtype = graph::WeightDType::kF32;
  plain.context_length = options.context_length;
  if (!is_encoder) {
    plain.prefill_length = call_length;
    plain.all_logits = true;
  }
  plain.rotation = options.rotation;  // the rotation changes the range of keys
  plain.allow_unmapped = options.allow_unmapped;
  plain.packed_layout = options.packed_layout;
  plan::Conversion conversion = FERRY_TRY(plan::plan_conversion(plain));
  if (conversion.mapped.problems.empty()) return conversion;
  return Failure(converters::problems_error(conversion.mapped.problems, *conversion.mapped.source));
}

// Returns the ranges of all recorded tensors, by tensor name without the prompt.
Result<std::map<std::string, Range>> ranges_of(const TensorSource& recorded) {
  std::map<std::string, Range> ranges;
  for (size_t i = 0; i < recorded.entries().size(); ++i) {
    const TensorEntry& entry = recorded.entries()[i];
    if (entry.dtype != DType::kF32) continue;
    std::vector<float> values(entry.bytes / sizeof(float));
    FERRY_RETURN_IF_ERROR(recorded.read(i, 0, std::as_writable_bytes(std::span(values))));
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
      return bad_input(fmt::format("{}: calibration gives values that are not finite (tensor {})",
                                   recorded.path(), quoted(entry.name)));
    }
    ranges[entry.name.substr(entry.name.find('.') + 1)].add(values);
  }
  return ranges;
}

std::vector<RecordedPrompt> recorded_prompts(const Prompts& prompts) {
  std::vector<RecordedPrompt> recorded;
  for (const std::vector<int64_t>& tokens : prompts) {
    if (tokens.empty()) continue;
    RecordedPrompt& prompt = recorded.emplace_back();
    prompt.name = std::to_string(recorded.size() - 1);
    prompt.tokens = tokens;
  }
  return recorded;
}

// The ranges of the model's tensors over all prompts.
struct Ranges {
  std::map<std::string, Range> of;
  std::vector<int64_t> layers;  // layers that have attention
};

Result<Ranges> measure(const plan::ConvertOptions& options, const Prompts& prompts,
                       ThreadPool& pool) {
  const plan::Conversion plan = FERRY_TRY(plan_f32(options, {}));
  const converters::ModelConfig& config = plan.mapped.config;
  const int64_t context = plan.plan->manifest().context_length;
  const Prompts used = prompts.empty() ? default_prompts(config.vocab_size, context) : prompts;
  FERRY_RETURN_IF_ERROR(check_prompts(used, config.vocab_size, context));
  const plan::Conversion layers = FERRY_TRY(plan_calibration(options, used));
  const std::vector<RecordedPrompt> recorded = recorded_prompts(used);
  const ExecutionOutputs path = FERRY_TRY(execute_checkpoint(
      layers, recorded, layers.mapped.source->path(), pool, {.in_several_calls = false}));
  Ranges ranges;
  ranges.of = FERRY_TRY(ranges_of(*path.one_call));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool caches = converters::has_cache(config, layer);
    if (caches) ranges.layers.push_back(layer);
  }
  return ranges;
}

// `kind` is "key" or "value". Latent attention has one cache, whose rows are keys and values.
std::vector<Encoding> cache_encodings(const Ranges& ranges, const char* kind, DType dtype) {
  std::vector<Encoding> encodings;
  for (const int64_t layer : ranges.layers) {
    const auto own = ranges.of.find(fmt::format("cache.{}.{}", layer, kind));
    const Range& range =
        own != ranges.of.end() ? own->second : ranges.of.at(fmt::format("cache.{}.key", layer));
    encodings.push_back(range.encoding(dtype));
  }
  return encodings;
}

}  // namespace

Result<plan::Conversion> plan_calibration(const plan::ConvertOptions& options,
                                          const Prompts& prompts, bool is_encoder) {
  size_t longest = 1;
  for (const std::vector<int64_t>& prompt : prompts) longest = std::max(longest, prompt.size());
  plan::Conversion conversion =
      FERRY_TRY(plan_f32(options, static_cast<int64_t>(longest), is_encoder));
  for (plan::ConvertedComponent& component : conversion.components) {
    if (component.role != kTextDecoderRole && component.role != kTextEncoderRole) continue;
    component.parts = FERRY_TRY(graph::shard(
        component.parts.front(), static_cast<int32_t>(conversion.mapped.config.num_layers)));
  }
  return conversion;
}

bool needs_calibration(const plan::ConvertOptions& options) {
  const converters::PortTypes& ports = options.ports;
  return (is_encoded(ports.cache) && ports.keys.empty()) ||
         (is_encoded(ports.logits) && ports.logits_encoding == Encoding{});
}

Status calibrate(plan::ConvertOptions& options, const Prompts& prompts, ThreadPool& pool) {
  converters::PortTypes& ports = options.ports;
  if (!is_encoded(ports.cache) && !is_encoded(ports.logits)) return {};
  Ranges ranges = FERRY_TRY(measure(options, prompts, pool));
  if (is_encoded(ports.logits)) ports.logits_encoding = ranges.of["logits"].encoding(ports.logits);
  ports.keys.clear();
  ports.values.clear();
  if (!is_encoded(ports.cache)) return {};
  ports.keys = cache_encodings(ranges, "key", ports.cache);
  ports.values = cache_encodings(ranges, "value", ports.cache);
  return {};
}

Status calibrate_prefill(plan::ConvertOptions& options, const Prompts& prompts, ThreadPool& pool) {
  converters::PortTypes& ports = options.ports;
  if (!is_encoded(ports.cache)) {
    return fail_field(ErrorCode::kUsage, "calibrate_prefill", ": the KV cache is not u8 or u16");
  }
  Ranges ranges = FERRY_TRY(measure(options, prompts, pool));
  ports.prefill_keys = cache_encodings(ranges, "key", ports.cache);
  ports.prefill_values = cache_encodings(ranges, "value", ports.cache);
  if (ports.prefill_keys == ports.keys && ports.prefill_values == ports.values) {
    ports.prefill_keys.clear();
    ports.prefill_values.clear();
  }
  return {};
}

}  // namespace ferry::proof
