// audit_path() says where every byte of an artifact goes: a bundle, a checkpoint, programs.
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
  std::string path;  // relative to the target; of a target that is a file, its name
  uint64_t bytes = 0;
  // "program", "data", "safetensors", "gguf", "torch", "hdf5", "manifest", "tokenizer",
  // "metadata", "reference" or "other"
  std::string type = {};
};

// A mutable buffer of a program.
struct AuditedBuffer {
  uint32_t file = 0;
  std::string name = {};
  DType dtype = DType::kF32;
  Shape shape = {};
  uint64_t bytes = 0;
  bool stored = false;  // with initial contents
};
struct AuditedMethod {
  uint32_t file = 0;
  std::string name = {};
  uint64_t activation_bytes = 0, state_bytes = 0;
};
// What programs plan at run time. Methods of one program share their memory, programs do not.
struct Memory {
  std::vector<AuditedMethod> methods = {};
  std::vector<AuditedBuffer> buffers = {};
  uint64_t activation_bytes() const;
  uint64_t state_bytes() const;
};

// Signed sizes that lead from the files of the checkpoint to those of the bundle.
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
  uint64_t bytes = 0;  // that could be saved
  std::vector<std::string> items = {};
  std::string message = {}, remedy = {};
};

struct Audit {
  std::string name;  // the last part of the path
  std::string type;  // "bundle", "checkpoint", "folder", "program", "data"
  std::string model_type = {};
  std::vector<AuditedFile> files = {};
  // By file, then offset. Those of a file follow each other and add up to its size.
  std::vector<Leaf> leaves = {};
  std::optional<Memory> memory = {};
  std::optional<Account> account = {};
  std::vector<Finding> findings = {};
  bool content_read = false;  // digests and findings about values are there

  uint64_t bytes() const;
  uint64_t elements() const;
  uint64_t bytes_of(LeafKind kind) const;
};

struct AuditOptions {
  bool digests = false;  // hash what the manifest has no digest for, and look at values
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

// The last part of a path, whatever slashes end it.
std::string target_name(const std::string& path);

// Reads headers and tables only, unless `digests` asks for more. Errors are those of the readers of
// the formats. kIo where a file changes meanwhile.
Result<Audit> audit_path(const std::string& path, const AuditOptions& options, ThreadPool& pool);

}  // namespace ferry::audit
