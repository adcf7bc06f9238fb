// Reads the pickle inside of a PyTorch checkpoint as data. Nothing here could call anything: a call
// in the pickle (REDUCE) of one of the few known names becomes a kCall value, and any other opcode
// or name is an error. Values are not interpreted further.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace ferry::formats {

inline constexpr uint64_t kMaxPickleBytes = 64u << 20;
// This bounds time and memory (about 30 bytes for each opcode). 42,000 tensors need this many.
inline constexpr uint64_t kMaxPickleOpcodes = 2'000'000;
inline constexpr size_t kMaxPickleMarks = 1000;

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,  // the number itself is not kept
  kString,
  kTuple,
  kList,
  kDict,    // dict or OrderedDict; the items are key, value, key, value, ...
  kGlobal,  // one of PickleGlobal
  kCall,    // the items are the global and the tuple of arguments
  kStorage  // a persistent id; its item is what identifies it, a tuple in a valid file
};

enum class PickleGlobal : uint8_t {
  kOrderedDict,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kSize,
  kUntypedStorage,
  kTypedStorage,  // has a dtype
  kDType,         // has a dtype
};

struct PickleName {
  std::string_view module, name;
  PickleGlobal global;
  std::optional<DType> dtype = {};
};

class Pickle {
 public:
  using Id = uint32_t;

  // `data` must outlive the object. `name` begins the messages.
  static Result<Pickle> parse(std::span<const std::byte> data, const std::string& name);

  Id root() const { return root_; }
  PickleKind kind(Id id) const { return values_[id].kind; }
  int64_t integer(Id id) const;           // for kInt
  std::string_view string(Id id) const;   // for kString; any bytes
  const PickleName& global(Id id) const;  // for kGlobal
  size_t size(Id id) const;               // number of items; 0 for kinds without items
  std::vector<Id> items(Id id) const;     // for kTuple, kList, kDict, kCall, kStorage

 private:
  friend class PickleMachine;
  static constexpr uint32_t kNothing = 0xffffffff;

  // A Value is small, because a hostile file can have millions of them. Items are a chain of cells.
  struct Value {
    PickleKind kind;
    bool ordered = false;       // for kDict: it is an OrderedDict
    uint32_t count = 0;         // number of items, or bytes of a string
    uint32_t first = kNothing;  // cell; offset of a string; low half of an integer; index of a name
    uint32_t last = kNothing;   // cell, or high half of an integer
  };
  struct Cell {
    Id value;
    uint32_t next;
  };

  std::span<const std::byte> data_;
  std::vector<Value> values_;
  std::vector<Cell> cells_;
  Id root_ = 0;
};

}  // namespace ferry::formats
