// Lists the contents of a checkpoint, a program, a data file or a bundle, and where its bytes go.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/result.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ferry {
inline namespace v0 {

struct TensorInfo {
  std::string name;
  std::string dtype;  // such as "bf16"; empty for data of a delegate
  std::vector<int64_t> shape;
  std::string file;    // file in the directory
  std::string stored;  // storage in the file: a dtype or an encoding, such as "q8_0"
  uint64_t stored_bytes = 0;
};

// An input, output or mutable buffer of a method.
struct ValueInfo {
  std::string name;            // may be empty
  std::string kind;            // the dtype of a tensor, or "int", "bool", "double"
  std::vector<int64_t> shape;  // upper bounds
  uint64_t bytes = 0;
};

struct MethodInfo {
  std::string name;
  std::vector<ValueInfo> inputs, outputs, buffers;
  std::vector<std::pair<std::string, size_t>> operators;  // names with counts
  std::vector<std::string> delegates;                     // names of the backends
  uint64_t planned_bytes = 0;
};

struct ProgramInfo {
  std::string file;
  std::vector<MethodInfo> methods;
};

struct Inspection {
  std::string kind;  // "checkpoint", "program", "data" or "bundle"
  std::string path;
  std::string model_type;       // for a bundle
  std::vector<FileSize> files;  // for a bundle
  std::vector<TensorInfo> tensors;
  std::vector<ProgramInfo> programs;
};

// Reads headers only, and no tensor data.
Result<Inspection> inspect(const std::string& path, const Engine& engine);

// Accounts for every byte of the input. Returns the JSON text that docs/auditing.md describes. With
// `digests` every byte is read, to find equal tensors and values that fit fewer bits.
Result<std::string> audit_json(const std::string& path, bool digests, const Engine& engine,
                               const OnProgress& progress = {});

}  // namespace v0
}  // namespace ferry
