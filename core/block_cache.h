// BlockCache: parts of tensors that are costly to compute and are read in smaller pieces.
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

// Keeps the blocks that were used last: twice as many as there are threads that read, so that a
// thread finds the block that it is in the middle of, and kLeastBlocks at least, so that a few
// tensors can be read in turn. Thread-safe.
class BlockCache {
 public:
  static constexpr size_t kLeastBlocks = 16;
  using Bytes = std::vector<std::byte>;
  using Block = std::shared_ptr<const Bytes>;

  // Block `number` of tensor `tensor`, by `compute` if it is not here. A block that another thread
  // computes is waited for. Errors are not kept.
  Result<Block> get(size_t tensor, uint64_t number, const std::function<Result<Bytes>()>& compute);

 private:
  struct Kept {
    size_t tensor = 0;
    uint64_t number = 0;
    Block block;  // nullptr while it is computed
  };
  using Place = std::list<Kept>::iterator;
  class Computation;

  Place find(size_t tensor, uint64_t number);
  void trim();

  std::mutex mutex_;
  std::condition_variable done_;  // a computation has ended
  std::list<Kept> kept_;          // the last used first
  std::set<std::thread::id> readers_;
};

}  // namespace ferry
