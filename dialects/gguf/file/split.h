// The files of a GGUF checkpoint that is split, as llama.cpp splits: STEM-00001-of-00003.gguf and
// so on. The first has the keys of the model, all of them say which one they are.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "dialects/gguf/file/metadata.h"

namespace ferry::formats {

struct GgufSplit {
  int64_t number = 0;  // from 0
  int64_t count = 1;
  int64_t tensors = 0;  // of all files
};

// What the keys of a file say; nullopt where it is the only one. kBadInput for numbers that cannot
// be.
Result<std::optional<GgufSplit>> gguf_split_of(const GgufMetadata& metadata,
                                               const std::string& path);

// "a/m-00001-of-00003.gguf", 3: the names of the second and the third file, without directory.
// kBadInput where the first does not have such a name.
Result<std::vector<std::string>> gguf_later_parts(const std::string& first, int64_t count);

// "model", 2, 3: "model-00002-of-00003.gguf".
std::string gguf_part_name(const std::string& stem, size_t number, size_t count);

// Whether `names` are the files of one checkpoint, in ascending order.
bool is_gguf_split(const std::vector<std::string>& names);

// Keys that say how the bytes are laid out, in one file or several, and nothing of the model.
bool is_gguf_layout_key(std::string_view key);

// Opens a file beside the first one, by name.
using OpenGgufPart = std::function<Result<InputFile>(const std::string& name)>;

}  // namespace ferry::formats
