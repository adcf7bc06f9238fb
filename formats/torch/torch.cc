#include "formats/torch/torch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>

#include "core/checked.h"
#include "core/text.h"
#include "formats/torch/state_dict.h"
#include "formats/torch/zip.h"
#include "formats/torch/zip_contents.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxExpansion = 64;  // of views and of compression, over the size of the file
constexpr uint64_t kAlwaysAllowed = 1u << 20;
constexpr uint64_t kMaxInflatedBytes = uint64_t{4} << 30;  // of the storages of a file
constexpr uint64_t kMaxPickleRatio = 256;
constexpr size_t kTarMagicOffset = 257;
constexpr std::string_view kTarMagic = "ustar";
constexpr std::string_view kSaveAgain =
    "load it with torch.load where you trust it, and save it with torch.save or as safetensors";

// A storage of a file, and what is known of it by now.
class Storage {
 public:
  Storage(const InputFile& file, ZipEntry entry, const std::string& shown)
      : file_(&file), entry_(std::move(entry)), shown_(shown) {}

  const ZipEntry& entry() const { return entry_; }
  // Reads all of a stored one, once, and compares the CRC.
  Status check();
  // All bytes, kept in memory from the first call on: for what is compressed, and for views that
  // jump around in it.
  Result<std::span<const std::byte>> load();

 private:
  const InputFile* file_;
  ZipEntry entry_;
  std::string shown_;
  std::mutex mutex_;
  std::optional<Status> checked_, loaded_;
  std::unique_ptr<std::byte[]> bytes_;
};

Status Storage::check() {
  const std::lock_guard lock(mutex_);
  if (!checked_) checked_ = check_stored_entry(*file_, entry_, shown_);
  return *checked_;
}

Result<std::span<const std::byte>> Storage::load() {
  const std::lock_guard lock(mutex_);
  const size_t size = entry_.bytes;
  if (!loaded_) {
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
    loaded_ = read_zip_entry_to(*file_, entry_, {bytes_.get(), size}, shown_);
  }
  FERRY_CHECK(Status(*loaded_));
  return std::span<const std::byte>(bytes_.get(), size);
}

// Copies the bytes [offset, offset + out.size()) of the tensor, made contiguous.
void gather(const TorchTensor& tensor, std::span<const std::byte> storage, uint64_t offset,
            std::span<std::byte> out) {
  const auto item = static_cast<uint64_t>(dtype_bytes(tensor.dtype));
  const size_t rank = tensor.shape.size();
  uint64_t rest = offset / item;  // index of the first element, then that of the outer dimensions
  uint64_t place = 0;             // of the current element in the storage, less tensor.first
  std::vector<int64_t> index(rank);
  for (size_t i = rank; i-- > 0;) {
    const auto size = static_cast<uint64_t>(tensor.shape[i]);
    index[i] = static_cast<int64_t>(rest % size);
    rest /= size;
    place += static_cast<uint64_t>(index[i] * tensor.strides[i]);
  }
  uint64_t skip = offset % item;
  while (!out.empty()) {
    const size_t count = std::min<uint64_t>(item - skip, out.size());
    std::memcpy(out.data(), storage.data() + tensor.first + place * item + skip, count);
    out = out.subspan(count);
    skip = 0;
    for (size_t i = rank; i-- > 0;) {
      place += static_cast<uint64_t>(tensor.strides[i]);
      if (++index[i] < tensor.shape[i]) break;
      place -= static_cast<uint64_t>(tensor.shape[i]) * static_cast<uint64_t>(tensor.strides[i]);
      index[i] = 0;
    }
  }
}

struct TorchFile {
  std::unique_ptr<InputFile> input;  // the storages point to it
  std::string shown;
  std::vector<std::unique_ptr<Storage>> storages;
  std::vector<TorchTensor> tensors;
  std::vector<std::byte> pickle;
};

tl::unexpected<Error> unsupported(const std::string& shown, std::string_view what) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", shown, what));
}

Status check_content(const InputFile& input, const std::string& shown) {
  switch (FERRY_TRY(detect_torch(input))) {
    case TorchContent::kZip:
      return {};
    case TorchContent::kPickle:
      return unsupported(shown, fmt::format("a pickle, or a PyTorch file from before 1.6; {} "
                                            "(offset 0)",
                                            kSaveAgain));
    case TorchContent::kTar:
      return unsupported(shown, fmt::format("a tar file, as PyTorch wrote before 0.2; {} "
                                            "(offset 0)",
                                            kSaveAgain));
    case TorchContent::kOther:
      break;
  }
  return bad_input(
      fmt::format("{}: not a PyTorch file: it does not begin as a zip file (offset 0)", shown));
}

// All names begin with the same folder; returns it with its slash.
Result<std::string> top_folder(const std::vector<ZipEntry>& entries, const std::string& shown) {
  const std::string& first = entries[0].name;
  const std::string folder = first.substr(0, first.find('/') + 1);
  for (const ZipEntry& entry : entries) {
    if (!folder.empty() && entry.name.starts_with(folder)) continue;
    return bad_input(
        fmt::format("{}: not a PyTorch file: the zip entry {} is not in the one top "
                    "folder (offset {})",
                    shown, quoted(entry.name, 100), entry.header));
  }
  return folder;
}

Status check_byte_order(const InputFile& input, const ZipEntry* record, const std::string& shown) {
  if (!record) return {};  // absent before PyTorch 2.1, which wrote little-endian files
  const auto text = FERRY_TRY(read_zip_entry(input, *record, 16, shown));
  const std::string_view order(reinterpret_cast<const char*>(text.data()), text.size());
  if (order == "little") return {};
  return unsupported(shown, fmt::format("the byte order is {}, not 'little' (offset {})",
                                        quoted(order), record->offset));
}

// Rule T3.
Status check_inflated(const std::vector<const ZipEntry*>& storages, uint64_t limit,
                      const std::string& shown) {
  uint64_t total = 0;
  for (const ZipEntry* entry : storages) {
    if (!entry->deflated) continue;
    const auto sum = checked_add(total, entry->bytes);
    if (!sum || *sum > limit) {
      return bad_input(fmt::format("{}: the storages decompress to more than {} bytes, with {} "
                                   "(offset {})",
                                   shown, limit, quoted(entry->name, 100), entry->header));
    }
    total = *sum;
  }
  if (total <= kMaxInflatedBytes) return {};
  return unsupported(shown, fmt::format("{} bytes in compressed storages; {}", total, kSaveAgain));
}

Result<std::vector<std::byte>> read_pickle(const InputFile& input, const ZipEntry& record,
                                           const std::string& shown) {
  // The stored size is inside of the file, so the product fits.
  const uint64_t limit = std::min(kMaxPickleBytes, kMaxPickleRatio * record.stored);
  return read_zip_entry(input, record, limit, shown);
}

Result<TorchFile> read_torch_file(const std::string& path) {
  TorchFile out;
  out.shown = printable(path);
  out.input = std::make_unique<InputFile>(FERRY_TRY(InputFile::open(path)));
  const InputFile& input = *out.input;
  FERRY_CHECK(check_content(input, out.shown));
  const auto records = FERRY_TRY(read_zip_directory(input, out.shown));
  const std::string folder = FERRY_TRY(top_folder(records, out.shown));
  const std::string data_folder = folder + "data/";
  const ZipEntry *pickle_record = nullptr, *order = nullptr;
  std::vector<const ZipEntry*> data;
  StorageRecords by_key;
  for (const ZipEntry& record : records) {
    if (record.name == folder + "data.pkl") pickle_record = &record;
    if (record.name == folder + "byteorder") order = &record;
    if (!record.name.starts_with(data_folder) || is_directory(record)) continue;
    by_key[std::string_view(record.name).substr(data_folder.size())] = {data.size(), record.bytes};
    data.push_back(&record);
  }
  if (!pickle_record) {
    return bad_input(
        fmt::format("{}: a zip file without data.pkl, so not from torch.save", out.shown));
  }
  FERRY_CHECK(check_byte_order(input, order, out.shown));
  const uint64_t limit =
      std::max(kAlwaysAllowed, checked_mul(input.size(), kMaxExpansion).value_or(UINT64_MAX));
  FERRY_CHECK(check_inflated(data, limit, out.shown));
  out.pickle = FERRY_TRY(read_pickle(input, *pickle_record, out.shown));
  const Pickle pickle = FERRY_TRY(Pickle::parse(out.pickle, out.shown));
  out.tensors = FERRY_TRY(read_state_dict(pickle, by_key, limit, out.shown));
  for (const ZipEntry* record : data) {
    out.storages.push_back(std::make_unique<Storage>(input, *record, out.shown));
  }
  return out;
}

class TorchSource final : public TensorSource {
 public:
  explicit TorchSource(std::string path) : path_(std::move(path)) {}

  Status add(const CheckpointFile& file);

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override;

 private:
  std::string path_;
  std::vector<TorchFile> torch_files_;
  std::vector<SourceFile> files_;  // parallel to torch_files_
  std::vector<TensorEntry> entries_;
  std::vector<size_t> tensors_;  // parallel to entries_: index in TorchFile::tensors
};

Status TorchSource::add(const CheckpointFile& file) {
  TorchFile opened = FERRY_TRY(read_torch_file(file.path));
  const auto number = static_cast<uint32_t>(files_.size());
  std::vector<std::pair<TensorEntry, size_t>> entries;
  for (size_t i = 0; i < opened.tensors.size(); ++i) {
    const TorchTensor& tensor = opened.tensors[i];
    const uint64_t offset = opened.storages[tensor.storage]->entry().offset + tensor.first;
    entries.push_back({{tensor.name, tensor.dtype, tensor.shape, tensor.bytes, number, offset}, i});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.offset, a.first.bytes, a.first.name) <
           std::tie(b.first.offset, b.first.bytes, b.first.name);
  });
  for (auto& [entry, tensor] : entries) {
    entries_.push_back(std::move(entry));
    tensors_.push_back(tensor);
  }
  files_.push_back({file.name, opened.input->size(), std::move(opened.pickle)});
  torch_files_.push_back(std::move(opened));
  return {};
}

Status TorchSource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  if (index >= entries_.size() || !range_inside(offset, out.size(), entries_[index].bytes)) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: read outside of a tensor", printable(path_)));
  }
  if (out.empty()) return {};
  const TensorEntry& entry = entries_[index];
  const TorchFile& file = torch_files_[entry.file];
  const TorchTensor& tensor = file.tensors[tensors_[index]];
  Storage& storage = *file.storages[tensor.storage];
  if (is_contiguous(tensor) && storage.entry().deflated) {
    const auto bytes = FERRY_TRY(storage.load());
    std::memcpy(out.data(), bytes.data() + tensor.first + offset, out.size());
  } else if (is_contiguous(tensor)) {
    FERRY_CHECK(storage.check());
    FERRY_CHECK(file.input->read_at(entry.offset + offset, out));
  } else {
    gather(tensor, FERRY_TRY(storage.load()), offset, out);
  }
  return file.input->check_unchanged();
}

Status TorchSource::check_unchanged() const {
  for (const TorchFile& file : torch_files_) FERRY_CHECK(file.input->check_unchanged());
  return {};
}

}  // namespace

Result<TorchContent> detect_torch(const InputFile& file) {
  std::array<std::byte, kTarMagicOffset + kTarMagic.size()> buffer;
  const auto start = std::span(buffer).first(std::min<uint64_t>(buffer.size(), file.size()));
  FERRY_CHECK(file.read_at(0, start));
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  // A safetensors file, by the length of its header; that length can look like anything below.
  if (text.size() > 8 && text[8] == '{' && text.substr(4, 4) == std::string_view("\0\0\0\0", 4)) {
    return TorchContent::kOther;
  }
  if (text.starts_with("PK\x03\x04")) return TorchContent::kZip;
  if (text.size() == buffer.size() && text.ends_with(kTarMagic)) return TorchContent::kTar;
  if (text.size() >= 2 && text[0] == '\x80' && text[1] <= 5 && text[1] >= 2) {
    return TorchContent::kPickle;
  }
  return TorchContent::kOther;
}

Result<std::unique_ptr<TensorSource>> open_torch(const std::vector<CheckpointFile>& files,
                                                 const std::string& display_path) {
  auto source = std::make_unique<TorchSource>(display_path);
  for (const CheckpointFile& file : files) FERRY_CHECK(source->add(file));
  if (files.size() > 1) FERRY_CHECK(check_unique_names(*source));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry
