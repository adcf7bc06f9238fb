#include "core/block_cache.h"

#include <algorithm>
#include <utility>

namespace ferry {

// Removes the place of a block again if computing the block ends with an error or an exception.
class BlockCache::Computation {
 public:
  Computation(BlockCache& cache, Place place) : cache_(cache), place_(place) {}
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;
  ~Computation() {
    const std::lock_guard lock(cache_.mutex_);
    if (block) {
      place_->block = std::move(block);
      cache_.trim();
    } else {
      cache_.kept_.erase(place_);
    }
    cache_.done_.notify_all();
  }

  Block block;

 private:
  BlockCache& cache_;
  Place place_;
};

BlockCache::Place BlockCache::find(size_t tensor, uint64_t number) {
  return std::ranges::find_if(
      kept_, [&](const Kept& kept) { return kept.tensor == tensor && kept.number == number; });
}

// Blocks that are being computed are kept.
void BlockCache::trim() {
  const size_t most = std::max(kLeastBlocks, 2 * readers_.size());
  for (Place place = kept_.end(); kept_.size() > most && place != kept_.begin();) {
    --place;
    if (place->block) place = kept_.erase(place);
  }
}

Result<BlockCache::Block> BlockCache::get(size_t tensor, uint64_t number,
                                          const std::function<Result<Bytes>()>& compute) {
  std::unique_lock lock(mutex_);
  readers_.insert(std::this_thread::get_id());
  Place place = find(tensor, number);
  while (place != kept_.end() && !place->block) {
    done_.wait(lock);
    place = find(tensor, number);
  }
  if (place != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, place);
    return place->block;
  }
  kept_.push_front({tensor, number, nullptr});
  Computation computation(*this, kept_.begin());
  lock.unlock();
  const auto block = std::make_shared<const Bytes>(FERRY_TRY(compute()));
  computation.block = block;
  return block;
}

}  // namespace ferry
