// Opens and checks bundles. The checks are in the order of docs/bundle_format.md, "Reading".
#include "packer/bundle_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/interrupt.h"
#include "core/program_interface.h"
#include "core/result.h"
#include "core/text.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {
namespace {

// Version of the manifest that states XXH3 digests first.
constexpr int64_t kFirstWithFastDigests = 7;

// The open directory of a bundle, or memory, and the result of lstat for everything in it, by name.
struct Listing {
  std::unique_ptr<DIR, int (*)(DIR*)> directory = {nullptr, &::closedir};
  const MemoryFolder* memory = nullptr;
  std::map<std::string, struct stat> files = {};
};

constexpr std::string_view kConvertFirst = "; ferry convert makes one of a checkpoint";

// Whether checkpoints have files of this name.
bool is_of_checkpoint(std::string_view name) {
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt",  ".pth",
                                           ".gguf",        ".h5",  ".ckpt"};
  return name == "config.json" || std::ranges::any_of(kEndings, [&](std::string_view ending) {
           return name.ends_with(ending);
         });
}

Result<Listing> list_directory(const std::string& path) {
  const auto error = [&](int number) {
    if (number == ENOTDIR) {
      return fail(ErrorCode::kBadInput,
                  fmt::format("{}: not a bundle, which is a directory{}", printable(path),
                              is_of_checkpoint(path) ? kConvertFirst : ""));
    }
    return fail(ErrorCode::kIo, fmt::format("{}: cannot list the bundle: {}", printable(path),
                                            std::strerror(number)));
  };
  Listing listing;
  listing.directory.reset(::opendir(path.c_str()));
  if (!listing.directory) return error(errno);
  const int fd = ::dirfd(listing.directory.get());
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(listing.directory.get());
    if (!entry) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info {};
    if (::fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return error(errno);
    }
    listing.files.emplace(name, info);
  }
  if (errno != 0) return error(errno);
  return listing;
}

Result<Listing> list_memory(const MemoryFolder& memory) {
  Listing listing;
  listing.memory = &memory;
  for (const std::string& name : memory.names()) {
    const OutputFile file = FERRY_TRY(memory.open_to_write(name));
    struct stat info {};
    info.st_mode = S_IFREG;
    info.st_size = static_cast<off_t>(FERRY_TRY(file.size()));
    listing.files.emplace(name, info);
  }
  return listing;
}

// A directory without any file of a bundle is not reported as a damaged bundle.
Status check_kind(const std::string& directory, const Listing& listing) {
  const auto is_part = [](const auto& file) {
    return file.first == kManifestName || file.first.ends_with(".pte") ||
           file.first.ends_with(".ptd");
  };
  if (std::ranges::any_of(listing.files, is_part)) return {};
  const bool is_checkpoint = std::ranges::any_of(
      listing.files, [](const auto& file) { return is_of_checkpoint(file.first); });
  return bad_input(fmt::format("{}: not a bundle: it has no {}{}", printable(directory),
                               kManifestName, is_checkpoint ? kConvertFirst : ""));
}

// Whether `name` is listed as a regular file of `bytes` bytes; nullopt accepts any size.
bool check_listed(const Listing& listing, const std::string& name, std::optional<uint64_t> bytes,
                  ProblemList& problems) {
  const auto found = listing.files.find(name);
  if (found == listing.files.end()) {
    problems.add(name, "is missing from the bundle");
    return false;
  }
  if (!S_ISREG(found->second.st_mode)) {
    problems.add(name, S_ISLNK(found->second.st_mode)
                           ? "is a symbolic link, a bundle holds regular files only"
                           : "is not a regular file");
    return false;
  }
  const auto actual = static_cast<uint64_t>(found->second.st_size);
  if (bytes && actual != *bytes) {
    problems.add(name, fmt::format("has {} bytes, the manifest states {}", actual, *bytes));
    return false;
  }
  return true;
}

void check_nothing_extra(const Listing& listing, const Manifest& manifest, ProblemList& problems) {
  std::set<std::string_view> known = {kManifestName};
  const auto signature = listing.files.find(std::string(kSignatureName));
  if (signature != listing.files.end() && S_ISREG(signature->second.st_mode)) {
    known.insert(kSignatureName);  // made after the bundle, so no manifest lists it
  }
  for (const ManifestFile& file : manifest.files) known.insert(file.path);
  for (const auto& [name, info] : listing.files) {
    if (!known.contains(name)) problems.add(name, "is in the bundle but not in its manifest");
  }
}

// Parses `file` with `read` and adds an error to the problems.
template <class Content, class Read>
std::optional<Content> load_part(const std::string& file, MappedFile mapped, const Read& read,
                                 ProblemList& problems) {
  auto parsed = read(mapped.bytes(), problems.name_of(file));
  if (!parsed) {
    problems.add(file, parsed.error());
    return std::nullopt;
  }
  return Content{std::move(mapped), std::move(*parsed)};
}

class Examiner {
 public:
  Examiner(DigestKind digests, ThreadPool& pool, const ShowProgress& progress,
           ProblemList& problems)
      : digests_(digests), pool_(pool), progress_(progress), problems_(problems) {}

  Result<BundleContents> run(const Listing& listing) {
    if (!read_manifest_file(listing)) return std::move(contents_);
    check_files(listing);
    check_manifest(contents_.manifest, problems_);
    map_parts();
    check_digests();
    // Files that were not hashed are not reported as problems.
    FERRY_RETURN_IF_ERROR(check_interrupt());
    load_data();
    load_programs();
    return std::move(contents_);
  }

 private:
  bool read_manifest_file(const Listing& listing) {
    const std::string self(kManifestName);
    if (!check_listed(listing, self, std::nullopt, problems_)) return false;
    const auto text = read_manifest_text(listing);
    if (!text) {
      problems_.add(self, text.error());
      return false;
    }
    auto manifest = read_manifest(*text, problems_.name_of(self));
    if (!manifest) {
      problems_.add(self, manifest.error());
      return false;
    }
    contents_.manifest = std::move(*manifest);
    contents_.files = 1;
    contents_.bytes = text->size();
    return true;
  }

  Result<std::string> read_manifest_text(const Listing& listing) const {
    return read_text(FERRY_TRY(open_listed(listing, std::string(kManifestName))),
                     kMaxManifestBytes);
  }

  // Opens a file in the directory that was listed, even if its path now means another directory.
  Result<InputFile> open_listed(const Listing& listing, const std::string& name) const {
    if (listing.memory != nullptr) return listing.memory->open(name);
    return InputFile::open_at(::dirfd(listing.directory.get()), name, problems_.path_of(name),
                              InputFile::Links::kRefuse);
  }

  // Opens the files of the manifest. All later steps read these open files, so that renaming has no
  // effect on them.
  void check_files(const Listing& listing) {
    for (const ManifestFile& file : contents_.manifest.files) {
      contents_.files += 1;
      if (!check_listed(listing, file.path, file.bytes, problems_)) continue;
      contents_.bytes += file.bytes;
      auto opened = open_listed(listing, file.path);
      if (!opened) {
        problems_.add(file.path, opened.error());
      } else if (opened->size() != file.bytes) {
        problems_.add(file.path, fmt::format("has {} bytes, the manifest states {}", opened->size(),
                                             file.bytes));
      } else {
        contents_.open_files.emplace(file.path, *std::move(opened));
      }
    }
    check_nothing_extra(listing, contents_.manifest, problems_);
  }

  // Maps programs and data files, so that exactly the bytes that were hashed are executed.
  void map_parts() {
    for (const ManifestProgram* program : contents_.manifest.programs()) {
      map_part(program->file);
      for (const std::string& file : program->data_files) map_part(file);
    }
    for (const ManifestAdapter& adapter : contents_.manifest.adapters) map_part(adapter.file);
  }
  void map_part(const std::string& file) {
    const auto found = contents_.open_files.find(file);
    if (found == contents_.open_files.end() || mapped_.contains(file)) return;
    if (auto mapped = MappedFile::map(found->second)) {
      mapped_.emplace(file, *std::move(mapped));
    } else {
      problems_.add(file, mapped.error());
      contents_.open_files.erase(found);
    }
  }

  void check_digests() {
    if (digests_ == DigestKind::kNone) return;
    const Manifest& manifest = contents_.manifest;
    std::set<std::string> damaged;
    const bool fast = digests_ == DigestKind::kFast && manifest.version >= kFirstWithFastDigests;
    if (fast) {
      damaged = find_damage(manifest, {contents_.open_files, mapped_}, pool_, progress_);
      if (damaged.empty()) return;
    }
    ferry::packer::check_digests(manifest, fast ? &damaged : nullptr, contents_.open_files, pool_,
                                 progress_, problems_);
  }

  // Whether the file is listed, exists, and has the right size and, if digests are checked, the
  // right digest.
  bool usable(const std::string& file) const { return contents_.open_files.contains(file); }

  void load_data() {
    const Manifest& manifest = contents_.manifest;
    for (const ManifestProgram* program : manifest.programs()) {
      for (const std::string& file : program->data_files) {
        if (!load_data(file) || file == manifest.no_adapter) continue;
        check_data_file(manifest, file, contents_.data.at(file).content, problems_);
      }
    }
    const auto without = contents_.data.find(manifest.no_adapter);
    for (const ManifestAdapter& adapter : manifest.adapters) {
      if (!load_data(adapter.file) || without == contents_.data.end()) continue;
      check_adapter_file(without->second.content, adapter.file,
                         contents_.data.at(adapter.file).content, problems_);
    }
  }

  // Returns whether the file has been read now, and not before.
  bool load_data(const std::string& file) {
    if (contents_.data.contains(file) || !usable(file)) return false;
    auto data =
        load_part<BundleData>(file, std::move(mapped_.at(file)), ptd::read_data_file, problems_);
    if (!data) {
      contents_.open_files.erase(file);
      return false;
    }
    contents_.data.emplace(file, std::move(*data));
    return true;
  }

  void load_programs() {
    for (const ManifestComponent& component : contents_.manifest.components) {
      for (const ManifestProgram& program : component.programs) {
        load_program(program, &component == contents_.manifest.main());
      }
    }
  }

  void load_program(const ManifestProgram& program, bool has_layers) {
    if (!usable(program.file)) return;
    const auto [shared, is_new] = loaded_.emplace(program.file, SIZE_MAX);
    std::optional<BundleProgram> part =
        is_new ? load_part<BundleProgram>(program.file, std::move(mapped_.at(program.file)),
                                          pte::read_program, problems_)
               : share(program.file, shared->second);
    if (!part) return;
    check_program(program, part->loaded.program, contents_.data, problems_);
    if (is_new) {
      check_delegates(program, part->loaded, contents_.data, digests_ == DigestKind::kSha256,
                      problems_);
    }
    if (has_layers) {
      check_model_of_program(contents_.manifest, program, part->loaded.program, problems_);
    }
    shared->second = contents_.programs.size();
    contents_.programs.push_back(std::move(*part));
  }

  // Returns a program that has been loaded for an earlier component; its spans point into the file
  // that is mapped there.
  std::optional<BundleProgram> share(const std::string& file, size_t index) {
    if (index >= contents_.programs.size()) return std::nullopt;
    auto mapped = MappedFile::map(contents_.open_files.at(file));
    if (!mapped) {
      problems_.add(file, mapped.error());
      return std::nullopt;
    }
    return BundleProgram{*std::move(mapped), contents_.programs[index].loaded};
  }

  DigestKind digests_;
  ThreadPool& pool_;
  const ShowProgress& progress_;
  ProblemList& problems_;
  BundleContents contents_;
  std::map<std::string, MappedFile> mapped_;
  // Indices into contents_.programs, or SIZE_MAX for programs that cannot be read.
  std::map<std::string, size_t> loaded_;
};

}  // namespace

void ProblemList::add(const std::string& file, const std::string& what, ErrorCode code) {
  problems_.push_back({code, file, fmt::format("{}: {}", name_of(file), what)});
}

void ProblemList::add(const std::string& file, const Error& error) {
  problems_.push_back({error.code, file, error.message});
}

std::string ProblemList::name_of(const std::string& file) const { return printable(path_of(file)); }

Result<BundleContents> examine_bundle(const std::string& directory, DigestKind digests,
                                      ThreadPool& pool, const ShowProgress& progress,
                                      ProblemList& problems) {
  const Listing listing = FERRY_TRY(list_directory(directory));
  FERRY_RETURN_IF_ERROR(check_kind(directory, listing));
  return Examiner(digests, pool, progress, problems).run(listing);
}

namespace {

// Returns all problems as one error.
Status error_of(ProblemList& problems) {
  if (problems.empty()) return {};
  const std::vector<CheckProblem> found = problems.take();
  Error error{found[0].code, found[0].message};
  for (size_t i = 1; i < found.size(); ++i) error.details.push_back(found[i].message);
  return Failure(std::move(error));
}

}  // namespace

Bundle Bundle::of(BundleContents contents, const std::string& path,
                  std::shared_ptr<const MemoryFolder> memory) {
  for (const ManifestProgram* program : contents.manifest.programs()) {
    contents.open_files.erase(program->file);
    for (const std::string& file : program->data_files) contents.open_files.erase(file);
  }
  for (const ManifestAdapter& adapter : contents.manifest.adapters) {
    contents.open_files.erase(adapter.file);
  }
  return Bundle(std::make_shared<const Parts>(
      Parts{std::move(memory), path, std::move(contents.manifest), std::move(contents.programs),
            std::move(contents.data), std::move(contents.open_files), path}));
}

Result<Bundle> Bundle::open(const std::string& directory, bool check_digests, ThreadPool& pool,
                            const ShowProgress& progress) {
  return open(directory, check_digests ? DigestKind::kSha256 : DigestKind::kNone, pool, progress);
}

Result<Bundle> Bundle::open_to_execute(const std::string& directory, ThreadPool& pool,
                                       const ShowProgress& progress) {
  return open(directory, DigestKind::kFast, pool, progress);
}

Result<Bundle> Bundle::open(const std::string& directory, DigestKind digests, ThreadPool& pool,
                            const ShowProgress& progress) {
  ProblemList problems(directory);
  BundleContents contents = FERRY_TRY(examine_bundle(directory, digests, pool, progress, problems));
  FERRY_RETURN_IF_ERROR(error_of(problems));
  return of(std::move(contents), directory, nullptr);
}

Result<Bundle> Bundle::open(MemoryFolder files, const std::string& path, ThreadPool& pool) {
  auto memory = std::make_shared<const MemoryFolder>(std::move(files));
  ProblemList problems(path);
  const ShowProgress silent;
  const Listing listing = FERRY_TRY(list_memory(*memory));
  BundleContents contents =
      FERRY_TRY(Examiner(DigestKind::kNone, pool, silent, problems).run(listing));
  FERRY_RETURN_IF_ERROR(error_of(problems));
  return of(std::move(contents), path, std::move(memory));
}

Result<std::string> Bundle::text(const std::string& name, uint64_t limit) const {
  const auto found = parts_->other_files.find(name);
  if (found == parts_->other_files.end()) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: the bundle has no {}", printable(parts_->path), name));
  }
  std::string text = FERRY_TRY(read_text(found->second, limit));
  FERRY_RETURN_IF_ERROR(found->second.check_unchanged());
  return text;
}

std::vector<size_t> Bundle::programs_of(std::string_view role) const {
  std::vector<size_t> indices;
  size_t next = 0;
  for (const ManifestComponent& component : parts_->manifest.components) {
    for (size_t i = 0; i < component.programs.size(); ++i, ++next) {
      if (component.role == role) indices.push_back(next);
    }
  }
  return indices;
}

std::vector<const BundleData*> Bundle::data_of(size_t index) const {
  std::vector<const BundleData*> data;
  for (const std::string& file : entry(index).data_files) {
    const bool replaced = adapter_ != nullptr && file == manifest().no_adapter;
    data.push_back(&parts_->data.at(replaced ? adapter_->file : file));
  }
  return data;
}

Result<Bundle> Bundle::with_adapter(std::string_view name) const {
  Bundle other = *this;
  other.adapter_ = name.empty() ? nullptr : manifest().find_adapter(name);
  if (name.empty() || other.adapter_ != nullptr) return other;
  std::vector<std::string_view> names;
  for (const ManifestAdapter& adapter : manifest().adapters) names.push_back(adapter.name);
  return fail(ErrorCode::kUsage,
              fmt::format("{}: there is no adapter {}{}", printable(path()), quoted(name),
                          names.empty() ? "; the bundle has none"
                                        : fmt::format("; there are {}", fmt::join(names, ", "))));
}

Result<CheckReport> check_bundle(const std::string& directory, ThreadPool& pool,
                                 const ShowProgress& progress) {
  ProblemList problems(directory);
  const BundleContents contents =
      FERRY_TRY(examine_bundle(directory, DigestKind::kSha256, pool, progress, problems));
  return CheckReport{directory, contents.files, contents.bytes, problems.take()};
}

}  // namespace ferry::packer
