#include "core/json.h"

#include <fmt/format.h>

#include <vector>

#include "core/json_events.h"
#include "core/text.h"

namespace ferry {
namespace {

using nlohmann::json;

class DocumentBuilder final : public JsonHandler {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }

  bool key(std::string& value) override {
    key_ = std::move(value);
    if (!open_.back()->contains(key_)) return true;
    return refuse(fmt::format("the key {} is there twice", quoted(key_)));
  }

  json take() { return std::move(document_); }

 protected:
  bool begin_object() override { return open(json::object()); }
  bool begin_array() override { return open(json::array()); }
  bool close_object() override { return close(); }
  bool close_array() override { return close(); }

 private:
  json* place(json value) {
    if (open_.empty()) return &(document_ = std::move(value));
    json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  template <class T>
  bool add(T&& value) {
    place(json(std::forward<T>(value)));
    return true;
  }

  bool open(json container) {
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  json document_;
  // Outermost first. An element is added only to the innermost one, so no pointer is invalidated.
  std::vector<json*> open_;
  std::string key_;
};

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& name) {
  DocumentBuilder builder;
  FERRY_CHECK(parse_json_events(text, name, builder));
  return builder.take();
}

}  // namespace ferry
