// PyTorch checkpoints (zip files that torch.save wrote: .bin, .pt, .pth) as a TensorSource.
//
// The state dict is the dict that the file holds, or the one under its key "state_dict" or "model"
// where there are no tensors beside it. All its values must be tensors. A view of a storage is read
// as torch would make it contiguous; tied tensors are entries with the same bytes. Names are kept
// as they are. TensorEntry::offset is where the first element of the tensor lies in the file, or,
// in a compressed storage, would lie if its contents were where the stored bytes begin.
// SourceFile::header is data.pkl.
//
// The CRC of data.pkl is checked when the file is opened, that of a storage (checking it means
// reading it) when the first of its bytes are asked for, before any are given. A compressed storage
// is then decompressed as a whole, and kept in memory until all its tensors have been read. One
// that is not compressed is never in memory as a whole: a view that jumps around in it is gathered
// from windows of it.
//
// What a hostile file could make grow is bounded:
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
#include "formats/checkpoint_file.h"

namespace ferry::formats {

// What the first bytes of a file say.
enum class TorchContent {
  kOther,
  kZip,
  kPickle,  // torch.save before 1.6, or a bare pickle: not read
  kTar,     // torch.save before 0.2: not read
};
Result<TorchContent> detect_torch(const InputFile& file);

// Opens all files, in this order, as one source. `display_path` is TensorSource::path(). kBadInput
// for a malformed file, for a pickle that asks for anything but tensors, and for a tensor that is
// in two files; kUnsupported for the formats before 1.6 and big-endian files.
Result<std::unique_ptr<TensorSource>> open_torch(const std::vector<CheckpointFile>& files,
                                                 const std::string& display_path);

}  // namespace ferry::formats
