#include "packer/bundle_reader.h"

#include <sys/stat.h>

#include <algorithm>

#include "tests/packer/bundle_reader_testing.h"

namespace ferry::packer::bundle_reader_test {
namespace {

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

// The bundle reads the bytes that it has checked, also if files are exchanged or changed in place
// after it was opened.
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

// The test is in two parts, so that they run at the same time.
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
  // Without digests the structure still shows the exchange.
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

// Changes the last byte of the file and returns its original contents.
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
}  // namespace ferry::packer::bundle_reader_test
