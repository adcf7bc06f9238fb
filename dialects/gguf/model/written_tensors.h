// write_gguf_tensors() makes the tensors of a GGUF file of a model: names, shapes and values as
// GGUF writers make them of a Hugging Face checkpoint. It reverses tensors.h by one table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_pattern.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"
#include "graph/recipe.h"

namespace ferry::converters {

// The tables of an architecture, searched by keys of a Hugging Face checkpoint or names of weights.
class GgufTables {
 public:
  explicit GgufTables(const GgufArchitecture& architecture);

  struct Found {
    const GgufName* row;
    size_t rank;  // number of the row in the tables
    KeyNumbers numbers;
    bool transposed;  // the checkpoint has the matrix transposed, and the file does not
  };
  // Returns the rows of a key; several where one tensor becomes several.
  std::vector<Found> find(const std::string& key) const;
  // Returns `key` as the tables have it, whatever wraps the text model in the checkpoint; empty
  // where the tables do not have it.
  std::string known(std::string_view key) const;

 private:
  struct Row {
    const GgufName* name;
    KeyPattern pattern;
    bool transposed = false;
  };
  std::vector<Row> rows_;
};

struct GgufWrittenTensor {
  std::string name;
  graph::Recipe recipe;              // values, in the dtype of the checkpoint or f32
  std::vector<size_t> made_of = {};  // indices into `tensors`
};

// Returns the tensors in the order of llama.cpp's converter, which is that of `tensors`; the
// experts of a layer are where the last of them is. A head that the config ties to the embedding is
// left out. kUnsupported, by name, for a tensor that has no place in GGUF.
Result<std::vector<GgufWrittenTensor>> write_gguf_tensors(const TensorSource& source,
                                                          const std::vector<KeyedTensor>& tensors,
                                                          const GgufArchitecture& architecture,
                                                          const ModelConfig& config);

// The factors of frequencies: rope_freqs.weight, or the two tensors of longrope.
struct GgufRopeTensor {
  std::string name;
  std::vector<float> values;
};
std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& config);

}  // namespace ferry::converters
