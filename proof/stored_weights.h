// StoredWeights: the numbers that a bundle's weights stand for, in f32.
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

// The weights of all components, by name.
std::map<std::string, const graph::Weight*> weights_of(const plan::Conversion& conversion);

// How a recipe that is_coded() stores its codes.
graph::QuantizationScheme coding_of(const graph::Recipe& recipe);

class StoredWeights {
 public:
  // `planned`, whose recipes say how codes are laid out, is what the bundle was made of; see
  // plan_again(). Both must outlive this.
  StoredWeights(const packer::Bundle& bundle, const plan::Conversion& planned);

  // Whether there is a weight of this name and number of elements. What single-head attention cuts
  // into the rows of its heads is a whole weight here.
  bool has(const std::string& name, int64_t elements) const;
  // The elements from `first` on. kInternal unless the weight has them.
  Status read(const std::string& name, int64_t first, std::span<float> out) const;

 private:
  struct Stored {
    DType dtype = DType::kF32;
    int64_t elements = 0, columns = 0;
    std::span<const std::byte> values = {}, scales = {};  // `scales`: of codes
    graph::QuantizationScheme scheme = {};
  };
  std::span<const std::byte> bytes_of(const packer::ManifestTensor& tensor) const;
  // The weight, or the heads that it is cut into, in their order; empty if there is neither.
  std::vector<const Stored*> parts_of(const std::string& name) const;
  static int64_t elements_of(const std::vector<const Stored*>& parts);
  static void read_part(const Stored& stored, int64_t first, std::span<float> out);

  const packer::Bundle& bundle_;
  std::map<std::string, Stored> weights_;
};

}  // namespace ferry::proof
