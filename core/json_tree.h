// JsonTree builds a document from the events of a parser. It is for handlers of parse_json_events
// that want some parts as a tree and the large rest as events.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ferry {

class JsonTree {
 public:
  // Sets the key of the next value. Returns false if the innermost object has that key already.
  bool set_key(std::string key) {
    key_ = std::move(key);
    return !open_.back()->contains(key_);
  }
  const std::string& key() const { return key_; }
  void add(nlohmann::json value) { place(std::move(value)); }
  // Opens `container`, an empty object or array, to which the next values are added.
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
  // The open containers, outermost first. Elements are added only to the innermost one, so no
  // pointer becomes invalid.
  std::vector<nlohmann::json*> open_;
  std::string key_;
};

}  // namespace ferry
