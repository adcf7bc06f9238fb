// Recipe says how a weight of the model is made of tensors of the checkpoint. A recipe is metadata.
// materialize() computes any part of the result, so that a conversion never holds a whole model in
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/derived_source.h"
#include "core/dtype.h"
#include "core/result.h"
#include "core/strided.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/quantization/block_encoder.h"
#include "graph/quantization/scheme.h"

namespace ferry::graph {

// The codes and scales of a whole weight, as its recipe's outputs have them.
struct ChosenCodes {
  std::vector<std::byte> codes, scales;
};

// An operation on every element. All arithmetic is in f32.
struct Step {
  enum class Kind {
    kDecode,      // from the stored form of each piece to f32
    kAdd,         // x + value
    kMul,         // x * value
    kNegExp,      // -exp(x), the nearest f32; with the value 1 the f32 of torch
    kLogNegated,  // log(-x), the nearest f32
    kSmooth,      // x * the factor of its column, or of its row, by `factors`
    kCast,        // to `dtype`
    kQuantize,    // rows to codes and scales, by `scheme`
    kSplitQ80,    // blocks of q8_0 to their codes and scales
    kEncode,      // rows to blocks, by `encoder`
    kStored,      // blocks as they are stored; excludes kDecode
  } kind = Kind::kDecode;
  double value = 0;                       // for kAdd, kMul and kNegExp
  DType dtype = DType::kF32;              // for kCast; derived_tensor() says what it is for kDecode
  QuantizationScheme scheme = {};         // for kQuantize
  const BlockEncoder* encoder = nullptr;  // for kEncode: one of find_block_encoder()
  // For kSmooth: a factor for each column, or for each row of a matrix (`by_rows`).
  std::shared_ptr<const std::vector<float>> factors = {};
  bool by_rows = false;
  // For kEncode: BlockRows::importance of each matrix, one after the other; or null.
  std::shared_ptr<const std::vector<float>> importance = {};
  // For kQuantize with ScaleMethod::kCalibrated. A plan that is not executed may lack it.
  std::shared_ptr<const ChosenCodes> chosen = {};
  bool operator==(const Step&) const = default;
};

// Returns names such as "decode", "add -1", "mul 2", "neg_exp", "log_negated", "smooth",
// "smooth_rows", "cast bf16", "split q8_0", "encode q4_k", "encode q4_k by importance", "stored".
// Numbers read back as the same double. kQuantize states the codes, the group, the dtype of the
// scales, how they are chosen (bf16_first, hqq with the rounds, calibrated, or kept), and for 4
// bits the order of the nibbles: "quantize i4 group 32 bf16 bf16_first low_first", "quantize i4
// group 32 f32 hqq 6 high_first", "quantize i8 row f32 bf16_first".
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
// elements of the output. Without steps the bytes are those of the checkpoint. If the last step
// makes codes and scales, they are two outputs: codes [..., K] of kI4 or kI8, and "scales" with a
// row of scales for each row of codes: [..., K / group], or [...] if a row has one scale. If the
// last step makes blocks, or takes stored ones, the output is their bytes: kU8, [..., bytes of a
// row].
struct Recipe {
  std::vector<StridedPiece> pieces = {};  // `tensor` is an index into TensorSource::entries()
  // Dtype of the elements before the steps. It is f32 if the first step is kDecode, which is needed
  // if a piece is stored in blocks or if the pieces are stored in different dtypes.
  DType source_dtype = DType::kF32;
  std::vector<Step> steps = {};
  std::vector<RecipeOutput> outputs = {RecipeOutput{}};

  RecipeOutput& output() { return outputs.front(); }
  const RecipeOutput& output() const { return outputs.front(); }
  bool is_copy() const { return steps.empty(); }
  // Returns whether the outputs are codes and scales, or blocks. Such a recipe takes no more steps.
  bool is_coded() const;
  // Adds an arithmetic step. The output is then f32.
  void apply(const Step& step);
  // Multiplies columns by factors, before the values are cast or quantised. It moves factors from
  // the inputs of a matrix to its columns (SmoothQuant, arXiv 2211.10438). There must be one for
  // each element of the last axis.
  void smooth(std::shared_ptr<const std::vector<float>> factors);
  // Multiplies rows in the same way. There must be a factor for each row of a matrix.
  void smooth_rows(std::shared_ptr<const std::vector<float>> factors);
  // Makes `dtype` the dtype of the output, and replaces an earlier cast.
  void cast(DType dtype);
  // Makes codes and scales of the f32 values, and replaces an earlier cast. kUnsupported, with
  // `key` as the name of the weight, for a shape that does not fit the scheme: a shape without
  // rows, rows that are not whole groups, and 4-bit codes whose rows are not whole bytes or whose
  // groups, low nibble first, are not multiples of 32, which XNNPACK requires.
  Status quantize(const QuantizationScheme& scheme, const std::string& key);
  // Returns the integers that the rows of the output are made of, as derived tensors of the
  // checkpoint store them; nullopt if the recipe is not only whole rows of such tensors, all of one
  // form.
  Result<std::optional<StoredCodes>> stored_codes(const TensorSource& source) const;
  // Makes stored codes and scales the outputs, in the form of the scheme, which fits
  // stored_codes(). Its method becomes kKept. A scale of 0 becomes one of codes that are 0.
  Status keep_codes(const QuantizationScheme& scheme, const std::string& key);
  // Makes the stored codes and scales of q8_0 the outputs: i8 [..., K] and f32 [..., K / 32].
  // kUnsupported unless the recipe is only whole rows of q8_0 tensors.
  Status split_q8_0(const TensorSource& source, const std::string& key);
  // Makes blocks of the f32 values, and replaces an earlier cast. `importance` is null, or has a
  // number for each column of each matrix (BlockRows::importance). kUnsupported if rows are not
  // whole blocks, kBadInput if `importance` is of another size. `key` names the weight.
  Status encode(const BlockEncoder& encoder, const std::string& key,
                std::shared_ptr<const std::vector<float>> importance = {});
  // Makes the stored blocks the output, and removes an earlier cast. kUnsupported unless the recipe
  // is only whole rows of tensors of one block type.
  Status take_blocks(const TensorSource& source, const std::string& key);
  // Equal recipes produce identical bytes.
  bool operator==(const Recipe&) const = default;
};

// Returns all elements of the entry, in its shape, decoded if it is stored in blocks.
Recipe whole_tensor(const TensorSource& source, size_t entry);

// Returns `pieces` as a tensor of `shape`. They are decoded to f32 if they are stored in blocks or
// in different dtypes. kBadInput if a tensor has fewer elements than a piece needs, if the pieces
// do not have the elements of `shape`, and if a tensor that must be decoded is not f32, f16 or
// bf16. `key` names the result in messages.
Result<Recipe> make_recipe(const TensorSource& source, std::vector<StridedPiece> pieces,
                           Shape shape, const std::string& key);

// Returns the source entries of the pieces, each once, in order of first use.
std::vector<size_t> entries_of(const Recipe& recipe);
// Returns the names of these entries: "a", "a + b", "a + b + c + d + 12 more".
std::string source_names(const Recipe& recipe, const TensorSource& source);

// Writes the recipe in one line of printable ASCII, as a manifest holds it: the pieces, then the
// steps by step_name(). A piece states the index of its tensor in entries_of(), how the tensor is
// stored, the offset, and SIZE:STRIDE of each axis, outermost first. Offsets and strides count
// elements. Example: "#0 q8_0 [0, 64:32, 8:1] + #1 f16 [4, 8:1] | decode | mul 2 | cast bf16".
std::string text_of(const Recipe& recipe, const TensorSource& source);

// Returns the scheme of the quantising step that ends such a text, or nullopt if none does.
std::optional<QuantizationScheme> scheme_in(std::string_view recipe_text);

// Fills `out` with the bytes [offset, offset + out.size()) of the only output. Both numbers must be
// multiples of the size of an element. Thread-safe. Memory is proportional to out.size().
// kInterrupted after a request to stop.
Status materialize(const Recipe& recipe, const TensorSource& source, uint64_t offset,
                   std::span<std::byte> out);
// Fills `out` with bytes of one of several outputs. Any range of bytes may be requested, but whole
// rows are computed.
Status materialize(const Recipe& recipe, const TensorSource& source, size_t output, uint64_t offset,
                   std::span<std::byte> out);

// Returns the number of rows. Rows can be computed independently of each other: they are rows of
// the matrix if the outputs are codes and scales, else elements.
int64_t row_count(const Recipe& recipe);
uint64_t row_bytes(const Recipe& recipe, size_t output);
// Returns how many rows to compute at a time, from the first on: up to 256 KiB of the first output.
// For tensors whose elements lie far apart the number is larger, so that reads are long.
int64_t tile_rows(const Recipe& recipe);
// Returns the size of tile_rows() rows in bytes of the first output.
uint64_t tile_bytes(const Recipe& recipe);

// Computes the rows [first, first + rows) of all outputs: outs[i] has rows * row_bytes(recipe, i)
// bytes. Beside the outputs it takes memory for a row or 256 KiB; otherwise it is like
// materialize(). Returns how many of the quantised values are NaN or infinite. Their codes are
// meaningless, and the caller refuses the weight. Returns 0 for other recipes.
Result<uint64_t> materialize_rows(const Recipe& recipe, const TensorSource& source, int64_t first,
                                  int64_t rows, std::span<const std::span<std::byte>> outs);

// Returns how many of the source values of rows [first, first + rows) are NaN or infinite. The
// count of materialize_rows() may be larger by values in blocks whose scale f16 cannot hold.
Result<uint64_t> count_non_finite_rows(const Recipe& recipe, const TensorSource& source,
                                       int64_t first, int64_t rows);

// Returns how many rounds the reference does for a recipe that quantises by kHqq, which depends on
// the whole tensor. Reads the tensor once. The result does not depend on the number of threads.
// kUnsupported, with the names of the sources, if a value is NaN or infinite.
Result<int> count_hqq_rounds(const Recipe& recipe, const TensorSource& source, ThreadPool& pool);

// One weight of the model.
struct Weight {
  std::string name;  // runtime name, such as "layers.0.attention.wq.weight"
  Recipe recipe;
  std::string rule;  // name of the key rule that produced it
};

// Returns the key under which an output is stored: the name of the weight, followed by ".NAME" for
// outputs after the first.
std::string key_of(const Weight& weight, size_t output);

// An output of a weight.
struct WeightOutput {
  const Weight* weight = nullptr;  // nullptr if there is no such output
  size_t output = 0;               // index into the weight's outputs
};

// An ordered map of runtime names to recipes. Names are unique.
class StateDict {
 public:
  // kBadInput if the name is taken.
  Status add(Weight weight);
  const Weight* find(const std::string& name) const;
  Weight* find(const std::string& name);
  // Finds an output by the key under which it is stored: "w", "w.scales".
  WeightOutput find_output(const std::string& key) const;
  const std::vector<Weight>& weights() const { return weights_; }

 private:
  std::vector<Weight> weights_;
  std::unordered_map<std::string, size_t> index_;  // by name
};

// -- recipes over derived tensors (core/derived_source.h), and the stored tensors behind them

// Returns all elements of a derived entry. If no dtype is requested later, they are stored as
// `kept`, which the decoding step records.
Recipe derived_tensor(const TensorSource& source, size_t entry, DType kept);

// Returns the dtype of the stored values if every weight keeps its dtype: that in which a derived
// tensor is kept, else that of the source.
DType kept_dtype(const Recipe& recipe);

// Returns entries_of(), with the stored entries behind derived ones in place of these.
std::vector<size_t> stored_entries_of(const Recipe& recipe, const TensorSource& source);

// Returns whether a piece belongs to a derived entry.
bool is_derived(const Recipe& recipe, const TensorSource& source);

}  // namespace ferry::graph
