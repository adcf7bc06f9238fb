// Value is the value of an expression of a chat template, with the semantics of Python. Lists and
// dicts never change after they are made, as in the sandbox in which transformers runs templates,
// so they cannot contain themselves. Only a Namespace changes, and it cannot be an element of
// another value.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/result.h"

namespace ferry::text::chat {

struct Stmt;  // parser.h
class Value;

// Lists may be nested this deep.
inline constexpr int kMaxValueDepth = 140;
// The limit of the weight of one value: bytes of texts and number of elements, where a part that
// occurs twice counts twice. The size of the input has a limit of its own.
inline constexpr size_t kMaxValueWeight = size_t{64} << 20;

struct Undefined {
  std::string name;  // for error messages
};
struct None {};
struct List;
struct Dict;
struct Namespace;
struct Loop;
// A macro or, if `macro` is nullptr, the global function of this name.
struct Function {
  std::string name;
  const Stmt* macro = nullptr;
};

class Value {
 public:
  using Text = std::shared_ptr<const std::string>;
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<const Dict>;
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text, ListPtr, DictPtr,
                            std::shared_ptr<Namespace>, std::shared_ptr<const Loop>, Function>;

  Value() = default;  // an undefined value
  Value(Data data) : data_(std::move(data)) {}
  static Value none() { return Value(Data(None{})); }
  static Value undefined(std::string name) { return Value(Data(Undefined{std::move(name)})); }
  static Value boolean(bool b) { return Value(Data(b)); }
  static Value integer(int64_t n) { return Value(Data(n)); }
  static Value real(double d) { return Value(Data(d)); }
  static Value text(std::string s) {
    return Value(Data(Text(std::make_shared<const std::string>(std::move(s)))));
  }
  // kUnsupported for a value that cannot be an element; kBadInput beyond kMaxValueDepth or
  // kMaxValueWeight.
  static Result<Value> list(std::vector<Value> items, bool tuple = false);
  static Result<Value> dict(std::vector<std::pair<std::string, Value>> items);

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_text() const { return is<Text>(); }
  bool is_number() const { return is<int64_t>() || is<double>() || is<bool>(); }
  const Data& data() const { return data_; }
  // The caller must have checked the type with is<>().
  const std::string& str() const { return *std::get<Text>(data_); }
  const std::vector<Value>& items() const;
  const std::vector<std::pair<std::string, Value>>& members() const;
  // True for bool and int64_t, as in Python.
  bool is_integer() const { return is<int64_t>() || is<bool>(); }
  int64_t integer() const;
  double real() const;

  bool truth() const;
  // Returns Python's name of the type, such as "str" or "dict".
  std::string_view type() const;
  // Returns the number of bytes of a text, or of elements.
  size_t size() const;
  // Returns the size with all nested values, which is the cost of reading the value.
  size_t weight() const;
  int depth() const;

 private:
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool tuple;
  int depth;
  size_t weight;
};
struct Dict {
  std::vector<std::pair<std::string, Value>> items;  // in the order of insertion
  int depth;
  size_t weight;
  const Value* find(std::string_view key) const;
};
struct Namespace {
  std::map<std::string, Value, std::less<>> items;
};
// The state of the variable `loop`.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index;  // from 0
};

// -- conversions with the semantics of Python; false and kBadInput where Python raises

bool equal(const Value& a, const Value& b);
// Returns -1, 0 or 1.
Result<int> compare(const Value& a, const Value& b);
// to_text() is Python's str(), to_repr() its repr().
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  int64_t indent = -1;  // -1 for none
  std::string item_separator = ", ", key_separator = ": ";
};
// Implements json.dumps() of Python.
Result<std::string> to_json(const Value& value, const JsonStyle& style);

// Parses strict JSON. The members of objects keep their order. `name` begins error messages.
Result<Value> parse_json_value(std::string_view json, const std::string& name);

}  // namespace ferry::text::chat
