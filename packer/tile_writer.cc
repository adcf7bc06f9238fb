// Files are cut into tiles of fixed size, in one sequence over all files. A tile is filled (from
// the checkpoint, a literal, a copied file) and written by any thread, a bounded number of tiles
// ahead of two chains that take the tiles in order: one makes the digests of files, one those of
// tensors. Each chain is advanced by one thread at a time, whichever is free; the two together are
// most of the work, so that two processors are evenly busy. Source tensors whose digest is not that
// of an unchanged copy are hashed beside that, one task each.
//
// Rejected: one task per tensor (the digest of a file needs its bytes in order, so that tiles would
// pile up behind a large tensor), and hashing a file after writing it (reads everything again).
#include "packer/tile_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

namespace ferry {
namespace {

constexpr uint64_t kTileBytes = uint64_t{1} << 20;
constexpr size_t kMaxTiles = 32;       // in memory at once
constexpr size_t kTilesPerThread = 4;  // enough for both chains to run ahead of a slow read
constexpr size_t kPage = 4096;

struct Tile {
  size_t file = 0;
  uint64_t offset = 0;  // in the file
  size_t bytes = 0;
  size_t extent = 0;  // the first extent that ends behind `offset`
  bool last = false;  // of its file
};

struct SourceTask {
  size_t entry = 0;
  size_t tile = 0;  // the first that needs it; both reads should find the bytes in memory
};

// The part of an extent that is in a tile.
struct Piece {
  const Extent* extent = nullptr;
  uint64_t begin = 0;          // offset in the extent
  std::span<std::byte> bytes;  // in the tile's buffer
};

// Calls body(piece) for each part of an extent in `tile`, in order, until one fails.
template <class Body>
Status for_each_piece(const FilePlan& file, const Tile& tile, std::span<std::byte> buffer,
                      const Body& body) {
  const uint64_t end = tile.offset + tile.bytes;
  for (size_t i = tile.extent; i < file.extents.size() && file.extents[i].offset < end; ++i) {
    const Extent& extent = file.extents[i];
    const uint64_t from = std::max(extent.offset, tile.offset);
    const uint64_t to = std::min(extent.offset + extent.bytes, end);
    if (from >= to) continue;
    FERRY_CHECK(
        body(Piece{&extent, from - extent.offset, buffer.subspan(from - tile.offset, to - from)}));
  }
  return {};
}

// A literal is made as a whole; it is kept until the last tile that needs a part of it has that.
class LiteralCache {
 public:
  void read(const Literal& literal, uint64_t offset, std::span<std::byte> out) {
    const std::lock_guard lock(mutex_);
    Made& made = made_[&literal];
    if (made.bytes.empty()) {
      made.bytes.resize(literal.bytes);
      literal.fill(made.bytes);
    }
    std::memcpy(out.data(), made.bytes.data() + offset, out.size());
    made.handed_out += out.size();
    if (made.handed_out == literal.bytes) made_.erase(&literal);
  }

 private:
  struct Made {
    std::vector<std::byte> bytes;
    uint64_t handed_out = 0;
  };
  std::mutex mutex_;
  std::unordered_map<const Literal*, Made> made_;
};

// Unchanged bytes of one whole source tensor: one digest serves both.
bool is_whole_copy(const TensorExpr& expr, const TensorSource& source) {
  return expr.is_copy() && expr.rows.size() == 1 && expr.rows[0].begin == 0 &&
         expr.bytes() == source.entries()[expr.rows[0].entry].bytes;
}

class TileWriter {
 public:
  TileWriter(const BundlePlan::Impl& plan, const std::string& directory, size_t threads,
             const std::function<void(uint64_t, uint64_t)>& progress)
      : plan_(plan), directory_(directory), progress_(progress) {
    const Digest empty = sha256({});
    digests_.files.assign(plan.files.size(), empty);
    digests_.weights.assign(plan.weights.size(), empty);
    digests_.entries.resize(plan.source->entries().size());
    open_.resize(plan.files.size());
    cut_tiles();
    buffers_.resize(std::min({kMaxTiles, kTilesPerThread * (threads + 1), tiles_.size()}));
    for (auto& buffer : buffers_) buffer.reset(new (std::align_val_t(kPage)) std::byte[kTileBytes]);
  }

  Result<BundleDigests> run(ThreadPool& pool) {
    pool.parallel_for(pool.size(), [this](size_t) { work(); });
    if (error_) return tl::unexpected<Error>(*error_);
    for (size_t i = 0; i < plan_.weights.size(); ++i) {
      const TensorExpr& expr = *plan_.weights[i];
      if (is_whole_copy(expr, *plan_.source)) {
        digests_.entries[expr.rows[0].entry] = digests_.weights[i];
      }
    }
    return std::move(digests_);
  }

 private:
  struct PageDelete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(kPage)); }
  };
  enum class Kind { kFill, kHashFile, kHashWeights, kHashSource };
  struct Task {
    Kind kind;
    size_t index;  // of the tile, or of the source task
  };
  struct OpenFile {
    OutputFile file;
    size_t tiles_left = 0;
  };

  void cut_tiles() {
    std::vector<size_t> first_tile(plan_.weights.size(), SIZE_MAX);
    for (size_t f = 0; f < plan_.files.size(); ++f) {
      const FilePlan& file = plan_.files[f];
      size_t extent = 0;
      uint64_t offset = 0;
      do {
        while (extent < file.extents.size() &&
               file.extents[extent].offset + file.extents[extent].bytes <= offset) {
          ++extent;
        }
        const uint64_t bytes = std::min(kTileBytes, file.bytes - offset);
        tiles_.push_back({f, offset, static_cast<size_t>(bytes), extent, false});
        ++open_[f].tiles_left;
        offset += bytes;
      } while (offset < file.bytes);
      tiles_.back().last = true;
      total_ += file.bytes;
      for (const Extent& e : file.extents) {
        if (e.kind == Extent::Kind::kWeight) {
          first_tile[e.index] = tiles_.size() - open_[f].tiles_left + e.offset / kTileBytes;
        }
      }
    }
    filled_.resize(tiles_.size());
    plan_source_tasks(first_tile);
  }

  void plan_source_tasks(const std::vector<size_t>& first_tile) {
    std::vector<bool> covered(digests_.entries.size());
    for (const TensorExpr* expr : plan_.weights) {
      if (is_whole_copy(*expr, *plan_.source)) covered[expr->rows[0].entry] = true;
    }
    // Stored expressions are numbered in the order of their places.
    for (size_t i = 0; i < plan_.weights.size(); ++i) {
      for (size_t entry : entries_of(*plan_.weights[i])) {
        if (covered[entry]) continue;
        covered[entry] = true;
        source_tasks_.push_back({entry, first_tile[i]});
      }
    }
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!error_) {
      const std::optional<Task> task = pick();
      if (task) {
        lock.unlock();
        Status status = perform(*task);
        lock.lock();
        complete(*task, std::move(status));
        wake_.notify_all();
      } else if (running_ == 0) {
        return;  // nothing to do and nobody who could make something to do
      } else {
        wake_.wait(lock);
      }
    }
  }

  // Holds the lock. Chains first: they free the tiles that filling needs.
  std::optional<Task> pick() {
    std::optional<Task> task;
    if (!file_chain_busy_ && file_chain_ < tiles_.size() && filled_[file_chain_]) {
      file_chain_busy_ = true;
      task = {Kind::kHashFile, file_chain_};
    } else if (!weight_chain_busy_ && weight_chain_ < tiles_.size() && filled_[weight_chain_]) {
      weight_chain_busy_ = true;
      task = {Kind::kHashWeights, weight_chain_};
    } else if (next_source_ < source_tasks_.size() &&
               source_tasks_[next_source_].tile <= next_fill_) {
      task = {Kind::kHashSource, next_source_++};
    } else if (next_fill_ < tiles_.size() &&
               next_fill_ < std::min(file_chain_, weight_chain_) + buffers_.size()) {
      if (!create_file_of(tiles_[next_fill_])) return std::nullopt;
      task = {Kind::kFill, next_fill_++};
    }
    if (task) ++running_;
    return task;
  }

  // Holds the lock, so that a file exists before the second of its tiles is picked.
  bool create_file_of(const Tile& tile) {
    if (tile.offset > 0) return true;
    const FilePlan& file = plan_.files[tile.file];
    auto created = OutputFile::create(directory_ + "/" + file.name, file.bytes);
    if (!created) {
      set_error(created.error());
      return false;
    }
    open_[tile.file].file = std::move(*created);
    return true;
  }

  void set_error(Error error) {
    if (!error_) error_ = std::move(error);
    stop_ = true;
    wake_.notify_all();
  }

  Status perform(const Task& task) {
    switch (task.kind) {
      case Kind::kFill:
        return fill_and_write(tiles_[task.index], buffer_of(task.index));
      case Kind::kHashFile:
        hash_file(tiles_[task.index], buffer_of(task.index));
        return {};
      case Kind::kHashWeights:
        return hash_weights(tiles_[task.index], buffer_of(task.index));
      case Kind::kHashSource:
        return hash_source(source_tasks_[task.index].entry);
    }
    return {};
  }

  // Holds the lock.
  void complete(const Task& task, Status status) {
    --running_;
    if (!status) return set_error(std::move(status).error());
    if (task.kind == Kind::kFill) {
      filled_[task.index] = true;
      written_ += tiles_[task.index].bytes;
      if (progress_) progress_(written_, total_);
    } else if (task.kind == Kind::kHashFile) {
      file_chain_busy_ = false;
      ++file_chain_;
    } else if (task.kind == Kind::kHashWeights) {
      weight_chain_busy_ = false;
      ++weight_chain_;
    }
  }

  std::span<std::byte> buffer_of(size_t tile) {
    return {buffers_[tile % buffers_.size()].get(), tiles_[tile].bytes};
  }

  Status fill_and_write(const Tile& tile, std::span<std::byte> buffer) {
    const FilePlan& file = plan_.files[tile.file];
    size_t done = 0;
    FERRY_CHECK(for_each_piece(file, tile, buffer, [&](const Piece& piece) {
      const size_t at = static_cast<size_t>(piece.bytes.data() - buffer.data());
      std::memset(buffer.data() + done, 0, at - done);
      done = at + piece.bytes.size();
      return fill(file, piece);
    }));
    if (done < buffer.size()) std::memset(buffer.data() + done, 0, buffer.size() - done);
    OpenFile& open = open_[tile.file];
    FERRY_CHECK(open.file.write_at(tile.offset, buffer));
    open.file.start_writeback(tile.offset, tile.bytes);
    if (std::atomic_ref(open.tiles_left).fetch_sub(1) > 1) return {};
    return open.file.sync_and_close();
  }

  Status fill(const FilePlan& file, const Piece& piece) {
    const Extent& extent = *piece.extent;
    switch (extent.kind) {
      case Extent::Kind::kHead:
        std::memcpy(piece.bytes.data(), file.head.data() + piece.begin, piece.bytes.size());
        return {};
      case Extent::Kind::kLiteral:
        literals_.read(*file.literals[extent.index], piece.begin, piece.bytes);
        return {};
      case Extent::Kind::kWeight:
        return materialize(*plan_.weights[extent.index], *plan_.source, piece.begin, piece.bytes);
      case Extent::Kind::kCopy:
        return plan_.copied[extent.index].read_at(piece.begin, piece.bytes);
    }
    return {};
  }

  void hash_file(const Tile& tile, std::span<const std::byte> buffer) {
    file_hash_.update(buffer);
    if (tile.last) digests_.files[tile.file] = file_hash_.finish();
  }

  Status hash_weights(const Tile& tile, std::span<std::byte> buffer) {
    return for_each_piece(plan_.files[tile.file], tile, buffer, [&](const Piece& piece) -> Status {
      const Extent& extent = *piece.extent;
      if (extent.kind != Extent::Kind::kWeight) return {};
      weight_hash_.update(piece.bytes);
      if (piece.begin + piece.bytes.size() == extent.bytes) {
        digests_.weights[extent.index] = weight_hash_.finish();
      }
      return {};
    });
  }

  Status hash_source(size_t entry) {
    const uint64_t bytes = plan_.source->entries()[entry].bytes;
    std::vector<std::byte> chunk(std::min(kTileBytes, bytes));
    Sha256 hash;
    for (uint64_t offset = 0; offset < bytes && !stop_; offset += chunk.size()) {
      const auto part = std::span(chunk).first(std::min<uint64_t>(chunk.size(), bytes - offset));
      FERRY_CHECK(plan_.source->read(entry, offset, part));
      hash.update(part);
    }
    digests_.entries[entry] = hash.finish();
    return {};
  }

  const BundlePlan::Impl& plan_;
  const std::string& directory_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  std::vector<Tile> tiles_;
  std::vector<SourceTask> source_tasks_;
  std::vector<std::unique_ptr<std::byte[], PageDelete>> buffers_;
  LiteralCache literals_;
  Sha256 file_hash_, weight_hash_;  // owned by whoever advances the chain
  BundleDigests digests_;           // distinct elements are written by distinct tasks

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<OpenFile> open_;
  std::vector<bool> filled_;
  size_t next_fill_ = 0, next_source_ = 0, running_ = 0;
  size_t file_chain_ = 0, weight_chain_ = 0;  // tiles that each chain has behind it
  bool file_chain_busy_ = false, weight_chain_busy_ = false;
  uint64_t written_ = 0, total_ = 0;
  std::optional<Error> error_;
  std::atomic<bool> stop_{false};
};

}  // namespace

Result<BundleDigests> write_files(const BundlePlan::Impl& plan, const std::string& directory,
                                  ThreadPool& pool,
                                  const std::function<void(uint64_t, uint64_t)>& progress) {
  return TileWriter(plan, directory, pool.size(), progress).run(pool);
}

}  // namespace ferry
