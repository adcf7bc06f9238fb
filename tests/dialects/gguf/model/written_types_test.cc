// The types of tensors, compared with those in files of llama_model_quantize
// (testdata/gguf_written/mixtures.txt).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "dialects/gguf/model/written_types.h"

namespace ferry::converters::mixtures_test {
namespace {

// The letters of the list.
const std::map<GgufElement, char> kLetters = {
    {GgufElement::kF32, 'f'},    {GgufElement::kF16, 'h'},   {GgufElement::kQ4_0, 'a'},
    {GgufElement::kQ4_1, 'b'},   {GgufElement::kQ5_0, 'c'},  {GgufElement::kQ5_1, 'd'},
    {GgufElement::kQ8_0, 'e'},   {GgufElement::kQ2_K, '2'},  {GgufElement::kQ3_K, '3'},
    {GgufElement::kQ4_K, '4'},   {GgufElement::kQ5_K, '5'},  {GgufElement::kQ6_K, '6'},
    {GgufElement::kIQ4_NL, 'n'}, {GgufElement::kIQ4_XS, 'x'}};

TEST(GgufMixtures, AreThoseOfLlamaQuantize) {
  std::ifstream in(std::string(FERRY_TESTDATA) + "/gguf_written/mixtures.txt");
  std::string line, model;
  GgufModelSizes sizes;
  std::vector<std::string> names;
  std::vector<Shape> shapes;
  int count = 0;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string word, name;
    words >> word >> name;
    if (word == "model") {
      model = name;
      sizes = {};
      words >> sizes.layers >> sizes.experts >> sizes.queries_of_key;
      names.clear();
      shapes.clear();
    } else if (word == "tensor") {
      names.push_back(name);
      shapes.emplace_back();
      for (int64_t size = 0; words >> size;) shapes.back().push_back(size);
    } else {
      std::string with, wanted, made;
      words >> with >> wanted;
      SCOPED_TRACE(model + " " + name + " " + with);
      std::vector<GgufNamedShape> tensors;
      for (size_t i = 0; i < names.size(); ++i) tensors.push_back({names[i], shapes[i]});
      const auto type = gguf_file_type_of(name);
      ASSERT_TRUE(type);
      for (const GgufElement chosen : choose_gguf_types(tensors, *type, sizes, with == "im")) {
        made += kLetters.at(chosen);
      }
      EXPECT_EQ(made, wanted);
      ++count;
    }
  }
  EXPECT_EQ(count, 93);
}

TEST(GgufMixtures, TwoBitsAloneNeedAnImportanceMatrix) {
  using E = GgufElement;
  using F = GgufFileType;
  EXPECT_TRUE(gguf_needs_importance("blk.0.attn_q.weight", E::kQ2_K, F::kQ2_K_S));
  EXPECT_FALSE(gguf_needs_importance("blk.0.attn_q.weight", E::kQ2_K, F::kQ2_K));
  EXPECT_FALSE(gguf_needs_importance("blk.0.attn_v.weight", E::kQ4_K, F::kQ2_K_S));
  EXPECT_FALSE(gguf_needs_importance("token_embd.weight", E::kQ2_K, F::kQ2_K_S));
  for (const E type : {E::kF16, E::kQ8_0, E::kMXFP4}) EXPECT_FALSE(gguf_takes_importance(type));
  for (const E type : {E::kQ4_0, E::kQ6_K, E::kIQ4_NL}) EXPECT_TRUE(gguf_takes_importance(type));
}

}  // namespace
}  // namespace ferry::converters::mixtures_test
