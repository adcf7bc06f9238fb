#include "formats/torch/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/text.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kTorch = "torch", kStorageModule = "torch.storage",
                           kUtils = "torch._utils";

// The globals that a pickle may use.
constexpr std::array kNames = {
    PickleName{"collections", "OrderedDict", PickleGlobal::kOrderedDict},
    PickleName{kUtils, "_rebuild_tensor_v2", PickleGlobal::kRebuildTensorV2},
    PickleName{kUtils, "_rebuild_tensor_v3", PickleGlobal::kRebuildTensorV3},
    PickleName{kUtils, "_rebuild_parameter", PickleGlobal::kRebuildParameter},
    PickleName{kTorch, "Size", PickleGlobal::kSize},
    PickleName{kStorageModule, "UntypedStorage", PickleGlobal::kUntypedStorage},
    PickleName{kTorch, "UntypedStorage", PickleGlobal::kUntypedStorage},
    PickleName{kTorch, "FloatStorage", PickleGlobal::kTypedStorage, DType::kF32},
    PickleName{kTorch, "DoubleStorage", PickleGlobal::kTypedStorage, DType::kF64},
    PickleName{kTorch, "HalfStorage", PickleGlobal::kTypedStorage, DType::kF16},
    PickleName{kTorch, "BFloat16Storage", PickleGlobal::kTypedStorage, DType::kBF16},
    PickleName{kTorch, "LongStorage", PickleGlobal::kTypedStorage, DType::kI64},
    PickleName{kTorch, "IntStorage", PickleGlobal::kTypedStorage, DType::kI32},
    PickleName{kTorch, "ShortStorage", PickleGlobal::kTypedStorage, DType::kI16},
    PickleName{kTorch, "CharStorage", PickleGlobal::kTypedStorage, DType::kI8},
    PickleName{kTorch, "ByteStorage", PickleGlobal::kTypedStorage, DType::kU8},
    PickleName{kTorch, "BoolStorage", PickleGlobal::kTypedStorage, DType::kBool},
    PickleName{kTorch, "ComplexFloatStorage", PickleGlobal::kTypedStorage, DType::kC64},
    PickleName{kTorch, "float32", PickleGlobal::kDType, DType::kF32},
    PickleName{kTorch, "float64", PickleGlobal::kDType, DType::kF64},
    PickleName{kTorch, "float16", PickleGlobal::kDType, DType::kF16},
    PickleName{kTorch, "bfloat16", PickleGlobal::kDType, DType::kBF16},
    PickleName{kTorch, "int64", PickleGlobal::kDType, DType::kI64},
    PickleName{kTorch, "int32", PickleGlobal::kDType, DType::kI32},
    PickleName{kTorch, "int16", PickleGlobal::kDType, DType::kI16},
    PickleName{kTorch, "int8", PickleGlobal::kDType, DType::kI8},
    PickleName{kTorch, "uint64", PickleGlobal::kDType, DType::kU64},
    PickleName{kTorch, "uint32", PickleGlobal::kDType, DType::kU32},
    PickleName{kTorch, "uint16", PickleGlobal::kDType, DType::kU16},
    PickleName{kTorch, "uint8", PickleGlobal::kDType, DType::kU8},
    PickleName{kTorch, "bool", PickleGlobal::kDType, DType::kBool},
    PickleName{kTorch, "complex64", PickleGlobal::kDType, DType::kC64},
    PickleName{kTorch, "float8_e4m3fn", PickleGlobal::kDType, DType::kF8E4M3},
    PickleName{kTorch, "float8_e5m2", PickleGlobal::kDType, DType::kF8E5M2},
    PickleName{kTorch, "float8_e4m3fnuz", PickleGlobal::kDType, DType::kF8E4M3FNUZ},
    PickleName{kTorch, "float8_e5m2fnuz", PickleGlobal::kDType, DType::kF8E5M2FNUZ},
    PickleName{kTorch, "float8_e8m0fnu", PickleGlobal::kDType, DType::kF8E8M0},
};

// The supported opcodes, with their numbers in the pickle format.
enum class Op : unsigned char {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
};

constexpr unsigned char kProtocol = 2;  // torch.save writes this protocol

}  // namespace

class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> data, const std::string& name) : name_(name) {
    out_.data_ = data;
    // Values without contents exist once and are shared.
    none_ = add({PickleKind::kNone});
    false_ = add({PickleKind::kBool, false, 0, 0});
    true_ = add({PickleKind::kBool, false, 0, 1});
  }

  Result<Pickle> run();

 private:
  using Id = Pickle::Id;
  using Value = Pickle::Value;

  Failure bad(std::string_view what) const {
    const std::optional<std::string_view> key = open_key();
    const std::string tensor = key ? fmt::format("tensor {}, ", quoted(*key, 120)) : "";
    return bad_input(fmt::format("{}: data.pkl: {} ({}offset {})", name_, what, tensor, op_at_));
  }
  // Returns the key of the innermost dict whose value is missing or incomplete. In a state dict
  // this is the name of the current tensor.
  std::optional<std::string_view> open_key() const;
  bool is(Id id, PickleKind kind) const { return out_.kind(id) == kind; }

  // The following functions read the input.
  size_t left() const { return out_.data_.size() - at_; }
  // Reads a little-endian number of `bytes` bytes, at most 8.
  Result<uint64_t> number(size_t bytes) {
    if (bytes > left()) return bad("cut");
    uint64_t value = 0;
    std::memcpy(&value, out_.data_.data() + at_, bytes);
    at_ += bytes;
    return value;
  }
  Result<std::string_view> line();

  // The following functions handle values and the stack.
  Id add(Value value) {
    out_.values_.push_back(value);
    return static_cast<Id>(out_.values_.size() - 1);
  }
  Value& at(Id id) { return out_.values_[id]; }
  void push(Id id) { stack_.push_back(id); }
  Status push_integer(int64_t value);
  void append(Id container, Id item);
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Result<Id> pop() {
    if (stack_.size() <= floor()) return bad("takes more than there is");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Result<size_t> pop_mark() {
    if (marks_.empty()) return bad("no mark to go back to");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  // The following functions execute opcodes.
  Status step(Op op);
  Status mark();
  Status global();
  Status unicode();
  Status long1();
  Status tuple(size_t begin);
  Status tuple_of(size_t count);
  Status persistent_id();
  Status reduce();
  Status build();
  Status put(uint64_t index);
  Status get(uint64_t index);
  Status extend(size_t begin, PickleKind kind);
  Status extend_by_mark(PickleKind kind) { return extend(FERRY_TRY(pop_mark()), kind); }
  Status extend_by(size_t count, PickleKind kind);

  const std::string& name_;
  Pickle out_;
  size_t at_ = 0, op_at_ = 0;
  uint64_t opcodes_ = 0;
  std::vector<Id> stack_, memo_;
  std::vector<size_t> marks_;
  Id none_ = 0, false_ = 0, true_ = 0;
};

std::optional<std::string_view> PickleMachine::open_key() const {
  size_t mark = marks_.size();
  for (size_t i = stack_.size(); i-- > 0;) {
    while (mark > 0 && marks_[mark - 1] > i) --mark;
    if (!is(stack_[i], PickleKind::kString) || i == 0 || !is(stack_[i - 1], PickleKind::kDict)) {
      // After a mark, the keys are the even items. They will be added to the dict before the mark.
      const size_t begin = mark > 0 ? marks_[mark - 1] : 0;
      const bool items = mark > 0 && begin > 0 && is(stack_[begin - 1], PickleKind::kDict);
      if (!items || (i - begin) % 2 != 0 || !is(stack_[i], PickleKind::kString)) continue;
    }
    return out_.string(stack_[i]);
  }
  return std::nullopt;
}

Result<std::string_view> PickleMachine::line() {
  const std::string_view rest(reinterpret_cast<const char*>(out_.data_.data()) + at_, left());
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) return bad("cut");
  at_ += end + 1;
  return rest.substr(0, end);
}

Status PickleMachine::push_integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  push(add({PickleKind::kInt, false, 0, static_cast<uint32_t>(bits),
            static_cast<uint32_t>(bits >> 32)}));
  return {};
}

void PickleMachine::append(Id container, Id item) {
  const auto cell = static_cast<uint32_t>(out_.cells_.size());
  out_.cells_.push_back({item, Pickle::kNothing});
  Value& value = at(container);
  if (value.count++ == 0) {
    value.first = cell;
  } else {
    out_.cells_[value.last].next = cell;
  }
  value.last = cell;
}

Status PickleMachine::mark() {
  if (marks_.size() >= kMaxPickleMarks) return bad("too deep");
  marks_.push_back(stack_.size());
  return {};
}

Status PickleMachine::global() {
  const std::string_view module = FERRY_TRY(line());
  const std::string_view name = FERRY_TRY(line());
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].module != module || kNames[i].name != name) continue;
    push(add({PickleKind::kGlobal, false, 0, static_cast<uint32_t>(i)}));
    return {};
  }
  return bad(fmt::format("asks for {} of {}, which is not allowed in a state dict",
                         quoted(name, 60), quoted(module, 60)));
}

Status PickleMachine::unicode() {
  const uint64_t bytes = FERRY_TRY(number(4));
  if (bytes > left()) return bad("cut");
  push(add({PickleKind::kString, false, static_cast<uint32_t>(bytes), static_cast<uint32_t>(at_)}));
  at_ += bytes;
  return {};
}

Status PickleMachine::long1() {
  const uint64_t bytes = FERRY_TRY(number(1));
  if (bytes > 8) return bad("an integer of more than 64 bits");
  uint64_t value = FERRY_TRY(number(bytes));
  const bool negative = bytes > 0 && (value >> (8 * bytes - 1)) != 0;
  if (negative && bytes < 8) value |= ~uint64_t{0} << (8 * bytes);
  return push_integer(static_cast<int64_t>(value));
}

// Replaces the items from stack position `begin` on by a tuple of these items.
Status PickleMachine::tuple(size_t begin) {
  const Id id = add({PickleKind::kTuple});
  for (size_t i = begin; i < stack_.size(); ++i) append(id, stack_[i]);
  stack_.resize(begin);
  push(id);
  return {};
}

Status PickleMachine::tuple_of(size_t count) {
  if (stack_.size() - floor() < count) return bad("takes more than there is");
  return tuple(stack_.size() - count);
}

Status PickleMachine::persistent_id() {
  const Id what = FERRY_TRY(pop());
  const Id id = add({PickleKind::kStorage});
  append(id, what);
  push(id);
  return {};
}

Status PickleMachine::reduce() {
  const Id arguments = FERRY_TRY(pop());
  const Id callee = FERRY_TRY(pop());
  if (at(callee).kind != PickleKind::kGlobal || at(arguments).kind != PickleKind::kTuple) {
    return bad("calls something that is not a function");
  }
  const PickleGlobal global = out_.global(callee).global;
  if (global == PickleGlobal::kOrderedDict) {
    if (at(arguments).count != 0) return bad("an OrderedDict that is not made empty");
    push(add({PickleKind::kDict, true}));
    return {};
  }
  if (global == PickleGlobal::kUntypedStorage || global == PickleGlobal::kTypedStorage ||
      global == PickleGlobal::kDType) {
    return bad("calls something that is not a function");
  }
  const Id id = add({PickleKind::kCall});
  append(id, callee);
  append(id, arguments);
  push(id);
  return {};
}

// Executes BUILD, which sets attributes of an object. They are ignored, because those of a state
// dict (_metadata) do not describe tensors.
Status PickleMachine::build() {
  const Id state = FERRY_TRY(pop());
  const Id object = FERRY_TRY(pop());
  if (at(state).kind != PickleKind::kDict || !at(object).ordered) {
    return bad("sets attributes of something that has none");
  }
  push(object);
  return {};
}

Status PickleMachine::put(uint64_t index) {
  if (stack_.size() <= floor()) return bad("takes more than there is");
  if (index >= opcodes_) return bad("a memo index larger than the pickle");
  if (index >= memo_.size()) memo_.resize(index + 1, Pickle::kNothing);
  memo_[index] = stack_.back();
  return {};
}

Status PickleMachine::get(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == Pickle::kNothing)
    return bad("an unknown memo index");
  push(memo_[index]);
  return {};
}

// Appends the items from stack position `begin` on to the list or dict before them.
Status PickleMachine::extend(size_t begin, PickleKind kind) {
  if (begin <= floor()) return bad("takes more than there is");
  const Id container = stack_[begin - 1];
  if (at(container).kind != kind) return bad("adds items to something that has none");
  if (kind == PickleKind::kDict && (stack_.size() - begin) % 2 != 0) {
    return bad("a key without a value");
  }
  for (size_t i = begin; i < stack_.size(); ++i) append(container, stack_[i]);
  stack_.resize(begin);
  return {};
}

Status PickleMachine::extend_by(size_t count, PickleKind kind) {
  if (stack_.size() - floor() < count) return bad("takes more than there is");
  return extend(stack_.size() - count, kind);
}

Status PickleMachine::step(Op op) {
  switch (op) {
    case Op::kMark:
      return mark();
    case Op::kNone:
      return push(none_), Status{};
    case Op::kNewTrue:
      return push(true_), Status{};
    case Op::kNewFalse:
      return push(false_), Status{};
    case Op::kBinInt:
      return push_integer(static_cast<int32_t>(FERRY_TRY(number(4))));
    case Op::kBinInt1:
      return push_integer(static_cast<int64_t>(FERRY_TRY(number(1))));
    case Op::kBinInt2:
      return push_integer(static_cast<int64_t>(FERRY_TRY(number(2))));
    case Op::kLong1:
      return long1();
    case Op::kBinFloat:
      FERRY_TRY(number(8));
      return push(add({PickleKind::kFloat})), Status{};
    case Op::kBinUnicode:
      return unicode();
    case Op::kEmptyTuple:
      return tuple(stack_.size());
    case Op::kEmptyList:
      return push(add({PickleKind::kList})), Status{};
    case Op::kEmptyDict:
      return push(add({PickleKind::kDict})), Status{};
    case Op::kTuple:
      return tuple(FERRY_TRY(pop_mark()));
    case Op::kTuple1:
      return tuple_of(1);
    case Op::kTuple2:
      return tuple_of(2);
    case Op::kTuple3:
      return tuple_of(3);
    case Op::kAppend:
      return extend_by(1, PickleKind::kList);
    case Op::kAppends:
      return extend_by_mark(PickleKind::kList);
    case Op::kSetItem:
      return extend_by(2, PickleKind::kDict);
    case Op::kSetItems:
      return extend_by_mark(PickleKind::kDict);
    case Op::kBinPut:
      return put(FERRY_TRY(number(1)));
    case Op::kLongBinPut:
      return put(FERRY_TRY(number(4)));
    case Op::kBinGet:
      return get(FERRY_TRY(number(1)));
    case Op::kLongBinGet:
      return get(FERRY_TRY(number(4)));
    case Op::kGlobal:
      return global();
    case Op::kBinPersId:
      return persistent_id();
    case Op::kReduce:
      return reduce();
    case Op::kBuild:
      return build();
    case Op::kProto:
    case Op::kStop:
      break;
  }
  return bad(fmt::format("the opcode 0x{:02x}, which torch.save does not write for state dicts",
                         static_cast<unsigned>(op)));
}

Result<Pickle> PickleMachine::run() {
  const auto begin = FERRY_TRY(number(2));
  if (begin != (uint64_t{kProtocol} << 8 | static_cast<uint64_t>(Op::kProto))) {
    return bad("not a pickle of protocol 2");
  }
  for (;;) {
    op_at_ = at_;
    if (++opcodes_ > kMaxPickleOpcodes) return bad("too many opcodes");
    const auto op = static_cast<Op>(FERRY_TRY(number(1)));
    if (op == Op::kStop) break;
    FERRY_RETURN_IF_ERROR(step(op));
  }
  if (left() != 0) return bad("bytes after the end of the pickle");
  if (stack_.size() != 1 || !marks_.empty()) return bad("does not end with one value");
  out_.root_ = stack_[0];
  return std::move(out_);
}

Result<Pickle> Pickle::parse(std::span<const std::byte> data, const std::string& name) {
  if (data.size() > kMaxPickleBytes) {
    return bad_input(fmt::format("{}: data.pkl is larger than {} bytes", name, kMaxPickleBytes));
  }
  return PickleMachine(data, name).run();
}

int64_t Pickle::integer(Id id) const {
  const Value& value = values_[id];
  return static_cast<int64_t>(uint64_t{value.last} << 32 | value.first);
}

std::string_view Pickle::string(Id id) const {
  const Value& value = values_[id];
  return {reinterpret_cast<const char*>(data_.data()) + value.first, value.count};
}

const PickleName& Pickle::global(Id id) const { return kNames[values_[id].first]; }

size_t Pickle::size(Id id) const {
  return values_[id].kind == PickleKind::kString ? 0 : values_[id].count;
}

std::vector<Pickle::Id> Pickle::items(Id id) const {
  std::vector<Id> out;
  out.reserve(size(id));
  if (size(id) == 0) return out;
  for (uint32_t cell = values_[id].first; cell != kNothing; cell = cells_[cell].next) {
    out.push_back(cells_[cell].value);
  }
  return out;
}

}  // namespace ferry::formats
