// All dtypes of safetensors: `inspect` shows each, and `convert` accepts some and names the others.
#include <gtest/gtest.h>

#include <set>

#include "core/dtype.h"
#include "tests/cli/ferry_process.h"

namespace ferry::dtypes_test {
namespace {

const char* const kNames[] = {"BOOL",    "F4",      "F6_E2M3", "F6_E3M2",     "U8",          "I8",
                              "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
                              "U16",     "F16",     "BF16",    "I32",         "U32",         "F32",
                              "C64",     "F64",     "I64",     "U64"};

std::string bytes_for(const std::string& dtype, int64_t elements) {
  const int bits = dtype_bits(dtype_from_safetensors(dtype).value());
  return std::string(static_cast<size_t>(elements * bits / 8), '\0');
}

TEST(Dtypes, InspectShowsEach) {
  static_assert(std::size(kNames) == 22);
  const TempDir dir;
  TensorFile file(fixture("llama3_tied/model.safetensors"));
  file.header = nlohmann::ordered_json::object();
  file.data.clear();
  for (const char* dtype : kNames) file.append(dtype, dtype, {2, 4}, bytes_for(dtype, 8));
  file.write(dir / "x.safetensors");
  const Outcome outcome = run_ferry({"inspect", dir / "x.safetensors", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::set<std::string> shown;
  const nlohmann::json listing = outcome.json();
  for (const auto& tensor : listing["tensors"]) {
    const auto dtype = dtype_from_safetensors(tensor["name"].get<std::string>()).value();
    EXPECT_EQ(tensor["dtype"], dtype_name(dtype));
    EXPECT_EQ(tensor["bytes"], bytes_for(tensor["name"], 8).size());
    shown.insert(tensor["name"]);
  }
  EXPECT_EQ(shown.size(), 22u);
}

TEST(Dtypes, ConvertNamesTheTensorsThatItCannotCast) {
  const std::set<std::string> castable = {"F32", "F16", "BF16"};
  const std::string tensor = "model.norm.weight";
  for (const std::string dtype : kNames) {
    SCOPED_TRACE(dtype);
    const TempDir dir;
    const std::string checkpoint = changed_checkpoint(dir, "llama3_tied", [&](TensorFile& file) {
      const auto shape = file.header[tensor]["shape"].get<std::vector<int64_t>>();
      TensorFile changed = file;
      changed.header = nlohmann::ordered_json::object();
      changed.data.clear();
      for (const auto& [name, entry] : file.header.items()) {
        if (name == "__metadata__" || name == tensor) continue;
        changed.append(name, entry["dtype"], entry["shape"], file.bytes_of(name));
      }
      changed.append(tensor, dtype, shape, bytes_for(dtype, shape.at(0)));
      file = changed;
    });
    const Outcome outcome = run_ferry({"convert", checkpoint, "-o", dir / "out", "--dry-run"});
    if (castable.contains(dtype)) {
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      continue;
    }
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 2u) << outcome.err;  // the summary and the key
    EXPECT_NE(outcome.err.find("is " + std::string(dtype_name(*dtype_from_safetensors(dtype)))),
              std::string::npos)
        << outcome.err;
  }
}

}  // namespace
}  // namespace ferry::dtypes_test
