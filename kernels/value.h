// Value is one entry of a method's value table at run time. Its kind never changes after loading.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace ferry::kernels {

// A Python scalar: Int, Bool or Double.
struct Number {
  enum class Kind : uint8_t { kBool, kInt, kDouble };
  Kind kind = Kind::kInt;
  int64_t integer = 0;  // for a Bool 0 or 1
  double real = 0;      // always valid

  static Number of_int(int64_t v) { return {Kind::kInt, v, static_cast<double>(v)}; }
  static Number of_bool(bool v) { return {Kind::kBool, v ? 1 : 0, v ? 1.0 : 0.0}; }
  static Number of_double(double v) { return {Kind::kDouble, 0, v}; }
  bool is_real() const { return kind == Kind::kDouble; }
};

struct Value {
  enum class Kind : uint8_t {
    kNone,
    kInt,
    kBool,
    kDouble,
    kTensor,
    kString,
    kIntList,  // items: Int values
    kBoolList,
    kDoubleList,  // items: Double values
    kTensorList,
    kOptionalTensorList,  // items may be null
  };
  Kind kind = Kind::kNone;
  bool boolean = false;
  int32_t id = -1;
  int64_t integer = 0;
  double real = 0;
  Tensor* tensor = nullptr;
  std::vector<Value*> items = {};
  std::string text = {};

  bool is_number() const {
    return kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kDouble;
  }
  Number number() const {
    if (kind == Kind::kDouble) return Number::of_double(real);
    return kind == Kind::kBool ? Number::of_bool(boolean) : Number::of_int(integer);
  }
};

}  // namespace ferry::kernels
