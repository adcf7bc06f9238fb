// The vision encoder of bundles, in this process, from pixels to features.
#include "runner/vision_encoder.h"
#include "runner/row_encoders.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/decoding/vision_testing.h"

namespace ferry::vision_encoder_test {
namespace {

// Replaces the shape and the values of one tensor and keeps all others.
void replace(TensorFile& file, const std::string& name, const std::vector<int64_t>& shape,
             const Floats& values) {
  TensorFile made = file;
  made.header = nlohmann::ordered_json::object();
  made.data.clear();
  for (const auto& [key, entry] : file.header.items()) {
    if (key == "__metadata__" || key == name) continue;
    made.append(key, entry["dtype"], entry["shape"], file.bytes_of(key));
  }
  made.append(name, "F32", shape, bytes_of(values));
  file = made;
}

// A bundle's encoder, with the probes of its last tile.
class Encoder {
 public:
  explicit Encoder(const std::string& source)
      : bundle_(converted(dir_, source, {}, pool_)),
        encoder_(runner::VisionEncoder::load(bundle_, pool_, {.poison = true}).value()) {
    EXPECT_TRUE(encoder_.set_probe_sink(
        [this](const std::string& name, const Shape&, std::span<const float> values) {
          probes[name] = Floats(values.begin(), values.end());
        }));
  }
  Floats encode(const Floats& pixels) { return encoder_.encode(pixels).value(); }
  runner::VisionEncoder& operator*() { return encoder_; }

  std::map<std::string, Floats> probes;

 private:
  TempDir dir_;
  ThreadPool pool_{2};
  packer::Bundle bundle_;
  runner::VisionEncoder encoder_;
};

// Computes the rows of a convolution of side 4 and step 4 over [3,32,32] with plain loops.
Floats embedded_patches(const Floats& pixels, const Floats& weight, const Floats& bias) {
  const size_t width = bias.size();
  Floats rows;
  for (size_t patch = 0; patch < 64; ++patch) {
    for (size_t out = 0; out < width; ++out) {
      double sum = bias[out];
      for (size_t i = 0; i < 48; ++i) {
        const size_t channel = i / 16, y = patch / 8 * 4 + i / 4 % 4, x = patch % 8 * 4 + i % 4;
        sum += double{weight[out * 48 + i]} * double{pixels[(channel * 32 + y) * 32 + x]};
      }
      rows.push_back(static_cast<float>(sum));
    }
  }
  return rows;
}

// The patch at each place gets its row of the position table in row-major order, as in the
// reference.
TEST(VisionEncoder, PatchesHaveThePositionsOfTheReference) {
  const TensorFile weights(fixture("vision/smolvlm/model.safetensors"));
  const std::string embeddings = "model.vision_model.embeddings.";
  const Floats pixels = golden("smolvlm", "short.pixel_values");
  Floats expected =
      embedded_patches(pixels, floats_of(weights.bytes_of(embeddings + "patch_embedding.weight")),
                       floats_of(weights.bytes_of(embeddings + "patch_embedding.bias")));
  const Floats table = floats_of(weights.bytes_of(embeddings + "position_embedding.weight"));
  const std::vector<int64_t> positions = golden_ids("smolvlm", "short.vision_position_ids");
  ASSERT_EQ(positions.size(), 64u);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(positions[i / 48], static_cast<int64_t>(i / 48));
    expected[i] += table[static_cast<size_t>(positions[i / 48]) * 48 + i % 48];
  }
  Encoder encoder(fixture("vision/smolvlm"));
  encoder.encode(pixels);
  EXPECT_LT(furthest(encoder.probes.at("vision_hidden_states.0"), expected), 1e-5F);
}

// Row 0 of the output is the class token, with row 0 of the position table.
TEST(VisionEncoder, TheClassTokenIsBeforeThePatches) {
  const TensorFile weights(fixture("vision/internvl3_hf/model.safetensors"));
  const std::string embeddings = "vision_tower.embeddings.";
  const Floats pixels = golden("internvl3_hf", "short.pixel_values");
  Floats expected = floats_of(weights.bytes_of(embeddings + "cls_token"));
  const Floats patches = embedded_patches(
      pixels, floats_of(weights.bytes_of(embeddings + "patch_embeddings.projection.weight")),
      floats_of(weights.bytes_of(embeddings + "patch_embeddings.projection.bias")));
  expected.insert(expected.end(), patches.begin(), patches.end());
  const Floats table = floats_of(weights.bytes_of(embeddings + "position_embeddings"));
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += table.at(i);
  Encoder encoder(fixture("vision/internvl3_hf"));
  encoder.encode(pixels);
  EXPECT_LT(furthest(encoder.probes.at("vision_hidden_states.0"), expected), 1e-5F);
}

// out[i * (w / s) + j][(dy * s + dx) * c + ch] = in[(i * s + dy) * w + j * s + dx][ch].
Floats shuffled(const Floats& in, size_t w, size_t s, size_t c) {
  Floats out(in.size());
  for (size_t row = 0; row < w * w; ++row) {
    const size_t i = row / w / s, dy = row / w % s, j = row % w / s, dx = row % w % s;
    for (size_t ch = 0; ch < c; ++ch) {
      out[(i * (w / s) + j) * s * s * c + (dy * s + dx) * c + ch] = in[row * c + ch];
    }
  }
  return out;
}

Floats linear(const Floats& rows, const Floats& weight, size_t in) {
  const size_t out = weight.size() / in;
  Floats result;
  for (size_t row = 0; row < rows.size() / in; ++row) {
    for (size_t o = 0; o < out; ++o) {
      double sum = 0;
      for (size_t i = 0; i < in; ++i) {
        sum += double{rows[row * in + i]} * double{weight[o * in + i]};
      }
      result.push_back(static_cast<float>(sum));
    }
  }
  return result;
}

TEST(VisionEncoder, ThePixelShuffleIsThePlainFormulaForEveryFactor) {
  for (const size_t factor : {1, 2, 4, 8}) {
    SCOPED_TRACE(factor);
    const TempDir dir;
    const size_t wide = 48 * factor * factor;
    const Floats weight = randoms(64 * wide, 7);
    const std::string source = changed_checkpoint(dir, "vision/smolvlm", [&](TensorFile& file) {
      replace(file, "model.connector.modality_projection.proj.weight",
              {64, static_cast<int64_t>(wide)}, weight);
    });
    nlohmann::json config = nlohmann::json::parse(read_bytes(source + "/config.json"));
    config["scale_factor"] = factor;
    write_bytes(source + "/config.json", config.dump());
    Encoder encoder(source);
    EXPECT_EQ((*encoder).rows(), static_cast<int64_t>(64 / factor / factor));
    const Floats features = encoder.encode(randoms(3 * 32 * 32, 3));
    const Floats& last = encoder.probes.at("vision_last_hidden_state");
    EXPECT_LT(furthest(features, linear(shuffled(last, 8, factor, 48), weight, wide)), 2e-4F);
  }
}

// Features that a call returned are not changed by later calls.
TEST(VisionEncoder, ALaterCallChangesNoEarlierResult) {
  for (const std::string name : {"smolvlm", "internvl3_hf", "internvl3_opengvlab"}) {
    SCOPED_TRACE(name);
    Encoder encoder(fixture("vision/" + name));
    const Floats pixels = golden(name, "short.pixel_values");
    const Floats other = randoms(pixels.size(), 5);
    const Floats first = encoder.encode(pixels);
    const Floats kept = first;
    const Floats second = encoder.encode(other);
    EXPECT_EQ(first, kept);
    EXPECT_NE(first, second);
    EXPECT_LT(furthest(first, golden(name, "short.image_features")), 2e-5F);
    // Tiles of one call give the features that they give alone, in order.
    Floats both = pixels;
    both.insert(both.end(), other.begin(), other.end());
    Floats expected = first;
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(encoder.encode(both), expected);
    EXPECT_EQ(encoder.encode(pixels), first);
  }
}

TEST(VisionEncoder, TakesWholeTilesOnly) {
  Encoder encoder(fixture("vision/smolvlm"));
  for (const size_t size : {0, 1, 3071, 3073, 6143}) {
    const auto features = (*encoder).encode(Floats(size));
    ASSERT_FALSE(features) << size;
    EXPECT_EQ(features.error().code, ErrorCode::kUsage);
    EXPECT_NE(features.error().message.find(std::to_string(size) +
                                            " pixel values are not whole tiles of 3072 (3 x 32 x "
                                            "32)"),
              std::string::npos)
        << features.error().message;
  }
}

TEST(VisionEncoder, IsNotInBundlesOfText) {
  const TempDir dir;
  ThreadPool pool(1);
  const packer::Bundle bundle = converted(dir, fixture("golden/qwen3"), {}, pool);
  EXPECT_FALSE(runner::VisionEncoder::is_in(bundle));
  EXPECT_TRUE(runner::RowEncoders::load(bundle, pool, {}).value().empty());
  EXPECT_FALSE(runner::VisionEncoder::load(bundle, pool, {}));
}

}  // namespace
}  // namespace ferry::vision_encoder_test
