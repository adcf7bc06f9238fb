#include "conversion/adapters.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/adapter_input.h"
#include "checkpoint/checkpoint_input.h"
#include "converters/lora/adapter_tensors.h"
#include "converters/lora/factors.h"
#include "core/checked.h"
#include "core/derived_source.h"
#include "core/program_interface.h"
#include "core/sha256.h"
#include "core/text.h"
#include "plan/bundle_options.h"

namespace ferry::conversion {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";

std::vector<converters::ModelWeight> weights_of(const packer::Manifest& manifest) {
  std::vector<converters::ModelWeight> weights;
  for (const packer::ManifestTensor& tensor : manifest.tensors) {
    if (tensor.output.empty()) weights.push_back({tensor.name, tensor.shape});
  }
  return weights;
}

Result<converters::ModelConfig> config_of(const packer::Bundle& bundle) {
  if (!bundle.has_text(kConfig)) {
    return bad_input(fmt::format("{}: the bundle has no {}", printable(bundle.path()), kConfig));
  }
  const std::string text = FERRY_TRY(bundle.text(kConfig, kMaxConfigBytes));
  const std::string generation = bundle.has_text(kGenerationConfig)
                                     ? FERRY_TRY(bundle.text(kGenerationConfig, kMaxConfigBytes))
                                     : std::string();
  converters::ModelConfig config = FERRY_TRY(converters::parse_model_config(
      text, generation, bundle.path() + "/" + kConfig, nullptr, converters::all_families(),
      checkpoint::inputs_of(bundle.manifest())));
  config.is_encoder = bundle.manifest().program_style == kEncoderStyle;
  return config;
}

// The bytes of an entry in another dtype; nullopt if they would be rounded.
Result<std::optional<std::vector<std::byte>>> bytes_as(const TensorSource& source, size_t entry,
                                                       DType dtype) {
  using Bytes = std::optional<std::vector<std::byte>>;
  const int64_t count = checked_numel(source.entries()[entry].shape).value_or(0);
  std::vector<float> values(static_cast<size_t>(count)), again(values.size());
  FERRY_RETURN_IF_ERROR(read_floats(source, entry, 0, values));
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  from_f32(dtype, values.data(), bytes.data(), values.size());
  to_f32(dtype, bytes.data(), again.data(), again.size());
  if (values != again) return Bytes();
  return Bytes(std::move(bytes));
}

// Whether the checkpoint had the values of an entry under this key, by the digests in the manifest.
Result<bool> is_of_base(const packer::Manifest& manifest, const TensorSource& source,
                        const std::string& key, size_t entry) {
  const bool is_head = key.starts_with("lm_head.");
  for (const packer::ManifestTensor& tensor : manifest.tensors) {
    for (const packer::ManifestTensor::Source& from : tensor.sources) {
      const bool tied = is_head && from.key.ends_with("embed_tokens.weight");
      if (from.key != key && !key.ends_with("." + from.key) && !tied) continue;
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const auto bytes = FERRY_TRY(bytes_as(source, entry, dtype));
        if (bytes && to_hex(sha256(*bytes)) == from.sha256) return true;
      }
    }
  }
  return false;
}

}  // namespace

Result<packer::Manifest> add_adapter(const packer::Bundle& bundle, const AdapterAddition& added,
                                     const packer::AdapterEdit& edit, ThreadPool& pool) {
  if (!packer::is_adapter_name(added.name)) {
    return fail_field(
        ErrorCode::kUsage, "name",
        fmt::format(" {}: letters, digits, '-', '_' and '.', at most 64", quoted(added.name)));
  }
  const packer::Manifest& manifest = bundle.manifest();
  const graph::FactorSlots slots = plan::factors_of(bundle);
  const converters::ModelConfig config = FERRY_TRY(config_of(bundle));
  const std::vector<converters::ModelWeight> weights = weights_of(manifest);
  checkpoint::AdapterFiles files = FERRY_TRY(checkpoint::open_adapter(added.path));
  DerivedSource source(std::make_unique<MemorySource>(added.path));
  const size_t first_file = source.files().size();
  const size_t first = FERRY_TRY(checkpoint::add_adapter(source, files));
  const auto sorted = FERRY_TRY(converters::AdapterTensors::sort(source, first, files.config));
  const converters::PlacedAdapter placed = FERRY_TRY(
      converters::place_adapter(sorted, weights, config, [&](const std::string& key, size_t entry) {
        return is_of_base(manifest, source, key, entry);
      }));
  packer::AdapterInput input = {.name = added.name};
  for (size_t file = first_file; file < source.files().size(); ++file) {
    input.source_files.push_back(file);
  }
  if (!slots.slots.empty()) {
    FERRY_RETURN_IF_ERROR(converters::check_fits(placed, slots, printable(added.path)));
    input.factors =
        FERRY_TRY(converters::factor_weights(placed, slots, weights, source, added.name, first));
  }
  return packer::add_adapter(bundle, input, source, added.overwrite, edit, pool);
}

}  // namespace ferry::conversion
