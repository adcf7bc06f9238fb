#include "listing/file_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/bundled.h"
#include "formats/pte/reader.h"
#include "formats/ptn/package.h"
#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/validate.h"
#include "listing/listing.h"
#include "listing/native_package.h"

namespace ferry::listing {
namespace {

using DataBytes = std::span<const std::byte>;

constexpr uint64_t kChunk = uint64_t{1} << 20;

void add_problem(FileCheck& check, const std::string& file, const Error& error) {
  check.report.problems.push_back({error.code, file, error.message});
}

// Whether the error is about the contents of a file that exists.
bool is_damage(const Error& error) { return error.code == ErrorCode::kBadInput; }

// -- checkpoints

class ValueReader {
 public:
  ValueReader(const TensorSource& source, const ShowProgress& show)
      : source_(source), progress_(show, total_bytes(source)) {}

  void run(ThreadPool& pool, FileCheck& check) {
    std::vector<std::optional<Error>> errors(source_.entries().size());
    pool.parallel_for(errors.size(), [&](size_t i) {
      if (Status status = read(i); !status) errors[i] = std::move(status).error();
    });
    for (size_t i = 0; i < errors.size(); ++i) {
      const std::string& file = source_.files()[source_.entries()[i].file].name;
      if (errors[i]) add_problem(check, file, *errors[i]);
    }
  }

 private:
  static uint64_t total_bytes(const TensorSource& source) {
    uint64_t bytes = 0;
    for (const TensorEntry& entry : source.entries()) bytes += entry.bytes;
    return bytes;
  }

  Status read(size_t index) {
    const uint64_t bytes = source_.entries()[index].bytes;
    std::vector<std::byte> chunk(std::min(bytes, kChunk));
    for (uint64_t at = 0; at < bytes; at += chunk.size()) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      const auto part = std::span(chunk).first(std::min(kChunk, bytes - at));
      FERRY_RETURN_IF_ERROR(source_.read(index, at, part));
      progress_.advance(part.size());
    }
    return {};
  }

  const TensorSource& source_;
  SharedProgress progress_;
};

Status check_checkpoint(ThreadPool& pool, const ShowProgress& progress, FileCheck& check) {
  const std::unique_ptr<TensorSource> source =
      FERRY_TRY(checkpoint::open_tensors(check.report.directory));
  check.tensors = source->entries().size();
  check.report.files = source->files().size();
  for (const SourceFile& file : source->files()) check.report.bytes += file.bytes;
  ValueReader(*source, progress).run(pool, check);
  FERRY_RETURN_IF_ERROR(check_interrupt());
  return source->check_unchanged();
}

// -- programs and data files

// Reads the whole file, although it is mapped. A page that cannot be read is an error here, but a
// signal when a mapping is accessed.
Status read_all(const InputFile& file, const ShowProgress& show) {
  SharedProgress progress(show, file.size());
  std::vector<std::byte> chunk(std::min(file.size(), kChunk));
  for (uint64_t at = 0; at < file.size(); at += chunk.size()) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto part = std::span(chunk).first(std::min(kChunk, file.size() - at));
    FERRY_RETURN_IF_ERROR(file.read_at(at, part));
    progress.advance(part.size());
  }
  return {};
}

// Checks the constants inside the program. Constants in data files are unknown here.
Status check_own_constants(const xnnpack::Graph& graph, DataBytes blob,
                           const xnnpack::NamedLookup& lookup, const std::string& name) {
  bool all_here = true;
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    const xnnpack::Constant& constant = graph.constants[i];
    if (!constant.key.empty() && !lookup(constant.key)) {
      all_here = false;
      continue;
    }
    FERRY_RETURN_IF_ERROR(xnnpack::constant_bytes(constant, blob, lookup, name));
  }
  return all_here ? xnnpack::check_constants(graph, blob, lookup, name) : Status();
}

Status check_delegates(const pte::LoadedProgram& loaded, const std::string& name) {
  std::unordered_map<std::string_view, DataBytes> named;
  for (const pte::NamedData& each : loaded.program.named_data) {
    named.emplace(each.key, loaded.data.named[each.data]);
  }
  const xnnpack::NamedLookup lookup = [&](std::string_view key) -> std::optional<DataBytes> {
    const auto found = named.find(key);
    return found == named.end() ? std::nullopt : std::optional(found->second);
  };
  const auto graphs = FERRY_TRY(xnnpack::read_blobs(loaded, name));
  for (size_t i = 0; i < graphs.size(); ++i) {
    if (!graphs[i]) continue;
    FERRY_RETURN_IF_ERROR(check_own_constants(*graphs[i], loaded.data.delegates[i], lookup,
                                              fmt::format("{}: blob {}", name, i)));
  }
  for (const pte::Method& method : loaded.program.methods) {
    FERRY_RETURN_IF_ERROR(xnnpack::check_calls(method, graphs, name));
  }
  return {};
}

Status check_program(const InputFile& input, const std::string& name) {
  if (FERRY_TRY(is_native_package(input))) {
    const ptn::Package package = FERRY_TRY(ptn::read_package(input, name));
    return ptn::check_values(input, package, name);
  }
  const MappedFile file = FERRY_TRY(MappedFile::map(input));
  const pte::LoadedProgram loaded = FERRY_TRY(pte::read_any_program(file.bytes(), name));
  if (pte::is_bundled(file.bytes())) {
    FERRY_RETURN_IF_ERROR(pte::read_bundled(file.bytes(), name));
  }
  return check_delegates(loaded, name);
}

Status check_data(const InputFile& input, const std::string& name, FileCheck& check) {
  const MappedFile file = FERRY_TRY(MappedFile::map(input));
  check.tensors = FERRY_TRY(ptd::read_data_file(file.bytes(), name)).tensors.size();
  return {};
}

Status check_single(PathKind kind, const ShowProgress& progress, FileCheck& check) {
  const InputFile input = FERRY_TRY(InputFile::open(check.report.directory));
  const std::string name = printable(check.report.directory);
  check.report.files = 1;
  check.report.bytes = input.size();
  FERRY_RETURN_IF_ERROR(read_all(input, progress));
  FERRY_RETURN_IF_ERROR(kind == PathKind::kProgram ? check_program(input, name)
                                                   : check_data(input, name, check));
  return input.check_unchanged();
}

}  // namespace

Result<FileCheck> check_path(const std::string& path, ThreadPool& pool,
                             const ShowProgress& progress) {
  const PathKind kind = FERRY_TRY(kind_of_path(path));
  FileCheck check{.kind = std::string(kind_name(kind)), .report = {.directory = path}};
  if (kind == PathKind::kBundle) {
    check.report = FERRY_TRY(packer::check_bundle(path, pool, progress));
    return check;
  }
  const Status status = kind == PathKind::kTensors ? check_checkpoint(pool, progress, check)
                                                   : check_single(kind, progress, check);
  if (status) return check;
  if (!is_damage(status.error())) return Failure(status.error());
  if (kind == PathKind::kTensors && !checkpoint::has_checkpoint(path)) {
    return Failure(status.error());
  }
  add_problem(check, base_name(path), status.error());
  return check;
}

}  // namespace ferry::listing
