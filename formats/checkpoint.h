// Opens checkpoints of any format that is built, by path.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::formats {

struct CheckpointOptions {
  // Follow any symbolic link inside a checkpoint directory. Without it only links within the
  // directory are followed, and those of the Hugging Face cache: (../)+blobs/NAME.
  bool follow_symlinks = false;
};

// `path` is a directory (model.safetensors, or else model.safetensors.index.json with its files, or
// else the same of pytorch_model.bin, or else model.weights.h5 or model.weights.json, or else the
// only .gguf file in it), an index.json, a Keras NAME.weights.json, or a single tensor file:
// safetensors, or PyTorch where its first bytes or the end of its name (.bin, .pt, .pth, .ckpt) say
// so, HDF5 likewise (.h5, .hdf5; an Hdf5Source, formats/hdf5/hdf5.h), GGUF where its name ends in
// .gguf (a GgufSource, formats/gguf/gguf.h). The path itself may be a symbolic link. kUnsupported
// for other formats; kBadInput for malformed files and for an incomplete set of them.
Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& path,
                                                      const CheckpointOptions& options = {});

// The directory that holds config.json and the tokenizer files: `path` itself or its parent.
std::string checkpoint_directory(const std::string& path);

// Path of the file `name`, a plain name, in a checkpoint directory; refuses symbolic links by the
// rule above. kIo where there is no such file.
Result<std::string> file_in_checkpoint(const std::string& directory, const std::string& name,
                                       const CheckpointOptions& options = {});

}  // namespace ferry::formats
