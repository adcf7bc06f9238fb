#include "packer/bundle_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "packer/check.h"
#include "tests/packer/tiny_bundle.h"

namespace ferry::packer {
namespace {

namespace fs = std::filesystem;

const char kPte1[] = "decoder-00001-of-00002.pte";
const char kPte2[] = "decoder-00002-of-00002.pte";
const char kPtd1[] = "decoder-00001-of-00002.ptd";
const char kPtd2[] = "decoder-00002-of-00002.ptd";

class BundleReader : public testing::Test {
 protected:
  BundleReader() : path(dir / "out") {
    write_file(dir / "t", "{\"a\": 1}");
    model.copied = {copied_file("tokenizer.json", dir / "t")};
    manifest = write_tiny_bundle(model, path);
  }

  // Fewer bytes, for tests that try them all.
  void use_one_shard() {
    path = dir / "small";
    const auto plan = BundlePlan::make(model.one_shard(), model.source, 0);
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_TRUE(plan->write(path, false, pool, {}));
  }

  // The message of opening, which must fail.
  std::string refusal(bool digests = true) {
    const auto bundle = Bundle::open(path, digests, pool);
    EXPECT_FALSE(bundle);
    return bundle ? "" : bundle.error().message;
  }
  void expect_refused_naming(const std::string& file, const std::string& what) {
    const std::string message = refusal();
    EXPECT_EQ(message.find(path + "/" + file + ": "), 0u) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  // Bits are flipped in place through a mapping: writing each variant as a file would take minutes.
  void flip_bits(const std::string& name) {
    const std::string file = path + "/" + name;
    const size_t size = fs::file_size(file);
    const int fd = ::open(file.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    ::close(fd);
    auto* bytes = static_cast<unsigned char*>(mapped);
    // A bit of each byte, each time another one; all of them with FERRY_EVERY_BIT in the
    // environment.
    const bool all = std::getenv("FERRY_EVERY_BIT") != nullptr;
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      if (!all && bit % 8 != bit / 8 % 8) continue;
      const auto mask = static_cast<unsigned char>(1u << bit % 8);
      bytes[bit / 8] ^= mask;
      // By SHA-256 and, for those who execute it, by XXH3.
      const auto bundle =
          bit % 2 == 0 ? Bundle::open(path, true, pool) : Bundle::open_to_execute(path, pool);
      bytes[bit / 8] ^= mask;
      ASSERT_FALSE(bundle) << name << " bit " << bit;
      ASSERT_EQ(bundle.error().message.find(file + ": "), 0u) << bundle.error().message;
    }
    ::munmap(mapped, size);
    EXPECT_TRUE(Bundle::open(path, true, pool));
    EXPECT_TRUE(Bundle::open_to_execute(path, pool));
  }
  // Somebody may change the manifest, and give it a self digest that is right.
  void publish(const Manifest& changed) {
    write_file(path + "/manifest.json", write_manifest(changed));
  }

  TempDir dir;
  std::string path;
  TinyModel model;
  Manifest manifest;
  ThreadPool pool{1};
};

TEST_F(BundleReader, OpensWhatWasWritten) {
  const auto bundle = Bundle::open(path, true, pool);
  ASSERT_TRUE(bundle) << bundle.error().message;
  ASSERT_EQ(bundle->programs().size(), 2u);
  EXPECT_EQ(bundle->data().size(), 2u);
  EXPECT_EQ(bundle->data_of(0).size(), 1u);
  EXPECT_EQ(bundle->data_of(1).size(), 2u);
  EXPECT_EQ(bundle->manifest().model_type, "tiny");
  EXPECT_EQ(bundle->manifest().bos_id, 1);
  const auto& constants = bundle->programs()[0].loaded.data.constants;
  ASSERT_EQ(constants.size(), 2u);
  EXPECT_EQ(std::to_integer<int>(constants[1][0]), 1);
  EXPECT_EQ(std::to_integer<int>(constants[1][1]), 8);
  const auto& initial = bundle->programs()[0].loaded.data.initial;
  ASSERT_EQ(initial.size(), 2u);
  EXPECT_EQ(std::to_integer<int>(initial[1][11]), 78);
}

TEST_F(BundleReader, StaysValidWhenMoved) {
  auto opened = Bundle::open(path, false, pool);
  ASSERT_TRUE(opened);
  const Bundle bundle = std::move(*opened);
  const BundleData& data = *bundle.data_of(0)[0];
  EXPECT_EQ(data.file.bytes().size(), read_file(path + "/" + kPtd1).size());
  EXPECT_EQ(data.content.tensors[0].key, "tok.weight");
}

// What was checked is what is read: files that were exchanged, or changed in place, after the
// bundle was opened.
TEST_F(BundleReader, CopiedFilesAreReadFromTheFilesThatWereChecked) {
  const auto bundle = Bundle::open(path, true, pool);
  ASSERT_TRUE(bundle);
  EXPECT_TRUE(bundle->has_text("tokenizer.json"));
  EXPECT_FALSE(bundle->has_text(kPte1));
  EXPECT_EQ(bundle->text("tokenizer.json", 100).value(), "{\"a\": 1}");
  EXPECT_FALSE(bundle->text("tokenizer.json", 5)) << "a limit";
  const auto absent = bundle->text("other.json", 100);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().message, path + ": the bundle has no other.json");

  write_file(path + "/tokenizer.json", "{\"a\": 2}");
  const auto changed = bundle->text("tokenizer.json", 100);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().message, path + "/tokenizer.json: changed while it was being read");

  write_file(path + "/tokenizer.json", "{\"a\": 1}");
  const auto again = Bundle::open(path, true, pool);
  ASSERT_TRUE(again);
  write_file(dir / "evil", "{\"a\": 3}");
  fs::rename(dir / "evil", path + "/tokenizer.json");
  const auto text = again->text("tokenizer.json", 100);
  EXPECT_TRUE(!text || *text == "{\"a\": 1}");
}

// Two tests, so that they run at the same time.
TEST_F(BundleReader, ABitFlipInAnyByteOfTheManifestIsRefusedByName) {
  use_one_shard();
  flip_bits("manifest.json");
}

TEST_F(BundleReader, ABitFlipInAnyByteOfAnyOtherFileIsRefusedByName) {
  use_one_shard();
  for (const std::string& name : names_in(path)) {
    if (name != kManifestName) flip_bits(name);
  }
}

TEST_F(BundleReader, EveryTruncationOfEveryFileIsRefusedByName) {
  use_one_shard();
  for (const std::string& name : names_in(path)) {
    const std::string file = path + "/" + name;
    const std::string whole = read_file(file);
    for (size_t size = whole.size(); size-- > 0;) {
      fs::resize_file(file, size);
      const auto bundle = Bundle::open(path, false, pool);
      ASSERT_FALSE(bundle) << name << " " << size;
      ASSERT_EQ(bundle.error().message.find(file + ": "), 0u) << bundle.error().message;
    }
    write_file(file, whole);
  }
}

TEST_F(BundleReader, MissingFileIsNamed) {
  for (const std::string& name : names_in(path)) {
    fs::rename(path + "/" + name, dir / "aside");
    expect_refused_naming(name, "is missing from the bundle");
    fs::rename(dir / "aside", path + "/" + name);
  }
}

TEST_F(BundleReader, ExtraFileIsNamed) {
  for (const char* name : {"extra", "model.sig.bak", ".hidden", "decoder-00003-of-00003.pte"}) {
    write_file(path + "/" + name, "");
    expect_refused_naming(name, "not in its manifest");
    fs::remove(path + "/" + name);
  }
  fs::create_directory(path + "/sub");
  expect_refused_naming("sub", "not in its manifest");
}

TEST_F(BundleReader, SignatureMayBeThereAsARegularFile) {
  write_file(path + "/model.sig", "");
  const auto signed_bundle = check_bundle(path, pool);
  ASSERT_TRUE(signed_bundle);
  EXPECT_TRUE(signed_bundle->ok());
  fs::remove(path + "/model.sig");
  fs::create_directory(path + "/model.sig");
  expect_refused_naming("model.sig", "not in its manifest");
  fs::remove(path + "/model.sig");
  fs::create_symlink("manifest.json", path + "/model.sig");
  expect_refused_naming("model.sig", "not in its manifest");
}

TEST_F(BundleReader, RenamedFileIsNamedUnderBothNames) {
  fs::rename(path + "/" + kPtd1, path + "/other.ptd");
  const auto report = check_bundle(path, pool);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->problems.size(), 2u);
  EXPECT_EQ(report->problems[0].file, kPtd1);
  EXPECT_EQ(report->problems[1].file, "other.ptd");
}

TEST_F(BundleReader, SwappedFilesAreRefused) {
  const auto swap = [&](const char* a, const char* b) {
    fs::rename(path + "/" + a, dir / "aside");
    fs::rename(path + "/" + b, path + "/" + a);
    fs::rename(dir / "aside", path + "/" + b);
  };
  swap(kPte1, kPte2);
  EXPECT_NE(refusal().find(kPte1), std::string::npos);
  // Without digests the structure still tells them apart.
  EXPECT_NE(refusal(false).find(kPte1), std::string::npos);
  swap(kPte1, kPte2);
  swap(kPtd1, kPtd2);
  EXPECT_NE(refusal().find(kPtd1), std::string::npos);
}

TEST_F(BundleReader, SymbolicLinkIsRefused) {
  fs::rename(path + "/" + kPtd1, dir / "aside");
  fs::create_symlink(dir / "aside", path + "/" + kPtd1);
  expect_refused_naming(kPtd1, "is a symbolic link");
}

TEST_F(BundleReader, FifoIsRefusedWithoutBlocking) {
  fs::remove(path + "/" + kPtd1);
  ASSERT_EQ(::mkfifo((path + "/" + kPtd1).c_str(), 0600), 0);
  expect_refused_naming(kPtd1, "is not a regular file");
}

TEST_F(BundleReader, AbsentDirectoryIsAnIoError) {
  const auto bundle = Bundle::open(dir / "absent", true, pool);
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().code, ErrorCode::kIo);
  EXPECT_FALSE(check_bundle(dir / "absent", pool));
}

TEST_F(BundleReader, DamagedTensorIsNamedWithItsOffset) {
  const ManifestTensor* tensor = nullptr;
  for (const ManifestTensor& t : manifest.tensors) {
    if (t.name == "q.weight") tensor = &t;
  }
  ASSERT_TRUE(tensor);
  std::string bytes = read_file(path + "/" + tensor->file);
  bytes[tensor->offset + 5] ^= 1;
  write_file(path + "/" + tensor->file, bytes);
  expect_refused_naming(tensor->file,
                        "tensor 'q.weight', offset " + std::to_string(tensor->offset));
}

TEST_F(BundleReader, DamagedPaddingIsNamedAsSuch) {
  std::string bytes = read_file(path + "/" + kPtd1);
  bytes[manifest.tensors[0].offset - 1] ^= 1;
  write_file(path + "/" + kPtd1, bytes);
  expect_refused_naming(kPtd1, "outside of its tensors");
}

TEST_F(BundleReader, CheckReportsEverythingThatIsWrong) {
  const auto good = check_bundle(path, pool);
  ASSERT_TRUE(good);
  EXPECT_TRUE(good->ok());
  EXPECT_EQ(good->files, 6u);
  uint64_t bytes = 0;
  for (const auto& [name, text] : read_directory(path)) bytes += text.size();
  EXPECT_EQ(good->bytes, bytes);

  fs::remove(path + "/" + kPte2);
  write_file(path + "/extra", "");
  write_file(path + "/tokenizer.json", "{\"a\": 2}");
  const auto bad = check_bundle(path, pool);
  ASSERT_TRUE(bad);
  std::vector<std::string> files;
  for (const CheckProblem& problem : bad->problems) files.push_back(problem.file);
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files, (std::vector<std::string>{kPte2, "extra", "tokenizer.json"}));
}

TEST_F(BundleReader, WhatHasNothingOfABundleIsNotADamagedOne) {
  fs::create_directory(dir / "other");
  write_file(dir / "other/notes.txt", "");
  const auto report = check_bundle(dir / "other", pool);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(report.error().message, (dir / "other") + ": not a bundle: it has no manifest.json");
}

TEST_F(BundleReader, CheckOfABundleWithoutItsManifestIsNo) {
  fs::remove(path + "/manifest.json");
  const auto report = check_bundle(path, pool);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].file, "manifest.json");
}

// Somebody who rewrites the manifest with right digests still has to make sense.
std::string all_messages(const Result<Bundle>& bundle) {
  if (bundle) return "";
  std::string messages = bundle.error().message;
  for (const std::string& detail : bundle.error().details) messages += "\n" + detail;
  return messages;
}

struct Lie {
  const char* name;
  void (*tell)(Manifest&);
  const char* message;
};

ManifestTensor& named(Manifest& m, const std::string& name) {
  return *std::find_if(m.tensors.begin(), m.tensors.end(),
                       [&](const ManifestTensor& t) { return t.name == name; });
}

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
    {"scales of no codes", [](Manifest& m) { named(m, "q.weight").output = "scales"; },
     "tensor 'q.weight' is not the scales of a tensor of codes"},
    {"file twice", [](Manifest& m) { m.files.push_back(m.files[0]); }, "twice"},
    {"program twice", [](Manifest& m) { m.components[0].programs.push_back(program(m, 1)); },
     "listed twice"},
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
    {"tensor dtype", [](Manifest& m) { named(m, "q.weight").dtype = DType::kI32; },
     "tensor 'q.weight' is f32 [4, 4], the manifest states i32 [4, 4]"},
    {"tensor shape", [](Manifest& m) { named(m, "q.weight").shape = {16}; },
     "the manifest states f32 [16]"},
    {"tensor offset", [](Manifest& m) { named(m, "q.weight").offset += 16; }, "at offset"},
    {"tensor size", [](Manifest& m) { named(m, "q.weight").bytes -= 4; }, "bytes at offset"},
    {"tensor elsewhere", [](Manifest& m) { named(m, "q.weight").file = kPtd2; }, "holds"},
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
     [](Manifest& m) { named(m, "output.weight").sha256 = kZeroDigest; },
     "share a place but not a digest"},
    {"overlapping tensors",
     [](Manifest& m) {
       named(m, "tok.weight").bytes += 100;
       named(m, "output.weight").bytes += 100;
     },
     "overlap, are out of order"},
    {"tensors beyond the end", [](Manifest& m) { named(m, "q.weight").bytes = uint64_t{1} << 62; },
     "beyond its end"},
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
    {"layer missing", [](Manifest& m) { m.num_layers = 3; }, "end with layer 2, the model has 3"},
    {"placeholder beyond the vocabulary", [](Manifest& m) { m.image_token_id = 4; },
     "image_token_id 4 is outside of the vocabulary of 4"},
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
     "output 'image_features' is [1, 6, 3], not [1, 6, 4] by the manifest's hidden_size"},
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
    // Without digests, so that it is the structure which tells.
    const auto bundle = Bundle::open(path, false, pool);
    ASSERT_FALSE(bundle) << lie.name;
    const std::string messages = all_messages(bundle);
    EXPECT_NE(messages.find(lie.message), std::string::npos) << lie.name << ": " << messages;
    EXPECT_FALSE(Bundle::open(path, true, pool)) << lie.name;
  }
  publish(manifest);
  EXPECT_TRUE(Bundle::open(path, true, pool));
}

// What the file held before its last byte was changed.
std::string damage(const std::string& file) {
  const std::string whole = read_file(file);
  std::string damaged = whole;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_file(file, damaged);
  return whole;
}

TEST_F(BundleReader, OpensBundlesOfEarlierVersions) {
  model.copied.clear();  // as in the stored manifests
  use_one_shard();
  const std::string stored = FERRY_TESTDATA "/manifest/version";
  EXPECT_EQ(read_file(path + "/manifest.json"), read_file(stored + "7.json"));
  for (const int64_t version : {2, 3, 4, 5, 6}) {
    write_file(path + "/manifest.json", read_file(stored + std::to_string(version) + ".json"));
    const auto bundle = Bundle::open(path, true, pool);
    ASSERT_TRUE(bundle) << all_messages(bundle);
    EXPECT_EQ(bundle->manifest().version, version);
    EXPECT_TRUE(check_bundle(path, pool)->ok());
    EXPECT_TRUE(Bundle::open_to_execute(path, pool));
    const std::string data = path + "/decoder-00001-of-00001.ptd", whole = damage(data);
    EXPECT_FALSE(Bundle::open_to_execute(path, pool));
    write_file(data, whole);
  }
}

TEST_F(BundleReader, FastDigestsFindTheSameAndAreChecked) {
  const std::string file = path + "/" + kPtd1;
  const std::string whole = damage(file);
  const auto by_sha256 = Bundle::open(path, true, pool), fast = Bundle::open_to_execute(path, pool);
  ASSERT_FALSE(fast);
  EXPECT_EQ(fast.error().message, by_sha256.error().message);
  EXPECT_NE(fast.error().message.find("(tensor "), std::string::npos) << fast.error().message;
  write_file(file, whole);
  ASSERT_TRUE(Bundle::open_to_execute(path, pool));
  for (const size_t index : {0, 1}) {
    Manifest changed = manifest;
    changed.files[index].xxh3 = kZeroFastDigest;
    publish(changed);
    const std::string message = path + "/" + changed.files[index].path +
                                ": does not have the XXH3 that the manifest states beside its "
                                "SHA-256";
    EXPECT_EQ(all_messages(Bundle::open_to_execute(path, pool)), message);
    EXPECT_EQ(refusal(), message);
  }
}

// The same for what a second method adds.
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

// Both methods of the program name the buffer; the second one plans it elsewhere.
TEST_F(BundleReader, SharedBufferHasOnePlace) {
  BundleInput input = model.two_methods();
  pte::Method& decode = input.components[0].parts[0].lowered.program.methods[1];
  const int32_t plain = input.components[0].parts[0].lowered.methods[1].buffers[0].value;
  std::get<pte::Tensor>(decode.values[static_cast<size_t>(plain)]).allocation->offset = 8;
  const auto plan = BundlePlan::make(std::move(input), model.source, 0);
  ASSERT_FALSE(plan);
  ASSERT_EQ(plan.error().details.size(), 1u);
  EXPECT_NE(plan.error().details[0].find("buffer 'plain' is at another place in method 'decode'"),
            std::string::npos);
}

TEST_F(BundleReader, ProgramsAreFoundByRole) {
  const auto bundle = Bundle::open(path, false, pool);
  ASSERT_TRUE(bundle);
  EXPECT_EQ(bundle->programs_of("text_decoder"), (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(bundle->programs_of("vision_encoder").empty());
  EXPECT_EQ(bundle->entry(1).file, kPte2);
}

TEST_F(BundleReader, AllProblemsArriveWithTheFirst) {
  fs::remove(path + "/" + kPte2);
  fs::remove(path + "/" + kPtd2);
  const auto bundle = Bundle::open(path, true, pool);
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(bundle.error().details.size(), 1u);
}

}  // namespace
}  // namespace ferry::packer
