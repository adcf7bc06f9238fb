// The values of a method under construction; constants among them are made once. Not a public
// header.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "formats/pte/program.h"

namespace ferry::graph {

class ValuePool {
 public:
  // A value of its own, that instructions may write.
  int32_t add(pte::Value value) {
    values_.push_back(std::move(value));
    return static_cast<int32_t>(values_.size()) - 1;
  }
  // The one value that holds a constant; no instruction may write it.
  int32_t none() { return intern(none_, 0, pte::None{}); }
  int32_t constant(int64_t number) { return intern(ints_, number, number); }
  int32_t constant(bool flag) { return intern(bools_, flag, flag); }
  int32_t constant(double number) {
    return intern(doubles_, std::bit_cast<uint64_t>(number), number);
  }
  int32_t constant(const std::string& word) { return intern(words_, word, word); }
  // `items` are values.
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

}  // namespace ferry::graph
