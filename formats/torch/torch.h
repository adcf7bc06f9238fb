// PyTorch checkpoints (zip files that torch.save wrote: .bin, .pt, .pth) as a TensorSource.
//
// The state dict is the dict at the root, or the dict under its key "state_dict" or "model" if the
// root has no tensors itself. All its values must be tensors. A view of a storage is read as torch
// would make it contiguous; tied tensors are entries with the same bytes. Names are kept as they
// are. TensorEntry::offset is the file offset of the first element of the tensor. In a compressed
// storage it is the offset of the stored bytes plus the offset in the decompressed ones.
// SourceFile::header is data.pkl.
//
// The CRC of data.pkl is checked when the file is opened. The CRC of a storage is checked at its
// first read, before any bytes are returned, because checking it means reading all of it. A
// compressed storage is decompressed as a whole at its first read and stays in memory until all its
// tensors have been read. An uncompressed storage is never in memory as a whole: strided views are
// gathered from windows of it.
//
// Limits against hostile files:
//   T1 data.pkl has at most 64 MiB, and if it is compressed no more than 256 times what is stored
//   T2 all tensors, made contiguous, have at most 64 times the bytes of the file, or 1 MiB
//   T3 compressed storages have together at most 64 times the bytes of the file, or 1 MiB, and at
//      most 4 GiB (more is kUnsupported: they may all have to be in memory)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/file_tensor_source.h"

namespace ferry::formats {

// The kind of a file, as its first bytes show it.
enum class TorchContent {
  kOther,
  kZip,
  kPickle,  // torch.save before 1.6, or a bare pickle: not supported
  kTar,     // torch.save before 0.2: not supported
};
Result<TorchContent> detect_torch(const InputFile& file);

// Opens all files, in this order, as one source. `display_path` is TensorSource::path(). kBadInput
// for a malformed file, for a pickle with anything but tensors, and for a tensor that is in two
// files. kUnsupported for formats before 1.6 and for big-endian files.
Result<std::unique_ptr<TensorSource>> open_torch(std::vector<CheckpointFile> files,
                                                 const std::string& display_path);

}  // namespace ferry::formats
