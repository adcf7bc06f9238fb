// LooseData finds the data files (.ptd) of programs that come without a manifest. The names of a
// program's external tensors decide which files the program loads.
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
  // Opens files from which any program may take tensors. kUsage for a file that is given twice.
  Status add(const std::vector<std::string>& files);

  // Returns the paths of the files that hold the external tensors of a program and the named data
  // of its delegates: FILE.ptd beside FILE.pte first, then files of add(). Data that is not in the
  // file beside the program comes from the only other file that has it; a tensor must have the
  // right dtype and shape. kBadInput, with the key, if no file or several files have it.
  Result<std::vector<std::string>> files_of(const std::string& file,
                                            const pte::LoadedProgram& program);

  // kUsage for a file of add() from which no program has taken anything.
  Status check_all_used() const;
  const std::map<std::string, BundleData>& files() const { return files_; }
  std::map<std::string, BundleData> take() { return std::move(files_); }

 private:
  Status open(const std::string& path);
  // A tensor of the program or, if `tensor` is null, data of a delegate.
  struct Wanted {
    std::string key;
    const pte::Tensor* tensor = nullptr;

    std::string name() const;  // such as "tensor 'w'"
  };
  // Returns tensors by name, then data of delegates.
  static Result<std::vector<Wanted>> wanted_by(const std::string& file,
                                               const pte::LoadedProgram& program);
  // Returns the entry of a data file, or nullptr. Delegates may read the bytes of tensors too.
  const ptd::NamedTensor* find(const std::string& path, const Wanted& wanted) const;
  // Returns the file of add() that has the data; empty if there is none.
  Result<std::string> find_given(const std::string& file, const Wanted& wanted) const;

  std::map<std::string, BundleData> files_;  // by path
  std::vector<std::string> given_;
  std::set<std::string> used_;
};

}  // namespace ferry::packer
