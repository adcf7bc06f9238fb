// PyTorch files whose entries were compressed by a zip tool.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "core/json.h"
#include "tests/formats/corpus.h"
#include "tests/formats/pickle_maker.h"
#include "tests/formats/temp_dir.h"
#include "tests/formats/zip_maker.h"

namespace ferry::formats::zip_contents_test {
namespace {

// Returns the pickle of a state dict with one f32 tensor `w` that has all of the storage "0".
std::string pickle_of(uint32_t elements) {
  return make_pickle({{"w", "0", elements, {elements}, {1}}});
}

std::string file_of(ZipItem pickle, ZipItem data) {
  pickle.name = "a/data.pkl";
  data.name = "a/data/0";
  return make_zip({pickle, data});
}

// Returns the message of opening the file and reading its one tensor; "read" without an error.
std::string outcome_of(const std::string& path) {
  const auto source = checkpoint::open_tensors(path);
  if (!source) return source.error().message;
  std::vector<std::byte> bytes((*source)->entries()[0].bytes);
  const Status status = (*source)->read(0, 0, bytes);
  return status ? "read" : status.error().message;
}

TEST(TorchDeflate, CompressedFilesHoldTheSameTensors) {
  const std::string path = kTorch + "views.json";
  const nlohmann::json expected = parse_json(read_text_file(path, 1 << 20).value(), path).value();
  // One file has entries for directories and extra fields, the other has data descriptors.
  for (const char* file : {"views_zipped.bin", "views_deflated_stream.bin"}) {
    SCOPED_TRACE(file);
    expect_tensors(*checkpoint::open_tensors(kTorch + file).value(), expected);
  }
}

TEST(TorchDeflate, PartsOfATensorAreThoseOfTheWhole) {
  TempDir dir;
  std::string data;
  for (uint32_t i = 0; i < 400'000; ++i) data += static_cast<char>(i * i >> 5);
  const std::string path =
      dir.write("x.bin", file_of(deflated_item("", pickle_of(100'000)), deflated_item("", data)));
  const auto source = checkpoint::open_tensors(path).value();
  for (const size_t offset : {size_t{399'000}, size_t{0}, size_t{123'457}}) {
    std::string part(1000, '\0');
    ASSERT_TRUE(source->read(0, offset, std::as_writable_bytes(std::span(part))));
    EXPECT_EQ(part, data.substr(offset, 1000));
  }
}

TEST(TorchDeflate, FalseContentsAreRefused) {
  const std::string data(4000, 'x');
  const ZipItem pickle = stored_item("", pickle_of(1000));
  const ZipItem good = deflated_item("", data);
  const auto with = [&](auto&& change) {
    ZipItem item = good;
    change(item);
    return item;
  };
  struct Case {
    const char* what;
    ZipItem data;
    std::string message;  // text that the message contains
  };
  const std::string kContents = ": the contents of the zip entry 'a/data/0' ";
  const Case cases[] = {
      {"right", good, "read"},
      {"longer than declared",
       with([](ZipItem& i) { i.stored = deflated(std::string(4001, 'x')); }),
       kContents + "do not decompress to 4000 bytes"},
      {"shorter than declared",
       with([](ZipItem& i) { i.stored = deflated(std::string(3999, 'x')); }),
       kContents + "do not decompress to 4000 bytes"},
      {"bytes after the stream", with([](ZipItem& i) { i.stored += "x"; }),
       kContents + "do not decompress to 4000 bytes"},
      {"cut stream", with([](ZipItem& i) { i.stored.pop_back(); }),
       kContents + "do not decompress to 4000 bytes"},
      {"no stream", with([](ZipItem& i) { i.stored = "\xff\xff\xff\xff"; }),
       kContents + "do not decompress to 4000 bytes"},
      {"wrong CRC", with([](ZipItem& i) { i.crc ^= 1; }),
       kContents + "do not have its CRC: damaged (tensor 'w', offset "},
      {"more than deflate can", with([](ZipItem& i) { i.stored = "ab"; }),
       ": the zip entry 'a/data/0' cannot hold 4000 bytes in 2 (offset "},
      {"another method", with([](ZipItem& i) { i.method = 12; }),
       ": the zip entry 'a/data/0' is compressed by method 12 (offset "},
  };
  TempDir dir;
  for (const Case& c : cases) {
    const std::string outcome = outcome_of(dir.write("x.bin", file_of(pickle, c.data)));
    EXPECT_NE(outcome.find(c.message), std::string::npos) << c.what << ": " << outcome;
  }
}

TEST(TorchDeflate, BombsAreRefusedBeforeTheyGrow) {
  TempDir dir;
  const auto message = [&](const ZipItem& pickle, const ZipItem& data) {
    return outcome_of(dir.write("x.bin", file_of(pickle, data)));
  };
  // 2 MiB of contents are in a file of some 3 KiB.
  const std::string zeros(2 << 20, '\0');
  const std::string storage =
      message(stored_item("", pickle_of(1 << 19)), deflated_item("", zeros));
  EXPECT_NE(storage.find("the storages decompress to more than 1048576 bytes, with 'a/data/0'"),
            std::string::npos)
      << storage;
  // The pickle is 1 MiB of padding in about 1 KiB.
  const std::string pickle =
      message(deflated_item("", "\x80\x02" + std::string(1 << 20, '(')), stored_item("", ""));
  EXPECT_NE(pickle.find(": the zip entry 'a/data.pkl' has 1048578 bytes, more than "),
            std::string::npos)
      << pickle;
}

}  // namespace
}  // namespace ferry::formats::zip_contents_test
