// Recipe: how a weight of the model is made of tensors of the checkpoint. A recipe is metadata;
// materialize() computes any part of the result, so that converting a model never holds a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"
#include "core/strided.h"
#include "core/tensor_source.h"

namespace ferry::graph {

// What is done to every element. All arithmetic is in f32.
struct Step {
  enum class Kind {
    kDecode,      // from the stored form of each piece to f32
    kAdd,         // x + value
    kMul,         // x * value
    kNegExp,      // -exp(x), the nearest f32
    kLogNegated,  // log(-x), the nearest f32
    kCast,        // to `dtype`
  } kind = Kind::kDecode;
  double value = 0;           // of kAdd and kMul
  DType dtype = DType::kF32;  // of kCast
  bool operator==(const Step&) const = default;
};

// "decode", "add -1", "mul 2", "neg_exp", "log_negated", "cast bf16". Numbers read back as the same
// double.
std::string step_name(const Step& step);

struct RecipeOutput {
  std::string name = {};  // where a recipe has several outputs: which one this is
  DType dtype = DType::kF32;
  Shape shape = {};
  bool operator==(const RecipeOutput&) const = default;

  uint64_t bytes() const;
};

// The elements of the pieces, one piece after the other, pass through the steps and are the
// elements of the output. Without steps the bytes are those of the checkpoint.
struct Recipe {
  std::vector<StridedPiece> pieces = {};  // `tensor` is an index into TensorSource::entries()
  // Dtype of the elements before the steps. f32 where the first step is kDecode, which it is where
  // a piece is stored in blocks or where the pieces are stored in different dtypes.
  DType source_dtype = DType::kF32;
  std::vector<Step> steps = {};
  std::vector<RecipeOutput> outputs = {RecipeOutput{}};  // today always one

  RecipeOutput& output() { return outputs.front(); }
  const RecipeOutput& output() const { return outputs.front(); }
  bool is_copy() const { return steps.empty(); }
  // Adds an arithmetic step; the output is then f32.
  void apply(const Step& step);
  // Makes `dtype` the dtype of the output, instead of an earlier cast.
  void cast(DType dtype);
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

// Fills `out` with the bytes [offset, offset + out.size()) of the output. Both numbers must be
// multiples of the size of an element. Thread-safe. Memory is proportional to out.size().
// kInterrupted once something has asked to stop.
Status materialize(const Recipe& recipe, const TensorSource& source, uint64_t offset,
                   std::span<std::byte> out);

// How many bytes of the output to ask for at a time, from its first byte on. Of tensors whose
// elements lie far apart larger parts are made at once, so that reads are long.
uint64_t tile_bytes(const Recipe& recipe);

// One weight of the model.
struct Weight {
  std::string name;  // runtime name, "layers.0.attention.wq.weight"
  Recipe recipe;
  std::string rule;  // name of the key rule that produced it
};

// Ordered runtime name -> recipe; names are unique.
class StateDict {
 public:
  // kBadInput if the name is taken.
  Status add(Weight weight);
  const Weight* find(const std::string& name) const;
  Weight* find(const std::string& name);
  const std::vector<Weight>& weights() const { return weights_; }

 private:
  std::vector<Weight> weights_;
  std::unordered_map<std::string, size_t> index_;  // by name
};

}  // namespace ferry::graph
