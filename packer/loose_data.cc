#include "packer/loose_examination.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/text.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {
namespace {

// Returns every external tensor of a program once, by name.
std::map<std::string, const pte::Tensor*> externals_of(const pte::Program& program) {
  std::map<std::string, const pte::Tensor*> tensors;
  for (const pte::Method& method : program.methods) {
    for (const pte::Value& value : method.values) {
      const auto* tensor = std::get_if<pte::Tensor>(&value);
      if (tensor != nullptr && tensor->external) tensors.emplace(tensor->fqn, tensor);
    }
  }
  return tensors;
}

// Returns the path of the data file beside a program; empty if there is none.
std::string data_beside(const std::string& program) {
  std::error_code error;
  std::string path = std::filesystem::path(program).replace_extension(".ptd").string();
  return path != program && std::filesystem::exists(path, error) ? path : std::string();
}

}  // namespace

Status LooseData::open(const std::string& path) {
  if (files_.contains(path)) return {};
  MappedFile file = FERRY_TRY(MappedFile::open(path));
  ptd::DataFile content = FERRY_TRY(ptd::read_data_file(file.bytes(), printable(path)));
  files_.emplace(path, BundleData{std::move(file), std::move(content)});
  return {};
}

Status LooseData::add(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    if (std::ranges::count(given_, path) > 0) {
      return fail(ErrorCode::kUsage, fmt::format("{}: given twice", printable(path)));
    }
    FERRY_RETURN_IF_ERROR(open(path));
    given_.push_back(path);
  }
  return {};
}

std::string LooseData::Wanted::name() const {
  return fmt::format("{} {}", tensor == nullptr ? "data of a delegate" : "tensor", quoted(key));
}

Result<std::vector<LooseData::Wanted>> LooseData::wanted_by(const std::string& file,
                                                            const pte::LoadedProgram& program) {
  std::vector<Wanted> wanted;
  for (const auto& [key, tensor] : externals_of(program.program)) wanted.push_back({key, tensor});
  for (std::string& key : FERRY_TRY(keys_of_delegates(program, printable(file)))) {
    wanted.push_back({std::move(key)});
  }
  return wanted;
}

const ptd::NamedTensor* LooseData::find(const std::string& path, const Wanted& wanted) const {
  const std::vector<ptd::NamedTensor>& tensors = files_.at(path).content.tensors;
  const auto found = std::ranges::find_if(tensors, [&](const ptd::NamedTensor& tensor) {
    return tensor.key == wanted.key && (tensor.is_tensor || wanted.tensor == nullptr);
  });
  return found == tensors.end() ? nullptr : &*found;
}

Result<std::string> LooseData::find_given(const std::string& file, const Wanted& wanted) const {
  std::string same_type, other_type;
  for (const std::string& path : given_) {
    const ptd::NamedTensor* found = find(path, wanted);
    if (found == nullptr) continue;
    const pte::Tensor* tensor = wanted.tensor;
    if (tensor && (found->dtype != tensor->dtype || found->sizes != tensor->sizes)) {
      other_type = path;
    } else if (same_type.empty()) {
      same_type = path;
    } else {
      return bad_input(fmt::format("{}: {} is in {} and in {}", printable(file), wanted.name(),
                                   printable(same_type), printable(path)));
    }
  }
  // If no file has the right type, the result is a file with another type, so that the message can
  // name that type.
  return same_type.empty() ? other_type : same_type;
}

Result<std::vector<std::string>> LooseData::files_of(const std::string& file,
                                                     const pte::LoadedProgram& program) {
  const std::vector<Wanted> all = FERRY_TRY(wanted_by(file, program));
  if (all.empty()) return std::vector<std::string>();
  const std::string beside = data_beside(file);
  if (!beside.empty()) FERRY_RETURN_IF_ERROR(open(beside));
  std::vector<std::string> taken;
  std::vector<std::string> source;  // source[i]: the file of all[i]
  for (const Wanted& wanted : all) {
    const bool is_beside = !beside.empty() && find(beside, wanted) != nullptr;
    const std::string path = is_beside ? beside : FERRY_TRY(find_given(file, wanted));
    if (path.empty()) {
      return Failure(Error{
          .code = ErrorCode::kBadInput,
          .message = fmt::format(
              "{}: {} is in no data file ({}); give data FILE", printable(file), wanted.name(),
              beside.empty() ? "there is none of the same name beside the program"
                             : printable(beside) + " does not have it"),
          .field = "data"});
    }
    source.push_back(path);
    if (std::ranges::count(taken, path) == 0) taken.push_back(path);
  }
  // Runtimes look for each key in all data files that a program loads, so all files are checked.
  for (size_t i = 0; i < all.size(); ++i) {
    for (const std::string& other : taken) {
      if (other == source[i] || find(other, all[i]) == nullptr) continue;
      return bad_input(fmt::format("{}: {} is in {} and in {}", printable(file), all[i].name(),
                                   printable(source[i]), printable(other)));
    }
  }
  used_.insert(taken.begin(), taken.end());
  return taken;
}

Status LooseData::check_all_used() const {
  for (const std::string& path : given_) {
    if (used_.contains(path)) continue;
    return fail_field(ErrorCode::kUsage, "data",
                      fmt::format(" {}: no program has a tensor of it", printable(path)));
  }
  return {};
}

}  // namespace ferry::packer
