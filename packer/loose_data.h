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

  // The files that hold the external tensors of a program and the named data of its delegates, by
  // path: FILE.ptd beside FILE.pte first, then those of add(). What the file beside does not have
  // comes from the only other file that has it, a tensor with its dtype and shape. kBadInput, with
  // the key, where none has it, or where several have.
  Result<std::vector<std::string>> files_of(const std::string& file,
                                            const pte::LoadedProgram& program);

  // kUsage for a file of add() that no program has taken anything from.
  Status check_all_used() const;
  const std::map<std::string, BundleData>& files() const { return files_; }
  std::map<std::string, BundleData> take() { return std::move(files_); }

 private:
  Status open(const std::string& path);
  // A tensor of the program, or, without one, data of a delegate.
  struct Wanted {
    std::string key;
    const pte::Tensor* tensor = nullptr;

    std::string name() const;  // "tensor 'w'"
  };
  // Tensors by name, then data of delegates.
  static Result<std::vector<Wanted>> wanted_by(const std::string& file,
                                               const pte::LoadedProgram& program);
  // The entry of a data file, or nullptr. Delegates read the bytes of tensors too.
  const ptd::NamedTensor* find(const std::string& path, const Wanted& wanted) const;
  // The file of add() that it is in; empty where there is none.
  Result<std::string> find_given(const std::string& file, const Wanted& wanted) const;

  std::map<std::string, BundleData> files_;  // by path
  std::vector<std::string> given_;
  std::set<std::string> used_;
};

}  // namespace ferry::packer
