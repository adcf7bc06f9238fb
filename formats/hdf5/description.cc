#include "formats/hdf5/description.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "core/checked.h"
#include "core/text.h"

namespace ferry::hdf5 {
namespace {

constexpr std::string_view kMagic = "FH5D";
constexpr uint32_t kVersion = 1;

// One function for each structure lists its fields in the order of the message. Both Writer and
// Reader call that function.
class Writer {
 public:
  template <class T>
  void number(const T& value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void flag(const bool& value) { number(static_cast<uint8_t>(value)); }
  template <class E>
  void choice(const E& value, E) {
    number(value);
  }
  void text(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    text_ += value;
  }
  void bytes(const std::vector<std::byte>& value) {
    number(static_cast<uint32_t>(value.size()));
    text_.append(reinterpret_cast<const char*>(value.data()), value.size());
  }
  template <class T, class Item>
  void list(const std::vector<T>& items, uint64_t /*least_bytes*/, const Item& item) {
    number(static_cast<uint32_t>(items.size()));
    for (const T& value : items) item(value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> message) : left_(message) {}

  template <class T>
  void number(T& value) {
    if (!need(sizeof value)) return;
    std::memcpy(&value, left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
  }
  void flag(bool& value) {
    uint8_t byte = 0;
    number(byte);
    if (byte > 1) wrong_ = true;
    value = byte == 1;
  }
  template <class E>
  void choice(E& value, E last) {
    uint8_t byte = 0;
    number(byte);
    if (byte > static_cast<uint8_t>(last)) {
      wrong_ = true;
    } else {
      value = static_cast<E>(byte);
    }
  }
  void text(std::string& value) {
    uint32_t size = 0;
    number(size);
    if (!need(size)) return;
    value.assign(reinterpret_cast<const char*>(left_.data()), size);
    left_ = left_.subspan(size);
  }
  void bytes(std::vector<std::byte>& value) {
    uint32_t size = 0;
    number(size);
    if (!need(size)) return;
    value.assign(left_.begin(), left_.begin() + size);
    left_ = left_.subspan(size);
  }
  // Every item takes at least `least_bytes` of the message. This bounds the count before it is
  // used.
  template <class T, class Item>
  void list(std::vector<T>& items, uint64_t least_bytes, const Item& item) {
    uint32_t count = 0;
    number(count);
    if (!need(count * least_bytes)) return;
    items.resize(count);
    for (T& value : items) {
      if (wrong_) return;
      item(value);
    }
  }

  bool wrong() const { return wrong_; }
  bool at_end() const { return left_.empty(); }

 private:
  bool need(uint64_t bytes) {
    if (wrong_ || bytes > left_.size()) wrong_ = true;
    return !wrong_;
  }

  std::span<const std::byte> left_;
  bool wrong_ = false;
};

template <class Stream, class T>
void pass(Stream& s, T& t) requires std::is_same_v<std::remove_const_t<T>, ElementType> {
  s.choice(t.type_class, TypeClass::kOther);
  s.text(t.name);
  s.number(t.size);
  s.flag(t.big_endian);
  s.flag(t.is_signed);
  s.number(t.precision);
  s.number(t.bit_offset);
  s.number(t.sign_at);
  s.number(t.exponent_at);
  s.number(t.exponent_bits);
  s.number(t.mantissa_at);
  s.number(t.mantissa_bits);
  s.number(t.exponent_bias);
  s.flag(t.implied_one);
}

template <class Stream, class T>
void pass(Stream& s, T& d) requires std::is_same_v<std::remove_const_t<T>, Dataset> {
  const auto number = [&s](auto& value) { s.number(value); };
  s.text(d.path);
  s.number(d.object);
  pass(s, d.type);
  s.choice(d.space, Space::kNull);
  s.list(d.dims, sizeof(uint64_t), number);
  s.choice(d.layout, Layout::kOther);
  s.number(d.external_files);
  s.number(d.address);
  s.number(d.stored_bytes);
  s.bytes(d.inline_bytes);
  s.list(d.chunk_dims, sizeof(uint64_t), number);
  s.number(d.chunk_options);
  s.list(d.filters, 8, [&](auto& filter) {
    s.number(filter.id);
    s.list(filter.values, sizeof(uint32_t), number);
  });
  s.list(d.chunks, 24, [&](auto& chunk) {
    s.number(chunk.address);
    s.number(chunk.bytes);
    s.number(chunk.skipped);
    s.list(chunk.coordinates, sizeof(uint64_t), number);
  });
}

template <class Stream, class T>
void pass(Stream& s, T& a) requires std::is_same_v<std::remove_const_t<T>, Attribute> {
  s.text(a.object);
  s.text(a.name);
  s.list(a.values, sizeof(uint32_t), [&s](auto& value) { s.text(value); });
}

template <class Stream, class T>
void pass(Stream& s, T& fill) requires std::is_same_v<std::remove_const_t<T>, FillValue> {
  s.text(fill.path);
  s.bytes(fill.element);
}

template <class Stream, class T>
void pass(Stream& s, T& link) requires std::is_same_v<std::remove_const_t<T>, OtherLink> {
  s.text(link.path);
  s.choice(link.kind, LinkKind::kUserDefined);
}

template <class Stream, class T>
void pass(Stream& s, T& trouble) requires std::is_same_v<std::remove_const_t<T>, Trouble> {
  s.text(trouble.path);
  s.text(trouble.what);
}

template <class T>
void write_records(Writer& out, char kind, const std::vector<T>& records) {
  for (const T& record : records) {
    out.number(kind);
    pass(out, record);
  }
}

template <class T>
void read_one(Reader& in, std::vector<T>& records) {
  pass(in, records.emplace_back());
}

}  // namespace

std::string encode(const Description& description) {
  Writer out;
  for (const char c : kMagic) out.number(c);
  out.number(kVersion);
  write_records(out, 'D', description.datasets);
  write_records(out, 'A', description.attributes);
  write_records(out, 'F', description.fills);
  write_records(out, 'L', description.links);
  write_records(out, 'T', description.troubles);
  out.number('E');
  return out.take();
}

Result<Description> decode(std::span<const std::byte> message, const std::string& name) {
  Description description;
  Reader in(message);
  const auto broken = [&] {
    return bad_input(fmt::format("{}: the confined HDF5 reader gave no well-formed answer", name));
  };
  for (const char expected : kMagic) {
    char c = 0;
    in.number(c);
    if (c != expected) return broken();
  }
  uint32_t version = 0;
  in.number(version);
  if (version != kVersion) return broken();
  while (!in.wrong()) {
    char kind = 0;
    in.number(kind);
    switch (kind) {
      case 'D':
        read_one(in, description.datasets);
        break;
      case 'A':
        read_one(in, description.attributes);
        break;
      case 'F':
        read_one(in, description.fills);
        break;
      case 'L':
        read_one(in, description.links);
        break;
      case 'T':
        read_one(in, description.troubles);
        break;
      case 'E':
        if (in.wrong() || !in.at_end()) return broken();
        return description;
      default:
        return broken();
    }
  }
  return broken();
}

namespace {

struct IntegerType {
  uint32_t size;
  bool is_signed;
  DType dtype;
};
constexpr std::array<IntegerType, 8> kIntegers = {{{1, true, DType::kI8},
                                                   {1, false, DType::kU8},
                                                   {2, true, DType::kI16},
                                                   {2, false, DType::kU16},
                                                   {4, true, DType::kI32},
                                                   {4, false, DType::kU32},
                                                   {8, true, DType::kI64},
                                                   {8, false, DType::kU64}}};

struct FloatType {
  uint32_t size, exponent_bits, mantissa_bits;
  uint64_t exponent_bias;
  DType dtype;
};
constexpr std::array<FloatType, 3> kFloats = {
    {{2, 5, 10, 15, DType::kF16}, {4, 8, 23, 127, DType::kF32}, {8, 11, 52, 1023, DType::kF64}}};

bool is_plain_float(const ElementType& t, const FloatType& f) {
  const uint32_t bits = 8 * f.size;
  return t.size == f.size && t.precision == bits && t.bit_offset == 0 && t.sign_at == bits - 1 &&
         t.exponent_at == f.mantissa_bits && t.exponent_bits == f.exponent_bits &&
         t.mantissa_at == 0 && t.mantissa_bits == f.mantissa_bits &&
         t.exponent_bias == f.exponent_bias && t.implied_one;
}

Failure unsupported(std::string description) {
  return fail(ErrorCode::kUnsupported, std::move(description));
}

}  // namespace

Result<DType> dtype_of(const ElementType& t, bool bfloat16) {
  switch (t.type_class) {
    case TypeClass::kInteger:
      for (const IntegerType& i : kIntegers) {
        if (t.size == i.size && t.is_signed == i.is_signed && t.precision == 8 * t.size &&
            t.bit_offset == 0) {
          return i.dtype;
        }
      }
      return unsupported(fmt::format("integers of {} bits in {} bytes", t.precision, t.size));
    case TypeClass::kFloat:
      for (const FloatType& f : kFloats) {
        if (is_plain_float(t, f)) return f.dtype;
      }
      return unsupported(fmt::format("floats of {} bytes that are not IEEE's", t.size));
    case TypeClass::kOpaque:
      if (t.size == 2 && bfloat16) return DType::kBF16;
      return unsupported(fmt::format("opaque values of {} bytes, not marked as bfloat16", t.size));
    case TypeClass::kOther:
      break;
  }
  return unsupported(fmt::format("elements of type {}", printable(t.name)));
}

}  // namespace ferry::hdf5
