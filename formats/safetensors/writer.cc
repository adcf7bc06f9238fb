#include "formats/safetensors/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

#include "core/atomic_file.h"
#include "core/checked.h"
#include "core/text.h"
#include "formats/safetensors/safetensors.h"

namespace ferry::formats {
namespace {

Failure defect(const TensorSpec& tensor, std::string_view what) {
  return fail(ErrorCode::kInternal,
              fmt::format("cannot write safetensors: {} (tensor {})", what, quoted(tensor.name)));
}

Result<uint64_t> bytes_of(const TensorSpec& tensor) {
  const auto count = checked_numel(tensor.shape);
  const auto bits = count ? checked_mul<int64_t>(*count, dtype_bits(tensor.dtype)) : std::nullopt;
  if (dtype_info(tensor.dtype).safetensors.empty()) {
    return defect(tensor, fmt::format("no name for {}", dtype_name(tensor.dtype)));
  }
  if (!bits || *bits % 8 != 0) return defect(tensor, "bad shape " + to_string(tensor.shape));
  return static_cast<uint64_t>(*bits) / 8;
}

// The reference library writes tensors by falling position in this list, then by name. The same
// order makes the files of Ferry equal to its files.
constexpr std::array<DType, 22> kWriteOrder = {
    DType::kBool,       DType::kF4,     DType::kF6E2M3, DType::kF6E3M2, DType::kU8,
    DType::kI8,         DType::kF8E5M2, DType::kF8E4M3, DType::kF8E8M0, DType::kF8E4M3FNUZ,
    DType::kF8E5M2FNUZ, DType::kI16,    DType::kU16,    DType::kF16,    DType::kBF16,
    DType::kI32,        DType::kU32,    DType::kF32,    DType::kC64,    DType::kF64,
    DType::kI64,        DType::kU64,
};

std::vector<size_t> file_order(const std::vector<TensorSpec>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) {
    const auto* place = std::find(kWriteOrder.begin(), kWriteOrder.end(), tensors[i].dtype);
    return std::make_tuple(kWriteOrder.end() - place, std::string_view(tensors[i].name));
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

// nlohmann-json throws for a name that is not UTF-8; the exception ends here.
Result<std::string> json_text(const nlohmann::json& value) {
  try {
    return value.dump();
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::kInternal, "cannot write safetensors: a name is not valid UTF-8");
  }
}

Result<std::string> header_item(const TensorSpec& tensor, uint64_t begin, uint64_t end) {
  const std::string name = FERRY_TRY(json_text(tensor.name));
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                     dtype_info(tensor.dtype).safetensors, fmt::join(tensor.shape, ","), begin,
                     end);
}

Status write_all(const AtomicFile& file, const SafetensorsLayout& layout,
                 const std::vector<TensorData>& tensors) {
  FERRY_RETURN_IF_ERROR(file.write_at(0, layout.head));
  for (size_t i = 0; i < tensors.size(); ++i) {
    FERRY_RETURN_IF_ERROR(file.write_at(layout.offsets[i], tensors[i].bytes));
  }
  return {};
}

}  // namespace

Result<SafetensorsLayout> plan_safetensors(const std::vector<TensorSpec>& tensors,
                                           const SafetensorsMetadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += R"("__metadata__":)" + FERRY_TRY(json_text(metadata));
  SafetensorsLayout layout;
  layout.offsets.resize(tensors.size());
  uint64_t end = 0;
  std::set<std::string_view> names = {"__metadata__"};
  for (const size_t i : file_order(tensors)) {
    const TensorSpec& tensor = tensors[i];
    if (!names.insert(tensor.name).second) return defect(tensor, "the name is taken");
    const uint64_t begin = end;
    const auto sum = checked_add(begin, FERRY_TRY(bytes_of(tensor)));
    if (!sum) return defect(tensor, "the file would be too large");
    end = *sum;
    layout.offsets[i] = begin;
    if (json.size() > 1) json += ',';
    json += FERRY_TRY(header_item(tensor, begin, end));
  }
  json += '}';
  json.resize(align_up(json.size(), 8), ' ');
  if (json.size() > kMaxSafetensorsHeaderBytes) {
    return fail(ErrorCode::kInternal, "cannot write safetensors: the header would be too large");
  }
  layout.head.resize(kSafetensorsPrefixBytes + json.size());
  for (size_t i = 0; i < kSafetensorsPrefixBytes; ++i) {
    layout.head[i] = static_cast<std::byte>(json.size() >> (8 * i));
  }
  std::memcpy(layout.head.data() + kSafetensorsPrefixBytes, json.data(), json.size());
  for (uint64_t& offset : layout.offsets) offset += layout.head.size();
  layout.file_bytes = layout.head.size() + end;
  return layout;
}

Status write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                         const SafetensorsMetadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorData& tensor : tensors) {
    if (FERRY_TRY(bytes_of(tensor.spec)) != tensor.bytes.size()) {
      return defect(tensor.spec, "the bytes do not match the shape");
    }
    specs.push_back(tensor.spec);
  }
  const SafetensorsLayout layout = FERRY_TRY(plan_safetensors(specs, metadata));
  AtomicFile file = FERRY_TRY(AtomicFile::create(path, IfExists::kRefuse, layout.file_bytes));
  FERRY_RETURN_IF_ERROR(write_all(file, layout, tensors));
  return file.publish();
}

}  // namespace ferry::formats
