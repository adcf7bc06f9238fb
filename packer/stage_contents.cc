#include "packer/stage_contents.h"

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "core/directory.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/version.h"
#include "packer/digests.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kTag = "ferry-stage-v1\n";
constexpr uint64_t kComparedBytes = uint64_t{1} << 20;

std::string path_in(const std::string& directory, const FilePlan& file) {
  return directory + "/" + file.name;
}

// Position of a weight.
struct Place {
  size_t file = 0;
  std::vector<Extent> outputs = {};
};

std::vector<Place> places_of(const FileSet& plan) {
  std::vector<Place> places(plan.weights.size());
  for (size_t f = 0; f < plan.files.size(); ++f) {
    for (const Extent& extent : plan.files[f].extents) {
      if (extent.kind != Extent::Kind::kWeight) continue;
      places[extent.index].file = f;
      places[extent.index].outputs.push_back(extent);
    }
  }
  return places;
}

bool has_its_size(const std::string& path, uint64_t bytes) {
  const auto file = OutputFile::open_existing(path);
  if (!file) return false;
  const auto size = file->size();
  return size && *size == bytes;
}

// Returns which of the planned data files exist. Removes everything else from the directory.
Result<std::vector<bool>> keep_data_files(const FileSet& plan, const std::string& directory) {
  std::map<std::string_view, size_t> planned;
  for (size_t f = 0; f < plan.files.size(); ++f) {
    if (plan.files[f].has_weights) planned.emplace(plan.files[f].name, f);
  }
  std::vector<bool> kept(plan.files.size(), false);
  const Directory opened = FERRY_TRY(Directory::open(directory));
  for (const std::string& name : FERRY_TRY(opened.names())) {
    const auto found = planned.find(name);
    const std::string path = directory + "/" + name;
    if (found != planned.end() && has_its_size(path, plan.files[found->second].bytes)) {
      kept[found->second] = true;
    } else {
      FERRY_RETURN_IF_ERROR(remove_tree(path));
    }
  }
  return kept;
}

Result<FileDigest> digest_of(const OutputFile& file, const Extent& extent) {
  Sha256 hash;
  FastHash fast;
  const auto buffer =
      std::make_unique_for_overwrite<std::byte[]>(std::min(kComparedBytes, extent.bytes));
  for (uint64_t at = 0; at < extent.bytes; at += kComparedBytes) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const std::span<std::byte> tile(buffer.get(), std::min(kComparedBytes, extent.bytes - at));
    FERRY_RETURN_IF_ERROR(file.read_at(extent.offset + at, tile));
    hash.update(tile);
    fast.update(tile);
  }
  return FileDigest{hash.finish(), fast.finish()};
}

// Whether the record belongs to this plan and the weight has the recorded digests. A weight that
// cannot be read counts as missing and is written again. Fills in the fast digests.
Result<bool> is_whole(const FileSet& plan, const std::string& directory, WeightRecord& record,
                      const Place& place) {
  if (record.outputs.size() != place.outputs.size()) return false;
  for (const auto& [entry, digest] : record.entries) {
    if (entry >= plan.source->entries().size()) return false;
  }
  const auto file = OutputFile::open_existing(path_in(directory, plan.files[place.file]));
  if (!file) return false;
  for (size_t i = 0; i < place.outputs.size(); ++i) {
    const auto digest = digest_of(*file, place.outputs[i]);
    FERRY_RETURN_IF_ERROR(check_interrupt());
    if (!digest || digest->sha256 != record.outputs[i]) return false;
    record.fast_outputs.push_back(digest->fast);
  }
  return true;
}

Status fill_with_zeros(const OutputFile& file, uint64_t begin, uint64_t end) {
  const std::vector<std::byte> zeros(std::min(end - begin, kComparedBytes));
  for (uint64_t at = begin; at < end; at += zeros.size()) {
    const auto size = std::min<uint64_t>(zeros.size(), end - at);
    FERRY_RETURN_IF_ERROR(file.write_at(at, std::span(zeros).first(size)));
  }
  return {};
}

// Writes zeros to the gaps between extents, because an existing file may have other bytes there.
Status clear_gaps(const OutputFile& file, const FilePlan& plan) {
  uint64_t end = 0;
  for (const Extent& extent : plan.extents) {
    FERRY_RETURN_IF_ERROR(fill_with_zeros(file, end, extent.offset));
    end = extent.offset + extent.bytes;
  }
  return fill_with_zeros(file, end, plan.bytes);
}

}  // namespace

Result<std::string> stage_fingerprint(const FileSet& plan, std::string_view plan_text) {
  const auto* files = dynamic_cast<const FileState*>(plan.source);
  if (files == nullptr) return std::string();
  const std::string state = FERRY_TRY(files->state());
  Sha256 hash;
  update_text(hash, kTag);
  for (const std::string_view text :
       {std::string_view(version()), plan_text, std::string_view(state)}) {
    update_u64(hash, text.size());
    update_text(hash, text);
  }
  for (const SourceFile& file : plan.source->files()) {
    update_u64(hash, file.header.size());
    hash.update(file.header);
  }
  return to_hex(hash.finish());
}

Result<StageContents> verified_contents(const FileSet& plan, const std::string& directory,
                                        std::span<const WeightRecord> records, ThreadPool& pool) {
  StageContents contents;
  contents.weights.resize(plan.weights.size());
  contents.files = FERRY_TRY(keep_data_files(plan, directory));
  const std::vector<Place> places = places_of(plan);
  std::map<size_t, const WeightRecord*> last;  // last record of each weight
  for (const WeightRecord& record : records) {
    if (record.weight < places.size() && contents.files[places[record.weight].file]) {
      last[record.weight] = &record;
    }
  }
  const std::vector<std::pair<size_t, const WeightRecord*>> named(last.begin(), last.end());
  std::mutex mutex;
  pool.parallel_for(named.size(), [&](size_t i) {
    const size_t weight = named[i].first;
    WeightRecord record = *named[i].second;
    if (!is_whole(plan, directory, record, places[weight]).value_or(false)) return;
    const std::lock_guard lock(mutex);
    contents.weights[weight] = std::move(record);
    for (const Extent& extent : places[weight].outputs) contents.bytes += extent.bytes;
  });
  FERRY_RETURN_IF_ERROR(check_interrupt());
  return contents;
}

Status prepare_files(const FileSet& plan, const OutputFolder& folder,
                     const StageContents& contents) {
  for (size_t f = 0; f < plan.files.size(); ++f) {
    const FilePlan& file = plan.files[f];
    if (f >= contents.files.size() || !contents.files[f]) {
      FERRY_TRY(folder.create(file.name, file.bytes));
      continue;
    }
    const OutputFile kept = FERRY_TRY(folder.open(file.name));
    FERRY_RETURN_IF_ERROR(kept.extend(file.bytes));
    FERRY_RETURN_IF_ERROR(clear_gaps(kept, file));
  }
  return {};
}

}  // namespace ferry::packer
