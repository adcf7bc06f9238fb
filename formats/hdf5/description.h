// Description: the contents of an HDF5 file as plain data. encode() and decode() make the message
// that carries it from the confined process that walks the file (walk.h) to the process that checks
// it (check.h).
//
// The message is untrusted: the library that wrote it has read a hostile file. It is
//
//   "FH5D" u32 version
//   records, each: u8 kind, then its fields
//   kind 'E': the end; nothing follows it
//
// Numbers are little-endian; a text is a u32 length and as many bytes; a list is a u32 count and as
// many items. Every length and count is checked against the bytes that are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace ferry::hdf5 {

inline constexpr uint64_t kMaxMessageBytes = uint64_t{16} << 20;
inline constexpr uint32_t kMaxRank = 32;                // the limit of libhdf5
inline constexpr uint64_t kMaxChunksOfDataset = 32768;  // listing them takes quadratic time
inline constexpr uint64_t kNoAddress = UINT64_MAX;      // the address of data that are not stored

enum class TypeClass : uint8_t { kInteger, kFloat, kOpaque, kOther };

struct ElementType {
  TypeClass type_class = TypeClass::kOther;
  std::string name;  // the name of a kOther class: "string", "compound", ...
  uint32_t size = 0;
  bool big_endian = false;
  bool is_signed = false;
  uint32_t precision = 0, bit_offset = 0;
  // These are set for a float: positions and widths in bits.
  uint32_t sign_at = 0, exponent_at = 0, exponent_bits = 0, mantissa_at = 0, mantissa_bits = 0;
  uint64_t exponent_bias = 0;
  bool implied_one = false;  // the first bit of a normalised mantissa is not stored
};

enum class Layout : uint8_t { kCompact, kContiguous, kChunked, kVirtual, kOther };
enum class Space : uint8_t { kScalar, kSimple, kNull };

// The supported filters, by their numbers in the format.
inline constexpr uint32_t kDeflate = 1, kShuffle = 2, kFletcher32 = 3;

struct Filter {
  uint32_t id = 0;
  std::vector<uint32_t> values;  // the parameters of the filter
};

struct Chunk {
  uint64_t address = kNoAddress;
  uint64_t bytes = 0;
  uint32_t skipped = 0;  // bit i is set if filter i was not applied
  std::vector<uint64_t>
      coordinates;  // coordinates of the first element, one for each dimension of the dataset
};

struct Dataset {
  std::string path;     // without the leading slash
  uint64_t object = 0;  // address of the header; two names of one dataset have the same
  ElementType type;
  Space space = Space::kNull;
  std::vector<uint64_t> dims;
  Layout layout = Layout::kOther;
  uint64_t external_files = 0;    // number of other files that hold the data
  uint64_t address = kNoAddress;  // position of contiguous data
  uint64_t stored_bytes = 0;
  std::vector<std::byte> inline_bytes = {};  // data of the compact layout
  std::vector<uint64_t> chunk_dims = {};
  uint32_t chunk_options = 0;  // options of H5Pset_chunk_opts
  std::vector<Filter> filters = {};
  std::vector<Chunk> chunks = {};
};

// A text attribute, or a list of them, on a group or dataset.
struct Attribute {
  std::string object;  // path without the leading slash, empty for the root
  std::string name;
  std::vector<std::string> values;
};

// The value of elements that a dataset does not store, if the file states one.
struct FillValue {
  std::string path;  // path of the dataset
  std::vector<std::byte> element;
};

enum class LinkKind : uint8_t { kSoft, kExternal, kUserDefined };

// A link, which the walk does not follow.
struct OtherLink {
  std::string path;
  LinkKind kind = LinkKind::kSoft;
};

// The reason why the walk ended early.
struct Trouble {
  std::string path;  // path of the object; empty if the reason concerns the file
  std::string what;
};

struct Description {
  std::vector<Dataset> datasets;  // depth first, in the order of names
  std::vector<Attribute> attributes;
  std::vector<FillValue> fills;  // for datasets that do not store all of their elements
  std::vector<OtherLink> links;
  std::vector<Trouble> troubles;
};

std::string encode(const Description& description);

// Decodes a message. `name` begins the error messages. kBadInput unless the message is well formed
// to its last byte. check.h checks the contents.
Result<Description> decode(std::span<const std::byte> message, const std::string& name);

// Returns the dtype of elements of `type`. The error message describes the unsupported type; the
// caller names the file and the dataset. `bfloat16` says that opaque values of two bytes are
// bfloat16.
Result<DType> dtype_of(const ElementType& type, bool bfloat16);

}  // namespace ferry::hdf5
