// open_gguf() opens a GGUF file as a TensorSource. Names are those of the file, shapes are
// row-major. Quantised tensors are read as they are stored: TensorEntry::encoding decodes them.
// A checkpoint may be split into several files, as llama.cpp splits: STEM-00001-of-00003.gguf and
// so on. The first file has the keys of the model; every file says which one it is.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/file/metadata.h"

namespace ferry::formats {

struct GgufSplit {
  int64_t number = 0;  // counts from 0
  int64_t count = 1;
  int64_t tensors = 0;  // tensors of all files
};

// Reads the split keys of a file; nullopt where it is the only one. kBadInput for impossible
// numbers.
Result<std::optional<GgufSplit>> gguf_split_of(const GgufMetadata& metadata,
                                               const std::string& path);

// Returns the names of the second and later files, without directory, from
// "a/m-00001-of-00003.gguf" and 3. kBadInput where the first does not have such a name.
Result<std::vector<std::string>> gguf_later_parts(const std::string& first, int64_t count);

// Returns "model-00002-of-00003.gguf" for "model", 2, 3.
std::string gguf_part_name(const std::string& stem, size_t number, size_t count);

// Whether `names` are the files of one checkpoint, in ascending order.
bool is_gguf_split(const std::vector<std::string>& names);

// Whether a key says how the bytes are laid out, in one file or several, and nothing about the
// model.
bool is_gguf_layout_key(std::string_view key);

// Opens a file beside the first one, by name.
using OpenGgufPart = std::function<Result<InputFile>(const std::string& name)>;

struct GgufFile {
  std::unique_ptr<TensorSource> source;
  GgufMetadata metadata;  // refers to the header that the source holds
};

// Opens a checkpoint. If it is split, `file` is the first part, and `open_part` opens the others by
// plain names. kBadInput for a malformed file and for files that do not belong together.
// kUnsupported for element types that Ferry does not read (header.h), and for one file of several
// that is not the first. In files(), the header is all that precedes the tensor data.
Result<GgufFile> open_gguf(InputFile file, const OpenGgufPart& open_part);
Result<GgufFile> open_gguf(const std::string& path);

}  // namespace ferry::formats
