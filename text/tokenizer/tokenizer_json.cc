#include "text/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/json.h"
#include "core/json_tree.h"
#include "core/text.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {
namespace {

using nlohmann::json;

// Depths of the JSON: 1 the document, 2 `model`, 3 its vocabulary and merges, 4 a merge as a pair
// or a token with its score.
class DocumentReader final : public JsonHandler {
 public:
  explicit DocumentReader(TokenizerDocument& document) : document_(document) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(int64_t value) override { return number(value); }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool number_unsigned(uint64_t value) override {
    return place_ == Place::kVocab ? add_id(value) : number(value);
  }
  bool string(std::string& value) override {
    if (place_ == Place::kScores) return add_scored(value);
    return place_ == Place::kMerges ? add_merge_text(value) : scalar(std::move(value));
  }

  bool key(std::string& value) override {
    if (place_ == Place::kVocab) {
      document_.vocab.push_back({keep(value), 0});
      return true;
    }
    if (depth() == 1) part_ = value;
    if (tree_.set_key(std::move(value))) return true;
    return refuse(fmt::format("the key {} is there twice", quoted(tree_.key())));
  }

  json take() { return tree_.take(); }

 protected:
  bool begin_object() override {
    if (place_ == Place::kTree && is_table("vocab")) {
      return divert(Place::kVocab, document_.has_vocab);
    }
    return open(json::object());
  }
  bool begin_array() override {
    if (place_ == Place::kTree && is_table("merges")) {
      return divert(Place::kMerges, document_.has_merges);
    }
    if (place_ == Place::kTree && is_table("vocab")) {
      return divert(Place::kScores, document_.has_scores);
    }
    if (place_ != Place::kTree && depth() == 4) {
      pair_.clear();
      return true;
    }
    return open(json::array());
  }
  bool close_object() override { return close(); }
  bool close_array() override {
    if (place_ == Place::kTree || depth() != 3) return close();
    if (place_ == Place::kScores) return has_score() || refuse_scored();
    return pair_.size() == 2 ? add_merge({pair_[0], pair_[1]}) : refuse_merge();
  }

 private:
  enum class Place { kTree, kVocab, kScores, kMerges };

  bool is_table(std::string_view name) const {
    return depth() == 3 && part_ == "model" && tree_.key() == name;
  }
  bool divert(Place place, bool& seen) {
    place_ = place;
    seen = true;
    tree_.add(nullptr);
    return true;
  }

  template <class T>
  bool scalar(T&& value) {
    if (place_ == Place::kVocab) return refuse("model.vocab: an id is not a number of a token");
    if (place_ == Place::kScores) return refuse_scored();
    if (place_ == Place::kMerges) return refuse_merge();
    tree_.add(json(std::forward<T>(value)));
    return true;
  }
  template <class T>
  bool number(T value) {
    return place_ == Place::kScores ? add_score(static_cast<double>(value)) : scalar(value);
  }
  bool open(json container) {
    if (place_ != Place::kTree) return scalar(nullptr);
    tree_.open(std::move(container));
    return true;
  }
  bool close() {
    if (place_ == Place::kTree) tree_.close();
    place_ = Place::kTree;
    return true;
  }

  bool add_id(uint64_t id) {
    if (id > static_cast<uint64_t>(kMaxTokenId)) {
      return refuse(fmt::format("model.vocab: the id {} is beyond {}", id, kMaxTokenId));
    }
    document_.vocab.back().id = static_cast<uint32_t>(id);
    return true;
  }

  // Adds a token of [[token, score], ...], whose index is its id. `pair_` keeps it until the next
  // token begins.
  bool add_scored(std::string_view text) {
    const size_t id = document_.vocab.size();
    if (depth() != 4 || !pair_.empty() || id > static_cast<size_t>(kMaxTokenId)) {
      return refuse_scored();
    }
    pair_.push_back(keep(text));
    document_.vocab.push_back({pair_[0], static_cast<uint32_t>(id)});
    return true;
  }
  bool add_score(double score) {
    if (depth() != 4 || pair_.empty() || has_score()) return refuse_scored();
    document_.scores.push_back(score);
    return true;
  }
  bool has_score() const {
    return !pair_.empty() && document_.scores.size() == document_.vocab.size();
  }
  bool refuse_scored() {
    return refuse(
        fmt::format("model.vocab: number {} is not a token with a score", document_.scores.size()));
  }

  TokenizerDocument::Slice keep(std::string_view text) {
    const auto offset = static_cast<uint32_t>(document_.strings.size());
    document_.strings += text;
    return {offset, static_cast<uint32_t>(text.size())};
  }
  bool add_merge_text(std::string_view text) {
    if (depth() == 4) {
      if (pair_.size() == 2) return refuse_merge();
      pair_.push_back(keep(text));
      return true;
    }
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return refuse_merge();
    }
    const auto left = keep(text.substr(0, space));
    return add_merge({left, keep(text.substr(space + 1))});
  }
  bool add_merge(TokenizerDocument::Merge merge) {
    if (document_.merges.size() == kMaxMerges) {
      return refuse(fmt::format("model.merges: more than {}", kMaxMerges));
    }
    document_.merges.push_back(merge);
    return true;
  }
  bool refuse_merge() {
    return refuse(
        fmt::format("model.merges: number {} is not a pair of tokens", document_.merges.size()));
  }

  TokenizerDocument& document_;
  Place place_ = Place::kTree;
  std::string part_;  // the key in the document
  std::vector<TokenizerDocument::Slice> pair_;
  JsonTree tree_;
};

}  // namespace

Result<TokenizerDocument> parse_tokenizer_document(std::string_view text, const std::string& name) {
  if (text.size() > kMaxTokenizerFile) {
    return bad_input(fmt::format("{}: larger than {} bytes", name, kMaxTokenizerFile));
  }
  TokenizerDocument document;
  document.name = name;
  document.strings.reserve(text.size() / 2);
  DocumentReader reader(document);
  FERRY_RETURN_IF_ERROR(parse_json_events(text, name, reader));
  document.root = reader.take();
  return document;
}

// -- StepFields

Result<StepFields> StepFields::of(const json& value, std::string where) {
  if (!value.is_object()) return bad_input(where + ": not an object");
  StepFields fields;
  fields.object_ = &value;
  fields.where_ = std::move(where);
  return fields;
}

const json* StepFields::find(std::string_view key) {
  asked_.emplace_back(key);
  const auto at = object_->find(asked_.back());
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

Result<std::string> StepFields::text(std::string_view key) {
  const std::optional<std::string> found = FERRY_TRY(optional_text(key));
  if (!found) return bad(fmt::format("'{}' is missing", key));
  return *found;
}

Result<std::optional<std::string>> StepFields::optional_text(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return bad(fmt::format("'{}' is not a string", key));
  return std::optional(value->get<std::string>());
}

Result<bool> StepFields::flag(std::string_view key, bool fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return bad(fmt::format("'{}' is not true or false", key));
  return value->get<bool>();
}

Result<int64_t> StepFields::integer(std::string_view key, int64_t least, int64_t most) {
  const json* value = find(key);
  const bool sane =
      value != nullptr && value->is_number_integer() &&
      (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(most)) &&
      value->get<int64_t>() >= least && value->get<int64_t>() <= most;
  if (!sane) return bad(fmt::format("'{}' is not a number from {} to {}", key, least, most));
  return value->get<int64_t>();
}

Result<const json*> StepFields::array(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr || !value->is_array()) return bad(fmt::format("'{}' is not a list", key));
  return value;
}

Status StepFields::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (std::ranges::find(asked_, key) == asked_.end()) {
      return unsupported(fmt::format("the field {} is not supported", quoted(key, 60)));
    }
  }
  return {};
}

Failure StepFields::bad(std::string_view what) const {
  return bad_input(fmt::format("{}: {}", where_, what));
}

Failure StepFields::unsupported(std::string_view what) const {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", where_, what));
}

Failure StepFields::unknown_type(const std::string& type) const {
  return unsupported(fmt::format("the type {} is not supported", quoted(type, 60)));
}

namespace {

constexpr int kMaxNesting = 8;
constexpr size_t kMaxSteps = 64;

Status visit_steps(const json& value, const std::string& where, std::string_view list, int depth,
                   size_t& count, const StepVisitor& visit) {
  if (value.is_null()) return {};
  if (depth > kMaxNesting) return bad_input(where + ": nested too deeply");
  StepFields fields = FERRY_TRY(StepFields::of(value, where));
  const std::string type = FERRY_TRY(fields.text("type"));
  if (type == "Sequence") {
    for (const json& item : *FERRY_TRY(fields.array(list))) {
      FERRY_RETURN_IF_ERROR(visit_steps(item, where, list, depth + 1, count, visit));
    }
  } else {
    if (count++ == kMaxSteps) return fields.bad("too many steps");
    FERRY_RETURN_IF_ERROR(visit(fields, type));
  }
  return fields.finish();
}

}  // namespace

Status for_each_step(const json& value, const std::string& where, std::string_view list,
                     const StepVisitor& visit) {
  size_t count = 0;
  return visit_steps(value, where, list, 0, count, visit);
}

Result<StepPattern> read_pattern(StepFields& fields) {
  const json* value = fields.find("pattern");
  if (value == nullptr) return fields.bad("'pattern' is missing");
  StepFields pattern = FERRY_TRY(StepFields::of(*value, fields.where() + ": pattern"));
  const auto literal = FERRY_TRY(pattern.optional_text("String"));
  const auto regex = FERRY_TRY(pattern.optional_text("Regex"));
  FERRY_RETURN_IF_ERROR(pattern.finish());
  if (literal.has_value() == regex.has_value()) return pattern.bad("neither String nor Regex");
  StepPattern result{regex.has_value(), regex ? *regex : *literal};
  if (result.text.empty()) return pattern.bad("empty");
  if (result.text.size() > 4096) return pattern.bad("longer than 4096 bytes");
  return result;
}

}  // namespace ferry::text
