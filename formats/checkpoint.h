// open_checkpoint() opens checkpoints of every supported format, by path.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/gguf/metadata.h"
#include "formats/hdf5/hdf5.h"

namespace ferry::formats {

struct Checkpoint {
  std::unique_ptr<TensorSource> source;
  // What a GGUF or an HDF5 file says beside its tensors; it refers to the source.
  std::variant<std::monostate, GgufMetadata, KerasAttributes> extra = {};
};

struct CheckpointOptions {
  // Follow any symbolic link inside a checkpoint directory. Without it only links within the
  // directory are followed, and those of the Hugging Face cache: (../)+blobs/NAME.
  bool follow_symlinks = false;
};

// `path` is a directory (model.safetensors, or else model.safetensors.index.json with its files, or
// else the same of pytorch_model.bin, or else model.weights.h5 or model.weights.json, or else the
// only .gguf file in it), an index.json, a Keras NAME.weights.json, or a single tensor file:
// safetensors, or PyTorch where its first bytes or the end of its name (.bin, .pt, .pth, .ckpt) say
// so, HDF5 likewise (.h5, .hdf5), GGUF where its name ends in .gguf. The path itself may be a
// symbolic link. kUnsupported for other formats; kBadInput for malformed files and for an
// incomplete set of them.
Result<Checkpoint> open_checkpoint(const std::string& path, const CheckpointOptions& options = {});

// The tensors alone.
Result<std::unique_ptr<TensorSource>> open_tensors(const std::string& path,
                                                   const CheckpointOptions& options = {});

// The directory that holds config.json and the tokenizer files: `path` itself or its parent.
std::string checkpoint_directory(const std::string& path);

// Path of the file `name`, a plain name, in a checkpoint directory; refuses symbolic links by the
// rule above. kIo where there is no such file.
Result<std::string> file_in_checkpoint(const std::string& directory, const std::string& name,
                                       const CheckpointOptions& options = {});

}  // namespace ferry::formats
