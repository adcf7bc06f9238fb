// Graphs and files for the tests of XNNPACK blobs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/pte/reader.h"
#include "formats/xnnpack/graph.h"
#include "tests/formats/program_files.h"

namespace ferry::xnnpack {

// A program of testdata/xnnpack, with the file that its spans point into.
struct OfficialProgram {
  explicit OfficialProgram(const std::string& name)
      : file(read_test_file("xnnpack/" + name + ".pte")),
        loaded(pte::read_program(file, name).value()) {}
  std::vector<std::byte> file;
  pte::LoadedProgram loaded;
};

inline Value plain(uint32_t id, std::vector<uint32_t> dims) {
  Value value;
  value.id = id;
  value.dims = std::move(dims);
  return value;
}
inline Value input(uint32_t id, std::vector<uint32_t> dims, uint32_t external) {
  Value value = plain(id, std::move(dims));
  value.external = external;
  value.is_input = true;
  return value;
}
inline Value output(uint32_t id, std::vector<uint32_t> dims, uint32_t external) {
  Value value = input(id, std::move(dims), external);
  std::swap(value.is_input, value.is_output);
  return value;
}

// A graph of one linear layer, 64 to 96 in groups of 32, with a bias.
inline Graph linear_graph() {
  Value rows = plain(1, {1, 8, 64});
  rows.datatype = Datatype::kQDInt8;
  rows.quantization = PerToken{1};
  Value filter = plain(2, {96, 64});
  filter.datatype = Datatype::kQBInt4;
  filter.constant = 1;
  filter.quantization = PerChannelGroup{0, 32, 2, 192};
  Value bias = plain(3, {96});
  bias.constant = 3;
  Graph graph;
  graph.values = {input(0, {1, 8, 64}, 0), rows, filter, bias, output(4, {1, 8, 96}, 1)};
  graph.nodes = {{NodeKind::kConvert, {0}, {1}}, {NodeKind::kFullyConnected, {1, 2, 3}, {4}}};
  graph.num_externals = 2;
  graph.constants = {{}, {"w", 0, 3072}, {"w.scales", 0, 384}, {"b", 0, 384}};
  return graph;
}

// A graph of one node of `kind`, from `from` to `to`.
inline Graph node_graph(NodeKind kind, const std::vector<std::vector<uint32_t>>& from,
                        std::vector<uint32_t> to) {
  Graph graph;
  Node node{.kind = kind};
  for (const auto& dims : from) {
    node.inputs.push_back(graph.num_externals);
    graph.values.push_back(input(graph.num_externals, dims, graph.num_externals));
    ++graph.num_externals;
  }
  node.outputs = {graph.num_externals};
  graph.values.push_back(output(graph.num_externals, std::move(to), graph.num_externals));
  ++graph.num_externals;
  graph.nodes = {std::move(node)};
  return graph;
}

}  // namespace ferry::xnnpack
