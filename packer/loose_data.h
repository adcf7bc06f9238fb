// LooseData: the data files (.ptd) of programs that come without a manifest. Which of them a
// program takes follows from the names of its external tensors.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/program.h"
#include "packer/bundle_reader.h"

namespace ferry::packer {

class LooseData {
 public:
  // Opens files that any program may take tensors from. kUsage for one that is given twice.
  Status add(const std::vector<std::string>& files);

  // The files that hold the external tensors of `program`, by path: FILE.ptd beside FILE.pte first,
  // then those of add(). A tensor that the file beside does not have comes from the only other file
  // that has it with its dtype and shape. kBadInput, with the tensor, where none has it, or where
  // several have.
  Result<std::vector<std::string>> files_of(const std::string& file, const pte::Program& program);

  // kUsage for a file of add() that no program has taken anything from.
  Status check_all_used() const;
  const std::map<std::string, BundleData>& files() const { return files_; }
  std::map<std::string, BundleData> take() { return std::move(files_); }

 private:
  Status open(const std::string& path);
  const ptd::NamedTensor* find(const std::string& path, const std::string& key) const;
  // The file of add() that `tensor` is in; empty where there is none.
  Result<std::string> find_given(const std::string& file, const pte::Tensor& tensor) const;

  std::map<std::string, BundleData> files_;  // by path
  std::vector<std::string> given_;
  std::set<std::string> used_;
};

}  // namespace ferry::packer
