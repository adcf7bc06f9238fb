#include "dialects/gguf/file/importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/file.h"
#include "core/tensor_source.h"
#include "core/text.h"
#include "dialects/gguf/file/dequant.h"
#include "dialects/gguf/file/gguf.h"
#include "dialects/gguf/file/writer.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr size_t kMostNameBytes = 4096;

Status check(const std::vector<float>& values, const std::string& path, const std::string& name) {
  const auto wrong =
      std::ranges::find_if(values, [](float value) { return !std::isfinite(value) || value < 0; });
  if (wrong == values.end()) return {};
  return bad_input(fmt::format("{}: {}: column {} has the importance {}", printable(path),
                               quoted(name), wrong - values.begin(), *wrong));
}

Status add(ImportanceMatrix& matrix, std::vector<float> values, const std::string& path,
           const std::string& name) {
  FERRY_RETURN_IF_ERROR(check(values, path, name));
  auto shared = std::make_shared<const std::vector<float>>(std::move(values));
  if (matrix.emplace(name, std::move(shared)).second) return {};
  return bad_input(fmt::format("{}: has two entries of {}", printable(path), quoted(name)));
}

// Reads the f32 values of a tensor.
Result<std::vector<float>> values_of(const TensorSource& source, size_t index) {
  const TensorEntry& entry = source.entries()[index];
  if (entry.dtype != DType::kF32 || entry.encoding != nullptr) {
    return bad_input(fmt::format("{}: {} is {}, not f32", printable(source.path()),
                                 quoted(entry.name), entry.form()));
  }
  std::vector<float> values(entry.bytes / sizeof(float));
  FERRY_RETURN_IF_ERROR(source.read(index, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

// Divides the sums of each matrix by its count.
Result<std::vector<float>> means_of(std::vector<float> sums, const std::vector<float>& counts,
                                    const std::string& path, const std::string& name) {
  if (counts.empty() || sums.size() % counts.size() != 0) {
    return bad_input(fmt::format("{}: {} has {} sums and {} counts", printable(path), quoted(name),
                                 sums.size(), counts.size()));
  }
  const size_t columns = sums.size() / counts.size();
  for (size_t i = 0; i < sums.size(); ++i) {
    const float count = counts[i / columns];
    sums[i] = count > 0 ? sums[i] / count : 1.0f;
  }
  return sums;
}

Result<ImportanceMatrix> read_gguf(const std::string& path) {
  const GgufFile file = FERRY_TRY(open_gguf(path));
  const std::vector<TensorEntry>& entries = file.source->entries();
  std::map<std::string, std::array<std::optional<size_t>, 2>> found;  // sums, counts
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string_view name = entries[i].name;
    const bool sums = name.ends_with(kSums);
    if (!sums && !name.ends_with(kCounts)) continue;
    const size_t ending = sums ? kSums.size() : kCounts.size();
    found[std::string(name.substr(0, name.size() - ending))][sums ? 0 : 1] = i;
  }
  ImportanceMatrix matrix;
  for (const auto& [name, at] : found) {
    if (!at[0] || !at[1]) {
      return bad_input(fmt::format("{}: {} has no tensor {}", printable(path), quoted(name),
                                   at[0] ? kCounts : kSums));
    }
    std::vector<float> sums = FERRY_TRY(values_of(*file.source, *at[0]));
    const std::vector<float> counts = FERRY_TRY(values_of(*file.source, *at[1]));
    std::vector<float> means = FERRY_TRY(means_of(std::move(sums), counts, path, name));
    FERRY_RETURN_IF_ERROR(add(matrix, std::move(means), path, name));
  }
  return matrix;
}

// Reads the older format: a count of entries, then of each a name, how many times it was measured,
// and the sums of the means. What follows (the name of the text) is not used.
class Records {
 public:
  explicit Records(const InputFile& file) : file_(file) {}

  Result<ImportanceMatrix> read() {
    const int32_t entries = FERRY_TRY(number("number of entries"));
    ImportanceMatrix matrix;
    for (int32_t i = 0; i < entries; ++i) {
      const int32_t length = FERRY_TRY(number("length of a name"));
      if (length <= 0 || std::cmp_greater(length, kMostNameBytes))
        return broken("length of a name");
      std::string name(static_cast<size_t>(length), '\0');
      FERRY_RETURN_IF_ERROR(bytes(std::as_writable_bytes(std::span(name)), "a name"));
      const auto measured = static_cast<float>(FERRY_TRY(number("a count")));
      const int32_t count = FERRY_TRY(number("number of values"));
      if (count <= 0 || static_cast<uint64_t>(count) > (file_.size() - at_) / sizeof(float)) {
        return broken("number of values");
      }
      std::vector<float> values(static_cast<size_t>(count));
      FERRY_RETURN_IF_ERROR(bytes(std::as_writable_bytes(std::span(values)), "values"));
      if (measured > 0) {
        for (float& value : values) value /= measured;
      }
      FERRY_RETURN_IF_ERROR(add(matrix, std::move(values), file_.path(), name));
    }
    return matrix;
  }

 private:
  Failure broken(std::string_view what) const {
    return bad_input(fmt::format("{}: is no importance matrix: {} at offset {}",
                                 printable(file_.path()), what, at_));
  }
  Status bytes(std::span<std::byte> out, std::string_view what) {
    if (out.size() > file_.size() - at_) return broken(what);
    FERRY_RETURN_IF_ERROR(file_.read_at(at_, out));
    at_ += out.size();
    return {};
  }
  Result<int32_t> number(std::string_view what) {
    int32_t value = 0;
    FERRY_RETURN_IF_ERROR(bytes(std::as_writable_bytes(std::span(&value, 1)), what));
    return value;
  }

  const InputFile& file_;
  uint64_t at_ = 0;
};

}  // namespace

Result<ImportanceMatrix> read_importance_matrix(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  std::array<char, 4> magic = {};
  if (file.size() >= magic.size()) {
    FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(magic))));
  }
  const bool is_gguf = std::string_view(magic.data(), magic.size()) == "GGUF";
  ImportanceMatrix matrix = FERRY_TRY(is_gguf ? read_gguf(path) : Records(file).read());
  if (matrix.empty()) {
    return bad_input(fmt::format("{}: has no entry of an importance matrix", printable(path)));
  }
  return matrix;
}

Result<std::vector<std::byte>> importance_gguf(const ImportanceSums& sums) {
  const std::vector<GgufKeyValue> keys = {{"general.type", std::string("imatrix")},
                                          {"imatrix.datasets", std::vector<std::string>{sums.text}},
                                          {"imatrix.chunk_count", sums.chunks},
                                          {"imatrix.chunk_size", sums.chunk_tokens}};
  const uint32_t f32 = find_gguf_type(DType::kF32, nullptr)->id;
  std::vector<GgufTensorInfo> infos;
  std::vector<const std::vector<float>*> data;
  for (const auto& [name, entry] : sums.entries) {
    const auto matrices = std::ssize(entry.counts);
    const int64_t columns = std::ssize(entry.sums) / matrices;
    const bool one = matrices == 1;
    infos.push_back(
        {name + std::string(kSums), one ? Shape{columns} : Shape{matrices, columns}, f32});
    infos.push_back({name + std::string(kCounts), one ? Shape{1} : Shape{matrices, 1}, f32});
    data.insert(data.end(), {&entry.sums, &entry.counts});
  }
  GgufLayout layout = FERRY_TRY(lay_out_gguf(keys, infos));
  std::vector<std::byte> file = std::move(layout.head);
  file.resize(layout.file_bytes);
  for (size_t i = 0; i < data.size(); ++i) {
    std::memcpy(file.data() + layout.offsets[i], data[i]->data(), data[i]->size() * sizeof(float));
  }
  return file;
}

std::vector<std::byte> importance_records(const ImportanceSums& sums) {
  std::vector<std::byte> file;
  const auto put = [&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  const auto put_number = [&](size_t value) {
    const auto number = static_cast<int32_t>(value);
    put(std::as_bytes(std::span(&number, 1)));
  };
  const auto put_text = [&](const std::string& text) {
    put_number(text.size());
    put(std::as_bytes(std::span(text)));
  };
  put_number(sums.entries.size());
  for (const auto& [name, entry] : sums.entries) {
    put_text(name);
    // How many chunks the matrix with most rows has seen, at least one.
    const auto most = static_cast<size_t>(*std::ranges::max_element(entry.counts));
    const size_t measured = std::max<size_t>(1, (most + sums.chunk_tokens - 1) / sums.chunk_tokens);
    put_number(measured);
    put_number(entry.sums.size());
    const size_t columns = entry.sums.size() / entry.counts.size();
    for (size_t i = 0; i < entry.sums.size(); ++i) {
      const float count = entry.counts[i / columns];
      const float mean = count > 0 ? entry.sums[i] / count : 1.0f;
      const float value = mean * static_cast<float>(measured);
      put(std::as_bytes(std::span(&value, 1)));
    }
  }
  put_number(sums.chunks);
  put_text(sums.text);
  return file;
}

}  // namespace ferry::formats
