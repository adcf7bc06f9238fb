// audit_path() says which purpose every byte of a bundle, a checkpoint or programs serves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "audit/leaf.h"
#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::audit {

struct AuditedFile {
  std::string path;  // relative to the target; the name of the file where the target is a file
  uint64_t bytes = 0;
  // One of "program", "data", "safetensors", "gguf", "torch", "hdf5", "manifest", "tokenizer",
  // "metadata", "reference" and "other".
  std::string type = {};
};

// A mutable buffer of a program.
struct AuditedBuffer {
  uint32_t file = 0;
  std::string name = {};
  DType dtype = DType::kF32;
  Shape shape = {};
  uint64_t bytes = 0;
  bool stored = false;  // the program file has initial contents
};
struct AuditedMethod {
  uint32_t file = 0;
  std::string name = {};
  uint64_t activation_bytes = 0, state_bytes = 0;
};
// Memory that programs plan to use at run time. The methods of one program share memory; two
// programs do not.
struct Memory {
  std::vector<AuditedMethod> methods = {};
  std::vector<AuditedBuffer> buffers = {};
  uint64_t activation_bytes() const;
  uint64_t state_bytes() const;
};

// One change of size on the way from the files of the checkpoint to the files of the bundle.
struct AccountStep {
  std::string name;
  int64_t bytes = 0;
};
struct Account {
  uint64_t source_bytes = 0, bundle_bytes = 0;
  std::vector<AccountStep> steps = {};
};

struct Finding {
  std::string id;
  bool warning = false;
  uint64_t bytes = 0;  // bytes that could be saved
  std::vector<std::string> items = {};
  std::string message = {}, remedy = {};
};

struct Audit {
  std::string name;  // the last part of the path
  std::string type;  // "bundle", "checkpoint", "folder", "program", "data"
  std::string model_type = {};
  std::vector<AuditedFile> files = {};
  // Sorted by file, then by offset. The leaves of a file have no gaps and no overlaps.
  std::vector<Leaf> leaves = {};
  std::optional<Memory> memory = {};
  std::optional<Account> account = {};
  std::vector<Finding> findings = {};
  bool content_read = false;  // the leaves have digests, and the findings tell of values

  uint64_t bytes() const;
  uint64_t elements() const;
  uint64_t bytes_of(LeafKind kind) const;
};

struct AuditOptions {
  // Read all bytes: hash what has no digest in the manifest, and examine values.
  bool digests = false;
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

// Returns the last part of a path, also where the path ends in slashes.
std::string target_name(const std::string& path);

// Reads only headers and tables, unless `options.digests` is set. Passes on the errors of the
// format readers. Returns kIo if a file changes meanwhile.
Result<Audit> audit_path(const std::string& path, const AuditOptions& options, ThreadPool& pool);

}  // namespace ferry::audit
