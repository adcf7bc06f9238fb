// Graph is an in-memory mirror of an XNNPACK delegate blob of ExecuTorch (header "XH00", FlatBuffer
// identifier XN01): the nodes that the backend executes, the values between them, and the names of
// the constants that they need. The bytes of named constants are elsewhere, in the named data of
// the program or of a .ptd file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ferry::xnnpack {

inline constexpr std::string_view kBackend = "XnnpackBackend";
// Stands for no value, and for no external id.
inline constexpr uint32_t kNone = 0xffffffff;

// The codes are those on the wire.
enum class Datatype : int16_t {
  kF32 = 1,
  kF16 = 2,
  kQInt8 = 3,
  kQUInt8 = 4,
  kQInt32 = 5,
  kQCInt8 = 6,  // i8 with a scale for each channel
  kQCInt32 = 7,
  kQCInt4 = 8,   // two to a byte, low nibble first, stored as code + 8; a scale for each channel
  kQDInt8 = 9,   // activations that are quantised at run time, each row by itself
  kQBInt4 = 10,  // codes as in kQCInt4, but with a bf16 scale for each group of a row
  kQPInt8 = 11,
  kI32 = 12,
  kPF32 = 13,
  kBF16 = 14,
};
// Returns a name such as "qbint4", or "datatype 99" for an unknown code.
std::string datatype_name(Datatype datatype);

// `scales` is an index into Graph::constants. The scales are f32 for kQCInt8 and kQCInt4, and bf16
// for kQBInt4.
struct PerTensor {
  float scale = 0;
  int32_t zero_point = 0;
  bool operator==(const PerTensor&) const = default;
};
struct PerChannel {
  int32_t channel_dim = 0;
  uint32_t scales = 0, num_scales = 0;
  bool operator==(const PerChannel&) const = default;
};
struct PerChannelGroup {
  int32_t channel_dim = 0;
  uint32_t group_size = 0;
  uint32_t scales = 0, num_scales = 0;
  bool operator==(const PerChannelGroup&) const = default;
};
struct PerToken {  // the scale and zero point of each row are found at run time
  int32_t num_nonbatch_dims = 1;
  bool operator==(const PerToken&) const = default;
};
using Quantization = std::variant<std::monostate, PerTensor, PerChannel, PerChannelGroup, PerToken>;

struct Value {
  uint32_t id = 0;  // unique; nodes refer to values by id
  Datatype datatype = Datatype::kF32;
  std::vector<uint32_t> dims = {};  // upper bounds if the program is dynamic
  uint32_t constant = 0;            // index into Graph::constants; 0 means none
  uint32_t external = kNone;        // position in the arguments of the DelegateCall
  bool is_input = false, is_output = false;
  Quantization quantization = {};
  bool operator==(const Value&) const = default;
};

// The codes are those of the node union on the wire.
enum class NodeKind : uint8_t {
  kAdd = 1,
  kFullyConnected = 2,
  kSoftmax = 3,
  kSigmoid = 4,
  kStaticTranspose = 5,
  kClamp = 6,
  kConv2d = 7,
  kDiv = 8,
  kStaticResizeBilinear2d = 9,
  kStaticConstantPad = 10,
  kAvgPooling2d = 11,
  kMinimum = 12,
  kDepthwiseConv2d = 13,
  kMaxPooling2d = 14,
  kMultiply = 15,
  kSubtract = 16,
  kFloor = 17,
  kConvert = 18,
  kGlobalAvgPooling2d = 19,
  kStaticReshape = 20,
  kArgMaxPooling2d = 21,
  kSquareRoot = 22,
  kCeiling = 23,
  kHardswish = 24,
  kLeakyRelu = 25,
  kMaximum = 26,
  kNegate = 27,
  kSquare = 28,
  kElu = 29,
  kAbs = 30,
  kPrelu = 31,
  kConcatenate2 = 32,
  kConcatenate3 = 33,
  kConcatenate4 = 34,
  kStaticSlice = 35,
  kScaledDotProductAttention = 36,
  kBatchMatrixMultiply = 37,
  kConcatenate5 = 38,
  kConvTranspose2d = 39,
  kReciprocalSquareRoot = 40,
  kLog = 41,
  kGelu = 42,
  kTanh = 43,
  kExp = 44,
  kSin = 45,
  kCopy = 46,
  kCos = 47,
};
// Returns a name such as "FullyConnected", or "kind 99" for an unknown code.
std::string node_name(NodeKind kind);

struct MinMax {
  float min = 0, max = 0;
  bool operator==(const MinMax&) const = default;
};

struct Node {
  NodeKind kind = NodeKind::kAdd;
  // Ids of values in the order of the node's table. For kFullyConnected they are input, filter, and
  // bias, which may be kNone.
  std::vector<uint32_t> inputs = {}, outputs = {};
  uint32_t flags = 0;
  std::optional<MinMax> output_range = {};  // if set, the result is clamped to it
  // The other numbers of the table, in its order (WindowNumber for convolutions and pooling, height
  // and width for kStaticResizeBilinear2d): the new shape for kStaticReshape, the permutation
  // for kStaticTranspose, the offsets and then the sizes for kStaticSlice, the paddings before and
  // then after for kStaticConstantPad, the axis for kConcatenate. A 0 in the new shape is the
  // dimension that follows from the others; a size 0 is the whole dimension.
  std::vector<int64_t> numbers = {};
  std::vector<float> factors = {};  // one for kLeakyRelu (slope), kElu (alpha), kStaticConstantPad
  uint32_t debug_handle = 0;        // set by the exporter, for people
  bool operator==(const Node&) const = default;
};

// Positions in Node::numbers of convolutions; pooling has the first ten.
enum WindowNumber : uint8_t {
  kPadTop,
  kPadRight,
  kPadBottom,
  kPadLeft,
  kKernelY,
  kKernelX,
  kStrideY,
  kStrideX,
  kDilationY,
  kDilationX,
  kGroupInputs,
  kGroupOutputs,
  kGroups,
  kAdjustY,
  kAdjustX,
};
inline constexpr size_t kPoolingNumbers = 10, kConvolutionNumbers = 15;
// Images are [batch, height, width, channels]. Filters are [groups * group_outputs, height, width,
// group_inputs], those of kDepthwiseConv2d [1, height, width, groups * group_outputs].
//
// Returns the height (or width) of the output for that of the input, nullopt if there is none. The
// numbers have been checked to lie in [0, 2^31), the stride to be positive.
std::optional<int64_t> window_output(const Node& node, bool along_x, int64_t in);
// Flags of nodes.
inline constexpr uint32_t kAlignCorners = 8, kKeepDims = 0x40;

struct Constant {
  std::string key;      // key in the named data
  uint64_t offset = 0;  // for a constant without a key: position of its bytes in the blob
  uint64_t bytes = 0;
  bool operator==(const Constant&) const = default;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;                         // in the order of execution
  uint32_t num_externals = 0;                      // arguments of the DelegateCall, inputs first
  std::vector<Constant> constants = {Constant{}};  // entry 0 is a placeholder
  bool operator==(const Graph&) const = default;
};

}  // namespace ferry::xnnpack
