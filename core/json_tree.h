// JsonTree: builds a document from the events of a parser. For handlers of parse_json_events that
// want a tree of some parts and take the large rest as it comes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ferry {

class JsonTree {
 public:
  // The key of the value that comes next. False when the innermost object has it already.
  bool set_key(std::string key) {
    key_ = std::move(key);
    return !open_.back()->contains(key_);
  }
  const std::string& key() const { return key_; }
  void add(nlohmann::json value) { place(std::move(value)); }
  // `container` is an empty object or array; what is added next goes into it.
  void open(nlohmann::json container) { open_.push_back(place(std::move(container))); }
  void close() { open_.pop_back(); }
  nlohmann::json take() { return std::move(document_); }

 private:
  nlohmann::json* place(nlohmann::json value) {
    if (open_.empty()) return &(document_ = std::move(value));
    nlohmann::json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  nlohmann::json document_;
  // Outermost first. An element is added only to the innermost one, so no pointer is invalidated.
  std::vector<nlohmann::json*> open_;
  std::string key_;
};

}  // namespace ferry
