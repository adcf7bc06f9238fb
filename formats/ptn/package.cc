#include "formats/ptn/package.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/json.h"
#include "core/text.h"
#include "formats/safetensors/safetensors.h"

namespace ferry::ptn {
namespace {

constexpr std::string_view kGraph = "program.ptg", kData = "program.safetensors",
                           kAliases = "aliases.json", kReserved = "__metadata__";
constexpr uint64_t kMostGraphBytes = uint64_t{1} << 31, kMostAliasBytes = uint64_t{64} << 20;
// Where a zip file has the name of its first entry, and the length of that name.
constexpr size_t kNameOffset = 30, kNameLength = 26;

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Entries {
  const formats::ZipEntry *graph = nullptr, *data = nullptr, *aliases = nullptr;
};

Result<Entries> sort_entries(const std::vector<formats::ZipEntry>& all, const std::string& name) {
  Entries entries;
  for (const formats::ZipEntry& entry : all) {
    const auto** place = entry.name == kGraph     ? &entries.graph
                         : entry.name == kData    ? &entries.data
                         : entry.name == kAliases ? &entries.aliases
                                                  : nullptr;
    if (place == nullptr) {
      return fail(ErrorCode::kUnsupported, fmt::format("{}: the zip entry {} (offset {})", name,
                                                       quoted(entry.name), entry.header));
    }
    // The format stores entries as they are, so no length in a file makes memory of more than it.
    if (entry.deflated) {
      return fail(ErrorCode::kUnsupported, fmt::format("{}: {} is compressed", name, entry.name));
    }
    *place = &entry;
  }
  if (entries.graph == nullptr) return bad_input(fmt::format("{}: no {}", name, kGraph));
  return entries;
}

// Reads the header of the constants. Their offsets become those in the package.
Result<std::vector<TensorEntry>> read_tensors(const InputFile& file, const formats::ZipEntry& data,
                                              const std::string& name) {
  std::array<std::byte, 64> start = {};
  const auto first = std::span(start).first(std::min<uint64_t>(start.size(), data.bytes));
  FERRY_RETURN_IF_ERROR(file.read_at(data.offset, first));
  const uint64_t bytes = FERRY_TRY(formats::safetensors_header_bytes(first, data.bytes, name));
  std::vector<std::byte> json(bytes);
  FERRY_RETURN_IF_ERROR(file.read_at(data.offset + formats::kSafetensorsPrefixBytes, json));
  std::vector<TensorEntry> tensors =
      FERRY_TRY(formats::parse_safetensors_header(json, data.bytes, name));
  for (TensorEntry& tensor : tensors) tensor.offset += data.offset;
  return tensors;
}

Result<std::map<std::string, std::string>> read_aliases(const std::vector<std::byte>& text,
                                                        const std::string& name) {
  const nlohmann::json json = FERRY_TRY(parse_json(text_of(text), name));
  if (!json.is_object()) return bad_input(name + ": no JSON object");
  std::map<std::string, std::string> aliases;
  for (const auto& [key, owner] : json.items()) {
    if (!owner.is_string() || key == kReserved) {
      return bad_input(fmt::format("{}: the alias {} has no name of a tensor", name, quoted(key)));
    }
    aliases.emplace(key, owner.get<std::string>());
  }
  return aliases;
}

Status check_aliases(const Package& package, const std::string& name) {
  const auto is_stored = [&](const std::string& key) {
    return std::ranges::binary_search(package.tensors, key, {}, &TensorEntry::name);
  };
  for (const auto& [alias, owner] : package.aliases) {
    if (is_stored(alias)) {
      return bad_input(fmt::format("{}: {} is stored and an alias", name, quoted(alias)));
    }
    if (!is_stored(owner)) {
      return bad_input(fmt::format("{}: {} is an alias of {}, which is not stored", name,
                                   quoted(alias), quoted(owner)));
    }
  }
  return {};
}

Status check_constant(const Package& package, const Constant& constant, const std::string& name) {
  const auto stored = [&](const std::string& key) -> Result<const TensorEntry*> {
    const TensorEntry* tensor = package.find(key);
    if (tensor == nullptr) {
      return bad_input(fmt::format("{}: the constant {} is not stored", name, quoted(key)));
    }
    return tensor;
  };
  const auto differs = [&](const TensorEntry& tensor, DType dtype) {
    return bad_input(fmt::format("{}: the constant {} is stored as {} {}, the graph has {} {}",
                                 name, quoted(tensor.name), dtype_name(tensor.dtype),
                                 to_string(tensor.shape), dtype_name(dtype),
                                 to_string(constant.value.sizes)));
  };
  const TensorEntry& tensor = *FERRY_TRY(stored(constant.key));
  // Codes of a quantisation are packed, so that their shape is not that of the values.
  const bool plain = constant.value.quantisation.empty();
  if (plain && (tensor.dtype != constant.value.dtype || tensor.shape != constant.value.sizes)) {
    return differs(tensor, constant.value.dtype);
  }
  for (const auto& [key, dtype] : constant.parameters) {
    const TensorEntry& parameter = *FERRY_TRY(stored(key));
    if (parameter.dtype != dtype) return differs(parameter, dtype);
  }
  return {};
}

}  // namespace

bool is_package(std::span<const std::byte> start) {
  constexpr char kSignature[] = {'P', 'K', 3, 4};
  uint16_t length = 0;
  if (start.size() < kNameOffset + kGraph.size() ||
      std::memcmp(start.data(), kSignature, sizeof kSignature) != 0) {
    return false;
  }
  std::memcpy(&length, start.data() + kNameLength, sizeof length);
  return length == kGraph.size() &&
         std::memcmp(start.data() + kNameOffset, kGraph.data(), kGraph.size()) == 0;
}

const TensorEntry* Package::find(const std::string& key) const {
  const auto alias = aliases.find(key);
  const std::string& owner = alias == aliases.end() ? key : alias->second;
  const auto found = std::ranges::lower_bound(tensors, owner, {}, &TensorEntry::name);
  return found == tensors.end() || found->name != owner ? nullptr : &*found;
}

Result<Package> read_package(const InputFile& file, const std::string& name) {
  const std::vector<formats::ZipEntry> all = FERRY_TRY(formats::read_zip_directory(file, name));
  const Entries entries = FERRY_TRY(sort_entries(all, name));
  Package package;
  const auto inside = [&](std::string_view entry) { return fmt::format("{}: {}", name, entry); };
  if (entries.data != nullptr) {
    package.data = *entries.data;
    package.tensors = FERRY_TRY(read_tensors(file, *entries.data, inside(kData)));
    std::ranges::sort(package.tensors, {}, &TensorEntry::name);
  }
  if (entries.aliases != nullptr) {
    const std::vector<std::byte> text = FERRY_TRY(
        formats::read_zip_entry(file, *entries.aliases, kMostAliasBytes, inside(kAliases)));
    package.aliases = FERRY_TRY(read_aliases(text, inside(kAliases)));
    FERRY_RETURN_IF_ERROR(check_aliases(package, inside(kAliases)));
  }
  const std::vector<std::byte> graph =
      FERRY_TRY(formats::read_zip_entry(file, *entries.graph, kMostGraphBytes, inside(kGraph)));
  package.graph_bytes = graph.size();
  package.methods = FERRY_TRY(read_graph(graph, inside(kGraph)));
  for (const Method& method : package.methods) {
    for (const Constant& constant : method.constants) {
      FERRY_RETURN_IF_ERROR(check_constant(package, constant, inside(kGraph)));
    }
  }
  return package;
}

Status check_values(const InputFile& file, const Package& package, const std::string& name) {
  return package.data ? formats::check_stored_entry(file, *package.data, name) : Status();
}

}  // namespace ferry::ptn
