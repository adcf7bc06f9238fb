#include "packer/weight_job.h"

#include <zlib.h>
#include <algorithm>
#include <cstring>

#include "core/interrupt.h"
#include "graph/recipe.h"

namespace ferry::packer {
namespace {

// Windows and tiles of two weights fit into the cache of one core.
constexpr uint64_t kWindow = uint64_t{1} << 18;

// Written bytes are sent to the disk in parts of this size.
constexpr uint64_t kWritebackBytes = uint64_t{1} << 22;

}  // namespace

Status SourceTap::next_window(size_t index, Watched& watched) const {
  queue_.settle(watched.hash);
  watched.window.resize(std::min(kWindow, source_.entries()[index].bytes - watched.done));
  FERRY_RETURN_IF_ERROR(source_.read(index, watched.done, watched.window));
  watched.done += watched.window.size();
  queue_.add(watched.hash, watched.window);
  return {};
}

Status SourceTap::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const auto found = watched_.find(index);
  if (found == watched_.end()) return source_.read(index, offset, out);
  Watched& watched = found->second;
  while (!out.empty()) {
    if (offset == watched.done && watched.done < source_.entries()[index].bytes) {
      FERRY_RETURN_IF_ERROR(next_window(index, watched));
    }
    const bool in_window = offset >= watched.begin() && offset < watched.done;
    const uint64_t left = in_window                  ? watched.done - offset
                          : offset < watched.begin() ? watched.begin() - offset
                                                     : out.size();
    const auto part = out.first(std::min<uint64_t>(out.size(), left));
    if (in_window) {
      std::memcpy(part.data(), watched.window.data() + (offset - watched.begin()), part.size());
    } else {
      FERRY_RETURN_IF_ERROR(source_.read(index, offset, part));
    }
    offset += part.size();
    out = out.subspan(part.size());
  }
  return {};
}

Result<Digest> SourceTap::finish(size_t entry) {
  Watched& watched = watched_.at(entry);
  while (watched.done < source_.entries()[entry].bytes) {
    FERRY_RETURN_IF_ERROR(next_window(entry, watched));
  }
  queue_.settle(watched.hash);
  return watched.hash.finish();
}

bool is_whole_copy(const graph::Recipe& recipe, const TensorSource& source) {
  if (!recipe.is_copy() || recipe.pieces.size() != 1) return false;
  const StridedPiece& piece = recipe.pieces[0];
  return piece.is_run() && piece.offset == 0 &&
         recipe.output().bytes() == source.entries()[piece.tensor].bytes;
}

uint32_t crc32_of(uint32_t crc, std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  return static_cast<uint32_t>(::crc32_z(crc, data, bytes.size()));
}

WeightJob::WeightJob(WeightToWrite weight, HashQueue& queue)
    : weight_(std::move(weight)),
      recipe_(*weight_.plan.weights[weight_.extents[0].index]),
      queue_(queue),
      tap_(*weight_.plan.source, queue),
      copied_(is_whole_copy(recipe_, *weight_.plan.source)),
      rows_(row_count(recipe_)),
      step_(std::min(tile_rows(recipe_), rows_)),
      hashes_(weight_.extents.size()),
      fast_hashes_(weight_.extents.size()) {
  for (size_t i = 0; i < recipe_.outputs.size(); ++i) {
    const uint64_t bytes = static_cast<uint64_t>(step_) * row_bytes(recipe_, i);
    tiles_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  }
  if (copied_) return;
  for (const size_t entry : weight_.hashed) tap_.watch(entry);
}

Result<uint64_t> WeightJob::write_tile() {
  FERRY_RETURN_IF_ERROR(check_interrupt());
  const int64_t first = next_, rows = std::min(step_, rows_ - first);
  std::vector<std::span<std::byte>> tiles;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    queue_.settle(hashes_[i]);
    tiles.emplace_back(tiles_[i].get(), static_cast<uint64_t>(rows) * row_bytes(recipe_, i));
    bytes += tiles[i].size();
  }
  const uint64_t uncoded = FERRY_TRY(materialize_rows(recipe_, tap_, first, rows, tiles));
  if (uncoded > 0) FERRY_RETURN_IF_ERROR(count_uncoded(first, rows, uncoded));
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (weight_.digested) queue_.add(hashes_[i], tiles[i]);
    if (weight_.plan.fast_digests) fast_hashes_[i].update(tiles[i]);
    if (weight_.summed) written_.crc = crc32_of(written_.crc, tiles[i]);
    FERRY_RETURN_IF_ERROR(write(i, first, tiles[i]));
  }
  if (!recipe_.is_coded()) FERRY_RETURN_IF_ERROR(count_non_finite(first, tiles[0]));
  next_ += rows;
  return bytes;
}

// Writes a tile of an output. Tiles must come in order.
Status WeightJob::write(size_t output, int64_t first, std::span<const std::byte> tile) const {
  const Extent& extent = weight_.extents[output];
  const uint64_t offset = static_cast<uint64_t>(first) * row_bytes(recipe_, output);
  FERRY_RETURN_IF_ERROR(weight_.out.write_at(extent.offset + offset, tile));
  const uint64_t end = offset + tile.size();
  const uint64_t begun = offset / kWritebackBytes * kWritebackBytes;
  if (end / kWritebackBytes > offset / kWritebackBytes || end == extent.bytes) {
    weight_.out.start_writeback(extent.offset + begun, end - begun);
  }
  return {};
}

// Counts the reasons why `uncoded` values of these rows have no codes.
Status WeightJob::count_uncoded(int64_t first, int64_t rows, uint64_t uncoded) {
  const uint64_t non_finite =
      FERRY_TRY(graph::count_non_finite_rows(recipe_, *weight_.plan.source, first, rows));
  written_.non_finite.unquantized += non_finite;
  written_.non_finite.too_large += uncoded - std::min(uncoded, non_finite);
  return {};
}

Status WeightJob::count_non_finite(int64_t first, std::span<const std::byte> tile) {
  const uint64_t offset = static_cast<uint64_t>(first) * row_bytes(recipe_, 0);
  const NonFiniteCount found =
      FERRY_TRY(packer::count_non_finite(recipe_, *weight_.plan.source, offset, tile));
  written_.non_finite.stored += found.stored;
  written_.non_finite.overflowed += found.overflowed;
  return {};
}

Result<WrittenOutputs> WeightJob::finish() {
  for (size_t i = 0; i < hashes_.size(); ++i) {
    queue_.settle(hashes_[i]);
    written_.digests.push_back(hashes_[i].finish());
    written_.fast.push_back(fast_hashes_[i].finish());
  }
  for (const size_t entry : weight_.hashed) {
    written_.entries.emplace_back(entry,
                                  copied_ ? written_.digests[0] : FERRY_TRY(tap_.finish(entry)));
  }
  return std::move(written_);
}

}  // namespace ferry::packer
