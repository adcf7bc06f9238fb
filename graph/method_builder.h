// A method under construction: values, and instructions that follow the schemas of their operators.
// This is not a public header.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/pte/op_schema.h"
#include "formats/pte/program.h"

namespace ferry::graph {

// The values of a method under construction. Each constant is stored once.
class ValuePool {
 public:
  // Adds a distinct value, which instructions may write.
  int32_t add(pte::Value value) {
    values_.push_back(std::move(value));
    return static_cast<int32_t>(values_.size()) - 1;
  }
  // Returns the only value of a constant. No instruction may write it.
  int32_t none() { return intern(none_, 0, pte::None{}); }
  int32_t constant(int64_t number) { return intern(ints_, number, number); }
  int32_t constant(bool flag) { return intern(bools_, flag, flag); }
  int32_t constant(double number) {
    return intern(doubles_, std::bit_cast<uint64_t>(number), number);
  }
  int32_t constant(const std::string& word) { return intern(words_, word, word); }
  // `items` are indices of values.
  int32_t int_list(const std::vector<int32_t>& items) {
    return intern(int_lists_, items, pte::IntList{items});
  }

  pte::Tensor& tensor(int32_t index) {
    return std::get<pte::Tensor>(values_[static_cast<size_t>(index)]);
  }
  std::vector<pte::Value> take() { return std::move(values_); }

 private:
  template <class Key, class Held>
  int32_t intern(std::map<Key, int32_t>& known, const Key& key, Held held) {
    const auto [entry, fresh] = known.try_emplace(key, 0);
    if (fresh) entry->second = add(pte::Value(std::move(held)));
    return entry->second;
  }

  std::vector<pte::Value> values_;
  std::map<int, int32_t> none_;
  std::map<int64_t, int32_t> ints_;
  std::map<bool, int32_t> bools_;
  std::map<uint64_t, int32_t> doubles_;  // by bits: -0.0 is not 0.0
  std::map<std::string, int32_t> words_;
  std::map<std::vector<int32_t>, int32_t> int_lists_;
};

class MethodBuilder {
 public:
  ValuePool pool;

  // Appends a call. `args` are the schema's arguments before its outs. The outs are appended, and
  // the repeated result (op_schema.h, ResultStyle).
  void call(const pte::OpSchema& schema, std::vector<int32_t> args,
            const std::vector<int32_t>& outs);
  void move(int32_t from, int32_t to) {
    method_.instructions.emplace_back(pte::MoveCall{from, to});
  }
  void jump_if_false(int32_t condition, int32_t destination) {
    method_.instructions.emplace_back(pte::JumpFalseCall{condition, destination});
  }
  // Appends a call of a delegate, which is added to the method.
  void delegate(pte::Delegate delegate, std::vector<int32_t> args) {
    method_.delegates.push_back(std::move(delegate));
    method_.instructions.emplace_back(
        pte::DelegateCall{static_cast<int32_t>(method_.delegates.size()) - 1, std::move(args)});
  }
  // Returns the index of the next instruction.
  int32_t here() const { return static_cast<int32_t>(method_.instructions.size()); }
  std::vector<int32_t>& inputs() { return method_.inputs; }
  std::vector<int32_t>& outputs() { return method_.outputs; }

  pte::Method take() {
    method_.values = pool.take();
    return std::move(method_);
  }

 private:
  int32_t operator_index(const pte::OpSchema& schema);

  pte::Method method_;
  std::map<const pte::OpSchema*, int32_t> operators_;  // for lookups only, never iterated
};

}  // namespace ferry::graph
