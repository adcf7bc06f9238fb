#include "pipeline/quantize_options.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::pipeline {
namespace {

constexpr std::string_view kEmbeddingTable = "tok_embeddings.weight";

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// What the last step of a recipe says: "quantize i4 group 32 bf16 bf16_first low_first".
struct StatedCoding {
  bool found = false;
  bool split = false;  // codes and scales of q8_0 blocks
  int64_t group = 0;   // 0: a row
  graph::ScaleMethod method = graph::ScaleMethod::kBf16First;
};

StatedCoding coding_in(std::string_view recipe) {
  const size_t bar = recipe.rfind('|');
  const auto words = words_of(bar == recipe.npos ? recipe : recipe.substr(bar + 1));
  StatedCoding coding;
  if (words.empty()) return coding;
  coding.split = words[0] == "split";
  coding.found = coding.split || words[0] == "quantize";
  if (words.size() > 3 && words[2] == "group") {
    std::from_chars(words[3].data(), words[3].data() + words[3].size(), coding.group);
  }
  if (std::ranges::count(words, "hqq") > 0) coding.method = graph::ScaleMethod::kHqq;
  return coding;
}

// Keys that programs read as tensors, and not delegates alone.
std::set<std::string> tensor_keys(const packer::Bundle& bundle) {
  std::set<std::string> keys;
  for (const auto& [name, data] : bundle.data()) {
    for (const ptd::NamedTensor& tensor : data.content.tensors) {
      if (tensor.is_tensor) keys.insert(tensor.key);
    }
  }
  return keys;
}

graph::LinearQuantization linear_of(const packer::ManifestTensor& tensor,
                                    const StatedCoding& coding, bool is_tensor) {
  using Kind = graph::LinearQuantization::Kind;
  if (tensor.dtype == DType::kI4) return {Kind::k8da4w, coding.group};
  // Matrices of experts are tables in every recipe.
  const bool table = tensor.name.find(".experts.") != tensor.name.npos;
  return {coding.split || (is_tensor && !table) ? Kind::kInt8 : Kind::k8da8w};
}

}  // namespace

graph::QuantizeOptions quantize_options_of(const packer::Bundle& bundle) {
  graph::QuantizeOptions options;
  const std::set<std::string> tensors = tensor_keys(bundle);
  for (const packer::ManifestTensor& tensor : bundle.manifest().tensors) {
    const StatedCoding coding = coding_in(tensor.recipe);
    if (!tensor.output.empty() || !coding.found) continue;
    if (coding.method == graph::ScaleMethod::kHqq) options.method = coding.method;
    if (tensor.name.ends_with(kEmbeddingTable)) {
      options.embeddings = {tensor.dtype == DType::kI4 ? 4 : 8, coding.split ? 0 : coding.group};
      continue;
    }
    options.rules.push_back(
        {tensor.name, linear_of(tensor, coding, tensors.contains(tensor.name))});
  }
  return options;
}

}  // namespace ferry::pipeline
