// Listing: what `ferry inspect` knows about a file of any kind, before it is printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"
#include "core/thread_pool.h"

namespace ferry::listing {

struct ListedTensor {
  std::string name;  // untrusted
  DType dtype = DType::kF32;
  Shape shape = {};
  uint64_t bytes = 0;     // of the values
  std::string file = {};  // within a directory, otherwise empty
  // How the file has the values: a dtype or an encoding and what is done to the bytes, such as
  // "q8_0" or "f32 shuffle deflate"; and how many bytes of the file that takes.
  std::string stored = {};
  uint64_t stored_bytes = 0;
  std::string shares =
      {};                 // name of an earlier tensor that is the same bytes of the file; or empty
  bool is_tensor = true;  // false: data of a delegate, without dtype and shape
};

struct ListedFile {
  std::string name;
  uint64_t bytes = 0;
};

// An input, an output or a mutable buffer of a method.
struct ListedValue {
  std::string name;  // may be empty
  std::string kind;  // dtype of a tensor, or "int", "bool", "double", ...
  Shape shape;       // upper bounds
  bool dynamic = false;
  uint64_t bytes = 0;
  bool stored = false;  // a buffer with initial contents
};

// A constant of a delegate.
struct ListedConstant {
  std::string key;  // in named data; empty: in the blob
  uint64_t bytes = 0;
  std::string kind = {};  // "qbint4", "f32", ...; empty where nothing uses it
  Shape shape = {};
  uint32_t group = 0;  // values of a row that share a scale, 0 for other kinds
};

struct ListedDelegate {
  std::string backend;
  uint64_t bytes = 0;                                      // of its blob
  std::vector<std::pair<std::string, size_t>> nodes = {};  // by kind, with counts
  std::vector<ListedConstant> constants = {};
  std::string not_read = {};  // why the nodes and constants are not known
};

struct ListedMethod {
  std::string name;
  std::vector<ListedValue> inputs, outputs, buffers;
  std::vector<std::pair<std::string, size_t>> operators;  // by name, with counts
  std::vector<ListedDelegate> delegates;
  size_t instructions = 0;
  std::vector<uint64_t> planned_bytes;         // per memory, the first is memory 1
  uint64_t constants = 0, constant_bytes = 0;  // distinct, inside of the program
};

struct ListedProgram {
  std::string file;
  std::vector<ListedMethod> methods;
  // What it expects in data files: tensors, then data of delegates.
  std::vector<ListedTensor> external;
  std::vector<ListedTensor> named;  // data of delegates in the program itself
  uint64_t program_bytes = 0, constant_bytes = 0, initial_bytes = 0;
  uint64_t delegate_bytes = 0, named_bytes = 0;
  // For a bundled program: its methods with test cases, and the number of cases.
  std::vector<std::pair<std::string, size_t>> test_cases = {};
};

struct Listing {
  std::string kind;  // "checkpoint", "program", "data", "bundle"
  std::string path;
  // For a bundle; all of it is untrusted; tool and options are empty where an older Ferry made it.
  std::string model_type = {};
  std::string tool = {}, tool_version = {};
  std::vector<std::pair<std::string, std::string>> options = {};  // of the conversion
  std::vector<ListedFile> files = {};
  std::vector<ListedTensor> tensors = {};
  std::vector<ListedProgram> programs = {};
};

// What a path leads to, by the names in a folder, or by the name and the first bytes of a file. A
// folder with a manifest or with programs is a bundle, unless a checkpoint is in it; whatever else
// there is counts as a checkpoint, which may turn out to be none.
enum class PathKind { kBundle, kTensors, kProgram, kData };
std::string_view kind_name(PathKind kind);
Result<PathKind> kind_of_path(const std::string& path);

// Reads headers only: tensor data is not touched.
Result<Listing> list_path(const std::string& path, ThreadPool& pool);

}  // namespace ferry::listing
