// The files of a bundle or another folder, and the tensors that lie in them. Private to patch/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"
#include "core/result.h"

namespace ferry::patch {

// A range of a file that holds the elements of a tensor.
struct TensorRange {
  std::string name, sha256;  // the digest is empty if it is not known
  uint32_t file = 0;         // index into Folder::files
  uint64_t offset = 0, bytes = 0;
  DType dtype = DType::kU8;
  Shape shape;

  // Returns the bytes of an element: 1, 2, 4 or 8; 1 for elements of fewer bits.
  uint8_t width() const;
};

struct FolderFile {
  std::string name;
  InputFile file;
};

struct Folder {
  std::string path;
  std::vector<FolderFile> files;  // in ascending order of names
  // In ascending order of file and offset; ranges do not overlap. Tensors are known from the
  // manifest of a bundle and from the headers of safetensors files.
  std::vector<TensorRange> tensors;

  uint64_t bytes() const;
};

// Opens all files of a folder. kBadInput if it has no files, or folders, links or devices in it, or
// a manifest that is not valid.
Result<Folder> open_folder(const std::string& path);

}  // namespace ferry::patch
