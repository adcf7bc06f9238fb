// Reads NAME.weights.json, the index of a sharded Keras checkpoint, whose files are
// NAME_00000.weights.h5, NAME_00001.weights.h5, ...
//
//   {"metadata": {"total_size": 50016.0},
//    "weight_map": {"/layers/dense/vars": "model_00000.weights.h5",
//                   "/layers/embedding/vars": ["model_00000.weights.h5",
//                   "model_00001.weights.h5"]}}
//
// The map names groups, not tensors, and before Keras 3.11 not even all files. So the files are
// those of the map and those that are numbered like them; numbers without a file are missing files.
// Each group must have a dataset in each file that the map gives for it, and all datasets together
// must have `total_size` bytes at least. A dataset in two files is refused: that is how files of an
// older, longer checkpoint in the same directory are noticed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "formats/hdf5/hdf5.h"

namespace ferry::formats {

inline constexpr std::string_view kKerasIndexSuffix = ".weights.json";

struct KerasIndex {
  std::map<std::string, std::vector<std::string>> files_of;  // by group, without the leading slash
  uint64_t total_bytes = 0;                                  // 0 where it is not stated
};

// Messages begin with `name`.
Result<KerasIndex> parse_keras_index(std::string_view json, const std::string& name);

// Returns whether `file` is BASE_NUMBER.weights.h5 with five digits or more.
bool is_keras_shard(std::string_view file, std::string_view base);

// Returns all files of the checkpoint, sorted: those of the map and `present`, the numbered files
// of the directory. kBadInput if one is missing.
Result<std::vector<std::string>> keras_shards(const KerasIndex& index, const std::string& base,
                                              const std::vector<std::string>& present,
                                              const std::string& name);

Status check_against_keras_index(const KerasIndex& index, const Hdf5File& opened,
                                 const std::string& name);

}  // namespace ferry::formats
