#include "core/text.h"

#include <gtest/gtest.h>

#include <utility>

namespace ferry {
namespace {

TEST(ByteSize, UnitsAreThoseThatPeopleWrite) {
  const std::pair<const char*, uint64_t> sizes[] = {
      {"1", 1},           {"300000", 300000},    {"300kB", 300000},
      {"300KB", 300000},  {"300K", 300000},      {"300k", 300000},
      {"300KiB", 307200}, {"300kib", 307200},    {"0.3MB", 300000},
      {"5m", 5000000},    {"5 MB", 5000000},     {"2.5M", 2500000},
      {"1MiB", 1048576},  {"2gb", 2000000000},   {"2GiB", 2147483648},
      {"4G", 4000000000}, {"1T", 1000000000000}, {"1TiB", 1099511627776},
      {"12B", 12},        {"12 b", 12},
  };
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(parse_size(text), bytes) << text;
}

TEST(ByteSize, NonsenseIsNone) {
  for (const char* text :
       {"",      " ",         "K",    "B",   "5X",           "-5M",  "0",   "0.1", "1.5", "0x10",
        "1e9",   "1000000.5", "nan",  "inf", "99999999999G", "5MBs", "5BM", "5MM", "5iB", "5M B",
        "5  MB", "5MB ",      " 5MB", "5I"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ferry
