// Cases of the builder's inference: each makes one value and states its type.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/dims.h"

namespace ferry::graph {

inline constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// A builder with a symbol T of at most 8 for the number of tokens, and a start position.
struct Fixture {
  GraphBuilder b{2};
  int32_t symbol = 0;
  Dim t;
  ValueId tokens, count, start, end;

  Fixture() {
    symbol = b.symbol("T", 8, {});
    t = Dim::of(symbol);
    tokens = b.input("tokens", DType::kI64, {1, t});
    count = b.sym_size(tokens, 1);
    b.bind_symbol(symbol, count);
    start = b.item(b.input("input_pos", DType::kI64, {1}));
    end = b.int_add(start, count);
  }
  ValueId f32(Dims shape) { return of(DType::kF32, std::move(shape)); }
  ValueId of(DType dtype, Dims shape) {
    return b.input("x" + std::to_string(next++), dtype, std::move(shape));
  }
  int next = 0;
};

struct Case {
  const char* fact;
  std::function<ValueId(Fixture&)> make;
  std::string type;  // empty: the builder refuses the call
};

inline std::string type_of(const Graph& graph, ValueId id) {
  if (graph[id].kind == Value::Kind::kInt) return "int";
  return to_text(graph, graph[id].dtype, graph[id].shape);
}

inline void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Fixture f;
    const ValueId id = c.make(f);
    f.b.probe("result", id);
    const Result<Graph> graph = f.b.finish();
    if (c.type.empty()) {
      EXPECT_FALSE(graph.has_value()) << c.fact;
      if (!graph) {
        EXPECT_EQ(graph.error().code, ErrorCode::kInternal) << c.fact;
      }
    } else {
      ASSERT_TRUE(graph.has_value()) << c.fact << ": " << graph.error().message;
      EXPECT_EQ(type_of(*graph, graph->probes[0].value), c.type) << c.fact;
    }
  }
}

}  // namespace ferry::graph
