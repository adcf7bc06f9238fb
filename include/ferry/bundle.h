// Bundle: a directory of ExecuTorch programs and their weights, validated and mapped.
#pragma once

#include <ferry/engine.h>
#include <ferry/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

struct FileSize {
  std::string name;
  uint64_t bytes = 0;
};

// A part of the model that is executed on its own.
struct BundleComponent {
  std::string role;                   // "text_decoder", "vision_encoder"
  std::string weight_dtype;           // "f32", "f16", "bf16", "mixed"; of the matrices
  std::string quantization;           // "8da4w-g32 x 14"; empty where nothing is quantised
  std::vector<std::string> programs;  // files, in the order of execution
};

struct BundleInfo {
  std::string path;
  std::string model_type;    // as config.json has it
  std::string program_kind;  // "stateful", "static" or "encoder"
  std::string tool_version;  // of the Ferry that made it; empty where that is not known
  int64_t vocab_size = 0, hidden_size = 0, num_layers = 0;
  int64_t context_length = 0, prefill_length = 0;
  std::optional<int64_t> bos_token;
  std::vector<int64_t> end_tokens;
  std::vector<BundleComponent> components;
  std::vector<FileSize> files;  // without the manifest
  bool has_reference = false;   // outputs that verify() can compare with are embedded
};

struct OpenOptions {
  std::string path = {};      // a bundle directory, or a GGUF file, which is converted in memory
  std::string config = {};    // of a GGUF file: a config.json for what its metadata do not tell
  bool check_digests = true;  // hash every byte
};

// A handle: copies share the mapped files.
class Bundle {
 public:
  static Result<Bundle> open(const OpenOptions& options, const Engine& engine,
                             const OnProgress& progress = {});
  static Result<Bundle> open(const std::string& path, const Engine& engine);
  ~Bundle();
  Bundle(const Bundle&);
  Bundle& operator=(const Bundle&);

  BundleInfo info() const;
  // The text of manifest.json (docs/bundle_format.md).
  std::string manifest_json() const;
  // A file that was copied into the bundle, such as "tokenizer.json". kIo where there is none.
  Result<std::string> text_file(const std::string& name) const;

  struct Impl;
  explicit Bundle(std::shared_ptr<const Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

struct CheckProblem {
  ErrorCode code = ErrorCode::kBadInput;
  std::string file;     // name in the bundle; empty for the directory itself
  std::string message;  // one line that begins with the path
};

struct CheckResult {
  uint64_t files = 0;  // in the manifest, and the manifest
  uint64_t bytes = 0;  // of those files, as far as they are there
  std::vector<CheckProblem> problems;
  bool ok() const { return problems.empty(); }
};

// Hashes every byte of the bundle in `directory` and validates all structure. A damaged bundle is
// not an error, but has problems.
Result<CheckResult> check_bundle(const std::string& directory, const Engine& engine,
                                 const OnProgress& progress = {});

}  // namespace v0
}  // namespace ferry
