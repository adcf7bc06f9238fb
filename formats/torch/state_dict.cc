#include "formats/torch/state_dict.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <unordered_set>

#include "core/checked.h"
#include "core/text.h"
#include "core/utf8.h"

namespace ferry::formats {
namespace {

using Id = Pickle::Id;

constexpr size_t kMaxTorchRank = 64;  // the limit of torch
constexpr std::array<std::string_view, 2> kWrappers = {"state_dict", "model"};
constexpr std::array<std::string_view, 8> kDevices = {"cpu", "cuda", "mps", "xpu",
                                                      "hpu", "npu",  "xla", "hip"};

// Returns whether a text names a device, such as "cpu" or "cuda:0".
bool is_device(std::string_view text) {
  const size_t colon = text.find(':');
  bool known = false;
  for (const std::string_view device : kDevices) known |= device == text.substr(0, colon);
  if (!known || colon == std::string_view::npos) return known;
  const std::string_view number = text.substr(colon + 1);
  return !number.empty() && number.size() <= 4 &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

class StateDictReader {
 public:
  StateDictReader(const Pickle& pickle, const StorageRecords& storages, const std::string& name)
      : pickle_(pickle), storages_(storages), name_(name) {}

  Result<std::vector<TorchTensor>> read(uint64_t max_bytes);

 private:
  struct Storage {
    StorageRecord record;
    std::optional<DType> dtype;  // absent for UntypedStorage
  };

  Failure bad(std::string_view what) const {
    const std::string tensor =
        tensor_.data() == nullptr ? "" : fmt::format(" (tensor {})", quoted(tensor_, 120));
    return bad_input(fmt::format("{}: {}{}", name_, what, tensor));
  }
  bool is(Id id, PickleKind kind) const { return pickle_.kind(id) == kind; }
  bool is_call(Id id, PickleGlobal global) const {
    return is(id, PickleKind::kCall) && pickle_.global(pickle_.items(id)[0]).global == global;
  }
  bool is_tensor(Id id) const {
    return is_call(id, PickleGlobal::kRebuildTensorV2) ||
           is_call(id, PickleGlobal::kRebuildTensorV3) ||
           is_call(id, PickleGlobal::kRebuildParameter);
  }
  std::vector<Id> arguments(Id call) const { return pickle_.items(pickle_.items(call)[1]); }

  Result<Id> find_dict() const;
  Result<Id> tensor_of_parameter(Id parameter) const;
  Result<Storage> storage(Id id) const;
  Result<std::vector<int64_t>> sizes(Id id, std::string_view what) const;
  Result<TorchTensor> tensor(Id id) const;
  Status check_hooks(Id hooks) const;
  Status place(TorchTensor& tensor, int64_t offset, const std::vector<int64_t>& strides,
               uint64_t storage_bytes) const;

  const Pickle& pickle_;
  const StorageRecords& storages_;
  const std::string& name_;
  std::string_view tensor_;  // name of the current tensor
};

// Returns the dict that holds the tensors.
Result<Id> StateDictReader::find_dict() const {
  Id dict = pickle_.root();
  if (!is(dict, PickleKind::kDict)) return bad("holds no dict of tensors");
  const std::vector<Id> items = pickle_.items(dict);
  std::optional<Id> inner;
  size_t wrappers = 0, tensors = 0;
  for (size_t i = 0; i < items.size(); i += 2) {
    if (is_tensor(items[i + 1])) ++tensors;
    if (!is(items[i], PickleKind::kString) || !is(items[i + 1], PickleKind::kDict)) continue;
    for (const std::string_view wrapper : kWrappers) {
      if (pickle_.string(items[i]) != wrapper) continue;
      inner = items[i + 1];
      ++wrappers;
    }
  }
  if (wrappers == 0) return dict;
  if (wrappers > 1 || tensors > 0) {
    return bad("not clear which dict holds the tensors: save the state dict alone");
  }
  return *inner;
}

Status StateDictReader::check_hooks(Id hooks) const {
  const bool none =
      is(hooks, PickleKind::kNone) || (is(hooks, PickleKind::kDict) && pickle_.size(hooks) == 0);
  if (!none) return bad("the tensor has hooks or other attributes");
  return {};
}

Result<Id> StateDictReader::tensor_of_parameter(Id parameter) const {
  const std::vector<Id> args = arguments(parameter);
  if (args.size() != 3 || !is(args[1], PickleKind::kBool) || !is_tensor(args[0]) ||
      is_call(args[0], PickleGlobal::kRebuildParameter)) {
    return bad("malformed parameter");
  }
  FERRY_RETURN_IF_ERROR(check_hooks(args[2]));
  return args[0];
}

// Reads ("storage", class, key, device, number of elements).
Result<StateDictReader::Storage> StateDictReader::storage(Id id) const {
  if (!is(id, PickleKind::kStorage)) return bad("the tensor has no storage");
  const Id what = pickle_.items(id)[0];
  if (!is(what, PickleKind::kTuple) || pickle_.size(what) != 5) return bad("malformed storage");
  const std::vector<Id> parts = pickle_.items(what);
  const bool formed = is(parts[0], PickleKind::kString) && pickle_.string(parts[0]) == "storage" &&
                      is(parts[1], PickleKind::kGlobal) && is(parts[2], PickleKind::kString) &&
                      is(parts[3], PickleKind::kString) && is(parts[4], PickleKind::kInt);
  if (!formed) return bad("malformed storage");
  const PickleName& kind = pickle_.global(parts[1]);
  const bool untyped = kind.global == PickleGlobal::kUntypedStorage;
  if (!untyped && kind.global != PickleGlobal::kTypedStorage) return bad("malformed storage");
  const std::string_view key = pickle_.string(parts[2]);
  if (!is_device(pickle_.string(parts[3]))) {
    return bad(fmt::format("unknown device {}", quoted(pickle_.string(parts[3]), 30)));
  }
  const auto record = storages_.find(key);
  if (record == storages_.end()) {
    return bad(fmt::format("the storage {} is not in the file", quoted(key, 40)));
  }
  const auto bytes =
      checked_mul<int64_t>(pickle_.integer(parts[4]), untyped ? 1 : dtype_bytes(*kind.dtype));
  if (!bytes || *bytes < 0 || static_cast<uint64_t>(*bytes) != record->second.bytes) {
    return bad(fmt::format("the storage {} has {} bytes, but not {} elements", quoted(key, 40),
                           record->second.bytes, pickle_.integer(parts[4])));
  }
  return Storage{record->second, kind.dtype};
}

// Reads a tuple of integers >= 0, or torch.Size of such a tuple.
Result<std::vector<int64_t>> StateDictReader::sizes(Id id, std::string_view what) const {
  if (is_call(id, PickleGlobal::kSize)) {
    const std::vector<Id> args = arguments(id);
    if (args.size() != 1) return bad(fmt::format("malformed {}", what));
    id = args[0];
  }
  if (!is(id, PickleKind::kTuple) || pickle_.size(id) > kMaxTorchRank) {
    return bad(fmt::format("malformed {}", what));
  }
  std::vector<int64_t> out;
  for (const Id item : pickle_.items(id)) {
    if (!is(item, PickleKind::kInt)) return bad(fmt::format("malformed {}", what));
    out.push_back(pickle_.integer(item));
    if (out.back() < 0) return bad(fmt::format("negative {} {}", what, out.back()));
  }
  return out;
}

// Checks that the last element that the strides reach lies in the storage.
Status StateDictReader::place(TorchTensor& tensor, int64_t offset,
                              const std::vector<int64_t>& strides, uint64_t storage_bytes) const {
  const int64_t item = dtype_bytes(tensor.dtype);
  const auto count = checked_numel(tensor.shape);
  const auto bytes = count ? checked_mul(*count, item) : std::nullopt;
  if (!bytes) return bad(fmt::format("the shape {} overflows", to_string(tensor.shape)));
  StridedPiece walk{.tensor = tensor.place.tensor, .offset = offset};
  for (size_t i = 0; i < strides.size(); ++i) walk.axes.push_back({tensor.shape[i], strides[i]});
  auto end = end_of(walk);
  if (end) end = checked_mul(*end, item);
  if (!end || static_cast<uint64_t>(*end) > storage_bytes) {
    return bad(fmt::format("the tensor reaches past its storage of {} bytes", storage_bytes));
  }
  tensor.place.offset = offset;
  for (const StridedAxis& axis : walk.axes) add_axis(tensor.place, axis);
  tensor.bytes = static_cast<uint64_t>(*bytes);
  return {};
}

// Reads (storage, offset, size, strides, requires_grad, hooks [, dtype] [, metadata]).
Result<TorchTensor> StateDictReader::tensor(Id id) const {
  if (!is_tensor(id)) return bad("the value is not a tensor");
  if (is_call(id, PickleGlobal::kRebuildParameter)) id = FERRY_TRY(tensor_of_parameter(id));
  const bool has_dtype = is_call(id, PickleGlobal::kRebuildTensorV3);
  const std::vector<Id> args = arguments(id);
  const size_t needed = has_dtype ? 7 : 6;
  if (args.size() < needed || args.size() > needed + 1 || !is(args[1], PickleKind::kInt) ||
      !is(args[4], PickleKind::kBool)) {
    return bad("malformed tensor");
  }
  const Storage from = FERRY_TRY(storage(args[0]));
  std::optional<DType> dtype = from.dtype;
  if (has_dtype && is(args[6], PickleKind::kGlobal)) dtype = pickle_.global(args[6]).dtype;
  if (has_dtype && (!is(args[6], PickleKind::kGlobal) ||
                    pickle_.global(args[6]).global != PickleGlobal::kDType)) {
    return bad("malformed dtype");
  }
  if (!dtype) return bad("the tensor has no dtype");
  FERRY_RETURN_IF_ERROR(check_hooks(args[5]));
  if (args.size() > needed) FERRY_RETURN_IF_ERROR(check_hooks(args[needed]));

  TorchTensor out;
  out.name = std::string(tensor_);
  out.dtype = *dtype;
  out.place.tensor = from.record.index;
  out.shape = FERRY_TRY(sizes(args[2], "size"));
  const std::vector<int64_t> strides = FERRY_TRY(sizes(args[3], "stride"));
  if (out.shape.size() != strides.size()) return bad("sizes and strides differ in number");
  const int64_t offset = pickle_.integer(args[1]);
  if (offset < 0) return bad(fmt::format("negative storage offset {}", offset));
  FERRY_RETURN_IF_ERROR(place(out, offset, strides, from.record.bytes));
  return out;
}

Result<std::vector<TorchTensor>> StateDictReader::read(uint64_t max_bytes) {
  const std::vector<Id> items = pickle_.items(FERRY_TRY(find_dict()));
  std::vector<TorchTensor> tensors;
  std::unordered_set<std::string_view> names;
  uint64_t total = 0;
  for (size_t i = 0; i < items.size(); i += 2) {
    tensor_ = {};
    if (!is(items[i], PickleKind::kString)) return bad("a key of the state dict is not a string");
    tensor_ = pickle_.string(items[i]);
    if (!utf8::is_valid(tensor_)) return bad("the name is not valid UTF-8");
    if (!names.insert(tensor_).second) return bad("the name is there twice");
    tensors.push_back(FERRY_TRY(tensor(items[i + 1])));
    const auto sum = checked_add(total, tensors.back().bytes);
    if (!sum || *sum > max_bytes) {
      return bad(fmt::format("the views in this file expand to more than {} bytes", max_bytes));
    }
    total = *sum;
  }
  return tensors;
}

}  // namespace

Result<std::vector<TorchTensor>> read_state_dict(const Pickle& pickle,
                                                 const StorageRecords& storages, uint64_t max_bytes,
                                                 const std::string& name) {
  return StateDictReader(pickle, storages, name).read(max_bytes);
}

}  // namespace ferry::formats
