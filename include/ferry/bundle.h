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

// A part of the model that is executed separately.
struct BundleComponent {
  std::string role;                   // "text_decoder", "vision_encoder"
  std::string weight_dtype;           // "f32", "f16", "bf16" or "mixed"; for the matrices
  std::string quantization;           // "8da4w-g32 x 14"; empty where nothing is quantised
  std::vector<std::string> programs;  // files, in the order of execution
};

struct BundleInfo {
  std::string path;
  std::string model_type;    // from config.json
  std::string program_kind;  // "stateful", "static" or "encoder"
  std::string tool_version;  // version of the Ferry that made the bundle; empty if not known
  int64_t vocab_size = 0, hidden_size = 0, num_layers = 0;
  int64_t context_length = 0, prefill_length = 0;
  std::optional<int64_t> bos_token;
  std::vector<int64_t> end_tokens;
  std::vector<BundleComponent> components;
  std::vector<FileSize> files;        // all files except the manifest
  bool has_reference = false;         // the bundle contains outputs that verify() can compare with
  std::vector<std::string> adapters;  // names for Bundle::with_adapter()
  std::string adapter;                // the one that is chosen; empty for none
};

struct OpenOptions {
  std::string path = {};  // a bundle directory, or a GGUF file, which is converted in memory
  // A GGUF file takes a config.json where its metadata are incomplete, and the projector with its
  // vision encoder (docs/gguf.md). Both are empty for a bundle directory.
  std::string config = {}, mmproj = {};
  // Compute with the matrices of a GGUF file as f32, which takes their memory. Otherwise programs
  // multiply its blocks, with activations of 8 bits, and verify() does not take the bundle.
  // Multiply matrices of bf16 in f32, as verify() always does; otherwise generators and embedders
  // use the processor's own products of bf16, whose sums round differently.
  bool exact = false;
  bool check_digests = true;  // hash every byte of the bundle
  // Give the logits of all tokens of a GGUF file, which GeneratorOptions::lookup and draft need. No
  // effect on a bundle directory.
  bool all_logits = false;
};

// Handle of an open bundle. Copies share the mapped files.
class Bundle {
 public:
  static Result<Bundle> open(const OpenOptions& options, const Engine& engine,
                             const OnProgress& progress = {});
  static Result<Bundle> open(const std::string& path, const Engine& engine);
  ~Bundle();
  Bundle(const Bundle&);
  Bundle& operator=(const Bundle&);

  // Returns the bundle with one of its adapters, which is then that of generators, embedders and
  // verify(); an empty name chooses none. The files stay mapped once. kUsage for an adapter that
  // the bundle does not have.
  Result<Bundle> with_adapter(const std::string& name) const;

  BundleInfo info() const;
  // Returns the text of manifest.json (docs/bundle_format.md).
  std::string manifest_json() const;
  // Returns the content of a file that was copied into the bundle, such as "tokenizer.json". kIo if
  // there is no such file.
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
  uint64_t files = 0;  // of a bundle: number of files in the manifest, plus one for the manifest
  uint64_t bytes = 0;  // bytes of those files that exist
  std::vector<CheckProblem> problems;
  std::string kind;      // "bundle", "checkpoint", "program" or "data"
  uint64_t tensors = 0;  // number of tensors that were read; of a checkpoint or a data file
  bool ok() const { return problems.empty(); }
};

// Hashes every byte of the bundle in `directory` and validates the structure of all files. Damage
// is not an error; it is reported in `problems`.
Result<CheckResult> check_bundle(const std::string& directory, const Engine& engine,
                                 const OnProgress& progress = {});

// Does that for a bundle. Reads every value of a checkpoint, a program or a data file.
Result<CheckResult> check(const std::string& path, const Engine& engine,
                          const OnProgress& progress = {});

}  // namespace v0
}  // namespace ferry
