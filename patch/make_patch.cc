#include "patch/make_patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/atomic_file.h"
#include "core/interrupt.h"
#include "core/sha256.h"
#include "core/text.h"
#include "patch/frames.h"
#include "patch/match.h"
#include "patch/patch_file.h"

namespace ferry::patch {
namespace {

// Appends to the file and takes the digest of everything.
class HashedOutput {
 public:
  explicit HashedOutput(AtomicFile file) : file_(std::move(file)) {}
  Status append(std::span<const std::byte> bytes) {
    hash_.update(bytes);
    FERRY_RETURN_IF_ERROR(file_.write_at(size_, bytes));
    size_ += bytes.size();
    return {};
  }
  uint64_t size() const { return size_; }
  Status publish() {
    const Digest digest = hash_.finish();
    FERRY_RETURN_IF_ERROR(append(digest));
    return file_.publish();
  }

 private:
  AtomicFile file_;
  Sha256 hash_;
  uint64_t size_ = 0;
};

bool continues(const Op& last, const Op& next) {
  return last.kind == OpKind::kCopy && next.kind == OpKind::kCopy &&
         last.old_file == next.old_file && last.old_offset + last.bytes == next.old_offset;
}

class PatchMaker {
 public:
  PatchMaker(const Folder& made, const OldIndex& old, HashedOutput& out, ThreadPool& pool,
             SharedProgress& progress)
      : made_(made), old_(old), out_(out), pool_(pool), progress_(progress) {}

  Result<PatchSummary> run() {
    FERRY_RETURN_IF_ERROR(out_.append(PatchBytes::head()));
    for (uint32_t i = 0; i < made_.files.size(); ++i) FERRY_RETURN_IF_ERROR(add_file(i));
    add_removed();
    list_old_files();
    FERRY_RETURN_IF_ERROR(append_table());
    for (const FolderFile& file : made_.files) FERRY_RETURN_IF_ERROR(file.file.check_unchanged());
    for (const FolderFile& file : old_.folder().files) {
      FERRY_RETURN_IF_ERROR(file.file.check_unchanged());
    }
    FERRY_RETURN_IF_ERROR(out_.publish());
    summary_.old_bytes = old_.folder().bytes();
    summary_.new_bytes = made_.bytes();
    summary_.patch_bytes = out_.size();
    return std::move(summary_);
  }

 private:
  Status add_file(uint32_t index) {
    const FolderFile& file = made_.files[index];
    NewFile planned{{file.name, file.file.size(), {}}, {}};
    Sha256 hash;
    const std::vector<Block> blocks = blocks_of(made_, index, old_);
    for (size_t begin = 0; begin < blocks.size();) {
      const size_t end = end_of_batch(blocks, begin);
      FERRY_RETURN_IF_ERROR(
          add_batch(file.file, std::span(blocks).subspan(begin, end - begin), hash, planned.ops));
      begin = end;
    }
    planned.file.sha256 = hash.finish();
    summarise(planned);
    table_.new_files.push_back(std::move(planned));
    return {};
  }

  // The results of a batch are in memory together.
  size_t end_of_batch(std::span<const Block> blocks, size_t begin) const {
    uint64_t bytes = 0;
    size_t end = begin;
    while (end < blocks.size() && bytes < 2 * kMaxBlockBytes * pool_.size()) {
      bytes += blocks[end++].bytes;
    }
    return end;
  }

  Status add_batch(const InputFile& file, std::span<const Block> blocks, Sha256& hash,
                   std::vector<Op>& ops) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    std::vector<std::optional<Result<std::vector<Piece>>>> found(blocks.size());
    Status hashed;
    pool_.parallel_for(blocks.size() + 1, [&](size_t i) {
      if (i == 0) {
        hashed = hash_blocks(file, blocks, hash);
      } else {
        found[i - 1] = match_block(file, blocks[i - 1], old_);
        progress_.advance(blocks[i - 1].bytes);
      }
    });
    FERRY_RETURN_IF_ERROR(std::move(hashed));
    for (auto& pieces : found) {
      for (const Piece& piece : FERRY_TRY(std::move(*pieces))) {
        FERRY_RETURN_IF_ERROR(out_.append(piece.stored));
        if (!ops.empty() && continues(ops.back(), piece.op)) {
          ops.back().bytes += piece.op.bytes;
        } else {
          ops.push_back(piece.op);
        }
      }
    }
    return {};
  }

  static Status hash_blocks(const InputFile& file, std::span<const Block> blocks, Sha256& hash) {
    std::vector<std::byte> bytes;
    for (const Block& block : blocks) {
      bytes.resize(block.bytes);
      FERRY_RETURN_IF_ERROR(file.read_at(block.offset, bytes));
      hash.update(bytes);
    }
    return {};
  }

  void summarise(const NewFile& planned) {
    PatchedFile file{planned.file.name, FileState::kAdded, planned.file.bytes};
    for (const Op& op : planned.ops) {
      file.stored += op.stored;
      if (op.kind == OpKind::kCopy) file.copied += op.bytes;
    }
    if (const uint32_t* before = old_.file(planned.file.name)) {
      const bool equal = old_.digests()[*before] == planned.file.sha256;
      file.state = equal ? FileState::kUnchanged : FileState::kChanged;
    }
    summary_.files.push_back(std::move(file));
  }

  void add_removed() {
    std::set<std::string_view> names;
    for (const FolderFile& file : made_.files) names.insert(file.name);
    for (const FolderFile& file : old_.folder().files) {
      if (names.contains(file.name)) continue;
      summary_.files.push_back({file.name, FileState::kRemoved, file.file.size()});
    }
    std::ranges::sort(summary_.files, {}, &PatchedFile::name);
  }

  // Lists the old files that are read, and numbers them anew.
  void list_old_files() {
    const std::vector<FolderFile>& files = old_.folder().files;
    std::vector<bool> used(files.size(), false);
    const auto for_each_reader = [&](const auto& body) {
      for (NewFile& made : table_.new_files) {
        for (Op& op : made.ops) {
          if (op.kind != OpKind::kData) body(op);
        }
      }
    };
    for_each_reader([&](Op& op) { used[op.old_file] = true; });
    std::vector<uint32_t> numbers(files.size(), 0);
    for (uint32_t i = 0; i < files.size(); ++i) {
      if (!used[i]) continue;
      numbers[i] = static_cast<uint32_t>(table_.old_files.size());
      table_.old_files.push_back({files[i].name, files[i].file.size(), old_.digests()[i]});
    }
    for_each_reader([&](Op& op) { op.old_file = numbers[op.old_file]; });
  }

  Status append_table() {
    const std::vector<std::byte> table = write_table(table_);
    if (table.size() > kMaxTableBytes) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: the table of the patch has {}, more than {}", printable(made_.path),
                      human_bytes(table.size()), human_bytes(kMaxTableBytes)));
    }
    std::vector<std::byte> frame;
    append_frame(table, frame);
    const uint64_t offset = out_.size();
    FERRY_RETURN_IF_ERROR(out_.append(frame));
    return out_.append(PatchBytes::tail(offset, frame.size(), table.size()));
  }

  const Folder& made_;
  const OldIndex& old_;
  HashedOutput& out_;
  ThreadPool& pool_;
  SharedProgress& progress_;
  Table table_;
  PatchSummary summary_;
};

}  // namespace

std::string_view name_of(FileState state) {
  switch (state) {
    case FileState::kUnchanged:
      return "unchanged";
    case FileState::kChanged:
      return "changed";
    case FileState::kAdded:
      return "added";
    case FileState::kRemoved:
      return "removed";
  }
  return "";
}

uint64_t PatchSummary::count(FileState state) const {
  return static_cast<uint64_t>(std::ranges::count(files, state, &PatchedFile::state));
}

Result<PatchSummary> make_patch(const std::string& old_folder, const std::string& new_folder,
                                const std::string& output, bool overwrite, ThreadPool& pool,
                                const ShowProgress& progress) {
  const Folder old = FERRY_TRY(open_folder(old_folder));
  const Folder made = FERRY_TRY(open_folder(new_folder));
  const IfExists existing = overwrite ? IfExists::kReplace : IfExists::kRefuse;
  HashedOutput out(FERRY_TRY(AtomicFile::create(output, existing, 0)));
  SharedProgress shared(progress, old.bytes() + made.bytes());
  const OldIndex index = FERRY_TRY(OldIndex::make(old, pool, shared));
  return PatchMaker(made, index, out, pool, shared).run();
}

}  // namespace ferry::patch
