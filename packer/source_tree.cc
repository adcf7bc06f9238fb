#include "packer/source_tree.h"

#include <string_view>

#include "core/derived_source.h"
#include "packer/segment_digest.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kTreeTag = "ferry-source-file-v1\n";

}  // namespace

std::vector<std::string> source_tree_digests(const TensorSource& source,
                                             const std::vector<std::optional<Digest>>& entries) {
  std::vector<Sha256> trees(source.files().size());
  for (size_t i = 0; i < trees.size(); ++i) {
    const SourceFile& file = source.files()[i];
    update_text(trees[i], kTreeTag);
    update_u64(trees[i], file.bytes);
    update_u64(trees[i], file.header.size());
    trees[i].update(file.header);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const TensorEntry& entry = source.entries()[i];
    if (!parts_of(source, i).empty()) continue;
    Sha256& tree = trees[entry.file];
    update_u64(tree, entry.offset);
    update_u64(tree, entry.bytes);
    const std::byte was_read{static_cast<unsigned char>(entries[i] ? 1 : 0)};
    tree.update({&was_read, 1});
    if (entries[i]) tree.update(*entries[i]);
  }
  std::vector<std::string> digests;
  for (Sha256& tree : trees) digests.push_back(to_hex(tree.finish()));
  return digests;
}

}  // namespace ferry::packer
