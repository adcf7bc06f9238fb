#include "graph/method_builder.h"

namespace ferry::graph {

int32_t MethodBuilder::operator_index(const pte::OpSchema& schema) {
  const auto next = static_cast<int32_t>(method_.operators.size());
  const auto [entry, fresh] = operators_.try_emplace(&schema, next);
  if (fresh) method_.operators.push_back({schema.name, schema.overload});
  return entry->second;
}

void MethodBuilder::call(const pte::OpSchema& schema, std::vector<int32_t> args,
                         const std::vector<int32_t>& outs) {
  const int32_t op = operator_index(schema);
  switch (schema.result) {
    case pte::ResultStyle::kRepeatSelf:
      args.push_back(args[0]);
      break;
    case pte::ResultStyle::kTrailingOut:
      args.push_back(outs[0]);
      break;
    case pte::ResultStyle::kRepeatOut: {
      const bool list = schema.args.back().kind == pte::ArgKind::kTensorList;
      if (list) {
        args.push_back(pool.add(pte::TensorList{outs}));
      } else {
        args.insert(args.end(), outs.begin(), outs.end());
      }
      const bool single = !list && outs.size() == 1;
      args.push_back(single ? outs[0] : pool.add(pte::TensorList{outs}));
      break;
    }
  }
  method_.instructions.emplace_back(pte::KernelCall{op, std::move(args)});
}

}  // namespace ferry::graph
