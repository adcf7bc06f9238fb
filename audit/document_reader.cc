#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "audit/document.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::audit {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxDocumentBytes = uint64_t{256} << 20;
constexpr size_t kMostAxes = 64;
// Limits numbers and sums, because differences of two of them are int64_t.
constexpr uint64_t kLargest = uint64_t{1} << 62;

class DocumentReader {
 public:
  explicit DocumentReader(const std::string& name) : name_(name) {}

  Result<Audit> read(const json& document) {
    const json* root = &document;
    if (root->is_object() && root->contains("result")) root = &root->at("result");
    if (!root->is_object() || !root->contains("ferry_audit")) {
      return refuse("no document of ferry audit");
    }
    if (root->at("ferry_audit") != 1) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: another version of the document than 1", name_));
    }
    const json& target = FERRY_TRY(list(*root, "target", json::value_t::object));
    audit_.name = FERRY_TRY(text(target, "name"));
    audit_.type = FERRY_TRY(text(target, "type"));
    FERRY_RETURN_IF_ERROR(read_files(*root));
    const json& rules = FERRY_TRY(list(*root, "rules", json::value_t::array));
    for (const json& item : FERRY_TRY(list(*root, "items", json::value_t::array)).get()) {
      where_ = fmt::format("items[{}]: ", audit_.leaves.size());
      audit_.leaves.push_back(FERRY_TRY(read_item(item, rules)));
    }
    where_.clear();
    FERRY_RETURN_IF_ERROR(check_sums());
    FERRY_RETURN_IF_ERROR(read_memory(*root));
    FERRY_RETURN_IF_ERROR(read_findings(*root));
    return std::move(audit_);
  }

 private:
  using Ref = std::reference_wrapper<const json>;

  Failure refuse(const std::string& why) const {
    return bad_input(fmt::format("{}: {}{}", name_, where_, why));
  }

  Result<Ref> list(const json& object, const char* key, json::value_t type) const {
    const auto found = object.find(key);
    if (found == object.end() || found->type() != type) {
      return refuse(fmt::format("{} is absent or of another type", key));
    }
    return Ref(*found);
  }

  Result<std::string> text(const json& object, const char* key, bool optional = false) const {
    const auto found = object.find(key);
    if (found == object.end() && optional) return std::string();
    if (found == object.end() || !found->is_string()) {
      return refuse(fmt::format("{} is no text", key));
    }
    return found->get<std::string>();
  }

  Result<uint64_t> number(const json& object, const char* key, bool optional = false) const {
    const auto found = object.find(key);
    if (found == object.end() && optional) return uint64_t{0};
    if (found == object.end() || !found->is_number_unsigned() ||
        found->get<uint64_t>() > kLargest) {
      return refuse(fmt::format("{} is no whole number of 0 or more", key));
    }
    return found->get<uint64_t>();
  }

  Status read_files(const json& root) {
    for (const json& file : FERRY_TRY(list(root, "files", json::value_t::array)).get()) {
      where_ = fmt::format("files[{}]: ", audit_.files.size());
      if (!file.is_object()) return refuse("not an object");
      AuditedFile read;
      read.path = FERRY_TRY(text(file, "path"));
      read.bytes = FERRY_TRY(number(file, "bytes"));
      read.type = FERRY_TRY(text(file, "type"));
      audit_.files.push_back(std::move(read));
    }
    where_.clear();
    return {};
  }

  Result<Leaf> read_item(const json& item, const json& rules) const {
    if (!item.is_object()) return refuse("not an object");
    Leaf leaf;
    const uint64_t file = FERRY_TRY(number(item, "file"));
    if (file >= audit_.files.size()) return refuse("file is no index of files");
    leaf.file = static_cast<uint32_t>(file);
    leaf.offset = FERRY_TRY(number(item, "offset"));
    leaf.bytes = FERRY_TRY(number(item, "bytes"));
    const auto kind = kind_from_name(FERRY_TRY(text(item, "kind")));
    if (!kind) return refuse("kind is none that is known");
    leaf.kind = *kind;
    leaf.name = FERRY_TRY(text(item, "name", true));
    leaf.component = FERRY_TRY(text(item, "component", true));
    if (item.contains("layer")) {
      leaf.layer = static_cast<int64_t>(FERRY_TRY(number(item, "layer")));
    }
    leaf.dtype = FERRY_TRY(text(item, "dtype", true));
    leaf.encoding = FERRY_TRY(text(item, "encoding", true));
    leaf.use = FERRY_TRY(text(item, "use", true));
    leaf.sha256 = FERRY_TRY(text(item, "sha256", true));
    leaf.part = static_cast<uint32_t>(FERRY_TRY(number(item, "part", true)));
    if (item.contains("shape")) FERRY_RETURN_IF_ERROR(read_shape(item, leaf));
    if (item.contains("tied")) FERRY_RETURN_IF_ERROR(read_tied(item, leaf));
    if (item.contains("rule")) {
      const uint64_t rule = FERRY_TRY(number(item, "rule"));
      if (rule >= rules.size() || !rules[rule].is_string())
        return refuse("rule is no index of rules");
      leaf.rule = rules[rule].get<std::string>();
    }
    return leaf;
  }

  Status read_shape(const json& item, Leaf& leaf) const {
    const json& shape = FERRY_TRY(list(item, "shape", json::value_t::array));
    if (shape.size() > kMostAxes) return refuse("shape has too many dimensions");
    for (const json& size : shape) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > kLargest) {
        return refuse("shape holds something else than sizes");
      }
      leaf.shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
    }
    const auto elements = checked_numel(leaf.shape);
    if (!elements) return refuse("shape has too many elements");
    leaf.elements = leaf.use == kScales ? 0 : static_cast<uint64_t>(*elements);
    return {};
  }

  Status read_tied(const json& item, Leaf& leaf) const {
    for (const json& name : FERRY_TRY(list(item, "tied", json::value_t::array)).get()) {
      if (!name.is_string()) return refuse("tied holds something else than names");
      leaf.tied.push_back(name.get<std::string>());
    }
    return {};
  }

  // Views and growth are sums over items. So the items must cover the files without gaps.
  Status check_sums() const {
    std::vector<uint64_t> sums(audit_.files.size(), 0);
    for (const Leaf& leaf : audit_.leaves) {
      const AuditedFile& file = audit_.files[leaf.file];
      if (leaf.offset != sums[leaf.file] && leaf.bytes > 0) {
        return refuse(fmt::format("the items of {} leave a gap or overlap", quoted(file.path)));
      }
      sums[leaf.file] += leaf.bytes;
    }
    uint64_t total = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i] != audit_.files[i].bytes) {
        return refuse(
            fmt::format("the items of {} do not add up to its size", quoted(audit_.files[i].path)));
      }
      if (sums[i] > kLargest - total) return refuse("the files have more than 2^62 bytes");
      total += sums[i];
    }
    return {};
  }

  // Reads the sums as one method, because limits of growth need nothing else.
  Status read_memory(const json& root) {
    const auto memory = root.find("memory");
    if (memory == root.end() || memory->is_null()) return {};
    if (!memory->is_object()) return refuse("memory is no object");
    const uint64_t activations = FERRY_TRY(number(*memory, "activation_bytes"));
    const uint64_t state = FERRY_TRY(number(*memory, "state_bytes"));
    if (state > kLargest - activations) return refuse("memory has more than 2^62 bytes");
    audit_.memory.emplace();
    audit_.memory->methods.push_back(
        {.name = "all", .activation_bytes = activations, .state_bytes = state});
    return {};
  }

  // Reads ids and bytes only, because limits of growth need nothing else.
  Status read_findings(const json& root) {
    uint64_t total = 0;
    for (const json& item : FERRY_TRY(list(root, "findings", json::value_t::array)).get()) {
      where_ = fmt::format("findings[{}]: ", audit_.findings.size());
      if (!item.is_object()) return refuse("not an object");
      Finding finding{.id = FERRY_TRY(text(item, "id"))};
      finding.bytes = FERRY_TRY(number(item, "bytes"));
      if (finding.bytes > kLargest - total) return refuse("more than 2^62 bytes");
      total += finding.bytes;
      audit_.findings.push_back(std::move(finding));
    }
    where_.clear();
    return {};
  }

  const std::string& name_;
  std::string where_;
  Audit audit_;
};

bool is_document(const std::string& path) {
  return path.ends_with(".json") && !path.ends_with(".index.json") &&
         !path.ends_with(".weights.json");
}

}  // namespace

Result<Audit> read_document(std::string_view text, const std::string& name) {
  const json document = FERRY_TRY(parse_json(text, name));
  return DocumentReader(name).read(document);
}

Result<Audit> audit_or_document(const std::string& path, const AuditOptions& options,
                                ThreadPool& pool) {
  if (!is_document(path)) return audit_path(path, options, pool);
  return read_document(FERRY_TRY(read_text_file(path, kMaxDocumentBytes)), printable(path));
}

}  // namespace ferry::audit
