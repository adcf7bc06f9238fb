// Manifest is the content of manifest.json, which describes a bundle. docs/bundle_format.md is the
// specification.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/attention_sink.h"
#include "core/dtype.h"
#include "core/encoding.h"
#include "core/image_grid.h"
#include "core/program_interface.h"
#include "core/result.h"

namespace ferry::packer {

inline constexpr std::string_view kManifestName = "manifest.json";
// A part of a bundle (BundlePlan::write_part()) has this file instead of a manifest. The file
// records the contents of the part.
inline constexpr std::string_view kPartName = "part.journal";
// The versions that this program writes: that of padded sounds whose rows see none behind them,
// that of sounds whose blocks of frames become rows, that of videos, that of sequences without an
// end, that of sounds of any number of frames, that of rows of sound, that of rows that state their
// places, that of encoder-decoders, that of prompts whose tokens attend to later ones, that of
// vision encoders for images of any shape, that of classifiers, that of bundles whose components
// share one program, that of bundles that take adapters, and that of all others. It reads those
// from kOldestManifestVersion to kManifestVersion. manifest.cc states the version of each member
// that was added later.
inline constexpr int64_t kTwoWayPromptsManifestVersion = 12;
inline constexpr int64_t kImageTilesManifestVersion = 13;
inline constexpr int64_t kSourceManifestVersion = 14;
inline constexpr int64_t kPlacedRowsManifestVersion = 15;
inline constexpr int64_t kSoundRowsManifestVersion = 17;
inline constexpr int64_t kSoundFramesManifestVersion = 18;
inline constexpr int64_t kPaddedSoundsManifestVersion = 19;
inline constexpr int64_t kAttentionSinkManifestVersion = 20;
inline constexpr int64_t kVideoManifestVersion = 21;
inline constexpr int64_t kSoundBlocksManifestVersion = 22;
inline constexpr int64_t kCausalSoundsManifestVersion = 23;
inline constexpr int64_t kManifestVersion = kCausalSoundsManifestVersion;
inline constexpr int64_t kImageGridManifestVersion = 11;
inline constexpr int64_t kClassifierManifestVersion = 10;
inline constexpr int64_t kOneProgramManifestVersion = 9;
inline constexpr int64_t kAdaptersManifestVersion = 8;
inline constexpr int64_t kPlainManifestVersion = 7;
inline constexpr int64_t kOldestManifestVersion = 2;
inline constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxRecipeBytes = uint64_t{1} << 20;
// A method without inputs in stateful programs that have two sets of RoPE factors (longrope). It
// gives the length beyond which sequences use the second set.
inline constexpr std::string_view kRopeSwitchMethod = "get_rope_switch";

// Placeholder for digests that are not known yet. Sizes do not depend on the digests.
inline constexpr std::string_view kZeroDigest =
    "0000000000000000000000000000000000000000000000000000000000000000";
inline constexpr std::string_view kZeroFastDigest = kZeroDigest.substr(0, 32);

struct ManifestPort {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;                            // upper bounds
  std::optional<Encoding> encoding = {};  // for u8 and u16; other dtypes have none
};
struct ManifestProbe {
  std::string name;   // such as "hidden_states.3"
  int32_t value = 0;  // index into the values of the method
};
struct ManifestBuffer {
  std::string name;
  int32_t value = 0;  // index into the values of the method
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t bytes = 0;
  std::string init;  // "none" (the loader fills with zeros) or "stored"
};
// A method that computes. Methods without inputs, which only return a constant, are not listed.
struct ManifestMethod {
  std::string name;  // such as "forward"
  // The name that the program has for it, where this is another: programs that several components
  // share name `forward` after the component. Empty before version 9.
  std::string program_method = {};
  std::vector<ManifestPort> inputs, outputs;
  std::vector<ManifestProbe> probes;
  std::vector<ManifestBuffer> buffers;
  uint64_t activation_bytes = 0, activation_lower_bound = 0;

  const std::string& name_in_program() const {
    return program_method.empty() ? name : program_method;
  }
};
// Returns how many tokens a call of a decoder's or an embedding's method takes at most, from the
// shape of its tokens or embeddings; nullopt if it has neither.
std::optional<int64_t> call_length(const ManifestMethod& method);

// One .pte file and the data files that hold its external tensors. Methods of one program share
// weights, constants and buffers: a buffer name stands for one memory in all of them. Since version
// 9 components may have methods in one file; each lists the file with its own methods.
struct ManifestProgram {
  std::string file;
  std::vector<std::string> data_files;
  int32_t first_layer = 0, layer_count = 0;
  uint64_t state_bytes = 0;
  std::vector<ManifestMethod> methods;
  // Backends that a runtime needs beside kernels, such as "XnnpackBackend": each once, in order of
  // first use. Empty before version 5.
  std::vector<std::string> backends = {};

  const ManifestMethod* find(std::string_view method) const;  // nullptr if there is none
};
// A part of the model that is executed on its own, as one program or several. The programs have
// equal methods and run in the order of the list. Within a method, outputs of a program become the
// inputs of equal names of later programs.
struct ManifestComponent {
  std::string role;  // such as "text_decoder"
  std::vector<ManifestProgram> programs;
  // "f32", "f16", "bf16" or "mixed", for the matrices. Empty before version 4.
  std::string weight_dtype = {};
  // The quantisation of the matrices, for people, such as "8da4w-g32". Empty if matrices are not
  // quantised, and before version 5.
  std::string quantization = {};
};
// An output of a weight's recipe (one output, or codes and scales): its source and its position.
struct ManifestTensor {
  // Key in the .ptd file: the runtime name of the weight; for scales with ".scales" appended.
  std::string name;
  std::string file;  // .ptd
  // The dtype of the values. In files and programs i4 is u8 with half as many columns, two values
  // per byte.
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t offset = 0, bytes = 0;  // position in `file`
  std::string sha256;              // of these bytes
  // Whether the tensor has fewer significant bits than the source, so that values may be rounded.
  bool rounded = false;
  std::string rule;
  struct Source {
    std::string file, key;
    std::string sha256;  // of the bytes of the whole source tensor as stored
  };
  std::vector<Source> sources;
  // graph::text_of() the recipe that makes the weight of `sources`; empty before version 3.
  std::string recipe = {};
  std::string output = {};  // output of the recipe: "", or "scales"; empty before version 5
};
// A file of the checkpoint. Its digest is taken over the digests of its tensors, so that no byte is
// hashed twice for it (docs/bundle_format.md, "Source files").
struct ManifestSourceFile {
  std::string path;  // a plain file name, relative to the checkpoint
  uint64_t bytes = 0;
  std::string sha256_tree;
};
// A file of the bundle.
struct ManifestFile {
  std::string path;  // a plain file name, relative to the bundle
  uint64_t bytes = 0;
  // "sha256": `digest` is the SHA-256 of the whole file, as sha256sum prints it. "sha256-segments",
  // for data files: `digest` is made of the digests of the tensors and of all bytes between them.
  std::string method;
  std::string digest;
  // The digest by XXH3, which finds damage in a fraction of the time. Empty before version 7.
  std::string xxh3 = {};
};
struct ManifestDrop {
  std::string key, rule, reason;
};
// The program that wrote the bundle. Empty before version 6.
struct ManifestTool {
  std::string name;     // such as "ferry"
  std::string version;  // such as "0.2.0+1a2b3c4d5e6f"
};
// An option of the conversion that decides bytes. The name has no dashes.
struct ManifestOption {
  std::string name;   // such as "dtype"
  std::string value;  // such as "keep"
};

// An adapter in a data file of its own, which a runtime loads in place of Manifest::no_adapter.
struct ManifestAdapter {
  std::string name;
  std::string file;  // .ptd
  // The files that it was made of, with digests as for files of the checkpoint.
  std::vector<ManifestSourceFile> source_files = {};
};

// The labels of a classifier, in the order of its outputs.
struct ManifestClassifier {
  std::string scores;  // function that makes scores of outputs: "softmax", "sigmoid" or "none"
  std::vector<std::string> labels;
};

// How pictures become tiles of a vision encoder, and the features of these rows of the text decoder
// (runner/picture_tiles.h).
struct ManifestImageTiles {
  std::vector<int64_t> resolutions;  // height and width in pixels of each, one behind the other
  int64_t most_tiles = 0;  // features of a picture are reduced to those of so many tiles; 0: never
  bool operator==(const ManifestImageTiles&) const = default;
};

struct Manifest {
  int64_t version = kPlainManifestVersion;  // version of the text, which decides its members
  ManifestTool tool = {};
  std::string model_type;
  int64_t vocab_size = 0, hidden_size = 0, num_layers = 0;
  int64_t context_length = 0, prefill_length = 0;
  bool all_logits = false;
  std::string program_style;  // such as "stateful"
  // How static programs compute attention; members since version 3.
  std::string attention = "mha";  // or "sha": one projection per head
  std::string softmax = "plain";  // or "masked"
  std::string rotate = "none";    // or "r3": K caches hold rotated keys
  std::string weight_dtype;       // of the text decoder: "f32", "f16", "bf16" or "mixed"
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;
  // For vision-language models: the token that stands for a row of image features, if the config
  // states it. Since version 4.
  std::optional<int64_t> image_token_id = {};
  // Sequences of more positions than this are computed with other RoPE factors, from their first
  // token on (longrope). An input_pos of -1 - position selects these factors. With a plain
  // position, the end of the call decides which factors are used.
  std::optional<int64_t> rope_switch;
  std::optional<ManifestClassifier> classifier = {};  // before version 10 there is none
  std::optional<ImageGrid> image_grid = {};           // before version 11 there is none
  // Set where the vision encoder takes pictures of one shape in the place of lists of patches.
  // Before version 15 there is none.
  std::optional<PatchList> patch_list = {};
  // Whether all tokens of a prompt with images attend to each other. Since version 12.
  bool two_way_prompts = false;
  std::optional<ManifestImageTiles> image_tiles = {};  // before version 13 there is none
  // The token that answers of an encoder-decoder begin with. Since version 14.
  std::optional<int64_t> decoder_start_id = {};
  // The token that stands for a row of audio features. Since version 17.
  std::optional<int64_t> audio_token_id = {};
  // Set where the audio encoder makes rows of sounds of any number of frames, [1,frames,mels]: the
  // frames of a row, of which the last may have fewer. Since version 18.
  std::optional<int64_t> audio_row_frames = {};
  // Set where the encoder makes this number of rows of every such sound: those behind the rows of
  // its frames are padding. Since version 19.
  std::optional<int64_t> audio_rows = {};
  // Set where a row of such a sound depends on no row behind it, so that a sound may be encoded
  // with padding behind it: the frames of a row of the layers of the encoder. Since version 23.
  std::optional<int64_t> audio_causal_frames = {};
  // Set where every audio_row_frames of such a sound, the last ones filled up, make this number of
  // rows. Since version 22.
  std::optional<int64_t> audio_block_rows = {};
  // Set where sequences have no end: context_length is the number of slots of the caches. Since
  // version 20.
  std::optional<AttentionSink> attention_sink = {};
  // The token that stands for a row of a video, where that is another than image_token_id. How many
  // places in time a second of a video is, where its groups of frames are not one place apart.
  // Since version 21.
  std::optional<int64_t> video_token_id = {};
  std::optional<int64_t> tokens_per_second = {};
  std::vector<ManifestSourceFile> source_files;  // files of the checkpoint and their digests
  std::vector<ManifestDrop> dropped;
  std::vector<std::string> allowed_unmapped;
  // Number of parts in each program, with llama::fallback between them.
  int64_t parts_in_program = 1;
  std::string packed_layout = "own";         // value of the option --packed-layout
  std::vector<ManifestOption> options = {};  // options of the conversion; empty before version 6
  std::vector<ManifestComponent> components;
  std::vector<ManifestTensor> tensors;
  // The data file with the factors that change nothing, which programs load where no adapter is
  // chosen; empty if programs take no adapters, and before version 8.
  std::string no_adapter = {};
  std::vector<ManifestAdapter> adapters = {};  // by name
  std::vector<ManifestFile> files;             // all files of the bundle except the manifest
  std::string reference;                       // name of the embedded reference file, or empty
  double default_tolerance = 0;                // in older bundles; not read

  // Returns the most positions that a sequence may have.
  int64_t positions() const { return attention_sink ? kEndlessPositions : context_length; }
  const ManifestComponent* find(std::string_view role) const;  // nullptr if there is none
  // Returns the component that holds the layers that the manifest counts: the text decoder, the
  // text encoder, or else the audio encoder; nullptr if there is none of them.
  const ManifestComponent* main() const;
  const ManifestAdapter* find_adapter(std::string_view name) const;  // nullptr if there is none
  // Returns the programs of all components, in the order of the lists.
  std::vector<const ManifestProgram*> programs() const;
};

// Whether a text can be the name of an adapter: 1 to 64 of A-Z, a-z, 0-9, '-', '_' and '.', the
// first one no '.'.
bool is_adapter_name(std::string_view text);
// Returns the name of the data file of an adapter.
std::string adapter_file(std::string_view name);
inline constexpr std::string_view kNoAdapterFile = "no-adapter.ptd";

// Returns the canonical text in the version of the manifest: equal manifests give equal bytes. The
// last member, "manifest_sha256", is the SHA-256 of the text in which its value is replaced by 64
// zeros, so that any change is detected.
std::string write_manifest(const Manifest& manifest);

// Strict reader: the text must have exactly the members of its version, paths must be plain file
// names, and write_manifest() must return the text for the result. `name` begins the messages.
// kUnsupported for a version that this program does not read.
Result<Manifest> read_manifest(const std::string& text, const std::string& name);

// Returns the encoders whose output takes the place of embeddings of the text decoder.
std::vector<const RowEncoder*> row_encoders(const Manifest& manifest);
// Returns that of `role`; nullptr if there is none.
const RowEncoder* row_encoder(const Manifest& manifest, std::string_view role);

}  // namespace ferry::packer
