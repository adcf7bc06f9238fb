#include "formats/hdf5/hdf5.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "tests/formats/corpus.h"
#include "tests/formats/opening_message.h"
#include "tests/formats/temp_dir.h"

namespace ferry::formats::hdf5_test {
namespace {

namespace fs = std::filesystem;

std::string fixture(const std::string& name) { return FERRY_TESTDATA "/hdf5/" + name; }

std::vector<std::byte> bytes_of(const TensorSource& source, size_t index) {
  std::vector<std::byte> bytes(source.entries()[index].bytes);
  const Status status = source.read(index, 0, bytes);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  return bytes;
}

bool is_optimizer(const std::string& name) { return name.starts_with("optimizer"); }

// `golden` has every dataset of the file as h5py reads it, those of the optimizer too.
void expect_same(const TensorSource& source, const TensorSource& golden) {
  size_t expected = 0;
  for (const TensorEntry& entry : golden.entries()) expected += !is_optimizer(entry.name);
  EXPECT_EQ(source.entries().size(), expected);
  for (size_t i = 0; i < source.entries().size(); ++i) {
    const TensorEntry& entry = source.entries()[i];
    SCOPED_TRACE(entry.name);
    const auto same = std::ranges::find(golden.entries(), entry.name, &TensorEntry::name);
    ASSERT_NE(same, golden.entries().end());
    EXPECT_EQ(entry.dtype, same->dtype);
    EXPECT_EQ(entry.shape, same->shape);
    EXPECT_TRUE(bytes_of(source, i) ==
                bytes_of(golden, static_cast<size_t>(same - golden.entries().begin())));
  }
}

// Keras wrote these files: contiguous f32, f16, bf16 with and without the attribute, int8, and
// legacy files with and without split lists.
TEST(Hdf5, FilesOfKerasHaveTheReferenceBytes) {
  for (const std::string name :
       {"functional.weights", "functional_bf16.weights", "functional_f16.weights",
        "qwen3_int8.weights", "legacy_bf16", "legacy_model", "legacy_split_names",
        "legacy_tfkeras_style_emulated"}) {
    SCOPED_TRACE(name);
    const auto source = checkpoint::open_tensors(fixture(name + ".h5"));
    ASSERT_TRUE(source) << source.error().message;
    const std::string stem = name.substr(0, name.find('.'));
    const auto golden = checkpoint::open_tensors(fixture(stem + ".tensors.safetensors")).value();
    expect_same(**source, *golden);
  }
}

// The data is shuffled, deflated and cut into chunks.
TEST(Hdf5, ChunkedDataHaveTheReferenceBytes) {
  const auto source = checkpoint::open_tensors(fixture("golden.h5")).value();
  const auto golden =
      checkpoint::open_tensors(FERRY_TESTDATA "/qwen3_5_text/golden.safetensors").value();
  size_t compared = 0;
  for (size_t i = 0; i < source->entries().size(); ++i) {
    std::string name = source->entries()[i].name;
    std::ranges::replace(name, '/', '.');
    const auto same = std::ranges::find(golden->entries(), name, &TensorEntry::name);
    if (same == golden->entries().end()) continue;
    ++compared;
    EXPECT_TRUE(bytes_of(*source, i) ==
                bytes_of(*golden, static_cast<size_t>(same - golden->entries().begin())))
        << name;
  }
  EXPECT_EQ(compared, golden->entries().size());
}

TEST(Hdf5, AnyRangeOfAChunkedTensorCanBeRead) {
  const auto source = checkpoint::open_tensors(fixture("golden.h5")).value();
  for (size_t i = 0; i < source->entries().size(); ++i) {
    const std::vector<std::byte> whole = bytes_of(*source, i);
    for (size_t offset = 0; offset < whole.size(); offset += whole.size() / 5 + 3) {
      for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{1030}}) {
        std::vector<std::byte> part(std::min(size, whole.size() - offset));
        ASSERT_TRUE(source->read(i, offset, part));
        EXPECT_TRUE(std::ranges::equal(part, std::span(whole).subspan(offset, part.size())));
      }
    }
  }
}

// Returns the values of each [7, 5] dataset of `layouts.h5` and `latest.h5`, as their element type
// stores them.
double stored_value(DType dtype, size_t i) {
  const double value = static_cast<double>(i) - 3.5;
  if (dtype == DType::kI64) return 1000000007.0 * static_cast<double>(i) - 5;
  if (dtype == DType::kI16) return std::trunc(value);
  if (dtype == DType::kU8) return std::max(std::trunc(value), 0.0);
  return value;
}

double value_at(DType dtype, const std::byte* data) {
  const auto load = [data](auto value) {
    std::memcpy(&value, data, sizeof value);
    return static_cast<double>(value);
  };
  switch (dtype) {
    case DType::kF64:
      return load(double{});
    case DType::kI64:
      return load(int64_t{});
    case DType::kI16:
      return load(int16_t{});
    case DType::kU8:
      return load(uint8_t{});
    default:
      return load(float{});
  }
}

// The files have both byte orders, every layout and index of chunks, every choice of filters, and
// chunks that reach beyond the shape.
TEST(Hdf5, EveryLayoutHoldsTheSameValues) {
  size_t compared = 0;
  for (const std::string name : {"layouts.h5", "latest.h5"}) {
    const auto source = checkpoint::open_tensors(fixture(name));
    ASSERT_TRUE(source) << source.error().message;
    for (size_t t = 0; t < (*source)->entries().size(); ++t) {
      const TensorEntry& entry = (*source)->entries()[t];
      if (entry.shape != Shape{7, 5}) continue;
      SCOPED_TRACE(name + " " + entry.name);
      ++compared;
      const std::vector<std::byte> bytes = bytes_of(**source, t);
      const auto size = static_cast<size_t>(dtype_bytes(entry.dtype));
      for (size_t i = 0; i < 35; ++i) {
        ASSERT_EQ(value_at(entry.dtype, &bytes[i * size]), stored_value(entry.dtype, i)) << i;
      }
      std::vector<std::byte> part(size + 3);  // a read from the middle of an element
      ASSERT_TRUE((*source)->read(t, 2 * size + 1, part));
      EXPECT_TRUE(std::ranges::equal(part, std::span(bytes).subspan(2 * size + 1, part.size())));
    }
  }
  EXPECT_EQ(compared, 29u);
}

// Datasets that were never stored, or only in part, as libhdf5 reads them.
TEST(Hdf5, WhatIsNotStoredHasItsFillValue) {
  const std::map<std::string, double> fill_of = {
      {"contiguous", 0},        {"contiguous_fill", -2.5},
      {"contiguous_big", -2.5}, {"contiguous_int", -3},
      {"chunked", 0},           {"chunked_fill", -2.5},
      {"chunked_part", -2.5},   {"chunked_part_big", 7},
      {"chunked_part_zero", 0}, {"chunked_part_int", -3},
      {"compact", 0},           {"compact_fill", -2.5}};
  const auto source = checkpoint::open_tensors(fixture("fill.h5"));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->entries().size(), fill_of.size());
  for (size_t t = 0; t < (*source)->entries().size(); ++t) {
    const TensorEntry& entry = (*source)->entries()[t];
    SCOPED_TRACE(entry.name);
    const double fill = fill_of.at(entry.name);
    const bool part = entry.name.starts_with("chunked_part");
    const std::vector<std::byte> bytes = bytes_of(**source, t);
    const auto size = static_cast<size_t>(dtype_bytes(entry.dtype));
    for (size_t i = 0; i < 35; ++i) {
      // One chunk is stored: 1 to 6 in rows 3 to 5, columns 2 and 3.
      const size_t row = i / 5, column = i % 5;
      const bool stored = part && row >= 3 && row < 6 && column >= 2 && column < 4;
      const double value = stored ? static_cast<double>((row - 3) * 2 + column - 1) : fill;
      EXPECT_EQ(value_at(entry.dtype, &bytes[i * size]), value) << i;
    }
    for (size_t begin = 0; begin + 7 < bytes.size(); begin += 5) {
      std::vector<std::byte> some(7);
      ASSERT_TRUE((*source)->read(t, begin, some));
      EXPECT_TRUE(std::ranges::equal(some, std::span(bytes).subspan(begin, 7))) << begin;
    }
  }
  for (const std::string name : {"unallocated.h5", "missing_chunk.h5"}) {
    EXPECT_EQ(opening_message(fixture(name)), "accepted");
  }
}

TEST(Hdf5, AScalarAndARankOfThree) {
  const auto source = checkpoint::open_tensors(fixture("layouts.h5")).value();
  for (size_t t = 0; t < source->entries().size(); ++t) {
    const TensorEntry& entry = source->entries()[t];
    const std::vector<std::byte> bytes = bytes_of(*source, t);
    if (entry.name == "scalar") {
      EXPECT_EQ(entry.shape, Shape{});
      EXPECT_EQ(value_at(entry.dtype, bytes.data()), 3.5);
    }
    if (entry.name != "rank3") continue;
    for (size_t i = 0; i < 60; ++i) EXPECT_EQ(value_at(entry.dtype, &bytes[4 * i]), i);
  }
}

TEST(Hdf5, ACycleOfGroupsEnds) {
  const auto source = checkpoint::open_tensors(fixture("cycle.h5")).value();
  ASSERT_EQ(source->entries().size(), 1u);
  EXPECT_EQ(source->entries()[0].name, "g/w");
}

TEST(Hdf5, WhatIsNotReadIsSaid) {
  const std::pair<std::string, std::string> cases[] = {
      {"soft_link.h5", ": a soft link (tensor 'x')"},
      {"fill_undefined.h5",
       ": 140 of its 140 bytes are not stored, and the file states no fill value (tensor 'w')"},
      {"fill_never.h5",
       ": 116 of its 140 bytes are not stored, and the file states no fill value (tensor 'w')"},
      {"fill_large.h5", ": more than 1048576 bytes are fill values (tensor 'w')"},
      {"enum.h5", ": elements of type enumeration (tensor 'w')"},
      {"scaleoffset.h5", ": the filter 6 (tensor 'w')"},
      {"partial_chunks.h5", ": partial chunks that are not filtered (tensor 'w')"},
      {"userblock_chunked.h5", ": chunked data in a file with a user block (tensor 'w')"},
  };
  for (const auto& [name, message] : cases) {
    EXPECT_EQ(opening_message(fixture(name)), fixture(name) + message);
  }
}

TEST(Hdf5, AttributesOfKerasAreKept) {
  const Hdf5File file =
      open_hdf5(one_file(InputFile::open(fixture("legacy_model.h5")).value(), "m.h5"), "m.h5")
          .value();
  const auto find = [&](const std::string& object, const std::string& name) {
    for (const hdf5::Attribute& a : file.attributes.attributes) {
      if (a.object == object && a.name == name) return a.values;
    }
    return std::vector<std::string>{"absent"};
  };
  EXPECT_EQ(find("", "keras_version"), (std::vector<std::string>{"3.15.1"}));
  EXPECT_EQ(find("model_weights", "layer_names"),
            (std::vector<std::string>{"ids", "tok", "pool", "fc1", "bn", "head"}));
  EXPECT_EQ(find("model_weights/fc1", "weight_names"),
            (std::vector<std::string>{"fc1/kernel", "fc1/bias"}));
  EXPECT_EQ(find("model_weights/pool", "weight_names"), std::vector<std::string>{});
}

TEST(Hdf5, TheOptimizerIsLeftOut) {
  const Hdf5File file =
      open_hdf5(one_file(InputFile::open(fixture("functional.weights.h5")).value(), "m.h5"), "m.h5")
          .value();
  EXPECT_GT(file.attributes.optimizer_bytes, 0u);
  for (const TensorEntry& entry : file.source->entries()) EXPECT_FALSE(is_optimizer(entry.name));
}

TEST(Hdf5, TheContentCountsAndNotTheName) {
  TempDir dir;
  const std::string path = dir / "weights";
  fs::copy_file(fixture("legacy_bf16.h5"), path);
  EXPECT_EQ(opening_message(path), "accepted");
  EXPECT_EQ(opening_message(dir.write("x.h5", "no")), (dir / "x.h5") + ": no HDF5 signature");
}

TEST(Hdf5, ADirectoryOfKerasHubIsOpened) {
  TempDir dir;
  fs::copy_file(fixture("functional.weights.h5"), dir / "model.weights.h5");
  EXPECT_EQ(checkpoint::open_tensors(dir.path()).value()->files()[0].name, "model.weights.h5");
}

TEST(Hdf5, AFileThatChangesIsNoticed) {
  TempDir dir;
  const std::string path = dir / "x.h5";
  fs::copy_file(fixture("legacy_bf16.h5"), path);
  const auto source = checkpoint::open_tensors(path).value();
  fs::resize_file(path, fs::file_size(path) - 1);
  std::vector<std::byte> bytes(2);
  EXPECT_EQ(source->read(0, 0, bytes).error().code, ErrorCode::kIo);
  EXPECT_EQ(source->check_unchanged().error().code, ErrorCode::kIo);
}

TEST(Hdf5, ReadsOutsideOfATensorAreRefused) {
  const auto source = checkpoint::open_tensors(fixture("legacy_bf16.h5")).value();
  const uint64_t bytes = source->entries()[0].bytes;
  std::vector<std::byte> out(2);
  EXPECT_TRUE(source->read(0, bytes - 2, out));
  EXPECT_FALSE(source->read(0, bytes - 1, out));
  EXPECT_FALSE(source->read(0, UINT64_MAX, out));
  EXPECT_FALSE(source->read(source->entries().size(), 0, {}));
}

// The reader returns, whatever byte is changed. libhdf5 crashes for some of these files.
TEST(Hdf5, DamageNeverCrashes) {
  TempDir dir;
  const std::string valid =
      read_text_file(FERRY_TESTDATA "/hostile/hdf5/h5_valid.h5", 1 << 20).value();
  size_t accepted = 0, refused = 0;
  for (size_t i = 8; i < valid.size(); i += 29) {
    std::string damaged = valid;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xff);
    const auto source = checkpoint::open_tensors(dir.write("x.h5", damaged));
    ++(source ? accepted : refused);
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(refused, 0u);
}

// -- sharded

class KerasShards : public testing::Test {
 protected:
  KerasShards() {
    for (const auto& entry : fs::directory_iterator(fixture("sharded"))) {
      if (entry.path().extension() == ".safetensors") continue;
      fs::copy_file(entry.path(), dir_ / entry.path().filename().string());
    }
  }
  std::string index() const { return dir_ / "model.weights.json"; }
  void replace_in_index(const std::string& from, const std::string& to) const {
    std::string text = read_text_file(index(), 1 << 20).value();
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    dir_.write("model.weights.json", text.replace(at, from.size(), to));
  }
  TempDir dir_;
};

// Keras 3.10.0 omits one file from the map.
TEST_F(KerasShards, AllFilesTogetherHaveTheReferenceBytes) {
  const auto golden =
      checkpoint::open_tensors(fixture("sharded/model.tensors.safetensors")).value();
  for (const std::string& path : {index(), dir_.path()}) {
    const auto source = checkpoint::open_tensors(path);
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_EQ((*source)->files().size(), 5u);
    EXPECT_EQ((*source)->files()[1].name, "model_00001.weights.h5");
    expect_same(**source, *golden);
  }
}

TEST_F(KerasShards, AGroupMayBeInSeveralFiles) {
  replace_in_index(R"("/layers/reversible_embedding/vars": "model_00000.weights.h5")",
                   R"("/layers/reversible_embedding/vars": ["model_00000.weights.h5",)"
                   R"("model_00001.weights.h5"])");
  EXPECT_EQ(opening_message(index()), "accepted");
  replace_in_index("\"model_00001.weights.h5\"", "\"model_00002.weights.h5\"");
  EXPECT_EQ(opening_message(index()),
            index() +
                ": 'model_00002.weights.h5' has no tensor of the group (group "
                "'layers/reversible_embedding/vars')");
}

TEST_F(KerasShards, AMissingFileIsNoticed) {
  fs::remove(dir_ / "model_00001.weights.h5");  // the map does not name this file
  EXPECT_EQ(opening_message(index()),
            index() + ": file 1 of the checkpoint is missing, but file 2 is there");
  fs::remove(dir_ / "model_00004.weights.h5");
  EXPECT_NE(opening_message(index()).find("the file 'model_00004.weights.h5' is missing"),
            std::string::npos);
}

TEST_F(KerasShards, TheTotalOfTheIndexMustBeThere) {
  replace_in_index("3296.0", "3300.0");
  EXPECT_EQ(opening_message(index()),
            index() + ": the files hold 3296 bytes of tensors, the index says 3300");
}

TEST_F(KerasShards, AFileOfAnotherCheckpointIsNoticed) {
  fs::copy_file(dir_ / "model_00000.weights.h5", dir_ / "model_00005.weights.h5");
  EXPECT_NE(
      opening_message(index()).find("model_00000.weights.h5 as well as in model_00005.weights.h5"),
      std::string::npos);
}

TEST_F(KerasShards, OnlyPlainFileNamesAreTaken) {
  replace_in_index("model_00004.weights.h5", "../model_00004.weights.h5");
  EXPECT_NE(opening_message(index()).find("is not a plain file name (group 'layers/"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::formats::hdf5_test
