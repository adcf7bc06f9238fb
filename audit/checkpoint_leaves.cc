#include "audit/checkpoint_leaves.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/component.h"
#include "audit/leaf.h"
#include "core/checked.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "core/text.h"
#include "dialects/gguf/file/header.h"
#include "dialects/gguf/file/metadata.h"
#include "formats/hdf5/description.h"
#include "formats/torch/torch.h"
#include "formats/torch/zip.h"

namespace ferry::audit {
namespace {

using formats::GgufItem;
using formats::GgufMetadata;
using formats::GgufValueType;

// A GGUF file begins with u32 magic, u32 version, u64 number of tensors, u64 number of pairs.
constexpr uint64_t kPrefixBytes = 24;
// A key/value pair of GGUF consists of the u64 length of the key, the key, the u32 type and the
// value. The value of an array begins with the u32 type and the u64 count of its elements.
constexpr uint64_t kLengthBytes = 8, kTypeBytes = 4, kArrayBytes = 12;

uint64_t begin_of(const GgufItem& item) {
  return item.offset - (item.is_array ? kArrayBytes : 0) - kTypeBytes - item.key.size() -
         kLengthBytes;
}

// The elements of an array of texts have no common size; the array ends where its last text ends.
uint64_t end_of(const GgufItem& item, const GgufMetadata& metadata,
                std::span<const std::byte> header) {
  if (item.type != GgufValueType::kString) {
    const auto* info = formats::find_gguf_value_type(static_cast<uint32_t>(item.type));
    return item.offset + item.count * (info == nullptr ? 0 : info->bytes);
  }
  std::string_view last;
  if (!item.is_array) {
    last = metadata.text(item.key).value_or(std::string_view());
  } else if (const auto texts = metadata.texts(item.key); texts && !texts->empty()) {
    last = texts->back();
  } else {
    return item.offset;
  }
  return static_cast<uint64_t>(last.data() + last.size() -
                               reinterpret_cast<const char*>(header.data()));
}

// GGUF stores for each tensor its name, number of dimensions (u32), dimensions (u64), type (u32)
// and offset (u64).
uint64_t bytes_of_infos(const std::vector<formats::GgufTensor>& tensors) {
  uint64_t bytes = 0;
  for (const auto& [entry, type] : tensors) {
    bytes += kLengthBytes + entry.name.size() + 4 + 8 * entry.shape.size() + 4 + 8;
  }
  return bytes;
}

Claim claim(uint64_t begin, uint64_t end, LeafKind kind, std::string_view name) {
  return {Leaf{.offset = begin,
               .bytes = end - begin,
               .kind = kind,
               .name = std::string(name),
               .component = kind == LeafKind::kHeader ? "program" : "files"},
          1};
}

bool is_tokenizer(const GgufItem& item) { return item.key.starts_with("tokenizer."); }

// Claims runs of key/value pairs, with runs of the tokenizer's apart, and the list of tensors.
Result<std::vector<Claim>> claim_gguf_header(const SourceFile& file) {
  const std::span<const std::byte> header = file.header;
  // read_gguf_header() may read ahead, behind the end of the header that is in memory.
  const auto read = [header](uint64_t offset, std::span<std::byte> out) -> Status {
    std::ranges::fill(out, std::byte{0});
    const auto rest = header.subspan(std::min<uint64_t>(offset, header.size()));
    std::ranges::copy(rest.first(std::min(rest.size(), out.size())), out.begin());
    return {};
  };
  const formats::GgufHeader parsed =
      FERRY_TRY(formats::read_gguf_header(read, file.bytes, file.name));
  const std::vector<GgufItem>& items = parsed.items;
  const GgufMetadata metadata(items, header, file.name);
  std::vector<Claim> claims = {claim(0, kPrefixBytes, LeafKind::kHeader, "counts")};
  uint64_t end = kPrefixBytes;
  for (size_t i = 0; i < items.size();) {
    size_t next = i;
    while (next < items.size() && is_tokenizer(items[next]) == is_tokenizer(items[i])) ++next;
    end = next < items.size() ? begin_of(items[next]) : end_of(items[next - 1], metadata, header);
    const bool tokenizer = is_tokenizer(items[i]);
    claims.push_back(claim(begin_of(items[i]), end,
                           tokenizer ? LeafKind::kTokenizer : LeafKind::kMetadata,
                           tokenizer ? "tokenizer.*" : "key/value pairs"));
    i = next;
  }
  const uint64_t infos_end =
      std::min<uint64_t>(end + bytes_of_infos(parsed.tensors), header.size());
  claims.push_back(claim(end, infos_end, LeafKind::kHeader, "names and places of tensors"));
  return claims;
}

constexpr int kWhole = 0, kTensor = 1;  // values of Claim::level

Leaf entry_leaf(const TensorEntry& entry) {
  const Component part = component_of(entry.name);
  Leaf leaf{.offset = entry.offset,
            .bytes = entry.stored_bytes(),
            .kind = LeafKind::kWeight,
            .name = entry.name,
            .component = part.name,
            .layer = part.layer,
            .dtype = std::string(dtype_name(entry.dtype)),
            .shape = entry.shape,
            .elements = static_cast<uint64_t>(checked_numel(entry.shape).value_or(0))};
  if (entry.encoding != nullptr) leaf.encoding = entry.encoding->name;
  if (!entry.filters.empty()) {
    leaf.encoding += (leaf.encoding.empty() ? "" : " ") + entry.filters;
  }
  return leaf;
}

Leaf plain_leaf(LeafKind kind, std::string name, std::string component) {
  return Leaf{.kind = kind, .name = std::move(name), .component = std::move(component)};
}

Leaf header_leaf(std::string name) {
  return plain_leaf(LeafKind::kHeader, std::move(name), "program");
}

Claim claim_range(uint64_t offset, uint64_t bytes, Leaf leaf, int level) {
  leaf.offset = offset;
  leaf.bytes = bytes;
  return {std::move(leaf), level};
}

// -- zip files of PyTorch

bool is_inside(const TensorEntry& tensor, const formats::ZipEntry& record) {
  return tensor.offset >= record.offset && tensor.offset < record.offset + record.stored;
}

Leaf record_leaf(const formats::ZipEntry& record) {
  const std::string name = record.name.substr(record.name.find('/') + 1);
  if (name == "data.pkl") return header_leaf(name);
  if (!name.starts_with("data/")) return plain_leaf(LeafKind::kMetadata, name, "files");
  Leaf leaf = plain_leaf(LeafKind::kWeight, name, "other");
  leaf.unused = true;
  return leaf;
}

// Tensors in a compressed storage have no ranges of their own. So they share one leaf.
Claim claim_compressed(const formats::ZipEntry& record,
                       const std::vector<const TensorEntry*>& tensors) {
  Leaf leaf = entry_leaf(*tensors.front());
  for (size_t i = 1; i < tensors.size(); ++i) leaf.tied.push_back(tensors[i]->name);
  return claim_range(record.offset, record.stored, std::move(leaf), kTensor);
}

std::vector<Claim> claim_records(const std::vector<formats::ZipEntry>& records,
                                 const std::vector<const TensorEntry*>& tensors) {
  std::vector<Claim> claims;
  size_t next = 0;  // records and tensors are sorted by offset
  for (const formats::ZipEntry& record : records) {
    claims.push_back(
        claim_range(record.header, record.offset - record.header, header_leaf("zip"), kWhole));
    claims.push_back(claim_range(record.offset, record.stored, record_leaf(record), kWhole));
    std::vector<const TensorEntry*> inside;
    while (next < tensors.size() && tensors[next]->offset < record.offset) ++next;
    while (next < tensors.size() && is_inside(*tensors[next], record)) {
      inside.push_back(tensors[next++]);
    }
    if (inside.empty()) continue;
    if (record.deflated) {
      claims.push_back(claim_compressed(record, inside));
      continue;
    }
    const uint64_t end = record.offset + record.stored;
    for (const TensorEntry* tensor : inside) {
      Leaf leaf = entry_leaf(*tensor);
      const uint64_t offset = leaf.offset, bytes = std::min(leaf.bytes, end - offset);
      claims.push_back(claim_range(offset, bytes, std::move(leaf), kTensor));
    }
  }
  return claims;
}

// -- HDF5

// Claims every chunk of chunked datasets, and the datasets of training state, which are no entries
// of the source.
Result<std::vector<Claim>> claim_datasets(std::span<const std::byte> description,
                                          const std::vector<const TensorEntry*>& tensors,
                                          const std::string& name) {
  const hdf5::Description decoded = FERRY_TRY(hdf5::decode(description, name));
  std::map<std::string_view, const TensorEntry*> by_name;
  for (const TensorEntry* tensor : tensors) by_name.emplace(tensor->name, tensor);
  std::vector<Claim> claims;
  for (const hdf5::Dataset& dataset : decoded.datasets) {
    const auto found = by_name.find(dataset.path);
    Leaf leaf = found != by_name.end() ? entry_leaf(*found->second)
                                       : plain_leaf(LeafKind::kOther, dataset.path, "other");
    if (found == by_name.end()) leaf.use = "training";
    uint32_t part = 0;
    for (const hdf5::Chunk& chunk : dataset.chunks) {
      if (chunk.address == hdf5::kNoAddress || chunk.bytes == 0) continue;
      leaf.part = part++;
      claims.push_back(claim_range(chunk.address, chunk.bytes, leaf, kTensor));
      leaf.shape.clear();
      leaf.elements = 0;
    }
    if (part > 0) continue;
    const bool placed = found != by_name.end() && found->second->offset != 0;
    const bool state = found == by_name.end() && dataset.address != hdf5::kNoAddress;
    if (placed) {
      claims.push_back({std::move(leaf), kTensor});
    } else if (state) {
      claims.push_back(claim_range(dataset.address, dataset.stored_bytes, leaf, kTensor));
    } else {  // the values are in the dataset's header, or not stored
      claims.push_back(claim_range(0, 0, std::move(leaf), kTensor));
    }
  }
  return claims;
}

// -- all formats

class CheckpointReader {
 public:
  CheckpointReader(const checkpoint::Checkpoint& checkpoint, const std::string& path)
      : checkpoint_(checkpoint), source_(*checkpoint.source), path_(path) {
    tensors_.resize(source_.files().size());
    for (const TensorEntry& entry : source_.entries()) tensors_[entry.file].push_back(&entry);
  }

  Result<CheckpointLeaves> run() {
    for (uint32_t i = 0; i < source_.files().size(); ++i) {
      const SourceFile& file = source_.files()[i];
      AuditedFile listed{file.name, file.bytes, "safetensors"};
      std::vector<Leaf> leaves = FERRY_TRY(leaves_of(i, file, listed.type));
      out_.files.push_back(std::move(listed));
      std::ranges::move(leaves, std::back_inserter(out_.leaves));
    }
    return std::move(out_);
  }

 private:
  // Sets `type` to the AuditedFile::type.
  Result<std::vector<Leaf>> leaves_of(uint32_t i, const SourceFile& file, std::string& type) {
    if (std::holds_alternative<formats::GgufMetadata>(checkpoint_.extra)) {
      type = "gguf";
      std::vector<Claim> claims = FERRY_TRY(claim_gguf_header(file));
      add_tensors(i, claims);
      return tile(i, file.bytes, std::move(claims), padding_rule(file.bytes));
    }
    if (std::holds_alternative<formats::KerasAttributes>(checkpoint_.extra)) {
      type = "hdf5";
      return tile_with(i, file, FERRY_TRY(claim_datasets(file.header, tensors_[i], path_)),
                       "structures and free space of HDF5");
    }
    const InputFile input = FERRY_TRY(open(file.name));
    if (FERRY_TRY(formats::detect_torch(input)) == formats::TorchContent::kZip) {
      type = "torch";
      const auto records = FERRY_TRY(formats::read_zip_directory(input, printable(input.path())));
      return tile_with(i, file, claim_records(records, tensors_[i]), "zip");
    }
    std::vector<Claim> claims;
    add_tensors(i, claims);
    return tile_with(i, file, std::move(claims), "names and places of tensors");
  }

  Result<InputFile> open(const std::string& name) const {
    return checkpoint::open_in_checkpoint(checkpoint_.directory, name,
                                          {.follow_symlinks = name == base_name(path_)});
  }

  void add_tensors(uint32_t i, std::vector<Claim>& claims) const {
    for (const TensorEntry* tensor : tensors_[i]) claims.push_back({entry_leaf(*tensor), kTensor});
  }

  static std::vector<Leaf> tile_with(uint32_t i, const SourceFile& file, std::vector<Claim> claims,
                                     const std::string& rest) {
    return tile(i, file.bytes, std::move(claims),
                [&](uint64_t, uint64_t) { return header_leaf(rest); });
  }

  const checkpoint::Checkpoint& checkpoint_;
  const TensorSource& source_;
  const std::string& path_;
  std::vector<std::vector<const TensorEntry*>> tensors_;  // [i]: those of source_.files()[i]
  CheckpointLeaves out_;
};

}  // namespace

Result<CheckpointLeaves> leaves_of_checkpoint(const checkpoint::Checkpoint& checkpoint,
                                              const std::string& path) {
  return CheckpointReader(checkpoint, path).run();
}

}  // namespace ferry::audit
