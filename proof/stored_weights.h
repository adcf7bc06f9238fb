// StoredWeights gives the f32 values of a bundle's weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "graph/recipe.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"

namespace ferry::proof {

// Returns the weights of all components, by name.
std::map<std::string, const graph::Weight*> weights_of(const plan::Conversion& conversion);

// Returns how a recipe that is_coded() stores its codes.
graph::QuantizationScheme coding_of(const graph::Recipe& recipe);

class StoredWeights {
 public:
  // `planned` is the conversion that made the bundle; its recipes state how codes are laid out. See
  // plan_again(). Both must outlive this object.
  StoredWeights(const packer::Bundle& bundle, const plan::Conversion& planned);

  // Whether there is a weight of this name and number of elements. Weights that single-head
  // attention splits by head count as one whole weight.
  bool has(const std::string& name, int64_t elements) const;
  // Reads elements from `first` on. kInternal unless the weight has them.
  Status read(const std::string& name, int64_t first, std::span<float> out) const;

 private:
  struct Stored {
    DType dtype = DType::kF32;
    int64_t elements = 0, columns = 0;
    // `scales` is empty unless the values are codes.
    std::span<const std::byte> values = {}, scales = {};
    graph::QuantizationScheme scheme = {};
  };
  std::span<const std::byte> bytes_of(const packer::ManifestTensor& tensor) const;
  // Returns the weight, or its heads in order if it is split; empty if there is neither.
  std::vector<const Stored*> parts_of(const std::string& name) const;
  static int64_t elements_of(const std::vector<const Stored*>& parts);
  static void read_part(const Stored& stored, int64_t first, std::span<float> out);

  const packer::Bundle& bundle_;
  std::map<std::string, Stored> weights_;
};

}  // namespace ferry::proof
