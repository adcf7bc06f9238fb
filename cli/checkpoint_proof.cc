#include "cli/checkpoint_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "cli/convert_pipeline.h"
#include "cli/f32_path.h"
#include "converters/assemble.h"
#include "core/text.h"
#include "runner/decoder.h"
#include "runner/rounding_proof.h"
#include "runner/verify.h"

namespace ferry::cli {
namespace {

constexpr uint64_t kTile = uint64_t{1} << 20;
constexpr int64_t kGreedyTokens = 8;

// Which buffers the programs have contents of.
BufferInit buffer_mode(const Manifest& manifest) {
  size_t stored = 0, buffers = 0;
  for (const ManifestProgram& program : manifest.programs) {
    for (const ManifestBuffer& buffer : program.buffers) {
      buffers += 1;
      stored += buffer.init == "stored" ? 1 : 0;
    }
  }
  if (stored == 0) return BufferInit::kNone;
  return stored == buffers ? BufferInit::kAll : BufferInit::kState;
}

// The options that the bundle was made with, as far as they decide programs.
ConvertOptions options_of(const Bundle& bundle, const std::string& source,
                          const std::string& config) {
  const Manifest& manifest = bundle.manifest();
  ConvertOptions options;
  options.source = source;
  options.config = config;
  options.shards = static_cast<int32_t>(manifest.programs.size());
  options.context_length = manifest.context_length;
  options.prefill_length = manifest.prefill_length;
  options.all_logits = manifest.all_logits;
  options.allow_unmapped = manifest.allowed_unmapped;
  options.packed_layout = packed_layout_of(manifest.packed_layout);
  options.buffers.mode = buffer_mode(manifest);
  return options;
}

// A checkpoint whose keys do not fit, or that holds another model, is an error.
Result<Conversion> plan_for(const Bundle& bundle, const ConvertOptions& options) {
  const Manifest& manifest = bundle.manifest();
  const std::string& source = options.source;
  Conversion conversion = FERRY_TRY(plan_conversion(options));
  if (!conversion.problems.empty()) {
    return tl::unexpected<Error>(problems_error(conversion.problems, *conversion.source));
  }
  if (conversion.config.model_type != manifest.model_type ||
      conversion.config.vocab_size != manifest.vocab_size ||
      conversion.config.hidden_size != manifest.hidden_size ||
      conversion.config.num_layers != manifest.num_layers) {
    return bad_input(fmt::format(
        "{}: is another model than the bundle's: {} with {} layers, hidden {}, vocabulary {}; the "
        "bundle is {} with {}, {}, {}",
        source, quoted(conversion.config.model_type), conversion.config.num_layers,
        conversion.config.hidden_size, conversion.config.vocab_size, quoted(manifest.model_type),
        manifest.num_layers, manifest.hidden_size, manifest.vocab_size));
  }
  return conversion;
}

// Whether the plan stores every tensor in the dtype that the bundle has it in.
bool same_dtypes(const Conversion& conversion, const Manifest& manifest) {
  std::map<std::string, DType> planned;
  for (const ManifestTensor& tensor : conversion.plan->manifest().tensors) {
    planned[tensor.name] = tensor.dtype;
  }
  return std::ranges::all_of(manifest.tensors, [&](const ManifestTensor& tensor) {
    const auto found = planned.find(tensor.name);
    return found == planned.end() || found->second == tensor.dtype;
  });
}

// The conversion that the bundle should be the result of. `--dtype keep` and a dtype by name give
// the same for most checkpoints; the one that fits the bundle is taken.
Result<Conversion> plan_again(const Bundle& bundle, ConvertOptions options) {
  options.dtype = WeightDType::kKeep;
  Conversion kept = FERRY_TRY(plan_for(bundle, options));
  if (same_dtypes(kept, bundle.manifest())) return kept;
  const std::string& dtype = bundle.manifest().weight_dtype;
  options.dtype = dtype == "f16"    ? WeightDType::kF16
                  : dtype == "bf16" ? WeightDType::kBF16
                                    : WeightDType::kF32;
  return plan_for(bundle, options);
}

// "'a.weight' + 2 more", the source keys of a weight.
std::string keys_of(const TensorExpr& expr, const TensorSource& source) {
  std::set<size_t> entries;
  for (const RowRun& run : expr.rows) entries.insert(run.entry);
  if (entries.empty()) return "no source";
  std::string text = quoted(source.entries()[*entries.begin()].stored_name());
  if (entries.size() > 1) text += fmt::format(" and {} more", entries.size() - 1);
  return text;
}

// The first byte that differs, if any.
Result<std::optional<uint64_t>> first_difference(const TensorExpr& expr, const TensorSource& source,
                                                 std::span<const std::byte> stored) {
  std::vector<std::byte> tile(std::min<uint64_t>(kTile, stored.size()));
  for (uint64_t at = 0; at < stored.size(); at += kTile) {
    const std::span<const std::byte> have =
        stored.subspan(at, std::min<uint64_t>(kTile, stored.size() - at));
    const std::span<std::byte> want = std::span(tile).first(have.size());
    FERRY_CHECK(materialize(expr, source, at, want));
    const auto differs = std::ranges::mismatch(have, want).in1;
    if (differs != have.end()) return at + static_cast<uint64_t>(differs - have.begin());
  }
  return std::nullopt;
}

using WeightMap = std::map<std::string, const Weight*>;

// Empty where `tensor` is exactly what the source gives.
Result<std::string> compare_tensor(const ManifestTensor& tensor, const Bundle& bundle,
                                   const WeightMap& weights, const TensorSource& source) {
  const auto found = weights.find(tensor.name);
  if (found == weights.end()) {
    return fmt::format("{}: the checkpoint's model has no such weight", quoted(tensor.name));
  }
  TensorExpr expr = found->second->expr;
  expr.dtype = tensor.dtype;
  const std::string keys = keys_of(expr, source);
  if (expr.shape != tensor.shape || expr.bytes() != tensor.bytes) {
    return fmt::format("{}: shape {} in the bundle, {} from {}", quoted(tensor.name),
                       to_string(tensor.shape), to_string(expr.shape), keys);
  }
  const std::span<const std::byte> file = bundle.data().at(tensor.file).file.bytes();
  const auto at =
      FERRY_TRY(first_difference(expr, source, file.subspan(tensor.offset, tensor.bytes)));
  if (!at) return std::string();
  return fmt::format("{}: differs from {} at byte {} of {}", quoted(tensor.name), keys, *at,
                     tensor.bytes);
}

Result<TensorProof> compare_tensors(Context& context, const Bundle& bundle,
                                    const Conversion& conversion) {
  const std::vector<ManifestTensor>& tensors = bundle.manifest().tensors;
  WeightMap weights;
  for (const Model& part : conversion.parts) {
    for (const Weight& weight : part.weights.weights()) weights.emplace(weight.name, &weight);
  }
  std::vector<Result<std::string>> results(tensors.size(), std::string());
  context.pool().parallel_for(tensors.size(), [&](size_t i) {
    results[i] = compare_tensor(tensors[i], bundle, weights, *conversion.source);
  });
  TensorProof proof;
  std::set<std::string> stored;
  std::set<std::pair<std::string, uint64_t>> segments;  // tied weights share one
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string line = FERRY_TRY(std::move(results[i]));
    if (!line.empty()) proof.different.push_back(std::move(line));
    proof.tensors += 1;
    const bool fresh = segments.emplace(tensors[i].file, tensors[i].offset).second;
    proof.bytes += fresh ? tensors[i].bytes : 0;
    stored.insert(tensors[i].name);
  }
  for (const auto& [name, weight] : weights) {
    if (stored.contains(name)) continue;
    proof.different.push_back(fmt::format("{}: made by {}, but not in the bundle", quoted(name),
                                          keys_of(weight->expr, *conversion.source)));
  }
  FERRY_CHECK(conversion.source->check_unchanged());
  return proof;
}

// Prompts that any model of this vocabulary and context can run: pseudo-random ids, always the same
// for the same sizes.
std::vector<RecordedPrompt> probing_prompts(const Manifest& manifest) {
  constexpr int64_t kPromptTokens = 24;
  const int64_t longest = std::max<int64_t>(1, manifest.context_length - kGreedyTokens + 1);
  std::vector<RecordedPrompt> prompts;
  uint64_t state = 0x9e3779b97f4a7c15;  // any odd constant; fixed, so that reports repeat
  for (const int64_t length : {std::min(longest, kPromptTokens), int64_t{1}}) {
    RecordedPrompt& prompt = prompts.emplace_back();
    prompt.name = std::to_string(prompts.size() - 1);
    prompt.tokens.resize(static_cast<size_t>(length));
    for (int64_t& id : prompt.tokens) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      id = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(manifest.vocab_size));
    }
  }
  return prompts;
}

// The bundle's own greedy continuation: the f32 path is asked what it thinks of it.
Status continue_prompts(Decoder& decoder, const Manifest& manifest,
                        std::vector<RecordedPrompt>& prompts) {
  const auto vocab = static_cast<size_t>(manifest.vocab_size);
  for (RecordedPrompt& prompt : prompts) {
    const auto tokens = static_cast<int64_t>(prompt.tokens.size());
    const int64_t room = std::min(kGreedyTokens, manifest.context_length - tokens + 1);
    decoder.restart();
    std::vector<float> row = FERRY_TRY(decoder.forward(prompt.tokens));
    while (true) {
      if (row.size() < vocab) return bad_input("the bundle's logits are not [rows, vocabulary]");
      const std::span<const float> last = std::span(row).last(vocab);
      prompt.continuation.push_back(static_cast<int64_t>(argmax(last)));
      if (static_cast<int64_t>(prompt.continuation.size()) >= room) break;
      row = FERRY_TRY(decoder.forward({&prompt.continuation.back(), 1}));
    }
  }
  return {};
}

Result<F32Outputs> compute_f32_path(Context& context, ConvertOptions options, const Bundle& bundle,
                                    const std::vector<RecordedPrompt>& prompts,
                                    const std::string& name) {
  size_t longest = 1;
  for (const RecordedPrompt& prompt : prompts) {
    longest = std::max(longest, prompt.tokens.size() + prompt.continuation.size());
  }
  options.dtype = WeightDType::kF32;
  options.shards = static_cast<int32_t>(bundle.manifest().num_layers);
  options.all_logits = true;
  options.prefill_length =
      std::min(static_cast<int64_t>(longest), bundle.manifest().context_length);
  options.buffers = {};
  const Conversion conversion = FERRY_TRY(plan_for(bundle, options));
  return run_f32_path(conversion, prompts, name, context.pool());
}

// The first tensor of the f32 path with a value that is NaN or infinite; empty if there is none.
Result<std::string> not_finite(const TensorSource& path) {
  for (size_t i = 0; i < path.entries().size(); ++i) {
    const TensorEntry& entry = path.entries()[i];
    if (entry.dtype != DType::kF32) continue;
    std::vector<float> values(entry.bytes / sizeof(float));
    FERRY_CHECK(path.read(i, 0, std::as_writable_bytes(std::span(values))));
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) return entry.name;
  }
  return std::string();
}

}  // namespace

Result<CheckpointProof> prove_from_checkpoint(Context& context, const Bundle& bundle,
                                              const std::string& source, const std::string& config,
                                              const Reference* reference,
                                              std::optional<double> tolerance) {
  const Manifest& manifest = bundle.manifest();
  const ConvertOptions options = options_of(bundle, source, config);
  CheckpointProof proof;
  {
    const Conversion conversion = FERRY_TRY(plan_again(bundle, options));
    proof.tensors = FERRY_TRY(compare_tensors(context, bundle, conversion));
    proof.programs = compare_programs(bundle, *conversion.plan);
  }
  Decoder decoder = FERRY_TRY(Decoder::load(bundle, context.pool(), {}));
  std::vector<RecordedPrompt> prompts;
  if (reference != nullptr) {
    prompts = FERRY_TRY(prompts_of(*reference, manifest));
  } else {
    prompts = probing_prompts(manifest);
    FERRY_CHECK(continue_prompts(decoder, manifest, prompts));
  }
  const std::string name = source + " in f32";
  const F32Outputs path = FERRY_TRY(compute_f32_path(context, options, bundle, prompts, name));
  if (const std::string tensor = FERRY_TRY(not_finite(*path.one_call)); !tensor.empty()) {
    proof.problem =
        fmt::format("{}: computes values that are not finite (tensor {})", name, quoted(tensor));
    return proof;
  }
  const Reference recorded = FERRY_TRY(Reference::open(*path.one_call));
  if (reference != nullptr) {
    const ParityBounds bounds = f32_bounds(bundle);
    proof.f32_path = FERRY_TRY(compare_references(recorded, *reference, bounds));
    // The several calls are reported where only they are wrong.
    const Reference again = FERRY_TRY(Reference::open(*path.several_calls));
    ParityReport several = FERRY_TRY(compare_references(again, *reference, bounds));
    if (proof.f32_path->parity && !several.parity) proof.f32_path = std::move(several);
  }
  proof.outputs = FERRY_TRY(verify(decoder, manifest, recorded, bounds_of(bundle, tolerance)));
  return proof;
}

}  // namespace ferry::cli
