#include "formats/hdf5/walk.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "core/checked.h"
#include "formats/hdf5/descriptor_driver.h"

namespace ferry::hdf5 {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxPath = 4096;
constexpr size_t kMaxLinks = 200'000;
constexpr uint64_t kMaxChunks = 65'536;  // in a file
constexpr uint64_t kMaxTexts = 200'000;  // of attributes in a file
constexpr size_t kMaxTextBytes = size_t{4} << 20;
constexpr size_t kMaxCompactBytes = 65'536;  // the limit of the format
constexpr size_t kMaxFillBytes = 16;         // of one element
constexpr size_t kMaxFilters = 32;           // the limit of libhdf5

// Thrown to end the walk; walk() catches it.
struct Stop {
  Trouble trouble;
};

// An identifier of the library, closed with the function for its kind.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator hid_t() const { return id_; }
  bool valid() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// -- errors

// Returns the innermost message of the library's error stack.
std::string library_error() {
  std::string text;
  const auto keep = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "refused by libhdf5" : "libhdf5: " + text.substr(0, 120);
}

[[noreturn]] void stop(const std::string& path, std::string what) {
  throw Stop{{path, std::move(what)}};
}
[[noreturn]] void stop_by_library(const std::string& path) { stop(path, library_error()); }

template <class T>
T require(T result, const std::string& path) {
  if (result < 0) stop_by_library(path);
  return result;
}

class Walker {
 public:
  explicit Walker(Description& out) : out_(out) {}
  void file();

 private:
  struct Link {
    std::string name;
    H5L_type_t type;
    haddr_t address;
  };
  void group(hid_t id, const std::string& path, size_t depth);
  void link(hid_t parent, const Link& link, const std::string& path, size_t depth);
  std::vector<Link> links_of(hid_t group, const std::string& path);
  void dataset(hid_t id, const Link& link, const std::string& path);
  void storage(hid_t id, hid_t space, hid_t properties, Dataset& out);
  void chunks(hid_t id, hid_t space, hid_t properties, Dataset& out);
  void fill_value(hid_t id, hid_t properties, const Dataset& dataset);
  void attribute(hid_t object, const std::string& path, const std::string& name);
  bool has_attribute(hid_t object, const std::string& path, const std::string& name);
  void list_attribute(hid_t object, const std::string& path, const std::string& name);
  void keep_text(const std::string& path, std::vector<std::string>& values, const char* text,
                 size_t size);

  Description& out_;
  std::set<haddr_t> groups_;
  size_t links_ = 0, texts_ = 0, text_bytes_ = 0;
  uint64_t chunks_ = 0;
};

// -- element types and shapes

std::string_view class_name(H5T_class_t type) {
  switch (type) {
    case H5T_TIME:
      return "time";
    case H5T_STRING:
      return "string";
    case H5T_BITFIELD:
      return "bit field";
    case H5T_COMPOUND:
      return "compound";
    case H5T_REFERENCE:
      return "reference";
    case H5T_ENUM:
      return "enumeration";
    case H5T_VLEN:
      return "variable-length";
    case H5T_ARRAY:
      return "array";
    default:
      return "unknown";
  }
}

ElementType element_type(hid_t type, const std::string& path) {
  ElementType t;
  const H5T_class_t type_class = H5Tget_class(type);
  t.size = static_cast<uint32_t>(std::min<size_t>(H5Tget_size(type), UINT32_MAX));
  if (type_class == H5T_OPAQUE) {
    t.type_class = TypeClass::kOpaque;
  } else if (type_class == H5T_INTEGER || type_class == H5T_FLOAT) {
    t.type_class = type_class == H5T_FLOAT ? TypeClass::kFloat : TypeClass::kInteger;
    const H5T_order_t order = H5Tget_order(type);
    if (order != H5T_ORDER_LE && order != H5T_ORDER_BE) stop(path, "an unknown byte order");
    t.big_endian = order == H5T_ORDER_BE;
    t.precision = static_cast<uint32_t>(H5Tget_precision(type));
    t.bit_offset = static_cast<uint32_t>(require(H5Tget_offset(type), path));
  } else {
    t.name = class_name(type_class);
  }
  if (type_class == H5T_INTEGER) t.is_signed = H5Tget_sign(type) == H5T_SGN_2;
  if (type_class == H5T_FLOAT) {
    size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
    require(H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits), path);
    t.sign_at = static_cast<uint32_t>(sign);
    t.exponent_at = static_cast<uint32_t>(exponent);
    t.exponent_bits = static_cast<uint32_t>(exponent_bits);
    t.mantissa_at = static_cast<uint32_t>(mantissa);
    t.mantissa_bits = static_cast<uint32_t>(mantissa_bits);
    t.exponent_bias = H5Tget_ebias(type);
    t.implied_one = H5Tget_norm(type) == H5T_NORM_IMPLIED;
  }
  return t;
}

void shape_of(hid_t space, Dataset& out) {
  switch (H5Sget_simple_extent_type(space)) {
    case H5S_SCALAR:
      out.space = Space::kScalar;
      return;
    case H5S_SIMPLE:
      out.space = Space::kSimple;
      break;
    default:
      out.space = Space::kNull;
      return;
  }
  std::array<hsize_t, H5S_MAX_RANK> dims{};
  const int rank = require(H5Sget_simple_extent_dims(space, dims.data(), nullptr), out.path);
  out.dims.assign(dims.begin(), dims.begin() + rank);
}

// -- data

void filters_of(hid_t properties, Dataset& out) {
  const int count = require(H5Pget_nfilters(properties), out.path);
  for (int i = 0; i < std::min<int>(count, kMaxFilters); ++i) {
    std::array<unsigned, 16> values{};
    size_t value_count = values.size();
    unsigned flags = 0, config = 0;
    const H5Z_filter_t id = H5Pget_filter2(properties, static_cast<unsigned>(i), &flags,
                                           &value_count, values.data(), 0, nullptr, &config);
    require(id, out.path);
    value_count = std::min(value_count, values.size());
    out.filters.push_back(
        {static_cast<uint32_t>(id), {values.begin(), values.begin() + value_count}});
  }
}

void Walker::chunks(hid_t id, hid_t space, hid_t properties, Dataset& out) {
  std::array<hsize_t, H5S_MAX_RANK> dims{};
  const int rank =
      require(H5Pget_chunk(properties, static_cast<int>(dims.size()), dims.data()), out.path);
  out.chunk_dims.assign(dims.begin(), dims.begin() + rank);
  unsigned options = 0;
  require(H5Pget_chunk_opts(properties, &options), out.path);
  out.chunk_options = options;
  hsize_t count = 0;
  require(H5Dget_num_chunks(id, space, &count), out.path);
  chunks_ += std::min<uint64_t>(count, kMaxChunks + 1);
  if (count > kMaxChunksOfDataset || chunks_ > kMaxChunks) {
    stop(out.path, fmt::format("more than {} chunks in a dataset, or {} in the file",
                               kMaxChunksOfDataset, kMaxChunks));
  }
  for (hsize_t i = 0; i < count; ++i) {
    std::array<hsize_t, H5S_MAX_RANK> at{};
    unsigned skipped = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t bytes = 0;
    require(H5Dget_chunk_info(id, space, i, at.data(), &skipped, &address, &bytes), out.path);
    out.chunks.push_back({address, bytes, skipped, {at.begin(), at.begin() + rank}});
  }
}

bool is_stored_whole(const Dataset& d) {
  if (d.layout == Layout::kContiguous) return d.address != HADDR_UNDEF;
  if (d.layout != Layout::kChunked || d.chunk_dims.size() != d.dims.size()) return true;
  uint64_t chunks = 1;
  for (size_t i = 0; i < d.dims.size(); ++i) {
    const uint64_t size = std::max<uint64_t>(d.chunk_dims[i], 1);
    chunks = checked_mul(chunks, d.dims[i] / size + (d.dims[i] % size != 0)).value_or(UINT64_MAX);
  }
  return d.chunks.size() >= chunks;
}

// Sets the value that the library returns for elements that are not stored. The library has no such
// value if it is undefined or is never written.
void Walker::fill_value(hid_t id, hid_t properties, const Dataset& dataset) {
  if (is_stored_whole(dataset) || dataset.type.type_class == TypeClass::kOther ||
      dataset.type.size > kMaxFillBytes) {
    return;
  }
  H5D_fill_value_t status = H5D_FILL_VALUE_ERROR;
  H5D_fill_time_t time = H5D_FILL_TIME_ERROR;
  require(H5Pfill_value_defined(properties, &status), dataset.path);
  require(H5Pget_fill_time(properties, &time), dataset.path);
  const bool given = status == H5D_FILL_VALUE_DEFAULT || status == H5D_FILL_VALUE_USER_DEFINED;
  if (!given || time == H5D_FILL_TIME_NEVER) return;
  const Id type(require(H5Dget_type(id), dataset.path), H5Tclose);
  FillValue& fill = out_.fills.emplace_back();
  fill.path = dataset.path;
  fill.element.resize(dataset.type.size);
  require(H5Pget_fill_value(properties, type, fill.element.data()), dataset.path);
}

void Walker::storage(hid_t id, hid_t space, hid_t properties, Dataset& out) {
  out.external_files = static_cast<uint64_t>(require(H5Pget_external_count(properties), out.path));
  if (out.external_files > 0) return;
  switch (require(H5Pget_layout(properties), out.path)) {
    case H5D_COMPACT:
      out.layout = Layout::kCompact;
      out.stored_bytes = H5Dget_storage_size(id);
      if (out.stored_bytes <= kMaxCompactBytes && out.type.type_class != TypeClass::kOther) {
        const Id type(H5Dget_type(id), H5Tclose);
        const auto elements =
            static_cast<uint64_t>(require(H5Sget_simple_extent_npoints(space), out.path));
        if (elements > kMaxCompactBytes || elements * out.type.size != out.stored_bytes) return;
        out.inline_bytes.resize(out.stored_bytes);
        require(H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.inline_bytes.data()),
                out.path);
      }
      return;
    case H5D_CONTIGUOUS:
      out.layout = Layout::kContiguous;
      out.address = H5Dget_offset(id);
      out.stored_bytes = H5Dget_storage_size(id);
      H5Eclear2(H5E_DEFAULT);
      return fill_value(id, properties, out);
    case H5D_CHUNKED:
      out.layout = Layout::kChunked;
      out.stored_bytes = H5Dget_storage_size(id);
      filters_of(properties, out);
      chunks(id, space, properties, out);
      return fill_value(id, properties, out);
    case H5D_VIRTUAL:
      out.layout = Layout::kVirtual;
      return;
    default:
      return;
  }
}

void Walker::dataset(hid_t id, const Link& link, const std::string& path) {
  Dataset& out = out_.datasets.emplace_back();
  out.path = path;
  out.object = link.address;
  const Id type(require(H5Dget_type(id), path), H5Tclose);
  out.type = element_type(type, path);
  const Id space(require(H5Dget_space(id), path), H5Sclose);
  shape_of(space, out);
  const Id properties(require(H5Dget_create_plist(id), path), H5Pclose);
  storage(id, space, properties, out);
  attribute(id, path, "dtype");
}

// -- attributes

bool Walker::has_attribute(hid_t object, const std::string& path, const std::string& name) {
  return require(H5Aexists(object, name.c_str()), path) > 0;
}

void Walker::keep_text(const std::string& path, std::vector<std::string>& values, const char* text,
                       size_t size) {
  text_bytes_ += size;
  if (++texts_ > kMaxTexts || text_bytes_ > kMaxTextBytes)
    stop(path, "too much text in attributes");
  values.emplace_back(text, size);
}

// Keeps an attribute that is a text or a list of texts, and ignores others. An empty list of floats
// is kept as well, because h5py writes an empty list so.
void Walker::attribute(hid_t object, const std::string& path, const std::string& name) {
  if (!has_attribute(object, path, name)) return;
  const Id id(require(H5Aopen(object, name.c_str(), H5P_DEFAULT), path), H5Aclose);
  const Id type(require(H5Aget_type(id), path), H5Tclose);
  const Id space(require(H5Aget_space(id), path), H5Sclose);
  const hssize_t count = require(H5Sget_simple_extent_npoints(space), path);
  Attribute out{path, name, {}};
  if (count > 0) {
    if (H5Tget_class(type) != H5T_STRING) return;
    if (static_cast<uint64_t>(count) > kMaxTexts) stop(path, "too much text in attributes");
    if (require(H5Tis_variable_str(type), path) > 0) {
      std::vector<char*> texts(static_cast<size_t>(count), nullptr);
      require(H5Aread(id, type, texts.data()), path);
      for (const char* text : texts) {
        keep_text(path, out.values, text == nullptr ? "" : text,
                  text == nullptr ? 0 : std::strlen(text));
      }
      H5Dvlen_reclaim(type, space, H5P_DEFAULT, texts.data());
    } else {
      const size_t size = H5Tget_size(type);
      if (size == 0 || size > kMaxTextBytes / static_cast<uint64_t>(count)) {
        stop(path, "too much text in attributes");
      }
      std::vector<char> bytes(size * static_cast<size_t>(count));
      require(H5Aread(id, type, bytes.data()), path);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        keep_text(path, out.values, bytes.data() + i * size, ::strnlen(&bytes[i * size], size));
      }
    }
  }
  out_.attributes.push_back(std::move(out));
}

// Reads the attribute NAME, or NAME0, NAME1, ... if Keras split it.
void Walker::list_attribute(hid_t object, const std::string& path, const std::string& name) {
  if (has_attribute(object, path, name)) return attribute(object, path, name);
  for (size_t i = 0; i < kMaxTexts; ++i) {
    const std::string part = fmt::format("{}{}", name, i);
    if (!has_attribute(object, path, part)) return;
    attribute(object, path, part);
  }
}

// -- groups

std::vector<Walker::Link> Walker::links_of(hid_t group, const std::string& path) {
  struct Found {
    std::vector<Link> links;
    size_t limit;
    bool full = false;
  } found{{}, kMaxLinks - links_};
  const auto keep = [](hid_t, const char* name, const H5L_info_t* info, void* out) -> herr_t {
    auto& f = *static_cast<Found*>(out);
    f.full = f.links.size() >= f.limit;
    if (f.full) return 1;
    const bool hard = info->type == H5L_TYPE_HARD;
    f.links.push_back({name, info->type, hard ? info->u.address : HADDR_UNDEF});
    return 0;
  };
  require(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, keep, &found), path);
  if (found.full) stop(path, fmt::format("more than {} links in the file", kMaxLinks));
  links_ += found.links.size();
  return std::move(found.links);
}

void Walker::link(hid_t parent, const Link& link, const std::string& path, size_t depth) {
  if (path.size() > kMaxPath) stop("", fmt::format("a path of more than {} bytes", kMaxPath));
  switch (link.type) {
    case H5L_TYPE_HARD:
      break;
    case H5L_TYPE_SOFT:
      out_.links.push_back({path, LinkKind::kSoft});
      return;
    case H5L_TYPE_EXTERNAL:
      out_.links.push_back({path, LinkKind::kExternal});
      return;
    default:
      out_.links.push_back({path, LinkKind::kUserDefined});
      return;
  }
  if (groups_.contains(link.address)) return;
  const Id object(require(H5Oopen(parent, link.name.c_str(), H5P_DEFAULT), path), H5Oclose);
  switch (H5Iget_type(object)) {
    case H5I_GROUP:
      if (depth > kMaxDepth) stop(path, fmt::format("groups more than {} deep", kMaxDepth));
      groups_.insert(link.address);
      return group(object, path, depth);
    case H5I_DATASET:
      return dataset(object, link, path);
    case H5I_DATATYPE:
      return;  // it holds no values
    default:
      stop(path, "an object of unknown kind");
  }
}

void Walker::group(hid_t id, const std::string& path, size_t depth) {
  for (const char* name : {"name", "backend", "keras_version"}) attribute(id, path, name);
  for (const char* name : {"layer_names", "weight_names"}) list_attribute(id, path, name);
  for (const Link& child : links_of(id, path)) {
    link(id, child, path.empty() ? child.name : path + "/" + child.name, depth + 1);
  }
}

void Walker::file() {
  const Id access(require(H5Pcreate(H5P_FILE_ACCESS), ""), H5Pclose);
  require(H5Pset_driver(access, descriptor_driver(), nullptr), "");
  const Id id(require(H5Fopen("file", H5F_ACC_RDONLY, access), ""), H5Fclose);
  const Id root(require(H5Gopen2(id, "/", H5P_DEFAULT), ""), H5Gclose);
  H5O_info_t info;
  require(H5Oget_info(root, &info), "");
  groups_.insert(info.addr);
  group(root, "", 0);
}

}  // namespace

void prepare_walk() {
  ::unsetenv("HDF5_PLUGIN_PATH");
  ::unsetenv("HDF5_PLUGIN_PRELOAD");
  H5open();
  H5PLset_loading_state(0);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  descriptor_driver();
}

Description walk(int fd, uint64_t file_bytes) {
  read_from_descriptor(fd, file_bytes);
  Description out;
  try {
    Walker(out).file();
  } catch (Stop& stop) {
    out.troubles.push_back(std::move(stop.trouble));
  }
  return out;
}

}  // namespace ferry::hdf5
