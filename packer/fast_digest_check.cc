// Files of a bundle against the XXH3 that its manifest states, in blocks on all threads.
#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "core/xxh3.h"
#include "packer/bundle_examination.h"
#include "packer/segment_digest.h"

namespace ferry::packer {
namespace {

class FastCheck {
 public:
  FastCheck(const Manifest& manifest, const OpenBundleFiles& files)
      : manifest_(manifest), files_(files) {}

  std::set<std::string> run(ThreadPool& pool, const ShowProgress& show) {
    for (size_t i = 0; i < manifest_.files.size(); ++i) {
      if (files_.open.contains(manifest_.files[i].path)) collect(i);
    }
    SharedProgress progress(show, bytes_);
    pool.parallel_for(blocks_.size(), [&](size_t i) {
      digest(blocks_[i]);
      progress.advance(blocks_[i].bytes);
    });
    for (size_t begin = 0, end = 0; begin < blocks_.size(); begin = end) {
      while (end < blocks_.size() && blocks_[end].file == blocks_[begin].file) ++end;
      judge(std::span(blocks_).subspan(begin, end - begin));
    }
    return std::move(suspects_);
  }

 private:
  // A part of a run of bytes: a segment, or the whole of a plain file.
  struct Block {
    size_t file = 0;
    uint64_t offset = 0, bytes = 0;
    bool begins_run = false;
    Result<FastDigest> digest = FastDigest{};
  };

  const std::string& name_of(size_t file) const { return manifest_.files[file].path; }

  void collect(size_t index) {
    const ManifestFile& file = manifest_.files[index];
    if (file.method == kPlainDigest) return add_run(index, 0, file.bytes);
    if (tensors_.empty()) tensors_ = tensors_by_file(manifest_);
    const auto found = tensors_.find(file.path);
    std::vector<const ManifestTensor*> stated;
    if (found != tensors_.end()) stated = found->second;
    const auto segments = segments_of(stated, file.bytes, nullptr);
    if (!segments || segments->empty()) {
      suspects_.insert(file.path);
      return;
    }
    for (const HashedSegment& segment : *segments) add_run(index, segment.offset, segment.bytes);
  }

  void add_run(size_t file, uint64_t offset, uint64_t bytes) {
    bytes_ += bytes;
    for (uint64_t done = 0; done == 0 || done < bytes; done += kFastDigestBlock) {
      blocks_.push_back({file, offset + done, std::min(kFastDigestBlock, bytes - done), done == 0});
    }
  }

  void digest(Block& block) const {
    if (const Status go_on = check_interrupt(); !go_on) {
      block.digest = Failure(go_on.error());
      return;
    }
    const auto mapped = files_.mapped.find(name_of(block.file));
    if (mapped != files_.mapped.end()) {
      block.digest = xxh3(mapped->second.bytes().subspan(block.offset, block.bytes));
      return;
    }
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(block.bytes);
    const std::span bytes(buffer.get(), block.bytes);
    const Status read = files_.open.at(name_of(block.file)).read_at(block.offset, bytes);
    block.digest = read ? Result<FastDigest>(xxh3(bytes)) : Failure(read.error());
  }

  // All blocks of one file.
  void judge(std::span<const Block> blocks) {
    const size_t file = blocks[0].file;
    const auto digest = digest_of_file(file, blocks);
    const bool same = digest && to_hex(*digest) == manifest_.files[file].xxh3 &&
                      files_.open.at(name_of(file)).check_unchanged();
    if (!same) suspects_.insert(name_of(file));
  }

  Result<FastDigest> digest_of_file(size_t file, std::span<const Block> blocks) const {
    std::vector<HashedSegment> runs;
    FastHash hash;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].begins_run) runs.push_back({blocks[i].offset, 0});
      runs.back().bytes += blocks[i].bytes;
      if (blocks[i].bytes > 0) hash.add_block(FERRY_TRY(blocks[i].digest));
      if (i + 1 == blocks.size() || blocks[i + 1].begins_run) runs.back().fast = hash.finish();
    }
    const ManifestFile& stated = manifest_.files[file];
    if (stated.method == kPlainDigest) return runs[0].fast;
    const InputFile& input = files_.open.at(stated.path);
    const auto read = [&](uint64_t offset, std::span<std::byte> out) {
      return input.read_at(offset, out);
    };
    return FERRY_TRY(digest_of_segments(stated.bytes, runs, read)).fast;
  }

  const Manifest& manifest_;
  const OpenBundleFiles& files_;
  TensorsByFile tensors_;
  std::vector<Block> blocks_;  // by file
  uint64_t bytes_ = 0;
  std::set<std::string> suspects_;
};

}  // namespace

std::set<std::string> find_damage(const Manifest& manifest, const OpenBundleFiles& files,
                                  ThreadPool& pool, const ShowProgress& progress) {
  return FastCheck(manifest, files).run(pool, progress);
}

}  // namespace ferry::packer
