// open_checkpoint() opens checkpoints of every supported format, by path.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "core/directory.h"
#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/file/metadata.h"
#include "formats/hdf5/hdf5.h"

namespace ferry::checkpoint {

struct Checkpoint {
  std::unique_ptr<TensorSource> source;
  // Metadata of a GGUF file or attributes of an HDF5 file, which refer to the source.
  std::variant<std::monostate, formats::GgufMetadata, formats::KerasAttributes> extra = {};
  // The directory of config.json and the tokenizer files.
  Directory directory = {};
};

struct CheckpointOptions {
  // Follow any symbolic link inside a checkpoint directory. By default only links within the
  // directory are followed, and those of the Hugging Face cache: (../)+blobs/NAME.
  bool follow_symlinks = false;
};

// Opens a directory or a tensor file. A directory has model.safetensors, or else
// model.safetensors.index.json with its files, or else the same of pytorch_model.bin, or else
// model.weights.h5 or model.weights.json, or else a single .gguf file, or the first one of a split
// checkpoint. A file is an index.json, a Keras NAME.weights.json, or a single tensor file:
// safetensors, or PyTorch where its first bytes or the end of its name (.bin, .pt, .pth, .ckpt) say
// so, HDF5 likewise (.h5, .hdf5), GGUF where its name ends in .gguf. The path itself may be a
// symbolic link, or the name of a model in the Hugging Face cache (find_source()). kUnsupported for
// other formats; kBadInput for malformed files and for an incomplete set of them.
Result<Checkpoint> open_checkpoint(const std::string& path, const CheckpointOptions& options = {});

// Whether open_checkpoint() finds something to open, in whatever state.
bool has_checkpoint(const std::string& path);

// Opens the tensors alone.
Result<std::unique_ptr<TensorSource>> open_tensors(const std::string& path,
                                                   const CheckpointOptions& options = {});

// Opens the file `name`, a plain name, of a checkpoint directory. A symbolic link is read once. If
// CheckpointOptions allows its target, the target is opened, and must be a regular file and no
// link. kIo where there is no such file.
Result<InputFile> open_in_checkpoint(const Directory& directory, const std::string& name,
                                     const CheckpointOptions& options = {});

// Opens the tensors of the file `name` of a directory like open_in_checkpoint(). The file is no
// index.
Result<std::unique_ptr<TensorSource>> open_tensors_in(const Directory& directory,
                                                      const std::string& name);

}  // namespace ferry::checkpoint
