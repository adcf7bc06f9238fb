#include "proof/stored_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/checked.h"
#include "core/text.h"
#include "graph/passes/passes.h"

namespace ferry::proof {

std::map<std::string, const graph::Weight*> weights_of(const plan::Conversion& conversion) {
  std::map<std::string, const graph::Weight*> weights;
  for (const plan::ConvertedComponent& component : conversion.components) {
    for (const graph::Model& part : component.parts) {
      for (const graph::Weight& weight : part.weights.weights()) {
        weights.emplace(weight.name, &weight);
      }
    }
  }
  return weights;
}

graph::QuantizationScheme coding_of(const graph::Recipe& recipe) {
  constexpr int64_t kQ80Group = 32;
  const graph::Step& last = recipe.steps.back();
  if (last.kind == graph::Step::Kind::kQuantize) return last.scheme;
  return {.bits = 8, .group = kQ80Group, .scale_dtype = DType::kF32};
}

StoredWeights::StoredWeights(const packer::Bundle& bundle, const plan::Conversion& planned)
    : bundle_(bundle) {
  const std::map<std::string, const graph::Weight*> plan = weights_of(planned);
  std::map<std::string, const packer::ManifestTensor*> scales;
  for (const packer::ManifestTensor& tensor : bundle.manifest().tensors) {
    if (!tensor.output.empty()) scales.emplace(tensor.name, &tensor);
  }
  for (const packer::ManifestTensor& tensor : bundle.manifest().tensors) {
    const auto found = plan.find(tensor.name);
    if (!tensor.output.empty() || found == plan.end()) continue;
    Stored stored = {.dtype = tensor.dtype,
                     .elements = checked_numel(tensor.shape).value_or(0),
                     .columns = tensor.shape.empty() ? 1 : tensor.shape.back(),
                     .values = bytes_of(tensor)};
    if (!is_castable(tensor.dtype)) {
      const graph::Recipe& recipe = found->second->recipe;
      const auto its = scales.find(tensor.name + "." + std::string(graph::kScalesOutput));
      if (!recipe.is_coded() || its == scales.end()) continue;
      stored.scheme = coding_of(recipe);
      stored.scales = bytes_of(*its->second);
      const auto rows = static_cast<uint64_t>(stored.elements / stored.columns);
      if (stored.values.size() != rows * stored.scheme.code_bytes(stored.columns) ||
          stored.scales.size() != rows * stored.scheme.scale_bytes(stored.columns)) {
        continue;
      }
    }
    weights_.emplace(tensor.name, stored);
  }
}

std::span<const std::byte> StoredWeights::bytes_of(const packer::ManifestTensor& tensor) const {
  return bundle_.data().at(tensor.file).file.bytes().subspan(tensor.offset, tensor.bytes);
}

std::vector<const StoredWeights::Stored*> StoredWeights::parts_of(const std::string& name) const {
  if (const auto whole = weights_.find(name); whole != weights_.end()) return {&whole->second};
  std::vector<const Stored*> heads;
  for (int64_t head = 0;; ++head) {
    const auto found = weights_.find(graph::head_weight_name(name, head));
    if (found == weights_.end()) return heads;
    heads.push_back(&found->second);
  }
}

int64_t StoredWeights::elements_of(const std::vector<const Stored*>& parts) {
  int64_t elements = 0;
  for (const Stored* part : parts) elements += part->elements;
  return elements;
}

bool StoredWeights::has(const std::string& name, int64_t elements) const {
  const std::vector<const Stored*> parts = parts_of(name);
  return !parts.empty() && elements_of(parts) == elements;
}

Status StoredWeights::read(const std::string& name, int64_t first, std::span<float> out) const {
  const std::vector<const Stored*> parts = parts_of(name);
  if (first < 0 || first > elements_of(parts) - std::ssize(out)) {
    return fail(ErrorCode::kInternal, fmt::format("{}: no such part of weight {}",
                                                  printable(bundle_.path()), quoted(name)));
  }
  for (const Stored* part : parts) {
    if (first < part->elements && !out.empty()) {
      const int64_t count = std::min(part->elements - first, std::ssize(out));
      read_part(*part, first, out.first(static_cast<size_t>(count)));
      out = out.subspan(static_cast<size_t>(count));
      first += count;
    }
    first -= part->elements;
  }
  return {};
}

void StoredWeights::read_part(const Stored& stored, int64_t first, std::span<float> out) {
  if (is_castable(stored.dtype)) {
    const auto offset = static_cast<size_t>(first * dtype_bytes(stored.dtype));
    to_f32(stored.dtype, stored.values.data() + offset, out.data(), out.size());
    return;
  }
  // Reads whole rows, one after the other.
  std::vector<float> row(static_cast<size_t>(stored.columns));
  const uint64_t codes = stored.scheme.code_bytes(stored.columns);
  const uint64_t scales = stored.scheme.scale_bytes(stored.columns);
  for (size_t done = 0; done < out.size();) {
    const int64_t at = first + static_cast<int64_t>(done);
    const auto index = static_cast<uint64_t>(at / stored.columns);
    const auto skip = static_cast<size_t>(at % stored.columns);
    const size_t count = std::min(row.size() - skip, out.size() - done);
    graph::dequantize_rows(stored.scheme, stored.values.subspan(index * codes, codes),
                           stored.scales.subspan(index * scales, scales), stored.columns, row);
    std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(skip), count,
                out.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
}

}  // namespace ferry::proof
