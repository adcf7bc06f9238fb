#include "text/chat_template/json_value.h"

#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "core/json_events.h"
#include "core/text.h"

namespace ferry::text::chat {
namespace {

class ValueReader final : public JsonHandler {
 public:
  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(int64_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > INT64_MAX) return refuse("an integer beyond 64 bit");
    return add(Value::integer(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string&) override { return add(Value::real(value)); }
  bool string(std::string& value) override { return add(Value::text(std::move(value))); }
  bool key(std::string& value) override {
    if (!open_.back().keys.insert(value).second) {
      return refuse(fmt::format("the key {} is there twice", quoted(value)));
    }
    open_.back().key = std::move(value);
    return true;
  }

  Value take() { return std::move(value_); }

 protected:
  bool begin_object() override { return begin(); }
  bool begin_array() override { return begin(); }
  bool close_object() override { return close(Value::dict(std::move(open_.back().members))); }
  bool close_array() override { return close(Value::list(std::move(open_.back().items))); }

 private:
  struct Container {
    std::string key;
    std::unordered_set<std::string> keys;
    std::vector<std::pair<std::string, Value>> members;
    std::vector<Value> items;
  };
  bool begin() {
    open_.emplace_back();
    return true;
  }
  bool close(Result<Value> value) {
    open_.pop_back();
    if (!value) return refuse(value.error().message);
    return add(std::move(*value));
  }
  bool add(Value value) {
    if (open_.empty()) {
      value_ = std::move(value);
    } else if (!open_.back().keys.empty()) {
      open_.back().members.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Container> open_;
  Value value_;
};

}  // namespace

Result<Value> parse_json_value(std::string_view json, const std::string& name) {
  ValueReader reader;
  FERRY_RETURN_IF_ERROR(parse_json_events(json, name, reader));
  return reader.take();
}

}  // namespace ferry::text::chat
