// HDF5 files (Keras .h5 and .weights.h5, and any other that holds plain arrays) as a TensorSource.
//
// Entry names are the paths of the datasets without the leading slash: "layers/dense/vars/0",
// "short.logits". A child process without rights walks the file with libhdf5 and describes it
// (confined.h, walk.h); the description is checked here, and the tensors are then read by offset
// without libhdf5. So a file that crashes the library, which small files do, is one refused file.
//
// These rules say what is accepted. They are stricter than libhdf5 and h5py:
//   H1  the walk ends in bounded time and memory: 200,000 links, groups 64 deep, paths of 4,096
//       bytes, 65,536 chunks (32,768 in a dataset), 4 MiB of text in attributes, 16 MiB of
//       description, 64 MiB of memory, and 0.7 s of processor time and 0.1 s for each MiB of the
//       file, but 20 s at most
//   H2  links are hard links. Soft, external and user-defined links are refused, not followed: an
//       external one reads another file, and a soft one may point nowhere. A group with several
//       names is listed under the first, so that cycles end; a dataset is listed under each
//   H3  paths are UTF-8 without NUL, and unique
//   H4  element types: integers of 1, 2, 4 or 8 bytes, IEEE floats of 2, 4 or 8 bytes, either byte
//       order, without padding bits; 2-byte opaque values are bfloat16 where the attribute `dtype`
//       says so, and in a legacy Keras file (one with `layer_names`), which lacks the attribute.
//       Other types (strings, compounds, enumerations, ...) are refused even beside tensors,
//       because their meaning is not known
//   H5  the shape is a scalar or simple; without a null dataspace; its product fits into 63 bits
//   H6  storage is contiguous, compact or chunked. External storage (CVE-2026-1669 in Keras) and
//       virtual datasets, which read other files, are refused
//   H7  contiguous and compact data have the size that shape and type ask for; no element
//       is in two chunks. Elements that were never stored (contiguous data without an address,
//       missing chunks) have the fill value, the file's own or zero. They are refused if the file
//       says that there is no such value or that it is never written, because the library then
//       returns uninitialised memory, and if they have more bytes than 64 times those of the file,
//       or than 1 MiB
//   H8  data lie in the file, after the superblock, and those of two datasets or chunks do not
//       overlap; they do not cover the header of any dataset. Two names of one dataset are tied
//       tensors
//   H9  filters: shuffle, deflate and fletcher32, each at most once; plugins are never loaded
//   H10 a chunk has at most 64 MiB; its bytes inflate by 1,032 at most (the limit of deflate), to
//       exactly the size of the chunk, and are hardly longer than it. Filtered chunks that lie side
//       by side in the same rows have at most 64 MiB together
//   H11 fletcher32 sums are checked when the file is opened, of all that have them
//   H12 in a Keras file (with `layer_names`, with a group `vars` that holds dataset `0`, or named
//       by an index as a shard) the groups `optimizer` and `optimizer_weights` of the root are left
//       out: they are the state of training. Only H1 to H3 apply to their contents, and the file
//       must be long enough for them
//   H13 where a legacy Keras file lists `weight_names`, each of them is a dataset
// Chunked data after a user block are not supported.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/file_tensor_source.h"
#include "formats/hdf5/description.h"

namespace ferry::formats {

// Information of a Keras file in addition to its tensors.
struct KerasAttributes {
  // The text attributes `dtype`, `name`, `layer_names`, `weight_names` (or their numbered parts),
  // `keras_version` and `backend` of all groups and datasets, in the order of files and paths.
  std::vector<hdf5::Attribute> attributes;
  uint64_t optimizer_bytes = 0;  // bytes of the optimizer's state, which is not an entry (H12)
};

struct Hdf5File {
  std::unique_ptr<TensorSource> source;
  KerasAttributes attributes;
};

// Returns whether the file begins with the signature of HDF5. A signature after a user block is not
// looked for, because a file of another format may hold anything there.
Result<bool> detect_hdf5(const InputFile& file);

// Opens all files, in this order, as one source. `display_path` is TensorSource::path(). In
// files(), the header is the description of the file, from which all entries follow. `keras` says
// that the files are known to be shards of a Keras checkpoint, so that H12 holds for each of them.
// kBadInput for a malformed file and for a tensor that is in two files, kUnsupported by the rules
// above.
Result<Hdf5File> open_hdf5(std::vector<CheckpointFile> files, const std::string& display_path,
                           bool keras = false);

}  // namespace ferry::formats
