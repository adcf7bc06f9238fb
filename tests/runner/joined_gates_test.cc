// Gates of MLPs have the same bits as one step and as the steps that a program states. They are
// stated steps wherever a program could see the difference.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runner/method_testing.h"

namespace ferry::runner::joined_gates_test {
namespace {

constexpr int64_t kRows = 5, kColumns = 1077;

enum class Activation { kSilu, kGelu, kGeluTanh };

// How the program differs from a gate whose values nothing else reads.
enum class Use {
  kPlain,
  kSwapped,       // the factors of both products
  kOneRow,        // the other factor has one row
  kUpRead,        // another operator reads the other factor in f32
  kInPlace,       // the result is written over the values of the gate
  kActiveRead,    // another operator reads the activation
  kActiveOutput,  // the activation is an output
  kOverwritten,   // the values of the gate are written before the last product
  kLate,          // the other factor is computed after the product that reads it
  kSquare         // the activation is multiplied with itself
};

class Gate {
 public:
  Gate(DType dtype, Activation activation, Use use) : dtype_(dtype), use_(use) {
    const int32_t gate_stored = stored(kRows, 1.7), up_stored = stored(rows_of_up(), 0.6);
    const int32_t gate = widened(gate_stored, kRows);
    int32_t up = planned(DType::kF32, rows_of_up());
    if (use != Use::kLate) widen(up_stored, up);
    active = activated(activation, gate);
    if (use == Use::kOverwritten) program.call("aten::neg.out", {active, gate_source_});
    int32_t out = use == Use::kInPlace ? gate : planned(DType::kF32, kRows);
    multiply(active, use == Use::kSquare ? active : up, out);
    if (use == Use::kLate) widen(up_stored, up);
    if (dtype != DType::kF32) out = narrowed(out);
    program.method().outputs = {out};
    if (use == Use::kActiveOutput) program.method().outputs.push_back(active);
    if (use == Use::kActiveRead) also_read(active, kRows);
    if (use == Use::kUpRead) also_read(up, rows_of_up());
  }

  Method load(bool literal) { return *program.load({.poison = true, .literal = literal}); }
  // Returns whether the activation was computed.
  bool stated(const Method& method) const {
    return !std::isnan(decode(*method.value(active)).values.front());
  }

  ProgramBuilder program;
  int32_t active = 0;  // the activation of the gate

 private:
  int64_t rows_of_up() const { return use_ == Use::kOneRow ? 1 : kRows; }
  int32_t planned(DType dtype, int64_t rows) { return program.planned(dtype, {rows, kColumns}); }

  int32_t stored(int64_t rows, double step) {
    Values values{dtype_, {rows, kColumns}};
    for (int64_t i = 0; i < rows * kColumns; ++i) {
      values.values.push_back(5 * std::sin(step * static_cast<double>(i * i)));
    }
    return program.initialised(values);
  }
  void cast(int32_t value, int32_t out) {
    program.call("aten::_to_copy.out", {value, program.add(false), program.add(pte::None{}), out});
  }
  void widen(int32_t value, int32_t out) {
    if (dtype_ == DType::kF32) {
      program.call("aten::neg.out", {value, out});
    } else {
      cast(value, out);
    }
  }
  int32_t widened(int32_t value, int64_t rows) {
    gate_source_ = value;
    if (dtype_ == DType::kF32) return value;
    const int32_t out = planned(DType::kF32, rows);
    cast(value, out);
    gate_source_ = out;
    return out;
  }
  int32_t narrowed(int32_t value) {
    const int32_t out = planned(dtype_, kRows);
    cast(value, out);
    return out;
  }
  void multiply(int32_t a, int32_t b, int32_t out) {
    if (use_ == Use::kSwapped) std::swap(a, b);
    program.call("aten::mul.out", {a, b, out});
  }
  int32_t activated(Activation activation, int32_t gate) {
    const int32_t out = planned(DType::kF32, kRows);
    if (activation != Activation::kSilu) {
      const char* approximate = activation == Activation::kGelu ? "none" : "tanh";
      program.call("aten::gelu.out", {gate, program.add(std::string(approximate)), out});
      return out;
    }
    const int32_t sigmoid = planned(DType::kF32, kRows);
    program.call("aten::sigmoid.out", {gate, sigmoid});
    multiply(gate, sigmoid, out);
    return out;
  }
  void also_read(int32_t value, int64_t rows) {
    program.method().outputs.push_back(planned(DType::kF32, rows));
    program.call("aten::neg.out", {value, program.method().outputs.back()});
  }

  DType dtype_;
  Use use_;
  int32_t gate_source_ = 0;
};

class JoinedGates : public testing::TestWithParam<DType> {
 protected:
  static void expect(Use use, bool joined) {
    for (const Activation activation :
         {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(use)) + " " +
                   std::to_string(static_cast<int>(activation)));
      Gate gate(GetParam(), activation, use);
      Method stated = gate.load(true), method = gate.load(false);
      for (int call = 0; call < 2; ++call) expect_same_outputs(method, stated);
      EXPECT_EQ(gate.stated(method), !joined);
      EXPECT_TRUE(gate.stated(stated));
    }
  }
};

TEST_P(JoinedGates, HaveTheBitsOfTheirSteps) {
  for (const Use use : {Use::kPlain, Use::kSwapped, Use::kOneRow, Use::kUpRead, Use::kInPlace}) {
    expect(use, true);
  }
}

TEST_P(JoinedGates, AreStepsWhereThatCouldBeTold) {
  for (const Use use : {Use::kActiveRead, Use::kActiveOutput, Use::kOverwritten, Use::kSquare}) {
    expect(use, false);
  }
  // Only a cast would be taken.
  if (GetParam() != DType::kF32) expect(Use::kLate, false);
}

TEST_P(JoinedGates, AreStepsForAnObserver) {
  Gate gate(GetParam(), Activation::kSilu, Use::kPlain);
  Method stated = gate.load(true), method = gate.load(false);
  expect_observable(method, stated, gate.active);
}

INSTANTIATE_TEST_SUITE_P(DTypes, JoinedGates,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& each) { return std::string(dtype_name(each.param)); });

}  // namespace
}  // namespace ferry::runner::joined_gates_test
