// Manifest: what manifest.json says about a bundle. docs/bundle_format.md is the specification.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"
#include "core/result.h"
#include "core/shape.h"

namespace ferry::packer {

inline constexpr std::string_view kManifestName = "manifest.json";
// A part of a bundle (BundlePlan::write_part()) has this file instead of a manifest. It says what
// the files of the part hold.
inline constexpr std::string_view kPartName = "part.journal";
// Versions of the format that this program writes, and the oldest one that it reads. Each member
// that came later states its version in manifest.cc.
inline constexpr int64_t kManifestVersion = 7;
inline constexpr int64_t kOldestManifestVersion = 2;
inline constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxRecipeBytes = uint64_t{1} << 20;
// Stands for a digest that is not known yet: sizes do not depend on digests.
inline constexpr std::string_view kZeroDigest =
    "0000000000000000000000000000000000000000000000000000000000000000";
inline constexpr std::string_view kZeroFastDigest = kZeroDigest.substr(0, 32);

struct ManifestPort {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;                            // upper bounds
  std::optional<Encoding> encoding = {};  // of u8 and u16; other dtypes have none
};
struct ManifestProbe {
  std::string name;   // "hidden_states.3"
  int32_t value = 0;  // index into the values of its method
};
struct ManifestBuffer {
  std::string name;
  int32_t value = 0;  // index into the values of its method
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t bytes = 0;
  std::string init;  // "none" (zero-filled by the loader) or "stored"
};
// A method that computes. Methods without inputs, which only state a value, are not listed.
struct ManifestMethod {
  std::string name;  // "forward"
  std::vector<ManifestPort> inputs, outputs;
  std::vector<ManifestProbe> probes;
  std::vector<ManifestBuffer> buffers;
  uint64_t activation_bytes = 0, activation_lower_bound = 0;
};
// How many tokens a call of a decoder's or an embedding's method takes at most, by its tokens or
// its embeddings; nullopt if it has neither.
std::optional<int64_t> call_length(const ManifestMethod& method);

// One .pte and the data files its external tensors are in. Methods of one program share weights,
// constants and buffers: a buffer name means the same memory in each of them.
struct ManifestProgram {
  std::string file;
  std::vector<std::string> data_files;
  int32_t first_layer = 0, layer_count = 0;
  uint64_t state_bytes = 0;
  std::vector<ManifestMethod> methods;
  // What a runtime needs to execute it beside kernels, "XnnpackBackend": each once, in order of
  // first use. Empty before version 5.
  std::vector<std::string> backends = {};

  const ManifestMethod* find(std::string_view method) const;  // nullptr if there is none
};
// A part of the model that is executed on its own, in one program or several. Its programs have the
// same methods and run in the order of the list; within a method, outputs of one program feed
// inputs of later ones by name.
struct ManifestComponent {
  std::string role;  // "text_decoder"
  std::vector<ManifestProgram> programs;
  // "f32", "f16", "bf16", "mixed": of its matrices. Empty before version 4.
  std::string weight_dtype = {};
  // How its matrices were quantised, for readers of the manifest: "8da4w-g32"; empty where they
  // were not, and before version 5.
  std::string quantization = {};
};
// The only output of a weight's recipe, or one of two: where it came from and where it is.
struct ManifestTensor {
  std::string name;  // the key in the .ptd: the runtime name of the weight, ".scales" behind it
  std::string file;  // .ptd
  // The dtype of the values. i4, two to a byte, is u8 of half as many columns in files and
  // programs.
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t offset = 0, bytes = 0;  // in `file`
  std::string sha256;              // of those bytes
  // Stored with fewer significant bits than the source has: values may differ from it by rounding.
  bool rounded = false;
  std::string rule;
  struct Source {
    std::string file, key;
    std::string sha256;  // of the whole source tensor's bytes as stored
  };
  std::vector<Source> sources;
  std::string recipe = {};  // graph::text_of(): how it is made of `sources`; empty before version 3
  std::string output = {};  // of the recipe: "", or "scales"; empty before version 5
};
// A file of the checkpoint. Its digest is taken over the digests of its tensors, so that no byte is
// hashed twice for it; docs/bundle_format.md, "Source files".
struct ManifestSourceFile {
  std::string path;  // relative to the checkpoint, a plain file name
  uint64_t bytes = 0;
  std::string sha256_tree;
};
// A file of the bundle.
struct ManifestFile {
  std::string path;  // relative, a plain file name
  uint64_t bytes = 0;
  // "sha256": `digest` is that of the whole file, as sha256sum prints it. "sha256-segments", for
  // data files: made of the digests of its tensors and of all bytes between them.
  std::string method;
  std::string digest;
  // The digest of these bytes by XXH3, which finds damage in a fraction of the time. Empty before
  // version 7.
  std::string xxh3 = {};
};
struct ManifestDrop {
  std::string key, rule, reason;
};
// The program that wrote the bundle. Empty before version 6.
struct ManifestTool {
  std::string name;     // "ferry"
  std::string version;  // "0.2.0+1a2b3c4d5e6f"
};
// An option of the conversion that decides bytes: as on the command line, without its dashes.
struct ManifestOption {
  std::string name;   // "dtype"
  std::string value;  // "keep"
};

struct Manifest {
  int64_t version = kManifestVersion;  // of the text: which members it has
  ManifestTool tool = {};
  std::string model_type;
  int64_t vocab_size = 0, hidden_size = 0, num_layers = 0;
  int64_t context_length = 0, prefill_length = 0;
  bool all_logits = false;
  std::string program_style;  // "stateful"
  // How static programs attend; members of version 3.
  std::string attention = "mha";  // or "sha": one projection for each head
  std::string softmax = "plain";  // or "masked"
  std::string rotate = "none";    // or "r3": K caches hold rotated keys
  std::string weight_dtype;       // of the text decoder: "f32", "f16", "bf16", "mixed"
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;
  // For vision-language models: the token that stands for a row of image features, where the config
  // states it. Version 4.
  std::optional<int64_t> image_token_id = {};
  // Sequences of more positions than this are computed with other RoPE factors, from their first
  // token on (longrope). An input_pos of -1 - position says so; else a call takes the factors for
  // the sequence up to its own end.
  std::optional<int64_t> rope_switch;
  std::vector<ManifestSourceFile>
      source_files;  // provenance: the checkpoint's files and their digests
  std::vector<ManifestDrop> dropped;
  std::vector<std::string> allowed_unmapped;
  // Parts that each program consists of, with llama::fallback between them.
  int64_t parts_in_program = 1;
  std::string packed_layout = "own";         // what --packed-layout said about packed tensors
  std::vector<ManifestOption> options = {};  // of the conversion; none before version 6
  std::vector<ManifestComponent> components;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestFile> files;  // every file of the bundle but the manifest itself
  std::string reference;            // file with the embedded reference, or empty
  double default_tolerance = 0;     // of older bundles; not read

  const ManifestComponent* find(std::string_view role) const;  // nullptr if there is none
  // Those of all components, in the order of the lists.
  std::vector<const ManifestProgram*> programs() const;
};

// Canonical text of manifest.version: same manifest, same bytes. The last member,
// "manifest_sha256", is the SHA-256 of the text with that value replaced by 64 zeros, so that a
// change anywhere is seen.
std::string write_manifest(const Manifest& manifest);

// Strict: the text has exactly the members of its version, paths are plain file names, and
// write_manifest returns the same text for the result. `name` begins the messages. kUnsupported for
// a version that this program does not read.
Result<Manifest> read_manifest(const std::string& text, const std::string& name);

}  // namespace ferry::packer
