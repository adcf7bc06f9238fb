// list_path() returns everything that `ferry inspect` prints about a file of any kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::listing {

struct ListedTensor {
  std::string name;  // untrusted
  DType dtype = DType::kF32;
  Shape shape = {};
  uint64_t bytes = 0;     // size of the values
  std::string file = {};  // file in the directory; empty if the listing is about one file
  // Storage in the file: a dtype or an encoding and the filters, such as "q8_0" or "f32 shuffle
  // deflate"; and the number of bytes in the file.
  std::string stored = {};
  uint64_t stored_bytes = 0;
  std::string shares =
      {};                 // name of an earlier tensor with these bytes of the file; otherwise empty
  bool is_tensor = true;  // false for data of a delegate, which has no dtype and shape
};

struct ListedFile {
  std::string name;
  uint64_t bytes = 0;
};

// An input, output or mutable buffer of a method.
struct ListedValue {
  std::string name;  // may be empty
  std::string kind;  // dtype of a tensor, or "int", "bool", "double", ...
  Shape shape;       // upper bounds
  bool dynamic = false;
  uint64_t bytes = 0;
  bool stored = false;  // a buffer whose initial contents are stored
};

// A constant of a delegate.
struct ListedConstant {
  std::string key;  // key in named data; empty if the constant is in the blob
  uint64_t bytes = 0;
  std::string kind = {};  // "qbint4", "f32", ...; empty if no node uses the constant
  Shape shape = {};
  uint32_t group = 0;  // values of a row that share a scale; 0 for other kinds
};

struct ListedDelegate {
  std::string backend;
  uint64_t bytes = 0;                                      // size of the blob
  std::vector<std::pair<std::string, size_t>> nodes = {};  // kinds with counts
  std::vector<ListedConstant> constants = {};
  std::string not_read = {};  // reason why nodes and constants are not listed
};

struct ListedMethod {
  std::string name;
  std::vector<ListedValue> inputs, outputs, buffers;
  std::vector<std::pair<std::string, size_t>> operators;  // names with counts
  std::vector<ListedDelegate> delegates;
  size_t instructions = 0;
  std::vector<uint64_t> planned_bytes;         // per memory, beginning with memory 1
  uint64_t constants = 0, constant_bytes = 0;  // distinct constants inside the program
};

struct ListedProgram {
  std::string file;
  std::vector<ListedMethod> methods;
  // External data that the program needs: tensors, then data of delegates.
  std::vector<ListedTensor> external;
  std::vector<ListedTensor> named;  // data of delegates inside the program
  uint64_t program_bytes = 0, constant_bytes = 0, initial_bytes = 0;
  uint64_t delegate_bytes = 0, named_bytes = 0;
  // For a bundled program: its methods that have test cases, with the number of cases.
  std::vector<std::pair<std::string, size_t>> test_cases = {};
};

struct Listing {
  std::string kind;  // "checkpoint", "program", "data", "bundle"
  std::string path;
  // For a bundle. All values are untrusted. Tool and options are empty if an older Ferry made the
  // bundle.
  std::string model_type = {};
  std::string tool = {}, tool_version = {};
  std::vector<std::pair<std::string, std::string>> options = {};  // options of the conversion
  std::vector<ListedFile> files = {};
  std::vector<ListedTensor> tensors = {};
  std::vector<ListedProgram> programs = {};
};

// The kind of what a path names, judged by the names in a folder, or by the name and first bytes of
// a file. A folder with a manifest or with programs is a bundle unless it contains a checkpoint.
// Everything else counts as kTensors, although it may turn out not to be a checkpoint.
enum class PathKind { kBundle, kTensors, kProgram, kData };
std::string_view kind_name(PathKind kind);
Result<PathKind> kind_of_path(const std::string& path);

// Reads headers only, and no tensor data.
Result<Listing> list_path(const std::string& path, ThreadPool& pool);

}  // namespace ferry::listing
