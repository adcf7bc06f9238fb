// Audits a bundle. Its manifest names the sources and the digest of each tensor.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "audit/audit.h"
#include "audit/component.h"
#include "audit/program_leaves.h"
#include "audit/targets.h"
#include "core/checked.h"
#include "core/dtype.h"
#include "core/encoding.h"
#include "core/file.h"
#include "core/text.h"
#include "dialects/gguf/file/dequant.h"
#include "packer/bundle_reader.h"
#include "packer/manifest.h"

namespace ferry::audit {
namespace {

constexpr uint32_t kMostGgufTypes = 64;

// `ratio` is the BYTES/ELEMENTS of the form "gptq:BYTES/ELEMENTS" of a whole derived tensor.
// Returns the share of BYTES that `elements` of its elements have.
std::optional<uint64_t> derived_bytes(std::string_view ratio, uint64_t elements) {
  uint64_t bytes = 0, all = 0;
  const char* const end = ratio.data() + ratio.size();
  const auto [slash, error] = std::from_chars(ratio.data(), end, bytes);
  if (error != std::errc() || slash == end || *slash != '/') return std::nullopt;
  const auto [stop, wrong] = std::from_chars(slash + 1, end, all);
  if (wrong != std::errc() || stop != end || all == 0 || elements > all) return std::nullopt;
  return static_cast<uint64_t>(static_cast<double>(bytes) *
                               (static_cast<double>(elements) / static_cast<double>(all)));
}

// Returns the bytes of `elements` elements in a stored form: a dtype, a block encoding, or a
// derived tensor's form.
std::optional<uint64_t> stored_bytes(std::string_view form, uint64_t elements) {
  if (const size_t colon = form.find(':'); colon != std::string_view::npos) {
    return derived_bytes(form.substr(colon + 1), elements);
  }
  if (const auto dtype = dtype_from_name(form)) {
    const auto bits = checked_mul<uint64_t>(elements, static_cast<uint64_t>(dtype_bits(*dtype)));
    return bits ? std::optional((*bits + 7) / 8) : std::nullopt;
  }
  for (uint32_t id = 0; id < kMostGgufTypes; ++id) {
    const formats::GgufType* const type = formats::find_gguf_type(id);
    if (type == nullptr || type->block.name != form || type->block.elements == 0) continue;
    return checked_mul<uint64_t>(elements / type->block.elements, type->block.bytes);
  }
  return std::nullopt;
}

// Parses the text of a recipe's pieces, such as "#0 bf16 [0, 64:32, 8:1] + #1,2 gptq:640/1024 [4,
// 8:1]".
class PieceText {
 public:
  explicit PieceText(std::string_view text) : text_(text) {}

  // Returns the bytes that all pieces have in the checkpoint; nullopt for a malformed text.
  std::optional<uint64_t> bytes() {
    uint64_t total = 0;
    do {
      const auto piece = piece_bytes();
      const auto sum = piece ? checked_add(total, *piece) : std::nullopt;
      if (!sum) return std::nullopt;
      total = *sum;
    } while (skip(" + "));
    return text_.empty() ? std::optional(total) : std::nullopt;
  }

 private:
  bool skip(std::string_view expected) {
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }

  std::optional<uint64_t> number() {
    uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc()) return std::nullopt;
    text_.remove_prefix(static_cast<size_t>(stop - text_.data()));
    return value;
  }

  std::optional<uint64_t> piece_bytes() {
    if (!skip("#") || !number()) return std::nullopt;
    while (skip(",")) {
      if (!number()) return std::nullopt;
    }
    if (!skip(" ")) return std::nullopt;
    const std::string_view form = text_.substr(0, text_.find(' '));
    text_.remove_prefix(form.size());
    if (!skip(" [") || !number()) return std::nullopt;
    uint64_t elements = 1;
    while (skip(", ")) {
      const auto size = number();
      if (!size || !skip(":")) return std::nullopt;
      skip("-");
      if (!number()) return std::nullopt;
      const auto product = checked_mul(elements, *size);
      if (!product) return std::nullopt;
      elements = *product;
    }
    if (!skip("]")) return std::nullopt;
    return stored_bytes(form, elements);
  }

  std::string_view text_;
};

std::string_view pieces_of(std::string_view recipe) { return recipe.substr(0, recipe.find(" | ")); }

// Returns a text that is equal for two weights if they are made of the same elements of the
// checkpoint.
std::string origin_of(const packer::ManifestTensor& tensor) {
  std::string origin(pieces_of(tensor.recipe));
  for (const packer::ManifestTensor::Source& source : tensor.sources) {
    origin += '\n' + source.file + '\n' + source.key;
  }
  return origin;
}

// All outputs of one recipe together, such as codes and scales, without those that share bytes with
// another tensor.
struct StoredWeight {
  const packer::ManifestTensor* first = nullptr;
  uint64_t bytes = 0;
};

std::vector<StoredWeight> stored_weights(const packer::Manifest& manifest) {
  std::vector<StoredWeight> weights;
  std::map<std::string, size_t> by_name;
  std::set<std::pair<std::string_view, uint64_t>> places;
  for (const packer::ManifestTensor& tensor : manifest.tensors) {
    if (tensor.bytes == 0 || !places.emplace(tensor.file, tensor.offset).second) continue;
    std::string name = tensor.name;
    if (!tensor.output.empty() && name.ends_with("." + tensor.output)) {
      name.resize(name.size() - tensor.output.size() - 1);
    }
    const auto [at, fresh] = by_name.emplace(std::move(name), weights.size());
    if (fresh) weights.push_back({&tensor, 0});
    weights[at->second].bytes += tensor.bytes;
  }
  return weights;
}

struct Sums {
  int64_t used = 0, wider = 0, narrower = 0, again = 0;
};

std::optional<Sums> sum_up(const packer::Manifest& manifest) {
  Sums sums;
  std::set<std::string> origins;
  for (const StoredWeight& weight : stored_weights(manifest)) {
    const auto bytes = static_cast<int64_t>(weight.bytes);
    if (!origins.insert(origin_of(*weight.first)).second) {
      sums.again += bytes;
      continue;
    }
    const auto source = PieceText(pieces_of(weight.first->recipe)).bytes();
    if (!source || *source > uint64_t{1} << 56) return std::nullopt;
    const auto used = static_cast<int64_t>(*source);
    const auto sum = checked_add(sums.used, used);
    if (!sum) return std::nullopt;
    sums.used = *sum;
    (bytes > used ? sums.wider : sums.narrower) += bytes - used;
  }
  return sums;
}

// Returns the bytes of factors of adapters, which no tensor of the checkpoint is behind.
int64_t factor_bytes(const packer::Manifest& manifest, const Audit& audit) {
  int64_t bytes = 0;
  for (const Leaf& leaf : audit.leaves) {
    const std::string& file = audit.files[leaf.file].path;
    const bool adapts =
        file == manifest.no_adapter ||
        std::ranges::count(manifest.adapters, file, &packer::ManifestAdapter::file) > 0;
    if (adapts && leaf.kind == LeafKind::kWeight) bytes += static_cast<int64_t>(leaf.bytes);
  }
  return bytes;
}

// `audit` has the leaves of the bundle. Account::steps add up to the difference of the two sizes.
// Returns nullopt if the manifest has no recipes, as before version 3.
std::optional<Account> account_of(const packer::Manifest& manifest, const Audit& audit) {
  const std::optional<Sums> sums = sum_up(manifest);
  if (!sums) return std::nullopt;
  Account account{.bundle_bytes = audit.bytes()};
  for (const packer::ManifestSourceFile& file : manifest.source_files) {
    const auto sum = checked_add(account.source_bytes, file.bytes);
    if (!sum || *sum > uint64_t{1} << 62) return std::nullopt;
    account.source_bytes = *sum;
  }
  const auto add = [&](std::string name, int64_t bytes) {
    if (bytes != 0) account.steps.push_back({std::move(name), bytes});
  };
  add("headers, metadata and tensors of the checkpoint that no weight is made of",
      sums->used - static_cast<int64_t>(account.source_bytes));
  add("weights with more bytes than in the checkpoint", sums->wider);
  add("weights with fewer bytes than in the checkpoint", sums->narrower);
  add("weights that are stored in a second form too", sums->again);
  add("factors of adapters", factor_bytes(manifest, audit));
  for (size_t i = 0; i < kLeafKinds; ++i) {
    const auto kind = static_cast<LeafKind>(i);
    if (kind == LeafKind::kWeight) continue;
    add(std::string(name_of(kind)), static_cast<int64_t>(audit.bytes_of(kind)));
  }
  return account;
}

Leaf manifest_leaf(const packer::ManifestTensor& tensor) {
  const Component part = component_of(tensor.name);
  Leaf leaf{.offset = tensor.offset,
            .bytes = tensor.bytes,
            .kind = LeafKind::kWeight,
            .name = tensor.name,
            .component = part.name,
            .layer = part.layer,
            .dtype = std::string(dtype_name(tensor.dtype)),
            .shape = tensor.shape,
            .rule = tensor.rule,
            .sha256 = tensor.sha256};
  if (tensor.output.empty()) {
    leaf.elements = static_cast<uint64_t>(checked_numel(tensor.shape).value_or(0));
  } else {
    leaf.use = kScales;
  }
  return leaf;
}

class BundleAudit {
 public:
  explicit BundleAudit(const packer::Bundle& bundle) : bundle_(bundle) {
    audit_.name = target_name(bundle.path());
    audit_.type = "bundle";
    audit_.model_type = bundle.manifest().model_type;
  }

  Result<Audit> run() {
    const InputFile manifest =
        FERRY_TRY(InputFile::open(bundle_.path_of(std::string(packer::kManifestName))));
    list_files(manifest.size());
    FERRY_RETURN_IF_ERROR(list_unlisted());
    index_files();
    FERRY_RETURN_IF_ERROR(add_programs());
    add_data();
    add_others();
    std::ranges::stable_sort(audit_.leaves, [](const Leaf& a, const Leaf& b) {
      return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
    });
    mark_unused();
    add_memory_of_manifest();
    audit_.account = account_of(bundle_.manifest(), audit_);
    return std::move(audit_);
  }

 private:
  void list_files(uint64_t manifest_bytes) {
    const packer::Manifest& manifest = bundle_.manifest();
    const std::string name(packer::kManifestName);
    audit_.files.push_back({name, manifest_bytes, "manifest"});
    for (const packer::ManifestFile& file : manifest.files) {
      std::string type(type_of_file(file.path));
      if (file.path == manifest.reference) type = "reference";
      if (bundle_.data().contains(file.path)) type = "data";
      audit_.files.push_back({file.path, file.bytes, std::move(type)});
      digests_[file.path] = file.method == "sha256" ? file.digest : "";
    }
    for (const packer::ManifestProgram* program : manifest.programs()) {
      for (AuditedFile& file : audit_.files) {
        if (file.path == program->file) file.type = "program";
      }
    }
  }

  // Adds the files that the manifest does not list, such as its own signature.
  Status list_unlisted() {
    std::ranges::move(FERRY_TRY(other_files(bundle_.path(), audit_.files)),
                      std::back_inserter(audit_.files));
    return {};
  }

  void index_files() {
    std::ranges::sort(audit_.files, {}, &AuditedFile::path);
    for (uint32_t i = 0; i < audit_.files.size(); ++i) index_[audit_.files[i].path] = i;
  }

  void append(std::vector<Leaf> leaves) {
    std::ranges::move(leaves, std::back_inserter(audit_.leaves));
  }

  Status add_programs() {
    std::set<std::string_view> seen;  // components may share a program
    for (size_t i = 0; i < bundle_.programs().size(); ++i) {
      const std::string& file = bundle_.entry(i).file;
      const packer::BundleProgram& program = bundle_.programs()[i];
      if (!seen.insert(file).second) continue;
      ProgramLeaves found = FERRY_TRY(leaves_of_program(
          program.loaded, program.file.bytes(), index_.at(file), printable(bundle_.path_of(file))));
      append(std::move(found.leaves));
      used_keys_.merge(found.external_keys);
      knows_all_keys_ = knows_all_keys_ && found.knows_all_keys;
    }
    return {};
  }

  void add_data() {
    std::map<std::string_view, std::vector<Leaf>> tensors;
    for (const packer::ManifestTensor& tensor : bundle_.manifest().tensors) {
      tensors[tensor.file].push_back(manifest_leaf(tensor));
    }
    for (const auto& [file, data] : bundle_.data()) {
      append(leaves_of_data(data.content, data.file.bytes().size(), index_.at(file),
                            std::move(tensors[file])));
    }
  }

  void add_others() {
    for (uint32_t i = 0; i < audit_.files.size(); ++i) {
      const AuditedFile& file = audit_.files[i];
      if (file.type == "program" || file.type == "data") continue;
      Leaf leaf = whole_file(file, i);
      leaf.sha256 = digests_[file.path];
      audit_.leaves.push_back(std::move(leaf));
    }
  }

  void mark_unused() {
    for (Leaf& leaf : audit_.leaves) {
      if (leaf.kind != LeafKind::kWeight || !knows_all_keys_ || leaf.part > 0) continue;
      const auto is_used = [&](const std::string& name) { return used_keys_.contains(name); };
      leaf.unused = !is_used(leaf.name) && std::ranges::none_of(leaf.tied, is_used);
    }
  }

  void add_memory_of_manifest() {
    audit_.memory.emplace();
    for (const packer::ManifestProgram* program : bundle_.manifest().programs()) {
      const uint32_t file = index_.at(program->file);
      std::set<std::string_view> seen;  // methods share buffers by name
      for (const packer::ManifestMethod& method : program->methods) {
        audit_.memory->methods.push_back(
            {file, method.name, method.activation_bytes, program->state_bytes});
        for (const packer::ManifestBuffer& b : method.buffers) {
          if (!seen.insert(b.name).second) continue;
          audit_.memory->buffers.push_back(
              {file, b.name, b.dtype, b.shape, b.bytes, b.init == "stored"});
        }
      }
    }
  }

  const packer::Bundle& bundle_;
  Audit audit_;
  std::map<std::string, uint32_t> index_;  // path to index into audit_.files
  std::map<std::string, std::string> digests_;
  std::set<std::string> used_keys_;
  bool knows_all_keys_ = true;
};

}  // namespace

Result<Audit> audit_bundle(const std::string& path, ThreadPool& pool) {
  const packer::Bundle bundle =
      FERRY_TRY(packer::Bundle::open(path, /*check_digests=*/false, pool));
  return BundleAudit(bundle).run();
}

}  // namespace ferry::audit
