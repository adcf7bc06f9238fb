#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "core/text.h"
#include "formats/torch/pickle.h"
#include "tests/formats/corpus.h"
#include "tests/formats/opening_message.h"
#include "tests/formats/temp_dir.h"

namespace ferry::formats::torch_test {
namespace {

const std::string kHostileTorch = FERRY_TESTDATA "/hostile/pytorch/";

std::string text_of(const std::string& path) { return read_text_file(path, 1 << 20).value(); }

// Returns all bytes of all tensors, by name, or the first error.
Result<std::map<std::string, std::string>> contents_of(const std::string& path) {
  const auto source = FERRY_TRY(checkpoint::open_tensors(path));
  std::map<std::string, std::string> out;
  for (size_t i = 0; i < source->entries().size(); ++i) {
    const TensorEntry& entry = source->entries()[i];
    std::vector<std::byte> bytes(entry.bytes);
    FERRY_RETURN_IF_ERROR(source->read(i, 0, bytes));
    out[entry.name] = fmt::format("{} {} {}", dtype_name(entry.dtype), to_string(entry.shape),
                                  to_hex(sha256(bytes)));
  }
  return out;
}

TEST(Torch, TransformersSavedTheSameTensorsAsSafetensors) {
  const auto torch = contents_of(FERRY_TESTDATA "/llama3_tied_bin").value();
  auto expected = contents_of(FERRY_TESTDATA "/llama3_tied").value();
  expected["lm_head.weight"] = expected.at("model.embed_tokens.weight");  // it shares a storage
  EXPECT_EQ(torch, expected);
}

TEST(Torch, ViewsAreMadeContiguous) {
  const nlohmann::json expected = parse_json(text_of(kTorch + "views.json"), "views").value();
  // One file has data descriptors, the other has zip64 sizes and its tensors below "model".
  for (const char* file : {"views.bin", "zip64.pt"}) {
    SCOPED_TRACE(file);
    expect_tensors(*checkpoint::open_tensors(kTorch + file).value(), expected);
  }
}

TEST(Torch, PartsOfAViewAreThoseOfTheWhole) {
  const auto source = checkpoint::open_tensors(kTorch + "views.bin").value();
  for (size_t i = 0; i < source->entries().size(); ++i) {
    SCOPED_TRACE(source->entries()[i].name);
    std::vector<std::byte> whole(source->entries()[i].bytes);
    ASSERT_TRUE(source->read(i, 0, whole));
    for (size_t begin = 0; begin <= whole.size(); begin += 3) {
      std::vector<std::byte> part(std::min<size_t>(7, whole.size() - begin));
      ASSERT_TRUE(source->read(i, begin, part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
    }
    std::vector<std::byte> more(1);
    EXPECT_FALSE(source->read(i, whole.size(), more));
  }
}

TEST(Torch, EntriesAreOrderedByPlaceAndThePickleIsTheHeader) {
  const auto source = checkpoint::open_tensors(kTorch + "views.bin").value();
  const auto& entries = source->entries();
  for (size_t i = 1; i < entries.size(); ++i) {
    EXPECT_LE(std::tie(entries[i - 1].offset, entries[i - 1].bytes, entries[i - 1].name),
              std::tie(entries[i].offset, entries[i].bytes, entries[i].name));
  }
  const SourceFile& file = source->files()[0];
  EXPECT_EQ(file.name, "views.bin");
  const std::string_view header(reinterpret_cast<const char*>(file.header.data()),
                                file.header.size());
  EXPECT_TRUE(header.starts_with("\x80\x02") && header.ends_with("."));
  const std::string text = text_of(kTorch + "views.bin");
  EXPECT_EQ(file.bytes, text.size());
  EXPECT_NE(text.find(header), std::string::npos);
}

TEST(Torch, AChangedBitIsRefusedOrChangesNothing) {
  TempDir dir;
  for (const std::string& path :
       {kHostileTorch + "pt_valid_ordereddict_metadata.bin", kTorch + "views.bin"}) {
    const std::string text = text_of(path);
    const auto expected = contents_of(path).value();
    size_t refused = 0, tried = 0;
    for (size_t bit = 0; bit < text.size() * 8; bit += 37) {
      std::string changed = text;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      const auto contents = contents_of(dir.write("x.bin", changed));
      if (contents) {
        EXPECT_EQ(*contents, expected) << bit;
      }
      refused += !contents;
      ++tried;
    }
    EXPECT_GT(refused, tried / 2);  // changes of padding, dates and attributes are accepted
  }
}

TEST(Torch, PrefixesOfAFileAreRefused) {
  TempDir dir;
  const std::string text = text_of(kTorch + "zip64.pt");
  for (size_t size = 0; size < text.size(); size += 11) {
    ASSERT_FALSE(checkpoint::open_tensors(dir.write("x.pt", text.substr(0, size)))) << size;
  }
}

TEST(Torch, AnEntryPastTheEndIsMalformedNotAnIoError) {
  TempDir dir;
  std::string text = text_of(kHostileTorch + "pt_valid_view.bin");
  const size_t last = text.rfind("PK\x01\x02");
  text.replace(last + 42, 4, "\x01\x02\x03\x04");  // the offset of its header
  const auto source = checkpoint::open_tensors(dir.write("x.bin", text));
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(source.error().message,
            (dir / "x.bin") +
                ": the zip entry 'archive/version' is not before the directory "
                "(offset 67305985)");
}

TEST(Torch, DamagedTensorDataIsFoundWhenTheyAreRead) {
  TempDir dir;
  std::string text = text_of(kHostileTorch + "pt_valid_tied.bin");
  const size_t data = text.find(std::string("\0\0\x80\x3f", 4));  // 1.0
  ASSERT_NE(data, std::string::npos);
  text[data] = 1;
  const auto source = checkpoint::open_tensors(dir.write("x.bin", text)).value();
  std::vector<std::byte> last(1);
  const Status status = source->read(0, 15, last);  // the read does not touch the damaged byte
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            fmt::format("{}: the contents of the zip entry 'archive/data/0' do not have its CRC: "
                        "damaged (tensor 'a', offset {})",
                        dir / "x.bin", data));
}

TEST(Torch, FilesFromBefore16SayHowToSaveThemAgain) {
  for (const char* file :
       {"evil_legacy_magic.bin", "evil_raw_pickle_no_zip.bin", "tar_legacy.bin"}) {
    const auto source = checkpoint::open_tensors(kHostileTorch + file);
    ASSERT_FALSE(source);
    EXPECT_EQ(source.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(source.error().message.find("save it with torch.save"), std::string::npos);
  }
}

TEST(Torch, MessagesNameWhatThePickleAsksFor) {
  EXPECT_EQ(opening_message(kHostileTorch + "evil_os_system.bin"),
            kHostileTorch +
                "evil_os_system.bin: data.pkl: asks for 'system' of 'os', which is not "
                "allowed in a state dict (tensor 'w', offset 10)");
}

TEST(Torch, TheContentsDecideNotTheName) {
  TempDir dir;
  const std::string torch = text_of(kHostileTorch + "pt_valid_view.bin");
  EXPECT_EQ(opening_message(dir.write("4f8a", torch)), "accepted");
  EXPECT_EQ(opening_message(dir.write("x.ckpt", torch)), "accepted");
  EXPECT_NE(opening_message(dir.write("x.safetensors", torch)), "accepted");
  // A header of 0x280 bytes begins as a pickle does.
  std::string safetensors = std::string("\x80\x02\0\0\0\0\0\0{}", 10);
  safetensors.append(0x280 - 2, ' ');
  EXPECT_EQ(opening_message(dir.write("4f8b", safetensors)), "accepted");
}

TEST(Torch, ShardsAreReadByTheirIndex) {
  TempDir dir;
  const auto copy = [&](const char* from, const char* to) {
    dir.write(to, text_of(kHostileTorch + from));
  };
  copy("pt_valid_view.bin", "pytorch_model-00001-of-00002.bin");
  copy("pt_valid_tied.bin", "pytorch_model-00002-of-00002.bin");
  const std::string index = dir.write("pytorch_model.bin.index.json", R"({"weight_map": {
      "w": "pytorch_model-00001-of-00002.bin", "a": "pytorch_model-00002-of-00002.bin",
      "b": "pytorch_model-00002-of-00002.bin"}})");
  for (const std::string& path : {dir.path(), index}) {
    const auto source = checkpoint::open_tensors(path).value();
    ASSERT_EQ(source->entries().size(), 3u);
    EXPECT_EQ(source->entries()[0].name, "w");
    EXPECT_EQ(source->entries()[2].name, "b");
    EXPECT_EQ(source->entries()[2].file, 1u);
  }
  copy("pt_valid_offset.bin", "pytorch_model-00002-of-00002.bin");  // this file has w as well
  EXPECT_NE(opening_message(index).find("as well as in"), std::string::npos);
}

// Pickles that are written by hand.
std::string parse_message(std::string_view pickle) {
  const auto parsed = Pickle::parse(std::as_bytes(std::span(pickle)), "f");
  return parsed ? "accepted" : parsed.error().message;
}

TEST(Pickle, IntegersKeepTheirSign) {
  using namespace std::string_view_literals;
  const auto parse = [](std::string_view pickle) {
    const Pickle parsed = Pickle::parse(std::as_bytes(std::span(pickle)), "f").value();
    return parsed.integer(parsed.root());
  };
  EXPECT_EQ(parse("\x80\x02K\xff."sv), 255);
  EXPECT_EQ(parse("\x80\x02M\xff\xff."sv), 65535);
  EXPECT_EQ(parse("\x80\x02J\xff\xff\xff\xff."sv), -1);
  EXPECT_EQ(parse("\x80\x02\x8a\x00."sv), 0);
  EXPECT_EQ(parse("\x80\x02\x8a\x02\x00\xff."sv), -256);
  EXPECT_EQ(parse("\x80\x02\x8a\x05\x00\x00\x00\x00\x01."sv), int64_t{1} << 32);
  EXPECT_EQ(parse("\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."sv), INT64_MIN);
}

TEST(Pickle, MalformedOnesAreRefused) {
  using namespace std::string_view_literals;
  for (const std::string_view pickle : {
           ""sv,
           "\x80"sv,
           "\x80\x02"sv,
           "\x80\x03N."sv,
           "\x80\x02N"sv,
           "\x80\x02."sv,
           "\x80\x02NN."sv,
           "\x80\x02(N."sv,
           "\x80\x02N.N"sv,
           "\x80\x02N\x80\x02."sv,
           "\x80\x02\x85."sv,
           "\x80\x02N(\x85t."sv,
           "\x80\x02t."sv,
           "\x80\x02X\x05\0\0\0abcd."sv,
           "\x80\x02\x8a\x09\1\1\1\1\1\1\1\1\1."sv,
           "\x80\x02}(Nu."sv,
           "\x80\x02]NNs."sv,
           "\x80\x02}Na."sv,
           "\x80\x02Ns."sv,
           "\x80\x02}}b."sv,
           "\x80\x02}Nb."sv,
           "\x80\x02h\x00."sv,
           "\x80\x02Nq\x05h\x05."sv,
           "\x80\x02Nr\xff\xff\xff\xff."sv,
           "\x80\x02N)R."sv,
           "\x80\x02"
           "ctorch\nfloat32\n)R."sv,
           "\x80\x02"
           "ctorch\nload\n."sv,
           "\x80\x02"
           "ctorch\nfloat32"sv,
           "\x80\x02"
           "ccollections\nOrderedDict\nN\x85R."sv,
       }) {
    EXPECT_TRUE(parse_message(pickle).starts_with("f: data.pkl: ")) << quoted(pickle);
  }
  EXPECT_EQ(parse_message("\x80\x02}N(NNu0."),
            "f: data.pkl: adds items to something that has "
            "none (offset 7)");
}

TEST(Pickle, MessagesNameTheTensorInHand) {
  using namespace std::string_view_literals;
  EXPECT_EQ(
      parse_message("\x80\x02}X\x01\0\0\0wcos\nsystem\n."sv),
      "f: data.pkl: asks for 'system' of 'os', which is not allowed in a state dict (tensor 'w', "
      "offset 9)");
  // The error is in the arguments of the second tensor. Strings among arguments are no names.
  EXPECT_EQ(parse_message("\x80\x02}(X\x01\0\0\0aNX\x01\0\0\0bctorch\nSize\n"
                          "(X\x07\0\0\0storage0."sv),
            "f: data.pkl: the opcode 0x30, which torch.save does not write for state dicts (tensor "
            "'b', offset 42)");
  // The state dict is inside a wrapper.
  EXPECT_EQ(parse_message("\x80\x02}(X\x05\0\0\0model}(X\x01\0\0\0bh\x07."sv),
            "f: data.pkl: an unknown memo index (tensor 'b', offset 22)");
  EXPECT_EQ(parse_message("\x80\x02]h\x07."sv), "f: data.pkl: an unknown memo index (offset 3)");
}

TEST(Pickle, MarksAreBounded) {
  const auto nested = [](size_t depth) {
    return "\x80\x02" + std::string(depth, '(') + std::string(depth, 't') + ".";
  };
  EXPECT_EQ(parse_message(nested(kMaxPickleMarks)), "accepted");
  EXPECT_EQ(parse_message(nested(kMaxPickleMarks + 1)),
            fmt::format("f: data.pkl: too deep (offset {})", 2 + kMaxPickleMarks));
}

}  // namespace
}  // namespace ferry::formats::torch_test
