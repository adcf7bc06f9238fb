// Recipe: how a weight of the model is made of tensors of the checkpoint. A recipe is metadata;
// materialize() computes any part of the result, so that converting a model never holds a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"
#include "core/strided.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/quantization/block_encoder.h"
#include "graph/quantization/scheme.h"

namespace ferry::graph {

// An operation on every element. All arithmetic is in f32.
struct Step {
  enum class Kind {
    kDecode,      // from the stored form of each piece to f32
    kAdd,         // x + value
    kMul,         // x * value
    kNegExp,      // -exp(x), the nearest f32; with the value 1 the f32 that torch computes
    kLogNegated,  // log(-x), the nearest f32
    kCast,        // to `dtype`
    kQuantize,    // rows to codes and scales, by `scheme`
    kSplitQ80,    // blocks of q8_0 to the codes and scales in them
    kEncode,      // rows to blocks, by `encoder`
    kStored,      // blocks as they are stored, without a kDecode before
  } kind = Kind::kDecode;
  double value = 0;                       // of kAdd, kMul and kNegExp
  DType dtype = DType::kF32;              // of kCast; of kDecode see derived_tensor()
  QuantizationScheme scheme = {};         // of kQuantize
  const BlockEncoder* encoder = nullptr;  // of kEncode: one of find_block_encoder()
  bool operator==(const Step&) const = default;
};

// "decode", "add -1", "mul 2", "neg_exp", "log_negated", "cast bf16", "split q8_0", "encode q4_k",
// "stored". Numbers read back as the same double. kQuantize states the codes, the group, the dtype
// of the scales, how they are chosen (of hqq with the rounds), and of 4 bits the order of the
// nibbles: "quantize i4 group 32 bf16 bf16_first low_first", "quantize i4 group 32 f32 hqq 6
// high_first", "quantize i8 row f32 bf16_first".
std::string step_name(const Step& step);

inline constexpr std::string_view kScalesOutput = "scales";

struct RecipeOutput {
  std::string name = {};  // "", or kScalesOutput
  DType dtype = DType::kF32;
  Shape shape = {};
  bool operator==(const RecipeOutput&) const = default;

  uint64_t bytes() const;
};

// The elements of the pieces, one piece after the other, pass through the steps and are the
// elements of the output. Without steps the bytes are those of the checkpoint. Where the last step
// makes codes and scales, they are two outputs: codes [..., K] of kI4 or kI8, and "scales" with a
// row of scales for each row of codes, [..., K / group], or [...] where that is one scale. Where it
// makes blocks, or takes them as they are stored, the output is their bytes: kU8, [..., bytes of a
// row].
struct Recipe {
  std::vector<StridedPiece> pieces = {};  // `tensor` is an index into TensorSource::entries()
  // Dtype of the elements before the steps. f32 where the first step is kDecode, which it is where
  // a piece is stored in blocks or where the pieces are stored in different dtypes.
  DType source_dtype = DType::kF32;
  std::vector<Step> steps = {};
  std::vector<RecipeOutput> outputs = {RecipeOutput{}};

  RecipeOutput& output() { return outputs.front(); }
  const RecipeOutput& output() const { return outputs.front(); }
  bool is_copy() const { return steps.empty(); }
  // Whether the outputs are codes and scales, or blocks. Such a recipe takes no more steps.
  bool is_coded() const;
  // Adds an arithmetic step; the output is then f32.
  void apply(const Step& step);
  // Makes `dtype` the dtype of the output, instead of an earlier cast.
  void cast(DType dtype);
  // Makes codes and scales of the f32 values, instead of an earlier cast. kUnsupported, with `key`
  // for the name of the weight, for a shape that the scheme does not fit: one without rows, rows
  // that are not whole groups, and 4-bit codes whose rows are not whole bytes or whose groups, low
  // nibble first, are not multiples of 32, which XNNPACK wants.
  Status quantize(const QuantizationScheme& scheme, const std::string& key);
  // Makes the codes and scales that are stored in q8_0 the outputs, as they are: i8 [..., K] and
  // f32
  // [..., K / 32]. kUnsupported unless the recipe is whole rows of q8_0 tensors and nothing else.
  Status split_q8_0(const TensorSource& source, const std::string& key);
  // Makes blocks of the f32 values, instead of an earlier cast. kUnsupported where rows are not
  // whole blocks; `key` names the weight.
  Status encode(const BlockEncoder& encoder, const std::string& key);
  // Makes the blocks that are stored the output, as they are, instead of an earlier cast.
  // kUnsupported unless the recipe is whole rows of tensors of one block type and nothing else.
  Status take_blocks(const TensorSource& source, const std::string& key);
  // Equal recipes produce identical bytes.
  bool operator==(const Recipe&) const = default;
};

// All elements of the entry, in its shape, decoded where it is stored in blocks.
Recipe whole_tensor(const TensorSource& source, size_t entry);

// `pieces` as a tensor of `shape`. They are decoded to f32 where they are stored in blocks or in
// different dtypes. kBadInput where a tensor has fewer elements than a piece needs, where the
// pieces do not have the elements of `shape`, and where a tensor that must be decoded is not f32,
// f16 or bf16. `key` names the result in messages.
Result<Recipe> make_recipe(const TensorSource& source, std::vector<StridedPiece> pieces,
                           Shape shape, const std::string& key);

// The source entries of the pieces, each once, in order of first use.
std::vector<size_t> entries_of(const Recipe& recipe);
// Their names: "a", "a + b", "a + b + c + d + 12 more".
std::string source_names(const Recipe& recipe, const TensorSource& source);

// The recipe in one line of printable ASCII, as a manifest holds it: the pieces, then the steps by
// step_name(). A piece states the index of its tensor in entries_of(), how that is stored, the
// offset, and SIZE:STRIDE of each axis, outermost first. Offsets and strides count elements.
// "#0 q8_0 [0, 64:32, 8:1] + #1 f16 [4, 8:1] | decode | mul 2 | cast bf16".
std::string text_of(const Recipe& recipe, const TensorSource& source);

// The scheme of the quantising step that ends such a text; nullopt where none does.
std::optional<QuantizationScheme> scheme_in(std::string_view recipe_text);

// Fills `out` with the bytes [offset, offset + out.size()) of the only output. Both numbers must be
// multiples of the size of an element. Thread-safe. Memory is proportional to out.size().
// kInterrupted once something has asked to stop.
Status materialize(const Recipe& recipe, const TensorSource& source, uint64_t offset,
                   std::span<std::byte> out);
// Fills `out` with bytes of one of several outputs. Any bytes may be asked for; whole rows are
// computed.
Status materialize(const Recipe& recipe, const TensorSource& source, size_t output, uint64_t offset,
                   std::span<std::byte> out);

// The rows of a recipe are what can be made independently of each other: rows of the matrix where
// the outputs are codes and scales, else elements.
int64_t row_count(const Recipe& recipe);
uint64_t row_bytes(const Recipe& recipe, size_t output);
// How many rows to ask for at a time, from the first one on: up to 256 KiB of the first output. Of
// tensors whose elements lie far apart more are made at once, so that reads are long.
int64_t tile_rows(const Recipe& recipe);
// The size of tile_rows() rows in bytes of the first output.
uint64_t tile_bytes(const Recipe& recipe);

// The rows [first, first + rows) of all outputs: outs[i] has rows * row_bytes(recipe, i) bytes.
// Otherwise as materialize(); beside the outputs it takes memory for a row or 256 KiB. Returns how
// many of the values that were quantised are NaN or infinite: their codes are meaningless, and the
// caller refuses the weight. 0 for other recipes.
Result<uint64_t> materialize_rows(const Recipe& recipe, const TensorSource& source, int64_t first,
                                  int64_t rows, std::span<const std::span<std::byte>> outs);

// How many of the values behind rows [first, first + rows) are NaN or infinite. What
// materialize_rows() counts beyond them is in blocks whose scale f16 cannot hold.
Result<uint64_t> count_non_finite_rows(const Recipe& recipe, const TensorSource& source,
                                       int64_t first, int64_t rows);

// For a recipe that quantises by kHqq: how many rounds the reference does, which depends on the
// whole tensor. Reads it once; does not depend on the number of threads. kUnsupported, with the
// names of the sources, where a value is NaN or infinite.
Result<int> count_hqq_rounds(const Recipe& recipe, const TensorSource& source, ThreadPool& pool);

// One weight of the model.
struct Weight {
  std::string name;  // runtime name, "layers.0.attention.wq.weight"
  Recipe recipe;
  std::string rule;  // name of the key rule that produced it
};

// The key that an output is stored under: the name of the weight, and for others than the first one
// ".NAME" behind it.
std::string key_of(const Weight& weight, size_t output);

// An output of a weight.
struct WeightOutput {
  const Weight* weight = nullptr;  // nullptr where there is none
  size_t output = 0;               // index into its outputs
};

// Ordered runtime name -> recipe; names are unique.
class StateDict {
 public:
  // kBadInput if the name is taken.
  Status add(Weight weight);
  const Weight* find(const std::string& name) const;
  Weight* find(const std::string& name);
  // By the key that the output is stored under: "w", "w.scales".
  WeightOutput find_output(const std::string& key) const;
  const std::vector<Weight>& weights() const { return weights_; }

 private:
  std::vector<Weight> weights_;
  std::unordered_map<std::string, size_t> index_;  // by name
};

// -- recipes over derived tensors (core/derived_source.h), and the stored tensors behind them

// All elements of a derived entry. Where no dtype is asked for they are stored as `kept`, in which
// the decoding step states it.
Recipe derived_tensor(const TensorSource& source, size_t entry, DType kept);

// The dtype that the values of a recipe are stored in where each keeps its own: the dtype that a
// derived tensor is kept in, else that of the source.
DType kept_dtype(const Recipe& recipe);

// entries_of(), but for those that are derived the stored entries that they are made of.
std::vector<size_t> stored_entries_of(const Recipe& recipe, const TensorSource& source);

// Whether a piece is one of a derived entry.
bool is_derived(const Recipe& recipe, const TensorSource& source);

}  // namespace ferry::graph
