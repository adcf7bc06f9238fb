// Runs single operators in a program of one instruction.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "formats/pte/op_schema.h"
#include "formats/pte/program.h"
#include "formats/pte/reader.h"
#include "kernels/dtypes.h"
#include "runner/method.h"

namespace ferry::runner {

// A tensor with its values as doubles, whatever the dtype.
struct Values {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<double> values = {};
};

inline Values f32(Shape shape, std::vector<double> values) {
  return {DType::kF32, std::move(shape), std::move(values)};
}
inline Values i64(Shape shape, std::vector<double> values) {
  return {DType::kI64, std::move(shape), std::move(values)};
}
inline Values boolean(Shape shape, std::vector<double> values) {
  return {DType::kBool, std::move(shape), std::move(values)};
}

struct NoValue {};
using TensorArgs = std::vector<std::optional<Values>>;
using Arg = std::variant<NoValue, int64_t, bool, double, std::string, Values, std::vector<int64_t>,
                         TensorArgs>;
inline Arg integer(int64_t value) { return value; }
inline Arg ints(std::vector<int64_t> values) { return values; }

inline std::vector<std::byte> encode(const Values& tensor) {
  const int64_t width = dtype_bytes(tensor.dtype);
  std::vector<std::byte> bytes(tensor.values.size() * static_cast<size_t>(width));
  kernels::store(tensor.dtype, tensor.values.data(), bytes.data(),
                 static_cast<int64_t>(tensor.values.size()));
  return bytes;
}

inline Values decode(const TensorView& view) {
  const size_t count = view.bytes.size() / static_cast<size_t>(dtype_bytes(view.dtype));
  Values out{view.dtype, view.shape, std::vector<double>(count)};
  kernels::load(view.dtype, view.bytes.data(), out.values.data(), static_cast<int64_t>(count));
  return out;
}

// Builds a program in memory, with one method `forward` without inputs. Memory 1 is planned tensor
// by tensor.
class ProgramBuilder {
 public:
  ProgramBuilder() {
    loaded_.program.methods.resize(1);
    method().name = "forward";
    method().memory_bytes = {0, 0};
    loaded_.data.constants.resize(1);
    loaded_.data.initial.resize(1);
  }

  pte::Method& method() { return loaded_.program.methods[0]; }
  pte::LoadedProgram& loaded() { return loaded_; }
  pte::Tensor& tensor(int32_t id) { return std::get<pte::Tensor>(method().values[id]); }

  int32_t add(pte::Value value) {
    method().values.push_back(std::move(value));
    return static_cast<int32_t>(method().values.size()) - 1;
  }
  int32_t constant(const Values& values) {
    pte::Tensor tensor = describe(values.dtype, values.shape);
    tensor.data_index = static_cast<uint32_t>(loaded_.data.constants.size());
    loaded_.data.constants.push_back(storage_.emplace_back(encode(values)));
    return add(std::move(tensor));
  }
  int32_t planned(DType dtype, const Shape& shape,
                  pte::Dynamism dynamism = pte::Dynamism::kStatic) {
    pte::Tensor tensor = describe(dtype, shape);
    tensor.dynamism = dynamism;
    uint64_t& used = method().memory_bytes[1];
    tensor.allocation = {1, used};
    used = (used + *pte::tensor_bytes(tensor) + 63) / 64 * 64;
    return add(std::move(tensor));
  }
  int32_t initialised(const Values& values) {
    const int32_t id = planned(values.dtype, values.shape);
    tensor(id).data_index = static_cast<uint32_t>(loaded_.data.initial.size());
    loaded_.data.initial.push_back(storage_.emplace_back(encode(values)));
    return id;
  }
  int32_t unplanned(DType dtype, const Shape& shape,
                    pte::Dynamism dynamism = pte::Dynamism::kStatic) {
    pte::Tensor tensor = describe(dtype, shape);
    tensor.dynamism = dynamism;
    return add(std::move(tensor));
  }
  int32_t int_list(const std::vector<int64_t>& values) {
    pte::IntList list;
    for (int64_t value : values) list.items.push_back(add(value));
    return add(std::move(list));
  }
  int32_t argument(const Arg& arg) {
    if (const auto* v = std::get_if<int64_t>(&arg)) return add(*v);
    if (const auto* v = std::get_if<bool>(&arg)) return add(*v);
    if (const auto* v = std::get_if<double>(&arg)) return add(*v);
    if (const auto* v = std::get_if<std::string>(&arg)) return add(*v);
    if (const auto* v = std::get_if<Values>(&arg)) return constant(*v);
    if (const auto* v = std::get_if<std::vector<int64_t>>(&arg)) return int_list(*v);
    if (const auto* v = std::get_if<TensorArgs>(&arg)) return tensor_list(*v);
    return add(pte::None{});
  }

  // Appends a call. `args` are value indices without the repeated result, which follows from the
  // operator's schema.
  void call(const std::string& name, std::vector<int32_t> args) {
    const pte::OpSchema& schema = *pte::find_op_schema(name);
    pte::TensorList outs;
    for (size_t i = 0; i < schema.args.size(); ++i) {
      if (schema.args[i].out) outs.items.push_back(args[i]);
    }
    if (schema.result == pte::ResultStyle::kRepeatSelf) args.push_back(args[0]);
    if (schema.result == pte::ResultStyle::kRepeatOut) {
      args.push_back(outs.items.size() == 1 ? outs.items[0] : add(outs));
    }
    method().operators.push_back({schema.name, schema.overload});
    const auto op = static_cast<int32_t>(method().operators.size()) - 1;
    method().instructions.push_back(pte::KernelCall{op, std::move(args)});
  }

  Result<Method> load(MethodOptions options = {},
                      const std::vector<ExternalTensor>& external = {}) {
    return Method::load(loaded_, "forward", external, pool_, options, "test.pte");
  }

 private:
  static pte::Tensor describe(DType dtype, const Shape& shape) {
    pte::Tensor tensor;
    tensor.dtype = dtype;
    for (size_t i = 0; i < shape.size(); ++i) {
      tensor.sizes.push_back(static_cast<int32_t>(shape[i]));
      tensor.dim_order.push_back(static_cast<uint8_t>(i));
    }
    return tensor;
  }
  int32_t tensor_list(const TensorArgs& items) {
    pte::OptionalTensorList list;
    for (const auto& item : items) list.items.push_back(item ? constant(*item) : -1);
    return add(std::move(list));
  }

  pte::LoadedProgram loaded_;
  std::deque<std::vector<std::byte>> storage_;
  ThreadPool pool_{2};
};

// Computes `name` from `args` into outs of the declared dtypes and shapes.
inline Result<std::vector<Values>> run_op(const std::string& name, const std::vector<Arg>& args,
                                          const std::vector<Values>& outs) {
  ProgramBuilder program;
  std::vector<int32_t> ids;
  for (const Arg& arg : args) ids.push_back(program.argument(arg));
  const pte::OpSchema& schema = *pte::find_op_schema(name);
  const bool list = schema.args.back().kind == pte::ArgKind::kTensorList;
  for (const Values& out : outs) {
    program.method().outputs.push_back(program.planned(out.dtype, out.shape));
  }
  if (list) {
    ids.push_back(program.add(pte::TensorList{program.method().outputs}));
  } else {
    ids.insert(ids.end(), program.method().outputs.begin(), program.method().outputs.end());
  }
  program.call(name, ids);
  Method method = FERRY_TRY(program.load({.poison = true}));
  FERRY_RETURN_IF_ERROR(method.execute());
  std::vector<Values> results;
  for (size_t i = 0; i < outs.size(); ++i) results.push_back(decode(method.output(i)));
  return results;
}

// Returns the message of the error that the operator ends with; empty if there is none.
inline std::string op_error(const std::string& name, const std::vector<Arg>& args,
                            const std::vector<Values>& outs) {
  const auto result = run_op(name, args, outs);
  return result ? "" : result.error().message;
}

}  // namespace ferry::runner
