// Lowers graphs for tests, and reads what it lowered.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "formats/pte/reader.h"
#include "formats/pte/writer.h"
#include "graph/lower.h"

namespace ferry::graph {

// Lowers the graphs and checks that the program is equal after writing and reading.
inline LoweredProgram lowered(const std::vector<MethodGraph>& methods,
                              const std::vector<MetadataMethod>& metadata = {}) {
  auto program = lower(methods, metadata);
  EXPECT_TRUE(program) << program.error().message;
  if (!program) return {};
  const auto layout = pte::plan_program(program->program, program->sizes);
  EXPECT_TRUE(layout) << layout.error().message;
  std::vector<std::byte> file = layout->head;
  file.resize(layout->file_bytes);
  const auto read = pte::read_program(file, "lowered.pte");
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->program, program->program);
  return *std::move(program);
}

inline const pte::Tensor& tensor(const pte::Method& method, int32_t value) {
  return std::get<pte::Tensor>(method.values[static_cast<size_t>(value)]);
}

}  // namespace ferry::graph
