#include "signing/model_statement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "core/json.h"
#include "core/json_writer.h"
#include "core/sha256.h"
#include "core/text.h"
#include "signing/model_tree.h"

namespace ferry::signing {
namespace {

// Members and values of the JSON.
constexpr std::string_view kType = "_type";
constexpr std::string_view kStatementV1 = "https://in-toto.io/Statement/v1";
constexpr std::string_view kSubject = "subject";
constexpr std::string_view kName = "name";
constexpr std::string_view kDigest = "digest";
constexpr std::string_view kSha256Name = "sha256";
constexpr std::string_view kPredicateType = "predicateType";
constexpr std::string_view kPredicate = "predicate";
constexpr std::string_view kResources = "resources";
constexpr std::string_view kAlgorithm = "algorithm";
constexpr std::string_view kSerialization = "serialization";
constexpr std::string_view kMethod = "method";
constexpr std::string_view kFiles = "files";
constexpr std::string_view kShards = "shards";
constexpr std::string_view kHashType = "hash_type";
constexpr std::string_view kAllowSymlinks = "allow_symlinks";
constexpr std::string_view kShardSize = "shard_size";
constexpr std::string_view kIgnorePaths = "ignore_paths";

using nlohmann::json;

// A message shows at most this many bytes of a name.
constexpr size_t kShownName = 100;

// Reads a decimal number without a sign and without leading zeros.
std::optional<uint64_t> read_decimal(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  return value;
}

// Reads an integer in either spelling, because some signers write integers as floating-point
// numbers.
std::optional<uint64_t> read_integer(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number >= 0 && number <= 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<uint64_t>(number);
}

class StatementReader {
 public:
  StatementReader(const std::string& name, const std::string& file_name)
      : name_(name), file_name_(file_name) {}

  Result<ModelStatement> read(const json& statement) {
    if (!statement.is_object()) return wrong("it is not an object");
    FERRY_RETURN_IF_ERROR(expect(statement, kType, kStatementV1));
    FERRY_RETURN_IF_ERROR(expect(statement, kPredicateType, kModelSignature));
    const std::string root = FERRY_TRY(read_subject(statement));
    const json* const predicate = find(statement, kPredicate);
    if (predicate == nullptr || !predicate->is_object()) {
      return wrong(fmt::format("{} is not an object", kPredicate));
    }
    FERRY_RETURN_IF_ERROR(check_members(*predicate, kPredicate, {kResources, kSerialization}, {}));
    FERRY_RETURN_IF_ERROR(read_serialization((*predicate)[kSerialization]));
    FERRY_RETURN_IF_ERROR(read_resources((*predicate)[kResources]));
    if (root_digest(statement_.resources) != root) {
      return wrong("the digest of its subject is not that of its resources");
    }
    return std::move(statement_);
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  Failure wrong(const std::string& what) const {
    return bad_input(
        fmt::format("{}: the signed statement is not one about a model: {}", name_, what));
  }
  Failure unsupported(const std::string& what) const {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {}: not supported", name_, what));
  }

  static const json* find(const json& object, std::string_view member) {
    const auto found = object.find(member);
    return found == object.end() ? nullptr : &*found;
  }

  // Checks that the object has all of `needed`, some of `optional`, and nothing else.
  Status check_members(const json& object, std::string_view what, Names needed,
                       Names optional) const {
    for (const std::string_view member : needed) {
      if (!object.contains(member)) return wrong(fmt::format("{} has no {}", what, member));
    }
    for (const auto& [member, ignored] : object.items()) {
      if (std::ranges::count(needed, member) + std::ranges::count(optional, member) == 0) {
        return wrong(fmt::format("{} has an unknown member {}", what, quoted(member)));
      }
    }
    return {};
  }

  Result<std::string> text_of(const json& object, std::string_view member) const {
    const json* const value = find(object, member);
    if (value == nullptr || !value->is_string()) {
      return wrong(fmt::format("{} is not a string", member));
    }
    return value->get<std::string>();
  }

  Status expect(const json& object, std::string_view member, std::string_view value) const {
    const std::string text = FERRY_TRY(text_of(object, member));
    if (text == value) return {};
    return wrong(fmt::format("{} is {}, not {}", member, quoted(text), value));
  }

  // Sets the name of the subject and returns its digest.
  Result<std::string> read_subject(const json& statement) {
    const json* const subject = find(statement, kSubject);
    if (subject == nullptr || !subject->is_array() || subject->size() != 1 ||
        !(*subject)[0].is_object()) {
      return wrong(fmt::format("{} is not a list of one object", kSubject));
    }
    const json& only = (*subject)[0];
    statement_.model = FERRY_TRY(text_of(only, kName));
    if (statement_.model.empty()) return wrong("the name of its subject is empty");
    const json* const digests = find(only, kDigest);
    if (digests == nullptr || !digests->is_object()) {
      return wrong(fmt::format("{} of the subject is not an object", kDigest));
    }
    auto root = from_hex(FERRY_TRY(text_of(*digests, kSha256Name)));
    if (!root || root->size() != 32) return wrong("the digest of its subject is not a SHA-256");
    return *std::move(root);
  }

  Status read_serialization(const json& object) {
    if (!object.is_object()) return wrong(fmt::format("{} is not an object", kSerialization));
    FERRY_RETURN_IF_ERROR(check_members(
        object, kSerialization, {kMethod, kHashType, kAllowSymlinks}, {kShardSize, kIgnorePaths}));
    FERRY_RETURN_IF_ERROR(read_method(object));
    FERRY_RETURN_IF_ERROR(read_hash(FERRY_TRY(text_of(object, kHashType))));
    const json& links = object[kAllowSymlinks];
    if (!links.is_boolean()) return wrong(fmt::format("{} is not a bool", kAllowSymlinks));
    if (links.get<bool>()) return unsupported("a signature that follows symbolic links");
    return read_ignored(object);
  }

  Status read_method(const json& object) {
    const std::string method = FERRY_TRY(text_of(object, kMethod));
    if (method != kFiles && method != kShards) {
      return wrong(fmt::format("{} is {}", kMethod, quoted(method)));
    }
    const json* const size = find(object, kShardSize);
    if ((size != nullptr) != (method == kShards)) {
      return wrong(fmt::format("{} belongs to the method {}, and only to it", kShardSize, kShards));
    }
    if (size == nullptr) return {};
    const auto bytes = read_integer(*size);
    if (!bytes || *bytes == 0) return wrong(fmt::format("{} is not a size", kShardSize));
    statement_.shard_size = *bytes;
    return {};
  }

  Status read_hash(const std::string& hash) {
    if (hash == "blake3") return unsupported("digests by blake3");
    for (const HashType type : {HashType::kSha256, HashType::kBlake2b}) {
      if (hash != name_of(type)) continue;
      statement_.hash = type;
      return {};
    }
    return wrong(fmt::format("{} is {}", kHashType, quoted(hash)));
  }

  Status read_ignored(const json& object) {
    const json* const paths = find(object, kIgnorePaths);
    if (paths == nullptr) return {};
    if (!paths->is_array()) return wrong(fmt::format("{} is not a list", kIgnorePaths));
    for (const json& path : *paths) {
      if (!path.is_string()) return wrong(fmt::format("{} has more than strings", kIgnorePaths));
      auto text = path.get<std::string>();
      if (text.empty() || text == ".") {
        return wrong(
            fmt::format("{} has {}, which would ignore everything", kIgnorePaths, quoted(text)));
      }
      statement_.ignore_paths.push_back(std::move(text));
    }
    return {};
  }

  Status read_resources(const json& list) {
    if (!list.is_array() || list.empty()) {
      return wrong(fmt::format("{} is not a list with something in it", kResources));
    }
    for (const json& entry : list) {
      if (!entry.is_object()) return wrong("a resource is not an object");
      FERRY_RETURN_IF_ERROR(read_resource(entry));
    }
    return check_unique();
  }

  Status read_resource(const json& entry) {
    const std::string full = FERRY_TRY(text_of(entry, kName));
    auto resource = FERRY_TRY(split_name(full));
    if (!file_name_.empty() && resource.name == ".") resource.name = file_name_;
    if (!is_canonical_name(resource.name)) {
      return wrong(
          fmt::format("the name {} is not a plain relative path", quoted(full, kShownName)));
    }
    const std::string algorithm = FERRY_TRY(text_of(entry, kAlgorithm));
    if (!is_algorithm(algorithm)) {
      return wrong(fmt::format("{} of {} is {}, not {}", kAlgorithm, quoted(full, kShownName),
                               quoted(algorithm, kShownName), name_of(statement_.hash)));
    }
    auto digest = from_hex(FERRY_TRY(text_of(entry, kDigest)));
    if (!digest || digest->size() != digest_bytes(statement_.hash)) {
      return wrong(fmt::format("the digest of {} is not a {} in lower-case hexadecimal digits",
                               quoted(full, kShownName), name_of(statement_.hash)));
    }
    resource.digest = *std::move(digest);
    statement_.resources.push_back(std::move(resource));
    return {};
  }

  // The reference implementation writes the size of shards into the name of the algorithm.
  bool is_algorithm(const std::string& text) const {
    const std::string_view hash = name_of(statement_.hash);
    if (text == hash) return true;
    return statement_.shard_size > 0 &&
           text == fmt::format("{}-sharded-{}", hash, statement_.shard_size);
  }

  // Splits "NAME" or, with shards, "NAME:BEGIN:END". NAME may have colons.
  Result<Resource> split_name(const std::string& full) const {
    if (statement_.shard_size == 0) return Resource{full, 0, 0, {}};
    const size_t last = full.rfind(':');
    const size_t first = last == full.npos || last == 0 ? full.npos : full.rfind(':', last - 1);
    if (first != full.npos) {
      const auto begin = read_decimal(std::string_view(full).substr(first + 1, last - first - 1));
      const auto end = read_decimal(std::string_view(full).substr(last + 1));
      if (begin && end && *begin < *end) return Resource{full.substr(0, first), *begin, *end, {}};
    }
    return wrong(fmt::format("the name {} does not end with the range of a shard",
                             quoted(full, kShownName)));
  }

  Status check_unique() const {
    using Key = std::tuple<std::string_view, uint64_t, uint64_t>;
    std::vector<Key> keys;
    for (const Resource& resource : statement_.resources) {
      keys.emplace_back(resource.name, resource.begin, resource.end);
    }
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice == keys.end()) return {};
    return wrong(fmt::format("it lists {} twice", quoted(std::get<0>(*twice))));
  }

  const std::string& name_;
  const std::string& file_name_;
  ModelStatement statement_;
};

}  // namespace

Result<ModelStatement> read_statement(std::string_view text, const std::string& name,
                                      const std::string& file_name) {
  const json statement = FERRY_TRY(parse_json(text, name + ": signed statement"));
  return StatementReader(name, file_name).read(statement);
}

namespace {

void write_resources(JsonWriter& out, const ModelStatement& statement) {
  out.key(kResources).begin_array();
  for (const Resource& resource : statement.resources) {
    out.begin_object();
    out.member(kName, full_name(resource, statement.shard_size > 0));
    out.member(kDigest, hex_of(resource.digest));
    out.member(kAlgorithm, name_of(statement.hash)).end_object();
  }
  out.end_array();
}

void write_serialization(JsonWriter& out, const ModelStatement& statement) {
  const bool shards = statement.shard_size > 0;
  out.key(kSerialization).begin_object();
  out.member(kMethod, shards ? kShards : kFiles);
  out.member(kHashType, name_of(statement.hash)).member(kAllowSymlinks, false);
  if (shards) out.member(kShardSize, statement.shard_size);
  out.key(kIgnorePaths).begin_array();
  for (const std::string& path : statement.ignore_paths) out.value(path);
  out.end_array().end_object();
}

}  // namespace

std::string full_name(const Resource& resource, bool shard) {
  if (!shard) return resource.name;
  return fmt::format("{}:{}:{}", resource.name, resource.begin, resource.end);
}

std::string root_digest(const std::vector<Resource>& resources) {
  Sha256 hash;
  for (const Resource& resource : resources) {
    hash.update(std::as_bytes(std::span(resource.digest)));
  }
  const Digest digest = hash.finish();
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string write_statement(const ModelStatement& statement) {
  JsonWriter out;
  out.begin_object().member(kType, kStatementV1);
  out.key(kSubject).begin_array().begin_object().member(kName, statement.model);
  out.key(kDigest).begin_object();
  out.member(kSha256Name, hex_of(root_digest(statement.resources)));
  out.end_object().end_object().end_array();
  out.member(kPredicateType, kModelSignature).key(kPredicate).begin_object();
  write_serialization(out, statement);
  write_resources(out, statement);
  out.end_object().end_object();
  std::string text = out.take();
  text.pop_back();  // removes the line end
  return text;
}

}  // namespace ferry::signing
