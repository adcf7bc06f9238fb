#include "packer/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/interrupt.h"
#include "core/text.h"
#include "graph/recipe.h"
#include "packer/digests.h"
#include "packer/file_set.h"
#include "packer/file_writer.h"
#include "packer/non_finite.h"
#include "packer/stage_run.h"

namespace ferry::packer {

// Files with weights come first. `input` owns the recipes and the known bytes.
struct WeightFilesPlan::Impl : FileSet {
  WeightFilesInput input;
  std::vector<const FileTensor*> tensors;  // by weight
  std::vector<PlannedFile> listing;
  uint64_t total_bytes = 0;
};

namespace {

Failure defect(const WeightFile& file, std::string_view what) {
  return fail(ErrorCode::kInternal, fmt::format("plan of {}: {}", printable(file.path), what));
}

// Checks that each extent is within the file and after the previous one.
Status check_extents(const WeightFile& file, const std::vector<Extent>& extents) {
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.offset < end || extent.bytes > file.bytes - extent.offset) {
      return defect(file,
                    fmt::format("bytes at {} overlap others or leave the file", extent.offset));
    }
    end = extent.offset + extent.bytes;
  }
  return {};
}

// Adds the contents of the files to the FileSet for the file writer.
class FileSetBuilder {
 public:
  explicit FileSetBuilder(WeightFilesPlan::Impl& plan) : plan_(plan) {}

  Status run() {
    for (const WeightFile& file : plan_.input.files) FERRY_RETURN_IF_ERROR(add(file));
    for (const PlainFileInput& file : plan_.input.plain) FERRY_RETURN_IF_ERROR(add(file));
    if (plan_.input.is_directory || plan_.files.size() == 1) return {};
    return fail(ErrorCode::kInternal, "several files are planned where the target is one");
  }

 private:
  Status add(const WeightFile& file) {
    FilePlan out;
    out.name = file.path;
    out.bytes = file.bytes;
    out.has_weights = out.plain_digest = true;
    out.finishing = file.finishing;
    for (const FileBytes& known : file.known) {
      out.extents.push_back(
          {Extent::Kind::kBlob, out.blobs.size(), known.offset, known.bytes.size()});
      out.blobs.emplace_back(known.bytes);
    }
    for (const FileLiteral& made : file.literals) {
      out.extents.push_back(
          {Extent::Kind::kLiteral, out.literals.size(), made.offset, made.literal.bytes});
      out.literals.push_back(&made.literal);
    }
    for (const FileTensor& tensor : file.tensors) {
      if (tensor.recipe.outputs.size() != 1) return defect(file, "a tensor has several outputs");
      out.extents.push_back({Extent::Kind::kWeight, plan_.weights.size(), tensor.offset,
                             tensor.recipe.output().bytes()});
      plan_.weights.push_back(&tensor.recipe);
      plan_.first_segment.push_back(plan_.segments++);
      plan_.tensors.push_back(&tensor);
    }
    std::ranges::stable_sort(out.extents, {}, &Extent::offset);
    FERRY_RETURN_IF_ERROR(check_extents(file, out.extents));
    return add(std::move(out));
  }

  Status add(const PlainFileInput& file) {
    FilePlan out;
    out.name = file.path;
    out.bytes = file.file ? file.file->size() : file.text.size();
    if (file.file) {
      out.extents.push_back({Extent::Kind::kCopy, plan_.copied.size(), 0, out.bytes});
      plan_.copied.push_back(file.file);
    } else {
      out.extents.push_back({Extent::Kind::kBlob, 0, 0, out.bytes});
      out.blobs.push_back(std::as_bytes(std::span(file.text)));
    }
    return add(std::move(out));
  }

  Status add(FilePlan file) {
    if (!names_.insert(file.name).second || file.name.find('/') != std::string::npos) {
      return fail(ErrorCode::kInternal,
                  fmt::format("{} is no name for a file, or taken", quoted(file.name)));
    }
    plan_.listing.push_back({file.name, file.bytes});
    plan_.total_bytes += file.bytes;
    plan_.files.push_back(std::move(file));
    return {};
  }

  WeightFilesPlan::Impl& plan_;
  std::set<std::string> names_;
};

std::vector<WrittenWeight> weights_of(const WeightFilesPlan::Impl& plan) {
  std::vector<WrittenWeight> weights;
  for (const FileTensor* tensor : plan.tensors) {
    WrittenWeight& weight = weights.emplace_back();
    weight.name = tensor->name;
    weight.dtype = tensor->recipe.output().dtype;
    for (const size_t entry : stored_entries_of(tensor->recipe, *plan.source)) {
      weight.sources.push_back(plan.source->entries()[entry].name);
    }
  }
  return weights;
}

// States positions, names and recipes of all tensors, and the digest of everything else in their
// files.
std::string plan_text(const WeightFilesPlan::Impl& plan) {
  std::string text = "files for other programs\n";
  for (const WeightFile& file : plan.input.files) {
    text += fmt::format("{} {}\n", quoted(file.path), file.bytes);
    for (const FileBytes& known : file.known) {
      text += fmt::format("{} {}\n", known.offset, to_hex(sha256(known.bytes)));
    }
    for (const FileLiteral& made : file.literals) {
      text += fmt::format("{} {} {}\n", made.offset, made.literal.bytes, quoted(made.literal.key));
    }
    for (const FileTensor& tensor : file.tensors) {
      text += fmt::format("{} {} {} {}\n", tensor.offset, tensor.recipe.output().bytes(),
                          quoted(tensor.name), text_of(tensor.recipe, *plan.source));
    }
  }
  return text;
}

Status write_weight_files(const WeightFilesPlan::Impl& plan, const OutputFolder& folder,
                          ResumableStage* stage, ThreadPool& pool, const ShowProgress& progress,
                          WrittenFiles& written) {
  const FileDigests digests = FERRY_TRY(write_files(plan, folder, stage, pool, progress));
  FERRY_RETURN_IF_ERROR(check_sources_unchanged(plan));
  const std::vector<WrittenWeight> weights = weights_of(plan);
  FERRY_RETURN_IF_ERROR(check_values(weights, digests.non_finite, *plan.source));
  FERRY_RETURN_IF_ERROR(check_interrupt());
  for (size_t i = 0; i < plan.listing.size(); ++i) {
    written.files.push_back({plan.listing[i].path, plan.listing[i].bytes, digests.files[i]});
  }
  written.non_finite = non_finite_weights(weights, digests.non_finite);
  written.resumed_bytes = digests.taken_over;
  return {};
}

}  // namespace

Result<WeightFilesPlan> WeightFilesPlan::make(WeightFilesInput input, const TensorSource& source) {
  const auto impl = std::make_shared<Impl>();
  impl->input = std::move(input);
  impl->source = &source;
  impl->source_digests = impl->fast_digests = false;
  FERRY_RETURN_IF_ERROR(FileSetBuilder(*impl).run());
  WeightFilesPlan plan;
  plan.impl_ = impl;
  return plan;
}

const std::vector<PlannedFile>& WeightFilesPlan::files() const { return impl_->listing; }
uint64_t WeightFilesPlan::total_bytes() const { return impl_->total_bytes; }
const WeightFilesInput& WeightFilesPlan::input() const { return impl_->input; }
const TensorSource& WeightFilesPlan::source() const { return *impl_->source; }

Result<WrittenFiles> WeightFilesPlan::write(const FilesTarget& target, ThreadPool& pool,
                                            const ShowProgress& progress) const {
  using Kind = StagingDirectory::Kind;
  const StagedOutput output{.path = target.path,
                            .kind = impl_->input.is_directory ? Kind::kCheckpoint : Kind::kFile,
                            .overwrite = target.overwrite,
                            .resume = target.resume,
                            .synced = target.synced,
                            .files = impl_.get(),
                            .listing = &impl_->listing,
                            .plan_text = [&] { return plan_text(*impl_); }};
  WrittenFiles written;
  FERRY_RETURN_IF_ERROR(
      write_staged(output, pool, [&](const StagingDirectory& staging, ResumableStage* stage) {
        return write_weight_files(*impl_, OutputFolder(staging.path(), target.synced), stage, pool,
                                  progress, written);
      }));
  return written;
}

}  // namespace ferry::packer
