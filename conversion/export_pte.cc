// --to pte: the programs of a bundle become one program, with the names of methods that
// ExecuTorch's runners load (extension/llm/runner/constants.h of 1.5.1), and one data file.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_input.h"
#include "conversion/export.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"
#include "graph/graph.h"
#include "packer/bundle_reader.h"

namespace ferry::conversion {
namespace {

constexpr uint64_t kMaxCopiedBytes = uint64_t{256} << 20;
constexpr const char* kProgramName = "model.pte";
constexpr const char* kDataName = "model.ptd";

using Bytes = std::span<const std::byte>;

// The contents are part of the mapped files of `bundle`, which stays open with the literal.
packer::FileLiteral literal_of(const packer::Bundle& bundle, Bytes bytes, uint64_t offset) {
  graph::Literal literal{.key = fmt::format("{}:{}", fmt::ptr(bytes.data()), bytes.size()),
                         .bytes = bytes.size(),
                         .fill = [bundle, bytes](uint64_t at, std::span<std::byte> out) {
                           std::ranges::copy(bytes.subspan(at, out.size()), out.begin());
                         }};
  return {offset, std::move(literal)};
}

Failure contradiction(const packer::Bundle& bundle, const std::string& key) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: two of its files have {} with different contents",
                          printable(bundle.path()), quoted(key)));
}

// Joins programs of components. Methods of one name `forward` get that of their component.
class ProgramJoiner {
 public:
  explicit ProgramJoiner(const packer::Bundle& bundle)
      : bundle_(bundle), several_(bundle.manifest().components.size() > 1) {}

  Status add(const pte::LoadedProgram& loaded, const std::string& role) {
    const uint32_t constants = place(loaded.data.constants, data_.constants, 1),
                   initial = place(loaded.data.initial, data_.initial, 1),
                   delegates = place(loaded.data.delegates, data_.delegates, 0),
                   named = place(loaded.data.named, data_.named, 0);
    for (pte::Method method : loaded.program.methods) {
      if (several_ && method.name == kForwardMethod) method.name = role;
      if (program_.find(method.name) != nullptr) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: two of its programs have a method {}",
                                printable(bundle_.path()), quoted(method.name)));
      }
      for (pte::Value& value : method.values) {
        auto* tensor = std::get_if<pte::Tensor>(&value);
        if (tensor == nullptr || tensor->data_index == 0) continue;
        tensor->data_index += tensor->allocation ? initial : constants;
      }
      for (pte::Delegate& delegate : method.delegates) delegate.data += delegates;
      program_.methods.push_back(std::move(method));
    }
    for (pte::NamedData entry : loaded.program.named_data) {
      entry.data += named;
      const auto known = std::ranges::find(program_.named_data, entry.key, &pte::NamedData::key);
      if (known == program_.named_data.end()) {
        program_.named_data.push_back(std::move(entry));
      } else if (!std::ranges::equal(data_.named[known->data], data_.named[entry.data])) {
        return contradiction(bundle_, entry.key);
      }
    }
    return {};
  }

  Result<packer::WeightFile> file() const {
    pte::Layout layout = FERRY_TRY(pte::plan_program(program_, pte::sizes_of(data_)));
    packer::WeightFile file{.path = kProgramName, .bytes = layout.file_bytes};
    file.known.push_back({0, std::move(layout.head)});
    for (const pte::Piece& piece : layout.pieces) {
      const std::vector<Bytes>& all = piece.kind == pte::Piece::Kind::kConstant   ? data_.constants
                                      : piece.kind == pte::Piece::Kind::kInitial  ? data_.initial
                                      : piece.kind == pte::Piece::Kind::kDelegate ? data_.delegates
                                                                                  : data_.named;
      file.literals.push_back(
          literal_of(bundle_, all[piece.index].first(piece.size), piece.offset));
    }
    return file;
  }

 private:
  // Appends ranges behind `skipped` placeholders. Returns what is added to their indices.
  static uint32_t place(const std::vector<Bytes>& ranges, std::vector<Bytes>& all, size_t skipped) {
    if (all.empty() && skipped > 0) all.emplace_back();
    const auto shift = static_cast<uint32_t>(all.size() - skipped);
    if (ranges.size() > skipped) {
      all.insert(all.end(), ranges.begin() + static_cast<std::ptrdiff_t>(skipped), ranges.end());
    }
    return shift;
  }

  const packer::Bundle& bundle_;
  const bool several_;
  pte::Program program_;
  pte::ProgramData data_;
};

// Joins data files. A key that stands in several has equal contents in all, and is stored once.
Result<packer::WeightFile> join_data(const packer::Bundle& bundle) {
  std::vector<ptd::NamedTensor> tensors;
  std::vector<Bytes> contents;
  std::map<std::string, size_t> keys;           // their positions in `tensors`
  std::map<const std::byte*, size_t> segments;  // by the address of their contents
  for (size_t i = 0; i < bundle.programs().size(); ++i) {
    for (const packer::BundleData* data : bundle.data_of(i)) {
      for (ptd::NamedTensor tensor : data->content.tensors) {
        const ptd::Segment& from = data->content.segments[tensor.segment];
        const Bytes bytes = data->file.bytes().subspan(from.offset, from.size);
        const auto [known, is_first] = keys.emplace(tensor.key, tensors.size());
        if (!is_first) {
          const ptd::NamedTensor& first = tensors[known->second];
          const bool same = first.is_tensor == tensor.is_tensor && first.dtype == tensor.dtype &&
                            first.sizes == tensor.sizes &&
                            std::ranges::equal(contents[first.segment], bytes);
          if (!same) return contradiction(bundle, tensor.key);
          continue;
        }
        const auto [place, is_new] = segments.emplace(bytes.data(), contents.size());
        if (is_new) contents.push_back(bytes);
        tensor.segment = static_cast<uint32_t>(place->second);
        tensors.push_back(std::move(tensor));
      }
    }
  }
  std::vector<uint64_t> sizes;
  for (const Bytes bytes : contents) sizes.push_back(bytes.size());
  ptd::Layout layout = FERRY_TRY(ptd::plan_data_file(tensors, sizes));
  packer::WeightFile file{.path = kDataName, .bytes = layout.file_bytes};
  file.known.push_back({0, std::move(layout.head)});
  for (size_t i = 0; i < contents.size(); ++i) {
    file.literals.push_back(literal_of(bundle, contents[i], layout.segments[i].offset));
  }
  return file;
}

Status check_parts(const packer::Bundle& bundle) {
  for (const packer::ManifestComponent& component : bundle.manifest().components) {
    if (component.programs.size() == 1) continue;
    return fail_field(
        ErrorCode::kUnsupported, "to",
        fmt::format(" pte: {}: {} programs of {}; one is needed, as without --shards",
                    printable(bundle.path()), component.programs.size(), component.role));
  }
  return {};
}

}  // namespace

Result<packer::WeightFilesInput> plan_program_files(const packer::Bundle& bundle) {
  FERRY_RETURN_IF_ERROR(check_parts(bundle));
  packer::WeightFilesInput files;
  ProgramJoiner joiner(bundle);
  for (const packer::ManifestComponent& component : bundle.manifest().components) {
    const size_t program = bundle.programs_of(component.role).front();
    FERRY_RETURN_IF_ERROR(joiner.add(bundle.programs()[program].loaded, component.role));
  }
  files.files.push_back(FERRY_TRY(joiner.file()));
  files.files.push_back(FERRY_TRY(join_data(bundle)));
  for (const packer::ManifestFile& file : bundle.manifest().files) {
    if (!bundle.has_text(file.path) || file.path == bundle.manifest().reference) continue;
    files.plain.push_back(
        {.path = file.path, .text = FERRY_TRY(bundle.text(file.path, kMaxCopiedBytes))});
  }
  return files;
}

}  // namespace ferry::conversion
