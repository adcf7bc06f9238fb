// BlockCache keeps parts of tensors that are costly to compute and are read in smaller pieces.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/result.h"

namespace ferry {

// Keeps the most recently used blocks: twice as many as there are reading threads, so that a thread
// finds the block that it reads, and at least kLeastBlocks, so that a few tensors can be read in
// turn. Thread-safe.
class BlockCache {
 public:
  static constexpr size_t kLeastBlocks = 16;
  using Bytes = std::vector<std::byte>;
  using Block = std::shared_ptr<const Bytes>;

  // Returns block `number` of tensor `tensor`, and calls `compute` if the block is not cached.
  // Waits if another thread computes the block. Errors are not cached.
  Result<Block> get(size_t tensor, uint64_t number, const std::function<Result<Bytes>()>& compute);

 private:
  struct Kept {
    size_t tensor = 0;
    uint64_t number = 0;
    Block block;  // nullptr while the block is being computed
  };
  using Place = std::list<Kept>::iterator;
  class Computation;

  Place find(size_t tensor, uint64_t number);
  void trim();

  std::mutex mutex_;
  std::condition_variable done_;  // notified when a computation has ended
  std::list<Kept> kept_;          // most recently used first
  std::set<std::thread::id> readers_;
};

}  // namespace ferry
