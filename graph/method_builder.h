// A method under construction: values, and instructions that follow the schemas of their operators.
// Not a public header.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "formats/pte/op_schema.h"
#include "formats/pte/program.h"
#include "graph/value_pool.h"

namespace ferry::graph {

class MethodBuilder {
 public:
  ValuePool pool;

  // Appends a call. `args` are the schema's arguments before its outs; `outs` have their places
  // appended, and the repeated result (op_schema.h, ResultStyle).
  void call(const pte::OpSchema& schema, std::vector<int32_t> args,
            const std::vector<int32_t>& outs);
  void move(int32_t from, int32_t to) {
    method_.instructions.emplace_back(pte::MoveCall{from, to});
  }
  void jump_if_false(int32_t condition, int32_t destination) {
    method_.instructions.emplace_back(pte::JumpFalseCall{condition, destination});
  }
  // A call of a delegate of its own.
  void delegate(pte::Delegate delegate, std::vector<int32_t> args) {
    method_.delegates.push_back(std::move(delegate));
    method_.instructions.emplace_back(
        pte::DelegateCall{static_cast<int32_t>(method_.delegates.size()) - 1, std::move(args)});
  }
  // Number of the next instruction.
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
  std::map<const pte::OpSchema*, int32_t> operators_;  // looked up, never iterated
};

}  // namespace ferry::graph
