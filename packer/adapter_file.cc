#include "packer/adapter_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/text.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {

Result<FilePlan> plan_no_adapter_file(const std::vector<const graph::LoweredFactor*>& factors,
                                      ptd::DataFile& content) {
  FilePlan file;
  file.name = kNoAdapterFile;
  std::map<std::string_view, size_t> segments;  // by key of the literal
  std::vector<uint64_t> sizes;
  for (const graph::LoweredFactor* factor : factors) {
    const auto [place, fresh] = segments.emplace(factor->contents.key, sizes.size());
    if (fresh) {
      sizes.push_back(factor->contents.bytes);
      file.literals.push_back(&factor->contents);
    }
    content.tensors.push_back(
        {factor->name, factor->dtype, {}, static_cast<uint32_t>(place->second)});
    content.tensors.back().sizes.assign(factor->shape.begin(), factor->shape.end());
  }
  ptd::Layout layout = FERRY_TRY(ptd::plan_data_file(content.tensors, sizes));
  content.segments = layout.segments;
  file.bytes = layout.file_bytes;
  file.extents.push_back({Extent::Kind::kHead, 0, 0, layout.head.size()});
  for (size_t i = 0; i < layout.segments.size(); ++i) {
    const ptd::Segment& place = layout.segments[i];
    file.extents.push_back({Extent::Kind::kLiteral, i, place.offset, place.size});
  }
  file.head = std::move(layout.head);
  return file;
}

Result<FilePlan> plan_adapter_file(const AdapterInput& adapter,
                                   const std::vector<ptd::NamedTensor>& factors, FileSet& set,
                                   AdapterWeights& weights) {
  std::vector<ptd::NamedTensor> tensors;
  std::vector<uint64_t> sizes;
  std::vector<std::pair<const graph::Recipe*, size_t>> stored;  // with the first segment
  std::vector<Extent> extents;                                  // of the segments
  for (const ptd::NamedTensor& factor : factors) {
    const auto [weight, output] = adapter.factors.find_output(factor.key);
    const Shape shape(factor.sizes.begin(), factor.sizes.end());
    if (weight == nullptr || weight->recipe.outputs[output].dtype != factor.dtype ||
        weight->recipe.outputs[output].shape != shape) {
      return fail(ErrorCode::kInternal,
                  fmt::format("adapter {} has no {} {}", quoted(adapter.name), quoted(factor.key),
                              describe_type(factor.dtype, shape)));
    }
    const graph::Recipe& recipe = weight->recipe;
    auto same =
        std::ranges::find_if(stored, [&](const auto& item) { return *item.first == recipe; });
    if (same == stored.end()) {
      const size_t index = set.weights.size();
      same = stored.insert(same, {&recipe, sizes.size()});
      weights.emplace_back(weight, index);
      set.weights.push_back(&recipe);
      set.first_segment.push_back(set.segments);
      set.segments += recipe.outputs.size();
      for (size_t i = 0; i < weight->recipe.outputs.size(); ++i) {
        sizes.push_back(weight->recipe.outputs[i].bytes());
        extents.push_back({Extent::Kind::kWeight, index, 0, 0, i});
      }
    }
    ptd::NamedTensor& tensor = tensors.emplace_back(factor);
    tensor.segment = static_cast<uint32_t>(same->second + output);
  }
  ptd::Layout layout = FERRY_TRY(ptd::plan_data_file(tensors, sizes));
  FilePlan file;
  file.name = adapter_file(adapter.name);
  file.bytes = layout.file_bytes;
  file.has_weights = file.plain_digest = true;
  file.extents.push_back({Extent::Kind::kHead, 0, 0, layout.head.size()});
  for (size_t i = 0; i < layout.segments.size(); ++i) {
    extents[i].offset = layout.segments[i].offset;
    extents[i].bytes = layout.segments[i].size;
    file.extents.push_back(extents[i]);
  }
  file.head = std::move(layout.head);
  return file;
}

ManifestAdapter describe_adapter(const AdapterInput& adapter, const TensorSource& source) {
  ManifestAdapter stated = {.name = adapter.name, .file = adapter_file(adapter.name)};
  for (const size_t index : adapter.source_files) {
    const SourceFile& file = source.files()[index];
    const std::string folder = adapter.name + ".";  // see DerivedSource::add_source()
    const bool inside = file.name.starts_with(folder);
    stated.source_files.push_back({inside ? file.name.substr(folder.size()) : file.name, file.bytes,
                                   std::string(kZeroDigest)});
  }
  return stated;
}

void name_weights(const AdapterWeights& weights, const TensorSource& source,
                  std::vector<WrittenWeight>& written) {
  for (const auto& [weight, index] : weights) {
    WrittenWeight& named = written[index];
    named.name = weight->name;
    named.dtype = weight->recipe.output().dtype;
    for (const size_t entry : stored_entries_of(weight->recipe, source)) {
      named.sources.push_back(source.entries()[entry].name);
    }
  }
}

}  // namespace ferry::packer
