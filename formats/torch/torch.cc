#include "formats/torch/torch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>

#include "core/block_cache.h"
#include "core/checked.h"
#include "core/strided.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"
#include "formats/torch/state_dict.h"
#include "formats/torch/zip.h"

namespace ferry::formats {
namespace {

constexpr uint64_t kMaxExpansion = 64;  // by views and by compression, to the size of the file
constexpr uint64_t kAlwaysAllowed = 1u << 20;
constexpr uint64_t kMaxInflatedBytes = uint64_t{4} << 30;  // limit for the storages of a file
constexpr uint64_t kMaxPickleRatio = 256;
constexpr int64_t kBlockElements = int64_t{1} << 20;
constexpr size_t kTarMagicOffset = 257;
constexpr std::string_view kTarMagic = "ustar";
constexpr std::string_view kSaveAgain =
    "load it with torch.load where you trust it, and save it with torch.save or as safetensors";

// A storage of a file, its state and its decompressed contents. Thread-safe.
class Storage {
 public:
  // `expected_reads` is the sum of the bytes of all tensors of the storage.
  Storage(const InputFile& file, ZipEntry entry, uint64_t expected_reads, const std::string& shown)
      : file_(&file),
        entry_(std::move(entry)),
        expected_reads_(expected_reads),
        left_(expected_reads),
        shown_(shown) {}

  const ZipEntry& entry() const { return entry_; }
  uint64_t expected_reads() const { return expected_reads_; }
  // Checks the CRC of the whole storage before it returns the first bytes. Decompressed contents
  // stay in memory until finish_read() has counted all expected reads.
  Status read(uint64_t offset, std::span<std::byte> out);
  // Counts `bytes` bytes that read() has returned.
  void finish_read(uint64_t bytes);

 private:
  using Contents = std::shared_ptr<const std::byte[]>;
  Status check();
  Result<Contents> load();

  const InputFile* file_;
  ZipEntry entry_;
  uint64_t expected_reads_, left_;
  std::string shown_;
  std::mutex mutex_;
  std::optional<Status> checked_;  // result for an uncompressed storage
  std::optional<Error> failed_;    // error of a compressed storage
  Contents contents_;
};

Status Storage::check() {
  const std::lock_guard lock(mutex_);
  if (!checked_) checked_ = check_stored_entry(*file_, entry_, shown_);
  return *checked_;
}

Result<Storage::Contents> Storage::load() {
  const std::lock_guard lock(mutex_);
  if (failed_) return Failure(*failed_);
  if (contents_) return contents_;
  std::shared_ptr<std::byte[]> bytes(
      new std::byte[entry_.bytes]);  // memory is not touched before it is filled
  const Status loaded =
      read_zip_entry_to(*file_, entry_, {bytes.get(), static_cast<size_t>(entry_.bytes)}, shown_);
  if (!loaded) {
    failed_ = loaded.error();
    return Failure(*failed_);
  }
  contents_ = std::move(bytes);
  return contents_;
}

Status Storage::read(uint64_t offset, std::span<std::byte> out) {
  if (!entry_.deflated) {
    FERRY_RETURN_IF_ERROR(check());
    return file_->read_at(entry_.offset + offset, out);
  }
  const Contents contents = FERRY_TRY(load());
  std::memcpy(out.data(), contents.get() + offset, out.size());
  return {};
}

// A later read decompresses the storage again.
void Storage::finish_read(uint64_t bytes) {
  if (!entry_.deflated) return;
  const std::lock_guard lock(mutex_);
  left_ -= std::min(left_, bytes);
  if (left_ > 0) return;
  contents_.reset();
  left_ = expected_reads_;
}

// Returns the offset of the first element in its storage.
uint64_t first_byte(const TorchTensor& tensor) {
  return static_cast<uint64_t>(tensor.place.offset * dtype_bytes(tensor.dtype));
}

struct TorchFile {
  std::unique_ptr<InputFile> input;  // owned until the source takes it; the storages point to it
  std::string shown;
  std::vector<std::unique_ptr<Storage>> storages;
  std::vector<TorchTensor> tensors;
  std::vector<std::byte> pickle;
};

Failure unsupported_file(const std::string& shown, std::string_view what) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", shown, what));
}

Status check_content(const InputFile& input, const std::string& shown) {
  switch (FERRY_TRY(detect_torch(input))) {
    case TorchContent::kZip:
      return {};
    case TorchContent::kPickle:
      return unsupported_file(shown, fmt::format("a pickle, or a PyTorch file from before 1.6; {} "
                                                 "(offset 0)",
                                                 kSaveAgain));
    case TorchContent::kTar:
      return unsupported_file(shown, fmt::format("a tar file, as PyTorch wrote before 0.2; {} "
                                                 "(offset 0)",
                                                 kSaveAgain));
    case TorchContent::kOther:
      break;
  }
  return bad_input(
      fmt::format("{}: not a PyTorch file: it does not begin as a zip file (offset 0)", shown));
}

// Checks that all names begin with the same folder, and returns the folder with its slash.
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
  if (!record) return {};  // PyTorch before 2.1 wrote no such record, and little-endian files
  const auto text = FERRY_TRY(read_zip_entry(input, *record, 16, shown));
  const std::string_view order(reinterpret_cast<const char*>(text.data()), text.size());
  if (order == "little") return {};
  return unsupported_file(shown, fmt::format("the byte order is {}, not 'little' (offset {})",
                                             quoted(order), record->offset));
}

// Checks rule T3.
Status check_inflated(const std::vector<const ZipEntry*>& storages, uint64_t limit,
                      const std::string& shown) {
  uint64_t total = 0;
  for (const ZipEntry* entry : storages) {
    if (!entry->deflated) continue;
    const auto sum = checked_add(total, entry->bytes);
    if (!sum || *sum > limit) {
      return bad_input(
          fmt::format("{}: the storages decompress to more than {} bytes, with {} "
                      "(offset {})",
                      shown, limit, quoted(entry->name, 100), entry->header));
    }
    total = *sum;
  }
  if (total <= kMaxInflatedBytes) return {};
  return unsupported_file(shown,
                          fmt::format("{} bytes in compressed storages; {}", total, kSaveAgain));
}

Result<std::vector<std::byte>> read_pickle(const InputFile& input, const ZipEntry& record,
                                           const std::string& shown) {
  // The stored size is at most that of the file, so the product does not overflow.
  const uint64_t limit = std::min(kMaxPickleBytes, kMaxPickleRatio * record.stored);
  return read_zip_entry(input, record, limit, shown);
}

std::vector<std::unique_ptr<Storage>> make_storages(const InputFile& input,
                                                    const std::vector<const ZipEntry*>& data,
                                                    const std::vector<TorchTensor>& tensors,
                                                    const std::string& shown) {
  std::vector<uint64_t> expected(data.size(), 0);
  std::vector<std::string> first(data.size());
  for (const TorchTensor& tensor : tensors) {
    expected[tensor.place.tensor] += tensor.bytes;  // rule T2 bounds the sum
    if (first[tensor.place.tensor].empty()) first[tensor.place.tensor] = tensor.name;
  }
  std::vector<std::unique_ptr<Storage>> storages;
  for (size_t i = 0; i < data.size(); ++i) {
    ZipEntry entry = *data[i];
    entry.tensor = first[i];
    storages.push_back(std::make_unique<Storage>(input, std::move(entry), expected[i], shown));
  }
  return storages;
}

Result<TorchFile> read_torch_file(InputFile file) {
  TorchFile out;
  out.input = std::make_unique<InputFile>(std::move(file));
  out.shown = printable(out.input->path());
  const InputFile& input = *out.input;
  FERRY_RETURN_IF_ERROR(check_content(input, out.shown));
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
  FERRY_RETURN_IF_ERROR(check_byte_order(input, order, out.shown));
  const uint64_t limit =
      std::max(kAlwaysAllowed, checked_mul(input.size(), kMaxExpansion).value_or(UINT64_MAX));
  FERRY_RETURN_IF_ERROR(check_inflated(data, limit, out.shown));
  out.pickle = FERRY_TRY(read_pickle(input, *pickle_record, out.shown));
  const Pickle pickle = FERRY_TRY(Pickle::parse(out.pickle, out.shown));
  out.tensors = FERRY_TRY(read_state_dict(pickle, by_key, limit, out.shown));
  out.storages = make_storages(input, data, out.tensors, out.shown);
  return out;
}

// Sets TensorEntry::filters and filtered_bytes. A tensor's share of a compressed storage is
// proportional to its bytes.
void note_filters(TensorEntry& entry, const TorchTensor& tensor, const Storage& storage) {
  if (tensor.bytes == 0) return;
  if (!tensor.place.is_run()) {
    entry.filters = "view";
    const int64_t span = end_of(tensor.place).value_or(0) - tensor.place.offset;
    entry.filtered_bytes = static_cast<uint64_t>(span * dtype_bytes(tensor.dtype));
  }
  if (!storage.entry().deflated) return;
  entry.filters += entry.filters.empty() ? "deflate" : " deflate";
  const double share =
      static_cast<double>(tensor.bytes) / static_cast<double>(storage.expected_reads());
  entry.filtered_bytes = static_cast<uint64_t>(static_cast<double>(storage.entry().stored) * share);
}

class TorchSource final : public FileTensorSource {
 public:
  explicit TorchSource(std::string path) : FileTensorSource(std::move(path)) {}

  Status add(CheckpointFile file);

 private:
  Status read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status read_blocks(size_t index, uint64_t offset, std::span<std::byte> out) const;

  std::vector<TorchFile> torch_files_;  // parallel to files()
  std::vector<size_t> tensors_;         // parallel to entries(): index in TorchFile::tensors
  mutable BlockCache blocks_;           // caches strided views
};

Status TorchSource::add(CheckpointFile file) {
  TorchFile opened = FERRY_TRY(read_torch_file(std::move(file.file)));
  const auto number = static_cast<uint32_t>(files().size());
  std::vector<std::pair<TensorEntry, size_t>> entries;
  for (size_t i = 0; i < opened.tensors.size(); ++i) {
    const TorchTensor& tensor = opened.tensors[i];
    const Storage& storage = *opened.storages[tensor.place.tensor];
    TensorEntry entry{.name = tensor.name,
                      .dtype = tensor.dtype,
                      .shape = tensor.shape,
                      .bytes = tensor.bytes,
                      .file = number,
                      .offset = storage.entry().offset + first_byte(tensor)};
    note_filters(entry, tensor, storage);
    entries.push_back({std::move(entry), i});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.offset, a.first.bytes, a.first.name) <
           std::tie(b.first.offset, b.first.bytes, b.first.name);
  });
  for (auto& [entry, tensor] : entries) {
    add_entry(std::move(entry));
    tensors_.push_back(tensor);
  }
  add_file(file.name, std::move(opened.input), std::move(opened.pickle));
  torch_files_.push_back(std::move(opened));
  return {};
}

Status TorchSource::read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const TorchFile& file = torch_files_[entries()[index].file];
  const TorchTensor& tensor = file.tensors[tensors_[index]];
  Storage& storage = *file.storages[tensor.place.tensor];
  FERRY_RETURN_IF_ERROR(tensor.place.is_run() ? storage.read(first_byte(tensor) + offset, out)
                                              : read_blocks(index, offset, out));
  storage.finish_read(out.size());
  return {};
}

// Gathers a strided view block by block and caches blocks. So neither the storage nor the whole
// view is in memory, and small reads do not gather a block repeatedly.
Status TorchSource::read_blocks(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const TorchFile& file = torch_files_[entries()[index].file];
  const TorchTensor& tensor = file.tensors[tensors_[index]];
  Storage& storage = *file.storages[tensor.place.tensor];
  const int64_t item = dtype_bytes(tensor.dtype);
  const ReadTensor read = [&](uint64_t place, std::span<std::byte> window) {
    return storage.read(place, window);
  };
  const uint64_t block_bytes = static_cast<uint64_t>(kBlockElements * item);
  while (!out.empty()) {
    const uint64_t number = offset / block_bytes;
    const auto block = FERRY_TRY(blocks_.get(index, number, [&]() -> Result<BlockCache::Bytes> {
      const uint64_t begin = number * block_bytes;
      BlockCache::Bytes bytes(std::min(block_bytes, tensor.bytes - begin));
      FERRY_RETURN_IF_ERROR(gather(tensor.place, item, static_cast<int64_t>(begin) / item,
                                   static_cast<int64_t>(bytes.size()) / item, read, bytes.data()));
      return bytes;
    }));
    const uint64_t skip = offset % block_bytes;
    const size_t count = std::min<uint64_t>(block->size() - skip, out.size());
    std::memcpy(out.data(), block->data() + skip, count);
    out = out.subspan(count);
    offset += count;
  }
  return {};
}

}  // namespace

Result<TorchContent> detect_torch(const InputFile& file) {
  std::array<std::byte, kTarMagicOffset + kTarMagic.size()> buffer;
  const auto start = std::span(buffer).first(std::min<uint64_t>(buffer.size(), file.size()));
  FERRY_RETURN_IF_ERROR(file.read_at(0, start));
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  // A safetensors file begins with the length of its header. That length can look like any of the
  // signatures below.
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

Result<std::unique_ptr<TensorSource>> open_torch(std::vector<CheckpointFile> files,
                                                 const std::string& display_path) {
  auto source = std::make_unique<TorchSource>(display_path);
  for (CheckpointFile& file : files) FERRY_RETURN_IF_ERROR(source->add(std::move(file)));
  if (files.size() > 1) FERRY_RETURN_IF_ERROR(check_unique_names(*source));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry::formats
