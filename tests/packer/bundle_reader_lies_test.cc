// Manifests with right digests and wrong contents, as an attacker would write them, are refused.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>

#include "packer/bundle_reader.h"
#include "tests/packer/bundle_reader_testing.h"

namespace ferry::packer::bundle_reader_lies_test {
namespace {

struct Lie {
  const char* name;
  void (*tell)(Manifest&);
  const char* message;
};

ManifestProgram& program(Manifest& m, size_t index) { return m.components[0].programs[index]; }
ManifestMethod& forward(Manifest& m, size_t index) { return program(m, index).methods[0]; }

const Lie kLies[] = {
    {"no components", [](Manifest& m) { m.components.clear(); },
     "lists no component 'text_decoder'"},
    {"another role", [](Manifest& m) { m.components[0].role = "encoder"; },
     "lists no component 'text_decoder'"},
    {"component twice", [](Manifest& m) { m.components.push_back(m.components[0]); },
     "component 'text_decoder' is listed twice"},
    {"component without programs",
     [](Manifest& m) {
       m.components.push_back({"encoder", {}});
     },
     "component 'encoder' lists no program"},
    {"no methods", [](Manifest& m) { program(m, 0).methods.clear(); },
     "program 'decoder-00001-of-00002.pte' lists no method"},
    {"method in one program only",
     [](Manifest& m) {
       program(m, 1).methods.push_back(forward(m, 1));
       program(m, 1).methods[1].name = "get_max_seq_len";
     },
     "do not have the same methods"},
    {"method twice", [](Manifest& m) { program(m, 0).methods.push_back(forward(m, 0)); },
     "has two methods 'forward'"},
    {"method that is not there",
     [](Manifest& m) {
       for (const size_t i : {0u, 1u}) forward(m, i).name = "backward";
     },
     "has no method 'backward'"},
    {"no method forward",
     [](Manifest& m) {
       for (const size_t i : {0u, 1u}) forward(m, i).name = "backward";
     },
     "component 'text_decoder' has no method forward"},
    {"backend that is not needed", [](Manifest& m) { program(m, 1).backends = {"XnnpackBackend"}; },
     "needs the backends [], the manifest states [XnnpackBackend]"},
    {"scales of no codes", [](Manifest& m) { tensor_named(m, "q.weight").output = "scales"; },
     "tensor 'q.weight' is not the scales of a tensor of codes"},
    {"file twice", [](Manifest& m) { m.files.push_back(m.files[0]); }, "twice"},
    {"program twice", [](Manifest& m) { m.components[0].programs.push_back(program(m, 1)); },
     "listed twice"},
    {"program of two components",
     [](Manifest& m) {
       m.version = 9;
       m.components.push_back(m.components[0]);
       m.components[1].role = "token_embedding";
     },
     "method 'forward' of program 'decoder-00001-of-00002.pte' is of two components"},
    {"shared program with other data",
     [](Manifest& m) {
       m.version = 9;
       m.components.push_back(m.components[0]);
       m.components[1].role = "token_embedding";
       m.components[1].programs[0].data_files = {};
     },
     "program 'decoder-00001-of-00002.pte' has other data files in another component"},
    {"shared program before version 9",
     [](Manifest& m) {
       m.components.push_back(m.components[0]);
       m.components[1].role = "token_embedding";
     },
     "program 'decoder-00001-of-00002.pte' is listed twice"},
    {"method under another name",
     [](Manifest& m) {
       m.version = 9;
       for (const size_t i : {0u, 1u}) forward(m, i).program_method = "backward";
     },
     "has no method 'backward'"},
    {"method under its own name",
     [](Manifest& m) {
       m.version = 9;
       forward(m, 0).program_method = "forward";
     },
     "states its own name as another"},
    {"program not a file", [](Manifest& m) { program(m, 0).file = "x.pte"; },
     "program 'x.pte' is not among the files"},
    {"data not a file", [](Manifest& m) { program(m, 0).data_files[0] = "x.ptd"; },
     "data file 'x.ptd' is not among the files"},
    {"data file is a program", [](Manifest& m) { program(m, 1).data_files[1] = kPte1; },
     "both a program and a data file"},
    {"reference not a file", [](Manifest& m) { m.reference = "r.safetensors"; },
     "reference 'r.safetensors' is not among the files"},
    {"tensor twice", [](Manifest& m) { m.tensors.push_back(m.tensors[0]); }, "listed twice"},
    {"tensor missing", [](Manifest& m) { m.tensors.pop_back(); }, "holds"},
    {"tensor renamed", [](Manifest& m) { m.tensors[0].name = "x"; }, "where the manifest has 'x'"},
    {"tensor dtype", [](Manifest& m) { tensor_named(m, "q.weight").dtype = DType::kI32; },
     "tensor 'q.weight' is f32 [4, 4], the manifest states i32 [4, 4]"},
    {"tensor shape", [](Manifest& m) { tensor_named(m, "q.weight").shape = {16}; },
     "the manifest states f32 [16]"},
    {"tensor offset", [](Manifest& m) { tensor_named(m, "q.weight").offset += 16; }, "at offset"},
    {"tensor size", [](Manifest& m) { tensor_named(m, "q.weight").bytes -= 4; }, "bytes at offset"},
    {"tensor elsewhere", [](Manifest& m) { tensor_named(m, "q.weight").file = kPtd2; }, "holds"},
    {"data file not loaded",
     [](Manifest& m) { program(m, 1).data_files.erase(program(m, 1).data_files.begin()); },
     "tensor 'output.weight' is in none of its data files"},
    {"input count",
     [](Manifest& m) {
       forward(m, 0).inputs.push_back({"input_pos", DType::kI64, {1}});
     },
     "has 1 inputs, the manifest states 2"},
    {"input dtype", [](Manifest& m) { forward(m, 0).inputs[0].dtype = DType::kI64; },
     "input 'tokens' is f32 [1, 4] in the program and i64 [1, 4] in the manifest"},
    {"output shape",
     [](Manifest& m) {
       forward(m, 1).outputs[0].shape = {1, 5};
     },
     "output 'logits'"},
    {"positions of several tokens", [](Manifest& m) { forward(m, 0).inputs[0].name = "input_pos"; },
     "input 'input_pos' is [1, 4], not [1] by the manifest's one position"},
    {"unfed input", [](Manifest& m) { forward(m, 1).inputs[0].name = "nothing"; },
     "comes from no earlier program"},
    {"changed between shards", [](Manifest& m) { forward(m, 0).outputs[0].dtype = DType::kF16; },
     "an earlier program has it as f16 [1, 4]"},
    {"probe out of range", [](Manifest& m) { forward(m, 0).probes[0].value = 1000; },
     "is value 1000, which is not a tensor"},
    {"probe of no tensor", [](Manifest& m) { forward(m, 0).probes[0].value = 1; },
     "which is not a tensor"},
    {"probe twice", [](Manifest& m) { forward(m, 0).probes.push_back(forward(m, 0).probes[0]); },
     "two probes"},
    {"buffer shape", [](Manifest& m) { forward(m, 0).buffers[0].shape = {3}; }, "buffer 'plain'"},
    {"buffer size", [](Manifest& m) { forward(m, 0).buffers[0].bytes = 12; },
     "does not have the 12"},
    {"buffer contents", [](Manifest& m) { forward(m, 0).buffers[1].init = "none"; },
     "the program has its contents"},
    {"buffer without memory",
     [](Manifest& m) {
       forward(m, 0).buffers[0] = {"x", 0, DType::kF32, {1, 4}, 16, "none"};
     },
     "has no planned memory"},
    {"programs in another order", [](Manifest& m) { std::swap(program(m, 0), program(m, 1)); },
     "begins with layer 1 where 0 is next"},
    {"plain digest of a data file", [](Manifest& m) { m.files[1].method = "sha256"; },
     "has a digest of method 'sha256'"},
    {"segments of a program", [](Manifest& m) { m.files[0].method = "sha256-segments"; },
     "has a digest of method 'sha256-segments'"},
    {"tied tensors of two digests",
     [](Manifest& m) { tensor_named(m, "output.weight").sha256 = kZeroDigest; },
     "share a place but not a digest"},
    {"overlapping tensors",
     [](Manifest& m) {
       tensor_named(m, "tok.weight").bytes += 100;
       tensor_named(m, "output.weight").bytes += 100;
     },
     "overlap, are out of order"},
    {"tensors beyond the end",
     [](Manifest& m) { tensor_named(m, "q.weight").bytes = uint64_t{1} << 62; }, "beyond its end"},
    {"tensors out of order", [](Manifest& m) { std::swap(m.tensors[0], m.tensors[2]); },
     "out of order"},
    {"smaller vocabulary", [](Manifest& m) { m.vocab_size = 3; },
     "output 'logits' is [1, 4], not [1, 3]"},
    {"larger vocabulary", [](Manifest& m) { m.vocab_size = 5; },
     "output 'logits' is [1, 4], not [1, 5]"},
    {"no vocabulary", [](Manifest& m) { m.vocab_size = 0; }, "a size of the model is 0"},
    {"logits of all tokens", [](Manifest& m) { m.all_logits = true; }, "not [1, 4, 4]"},
    {"longer calls", [](Manifest& m) { m.prefill_length = 5; },
     "input 'tokens' is [1, 4], not [1, 5]"},
    {"longer calls than a method says", [](Manifest& m) { m.prefill_length = 5; },
     "its method get_max_seq_len gives 4, the manifest states 5"},
    {"calls longer than the context", [](Manifest& m) { m.context_length = 3; },
     "prefill_length 4 is more than context_length 3"},
    {"another hidden size", [](Manifest& m) { m.hidden_size = 7; },
     "the hidden_size of the manifest is 7"},
    {"switch at no token", [](Manifest& m) { m.rope_switch = 0; }, "rope_switch 0 is not inside"},
    {"switch beyond the context", [](Manifest& m) { m.rope_switch = 8; },
     "rope_switch 8 is not inside"},
    {"a sink of other caches",
     [](Manifest& m) {
       m.version = kAttentionSinkManifestVersion;
       m.attention_sink = {1, 4};
     },
     "attention_sink of 1 and 4 does not make the context_length 8"},
    {"a sink without tokens",
     [](Manifest& m) {
       m.version = kAttentionSinkManifestVersion;
       m.attention_sink = {0, 4};
     },
     "attention_sink of 0 and 4 does not make the context_length 8"},
    {"a huge sink",
     [](Manifest& m) {
       m.version = kAttentionSinkManifestVersion;
       m.attention_sink = {8, int64_t{1} << 62};
     },
     "does not make the context_length 8"},
    {"calls longer than a window",
     [](Manifest& m) {
       m.version = kAttentionSinkManifestVersion;
       m.attention_sink = {2, 3};
     },
     "prefill_length 4 is more than the window of attention_sink, 3"},
    {"layer missing", [](Manifest& m) { m.num_layers = 3; }, "end with layer 2, the model has 3"},
    {"placeholder beyond the vocabulary", [](Manifest& m) { m.image_token_id = 4; },
     "image_token_id 4 is outside of the vocabulary of 4"},
    {"placeholder of videos beyond the vocabulary",
     [](Manifest& m) {
       m.version = kVideoManifestVersion;
       m.video_token_id = 4;
     },
     "video_token_id 4 is outside of the vocabulary of 4"},
    {"seconds of impossible length",
     [](Manifest& m) {
       m.version = kVideoManifestVersion;
       m.tokens_per_second = 1'000'001;
     },
     "tokens_per_second is 1000001, expected 0 to 1000000"},
    {"images for a decoder of tokens",
     [](Manifest& m) {
       m.components.push_back({"vision_encoder", {program(m, 1)}, "f32"});
     },
     "has a component 'vision_encoder' but none 'token_embedding'"},
    {"features of another shape",
     [](Manifest& m) {
       m.components.push_back({"vision_encoder", {program(m, 1)}, "f32"});
       m.components.back().programs[0].methods[0].outputs[0] = {
           "image_features", DType::kF32, {1, 6, 3}};
     },
     "output 'image_features' is [1, 6, 3], not [1, 6, 4] by the manifest's width of the"},
    {"a list for no encoder",
     [](Manifest& m) {
       m.version = kPlacedRowsManifestVersion;
       m.patch_list = {4, 2};
     },
     "has a patch_list but no component vision_encoder"},
    {"a list of impossible patches",
     [](Manifest& m) {
       m.version = kPlacedRowsManifestVersion;
       m.patch_list = {0, 2};
     },
     "patch_list has a side of 0, expected 1 to 256"},
    {"a list in the place of a picture",
     [](Manifest& m) {
       m.version = kPlacedRowsManifestVersion;
       m.patch_list = {4, 2};
       m.components.push_back({"vision_encoder", {program(m, 1)}, "f32"});
       m.components.back().programs[0].methods[0].inputs[0] = {
           "pixel_values", DType::kF32, {1, 16, 48}};
     },
     "input 'pixel_values' is [1, 16, 48], not [1, 3, H, W]"},
    {"a picture of parts of blocks",
     [](Manifest& m) {
       m.version = kPlacedRowsManifestVersion;
       m.patch_list = {4, 2};
       m.components.push_back({"vision_encoder", {program(m, 1)}, "f32"});
       m.components.back().programs[0].methods[0].inputs[0] = {
           "pixel_values", DType::kF32, {1, 3, 8, 12}};
     },
     "which is not of whole blocks of 8 x 8 pixels"},
    {"a grid for no encoder",
     [](Manifest& m) {
       m.version = kImageGridManifestVersion;
       m.image_grid = {4, 2, 2, 0, 0};
     },
     "has an image_grid but no component 'vision_encoder'"},
    {"a grid of impossible patches",
     [](Manifest& m) {
       m.version = kImageGridManifestVersion;
       m.image_grid = {0, 2, 2, 0, int64_t{1} << 40};
     },
     "patch_size of image_grid is 0, expected 1 to 256"},
    {"patches of another size",
     [](Manifest& m) {
       m.version = kImageGridManifestVersion;
       m.image_grid = {4, 2, 2, 0, 0};
       m.components.push_back({"vision_encoder", {program(m, 1)}, "f32"});
       m.components.back().programs[0].methods[0].inputs[0] = {
           "pixel_values", DType::kF32, {1, 6, 100}};
     },
     "input 'pixel_values' is [1, 6, 100], not [1, 6, 384] by the manifest's image_grid"},
    {"resolutions for no encoder",
     [](Manifest& m) {
       m.version = kImageTilesManifestVersion;
       m.image_tiles = {{8, 8}, 0};
     },
     "has image_tiles but no component 'vision_encoder'"},
    {"half a resolution",
     [](Manifest& m) {
       m.version = kImageTilesManifestVersion;
       m.image_tiles = {{8, 8, 4}, 1000};
     },
     "image_tiles has 3 sides of resolutions"},
    {"resolutions of parts of tiles",
     [](Manifest& m) {
       m.version = kImageTilesManifestVersion;
       m.image_tiles = {{8, 6}, 0};
       m.components.push_back({"vision_encoder", {program(m, 1)}, "f32"});
       m.components.back().programs[0].methods[0].inputs[0] = {
           "pixel_values", DType::kF32, {1, 3, 4, 4}};
     },
     "image_tiles of the manifest has 8 x 6, which is not of whole tiles"},
    {"tiles without a square of features",
     [](Manifest& m) {
       m.version = kImageTilesManifestVersion;
       m.image_tiles = {{8, 8}, 0};
       m.components.push_back({"vision_encoder", {program(m, 1)}, "f32"});
       m.components.back().programs[0].methods[0].outputs[0] = {
           "image_features", DType::kF32, {1, 6, 4}};
     },
     "is [1, 6, 4], which is no square of features and a newline"},
    {"a source encoder that nothing attends to",
     [](Manifest& m) {
       m.version = kSourceManifestVersion;
       m.components.push_back({"source_encoder", {program(m, 0)}, "f32"});
     },
     "has a component 'source_encoder', but its text decoder takes no cross_k_0"},
    {"texts in two dimensions",
     [](Manifest& m) {
       m.version = kSourceManifestVersion;
       m.components.push_back({"source_encoder", {program(m, 0)}, "f32"});
       m.components.back().programs[0].methods[0].inputs[0] = {"source_ids", DType::kI64, {2, 4}};
     },
     "input 'source_ids' is [2, 4], not [1, tokens]"},
    {"two encoders",
     [](Manifest& m) {
       m.version = kSourceManifestVersion;
       m.components.push_back({"source_encoder", {program(m, 0)}, "f32"});
       m.components.push_back({"audio_encoder", {program(m, 0)}, "f32"});
     },
     "has both audio_encoder and source_encoder"},
    {"answers that begin with no token",
     [](Manifest& m) {
       m.version = kSourceManifestVersion;
       m.components.push_back({"source_encoder", {program(m, 0)}, "f32"});
       m.decoder_start_id = m.vocab_size;
     },
     "decoder_start_id is "},
    {"embeddings of another width",
     [](Manifest& m) {
       m.components.push_back({"token_embedding", {program(m, 0)}, "f32"});
       m.components.back().programs[0].methods[0].outputs[0] = {
           "embeddings", DType::kF32, {1, 4, 3}};
     },
     "value 'embeddings' is [1, 4, 3], not [1, 4, 4] by the manifest's prefill_length and"},
    {"embeddings of longer calls",
     [](Manifest& m) {
       m.components.push_back({"token_embedding", {program(m, 0)}, "f32"});
       m.components.back().programs[0].methods[0].outputs[0] = {
           "embeddings", DType::kF32, {1, 5, 4}};
     },
     "value 'embeddings' is [1, 5, 4], not [1, 4, 4] by the manifest's prefill_length and"},
};

TEST_F(BundleReader, ManifestThatContradictsItsFilesIsRefused) {
  for (const Lie& lie : kLies) {
    Manifest changed = manifest;
    lie.tell(changed);
    publish(changed);
    // Without digests only the structure shows the error.
    const auto bundle = Bundle::open(path, false, pool);
    ASSERT_FALSE(bundle) << lie.name;
    const std::string messages = all_messages(bundle);
    EXPECT_NE(messages.find(lie.message), std::string::npos) << lie.name << ": " << messages;
    EXPECT_FALSE(Bundle::open(path, true, pool)) << lie.name;
  }
  publish(manifest);
  EXPECT_TRUE(Bundle::open(path, true, pool));
}

// These cases change what a second method adds.
const Lie kMethodLies[] = {
    {"buffer of another shape",
     [](Manifest& m) {
       program(m, 0).methods[1].buffers[0].shape = {1, 2};
     },
     "buffer 'plain' of program 'decoder-00001-of-00002.pte' differs from method to method"},
    {"buffer elsewhere", [](Manifest& m) { program(m, 0).methods[1].buffers[0].name = "kept"; },
     "buffer 'kept'"},
    {"methods in another order",
     [](Manifest& m) { std::swap(program(m, 1).methods[0], program(m, 1).methods[1]); },
     "do not have the same methods"},
    {"unfed input of the second method",
     [](Manifest& m) { program(m, 1).methods[1].inputs[0].name = "nothing"; },
     "input 'nothing' of method 'decode' of program 'decoder-00002-of-00002.pte' comes from no"},
    {"longer calls than prefill_length",
     [](Manifest& m) {
       program(m, 0).methods[1].inputs[0].shape = {1, 5};
     },
     "method 'decode' takes 5 tokens, the prefill_length is 4"},
};

TEST_F(BundleReader, MethodsOfOneProgramFitTogether) {
  path = dir / "two";
  const auto plan = BundlePlan::make(model.two_methods(), model.source, 0);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto written = plan->write(path, false, pool, {});
  ASSERT_TRUE(written) << written.error().message;
  const auto good = check_bundle(path, pool);
  ASSERT_TRUE(good);
  EXPECT_TRUE(good->ok());
  for (const Lie& lie : kMethodLies) {
    Manifest changed = written->manifest;
    lie.tell(changed);
    publish(changed);
    EXPECT_NE(all_messages(Bundle::open(path, false, pool)).find(lie.message), std::string::npos)
        << lie.name << ": " << all_messages(Bundle::open(path, false, pool));
  }
}

// Both methods of the program name the buffer, and the second method plans it at another place.
TEST_F(BundleReader, SharedBufferHasOnePlace) {
  BundleInput input = model.two_methods();
  pte::Method& decode = input.components[0].parts[0].lowered->program.methods[1];
  const int32_t plain = input.components[0].parts[0].lowered->methods[1].buffers[0].value;
  std::get<pte::Tensor>(decode.values[static_cast<size_t>(plain)]).allocation->offset = 8;
  const auto plan = BundlePlan::make(std::move(input), model.source, 0);
  ASSERT_FALSE(plan);
  ASSERT_EQ(plan.error().details.size(), 1u);
  EXPECT_NE(plan.error().details[0].find("buffer 'plain' is at another place in method 'decode'"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::packer::bundle_reader_lies_test
