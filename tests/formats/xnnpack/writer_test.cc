// Blobs of the XNNPACK backend: a blob of the exporter means what its own schema states, and is
// equal after our writer. Damage is refused or harmless.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/reader.h"
#include "formats/xnnpack/validate.h"
#include "formats/xnnpack/writer.h"
#include "tests/formats/xnnpack_graphs.h"

namespace ferry::xnnpack::writer_test {
namespace {

using Json = nlohmann::json;

const char* const kPrograms[] = {"linear_8da4w_g32_bias", "linear_8da8w_pc_ext", "linear_pt2e_qc4w",
                                 "ffn_8da4w_g32", "llama_8da4w_e4_ext"};

Quantization quantization_of(const Json& value) {
  if (!value.contains("quant_params")) return std::monostate();
  const std::string type = value["quant_params_type"];
  const Json& q = value["quant_params"];
  if (type == "PerTokenDynamicQuant") return PerToken{q["num_nonbatch_dims"]};
  if (type == "PerChannelQuant") {
    return PerChannel{q["channel_dim"], q["scale_buffer_idx"], q["num_scales"]};
  }
  return PerChannelGroup{q["channel_dim"], q["group_size"], q["scale_buffer_idx"], q["num_scales"]};
}

void expect_value(const Value& value, const Json& entry) {
  const Json& stated = entry["xvalue_union"];
  const bool quantized = entry["xvalue_union_type"] == "XNNQuantizedTensorValue";
  const Json& tensor = quantized ? stated["tensor_value"] : stated;
  EXPECT_EQ("xnn_datatype_" + datatype_name(value.datatype), tensor["datatype"]);
  EXPECT_EQ(Json(value.dims), tensor["dims"]);
  EXPECT_EQ(value.constant, tensor["constant_buffer_idx"]);
  EXPECT_EQ(value.external, tensor["external_id"]);
  EXPECT_EQ((value.is_input ? 1 : 0) + (value.is_output ? 2 : 0), tensor["flags"]);
  EXPECT_EQ(value.id, tensor["id_out"]);
  EXPECT_EQ(value.quantization, quantization_of(stated));
}

void expect_node(const Node& node, const Json& entry) {
  const Json& stated = entry["xnode_union"];
  EXPECT_EQ("XNN" + node_name(node.kind), entry["xnode_union_type"]);
  EXPECT_EQ(node.debug_handle, entry["debug_handle"]);
  std::vector<uint32_t> inputs;
  for (const char* field : {"input_id", "input1_id", "filter_id", "bias_id", "input2_id"}) {
    if (stated.contains(field)) inputs.push_back(stated[field]);
  }
  EXPECT_EQ(node.inputs, inputs);
  EXPECT_EQ(node.outputs, std::vector<uint32_t>{stated["output_id"]});
  EXPECT_EQ(node.flags, stated["flags"]);
  const std::vector<int64_t> none, numbers = stated.value("new_shape", none);
  if (stated.contains("axis")) {
    EXPECT_EQ(node.numbers, std::vector<int64_t>{stated["axis"]});
  } else {
    EXPECT_EQ(node.numbers, numbers);
  }
}

void expect_graph(const Graph& graph, const Json& stated) {
  EXPECT_EQ(graph.num_externals, stated["num_externs"]);
  ASSERT_EQ(graph.values.size(), stated["xvalues"].size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    expect_value(graph.values[i], stated["xvalues"][i]);
  }
  ASSERT_EQ(graph.nodes.size(), stated["xnodes"].size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) expect_node(graph.nodes[i], stated["xnodes"][i]);
  ASSERT_EQ(graph.constants.size(), stated["constant_data"].size());
  for (size_t i = 0; i < graph.constants.size(); ++i) {
    EXPECT_EQ(graph.constants[i].key, stated["constant_data"][i]["named_key"]);
    EXPECT_EQ(graph.constants[i].bytes, stated["constant_data"][i]["size"]);
  }
}

TEST(XnnpackBlob, OfficialBlobsMeanWhatTheirSchemaSays) {
  const auto text = read_test_file("xnnpack/graphs.json");
  const Json all = Json::parse(reinterpret_cast<const char*>(text.data()),
                               reinterpret_cast<const char*>(text.data() + text.size()));
  for (const char* name : kPrograms) {
    const OfficialProgram program(name);
    for (size_t i = 0; i < all[name].size(); ++i) {
      SCOPED_TRACE(fmt::format("{} {}", name, i));
      const auto graph = read_blob(program.loaded.data.delegates[i], "blob");
      ASSERT_TRUE(graph) << graph.error().message;
      expect_graph(*graph, all[name][i]);
    }
  }
}

TEST(XnnpackBlob, OfficialBlobsSurviveOurWriter) {
  size_t blobs = 0;
  for (const char* name : kPrograms) {
    const OfficialProgram program(name);
    for (const auto& official : program.loaded.data.delegates) {
      const auto graph = read_blob(official, name);
      ASSERT_TRUE(graph) << graph.error().message;
      const auto ours = write_blob(*graph);
      ASSERT_TRUE(ours) << ours.error().message;
      EXPECT_LE(ours->size(), official.size());
      EXPECT_EQ(std::memcmp(ours->data(), official.data(), 14), 0);
      const auto again = read_blob(*ours, name);
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(*again, *graph);
      ++blobs;
    }
  }
  EXPECT_EQ(blobs, 30u);
}

TEST(XnnpackBlob, ReadsFromAnyAddress) {
  const auto blob = write_blob(linear_graph()).value();
  for (size_t shift = 0; shift < 16; ++shift) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), blob.begin(), blob.end());
    EXPECT_EQ(read_blob(std::span(moved).subspan(shift), "blob").value(), linear_graph());
  }
}

// docs/xnnpack_blob.md describes the layout.
TEST(XnnpackBlob, HasTheHeaderOfTheExporter) {
  const auto blob = write_blob(linear_graph()).value();
  const auto at = [&](size_t offset, size_t size) {
    uint64_t out = 0;
    std::memcpy(&out, blob.data() + offset, size);
    return out;
  };
  EXPECT_EQ(at(0, 4), 0u);
  EXPECT_EQ(std::memcmp(blob.data() + 4, "XH00", 4), 0);
  EXPECT_EQ(at(8, 2), 30u);
  EXPECT_EQ(at(10, 4), 32u);
  EXPECT_EQ(at(18, 4), blob.size());
  EXPECT_EQ(at(22, 8), 0u);
  EXPECT_EQ(blob.size() % 16, 0u);
  EXPECT_EQ(std::memcmp(blob.data() + 36, "XN01", 4), 0);
  EXPECT_EQ(write_blob(linear_graph()).value(), blob);
}

// Constants without a key are inside the blob. The exporter once wrote them so.
TEST(XnnpackBlob, FindsConstantsInTheBlob) {
  const auto blob = read_test_file("xnnpack/linear_inside.blob");
  const auto graph = read_blob(blob, "blob");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto nowhere = [](std::string_view) { return std::nullopt; };
  EXPECT_TRUE(check_constants(*graph, blob, nowhere, "blob"));
  const auto scales = constant_bytes(graph->constants[2], blob, nowhere, "blob").value();
  EXPECT_EQ(scales.data() + scales.size(), blob.data() + blob.size());
  EXPECT_EQ(scales.size(), 384u);
  EXPECT_EQ(write_blob(*graph).error().code, ErrorCode::kUnsupported);

  auto shorter = blob;
  shorter[22] ^= std::byte{1};  // the size of the region of constants
  shorter[23] ^= std::byte{1};
  EXPECT_NE(message_of(read_blob(shorter, "blob")).find("constant 2 (offset 3072, 384 bytes)"),
            std::string::npos);
}

// Returns whether the blob is refused, or read as a graph that our writer can write again.
bool survives(std::span<const std::byte> blob) {
  const auto graph = read_blob(blob, "blob");
  if (!graph) return !graph.error().message.empty();
  const auto ours = write_blob(*graph);
  if (!ours) return ours.error().code == ErrorCode::kUnsupported;
  const auto again = read_blob(*ours, "blob");
  return again && *again == *graph;
}

TEST(XnnpackBlob, NoFlippedBitDoesHarm) {
  const OfficialProgram program("linear_8da4w_g32_bias");
  const auto official = program.loaded.data.delegates[0];
  std::vector<std::byte> blob(official.begin(), official.end());
  for (size_t bit = 0; bit < 8 * blob.size(); ++bit) {
    blob[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_TRUE(survives(blob)) << "bit " << bit;
    blob[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  for (size_t size = 0; size < blob.size(); ++size) {
    const auto cut = read_blob(std::span(blob).first(size), "blob");
    EXPECT_TRUE(!cut || size + 16 > blob.size()) << size;
  }
}

TEST(XnnpackBlob, NoFlippedBitOfAProgramDoesHarm) {
  const OfficialProgram program("linear_8da8w_pc_ext");
  std::vector<std::byte> file = program.file;
  for (size_t bit = 0; bit < 8 * file.size(); ++bit) {
    file[bit / 8] ^= std::byte{1} << (bit % 8);
    if (const auto loaded = pte::read_program(file, "x.pte")) {
      const auto graphs = read_blobs(*loaded, "x.pte");
      if (graphs) {
        for (const auto& method : loaded->program.methods) {
          (void)check_calls(method, *graphs, "x.pte");
        }
      }
    }
    file[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

struct HeaderCase {
  const char* message;
  size_t offset;
  std::vector<uint8_t> bytes;
};

TEST(XnnpackBlob, RefusesWrongHeaders) {
  const HeaderCase kCases[] = {
      {"not a blob of the XNNPACK backend (offset 4)", 4, {'E', 'T', '1', '2'}},
      {"header of 31 bytes (offset 8)", 8, {31}},
      {"(offset 10)", 10, {0xff, 0xff, 0xff, 0xff}},
      {"(offset 10)", 14, {0xff, 0xff, 0xff, 0xff}},
      {"(offset 18)", 18, {0xff, 0xff, 0xff, 0xff}},
      {"(offset 18)", 22, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
      {"regions overlap", 10, {16}},
      {"regions overlap", 18, {32, 0}},
      {"damaged FlatBuffer", 36, {'X', 'N', '0', '2'}},
      {"damaged FlatBuffer", 32, {0xff, 0xff}},
  };
  for (const HeaderCase& c : kCases) {
    auto blob = write_blob(linear_graph()).value();
    std::memcpy(blob.data() + c.offset, c.bytes.data(), c.bytes.size());
    const auto graph = read_blob(blob, "x.pte: blob 0");
    SCOPED_TRACE(c.message);
    ASSERT_FALSE(graph);
    EXPECT_TRUE(graph.error().message.starts_with("x.pte: blob 0: "));
    EXPECT_NE(graph.error().message.find(c.message), std::string::npos) << graph.error().message;
  }
  auto early = write_blob(linear_graph()).value();
  std::memcpy(early.data() + 36, "XN00", 4);
  EXPECT_EQ(read_blob(early, "early").value(), linear_graph());
}

}  // namespace
}  // namespace ferry::xnnpack::writer_test
