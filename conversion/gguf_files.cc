#include "conversion/gguf_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "core/text.h"
#include "dialects/gguf/file/split.h"
#include "dialects/gguf/file/writer.h"
#include "dialects/gguf/model/written_types.h"

namespace ferry::conversion {
namespace {

constexpr const char* kStem = "model";

std::vector<formats::GgufTensorInfo> infos_of(std::span<const GgufTensor> tensors) {
  std::vector<formats::GgufTensorInfo> infos;
  for (const GgufTensor& tensor : tensors) {
    infos.push_back({.name = tensor.name, .shape = tensor.shape, .type = tensor.type});
  }
  return infos;
}

// Plans one file. Moves from `tensors`.
Result<packer::WeightFile> gguf_file(std::string path, std::span<const GgufKeyValue> keys,
                                     std::span<GgufTensor> tensors) {
  const std::vector<formats::GgufTensorInfo> infos = infos_of(tensors);
  formats::GgufLayout layout = FERRY_TRY(formats::lay_out_gguf(keys, infos));
  packer::WeightFile file{.path = std::move(path), .bytes = layout.file_bytes};
  file.known.push_back({0, std::move(layout.head)});
  for (size_t i = 0; i < tensors.size(); ++i) {
    GgufTensor& tensor = tensors[i];
    const bool known = !tensor.bytes.empty();
    const uint64_t planned = known ? tensor.bytes.size() : tensor.recipe.output().bytes();
    if (planned != infos[i].bytes()) {
      return fail(ErrorCode::kInternal,
                  fmt::format("tensor {} has {} bytes, planned were {}", quoted(tensor.name),
                              planned, infos[i].bytes()));
    }
    if (known) {
      file.known.push_back({layout.offsets[i], std::move(tensor.bytes)});
    } else {
      file.tensors.push_back({tensor.name, std::move(tensor.recipe), layout.offsets[i]});
    }
  }
  return file;
}

}  // namespace

Result<packer::WeightFilesInput> gguf_files(const std::vector<GgufKeyValue>& keys,
                                            std::vector<GgufTensor> tensors,
                                            const ExportOptions& options) {
  packer::WeightFilesInput out;
  out.is_directory = !options.out.empty() && !options.out.ends_with(".gguf");
  const std::vector<size_t> parts =
      formats::gguf_parts(infos_of(tensors), options.convert.max_file_bytes, options.max_tensors);
  if (parts.size() > 1 && !out.is_directory && !options.out.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("the tensors need {} files, and {} names one: give a directory",
                            parts.size(), quoted(options.out)));
  }
  if (parts.size() == 1) {
    std::string name =
        out.is_directory || options.out.empty() ? "model.gguf" : base_name(options.out);
    out.files.push_back(FERRY_TRY(gguf_file(std::move(name), keys, tensors)));
    return out;
  }
  out.is_directory = true;
  std::span<GgufTensor> left = tensors;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<GgufKeyValue> own = i == 0 ? keys : std::vector<GgufKeyValue>();
    std::ranges::move(formats::gguf_split_keys(i, parts.size(), tensors.size()),
                      std::back_inserter(own));
    out.files.push_back(FERRY_TRY(
        gguf_file(formats::gguf_part_name(kStem, i + 1, parts.size()), own, left.first(parts[i]))));
    left = left.subspan(parts[i]);
  }
  return out;
}

void sort_as_quantized(std::vector<GgufKeyValue>& keys, std::vector<GgufTensor>& tensors) {
  for (const char* last : {"general.quantization_version", "general.file_type"}) {
    const auto found = std::ranges::find(keys, last, &GgufKeyValue::key);
    if (found != keys.end()) std::rotate(found, found + 1, keys.end());
  }
  std::vector<converters::GgufNamedShape> shapes;
  for (const GgufTensor& tensor : tensors) shapes.push_back({tensor.name, tensor.shape});
  std::vector<GgufTensor> sorted;
  for (const size_t i : converters::gguf_name_order(shapes)) {
    sorted.push_back(std::move(tensors[i]));
    Shape& shape = sorted.back().shape;  // ggml drops trailing dimensions of 1
    while (shape.size() > 1 && shape[0] == 1) shape.erase(shape.begin());
  }
  tensors = std::move(sorted);
}

}  // namespace ferry::conversion
