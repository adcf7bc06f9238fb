#include "proof/compared_files.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/interrupt.h"
#include "core/sha256.h"
#include "core/text.h"
#include "graph/recipe.h"
#include "packer/digests.h"
#include "proof/stored_weights.h"

namespace ferry::proof {
namespace {

Result<Digest> tensor_digest(const TensorSource& source, size_t entry) {
  constexpr uint64_t kBlock = uint64_t{1} << 20;
  const uint64_t bytes = source.entries()[entry].bytes;
  std::vector<std::byte> block(static_cast<size_t>(std::min(kBlock, bytes)));
  Sha256 sum;
  for (uint64_t at = 0; at < bytes; at += kBlock) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto part = std::span(block).first(static_cast<size_t>(std::min(kBlock, bytes - at)));
    FERRY_RETURN_IF_ERROR(source.read(entry, at, part));
    sum.update(part);
  }
  return sum.finish();
}

}  // namespace

Result<std::vector<packer::ManifestSourceFile>> digest_sources(const plan::Conversion& conversion,
                                                               ThreadPool& pool) {
  const TensorSource& source = *conversion.mapped.source;
  std::set<size_t> used;
  for (const auto& [name, weight] : weights_of(conversion)) {
    for (const size_t entry : graph::stored_entries_of(weight->recipe, source)) used.insert(entry);
  }
  const std::vector<size_t> order(used.begin(), used.end());
  std::vector<std::optional<Digest>> digests(source.entries().size());
  std::vector<Status> failures(order.size());
  pool.parallel_for(order.size(), [&](size_t i) {
    Result<Digest> digest = tensor_digest(source, order[i]);
    if (digest) {
      digests[order[i]] = *digest;
    } else {
      failures[i] = digest.pass();
    }
  });
  for (Status& failure : failures) FERRY_RETURN_IF_ERROR(std::move(failure));
  FERRY_RETURN_IF_ERROR(source.check_unchanged());
  const std::vector<std::string> trees = packer::source_tree_digests(source, digests);
  std::vector<packer::ManifestSourceFile> files;
  for (size_t i = 0; i < trees.size(); ++i) {
    files.push_back({source.files()[i].name, source.files()[i].bytes, trees[i]});
  }
  return files;
}

bool same_files(std::vector<packer::ManifestSourceFile> a,
                std::vector<packer::ManifestSourceFile> b) {
  const auto path = &packer::ManifestSourceFile::path;
  std::ranges::sort(a, {}, path);
  std::ranges::sort(b, {}, path);
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.path == y.path && x.bytes == y.bytes && x.sha256_tree == y.sha256_tree;
  });
}

void write_source_files(JsonWriter& json, const std::vector<packer::ManifestSourceFile>& files) {
  json.key("files").begin_array();
  for (const packer::ManifestSourceFile& file : files) {
    json.begin_object().member("path", file.path).member("bytes", file.bytes);
    json.member("sha256_tree", file.sha256_tree).end_object();
  }
  json.end_array();
}

Result<HashedFile> HashedFile::open(const std::string& path) {
  constexpr uint64_t kBlock = uint64_t{1} << 20;
  InputFile file = FERRY_TRY(InputFile::open(path));
  std::vector<std::byte> block(kBlock);
  Sha256 sum;
  for (uint64_t at = 0; at < file.size(); at += kBlock) {
    const std::span<std::byte> part =
        std::span(block).first(static_cast<size_t>(std::min(kBlock, file.size() - at)));
    FERRY_RETURN_IF_ERROR(file.read_at(at, part));
    sum.update(part);
  }
  return HashedFile(std::move(file), to_hex(sum.finish()));
}

Result<ReferenceFile> HashedFile::reference(bool embedded) const {
  FERRY_RETURN_IF_ERROR(file_.check_unchanged());
  return ReferenceFile{.name = base_name(file_.path()),
                       .embedded = embedded,
                       .bytes = file_.size(),
                       .sha256 = sha256_};
}

}  // namespace ferry::proof
