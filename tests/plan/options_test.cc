// Descriptions of options: the record in a manifest gives the same options when it is read.
#include "plan/options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace ferry::plan::options_test {
namespace {

using converters::BuildOptions;
using converters::ProgramStyle;

std::vector<std::string> texts_of(const OptionTexts& options) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : options) texts.push_back(name + " " + value);
  return texts;
}

// Reads the record of `options`, and expects that its options have the same record.
ConvertOptions read_back(const ConvertOptions& options, const BuildOptions& build) {
  const OptionTexts recorded = recorded_options(options, build);
  ConvertOptions read;
  const Status status = read_recorded_options(recorded, read);
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_EQ(texts_of(recorded_options(read, build)), texts_of(recorded));
  return read;
}

TEST(Options, OfStatefulProgramsAreReadBack) {
  ConvertOptions options;
  options.dtype = graph::WeightDType::kF16;
  options.component_dtypes = {{"text_decoder", graph::WeightDType::kBF16}};
  options.quantize.linears = {graph::LinearQuantization::Kind::k8da4w, 64};
  options.quantize.embeddings = {4, 32};
  options.quantize.rules = {{"layers.*=x.w2", {graph::LinearQuantization::Kind::kInt8}}};
  options.quantize.method = graph::ScaleMethod::kHqq;
  options.shards = 3;
  options.max_file_bytes = 12345;
  options.kv_cache = DType::kI8;
  options.all_logits = true;
  options.buffers.mode = graph::BufferInit::kState;
  options.allow_unmapped = {"a", "b"};
  const ConvertOptions read =
      read_back(options, {.context_length = 64, .prefill_length = 8, .all_logits = true});
  EXPECT_EQ(read.kv_cache, DType::kI8);
  EXPECT_EQ(read.quantize.rules.at(0).pattern, "layers.*=x.w2");
  EXPECT_EQ(read.max_file_bytes, 12345U);
  EXPECT_EQ(read.context_length, 64);
}

TEST(Options, OfStaticProgramsAreReadBack) {
  ConvertOptions options;
  options.style = ProgramStyle::kStatic;
  options.shards_in_one_file = options.single_head_attention = true;
  options.softmax = converters::SoftmaxStyle::kMasked;
  options.rotation = converters::Rotation::kR3;
  options.ports.cache = DType::kU8;
  options.ports.mask = DType::kF16;
  options.ports.logits = DType::kU16;
  BuildOptions build = {.context_length = 64, .prefill_length = 8, .style = ProgramStyle::kStatic};
  build.decode_length = 4;
  const ConvertOptions read = read_back(options, build);
  EXPECT_EQ(read.ports.cache, DType::kU8);
  EXPECT_EQ(read.kv_cache, DType::kF32);
  EXPECT_EQ(read.decode_length, 4);
  EXPECT_TRUE(read.shards_in_one_file && read.single_head_attention);
}

TEST(Options, OfEncodersNameNoCaches) {
  const std::vector<std::string> recorded = texts_of(recorded_options(
      {}, {.context_length = 64, .prefill_length = 64, .style = ProgramStyle::kEncoder}));
  const std::vector<std::string> expected = {
      "dtype keep", "quantize none",     "quantize-embedding none", "program encoder",
      "shards 1",   "context-length 64", "prefill-length 64",       "packed-layout own"};
  EXPECT_EQ(recorded, expected);
  ConvertOptions options;
  options.kv_cache = DType::kF16;
  EXPECT_EQ(check_encoder_options(options).error().message.substr(0, 10), "kv-dtype: ");
  EXPECT_TRUE(check_encoder_options({}));
}

TEST(Options, ReadersNameTheOption) {
  ConvertOptions options;
  const Status status = read_recorded_options({{"another", "1"}, {"quantize", "4bit"}}, options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message.substr(0, 26), "quantize '4bit': expected ");
}

// A manifest is untrusted: its reader must not open files that the user has not named.
TEST(Options, AManifestNamesNoFiles) {
  ConvertOptions options;
  options.config = "mine.json";
  const Status status = read_recorded_options(
      {{"config", "/etc/passwd"}, {"lora", "/etc"}, {"reference", "/etc/passwd"}, {"shards", "2"}},
      options);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(options.config, "mine.json");
  EXPECT_EQ(options.lora, "");
  EXPECT_EQ(options.reference, "");
  EXPECT_EQ(options.shards, 2);
}

TEST(Options, AFlagIsTrueOrFalse) {
  ConvertOptions options;
  const Status status = read_recorded_options({{"shards-in-one-file", "yes"}}, options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "shards-in-one-file 'yes': must be true or false");
}

// Two options at one place would have an accidental order.
TEST(Options, PlacesInManifestsDiffer) {
  class Places : public OptionVisitor {
   public:
    std::multiset<int> all;

   private:
    void visit(const Option& option, const OptionField& /*field*/) override {
      if (option.place != 0) all.insert(option.place);
    }
  } places;
  ConvertOptions options;
  options.quantize.linears = {graph::LinearQuantization::Kind::kInt8};
  describe(places, options);
  EXPECT_EQ(places.all.size(), 32U);
  for (const int place : places.all) EXPECT_EQ(places.all.count(place), 1U) << place;
}

}  // namespace
}  // namespace ferry::plan::options_test
