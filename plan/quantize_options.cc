#include "plan/quantize_options.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "graph/recipe.h"
#include "packer/coding.h"

namespace ferry::plan {
namespace {

// What the last step of a recipe says. Of a text that is no step of ours there is nothing.
struct StatedCoding {
  bool split = false;  // codes and scales of q8_0 blocks
  graph::QuantizationScheme scheme = {};
};

std::optional<StatedCoding> coding_in(std::string_view recipe) {
  if (recipe.ends_with(" | split q8_0")) return StatedCoding{.split = true};
  const auto scheme = graph::scheme_in(recipe);
  return scheme ? std::optional(StatedCoding{.scheme = *scheme}) : std::nullopt;
}

graph::LinearQuantization linear_of(const packer::ManifestTensor& tensor,
                                    const StatedCoding& coding, bool is_tensor) {
  using Kind = graph::LinearQuantization::Kind;
  if (tensor.dtype == DType::kI4) return {Kind::k8da4w, coding.scheme.group};
  // Matrices of experts are tables in every recipe.
  const bool table = tensor.name.find(".experts.") != tensor.name.npos;
  return {coding.split || (is_tensor && !table) ? Kind::kInt8 : Kind::k8da8w};
}

}  // namespace

graph::QuantizeOptions quantize_options_of(const packer::Bundle& bundle) {
  graph::QuantizeOptions options;
  const std::set<std::string> tensors = packer::tensor_keys(bundle);
  for (const packer::ManifestTensor& tensor : bundle.manifest().tensors) {
    const std::optional<StatedCoding> coding = coding_in(tensor.recipe);
    if (!tensor.output.empty() || !coding) continue;
    if (coding->scheme.method == graph::ScaleMethod::kHqq) options.method = coding->scheme.method;
    if (packer::is_embedding_table(tensor.name)) {
      options.embeddings = {tensor.dtype == DType::kI4 ? 4 : 8, coding->scheme.group};
      continue;
    }
    options.rules.push_back(
        {tensor.name, linear_of(tensor, *coding, tensors.contains(tensor.name))});
  }
  return options;
}

}  // namespace ferry::plan
