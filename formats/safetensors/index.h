// model.safetensors.index.json and pytorch_model.bin.index.json state which file of a sharded
// checkpoint holds which tensor.
//
// Only `weight_map` is used; `metadata` (total_size) may be absent, wrong or a float. A file name
// must be a plain name in the directory of the index, end as the format demands (".safetensors",
// ".bin") and differ from the others by more than case.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::formats {

inline constexpr uint64_t kMaxIndexBytes = 32'000'000;

// Maps the name of a tensor to the name of its file.
using ShardIndex = std::map<std::string, std::string>;

// `name` begins the messages. kUnsupported if the name of a file does not end in `suffix`.
Result<ShardIndex> parse_shard_index(std::string_view json, const std::string& name,
                                     std::string_view suffix = ".safetensors");

// Checks that the index and the files name the same tensors, each in the same file. The error lists
// all differences.
Status check_against_index(const ShardIndex& index, const TensorSource& source,
                           const std::string& name);

}  // namespace ferry::formats
