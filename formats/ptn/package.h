// read_package() reads a native package of ExecuTorch (.ptn): a zip file without compression of
//   program.ptg          methods as graphs of operators, a FlatBuffer "NPTG"
//   program.safetensors  the constants that they name; absent without constants
//   aliases.json         constants whose bytes equal those of another, which is stored alone
// Packages are listed and checked; no Ferry program executes them.
// Source: ExecuTorch 1.5.1, exir/_serialize/_ptn.py and backends/native/serialization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/torch/zip.h"

namespace ferry::ptn {

// Whether a file begins as a package does. `start` holds its first bytes, 64 if it has them.
bool is_package(std::span<const std::byte> start);

// A tensor of a graph. All names are untrusted.
struct Value {
  std::string name;
  DType dtype = DType::kF32;  // of what is stored, if there is a quantisation
  Shape sizes;                // upper bounds; -1 where there is none
  bool dynamic = false;
  std::string quantisation = {};  // such as "4 bits in groups of 32" or "mxfp4"; empty without
};

struct Constant {
  std::string key;  // of a tensor of the package, or of an alias
  Value value;
  bool mutated = false;  // the graph writes it
  // Keys of the scales and zero points of its quantisation, with their dtypes.
  std::vector<std::pair<std::string, DType>> parameters = {};
};

struct Method {
  std::string name;
  std::vector<Value> inputs = {}, outputs = {};
  std::vector<Constant> constants = {};
  std::vector<Value> buffers = {};               // begin as zeros and are stored nowhere
  std::map<std::string, size_t> operators = {};  // with counts; those of inner graphs too
};

// Checks that every name is defined once and before it is used, that inputs, outputs and buffers
// have shapes, and that constants are in the graph. `name` begins the messages. kUnsupported for
// dtypes that Ferry does not have.
Result<std::vector<Method>> read_graph(std::span<const std::byte> graph, const std::string& name);

struct Package {
  std::vector<Method> methods;
  uint64_t graph_bytes = 0;
  std::vector<TensorEntry> tensors;  // offsets are those in the package
  std::map<std::string, std::string> aliases;
  std::optional<formats::ZipEntry> data;  // program.safetensors

  // Returns the tensor of a key, or of its alias; nullptr if there is none.
  const TensorEntry* find(const std::string& key) const;
};

// Checks everything but the values of constants: every constant has a tensor of its dtype and
// shape, and the graph and the aliases have their CRC.
Result<Package> read_package(const InputFile& file, const std::string& name);
// Reads the constants and compares their CRC.
Status check_values(const InputFile& file, const Package& package, const std::string& name);

}  // namespace ferry::ptn
