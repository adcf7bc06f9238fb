#include "core/json.h"

#include <fmt/format.h>

#include "core/json_events.h"
#include "core/json_tree.h"
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
    if (tree_.set_key(std::move(value))) return true;
    return refuse(fmt::format("the key {} is there twice", quoted(tree_.key())));
  }

  json take() { return tree_.take(); }

 protected:
  bool begin_object() override { return open(json::object()); }
  bool begin_array() override { return open(json::array()); }
  bool close_object() override { return close(); }
  bool close_array() override { return close(); }

 private:
  template <class T>
  bool add(T&& value) {
    tree_.add(json(std::forward<T>(value)));
    return true;
  }

  bool open(json container) {
    tree_.open(std::move(container));
    return true;
  }

  bool close() {
    tree_.close();
    return true;
  }

  JsonTree tree_;
};

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& name) {
  DocumentBuilder builder;
  FERRY_RETURN_IF_ERROR(parse_json_events(text, name, builder));
  return builder.take();
}

}  // namespace ferry
