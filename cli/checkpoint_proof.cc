#include "cli/checkpoint_proof.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "cli/convert_pipeline.h"
#include "converters/assemble.h"
#include "core/text.h"
#include "runner/decoder.h"
#include "runner/recorded_reference.h"

namespace ferry::cli {
namespace {

constexpr uint64_t kTile = uint64_t{1} << 20;

// A directory of our own that goes with the object.
class ScratchDirectory {
 public:
  static Result<ScratchDirectory> make() {
    std::error_code error;
    const std::filesystem::path base = std::filesystem::temp_directory_path(error);
    std::string path = (error ? std::filesystem::path("/tmp") : base) / "ferry-verify-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      return fail(ErrorCode::kIo, fmt::format("{}: cannot make a temporary directory", path));
    }
    return ScratchDirectory(std::move(path));
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The lengths decide tables and caches, so the bundle's own are kept.
Result<Conversion> plan_again(const Bundle& bundle, const std::string& source,
                              const std::string& config) {
  const Manifest& manifest = bundle.manifest();
  ConvertOptions options;
  options.source = source;
  options.config = config;
  options.dtype = WeightDType::kF32;
  options.context_length = manifest.context_length;
  options.prefill_length = manifest.prefill_length;
  options.all_logits = manifest.all_logits;
  options.allow_unmapped = manifest.allowed_unmapped;
  options.packed_layout = packed_layout_of(manifest.packed_layout);
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

// "'a.weight' + 2 more", the source keys of a weight.
std::string keys_of(const TensorExpr& expr, const TensorSource& source) {
  std::set<size_t> entries;
  for (const RowRun& run : expr.rows) entries.insert(run.entry);
  if (entries.empty()) return "no source";
  std::string text = quoted(source.entries()[*entries.begin()].name);
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

// Empty where `tensor` is exactly what the source gives.
Result<std::string> compare_tensor(const ManifestTensor& tensor, const Bundle& bundle,
                                   const StateDict& weights, const TensorSource& source) {
  const Weight* weight = weights.find(tensor.name);
  if (weight == nullptr) {
    return fmt::format("{}: the checkpoint's model has no such weight", quoted(tensor.name));
  }
  TensorExpr expr = weight->expr;
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
  const StateDict& weights = conversion.parts.front().weights;
  std::vector<Result<std::string>> results(tensors.size(), std::string());
  context.pool().parallel_for(tensors.size(), [&](size_t i) {
    results[i] = compare_tensor(tensors[i], bundle, weights, *conversion.source);
  });
  TensorProof proof;
  std::set<std::string> stored;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string line = FERRY_TRY(std::move(results[i]));
    if (!line.empty()) proof.different.push_back(std::move(line));
    proof.tensors += 1;
    proof.bytes += tensors[i].bytes;
    stored.insert(tensors[i].name);
  }
  for (const Weight& weight : weights.weights()) {
    if (stored.contains(weight.name)) continue;
    proof.different.push_back(
        fmt::format("{}: made by {}, but not in the bundle", quoted(weight.name),
                    keys_of(weight.expr, *conversion.source)));
  }
  FERRY_CHECK(conversion.source->check_unchanged());
  return proof;
}

// Writes the f32 bundle, runs it, and keeps what it computed.
Result<std::unique_ptr<TensorSource>> run_f32_path(Context& context, const Conversion& conversion,
                                                   const std::string& name) {
  const ScratchDirectory scratch = FERRY_TRY(ScratchDirectory::make());
  const std::string directory = scratch.path() + "/f32";
  FERRY_TRY(conversion.plan->write(directory, /*overwrite=*/false, context.pool(),
                                   context.progress("writing the f32 path")));
  const Bundle bundle = FERRY_TRY(Bundle::open(directory, /*check_digests=*/false, context.pool()));
  Decoder decoder = FERRY_TRY(Decoder::load(bundle, context.pool(), {}));
  return record_reference(decoder, bundle.manifest(), probing_prompts(bundle.manifest()), name);
}

}  // namespace

Result<CheckpointProof> prove_from_checkpoint(Context& context, const Bundle& bundle,
                                              const std::string& source,
                                              const std::string& config) {
  const Conversion conversion = FERRY_TRY(plan_again(bundle, source, config));
  CheckpointProof proof;
  proof.tensors = FERRY_TRY(compare_tensors(context, bundle, conversion));
  proof.reference = FERRY_TRY(run_f32_path(context, conversion, source + " in f32"));
  return proof;
}

}  // namespace ferry::cli
