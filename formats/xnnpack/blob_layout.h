// Layout of a blob of the XNNPACK backend:
//
//   0   4     zeros
//   4   4     "XH00"
//   8   u16   length of the header, 30
//   10  u32   where the FlatBuffer begins, 32
//   14  u32   its bytes
//   18  u32   where constants without a key begin, a multiple of 16
//   22  u64   their bytes, 0 in what the exporter writes
//   32  ...   FlatBuffer, identifier XN01
//   ...       zeros to a multiple of 16, constants without a key
//
// Private to formats/xnnpack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ferry::xnnpack {

inline constexpr std::string_view kMagic = "XH00";
inline constexpr const char* kIdentifier = "XN01";
inline constexpr const char* kEarlyIdentifier = "XN00";
inline constexpr size_t kMagicAt = 4, kLengthAt = 8, kFlatAt = 10, kConstantsAt = 18;
inline constexpr uint16_t kHeaderBytes = 30;
inline constexpr uint64_t kBlobAlignment = 16;

}  // namespace ferry::xnnpack
